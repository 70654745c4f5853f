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

	// The controller writes many at once, and never over what it has not seen.
	var writes []ShardWrite
	for n := range 12 {
		shard := newShard(topic.ID, n, a)
		shard.Replicas = []string{"a", "b"}
		writes = append(writes, ShardWrite{shard, topic})
	}
	if _, err := office.WriteShards(ctx, writes); err != nil {
		t.Fatal(err)
	}
	_, err := office.WriteShards(ctx, writes[3:4])
	as[*StaleError](t, err)
	shards, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil || len(shards) != 12 || !slices.IsSortedFunc(shards, func(x, y *Shard) int { return x.Number - y.Number }) {
		t.Fatalf("%d shards are read, %v", len(shards), err)
	}
	bad := *shards[0]
	bad.Epoch = 0
	_, err = office.WriteShards(ctx, []ShardWrite{{*shards[1], nil}, {bad, nil}})
	as[*InvalidError](t, err)

	// The leader grows the set by one that lives; another has an older view then.
	grown, err := c.SwapInSync(ctx, a, shards[0], []Replica{a, b})
	if err != nil || len(grown.InSync) != 2 {
		t.Fatalf("%+v, %v", grown, err)
	}
	_, err = c.SwapInSync(ctx, a, shards[0], []Replica{a})
	as[*StaleError](t, err)
	promoted := *shards[0]
	promoted.Epoch++
	_, err = office.WriteShards(ctx, []ShardWrite{{promoted, nil}})
	as[*StaleError](t, err)

	// Nobody but the leader, and nobody from another life, changes or joins the set.
	_, err = c.SwapInSync(ctx, b, grown, []Replica{a, b})
	as[*InvalidError](t, err)
	_, err = c.SwapInSync(ctx, Replica{"a", a.Incarnation - 1}, grown, []Replica{a})
	as[*StaleError](t, err)
	_, err = c.SwapInSync(ctx, a, shards[1], []Replica{a, {"b", b.Incarnation - 1}})
	as[*StaleError](t, err)
	_, err = c.SwapInSync(ctx, a, grown, []Replica{b})
	as[*InvalidError](t, err)

	// A leader that lost its lease changes the set no more, though it need not know yet.
	joinedA.leave()
	_, err = c.SwapInSync(ctx, a, grown, []Replica{a})
	as[*StaleError](t, err)
}

// As many as one transaction may hold, each with a Topic of its own to compare, is within etcd's limits.
func TestTheMostShardsThatOneTransactionTakes(t *testing.T) {
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
	if _, err := office.WriteShards(ctx, writes[:MaxShardWrites]); err != nil {
		t.Fatal(err)
	}
}

func TestShardsThatCantBe(t *testing.T) {
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
