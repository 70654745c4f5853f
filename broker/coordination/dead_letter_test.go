package coordination

import (
	"strings"
	"testing"
)

func TestACycleOfDeadLettersIsFound(t *testing.T) {
	var topics []*Topic
	for _, name := range []string{"a", "b", "c", "d"} {
		topics = append(topics, &Topic{ID: "id-" + name, Name: name})
	}
	of := func(made int64, topic, into string) *Subscription {
		return &Subscription{Topic: "id-" + topic, Name: "to-" + into, Made: made, Spec: &SubscriptionSpec{DeadLetter: into}}
	}
	plain := &Subscription{Topic: "id-b", Name: "plain", Made: 5, Spec: &SubscriptionSpec{}}
	s := NewState(9, nil, topics, nil, []*Subscription{of(1, "b", "c"), of(2, "c", "a"), of(3, "c", "d"), of(4, "d", "c"), plain})
	for _, c := range []struct {
		topic, into string
		before      *Subscription
		want        string
	}{
		{"a", "b", nil, "a b c a"},
		{"a", "c", nil, "a c a"},
		{"a", "a", nil, "a a"},
		{"b", "d", nil, ""}, // there is a cycle, and b is not in it
		{"d", "a", nil, ""},
		{"d", "missing", nil, ""},
		{"c", "d", of(3, "c", "d"), ""}, // the other one is younger, and is told
		{"d", "c", of(4, "d", "c"), "d c d"},
	} {
		if got := strings.Join(s.DeadLetterCycle(c.topic, c.into, c.before), " "); got != c.want {
			t.Errorf("from %s into %s: %q, want %q", c.topic, c.into, got, c.want)
		}
	}
}
