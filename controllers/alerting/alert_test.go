package alerting

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
)

const message = `{"trigger":"hot","serial":3,"state":"raised","key":["410",4,true,null],"from":"2026-01-02T03:04:00Z","to":"2026-01-02T03:05:00Z","values":{"n":60,"mean":31.25},"id":"eA=="}`

func TestAnAlertIsToldInWords(t *testing.T) {
	a, ok := parse("alerts.rooms.hot", "hot", "alerts.rooms.hot.410", []byte(message))
	const want = `trigger hot raised an alert of key "410",4,true,none (number 3): mean 31.25, n 60, of 2026-01-02T03:04:00Z to 2026-01-02T03:05:00Z`
	if got := a.Note(); !ok || got != want || !a.Raised() {
		t.Errorf("%v, %q", ok, got)
	}
	for _, c := range []struct{ subject, data string }{
		{"alerts.rooms.hotter", message},
		{"alerts.rooms.cold.410", strings.Replace(message, "hot", "cold", 1)},
		{"alerts.rooms.hot.410", strings.Replace(message, "hot", "cold", 1)},
		{"alerts.rooms.hot", strings.Replace(message, "raised", "", 1)},
		{"alerts.rooms.hot", strings.Replace(message, ":3", ":0", 1)},
		{"alerts.rooms.hot", strings.Replace(message, ":3", ":-3", 1)},
		{"alerts.rooms.hot", message[:50]},
		{"alerts.rooms.hot", ""},
		{"alerts.rooms.hot", strings.Repeat(" ", maxAlert) + message},
	} {
		if a, ok := parse("alerts.rooms.hot", "hot", c.subject, []byte(c.data)); ok {
			t.Errorf("%s %.60s is taken for %+v", c.subject, c.data, a)
		}
	}
}

// TestHostileAlertsAreQuotedAndCut: whatever a key or a value has, the note is one line that the
// API server takes.
func TestHostileAlertsAreQuotedAndCut(t *testing.T) {
	evil := "\x1b]0;x\a\n\u202e\u2028" + strings.Repeat("ö", 10_000)
	names := map[string]any{evil: evil, "n": map[string]any{"a": evil}}
	for i := range 100 {
		names[fmt.Sprint("value", i)] = evil
	}
	now := time.Now()
	a := Alert{Trigger: strings.Repeat("t", 63), Serial: 1 << 63, State: cleared, Keys: []any{evil, evil, []any{evil}}, Values: names, From: now, To: now.Add(time.Hour)}
	l := newLimiter(NewBudget())
	for range 1000 {
		l.tell(a, now)
	}
	more, ok := l.rest(now.Add(time.Hour))
	for _, note := range []string{a.Note(), more.Note} {
		if len(note) > 1000 || strings.ContainsFunc(note, func(r rune) bool { return !unicode.IsGraphic(r) }) || !ok {
			t.Errorf("a note of %d bytes: %q", len(note), note)
		}
	}
}

// TestAViewWritesABoundedNumberOfEvents: at thousands of alerts a second some have events, all
// others are counted, and none is lost from the counts.
func TestAViewWritesABoundedNumberOfEvents(t *testing.T) {
	l := newLimiter(NewBudget())
	start := time.Now()
	events, more, counted := 0, 0, 0
	for ms := range 600_000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		a := Alert{Trigger: "hot", Serial: uint64(ms + 1), State: raised}
		if ms%3 == 0 {
			a.State = cleared
		}
		if _, ok := l.tell(a, now); ok {
			events++
		}
		if ms%1000 == 999 {
			before := l.raised + l.cleared
			if e, ok := l.rest(now); ok {
				more++
				counted += before
				if e.Reason != MoreAlerts || !e.Warning || !strings.HasPrefix(e.Note, fmt.Sprintf("%d more alerts", before)) {
					t.Fatalf("%+v of %d", e, before)
				}
			}
		}
	}
	if most := viewBurst + int(10*time.Minute/viewEvery) + 1; events+more > most || events < viewBurst || more < 50 {
		t.Errorf("%d events and %d counts, and at most %d are right", events, more, most)
	}
	if sum := events + counted + l.raised + l.cleared; sum != 600_000 {
		t.Errorf("%d alerts are told of, of 600000", sum)
	}
	if _, ok := newLimiter(l.budget).rest(start.Add(time.Hour)); ok {
		t.Error("of no alerts there is a count")
	}
}

func TestAllViewsTogetherWriteABoundedNumberOfEvents(t *testing.T) {
	budget, now, events := NewBudget(), time.Now(), 0
	for range 1000 {
		l := newLimiter(budget)
		for range 10 {
			if _, ok := l.tell(Alert{State: raised}, now); ok {
				events++
			}
		}
	}
	if events != allBurst {
		t.Errorf("%d events at once, want %d", events, allBurst)
	}
	if l := newLimiter(budget); l.take(now) || !l.take(now.Add(allEvery)) || l.take(now.Add(allEvery)) {
		t.Error("after that there is not one in each interval")
	}
}

// TestOneBrokerLeavesEventsToOthers: whatever comes of its Views.
func TestOneBrokerLeavesEventsToOthers(t *testing.T) {
	budget, start := NewBudget(), time.Now()
	flood, other := budget.part(), newLimiter(budget.part())
	for second := range 600 {
		now := start.Add(time.Duration(second) * time.Second)
		for flood.take(now) {
		}
		if second%30 == 0 && !other.take(now) {
			t.Fatalf("after %d s, there is no event for another Broker", second)
		}
	}
}
