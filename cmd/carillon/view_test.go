package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/viewing"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestViewsFromTheCommandLine: of a running broker they are made, changed, seen and deleted.
func TestViewsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	for _, topic := range []string{"readings --subjects sensors.>", "means", "alerts"} {
		s.does("topic create " + topic)
	}
	hot := []string{"--by", "json.room", "--window", "1m", "--slide", "10s", "--value", "mean=mean(json.celsius)", "--value", "n=count()", "--filter", "sensors.>",
		"--time", "json.at", "--into", "means", "--trigger", "hot=mean > 30.0", "--until", "hot=mean < 28.0", "--alerts", "alerts"}
	for range 2 {
		if got := s.does("view create hot-rooms readings", hot...); got != "view hot-rooms of topic readings is made; results go into topic means\n" {
			t.Errorf("printed %q", got)
		}
	}
	is := read[admin.View](s, "view show hot-rooms")
	if is.Generation != 1 || is.Spec.Window.Sliding.Every != admin.Span(10*time.Second) || is.Spec.Triggers[0].Output != "alerts" || is.Spec.Triggers[0].Until != "mean < 28.0" {
		t.Errorf("shown %+v", is)
	}
	s.fails(exitFailure, "exists already", "view create hot-rooms readings", "--value", "n=count()")
	s.fails(exitFailure, "values.n: ", "view create other readings", "--value", "n=average(json.a)")
	s.fails(exitFailure, "there is no topic", "view create other nothing", "--value", "n=count()")
	s.fails(exitFailure, "there is no view", "view update other readings", "--value", "n=count()")
	s.fails(exitFailure, "has changed in between", "view update hot-rooms readings --generation 7", hot...)
	s.fails(exitFailure, "has changed in between", "view update hot-rooms readings --revision 1", hot...)
	at := fmt.Sprint("view update hot-rooms readings --idle 30s --generation 1 --revision ", is.Revision)
	s.prints("view hot-rooms of topic readings is changed; results go into topic means\n", at, hot...)
	for _, want := range []string{"Window", "1m every 10s", "On behalf of"} {
		if got := s.does("view show hot-rooms"); strings.Contains(got, want) == (want == "On behalf of") {
			t.Errorf("%s of\n%s", want, got)
		}
	}
	s.does("view create count alerts", "--value", "n=count()")
	if got := s.does("view list"); !strings.Contains(got, "hot-rooms   readings   json.room   1m every 10s   mean,n   means   hot        a client") || !strings.Contains(got, "count       alerts     -") {
		t.Errorf("listed\n%s", got)
	}
	if got := read[struct{ Views []admin.View }](s, "view ls alerts").Views; len(got) != 1 || got[0].Name != "count" {
		t.Errorf("listed %+v", got)
	}
	s.does("pub alerts {}")
	testutil.EventuallyTrue(t, "the message is counted", func() bool {
		out, _, _ := s.types("", "view get count") // at first the view is not kept
		return strings.HasPrefix(out, "KEY   FROM") && strings.HasSuffix(strings.TrimSpace(out), " 1")
	})
	testutil.EventuallyTrue(t, "the other view is served", func() bool {
		_, _, code := s.types("", "view get hot-rooms")
		return code == 0
	})
	testutil.Eventually(t, "the values of two keys", func() error { // at moments it may not be served
		out, errs, _ := s.types("", "view get hot-rooms 410 411 --output json")
		var got struct{ Offsets []int }
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Offsets) != 1 {
			return fmt.Errorf("it printed %q %q", out, errs)
		}
		return nil
	})
	s.fails(exitFailure, "there is no view", "view get nothing")
	for view, want := range map[string]string{"count": "served\n\nKEY   FROM", "hot-rooms": "served\n\nThere are no present values.\n"} {
		if got := s.shows(view); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s.fails(exitFailure, "nothing was deleted", "view delete count")
	s.prints("view count is deleted\n", "view delete count --yes")
	s.fails(exitFailure, "there is no view", "view show count")
}

