package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/parser"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/filter"
)

// Query is a compiled condition on subjects. Goroutines may share it.
type Query struct {
	text   string
	key    string // equal for queries that differ in the order of their clauses only
	cost   uint64
	filter *filter.Filter
	needs  needs
}

// Syntax is the language of a query's text.
type Syntax uint8

// Syntaxes.
const (
	CEL  Syntax = iota
	CQBS        // TranslateCQBS
)

// Error says why a text is no query.
type Error struct {
	Text string
	Err  error
}

func (e *Error) Error() string {
	text := e.Text
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return fmt.Sprintf("query %q: %v", text, e.Err)
}

// Unwrap returns the reason alone, with its column.
func (e *Error) Unwrap() error { return e.Err }

// Compile compiles a condition. The error is an *Error.
func Compile(text string, syntax Syntax) (*Query, error) {
	expression := text
	if syntax == CQBS {
		var err error
		if expression, err = TranslateCQBS(text); err != nil {
			return nil, &Error{text, err}
		}
	}
	f, read, err := filter.CompileAttributes(expression)
	if err != nil {
		var refused *filter.Error
		if errors.As(err, &refused) {
			err = refused.Err
		}
		if syntax == CQBS {
			err = fmt.Errorf("as CEL it is %s: %w", expression, err)
		}
		return nil, &Error{text, err}
	}
	return &Query{
		text: text, key: canonical(read.Expr(), read.SourceInfo()), cost: f.Cost() + patternsOf(read.Expr()),
		filter: f, needs: needsOf(read.Expr()),
	}, nil
}

// Key returns a text that is equal for queries that differ in the order of their clauses only.
func (q *Query) Key() string { return q.key }

// String returns the text.
func (q *Query) String() string { return q.text }

// Matches reports whether a subject with some attributes is a member. What can't be judged, because
// an attribute is missing or has another type, is none.
func (q *Query) Matches(subject string, attributes attribute.Set) bool {
	v := view{set: attributes}
	return q.matches(&filter.Record{Subject: []byte(subject), Attributes: &v})
}

func (q *Query) matches(r *filter.Record) bool { return q.filter.Judge(r) == filter.Yes }

// canonical returns a text that is equal for expressions that differ in the order and repetition of
// the operands of && and || only. Their errors don't depend on the order, either.
func canonical(e ast.Expr, info *ast.SourceInfo) string {
	if e.Kind() == ast.CallKind {
		switch c := e.AsCall(); c.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			var all []string
			for _, o := range operands(e, c.FunctionName()) {
				all = append(all, canonical(o, info))
			}
			slices.Sort(all)
			return "(" + strings.Join(slices.Compact(all), " "+c.FunctionName()+" ") + ")"
		case operators.LogicalNot:
			return "!" + canonical(c.Args()[0], info)
		}
	}
	text, err := parser.Unparse(e, info)
	if err != nil {
		return fmt.Sprintf("?%p", e) // equal to no other
	}
	return text
}

// operands returns what is joined by an operator, without parentheses.
func operands(e ast.Expr, operator string) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operator {
		return []ast.Expr{e}
	}
	var all []ast.Expr
	for _, a := range e.AsCall().Args() {
		all = append(all, operands(a, operator)...)
	}
	return all
}

// patternsOf returns patternCost if an expression has patterns.
func patternsOf(e ast.Expr) (cost uint64) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "matches" {
			cost = patternCost
		}
	}))
	return cost
}
