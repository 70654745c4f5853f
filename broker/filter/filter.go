package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types/ref"
)

// Record is what a Filter judges. Its slices are only read.
type Record struct {
	Subject []byte
	Header  []byte // the header block, as it was published; empty: there is none
	Data    []byte // the payload without the header
	Time    int64  // when it was stored, in ns since 1970
}

// Verdict is what a Filter says of a record.
type Verdict uint8

// Verdicts.
const (
	No     Verdict = iota // it does not match
	Yes                   // it matches
	Failed                // it can't be judged, and does not match; Why says the reason
)

// Filter is a compiled expression. Goroutines may share it.
type Filter struct {
	text    string
	program cel.Program
	direct  node // nil: program judges
	quick   bool
	// equality is a part of it that has to hold; nil: none is known.
	equality *equality
	paths    *paths
	states   sync.Pool // of *state
}

// Error says why an expression is no filter, or has no value.
type Error struct {
	Text string // of the expression
	Err  error
}

func (e *Error) Error() string { return "filter " + quoted(e.Text) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// quoted shortens an expression for an error.
func quoted(text string) string {
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Compile compiles an expression. The error is an *Error.
func Compile(text string) (*Filter, error) {
	f, err := compile(text)
	if err != nil {
		return nil, &Error{text, err}
	}
	return f, nil
}

func compile(text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is empty (write a condition, such as json.total > 100)")
	}
	checked, program, err := bounded(text, func(t *cel.Type) error {
		if t.IsExactType(cel.BoolType) || t.IsExactType(cel.DynType) {
			return nil
		}
		return fmt.Errorf("it is a %s, and not a condition (compare it with something)", cel.FormatCELType(t))
	})
	if err != nil {
		return nil, err
	}
	f := &Filter{text: text, program: program}
	f.direct, f.paths = direct(checked)
	f.quick, f.equality = isQuick(f.direct), equalityOf(checked)
	f.states.New = func() any { return newState(f.paths) }
	return f, nil
}

// bounded compiles an expression of a type that is accepted, and whose cost is within the bound.
func bounded(text string, accept func(*cel.Type) error) (ast.Expr, cel.Program, error) {
	if len(text) > maxExpression {
		return nil, nil, fmt.Errorf("it has %d bytes, and the bound is %d", len(text), maxExpression)
	}
	env, err := environment()
	if err != nil {
		return nil, nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, explained(issues)
	}
	if err := accept(checked.OutputType()); err != nil {
		return nil, nil, err
	}
	if err := constantPatterns(checked.NativeRep().Expr()); err != nil {
		return nil, nil, err
	}
	cost, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, nil, err
	}
	if cost.Max > maxCost {
		return nil, nil, fmt.Errorf("a record may cost %s, and the bound is %d (for each element of a list, neither pass over another list nor compare two values of the message)", units(cost.Max), maxCost)
	}
	program, err := env.Program(checked, cel.CustomDecoratorV2(counted), cel.EvalOptions(cel.OptOptimize))
	return checked.NativeRep().Expr(), program, err
}

func units(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any number of units"
	}
	return fmt.Sprintf("%d units", cost)
}

// String returns the expression.
func (f *Filter) String() string { return f.text }

// IsQuick reports whether judging a small record takes less than some microseconds.
func (f *Filter) IsQuick() bool { return f.quick }

// Judge returns the verdict about a record.
func (f *Filter) Judge(r *Record) Verdict {
	if f.direct == nil {
		v, _ := f.byProgram(r)
		return v
	}
	s := f.states.Get().(*state)
	defer f.states.Put(s)
	s.begin(r)
	v := f.direct.judge(s)
	s.end()
	if v.kind != isBool {
		return Failed
	}
	if v.truth {
		return Yes
	}
	return No
}

// Why returns why the verdict about a record is Failed, or nil if it isn't.
func (f *Filter) Why(r *Record) error {
	_, err := f.byProgram(r)
	return err
}

// byProgram has cel-go judge a record.
func (f *Filter) byProgram(r *Record) (Verdict, error) {
	out, err := evaluate(f.program, r)
	if err != nil {
		return Failed, err
	}
	switch truth, ok := out.Value().(bool); {
	case !ok:
		return Failed, fmt.Errorf("the condition is a %s, and not a bool", out.Type().TypeName())
	case truth:
		return Yes, nil
	}
	return No, nil
}

// evaluate has cel-go evaluate an expression.
func evaluate(program cel.Program, r *Record) (ref.Val, error) {
	v := &variables{record: r}
	out, _, err := program.Eval(v)
	return out, cmp.Or(v.json.failed, err)
}
