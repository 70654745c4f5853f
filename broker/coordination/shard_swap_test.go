package coordination

import (
	"context"
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestManySwapsShareTransactions: a leader's concurrent swaps of in-sync sets share transactions,
// and stale ones are refused individually.
func TestManySwapsShareTransactions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	a := Replica{"a", c.join(t, broker("a")).incarnation()}
	b := Replica{"b", c.join(t, broker("b")).incarnation()}
	office := c.office(t, a)
	const shards = 150
	topic := c.mustCreate(t, "t", func() TopicSpec { s := spec("t"); s.Shards, s.Replicas = shards, 2; return s }(), client)
	var writes []ShardWrite
	for n := range shards {
		s := newShard(topic.ID, n, a)
		s.Replicas = []string{"a", "b"}
		writes = append(writes, ShardWrite{s, topic})
	}
	for from := 0; from < shards; from += MaxShardWrites {
		if !office.writes(t, writes[from:min(from+MaxShardWrites, shards)]...) {
			t.Fatal("the new shards were not written")
		}
	}
	found, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	swapAll := func(set []Replica) (after [shards]*Shard, failed [shards]error) {
		var calls sync.WaitGroup
		<-c.swaps.turn // until all are queued
		for n, before := range found {
			call := askedOf(ctx)
			calls.Go(func() { after[n], failed[n] = c.SwapInSync(call, a, before, set) })
			c.swaps.queued(t, call, n+1)
		}
		c.swaps.turn <- struct{}{}
		calls.Wait()
		return after, failed
	}
	before := c.revision(t)
	after, failed := swapAll([]Replica{a, b})
	for n := range shards {
		if failed[n] != nil || len(after[n].InSync) != 2 || after[n].Revision <= found[n].Revision {
			t.Fatalf("shard %d: %+v, %v", n, after[n], failed[n])
		}
	}
	if took := c.revision(t) - before; took != 2 {
		t.Errorf("%d swaps took %d transactions", shards, took)
	}

	before = c.revision(t)
	// Two shards have changed since; all others are as they were read.
	stale := map[int]bool{3: true, 111: true}
	for n := range shards {
		if !stale[n] {
			found[n] = after[n]
		}
	}
	after, failed = swapAll([]Replica{a})
	for n := range shards {
		if stale[n] {
			as[*StaleError](t, failed[n])
		} else if failed[n] != nil || len(after[n].InSync) != 1 {
			t.Fatalf("shard %d: %+v, %v", n, after[n], failed[n])
		}
	}
	if took := c.revision(t) - before; took != 2 {
		t.Errorf("%d swaps, two of them stale, took %d transactions", shards, took)
	}
	written, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range written {
		if want := 1 + order(stale[n]); len(s.InSync) != want {
			t.Errorf("in sync of shard %d: %v", n, s.InSync)
		}
	}

	// A call whose context ends is not carried out later.
	given, cancel := context.WithCancelCause(ctx)
	cancel(fmt.Errorf("no longer wanted"))
	<-c.swaps.turn
	if _, err := c.SwapInSync(given, a, written[0], []Replica{a, b}); err == nil || len(c.swaps.queue) != 0 {
		t.Errorf("given up: %v, and %d wait", err, len(c.swaps.queue))
	}
	c.swaps.turn <- struct{}{}
}

