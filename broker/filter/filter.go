package filter

import (
	"cmp"
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

	// Attributes are those of the subject, for filters and expressions that may name them. nil: it
	// has none.
	Attributes Attributes
}

func (r *Record) attributes() Attributes {
	if r.Attributes == nil {
		return noAttributes{}
	}
	return r.Attributes
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
	cost    uint64
	work    work        // what counts as done before a record is judged
	program cel.Program // nil: it is made when somebody asks (language.lean)
	direct  node        // nil: program judges
	quick   bool
	names   bool // it names attributes
	// equality is a part of it that has to hold; nil: none is known.
	equality *equality
	paths    *paths
	states   *sync.Pool // of *state
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

// Compile compiles an expression over a record. The error is an *Error.
func Compile(text string) (*Filter, error) {
	f, _, err := records.filter(text)
	return f, err
}

// CompileStored is Compile for expressions that may name attributes, too: those of the record's
// subject.
func CompileStored(text string) (*Filter, error) {
	f, _, err := stored.filter(text)
	return f, err
}

// filter compiles an expression, and returns it as cel-go has read it, too.
func (l *language) filter(text string) (*Filter, *ast.AST, error) {
	f, checked, err := l.compile(text)
	if err != nil {
		return nil, nil, &Error{text, err}
	}
	if l.lean && f.direct != nil {
		f.program = nil
	}
	return f, checked, nil
}

func (l *language) compile(text string) (*Filter, *ast.AST, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, fmt.Errorf("it is empty (write a condition, such as %s)", l.example)
	}
	checked, program, cost, err := l.bounded(text, func(t *cel.Type) error {
		if t.IsExactType(cel.BoolType) || t.IsExactType(cel.DynType) {
			return nil
		}
		return fmt.Errorf("it is a %s, and not a condition (compare it with something)", cel.FormatCELType(t))
	})
	if err != nil {
		return nil, nil, err
	}
	f := &Filter{text: text, cost: cost, work: l.work, program: program, states: &pathless}
	if f.direct, f.paths = direct(checked.Expr()); f.paths.count > 0 {
		f.states = &sync.Pool{New: func() any { return newState(f.paths) }}
	}
	f.direct = rooted(f.direct, f.paths)
	f.quick, f.equality = isQuick(f.direct), equalityOf(checked.Expr())
	f.names = namesAttributes(checked.Expr())
	return f, checked, nil
}

// bounded compiles an expression of a type that is accepted, and whose cost is within the bound.
func (l *language) bounded(text string, accept func(*cel.Type) error) (*ast.AST, cel.Program, uint64, error) {
	if len(text) > maxExpression {
		return nil, nil, 0, fmt.Errorf("it has %d bytes, and the bound is %d", len(text), maxExpression)
	}
	env, err := l.environment()
	if err != nil {
		return nil, nil, 0, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, 0, explained(issues)
	}
	if err := accept(checked.OutputType()); err != nil {
		return nil, nil, 0, err
	}
	if err := constantPatterns(checked.NativeRep().Expr()); err != nil {
		return nil, nil, 0, err
	}
	cost, err := env.EstimateCost(checked, sizes{l.results})
	if err != nil {
		return nil, nil, 0, err
	}
	if cost.Max > l.maxCost {
		return nil, nil, 0, fmt.Errorf("a %s may cost %s, and the bound is %d (for each element of a list, neither pass over another list nor compare two values of the %s)", l.judged, units(cost.Max), l.maxCost, l.of)
	}
	program, err := env.Program(checked, cel.CustomDecoratorV2(counted), cel.EvalOptions(cel.OptOptimize))
	return checked.NativeRep(), program, cost.Max, err
}

func units(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any number of units"
	}
	return fmt.Sprintf("%d units", cost)
}

// pathless has the states of all filters that look at no path of a payload.
var pathless = sync.Pool{New: func() any { return newState(noPaths) }}

var noPaths = newPaths()

// String returns the expression.
func (f *Filter) String() string { return f.text }

// Cost returns the most that judging may cost, in the units of cel-go, without the work that is
// counted as it is done.
func (f *Filter) Cost() uint64 { return f.cost }

// NamesAttributes reports whether the expression looks at attributes.
func (f *Filter) NamesAttributes() bool { return f.names }

func namesAttributes(e ast.Expr) (names bool) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		names = names || e.Kind() == ast.IdentKind && e.AsIdent() == attributesName
	}))
	return names
}

// IsQuick reports whether judging a small record takes less than some microseconds.
func (f *Filter) IsQuick() bool { return f.quick }

// Bytes returns about what the filter takes in memory, as measured: cel-go's program takes most.
func (f *Filter) Bytes() int {
	if f.program == nil {
		return 400 + 20*len(f.text)
	}
	return 1500 + 60*len(f.text)
}

// Judge returns the verdict about a record.
func (f *Filter) Judge(r *Record) Verdict {
	if f.direct == nil {
		v, _ := f.byProgram(r)
		return v
	}
	s := f.states.Get().(*state)
	s.begin(r, f.work)
	v := s.verdict(f.direct)
	s.end()
	f.states.Put(s)
	return v
}

// Judge judges many records by one Filter. One goroutine uses it at a time. It keeps the last
// record in memory.
type Judge struct {
	filter *Filter
	state  *state // nil: the Filter has no nodes of our own
}

// NewJudge returns a Judge.
func (f *Filter) NewJudge() *Judge {
	j := &Judge{filter: f}
	if f.direct != nil {
		j.state = newState(f.paths)
	}
	return j
}

// Judge returns the Filter's verdict about a record.
func (j *Judge) Judge(r *Record) Verdict {
	if j.state == nil {
		return j.filter.Judge(r)
	}
	j.state.begin(r, j.filter.work)
	v := j.state.verdict(j.filter.direct)
	clear(j.state.values)
	return v
}

// Why returns why the verdict about a record is Failed, or nil if it isn't.
func (f *Filter) Why(r *Record) error {
	_, err := f.byProgram(r)
	return err
}

// byProgram has cel-go judge a record.
func (f *Filter) byProgram(r *Record) (Verdict, error) {
	program := f.program
	if program == nil {
		again, _, err := subjects.compile(f.text)
		if err != nil {
			return Failed, err
		}
		program = again.program
	}
	return verdict(evaluate(program, r, f.work))
}

// verdict returns what the result of a condition says, or why it has none.
func verdict(out ref.Val, err error) (Verdict, error) {
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

// evaluate has cel-go evaluate an expression. Some work counts as done.
func evaluate(program cel.Program, r *Record, done work) (ref.Val, error) {
	v := &variables{record: r, json: payload{work: done}}
	out, _, err := program.Eval(v)
	return out, cmp.Or(v.json.failed, err)
}
