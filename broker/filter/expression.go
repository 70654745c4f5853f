package filter

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Expression is a compiled expression whose value is asked for. Goroutines may share it.
type Expression struct {
	text    string
	program cel.Program
	direct  node // nil: program evaluates
	paths   *paths
	path    []string  // of the payload, if that is all of it
	states  sync.Pool // of *state
	names   bool      // it names attributes
}

// Kind is the type of a Value.
type Kind uint8

// Kinds of values.
const (
	None   Kind = iota // there is no value: the record has no such field, or it is an array or object
	Null               // null of JSON
	Bool               // Truth
	Number             // Number; also of integers, and of a duration in seconds
	Time               // Time, in ns since 1970
	Text               // Text
)

// Value is what an Expression has for a record.
type Value struct {
	Kind   Kind
	Truth  bool
	Number float64
	Time   int64
	Text   []byte // a part of the record, or a copy
}

// CompileExpression compiles an expression whose value is asked for, within the bounds of Compile.
// The error is an *Error.
func CompileExpression(text string) (*Expression, error) { return records.expression(text) }

// CompileStoredExpression is CompileExpression for expressions that may name attributes, too: those
// of the record's subject.
func CompileStoredExpression(text string) (*Expression, error) { return stored.expression(text) }

func (l *language) expression(text string) (*Expression, error) {
	e, err := l.compileExpression(text)
	if err != nil {
		return nil, &Error{text, err}
	}
	return e, nil
}

func (l *language) compileExpression(text string) (*Expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is empty (write an expression, such as json.total)")
	}
	checked, program, _, err := l.bounded(text, func(t *cel.Type) error {
		switch t.Kind() {
		case types.ListKind, types.MapKind, types.TypeKind, types.StructKind:
			return fmt.Errorf("it is a %s, and not a single value", cel.FormatCELType(t))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	e := &Expression{text: text, program: program, names: namesAttributes(checked.Expr())}
	e.direct, e.paths = directValue(checked.Expr())
	if _, ok := e.direct.(jsonOf); ok {
		_, e.path, _ = pathOf(checked.Expr())
	}
	e.states.New = func() any { return newState(e.paths) }
	return e, nil
}

// NamesAttributes reports whether the expression looks at attributes.
func (e *Expression) NamesAttributes() bool { return e.names }

// String returns the expression.
func (e *Expression) String() string { return e.text }

// Value returns the value for a record.
func (e *Expression) Value(r *Record) Value {
	if e.direct == nil {
		v, _ := e.byProgram(r)
		return v
	}
	s := e.states.Get().(*state)
	defer e.states.Put(s)
	s.begin(r, work{})
	v := e.direct.judge(s)
	s.end()
	return v.exported()
}

// exported returns what others see of a value.
func (v *value) exported() Value {
	switch v.kind {
	case isBool:
		return Value{Kind: Bool, Truth: v.truth}
	case isNumber:
		return Value{Kind: Number, Number: v.number}
	case isText:
		return Value{Kind: Text, Text: v.text}
	case isTime:
		return Value{Kind: Time, Time: v.time}
	case isNull:
		return Value{Kind: Null}
	}
	return Value{}
}

// Why returns why a record has no value, or nil if it has one.
func (e *Expression) Why(r *Record) error {
	_, err := e.byProgram(r)
	return err
}

// byProgram has cel-go evaluate the expression.
func (e *Expression) byProgram(r *Record) (Value, error) {
	out, err := evaluate(e.program, r, work{})
	if err != nil {
		return Value{}, err
	}
	switch v := out.(type) {
	case types.Bool:
		return Value{Kind: Bool, Truth: bool(v)}, nil
	case types.Double:
		return Value{Kind: Number, Number: float64(v)}, nil
	case types.Int:
		return Value{Kind: Number, Number: float64(v)}, nil
	case types.Uint:
		return Value{Kind: Number, Number: float64(v)}, nil
	case types.Duration:
		return Value{Kind: Number, Number: v.Seconds()}, nil
	case types.String:
		return Value{Kind: Text, Text: []byte(v)}, nil
	case types.Bytes:
		return Value{Kind: Text, Text: v}, nil
	case types.Null:
		return Value{Kind: Null}, nil
	case types.Timestamp:
		if !inNanoseconds(v.Time) {
			return Value{}, fmt.Errorf("the time %s is outside of the years 1678 to 2261", v.Time)
		}
		return Value{Kind: Time, Time: v.UnixNano()}, nil
	}
	return Value{}, fmt.Errorf("the value is a %s, and not a single value", out.Type().TypeName())
}

// inNanoseconds reports whether an int64 of ns since 1970 holds a time.
func inNanoseconds(t time.Time) bool {
	return !t.Before(time.Unix(0, math.MinInt64)) && !t.After(time.Unix(0, math.MaxInt64))
}