// TestABrokerChangesItsOwnEntry: a broker vouches for its copies in a later incarnation, withdraws,
// and resigns. Each is a compare-and-swap of its own entry, and they share transactions.
func TestABrokerChangesItsOwnEntry(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	a := Replica{"a", c.join(t, broker("a")).incarnation()}
	b := Replica{"b", c.join(t, broker("b")).incarnation()}
	office := c.office(t, b)
	topic := c.mustCreate(t, "t", func() TopicSpec { s := spec("t"); s.Shards, s.Replicas = 4, 2; return s }(), client)
	was := Replica{"a", a.Incarnation - 1} // an earlier incarnation
	// Shard 0 was led by the earlier incarnation, shard 1 is led by another broker, shard 2 by this
	// incarnation. The broker has no entry in shard 3.
	var writes []ShardWrite
	for n := range 4 {
		s := newShard(topic.ID, n, b)
		s.Replicas, s.InSync = []string{"a", "b"}, []Replica{was, b}
		writes = append(writes, ShardWrite{s, topic})
	}
	writes[2].Shard.InSync[0] = a
	writes[2].Shard.Leader = "a"
	writes[3].Shard.InSync = []Replica{b}
	if !office.writes(t, writes...) {
		t.Fatal("the new shards were not written")
	}
	found, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	led := *found[0]
	led.Leader = "a"
	found[0].Leader = "a"
	if value, err := led.encode(); err != nil {
		t.Fatal(err)
	} else if done, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpPut(c.shardKey(topic.ID, 0), value)}); err != nil {
		t.Fatal(err)
	} else {
		found[0].Revision = done.Header.GetRevision()
	}

	// Concurrently: vouching in a new incarnation does not continue the earlier one's leadership.
	before := c.revision(t)
	var calls sync.WaitGroup
	var vouched, beside, resigned *Shard
	var failed [3]error
	<-c.swaps.turn
	for n, call := range []func(context.Context){
		func(ctx context.Context) { vouched, failed[0] = c.Vouch(ctx, a, found[0], Reach{2, 30}, false) },
		func(ctx context.Context) { beside, failed[1] = c.Vouch(ctx, a, found[1], Reach{3, 40}, false) },
		func(ctx context.Context) { resigned, failed[2] = c.Resign(ctx, a, found[2]) },
	} {
		asked := askedOf(ctx)
		calls.Go(func() { call(asked) })
		c.swaps.queued(t, asked, n+1)
	}
	c.swaps.turn <- struct{}{}
	calls.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := c.revision(t) - before; took != 1 {
		t.Errorf("they took %d transactions", took)
	}
	if vouched.Leader != "" || vouched.Epoch != 1 || vouched.InSync[0] != a || vouched.InSync[1] != b {
		t.Errorf("vouched for: %+v", vouched)
	}
	if beside.Leader != "b" || beside.InSync[0] != a {
		t.Errorf("vouched for beside a leader: %+v", beside)
	}
	if reach, returned := beside.Return("a"); !returned || reach != (Reach{3, 40}) {
		t.Errorf("it goes to %+v, %v", reach, returned)
	}
	if _, returned := beside.Return("b"); returned {
		t.Error("b has returned, too")
	}
	if reach, last := resigned.Return("a"); resigned.Leader != "" || resigned.InSync[0] != a || !last || reach != (Reach{}) {
		t.Errorf("resigned: %+v", resigned)
	}

	// The leading process vouches in another incarnation of its own and stays leader. After it
	// withdraws, it is not the leader.
	again, err := c.Vouch(ctx, b, beside, Reach{}, true)
	if _, returned := again.Return("b"); err != nil || again.Leader != "b" || returned {
		t.Fatalf("%+v, %v", again, err)
	}
	gone, err := c.Withdraw(ctx, b, again)
	if err != nil || gone.Leader != "" || gone.InSync[1] != (Replica{"b", 0}) || gone.InSync[0] != a {
		t.Fatalf("%+v, %v", gone, err)
	}
	found, _, err = c.ReadShards(ctx, topic.ID)
	if err != nil || found[1].Vouched(Broker{ID: "b", Incarnation: 0}) || found[1].Vouched(Broker{ID: "b", Incarnation: b.Incarnation}) || !found[1].Vouched(Broker{ID: "a", Incarnation: a.Incarnation}) {
		t.Fatalf("%+v, %v", found[1], err)
	}

	if reach, returned := found[0].Return("a"); !returned || reach != (Reach{2, 30}) {
		t.Errorf("it goes to %+v, %v", reach, returned)
	}

	// Refused: a changed shard, an ended incarnation, a missing entry, another leader.
	_, err = c.Withdraw(ctx, b, again)
	as[*StaleError](t, err)
	_, err = c.Vouch(ctx, was, gone, Reach{}, false)
	as[*StaleError](t, err)
	_, err = c.Vouch(ctx, a, found[3], Reach{}, false)
	as[*InvalidError](t, err)
	_, err = c.Resign(ctx, a, found[3])
	as[*InvalidError](t, err)
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}
