package coordination

import (
	"context"
	"maps"
	"testing"
)

// TestDrainsStandOrEndWithTheBroker: a leased drain ends with the broker's incarnation, and does
// not change an administrator's drain.
func TestDrainsStandOrEndWithTheBroker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	seen := c.watchState(t)
	joinedA := c.join(t, broker("a"))
	a := Replica{"a", joinedA.incarnation()}
	drains := func(what string, want map[string]DrainMode) {
		t.Helper()
		seen.wait(what, func(s *State) bool { return maps.Equal(s.Drains(), want) })
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(c.Drain(ctx, Replica{Broker: "b"}, DrainAll, false)) // away, for good
	must(c.Drain(ctx, a, DrainLeadership, true))
	drains("two drains", map[string]DrainMode{"a": DrainLeadership, "b": DrainAll})
	quiet := c.revision(t)
	must(c.Drain(ctx, Replica{Broker: "b"}, DrainAll, false))
	must(c.Drain(ctx, a, DrainLeadership, true))
	if now := c.revision(t); now != quiet {
		t.Errorf("what stood already was written again: revision %d after %d", now, quiet)
	}

	must(c.Drain(ctx, a, DrainAll, false))
	drains("the stronger of two", map[string]DrainMode{"a": DrainAll, "b": DrainAll})
	must(c.EndDrain(ctx, "a"))
	must(c.EndDrain(ctx, "a"))
	drains("its own, which nobody ends", map[string]DrainMode{"a": DrainLeadership, "b": DrainAll})

	// It loses its registration while it stops. The next registration has the drain from its first
	// moment.
	must(c.Evict(ctx, a))
	again := Replica{"a", joinedA.incarnation()}
	seen.wait("the new life", func(s *State) bool { b, ok := s.Broker("a"); return ok && b.Replica() == again })
	for _, state := range seen.all() {
		if b, ok := state.Broker("a"); ok && b.Replica() == again && state.Drain("a") != DrainLeadership {
			t.Errorf("at revision %d it was there without its drain", state.Revision)
		}
	}
	as[*NotRegisteredError](t, c.Drain(ctx, a, DrainLeadership, true))
	joinedA.leave()
	drains("only what stands", map[string]DrainMode{"b": DrainAll})
	must(c.EndDrain(ctx, "b"))
	drains("none", map[string]DrainMode{})

	as[*InvalidError](t, c.Drain(ctx, a, "Some", false))
	as[*InvalidError](t, c.Drain(ctx, Replica{Broker: "a/leased"}, DrainAll, false))
	as[*InvalidError](t, c.EndDrain(ctx, ""))
}

// TestReportsEndWithTheBroker: a report stands as long as the incarnation, and a new registration
// of the same process keeps it.
func TestReportsEndWithTheBroker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	seen := c.watchState(t)
	joinedA := c.join(t, broker("a"))
	a := Replica{"a", joinedA.incarnation()}
	topic := c.mustCreate(t, "orders", spec("orders"), client)
	said := []Suspect{{Topic: topic.ID, Shard: 0, Epoch: 3, End: 17, State: 5, Spent: 0, Lacks: 0, Cut: true}, {Topic: topic.ID, Shard: 5, Epoch: 4, End: 1 << 60, State: 0, Spent: 0, Lacks: 2, Closed: true}, {Topic: topic.ID, Shard: 6, Epoch: 4, End: 17, State: 1, Spent: 4, Lacks: 0, Cut: false}}
	if err := c.Report(ctx, a, 0, said); err != nil {
		t.Fatal(err)
	}
	s := seen.wait("the report", func(s *State) bool { return s.Suspect("a", topic.ID, 5) })
	if got, ok := s.Reported("a", topic.ID, 0); !ok || got != said[0] || s.Suspect("a", topic.ID, 1) || s.Suspect("b", topic.ID, 0) || s.Suspect("a", newID(), 0) {
		t.Errorf("reported is %+v", got)
	}
	if got, ok := s.Reported("a", topic.ID, 5); !ok || got != said[1] {
		t.Errorf("reported is %+v", got)
	}
	if err := c.Evict(ctx, a); err != nil {
		t.Fatal(err)
	}
	again := Replica{"a", joinedA.incarnation()}
	seen.wait("the new life", func(s *State) bool { b, ok := s.Broker("a"); return ok && b.Replica() == again })
	for _, state := range seen.all() {
		if b, ok := state.Broker("a"); ok && b.Replica() == again && !state.Suspect("a", topic.ID, 5) {
			t.Errorf("at revision %d it was there without its report", state.Revision)
		}
	}
	as[*NotRegisteredError](t, c.Report(ctx, a, 0, nil))
	if err := c.Report(ctx, again, 0, nil); err != nil {
		t.Fatal(err)
	}
	seen.wait("nothing suspect", func(s *State) bool { return !s.Suspect("a", topic.ID, 0) && !s.Suspect("a", topic.ID, 5) })
	if err := c.Report(ctx, again, 0, said); err != nil {
		t.Fatal(err)
	}
	seen.wait("the report", func(s *State) bool { return s.Suspect("a", topic.ID, 5) })
	joinedA.leave()
	s = seen.wait("no broker", func(s *State) bool { return len(s.Brokers) == 0 })
	if s.Suspect("a", topic.ID, 5) {
		t.Error("its report outlived the broker")
	}

	// A report before the registration is there from its first moment.
	if err := c.Report(ctx, Replica{Broker: "b"}, 0, said); err != nil {
		t.Fatal(err)
	}
	b := Replica{"b", c.join(t, broker("b")).incarnation()}
	seen.wait("b", func(s *State) bool { return len(s.Brokers) == 1 })
	for _, state := range seen.all() {
		if _, ok := state.Broker("b"); ok && !state.Suspect("b", topic.ID, 5) {
			t.Errorf("at revision %d it was there without its report", state.Revision)
		}
	}

	// A report of a large broker's replicas fits; an invalid shard is refused.
	many := make([]Suspect, 10_000)
	for i := range many {
		many[i] = Suspect{Topic: newID(), Shard: i % maxShards, Epoch: uint64(i), End: 1 << 40, State: 1 << 40, Spent: 0, Lacks: 3, Cut: false}
	}
	if err := c.Report(ctx, b, 0, many); err != nil {
		t.Errorf("the report of %d replicas: %v", len(many), err)
	}
	as[*InvalidError](t, c.Report(ctx, b, 0, []Suspect{{Topic: "../x", Shard: 0, Epoch: 1, End: 1, State: 1, Spent: 0, Lacks: 0, Cut: false}}))
	as[*InvalidError](t, c.Report(ctx, b, 0, []Suspect{{Topic: topic.ID, Shard: maxShards, Epoch: 1, End: 1, State: 1, Spent: 0, Lacks: 0, Cut: false}}))
}

