package chaos

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// published returns a message on a subject after a change of it, as a client gets it.
func published(subject string, change int, counter uint64) client.QueryEvent {
	return client.QueryEvent{Kind: client.EventMessage, Subject: subject, Data: checker.Encode(subject, checker.Value{Publisher: change, Counter: counter})}
}

func TestTheJudgeOfLiveQueriesFindsEveryFault(t *testing.T) {
	comes := func(subject string) client.QueryEvent {
		return client.QueryEvent{Kind: client.EventNew, Subject: subject}
	}
	goes := func(subject string) client.QueryEvent {
		return client.QueryEvent{Kind: client.EventDel, Subject: subject}
	}
	ready, again := client.QueryEvent{Kind: client.EventReady}, client.QueryEvent{Kind: client.EventReopened}
	other := published("a", 1, 1)
	other.Subject = "b"
	for name, tc := range map[string]struct {
		events []client.QueryEvent
		want   string
	}{
		"nothing":                      {[]client.QueryEvent{comes("a"), ready, published("a", 1, 1), goes("a"), comes("b"), published("b", 3, 1)}, ""},
		"a member that comes back":     {[]client.QueryEvent{comes("a"), goes("a"), comes("a"), published("a", 3, 1)}, ""},
		"a member from before":         {[]client.QueryEvent{comes("a"), ready, again, ready, published("a", 1, 2)}, ""},
		"a change that came late":      {[]client.QueryEvent{comes("a"), published("a", 2, 1), goes("a")}, ""},
		"a message after its Del":      {[]client.QueryEvent{comes("a"), goes("a"), published("a", 1, 1)}, "message 1 of a, which was published after change 1, came after the subject had left"},
		"a member that left meanwhile": {[]client.QueryEvent{comes("a"), ready, again, goes("a"), ready, published("a", 1, 1)}, "came after the subject had left"},
		"a message of no member":       {[]client.QueryEvent{comes("a"), published("b", 1, 1)}, "came although the subject was never told"},
		"a message of another":         {[]client.QueryEvent{comes("a"), comes("b"), other}, "a message of b: "},
	} {
		told, found := NewTold(), ""
		for _, e := range tc.events {
			if err := told.Take(&e); err != nil {
				found += err.Error()
			}
		}
		if !strings.Contains(found, tc.want) || (found == "") != (tc.want == "") {
			t.Errorf("%s: %q", name, found)
		}
	}
}

func TestWhatAClientWasToldIsCounted(t *testing.T) {
	told := NewTold()
	take := func(e client.QueryEvent) {
		if err := told.Take(&e); err != nil {
			t.Error(err)
		}
	}
	for _, subject := range []string{"b", "a", "c"} {
		take(client.QueryEvent{Kind: client.EventNew, Subject: subject})
	}
	take(published("a", 1, 7))
	take(published("a", 2, 6))
	take(client.QueryEvent{Kind: client.EventDel, Subject: "c"})
	take(client.QueryEvent{Kind: client.EventReady})
	if told.Counts != (Counts{News: 3, Dels: 1, Messages: 2, Late: 1}) || !told.Ready {
		t.Errorf("counted %+v, ready %v", told.Counts, told.Ready)
	}
	take(client.QueryEvent{Kind: client.EventReopened})
	if told.Reopened != 1 || told.Ready {
		t.Errorf("after it was opened again: %+v, ready %v", told.Counts, told.Ready)
	}
	if told.Heard("a") != 7 || told.Heard("b") != 0 {
		t.Errorf("heard %d of a, and %d of b", told.Heard("a"), told.Heard("b"))
	}
	for _, tc := range []struct {
		want  []string
		error string
	}{
		{[]string{"a", "b"}, ""},
		{[]string{"a", "b", "c"}, `it was not told of 1 (["c"]), and it was told of 0 others`},
		{[]string{"b"}, `it was told of 1 others (["a"])`},
	} {
		got := ""
		if err := CompareMembers(told.Members(), tc.want); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.error) || (got == "") != (tc.error == "") {
			t.Errorf("of %q: %q", tc.want, got)
		}
	}
	before := Counts{News: 2}
	for _, tc := range []struct {
		least  Counts
		enough bool
	}{
		{Counts{News: 1, Dels: 1, Messages: 2, Reopened: 1}, true},
		{Counts{News: 2}, false}, {Counts{Dels: 2}, false}, {Counts{Messages: 3}, false}, {Counts{Reopened: 2}, false},
	} {
		if err := told.Since(before, tc.least); (err == nil) != tc.enough {
			t.Errorf("at least %+v: %v", tc.least, err)
		}
	}
}
