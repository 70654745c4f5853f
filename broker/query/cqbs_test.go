package query

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
)

func compiled(t testing.TB, text string, syntax Syntax) *Query {
	t.Helper()
	q, err := Compile(text, syntax)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func attributes(t testing.TB, text string) attribute.Set {
	t.Helper()
	s, err := attribute.SetFromJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expectMatches(t *testing.T, set string, want map[string]bool) {
	t.Helper()
	for text, match := range want {
		if got := compiled(t, text, CQBS).Matches("s.1", attributes(t, set)); got != match {
			t.Errorf("%s: it matches %s: %v", text, set, got)
		}
	}
}

// TestNotNegates: CQBS parsed "not" and ignored it, and took it at the head of a predicate only.
func TestNotNegates(t *testing.T) {
	expectMatches(t, `{"Room":"410","Floor":"4"}`, map[string]bool{
		`not Room = "410"`:                              false,
		`not Room = "411"`:                              true,
		`Floor = "4" and not Room = "410"`:              false,
		`Floor = "4" and not (Room = "411")`:            true,
		`not not Room = "410"`:                          true,
		`not (Room = "410" and Floor = "5")`:            true,
		`not has Room or NOT has Floor`:                 false,
		`not has Building`:                              true,
		`Room != "410" or (not Floor != "4")`:           true,
		`not Building = "x" or not (Building = "x")`:    false, // unknown
		`not Building = "x" or (has Room or has Floor)`: true,
	})
}

// TestAndBindsTighterThanOr: they had one precedence in CQBS.
func TestAndBindsTighterThanOr(t *testing.T) {
	expectMatches(t, `{"a":"1","b":"2"}`, map[string]bool{
		`a = "1" or b = "x" and b = "y"`:        true,
		`b = "y" and b = "x" or a = "1"`:        true,
		`(a = "1" or b = "x") and b = "y"`:      false,
		`not a = "1" or b = "2"`:                true,
		`not (a = "1" or b = "2")`:              false,
		`not a = "x" and not b = "x" or a = ""`: true,
	})
}

// TestADeletedNameIsNotHad: in CQBS a deleted key still fulfilled "has".
func TestADeletedNameIsNotHad(t *testing.T) {
	s := NewSet(DefaultLimits())
	must(t, s.Add(1, 1, compiled(t, "has Room", CQBS), nil))
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"Room":"410","Floor":4}`), 1, nil), Delta{1, "s.1", New})
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"Floor":4}`), 2, nil), Delta{1, "s.1", Del})
	expectDeltas(t, s.Apply("s.1", attributes(t, `{"Room":"410"}`), 3, nil), Delta{1, "s.1", New})
	expectDeltas(t, s.Apply("s.1", nil, 4, nil), Delta{1, "s.1", Del})
}

// TestCQBSIsTranslated: values, keys, patterns.
func TestCQBSIsTranslated(t *testing.T) {
	for text, want := range map[string]string{
		`Location/Room = "410"`:                    `attributes["Location.Room"] == "410"`,
		`a.b != 'it\'s "x"'`:                       `attributes["a.b"] != "it's \"x\""`,
		`HAS a AND b Like "x%"`:                    `"a" in attributes && attributes["b"].startsWith("x")`,
		`b like "%x"`:                              `attributes["b"].endsWith("x")`,
		`b like "%x%"`:                             `attributes["b"].contains("x")`,
		`b like "x"`:                               `attributes["b"] == "x"`,
		`b like "100\%"`:                           `attributes["b"] == "100%"`,
		`b like "a_c%"`:                            `attributes["b"].matches("^(?s:a.c.*)$")`,
		`b like "%a.c%d"`:                          `attributes["b"].matches("^(?s:.*a\\.c.*d)$")`,
		`n = 12 or n = -0.5`:                       `attributes["n"] == 1.2e+01 || attributes["n"] == -5e-01`,
		`on = true or on != FALSE`:                 `attributes["on"] == true || attributes["on"] != false`,
		`not has a and (b = "\\" or c = "ü\n")`:    `!("a" in attributes) && (attributes["b"] == "\\" || attributes["c"] == "ü\\n")`,
		"a='x'or(b\n=\t'y')":                       `attributes["a"] == "x" || (attributes["b"] == "y")`,
		`nothing = "x" and hash = "y" and _a = ""`: `attributes["nothing"] == "x" && attributes["hash"] == "y" && attributes["_a"] == ""`,
	} {
		if got, err := TranslateCQBS(text); err != nil || got != want {
			t.Errorf("%s became\n%s, want\n%s (%v)", text, got, want, err)
		}
		compiled(t, text, CQBS)
	}
	expectMatches(t, `{"b":"a\nc.d","n":12,"on":true}`, map[string]bool{
		`b like "a_c%"`: true, `b like "a_d%"`: false, `b like "%c_d"`: true, `b like "a"`: false, `n = 12`: true, `n = "12"`: false, `on = true`: true, `n like "1%"`: false,
	})
}