// TestAnEvictedBrokerRegistersAgainAndKeepsSince: eviction ends a broker's term as controller at
// once. The broker registers again and keeps Since.
func TestAnEvictedBrokerRegistersAgainAndKeepsSince(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	seen := c.watchState(t)
	joinedA := c.join(t, broker("a"))
	first := Replica{"a", joinedA.incarnation()}
	if err := c.Evict(ctx, Replica{"a", first.Incarnation - 1}); err != nil {
		t.Fatal(err)
	}
	if err := c.Evict(ctx, Replica{"nobody", 1}); err != nil {
		t.Fatal(err)
	}
	c.campaign(t, first, nil).elected()
	s := seen.wait("a controller", func(s *State) bool { return s.Controller.Replica == first })
	if b, _ := s.Broker("a"); b.Since != 0 || !b.Holds(first.Incarnation) || b.Holds(first.Incarnation-1) {
		t.Errorf("a broker with nothing handed on is %+v", b)
	}
	if err := c.Evict(ctx, first); err != nil {
		t.Fatal(err)
	}
	seen.wait("no office", func(s *State) bool { return s.Controller.Term == 0 })
	for life := range 2 {
		again := joinedA.incarnation()
		s := seen.wait("its return", func(s *State) bool { b, ok := s.Broker("a"); return ok && b.Incarnation == again })
		if b, _ := s.Broker("a"); b.Since != first.Incarnation || !b.Holds(first.Incarnation) || !b.Holds(again) || b.Holds(first.Incarnation-1) || b.Holds(again+1) {
			t.Errorf("after return %d it is %+v", life, b)
		}
		if err := c.Evict(ctx, Replica{"a", again}); err != nil {
			t.Fatal(err)
		}
	}

	// Since of an earlier process is passed on.
	heir := broker("b")
	heir.Since = first.Incarnation
	joinedB := c.join(t, heir)
	for range 2 {
		life := joinedB.incarnation()
		s := seen.wait("b", func(s *State) bool { b, ok := s.Broker("b"); return ok && b.Incarnation == life })
		if b, _ := s.Broker("b"); b.Since != first.Incarnation {
			t.Errorf("the heir is %+v", b)
		}
		if err := c.Evict(ctx, Replica{"b", life}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReplicasAndMinInSyncHaveDefaults(t *testing.T) {
	for _, c := range []struct{ replicas, min, brokers, wantReplicas, settled, wantMin int }{
		{0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 1, 1}, {0, 0, 2, 2, 2, 2}, {0, 0, 7, 3, 3, 2}, {0, 2, 1, 2, 2, 2}, {0, 4, 9, 4, 4, 4},
		{1, 0, 9, 1, 1, 1}, {3, 0, 1, 3, 2, 2}, {5, 0, 5, 5, 1, 3}, {5, 1, 5, 5, 5, 1},
	} {
		s := TopicSpec{Replicas: c.replicas, MinInSync: c.min}
		if got := s.ResolvedReplicas(c.brokers); got != c.wantReplicas {
			t.Errorf("%+v: %d replicas", c, got)
		}
		if got := s.ResolvedMinInSync(c.settled); got != c.wantMin {
			t.Errorf("%+v: at least %d in sync", c, got)
		}
	}
	for _, adding := range [][]string{{"d"}, nil} {
		moved := Shard{Replicas: []string{"a", "b", "c", "d"}, Adding: adding, Removing: []string{"a"}}
		if got := moved.MinInSync(&TopicSpec{}); got != 2 {
			t.Errorf("while a replica is moved %d must be in sync, want 2", got)
		}
	}
	grown := Shard{Replicas: []string{"a", "b", "c"}, Adding: []string{"b", "c"}}
	if got := grown.MinInSync(&TopicSpec{}); got != 1 {
		t.Errorf("while replicas are added %d must be in sync, want 1", got)
	}
}
