package filter

import (
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// TestConditionsOnResults: numbers are doubles, and a missing value is needed or not.
func TestConditionsOnResults(t *testing.T) {
	names := []string{"mean", "readings", "last"}
	values := []Value{{Kind: Number, Number: 31.5}, {Kind: Number, Number: 4}, {}}
	for _, c := range []struct {
		text string
		want Verdict
		why  string
	}{
		{"mean > 30.0", Yes, ""},
		{"mean > 30", Yes, ""},
		{"readings / 2.0 > 2.0", No, ""},
		{"readings > 3 || last == 'x'", Yes, ""},
		{"last == 'x' || readings > 3", Yes, ""},
		{"last == 'x' && readings < 3", No, ""},
		{"last == 'x'", Failed, "last has no value"},
		{"mean", Failed, "a double, and not a bool"},
		{"0.0 / (mean - 31.5) < 1.0", No, ""}, // NaN
	} {
		r, err := CompileResults(c.text, names)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := r.Judge(values)
		if got != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                "it is empty (write a condition, such as mean > 100.0)",
		"median > 1.0":    "undeclared reference to 'median'",
		"json.x > 1.0":    "undeclared reference to 'json'",
		"mean + 1.0":      "not a condition",
		"last.matches(x)": "undeclared reference to 'x'",
		"[1,2].map(x, x)": "not a condition",
	} {
		if _, err := CompileResults(text, names); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// room is the attributes of a subject in a room.
type room string

func (r room) Find(name string) Operand {
	if name == "room" {
		return TextOperand(string(r))
	}
	return Operand{}
}
func (room) Has(string, Operand) (has, ok bool) { return false, false }
func (r room) Map() ref.Val {
	return types.DefaultTypeAdapter.NativeToValue(map[string]any{"room": string(r)})
}

// TestStoredRecordsHaveAttributes: conditions and expressions on them name both attributes and what
// the record has, by nodes of our own and by cel-go. A record may have none.
func TestStoredRecordsHaveAttributes(t *testing.T) {
	r := &Record{Subject: []byte("s.7"), Data: []byte(`{"n":2}`), Attributes: room("410")}
	for text, want := range map[string][2]Verdict{
		`attributes.room == "410" && json.n > 1`:          {Yes, Failed},
		`has(attributes.room)`:                            {Yes, No},
		`attributes.exists(k, attributes[k] == "410")`:    {Yes, No},
		`attributes.room == "411" || subject == "s.7"`:    {Yes, Yes},
		`size(attributes) == 1 && attributes.floor > 1.0`: {Failed, No},
	} {
		f, err := CompileStored(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Judge(r); got != want[0] {
			t.Errorf("%s: %v", text, got)
		}
		if got := f.Judge(&Record{Subject: r.Subject, Data: r.Data}); got != want[1] {
			t.Errorf("%s without attributes: %v", text, got)
		}
	}
	e, err := CompileStoredExpression("attributes.room")
	if err != nil {
		t.Fatal(err)
	}
	if v := e.Value(r); v.Kind != Text || string(v.Text) != "410" {
		t.Errorf("%+v", v)
	}
	if v := e.Value(&Record{}); v.Kind != None || e.Why(&Record{}) == nil {
		t.Errorf("%+v", v)
	}
	if _, err := Compile("attributes.room == '410'"); err == nil {
		t.Error("attributes are known to conditions of all records")
	}
}