// TestCQBSErrorsSayWhere: the column, the reason, and what to write.
func TestCQBSErrorsSayWhere(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "it is empty",
		`  `:                                   "it is empty",
		`Room`:                                 `column 5: the end is not expected here (compare the key by =, != or like)`,
		`Room "410"`:                           `column 6: "\"410\"" is not expected here (compare`,
		`Room = 410x`:                          `column 8: "410x" is not a number`,
		`Room = x`:                             `column 8: "x" is not a value`,
		`Room = "410`:                          `column 8: the text that begins here has no end`,
		`ü = "1"`:                              `column 1: "ü" is no word`,
		`Room = "ü" & x`:                       `column 12: "&" is no word`,
		`(Room = "4"`:                          `column 12: the end is not expected here (close the parenthesis)`,
		`Room = "4")`:                          `column 11: ")" is not expected here (join`,
		`Room = "4" Floor = "1"`:               `column 12: "Floor" is not expected here (join`,
		`has "Room"`:                           `column 5: "\"Room\"" is not the name`,
		`has and`:                              `column 5: "and" is a word of the language`,
		`not`:                                  `column 4: the end is not the name`,
		`has 1a`:                               `column 5: "1a" is not the name`,
		`has .a`:                               `column 5: ".a" is not the name`,
		`a like 5`:                             `column 8: "5" is not a pattern`,
		`a = 1e999`:                            `"1e999" is not a number`,
		`a ! b`:                                `column 3: "!" is no word`,
		"a = '\xff'":                           "not UTF-8",
		strings.Repeat("(", 200):               "column 34: \"(\" is nested deeper than 32 levels",
		strings.Repeat("not ", 200):            "nested deeper",
		strings.Repeat(`a = "" or `, 1000):     "the bound is 4096",
		strings.Repeat(`a = "" and `, 300):     "column 3301: the end",
		`a like "` + strings.Repeat("_", 2000): "has no end",
	} {
		_, err := Compile(text, CQBS)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "query ") {
			t.Errorf("%.50q: the error is %v, want %s", text, err, want)
		}
	}
	if _, err := Compile(`a like "`+strings.Repeat("_", 2000)+`"`, CQBS); err == nil || !strings.Contains(err.Error(), "as CEL it is") {
		t.Errorf("a pattern beyond the bound: %v", err)
	}
	if _, err := Compile(`attributes.a == 1 && json.b == 1`, CEL); err == nil || !strings.Contains(err.Error(), "column 22: undeclared reference to 'json'") {
		t.Errorf("an unknown variable: %v", err)
	}
}

// truth is a verdict of CQBS: an unknown one is neither.
type truth int8

const (
	unknown truth = iota
	yes
	no
)

func (t truth) not() truth { return [...]truth{unknown, no, yes}[t] }

// clause is a random condition, as text and as what it means.
type clause struct {
	text    string
	binding int // 0: or, 1: and, 2: the rest
	judge   func(attribute.Set) truth
}

