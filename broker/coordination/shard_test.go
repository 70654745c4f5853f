package coordination

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestShardsAreSwappedNotOverwritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	joinedA, joinedB := c.join(t, broker("a")), c.join(t, broker("b"))
	a, b := Replica{"a", joinedA.incarnation()}, Replica{"b", joinedB.incarnation()}
	office := c.office(t, a)
	topic := c.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 12}, client)

	// The controller writes many shards at once, and none that has changed since it was read.
	var writes []ShardWrite
	for n := range 12 {
		shard := newShard(topic.ID, n, a)
		shard.Replicas = []string{"a", "b"}
		writes = append(writes, ShardWrite{shard, topic})
	}
	if !office.writes(t, writes...) {
		t.Fatal("the new shards were not written")
	}
	if office.writes(t, writes[3]) {
		t.Error("a new shard replaced an existing one")
	}
	shards, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil || len(shards) != 12 || !slices.IsSortedFunc(shards, func(x, y *Shard) int { return x.Number - y.Number }) {
		t.Fatalf("%d shards are read, %v", len(shards), err)
	}
	bad := *shards[0]
	bad.Epoch = 0
	_, err = office.WriteShards(ctx, []ShardWrite{{*shards[1], nil}, {bad, nil}})
	as[*InvalidError](t, err)

	// The leader adds a registered broker to the set. A write based on the older set fails.
	grown, err := c.SwapInSync(ctx, a, shards[0], []Replica{a, b})
	if err != nil || len(grown.InSync) != 2 {
		t.Fatalf("%+v, %v", grown, err)
	}
	_, err = c.SwapInSync(ctx, a, shards[0], []Replica{a})
	as[*StaleError](t, err)

	// So does the controller's, and it delays no other shard.
	promoted, other := *shards[0], *shards[1]
	promoted.Epoch, other.Epoch = 2, 2
	revisions, err := office.WriteShards(ctx, []ShardWrite{{promoted, nil}, {other, nil}})
	if err != nil || len(revisions) != 2 || revisions[0] != 0 || revisions[1] <= grown.Revision {
		t.Errorf("revisions %v, %v; want that of the second shard only", revisions, err)
	}

	// Only the leader changes the set, and only registered incarnations join it.
	_, err = c.SwapInSync(ctx, b, grown, []Replica{a, b})
	as[*InvalidError](t, err)
	_, err = c.SwapInSync(ctx, Replica{"a", a.Incarnation - 1}, grown, []Replica{a})
	as[*StaleError](t, err)
	_, err = c.SwapInSync(ctx, a, shards[2], []Replica{a, {"b", b.Incarnation - 1}})
	as[*StaleError](t, err)
	_, err = c.SwapInSync(ctx, a, grown, []Replica{b})
	as[*InvalidError](t, err)

	// A leader that lost its lease cannot change the set, even before it knows.
	joinedA.leave()
	_, err = c.SwapInSync(ctx, a, grown, []Replica{a})
	as[*StaleError](t, err)
}

// TestTheLargestShardWriteIsOneTransaction: the largest call, with a Topic per shard to compare, is
// one transaction within etcd's limits.
func TestTheLargestShardWriteIsOneTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	a := Replica{"a", c.join(t, broker("a")).incarnation()}
	office := c.office(t, a)
	var writes []ShardWrite
	for i := range MaxShardWrites + 1 {
		name := fmt.Sprintf("t%d", i)
		topic := c.mustCreate(t, name, spec(name), client)
		writes = append(writes, ShardWrite{newShard(topic.ID, 0, a), topic})
	}
	_, err := office.WriteShards(ctx, writes)
	as[*InvalidError](t, err)
	before := c.revision(t)
	revisions, err := office.WriteShards(ctx, writes[:MaxShardWrites])
	if err != nil || len(revisions) != MaxShardWrites || revisions[0] != before+1 || revisions[MaxShardWrites-1] != before+1 {
		t.Fatalf("revisions %v after %d, %v; want one transaction", revisions, before, err)
	}
	for i := range MaxShardWrites {
		shards, _, err := c.ReadShards(ctx, writes[i].Shard.Topic)
		if err != nil || len(shards) != 1 || shards[0].Revision != revisions[i] {
			t.Fatalf("shards %v, %v; want revision %d", shards, err, revisions[i])
		}
	}
}

// TestALeaderIsElectedOnlyInItsRegisteredIncarnation: a leader is elected only in the incarnation
// that is registered at the write.
func TestALeaderIsElectedOnlyInItsRegisteredIncarnation(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).open()
	joinedB := c.join(t, broker("b"))
	a, b := Replica{"a", c.join(t, broker("a")).incarnation()}, Replica{"b", joinedB.incarnation()}
	office := c.office(t, a)
	topic := c.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 2}, client)
	if !office.writes(t, ShardWrite{newShard(topic.ID, 0, b), topic}) {
		t.Fatal("the registered broker was not elected")
	}
	joinedB.leave()
	if office.writes(t, ShardWrite{newShard(topic.ID, 1, b), topic}) {
		t.Error("a broker that left was elected")
	}
	c.join(t, broker("b")).incarnation()
	if office.writes(t, ShardWrite{newShard(topic.ID, 1, b), topic}) {
		t.Error("a broker was elected in the life before")
	}
}

func TestInvalidShardsAreRefused(t *testing.T) {
	good := newShard(newID(), 0, Replica{"a", 1})
	if why := good.valid(); why != "" {
		t.Fatal(why)
	}
	for what, spoil := range map[string]func(*Shard){
		"no topic":            func(s *Shard) { s.Topic = "../x" },
		"number":              func(s *Shard) { s.Number = maxShards },
		"no epoch":            func(s *Shard) { s.Epoch = 0 },
		"no replica":          func(s *Shard) { s.Replicas = nil },
		"replica twice":       func(s *Shard) { s.Replicas = []string{"a", "a"} },
		"leader not in sync":  func(s *Shard) { s.Leader = "b" },
		"stranger in sync":    func(s *Shard) { s.InSync = append(s.InSync, Replica{"b", 1}) },
		"in sync in 2 lives":  func(s *Shard) { s.InSync = append(s.InSync, Replica{"a", 2}) },
		"adding a stranger":   func(s *Shard) { s.Adding = []string{"b"} },
		"removing a stranger": func(s *Shard) { s.Removing = []string{"b"} },
		"too many":            func(s *Shard) { s.Replicas = strings.Split("abcdefghijklmnopq", "") },
	} {
		s := good
		s.Replicas, s.InSync = slices.Clone(s.Replicas), slices.Clone(s.InSync)
		spoil(&s)
		if _, err := s.encode(); err == nil {
			t.Errorf("%s: it was accepted", what)
		}
	}
}
