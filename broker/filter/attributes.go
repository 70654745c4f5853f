package filter

import (
	"unsafe"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// CompileAttributes compiles an expression over a subject and its attributes, and returns it as
// cel-go has read it, too. The filter judges Records with Attributes, and looks at their Subject,
// and at nothing else. The error is an *Error.
func CompileAttributes(text string) (*Filter, *ast.AST, error) { return subjects.filter(text) }

// Attributes are those of a subject, at most 4 KiB.
type Attributes interface {
	// Find returns an attribute; the zero Operand: there is none.
	Find(name string) Operand
	// Has reports whether an attribute is a list with the element. ok is false if it is no list.
	Has(name string, element Operand) (has, ok bool)
	// Map returns the attributes as a map of cel-go, with strings, doubles, bools and lists.
	Map() ref.Val
}

// noAttributes are those of a subject without any.
type noAttributes struct{}

func (noAttributes) Find(string) Operand                { return Operand{} }
func (noAttributes) Has(string, Operand) (has, ok bool) { return false, false }
func (noAttributes) Map() ref.Val {
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{})
}

// Operand is the value of an attribute, or what it is compared with.
type Operand struct{ value value }

// TextOperand returns a string as an Operand.
func TextOperand(s string) Operand {
	return Operand{value{kind: isText, text: unsafe.Slice(unsafe.StringData(s), len(s))}}
}

// NumberOperand returns a number as an Operand.
func NumberOperand(n float64) Operand { return Operand{value{kind: isNumber, number: n}} }

// BoolOperand returns a bool as an Operand.
func BoolOperand(b bool) Operand { return Operand{truth(b)} }

// ListOperand returns a list as an Operand, without its elements.
func ListOperand() Operand { return Operand{value{kind: isOther}} }

// Equals reports whether both are the same string, number or bool.
func (o Operand) Equals(p Operand) bool { return o.value.equals(&p.value) }

// The nodes of attributes.
type (
	attributeOf  struct{ name string }
	hasAttribute struct{ name string }
	element      struct {
		list string
		with value
	}
)

func (n attributeOf) judge(s *state) value { return s.record.attributes().Find(n.name).value }

func (n hasAttribute) judge(s *state) value {
	return truth(s.record.attributes().Find(n.name).value.kind != isError)
}

func (n *element) judge(s *state) value {
	has, ok := s.record.attributes().Has(n.list, Operand{n.with})
	if !ok {
		return value{}
	}
	return truth(has)
}
