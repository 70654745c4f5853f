package activity

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// room is connections of a test.
type room struct{ gone map[uint64]bool }

func (r *room) Connected(client uint64) bool { return !r.gone[client] }
func (r *room) Subscribers(subject, queue string) int {
	return map[string]int{"to.a ": 2, "to.a workers": 3}[subject+" "+queue]
}

const longName = "a-rather-long-name-of-a-subscription-that-no-stack-buffer-holds"

// scene is Clients with a clock of the test.
type scene struct {
	*Clients
	hub   *room
	clock time.Duration
}

func begin() *scene {
	var all []*coordination.Subscription
	for _, of := range []key{{"t", "audit"}, {"t", "billing"}, {"t", longName}, {"u", "billing"}} {
		all = append(all, &coordination.Subscription{Topic: of.topicID, Name: of.name, Spec: &coordination.SubscriptionSpec{}})
	}
	all = append(all, &coordination.Subscription{Topic: "t", Name: "once", Spec: &coordination.SubscriptionSpec{}})
	all[len(all)-1].Spec.Consumer.Ephemeral = true
	state := coordination.NewState(1, nil, nil, nil, all)
	s := &scene{hub: &room{gone: map[uint64]bool{}}, clock: time.Hour}
	s.Clients = New(s.hub, func() *coordination.State { return state })
	s.now = func() time.Duration { return s.clock }
	return s
}

func (s *scene) pull(client uint64, expires time.Duration) {
	s.Pulled("t", []byte("billing"), client, func() time.Duration { return expires })
}

func (s *scene) count() int { return s.Of(billing()) }

func billing() *coordination.Subscription {
	return &coordination.Subscription{Topic: "t", Name: "billing", Spec: &coordination.SubscriptionSpec{}}
}

// wants fails unless so many clients count.
func (s *scene) wants(t *testing.T, when string, n int) {
	t.Helper()
	if got := s.count(); got != n {
		t.Errorf("%s: %d clients count, want %d", when, got, n)
	}
}

// TestAClientCountsWhileItReads: once, however often it pulls, as long as its pull waits, and a
// minute after its last pull or ack.
func TestAClientCountsWhileItReads(t *testing.T) {
	s := begin()
	s.wants(t, "before any pull", 0)
	for range 5 {
		s.pull(1, 1)
		s.pull(2, 10*time.Minute)
		s.clock += 2 * time.Second
	}
	s.wants(t, "two that pulled", 2)
	s.clock += Kept
	s.wants(t, "a minute later", 1)
	s.clock += 10 * time.Minute
	s.wants(t, "when the long pull has ended", 0)

	s.pull(3, 0)
	s.clock += Longest - time.Second
	s.wants(t, "a pull without an end", 1)
	s.clock += time.Second
	s.wants(t, "an hour later", 0)

	s.Acked("t", []byte("billing"), 4)
	for range 3 {
		s.clock += Kept - time.Second
		s.wants(t, "one that acknowledges", 1)
		s.Acked("t", []byte("billing"), 4)
	}
	s.clock += Kept
	s.wants(t, "a minute after its last ack", 0)

	s.pull(5, time.Hour)
	s.clock += 2 * time.Second
	s.pull(5, 1) // the long one was for somebody else's patience
	s.clock += Kept
	s.wants(t, "the newest pull decides", 0)

	s.pull(6, time.Hour)
	s.clock += refresh / 2
	s.pull(6, 1)
	s.clock += Kept
	s.wants(t, "a short pull soon after a long one", 0)
}

// TestAClientThatIsGoneDoesNotCount: nor one of another Subscription.
func TestAClientThatIsGoneDoesNotCount(t *testing.T) {
	s := begin()
	s.pull(1, time.Hour)
	s.pull(2, time.Hour)
	s.Pulled("t", []byte("audit"), 3, func() time.Duration { return time.Hour })
	s.Pulled("u", []byte("billing"), 4, func() time.Duration { return time.Hour })
	s.wants(t, "two of them", 2)
	s.hub.gone[1] = true
	s.wants(t, "one has gone", 1)
	s.hub.gone[2] = true
	s.wants(t, "all have", 0)
}

// TestPullsAreLookedAtOnceASecond, since parsing takes time.
func TestPullsAreLookedAtOnceASecond(t *testing.T) {
	s := begin()
	looks := 0
	for range 100 {
		s.Pulled("t", []byte("billing"), 1, func() time.Duration { looks++; return 1 })
		s.clock += refresh / 10
	}
	if looks != 10 {
		t.Errorf("100 pulls in 10 s were looked at %d times", looks)
	}
	name := []byte(longName)
	expires := func() time.Duration { return 1 }
	s.Pulled("t", name, 1, expires)
	if n := testing.AllocsPerRun(100, func() {
		s.Pulled("t", name, 1, expires)
		s.Acked("t", name, 1)
	}); n > 0 {
		t.Errorf("a pull and an ack allocate %v times", n)
	}
}

// TestClientsAreForgotten: those that don't count any more leave room for others. Beyond the bound
// nobody is remembered.
func TestClientsAreForgotten(t *testing.T) {
	s := begin()
	for i := range uint64(mostClients + 10) {
		s.pull(i, time.Minute)
	}
	s.wants(t, "too many", mostClients)
	s.clock += 2 * time.Minute
	s.pull(1<<40, time.Minute)
	s.wants(t, "when the others have ended", 1)
	if s.n != 1 || len(s.of) != 1 {
		t.Errorf("%d clients of %d Subscriptions are remembered", s.n, len(s.of))
	}
	s.hub.gone[1<<40] = true
	if all := s.Counts(&coordination.State{}); len(all) != 0 || s.n != 0 || len(s.of) != 0 {
		t.Errorf("after it has gone there are %v, and %d are remembered", all, s.n)
	}
}

// TestNamesThatAreNotCountedTakeNoMemory: no declared Subscription has them, or it is ephemeral.
func TestNamesThatAreNotCountedTakeNoMemory(t *testing.T) {
	s := begin()
	for _, of := range []key{{"t", "made-up"}, {"v", "billing"}, {"t", "once"}} {
		s.Pulled(of.topicID, []byte(of.name), 1, func() time.Duration { return 0 })
		s.Acked(of.topicID, []byte(of.name), 1)
	}
	if s.n != 0 || len(s.of) != 0 {
		t.Errorf("%d clients of %d Subscriptions are remembered", s.n, len(s.of))
	}
}

// TestSubscribersOfADeliverSubjectCount in their queue group.
func TestSubscribersOfADeliverSubjectCount(t *testing.T) {
	s := begin()
	of := billing()
	of.Spec.Consumer.DeliverSubject = "to.a"
	if n := s.Of(of); n != 2 {
		t.Errorf("%d subscribers count, want 2", n)
	}
	of.Spec.Consumer.DeliverGroup = "workers"
	if n := s.Of(of); n != 3 {
		t.Errorf("%d members of the group count, want 3", n)
	}
}
