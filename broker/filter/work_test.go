package filter

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestJudgingTheLargestRecordIsBounded: neither a condition nor a payload makes the other take
// long, or much memory. What passes over the payload again and again, or makes texts of its texts,
// fails.
func TestJudgingTheLargestRecordIsBounded(t *testing.T) {
	const most = maxPayload - 1000
	long := strings.Repeat("a", most)
	text := `{"s":"` + long + `"}`
	escaped := `{"s":"` + long + `\n"}`
	listed := func(of string, n int, separator string) string {
		return strings.TrimSuffix(strings.Repeat(of+separator, n), separator)
	}
	names := strings.Builder{}
	for n := range 60_000 {
		names.WriteString(`"name` + strconv.Itoa(n) + `":1,`)
	}
	for name, c := range map[string]struct {
		text, data string
		want       Verdict
	}{
		"a name is looked for again": {`json.a.exists(x, has(json.b) && json.a[0] == 3)`, `{"s":"` + long[:most/2] + `","a":[` + listed("1", 60_000, ",") + `],"b":1}`, No},
		"each name is looked for":    {`json.exists(k, json[k] == 3)`, `{` + names.String() + `"z":1}`, No},
		"names of a list":            {`json.a.exists(k, json.b[k] == 3)`, `{"a":["` + strings.Join(strings.Split(strings.ReplaceAll(names.String(), `":1`, ""), `,"`), `","`)[1:] + `"],"b":{` + names.String() + `"z":1}}`, Failed},
		"texts are joined":           {`(` + listed("json.s", 30, " + ") + `) == "x"`, text, Failed},
		"a list of joined texts":     {`[` + listed("1", 30, ",") + `].map(x, json.s + "x") == []`, text, Failed},
		"texts are converted":        {`[` + listed("1", 300, ",") + `].map(x, bytes(json.s)) == []`, text, Failed},
		"a text that is no time":     {listed(`timestamp(json.s) > time`, 100, " || "), text, Failed},
		"an escaped text":            {listed(`json.s == "x"`, 120, " || "), escaped, No},
		"a pattern":                  {`json.s.matches("(a|b|c)?(a?){200}b")`, text, Failed},
		"a pattern, by cel-go":       {`json.s.matches("(a|b|c)?(a?){200}b") || size(json.s) < 1`, text, Failed},
		"a short pattern":            {`json.s.matches("a$")`, text, Yes},
		"containing":                 {listed(`json.s.contains("`+long[:20]+`b")`, 70, " || "), text, Failed},
		"lists in lists":             {`json[0] == "x"`, strings.Repeat("[", maxDepth-2) + `"` + long + `"` + strings.Repeat("]", maxDepth-2), No},
	} {
		f, r := compiled(t, c.text), &Record{Data: []byte(c.data)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		got := f.Judge(r)
		took := time.Since(begun)
		runtime.ReadMemStats(&after)
		if got != c.want {
			t.Errorf("%s: the verdict is %d, want %d (%.200v)", name, got, c.want, f.Why(r))
		}
		if theirs, _ := f.byProgram(r); theirs != got {
			t.Errorf("%s: cel-go's verdict is %d", name, theirs)
		}
		// Without the bounds it takes minutes, or GiB. With them, a fraction of a second.
		if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 400 || took > time.Minute {
			t.Errorf("%s: it takes %v and %d MiB", name, took, made)
		}
	}
}

// TestElementsOfListsAreSearched: what is counted needs no estimate.
func TestElementsOfListsAreSearched(t *testing.T) {
	for text, want := range map[string]Verdict{
		`json.customer.tags.exists(t, t.matches("^v.p$"))`: Yes,
		`json.items.exists(i, i.sku.contains("-7"))`:       Yes,
		`json.items.exists(i, i.price.contains("-7"))`:     Failed,
		`dyn(headers) in ["x"]`:                            No,
	} {
		f := compiled(t, text)
		if got := f.Judge(&order); got != want {
			t.Errorf("%s: the verdict is %d, want %d (%v)", text, got, want, f.Why(&order))
		}
	}
}

// TestNumbersAreWhatStrconvSays: each number of JSON, and nothing else is one.
func TestNumbersAreWhatStrconvSays(t *testing.T) {
	for _, text := range []string{"", "-", "+1", ".5", "-.5", "1.", "-1.e5", "1e", "1e+", "1e5.5", "--1", "1-1", "01", "-01", "-00.5", "0x1", "1_0", "Inf", "NaN"} {
		if n, ok := number([]byte(text), 0); ok {
			t.Errorf("%s is taken as %v", text, n)
		}
	}
	check := func(text string) {
		t.Helper()
		want, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(want, 0) {
			t.Fatal(err)
		}
		if got, ok := number([]byte(text), 0); !ok || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s is taken as %v (%v), want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"1E400", "-1E400", "1E-400", "-0", "-0.0", "0.1e1", "1.0e+5", "0.000000000000001", "9007199254740993", "9007199254740992.5"} {
		check(text)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		text := strconv.FormatUint(random.Uint64N(uint64(math.Pow10(1+random.IntN(18)))), 10)
		if at := random.IntN(len(text)); at > 0 && random.IntN(4) > 0 {
			text = text[:at] + "." + text[at:]
		} else if at == 0 && random.IntN(2) == 0 {
			text = "0." + text
		}
		if random.IntN(3) == 0 {
			text += "e" + strconv.Itoa(random.IntN(640)-320)
		}
		if random.IntN(2) == 0 {
			text = "-" + text
		}
		check(text)
	}
}
