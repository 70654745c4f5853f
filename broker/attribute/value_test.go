package attribute

import (
	"strings"
	"testing"
)

func TestValuesSurviveTheirJSON(t *testing.T) {
	for _, text := range []string{
		`"410"`, `""`, `"a\"b\\c\u0001ü"`, `0`, `7`, `-7.5`, `1e+300`, `9007199254740991`, `true`, `false`, `[]`, `["a",1,true]`,
	} {
		v, err := FromJSON([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(v.AppendJSON(nil)); got != text {
			t.Errorf("%s became %s", text, got)
		}
		if again, err := FromJSON(v.AppendJSON(nil)); err != nil || !again.Equal(v) {
			t.Errorf("%s: read again it is %v, %v", text, again, err)
		}
	}
}

func TestOnlyValuesAreRead(t *testing.T) {
	for _, text := range []string{``, ` `, `null`, `{}`, `[[1]]`, `[null]`, `[{}]`, `1e999`, `"a`, `tru`, `1 2`, "\"\xff\"", `NaN`} {
		if v, err := FromJSON([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, v.AppendJSON(nil))
		}
	}
}

func TestEqualSetsHaveEqualTexts(t *testing.T) {
	a, err := SetFromJSON([]byte(`{"tags":["x","y"], "room":"410", "n":1.0}`))
	if err != nil {
		t.Fatal(err)
	}
	b := Set{"room": String("410"), "n": Number(1), "tags": List(String("x"), String("y"))}
	if !a.Equal(b) || string(a.AppendJSON(nil)) != string(b.AppendJSON(nil)) || a.Size() != len(`{"n":1,"room":"410","tags":["x","y"]}`) {
		t.Errorf("%s and %s of %d bytes", a.AppendJSON(nil), b.AppendJSON(nil), a.Size())
	}
	for _, other := range []Set{
		{"room": String("410"), "n": Number(1)}, {"room": String("410"), "n": Bool(true), "tags": b["tags"]},
		{"room": String("410"), "n": Number(1), "tags": List(String("y"), String("x"))},
	} {
		if a.Equal(other) {
			t.Errorf("%s equals %s", a.AppendJSON(nil), other.AppendJSON(nil))
		}
	}
}

func TestSetsAreChecked(t *testing.T) {
	full := Set{"a": String(strings.Repeat("x", MaxBytes-len(`{"a":""}`)))}
	if err := full.Check(); err != nil {
		t.Error(err)
	}
	for _, s := range []Set{
		{"a": String(full["a"].Text() + "x")}, {"": Bool(true)}, {"1a": Bool(true)}, {"a b": Bool(true)}, {strings.Repeat("n", 65): Bool(true)}, {"ä": Bool(true)},
	} {
		if s.Check() == nil {
			t.Errorf("%.80s is accepted", s.AppendJSON(nil))
		}
	}
	for _, name := range []string{"room", "_", "building.floor", "A-1", strings.Repeat("n", 64)} {
		if !ValidName(name) {
			t.Errorf("%s is refused", name)
		}
	}
	if _, err := SetFromJSON([]byte(`{"a":{"b":1}}`)); err == nil || !strings.Contains(err.Error(), "attribute a") {
		t.Errorf("an object as a value: %v", err)
	}
}
