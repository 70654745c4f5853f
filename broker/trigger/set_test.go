package trigger

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

var names = []string{"mean", "readings"}

func set(t testing.TB, specs ...Spec) *Set {
	t.Helper()
	var all []*Trigger
	for _, s := range specs {
		one, err := Compile(s, names)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return NewSet(all, names)
}

// row is the result of a window of the key; a mean of NaN is none.
func row(key string, end int64, mean float64) aggregate.Row {
	v := aggregate.Value{Kind: aggregate.Number, Number: mean}
	if math.IsNaN(mean) {
		v = aggregate.Value{}
	}
	return aggregate.Row{Key: key, Start: end - 10, End: end, Keys: []aggregate.Value{{Kind: aggregate.Text, Text: key}}, Values: []aggregate.Value{v, {Kind: aggregate.Count, Count: 3}}}
}

func text(alerts []Alert) string {
	var all []string
	for _, a := range alerts {
		all = append(all, fmt.Sprintf("%s/%s %d %v at %d", a.Trigger, a.Key, a.Serial, a.Raised, a.Row.End))
	}
	return strings.Join(all, ", ")
}

func judged(t *testing.T, s *Set, want string, rows ...aggregate.Row) []Alert {
	t.Helper()
	alerts, err := s.Judge(rows)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(alerts); got != want {
		t.Errorf("alerts: %s\nwant:   %s", got, want)
	}
	return alerts
}

var hot = Spec{Name: "hot", When: "mean > 30.0", Until: "mean < 28.0"}

// TestAnAlertOfAnotherIsGoneOnFrom: one that was appended since, and not an older one.
func TestAnAlertOfAnotherIsGoneOnFrom(t *testing.T) {
	s := set(t, hot)
	judged(t, s, "hot/x 1 true at 10", row("x", 10, 31))
	for _, serial := range []uint64{3, 2} { // raised again, and the message before
		if err := s.Restore(State{Trigger: "hot", Key: "x", Serial: serial, Raised: serial == 3, End: int64(10 * serial)}); err != nil {
			t.Fatal(err)
		}
	}
	judged(t, s, "hot/x 4 false at 40", row("x", 30, 27), row("x", 40, 27))
}

// TestATriggerHasHysteresis: between both conditions the state stays, of each key on its own.
// Without until it clears when when is false. What has no result changes nothing.
func TestATriggerHasHysteresis(t *testing.T) {
	s := set(t, hot, Spec{Name: "warm", When: "mean > 30.0"})
	judged(t, s, "", row("a", 10, 29), row("b", 10, 30))
	judged(t, s, "hot/a 1 true at 20, warm/a 1 true at 20, warm/a 2 false at 30", row("a", 20, 31), row("a", 30, 29))
	judged(t, s, "", row("a", 40, math.NaN()))
	if n, why := s.Failed(); n != 2 || why == nil || why.Error() != "trigger hot: mean has no value" {
		t.Errorf("%d failed: %v", n, why)
	}
	judged(t, s, "hot/a 2 false at 50, hot/b 1 true at 50, warm/b 1 true at 50", row("a", 50, 27), row("b", 50, math.Inf(1)))
	s = set(t, Spec{Name: "ratio", When: "mean / (readings - 3.0) >= 0.0"})
	judged(t, s, "ratio/a 1 true at 10, ratio/a 2 false at 20", row("a", 10, 1), row("a", 20, 0)) // 0/0 is no number
}

// TestTheNextSetGoesOn: after the last alerts it makes those that are missing, and no other.
func TestTheNextSetGoesOn(t *testing.T) {
	rows := []aggregate.Row{row("a", 10, 31), row("a", 20, 29), row("a", 30, 20), row("a", 40, 20), row("a", 50, 40)}
	all := judged(t, set(t, hot), "hot/a 1 true at 10, hot/a 2 false at 30, hot/a 3 true at 50", rows...)
	for n := range len(all) + 1 {
		for from := range rows { // the first rows may have been acknowledged
			if n < len(all) && rows[from].End > all[n].Row.End {
				continue // but only after their alerts
			}
			s := set(t, hot)
			if n > 0 {
				b, err := all[n-1].Encode()
				if err != nil {
					t.Fatal(err)
				}
				last, err := DecodeState(b)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Restore(last); err != nil {
					t.Fatal(err)
				}
			}
			judged(t, s, text(all[n:]), rows[from:]...)
		}
	}
	s := set(t, hot)
	if err := s.Restore(State{Trigger: "removed", Key: "a", Serial: 1}); err != nil || len(s.states) != 0 {
		t.Error("the state of another trigger is kept")
	}
}

// TestPresentValuesOfFewerMessagesAreNotJudged: a new leader that is reading its log has a smaller
// count, which is no reason to clear.
func TestPresentValuesOfFewerMessagesAreNotJudged(t *testing.T) {
	s := set(t, hot)
	present := func(want string, mean float64, offsets map[uint32]uint64) []Alert {
		t.Helper()
		alerts, err := s.JudgePresent([]aggregate.Row{row("a", 10, mean)}, offsets)
		if got := text(alerts); err != nil || got != want {
			t.Errorf("alerts: %s, want %s: %v", got, want, err)
		}
		return alerts
	}
	raised := present("hot/a 1 true at 10", 31, map[uint32]uint64{0: 100, 1: 7})
	present("", 0, map[uint32]uint64{0: 99, 1: 8})
	present("", 29, map[uint32]uint64{0: 101, 1: 7})
	b, err := raised[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	last, err := DecodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	s = set(t, hot)
	if err := s.Restore(last); err != nil {
		t.Fatal(err)
	}
	present("", 0, map[uint32]uint64{0: 100, 1: 6})
	present("", 29, map[uint32]uint64{0: 100, 1: 7})
	present("hot/a 2 false at 10", 0, map[uint32]uint64{0: 100}) // shard 1 was removed
}

// TestAnAlertIsJSON: as the API page shows it.
func TestAnAlertIsJSON(t *testing.T) {
	alerts := judged(t, set(t, hot), "hot/410 1 true at 10", row("410", 10, 31.25))
	b, err := alerts[0].Encode()
	if want := `{"trigger":"hot","serial":1,"state":"raised","key":["410"],"from":"1970-01-01T00:00:00Z","to":"1970-01-01T00:00:00.00000001Z","values":{"mean":31.25,"readings":3},"id":"NDEw"}`; err != nil || string(b) != want {
		t.Errorf("%s\nwant %s: %v", b, want, err)
	}
}

// TestStatesAreBounded: one more is an error, and nothing has changed.
func TestStatesAreBounded(t *testing.T) {
	s := set(t, hot)
	for i := range maxStates {
		if err := s.Restore(State{Trigger: "hot", Key: fmt.Sprint(i), Serial: 1, Raised: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Judge([]aggregate.Row{row("0", 10, 1), row("x", 10, 31)}); err == nil || !strings.Contains(err.Error(), "more than 100000 triggers and keys") {
		t.Error(err)
	}
	if s.Restore(State{Trigger: "hot", Key: "x", Serial: 1}) == nil {
		t.Error("a state too many is restored")
	}
	judged(t, s, "hot/0 2 false at 10", row("0", 10, 1))
}

// TestASetThatHasForgottenIsRestored: serials go on, and what could not be judged stays counted.
func TestASetThatHasForgottenIsRestored(t *testing.T) {
	s := set(t, Spec{Name: "hot", When: "mean > 30.0"})
	alerts, err := s.Judge([]aggregate.Row{row("a", 10, 40), row("b", 10, math.NaN()), row("c", 10, 40)})
	if err != nil || len(alerts) != 2 {
		t.Fatal(alerts, err)
	}
	if n := s.Size(); n < 2*stateBytes || n > 3*stateBytes {
		t.Errorf("two states take %d bytes", n)
	}
	s.Forget()
	if failed, _ := s.Failed(); failed != 1 || s.Size() != 0 {
		t.Errorf("%d failed, and %d bytes", failed, s.Size())
	}
	b, err := alerts[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	last, err := DecodeState(b)
	if err == nil {
		err = s.Restore(last)
	}
	if err != nil {
		t.Fatal(err)
	}
	alerts, err = s.Judge([]aggregate.Row{row("a", 10, 40), row("a", 20, 40), row("a", 30, 20)})
	if got := text(alerts); err != nil || got != text([]Alert{{Trigger: "hot", Key: "a", Serial: 2, Row: aggregate.Row{End: 30}}}) {
		t.Error(got, err)
	}
}

// TestAWrongTriggerIsRefused: the error names it and the field.
func TestAWrongTriggerIsRefused(t *testing.T) {
	for want, s := range map[string]Spec{
		`trigger "Hot"`:                 {Name: "Hot", When: "mean > 1.0"},
		`trigger "-"`:                   {Name: "-", When: "mean > 1.0"},
		`trigger hot: when: filter ""`:  {Name: "hot"},
		"undeclared reference to 'max'": {Name: "hot", When: "max > 1.0"},
		`trigger hot: until: filter`:    {Name: "hot", When: "mean > 1.0", Until: "mean + 1.0"},
	} {
		if _, err := Compile(s, names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// FuzzDecodeState: whatever the bytes, they are an alert or refused.
func FuzzDecodeState(f *testing.F) {
	alerts, err := set(f, hot).JudgePresent([]aggregate.Row{row("a\xff", 10, 31)}, map[uint32]uint64{3: 4})
	if err != nil {
		f.Fatal(err)
	}
	b, err := alerts[0].Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"serial":1,"state":"raised","to":"9999-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err == nil && (s.Serial == 0 || len(s.Offsets) > maxShards) {
			t.Errorf("%+v", s)
		}
	})
}