// TestAViewIsShownWithItsTrouble: why its results are not up to date, while they are not.
func TestAViewIsShownWithItsTrouble(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.end() // it warns
	s := shell{t, dev.url}
	s.does("topic create readings")
	s.does("topic create means")
	s.does("view create hot readings --window 1m --time json.at --value n=count() --into means")
	s.does("topic delete means --yes")
	for _, at := range []string{"00:00:00", "00:10:00"} { // which closes the windows before
		s.does("pub --ack readings.a", `{"at":"2026-01-01T`+at+`Z"}`)
	}
	const trouble = "topic means: there is no such topic"
	testutil.EventuallyTrue(t, "the view is shown with its trouble", func() bool {
		return strings.Contains(read[admin.View](s, "view show hot").Trouble, trouble) &&
			strings.Contains(s.does("view show hot"), "\nThe results are not up to date: "+trouble)
	})
	s.does("topic create means")
	s.shows("hot", "--output", "json") // without trouble
}

// TestTroubleIsPrintedAsItIsKnown: that it is not known is no trouble of the results.
func TestTroubleIsPrintedAsItIsKnown(t *testing.T) {
	t.Parallel()
	for trouble, want := range map[string]string{
		"topic means: it is full":        "The results are not up to date: topic means: it is full",
		viewing.NotKnown + ": no answer": "It is not known whether the results are up to date: no answer",
	} {
		var out strings.Builder
		testutil.Must(t, printPresent(&out, "hot", &presentValues{Trouble: trouble, Why: "no"}))
		if first, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n"); first != want {
			t.Errorf("trouble %q is printed as %q, want %q", trouble, first, want)
		}
	}
}

// shows returns what is shown of a View with its values: at moments it may not be served.
func (s shell) shows(view string, more ...string) (out string) {
	s.Helper()
	testutil.EventuallyTrue(s, "view "+view+" has values", func() bool {
		out = s.does("view show "+view, more...)
		return !strings.Contains(out, "can't be had") && !strings.Contains(out, "not up to date") && !strings.Contains(out, `"why"`) && !strings.Contains(out, `"trouble"`)
	})
	return out
}

// TestAViewIsShownWithItsFirstValues: those of ten keys, the number of others, and why there are
// none.
func TestAViewIsShownWithItsFirstValues(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders")
	s.does("view create regions orders", "--by", "json.region", "--value", "n=count()")
	for n := range 13 {
		s.does("pub orders", fmt.Sprintf(`{"region":"r%02d"}`, n))
	}
	testutil.EventuallyTrue(t, "all messages are counted", func() bool {
		out, _, _ := s.types("", "view get regions")
		return strings.Contains(out, "r12")
	})
	shown := s.shows("regions")
	_, values, _ := strings.Cut(shown, "\n\n")
	if lines := strings.Split(strings.TrimSpace(values), "\n"); len(lines) != 12 || !strings.HasPrefix(lines[10], "r09 ") ||
		lines[11] != "3 more values, of 3 more keys: carillon view get regions has all" || !strings.HasPrefix(shown, "View ") {
		t.Errorf("shown\n%s", shown)
	}
	var is presentView
	testutil.Must(t, json.Unmarshal([]byte(s.shows("regions", "--output", "json")), &is))
	if p := is.Present; is.Spec.Topic != "orders" || len(p.Values) != maxPresentKeys || p.MoreKeys != 3 || p.MoreValues != 3 || p.Why != "" ||
		p.Values[9].Keys[0] != "r09" || p.Values[9].Values["n"] != 1.0 {
		t.Errorf("shown %+v", is)
	}
	s.does("topic delete orders --yes")
	if got := s.does("view show regions"); !strings.Contains(got, "\n\nThe present values can't be had: there is no topic") {
		t.Errorf("without its topic it is shown as\n%s", got)
	}
	if is := read[presentView](s, "view show regions"); is.Name != "regions" || is.Present.Values == nil || !strings.Contains(is.Present.Why, "there is no topic") {
		t.Errorf("without its topic it is shown as %+v", is)
	}
}

