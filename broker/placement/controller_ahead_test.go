package placement

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestPlansIncludeWritesThatNoStateShowsYet: plans include what was written, until a State shows
// that write or a later one.
func TestPlansIncludeWritesThatNoStateShowsYet(t *testing.T) {
	w := newWorld("a")
	orders, gone := w.topic("orders", 3), w.topic("gone", 1)
	state := func(revision int64) *coordination.State {
		return coordination.NewState(revision, w.facts().Brokers, []*coordination.Topic{orders, gone}, w.shards[orders.ID], nil)
	}
	known := newAhead()
	before := state(10)
	plan := Decide(known.facts(before))
	if len(plan.Writes) != 4 {
		t.Fatalf("%+v", plan)
	}
	shard := coordination.Shard{Topic: orders.ID, Number: 1, Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{inLife(w, "a")}}
	known.wrote(&shard, 11)
	shard.Number = 0
	known.wrote(&shard, 12)
	known.swept[gone.ID] = true
	facts := known.facts(before)
	if got := facts.Shards(orders.ID); len(got) != 2 || got[0].Number != 0 || got[0].Revision != 12 || got[1].Revision != 11 || len(facts.Topics) != 1 || known.revision != 12 {
		t.Fatalf("ahead of the State: %d shards, %d topics", len(got), len(facts.Topics))
	}
	later := shard
	later.Revision, later.Epoch = 12, 7
	w.shards[orders.ID] = []*coordination.Shard{&later}
	if got := known.facts(state(11)).Shards(orders.ID); len(got) != 1 || got[0].Revision != 12 {
		t.Fatalf("one is shown: %d", len(got))
	}
	if got := known.facts(state(12)).Shards(orders.ID); len(got) != 1 || got[0].Epoch != 7 || len(known.shards) != 0 {
		t.Fatalf("all is shown: %+v", *got[0])
	}
	without := coordination.NewState(13, nil, []*coordination.Topic{orders}, nil, nil)
	if known.facts(without); len(known.swept) != 0 {
		t.Error("a Topic that is gone is remembered")
	}
}
