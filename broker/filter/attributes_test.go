package filter

import (
	"encoding/json"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// sensor is the attributes of a subject.
var sensor = object1(`{"room":"410","floor":4,"on":true,"tags":["a","b",1,true],"a.b":"dotted","none":[]}`)

// values are attributes as JSON has them.
type values map[string]any

func object1(text string) values {
	v := values{}
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	return v
}

func operandOf(v any) Operand {
	switch v := v.(type) {
	case string:
		return TextOperand(v)
	case float64:
		return NumberOperand(v)
	case bool:
		return BoolOperand(v)
	case []any:
		return ListOperand()
	}
	return Operand{}
}

func (v values) Find(name string) Operand { return operandOf(v[name]) }

func (v values) Has(name string, element Operand) (has, ok bool) {
	list, ok := v[name].([]any)
	for _, e := range list {
		has = has || operandOf(e).Equals(element)
	}
	return has, ok
}

func (v values) Map() ref.Val {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, v)
}

// TestSubjectsAreJudgedByTheirAttributes: what is missing does not match, and neither does its
// negation.
func TestSubjectsAreJudgedByTheirAttributes(t *testing.T) {
	const ours, theirs = true, false
	for _, c := range []struct {
		text   string
		want   Verdict
		direct bool
	}{
		{`attributes.room == "410" && has(attributes.floor)`, Yes, ours},
		{`attributes["a.b"] == "dotted"`, Yes, ours},
		{`attributes.floor >= 4 && attributes.floor < 4.5`, Yes, ours},
		{`attributes.floor == "4"`, No, ours},
		{`attributes.on`, Yes, ours},
		{`!attributes.on`, No, ours},
		{`attributes.room`, Failed, ours},
		{`"room" in attributes && !("x" in attributes)`, Yes, ours},
		{`"b" in attributes.tags && 1 in attributes.tags && true in attributes.tags`, Yes, ours},
		{`"c" in attributes.tags || null in attributes.none`, No, ours},
		{`"a" in attributes.room`, Failed, ours},
		{`"a" in attributes.missing`, Failed, ours},
		{`attributes.missing != "x"`, Failed, ours},
		{`!(attributes.missing == "x")`, Failed, ours},
		{`attributes.room.matches("^4.0$") && subject.startsWith("sensors.")`, Yes, ours},
		{`attributes.room in ["409", "410"]`, Yes, ours},
		{`attributes.tags == ["a", "b", 1, true]`, Yes, theirs},
		{`attributes.tags.exists(t, t == "b")`, Yes, theirs},
		{`size(attributes) == 6`, Yes, theirs},
		{`attributes.exists(k, attributes[k] == 4.0)`, Yes, theirs},
	} {
		f, _, err := CompileAttributes(c.text)
		if err != nil {
			t.Error(err)
			continue
		}
		r := &Record{Subject: []byte("sensors.7"), Attributes: sensor}
		if got := f.Judge(r); got != c.want {
			t.Errorf("%s: the verdict is %d, want %d (%v)", c.text, got, c.want, f.Why(r))
		}
		if got, _ := f.byProgram(r); got != c.want {
			t.Errorf("%s: cel-go's verdict is %d, want %d", c.text, got, c.want)
		}
		if (f.direct != nil) != c.direct {
			t.Errorf("%s: judged by our nodes: %v", c.text, f.direct != nil)
		}
	}
}

// TestConditionsOnSubjectsAreBounded: a change may have thousands of them judge.
func TestConditionsOnSubjectsAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		``:                    `such as attributes.room == "410"`,
		`json.a == 1`:         "undeclared reference to 'json'",
		`headers.a == "1"`:    "undeclared reference to 'headers'",
		`attributes.room == `: "column ",
		`attributes.a.exists(x, attributes.b.exists(y, x == y))`: "neither pass over another list",
		`attributes.a.matches(attributes.b)`:                     "the pattern of matches has to be written",
	} {
		if f, _, err := CompileAttributes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %v: %v", text, f, err)
		}
	}
	for _, text := range []string{
		`attributes.s.matches("(a|b|c)?(a?){100}b")`,
		`attributes.s.matches("(a|b|c)?(a?){100}b") || size(attributes.s) < 1`,
		`(attributes.s + attributes.s + attributes.s + attributes.s + attributes.s + attributes.s + attributes.s) == "x"`,
	} {
		f, _, err := CompileAttributes(text)
		if err != nil {
			t.Error(err)
			continue
		}
		r := &Record{Attributes: values{"s": strings.Repeat("a", maxAttributes-10)}}
		if got := f.Judge(r); got != Failed {
			t.Errorf("%s: the verdict is %d", text, got)
		}
		if got, _ := f.byProgram(r); got != Failed {
			t.Errorf("%s: cel-go's verdict is %d", text, got)
		}
	}
}

// FuzzJudgeAttributes: our own nodes say what cel-go says.
func FuzzJudgeAttributes(f *testing.F) {
	for _, text := range []string{
		`attributes.room == "410" && attributes.floor > 3`, `"a" in attributes.tags || attributes.on`, `!("x" in attributes) && has(attributes.room)`,
		`1 in attributes.tags`, `attributes["a.b"] != "x" || subject == "s"`, `attributes.tags == ["a"]`, `null in attributes.tags`, `attributes.room in attributes.tags`,
		`attributes.on in [true, 1, "x"]`, `"a" in attributes.room`, `attributes.tags.contains("x")`, `attributes.none < 3`, `attributes.a.b == 1`, `has(attributes.a.b)`,
	} {
		for _, data := range []string{`{"room":"410","floor":4,"on":true,"tags":["a","b",1,true],"a.b":"dotted","none":[]}`, `{}`, `{"tags":"a","room":["a"],"floor":"x","on":1}`} {
			f.Add(text, data, "s.1")
		}
	}
	f.Fuzz(func(t *testing.T, text, data, subject string) {
		attributes := object1(data)
		for name, v := range attributes {
			list, _ := v.([]any)
			for _, e := range append(list, v) {
				switch e.(type) {
				case nil, map[string]any:
					delete(attributes, name) // no attribute has such a value
				}
			}
			for _, e := range list {
				if _, nested := e.([]any); nested {
					delete(attributes, name)
				}
			}
		}
		filter, _, err := CompileAttributes(text)
		if err != nil || len(data) > maxAttributes {
			return
		}
		r := &Record{Subject: []byte(subject), Attributes: attributes}
		theirs, why := filter.byProgram(r)
		if ours := filter.Judge(r); ours != theirs {
			t.Errorf("%s: our verdict of %q is %d, and cel-go's %d (%v)", text, data, ours, theirs, why)
		}
	})
}
