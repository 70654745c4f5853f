package filter

import (
	"math"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// equality is a part of a condition that has to hold: something equals one of some constants.
type equality struct {
	root   string   // subject, headers, attributes or json
	names  []string // the path below it
	values []value  // texts and numbers
	whole  bool     // it is the condition
	// guarded: the condition asks whether there is something, so a missing value is no failure.
	guarded bool
}

// equalityOf returns an equality without which a condition does not match, or nil. Of several ones
// it is the first.
func equalityOf(e ast.Expr) *equality {
	var all []ast.Expr
	conjuncts(e, &all)
	var found *equality
	guarded := false
	for _, c := range all {
		guarded = guarded || isGuard(c)
		if found == nil {
			found = comparedOf(c)
		}
	}
	if found != nil {
		found.whole, found.guarded = len(all) == 1, guarded
	}
	return found
}

// conjuncts appends the conditions that && joins.
func conjuncts(e ast.Expr, all *[]ast.Expr) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		for _, a := range e.AsCall().Args() {
			conjuncts(a, all)
		}
		return
	}
	*all = append(*all, e)
}

// isGuard reports whether a condition asks whether there is something.
func isGuard(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().IsTestOnly()
	case ast.CallKind:
		c := e.AsCall()
		return c.FunctionName() == operators.In && c.Args()[1].Kind() == ast.IdentKind
	}
	return false
}

func comparedOf(e ast.Expr) *equality {
	if e.Kind() != ast.CallKind {
		return nil
	}
	c := e.AsCall()
	switch c.FunctionName() {
	case operators.Equals:
		if q := pathEquality(c.Args()[0], c.Args()[1]); q != nil {
			return q
		}
		return pathEquality(c.Args()[1], c.Args()[0])
	case operators.In:
		list := c.Args()[1]
		if list.Kind() == ast.ListKind && len(list.AsList().OptionalIndices()) == 0 {
			return pathEquality(c.Args()[0], list.AsList().Elements()...)
		}
	}
	return nil
}

func pathEquality(of ast.Expr, constants ...ast.Expr) *equality {
	root, names, ok := pathOf(of)
	if !ok || len(constants) == 0 {
		return nil
	}
	switch {
	case root == subjectName && len(names) == 0:
	case root == headersName && len(names) == 1:
	case root == attributesName && len(names) == 1:
	case root == jsonName && len(names) > 0:
	default:
		return nil
	}
	q := &equality{root: root, names: names}
	for _, e := range constants {
		v, ok := constant(e)
		if !ok || v.kind != isText && v.kind != isNumber {
			return nil
		}
		q.values = append(q.values, v)
	}
	return q
}

// same reports whether two equalities compare the same thing. A name may have any bytes, so the
// names aren't joined.
func (q *equality) same(other *equality) bool {
	return q.root == other.root && slices.Equal(q.names, other.names)
}

// hashed returns a number such that equal ones have the same. NaN has none, and equals nothing.
func hashed(number float64) uint64 {
	if number == 0 {
		number = 0 // and not -0
	}
	return math.Float64bits(number)
}