func (c clause) in(binding int) string {
	if c.binding < binding {
		return "(" + c.text + ")"
	}
	return c.text
}

func randomClause(r *rand.Rand, depth int) clause {
	of := func(b bool) truth {
		if b {
			return yes
		}
		return no
	}
	key, value := string("abc"[r.IntN(3)]), []string{"", "x", "xy", "a%"}[r.IntN(4)]
	if depth > 0 && r.IntN(4) > 0 {
		a, b := randomClause(r, depth-1), randomClause(r, depth-1)
		switch r.IntN(3) {
		case 0:
			return clause{"not " + a.in(2), 2, func(s attribute.Set) truth { return a.judge(s).not() }}
		case 1:
			return clause{a.in(1) + " and " + b.in(1), 1, func(s attribute.Set) truth { return and(a.judge(s), b.judge(s)) }}
		}
		return clause{a.in(0) + " or " + b.in(0), 0, func(s attribute.Set) truth { return and(a.judge(s).not(), b.judge(s).not()).not() }}
	}
	switch r.IntN(4) {
	case 0:
		return clause{"has " + key, 2, func(s attribute.Set) truth { _, there := s[key]; return of(there) }}
	case 1:
		pattern := strings.ReplaceAll(regexp.QuoteMeta(value), "%", ".*")
		like := regexp.MustCompile("^" + pattern + "$")
		return clause{fmt.Sprintf("%s like '%s'", key, value), 2, func(s attribute.Set) truth {
			if s[key].Kind() != attribute.StringKind {
				// Without a wildcard it is an equality, which another type fails.
				if _, there := s[key]; there && !strings.Contains(value, "%") {
					return no
				}
				return unknown
			}
			return of(like.MatchString(s[key].Text()))
		}}
	}
	equal := r.IntN(2) == 0
	sign := map[bool]string{true: "=", false: "!="}[equal]
	return clause{fmt.Sprintf("%s %s %q", key, sign, value), 2, func(s attribute.Set) truth {
		v, there := s[key]
		if !there {
			return unknown
		}
		return of(v.Equal(attribute.String(value)) == equal)
	}}
}

func and(a, b truth) truth {
	switch {
	case a == no || b == no:
		return no
	case a == unknown || b == unknown:
		return unknown
	}
	return yes
}

// TestCQBSIsThreeValuedLogic: random conditions mean what a plain interpreter says.
func TestCQBSIsThreeValuedLogic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched := 0
	for range 800 {
		c := randomClause(r, 4)
		q, err := Compile(c.text, CQBS)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			s := attribute.Set{}
			for _, key := range []string{"a", "b", "c"} {
				switch n := r.IntN(6); n {
				case 0:
				case 1:
					s[key] = attribute.Number(1)
				default:
					s[key] = attribute.String([]string{"", "x", "xy", "abc"}[n-2])
				}
			}
			want := c.judge(s) == yes
			if want {
				matched++
			}
			if got := q.Matches("s", s); got != want {
				t.Fatalf("%s: it matches %s: %v, want %v", c.text, s.AppendJSON(nil), got, want)
			}
		}
	}
	if matched < 300 {
		t.Errorf("only %d verdicts were yes", matched)
	}
}

// FuzzCQBS: no text makes the parser panic, or CEL that is not its syntax.
func FuzzCQBS(f *testing.F) {
	for _, text := range []string{
		`not has a and (b = "\\" or c like 'x%_\%')`, `a.b != 'it\'s "x"' OR n = -0.5e3`, `((a = "1"`, `a = "`, `= = =`, `has has`, `not not`, `a like "\`, "a = '\x00\u2028'", `n = 0x1p4 or n = 1_0`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expression, err := TranslateCQBS(text)
		if err != nil {
			return
		}
		if _, err := Compile(expression, CEL); err != nil && strings.Contains(err.Error(), "Syntax error") {
			t.Errorf("%q became %q: %v", text, expression, err)
		}
	})
}
