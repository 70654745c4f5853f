package query

import (
	"maps"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// Names that no attribute has, for what changes beside attributes.
const (
	anyName     = "*" // changes with each attribute
	subjectName = ""  // changes when a subject comes or goes
)

// needs say which changes a query may depend on.
type needs struct {
	// names are those whose change may change the verdict, in order.
	names []string
	// covered: only subjects with one of the pairs match.
	covered bool
	pairs   []pair
}

// pair is an attribute with a value, or with an element if it is a list. With subjectName it is the
// subject.
type pair struct {
	name   string
	kind   attribute.Kind
	text   string
	number float64 // of a bool: 1 or 0
}

func pairOf(name string, v attribute.Value) pair {
	p := pair{name: name, kind: v.Kind(), text: v.Text(), number: v.Number()}
	if v.Bool() {
		p.number = 1
	}
	return p
}

// needsOf returns the needs of a condition. In doubt it needs more.
func needsOf(e ast.Expr) (n needs) {
	names, known, all := map[string]bool{}, 0, 0
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := named(e); ok {
			names[name] = true
			known++
		} else if isVariable(e, "attributes") {
			all++
		}
	}))
	if all > known || len(names) > maxNames {
		names = map[string]bool{anyName: true}
	}
	if _, ok := required(e); !ok {
		names[subjectName] = true
	}
	n.names = slices.Sorted(maps.Keys(names))
	pairs, covered := cover(e)
	for _, p := range pairs {
		if !slices.Contains(n.pairs, p) {
			n.pairs = append(n.pairs, p)
		}
	}
	n.covered = covered
	return n
}

func isVariable(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}

// named returns the name of attributes.name, has(attributes.name), attributes["name"], and
// "name" in attributes.
func named(e ast.Expr) (name string, ok bool) {
	if name, ok = accessed(e); ok {
		return name, true
	}
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().FieldName(), isVariable(e.AsSelect().Operand(), "attributes")
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.In && isVariable(c.Args()[1], "attributes") {
			return stringOf(c.Args()[0])
		}
	}
	return "", false
}

// accessed returns the name of attributes.name and attributes["name"].
func accessed(e ast.Expr) (name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), !s.IsTestOnly() && isVariable(s.Operand(), "attributes")
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index && isVariable(c.Args()[0], "attributes") {
			return stringOf(c.Args()[1])
		}
	}
	return "", false
}

func stringOf(e ast.Expr) (s string, ok bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// required returns names of attributes: a subject that matches has one of them. ok is false if a
// subject may match without any.
func required(e ast.Expr) (names []string, ok bool) {
	if name, ok := named(e); ok {
		return []string{name}, true
	}
	if e.Kind() == ast.CallKind {
		switch args := e.AsCall().Args(); e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			for _, a := range args {
				if names, ok = required(a); ok {
					return names, true
				}
			}
			return nil, false
		case operators.LogicalOr:
			for _, a := range args {
				some, ok := required(a)
				if !ok {
					return nil, false
				}
				names = append(names, some...)
			}
			return names, true
		case operators.LogicalNot:
			return judged(args[0])
		}
	}
	return judged(e)
}

// judged returns names of attributes: for a subject that has none of them the expression fails. ok
// is false if the expression may have a value there.
func judged(e ast.Expr) (names []string, ok bool) {
	if name, ok := accessed(e); ok {
		return []string{name}, true
	}
	switch e.Kind() {
	case ast.SelectKind:
		return judged(e.AsSelect().Operand())
	case ast.ComprehensionKind:
		return judged(e.AsComprehension().IterRange())
	case ast.CallKind:
		c := e.AsCall()
		all := c.Args()
		switch c.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			return nil, false // one operand may decide without the other
		case operators.Conditional:
			all = all[:1]
		}
		if c.IsMemberFunction() {
			all = append([]ast.Expr{c.Target()}, all...)
		}
		for _, a := range all {
			if names, ok = judged(a); ok {
				return names, true
			}
		}
	}
	return nil, false
}

// cover returns pairs of a name and a value: a subject that matches has one of them. ok is false if
// no such pairs are known, or if there are too many.
func cover(e ast.Expr) (pairs []pair, ok bool) {
	if name, ok := accessed(e); ok {
		return []pair{pairOf(name, attribute.Bool(true))}, true
	}
	if e.Kind() != ast.CallKind {
		return nil, false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, a := range args {
			if some, known := cover(a); known && (!ok || len(some) < len(pairs)) {
				pairs, ok = some, true
			}
		}
		return pairs, ok
	case operators.LogicalOr:
		for _, a := range args {
			some, ok := cover(a)
			if !ok || len(pairs)+len(some) > maxCover {
				return nil, false
			}
			pairs = append(pairs, some...)
		}
		return pairs, true
	case operators.LogicalNot:
		if name, ok := accessed(args[0]); ok {
			return []pair{pairOf(name, attribute.Bool(false))}, true
		}
	case operators.Equals:
		if pairs, ok = equality(args[0], args[1]); ok {
			return pairs, true
		}
		return equality(args[1], args[0])
	case operators.In:
		if pairs, ok = equality(args[1], args[0]); ok { // a constant in the list of an attribute
			return pairs, true
		}
		if args[1].Kind() != ast.ListKind || args[1].AsList().Size() > maxCover {
			return nil, false
		}
		for _, element := range args[1].AsList().Elements() {
			some, ok := equality(args[0], element)
			if !ok {
				return nil, false
			}
			pairs = append(pairs, some...)
		}
		return pairs, true
	}
	return nil, false
}

// equality returns the pair of an attribute, or of the subject, that has the value of a literal.
func equality(e, literal ast.Expr) (pairs []pair, ok bool) {
	name, isAttribute := accessed(e)
	if !isAttribute && !isVariable(e, "subject") || literal.Kind() != ast.LiteralKind {
		return nil, false
	}
	const exact = 1 << 53 // up to here a float64 has each integer
	var v attribute.Value
	switch l := literal.AsLiteral().(type) {
	case types.String:
		v = attribute.String(string(l))
	case types.Bool:
		v = attribute.Bool(bool(l))
	case types.Double:
		v = attribute.Number(float64(l))
	case types.Int:
		if v = attribute.Number(float64(l)); l <= -exact || l >= exact {
			return nil, false
		}
	case types.Uint:
		if v = attribute.Number(float64(l)); l >= exact {
			return nil, false
		}
	default:
		return nil, false
	}
	return []pair{pairOf(name, v)}, true
}
