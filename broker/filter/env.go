package filter

import (
	"errors"
	"fmt"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Names of the variables of an expression.
const (
	subjectName = "subject"
	headersName = "headers"
	timeName    = "time"
	jsonName    = "json"

	attributesName = "attributes"
)

// environment returns the functions of expressions, and the variables that are given.
func environment(variables ...cel.EnvOption) (*cel.Env, error) {
	return cel.NewEnv(append(variables,
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(4*maxNesting), // the grammar takes several levels for one of the expression
		cel.ExpressionNodeLimit(maxNodes),
		cel.ExpressionNestingDepthLimit(maxNesting),
		cel.RegexProgramSizeLimit(maxPattern),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	)...)
}

// explained returns the first of some issues, in one line.
func explained(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return issues.Err()
	}
	first := all[0]
	where := fmt.Sprintf("column %d", first.Location.Column()+1)
	if line := first.Location.Line(); line > 1 {
		where = fmt.Sprintf("line %d, %s", line, where)
	}
	return fmt.Errorf("%s: %s", where, first.Message)
}

// constantPatterns returns an error if a pattern of matches is not written in the expression: it
// would be compiled for each record, and nothing would bound it.
func constantPatterns(e ast.Expr) (err error) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "matches" {
			return
		}
		args := e.AsCall().Args()
		if pattern := args[len(args)-1]; pattern.Kind() != ast.LiteralKind {
			err = errors.New("the pattern of matches has to be written in the expression")
		}
	}))
	return err
}

// sizes are the bounds of what a record has, for the estimate of a cost.
type sizes struct{ results bool }

func (s sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	if s.results {
		return &cost.SizeEstimate{Max: maxResult}
	}
	most := uint64(0)
	switch path[0] {
	case subjectName:
		most = maxSubject
	case headersName:
		if most = maxSubject; len(path) == 1 {
			most = maxHeaders
		}
	case jsonName:
		// What it is, is not known. A string has more bytes, and comparing a byte costs a tenth of
		// an element.
		most = max(maxElements, maxPayload/10)
	case attributesName:
		most = maxAttributes / 2 // elements of a list; or bytes of a string, ten of which cost one
	default:
		return nil
	}
	return &cost.SizeEstimate{Max: most}
}

func (sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	switch function {
	case "contains", "matches": // what they look at is counted (work)
		return &cost.CallEstimate{CostEstimate: cost.Estimate{Min: 1, Max: 10}}
	}
	return nil
}

// variables are those of one record, for cel-go.
type variables struct {
	record *Record
	json   payload
	whole  ref.Val // the value of json; nil: nobody has asked
}

func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case subjectName:
		return types.String(v.record.Subject), true
	case headersName:
		return &headers{v.record.Header}, true
	case timeName:
		return types.Timestamp{Time: time.Unix(0, v.record.Time).UTC()}, true
	case jsonName:
		if v.whole == nil {
			v.json.b = v.record.Data
			v.whole = v.json.value()
		}
		return v.whole, true
	case attributesName:
		return v.record.attributes().Map(), true
	case workName:
		return &v.json.work, true
	}
	return nil, false
}

func (*variables) Parent() interpreter.Activation { return nil }
