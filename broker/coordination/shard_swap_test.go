package coordination

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// A leader changes many in-sync sets at once: they share transactions, and those that are stale are refused, alone.
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
		if _, err := office.WriteShards(ctx, writes[from:min(from+MaxShardWrites, shards)]); err != nil {
			t.Fatal(err)
		}
	}
	found, _, err := c.ReadShards(ctx, topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	swapAll := func(set []Replica) (after [shards]*Shard, failed [shards]error) {
		var calls sync.WaitGroup
		<-c.swaps.turn // until all wait
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
	// Of two shards something else has been written since; all others are as they were seen last.
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

	// Who gives up leaves nothing behind that would be carried out later.
	given, cancel := context.WithCancelCause(ctx)
	cancel(fmt.Errorf("no longer wanted"))
	<-c.swaps.turn
	if _, err := c.SwapInSync(given, a, written[0], []Replica{a, b}); err == nil || len(c.swaps.queue) != 0 {
		t.Errorf("given up: %v, and %d wait", err, len(c.swaps.queue))
	}
	c.swaps.turn <- struct{}{}
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}