func TestFirstValuesAreBounded(t *testing.T) {
	for _, c := range []struct {
		what    string
		keys    []any
		windows int
		more    bool
		values  int
		rest    string
	}{
		{"few", []any{"a", "b"}, 3, false, 6, ""},
		{"a number and its text", []any{"4", 4.0, "5", 5.0, 6.0, "6", 7.0, "7", 8.0, "8", 9.0}, 1, false, 10, "1 more values, of 1 more keys: carillon view get v has all"},
		{"many windows", []any{"a", "b", "c"}, 60, false, 100, "80 more values, of 1 more keys: carillon view get v has all"},
		{"windows of one key", []any{nil}, 130, false, 100, "30 more values: carillon view get v has all"},
		{"none counted", []any{"a"}, 1, true, 1, "more values: carillon view get v has all"},
		{"not all counted", []any{"a"}, 101, true, 100, "at least 1 more values: carillon view get v has all"},
	} {
		p := presentValues{More: c.more}
		for _, key := range c.keys {
			for range c.windows {
				p.add(&fetchedValue{Keys: []any{key}})
			}
		}
		if got := p.rest("v"); len(p.Values) != c.values || got != c.rest {
			t.Errorf("%s: %d values, and %q; want %d and %q", c.what, len(p.Values), got, c.values, c.rest)
		}
	}
}

// TestAViewOfOthersIsShownOnATerminal: what others wrote moves no cursor, and takes a bounded
// width.
func TestAViewOfOthersIsShownOnATerminal(t *testing.T) {
	p := presentValues{}
	key := "\x1b]0;x\a" + strings.Repeat("é", 5000)
	p.add(&fetchedValue{Keys: []any{key, "b\tb\n"}, Values: map[string]any{"first": key, "n": 1.0}})
	var out strings.Builder
	testutil.Must(t, printPresent(&out, "v", &p))
	testutil.Must(t, printPresent(&out, "v", &presentValues{Why: "no\x1b[2J", Trouble: "no room\x1b[2J"}))
	testutil.Must(t, printView(&out, &admin.View{Spec: admin.ViewSettings{By: "\x1b[2J", Filter: coordination.ViewFilter{Where: "json.a == '\x1b'\n"}}}))
	if got := out.String(); strings.ContainsFunc(strings.ReplaceAll(got, "\n", ""), unicode.IsControl) || len(got) > 2500 || !strings.Contains(got, "é…") ||
		!strings.Contains(got, "\nThe results are not up to date: no room") {
		t.Errorf("shown as %d bytes, %.500q", len(got), got)
	}
	if p.Values[0].Keys[0] != key || p.Values[0].Values["first"] != key {
		t.Error("JSON is shortened, too")
	}
}

func TestFlagsOfViewsAreJudged(t *testing.T) {
	right := viewFlags{values: []string{"mean=mean(json.a == json.b)"}, window: ageFlag(time.Minute), into: "means",
		triggers: []string{"b=mean >= 1.0", " a =mean > 1.0"}, untils: []string{"a=mean < 0.5"}, alerts: []string{"alerts", "b=others"}}
	s, err := right.settings("readings")
	if err != nil || s.Values["mean"] != "mean(json.a == json.b)" || s.Window.Tumbling != admin.Span(time.Minute) || s.Topic != "readings" {
		t.Fatalf("%+v, %v", s, err)
	}
	var got []string
	for _, trigger := range s.Triggers {
		got = append(got, trigger.Name+": "+trigger.When+", "+trigger.Until+", "+trigger.Output)
	}
	if want := []string{"b: mean >= 1.0, , others", "a: mean > 1.0, mean < 0.5, alerts"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for want, spoil := range map[string]func(v *viewFlags){
		"at least one --value":            func(v *viewFlags) { v.values = nil },
		`--value "count()": write NAME=…`: func(v *viewFlags) { v.values = []string{"count()"} },
		"--value: mean is given twice":    func(v *viewFlags) { v.values = append(v.values, "mean=count()") },
		"--where: ":                       func(v *viewFlags) { v.where = "json." },
		"--slide needs --window":          func(v *viewFlags) { v.window, v.slide = 0, 1 },
		"one of --window and --session":   func(v *viewFlags) { v.session = 1 },
		"--into is needed":                func(v *viewFlags) { v.into = "" },
		"need --window or --session":      func(v *viewFlags) { v.window, v.into, v.idle = 0, "", 1 },
		`there is no --trigger "c"`:       func(v *viewFlags) { v.untils = []string{"c=mean > 1.0"} },
		`there is no --trigger "d"`:       func(v *viewFlags) { v.alerts = append(v.alerts, "d=alerts") },
		"--alerts is needed":              func(v *viewFlags) { v.alerts = nil },
	} {
		v := right
		spoil(&v)
		if _, err := v.settings("readings"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror: %v", want, err)
		}
	}
}
