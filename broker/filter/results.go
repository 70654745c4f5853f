package filter

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Results is a compiled condition on values with names, such as the results of functions.
// Goroutines may share it.
type Results struct {
	text    string
	index   map[string]int // of a name's value
	program cel.Program
}

// CompileResults compiles a condition on values with these names, within the bounds of
// CompileAttributes. The error is an *Error.
func CompileResults(text string, names []string) (*Results, error) {
	r := &Results{text: text, index: map[string]int{}}
	var variables []cel.EnvOption
	for i, name := range names {
		r.index[name] = i
		variables = append(variables, cel.Variable(name, cel.DynType))
	}
	example := "count > 100.0"
	if len(names) > 0 {
		example = names[0] + " > 100.0"
	}
	l := language{
		environment: func() (*cel.Env, error) { return environment(variables...) },
		maxCost:     maxSubjectCost,
		judged:      "result", of: "results",
		example: example,
		results: true,
	}
	f, _, err := l.filter(text)
	if err != nil {
		return nil, err
	}
	r.program = f.program
	return r, nil
}

// String returns the condition.
func (r *Results) String() string { return r.text }

// Judge returns the verdict about values, which are in the order of the names. A value of the kind
// None is missing: a condition that needs it has failed. The error says why it has.
func (r *Results) Judge(values []Value) (Verdict, error) {
	v := &resultVariables{of: r, values: values}
	v.work.made, v.work.scanned = maxMade-maxSubjectMade, maxScanned-maxSubjectScanned
	out, _, err := r.program.Eval(v)
	return verdict(out, err)
}

// resultVariables are values, for cel-go.
type resultVariables struct {
	of     *Results
	values []Value
	work   work
}

func (v *resultVariables) ResolveName(name string) (any, bool) {
	if name == workName {
		return &v.work, true
	}
	i, ok := v.of.index[name]
	if !ok || i >= len(v.values) {
		return nil, false
	}
	return v.values[i].ref(name), true
}

func (*resultVariables) Parent() interpreter.Activation { return nil }

// ref returns a value as one of cel-go.
func (v *Value) ref(name string) ref.Val {
	switch v.Kind {
	case Null:
		return types.NullValue
	case Bool:
		return types.Bool(v.Truth)
	case Number:
		return types.Double(v.Number)
	case Time:
		return types.Timestamp{Time: time.Unix(0, v.Time).UTC()}
	case Text:
		return types.String(v.Text)
	}
	return types.NewErr("%s has no value", name)
}
