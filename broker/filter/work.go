package filter

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

var errTooLong = errors.New("judging it takes too long: its texts, or what is looked at again and again, are too large for the condition")

// work is what judging one record has cost so far. Estimates don't bound it: they don't know what
// has which size.
type work struct {
	finds   int // names that were looked for
	passed  int // bytes of the payload
	made    int // bytes of values that functions made
	scanned int // bytes in which contains and matches looked, times the size of the pattern's program
}

func (w *work) pass(n int) bool { w.passed += n; return w.passed <= maxPassed }
func (w *work) make(n int) bool { w.made += n; return w.made <= maxMade }

// scan is counted before a text is looked at.
func (w *work) scan(n int) bool { w.scanned += n; return w.scanned <= maxScanned }

// pattern is a compiled regular expression.
type pattern struct {
	*regexp.Regexp
	size int // of its program
}

func newPattern(text string) (p pattern, err error) {
	if p.Regexp, err = regexp.Compile(text); err != nil {
		return pattern{}, err
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return pattern{}, err
	}
	p.size = len(program.Inst)
	return p, nil
}

// workName is what the work of a record is resolved by. No expression can name it.
const workName = "@work"

// counted makes the calls of functions that may take long, or much memory, count what they do.
func counted(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	c, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	switch c.Function() {
	case "matches":
		constant, ok := c.Args()[1].(interpreter.InterpretableConst)
		if !ok {
			return i, nil // constantPatterns refuses it
		}
		text, _ := constant.Value().(types.String)
		p, err := newPattern(string(text))
		return &matchesCall{c, p}, err
	case "contains":
		return &containsCall{c}, nil
	case operators.Add, "string", "bytes", "int", "uint", "double", "timestamp", "duration", "size":
		for _, a := range c.Args() {
			if _, ok := a.(interpreter.InterpretableConst); !ok {
				return &makingCall{c}, nil
			}
		}
	}
	return i, nil
}

type (
	matchesCall struct {
		call    interpreter.InterpretableCall
		pattern pattern
	}
	containsCall struct{ call interpreter.InterpretableCall }
	makingCall   struct{ call interpreter.InterpretableCall }
)

func (c *matchesCall) ID() int64                                 { return c.call.ID() }
func (c *containsCall) ID() int64                                { return c.call.ID() }
func (c *makingCall) ID() int64                                  { return c.call.ID() }
func (c *matchesCall) Eval(vars interpreter.Activation) ref.Val  { return evaluated(c, vars) }
func (c *containsCall) Eval(vars interpreter.Activation) ref.Val { return evaluated(c, vars) }
func (c *makingCall) Eval(vars interpreter.Activation) ref.Val   { return evaluated(c, vars) }

func evaluated(c interpreter.InterpretableV2, vars interpreter.Activation) ref.Val {
	if frame, ok := vars.(*interpreter.ExecutionFrame); ok {
		return c.Exec(frame)
	}
	frame, err := interpreter.NewExecutionFrame(vars)
	if err != nil {
		return types.WrapErr(err)
	}
	defer frame.Close()
	return c.Exec(frame)
}

// workOf returns the work of the record that is judged.
func workOf(frame *interpreter.ExecutionFrame) *work {
	w, _ := frame.ResolveName(workName)
	if w, ok := w.(*work); ok {
		return w
	}
	return &work{} // of a constant
}

func (c *matchesCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	switch v := c.call.Args()[0].Exec(frame).(type) {
	case types.String:
		if !workOf(frame).scan(len(v) * c.pattern.size) {
			return types.WrapErr(errTooLong)
		}
		return types.Bool(c.pattern.MatchString(string(v)))
	default:
		return types.MaybeNoSuchOverloadErr(v)
	}
}

func (c *containsCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := c.call.Args()
	v, w := args[0].Exec(frame), args[1].Exec(frame)
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	if types.IsUnknownOrError(w) {
		return w
	}
	if !workOf(frame).scan(len(text)) {
		return types.WrapErr(errTooLong)
	}
	return text.Receive("contains", "contains_string", []ref.Val{w})
}

// Exec counts what it made afterwards, so one value more than the bound may be made.
func (c *makingCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	w := workOf(frame)
	if !w.make(0) {
		return types.WrapErr(errTooLong)
	}
	v := c.call.Exec(frame)
	n := 0
	switch v := v.(type) {
	case types.String:
		n = len(v)
	case types.Bytes:
		n = len(v)
	case types.Int: // a size: the characters of a text are counted
		if n = 0; c.call.Function() == "size" {
			n = int(v)
		}
	case *types.Err: // it may have the text that was refused, of which several copies were made
		n = 5 * len(v.String())
	}
	if !w.make(n) {
		return types.WrapErr(errTooLong)
	}
	return v
}
