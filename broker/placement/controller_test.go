package placement

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
	etcdtest "github.com/carillon-mq/carillon/internal/testutil/etcd"
)

// seed writes the given number of Topics and shards. All shards are led by the first node and in
// sync on all nodes, and their first replica is on the preferred node.
func seed(t testing.TB, nodes []*node, topics, shards int, preferred string) {
	t.Helper()
	var ids []string
	var inSync []coordination.Replica
	state := nodes[0].wait("all brokers", func(s *coordination.State) bool { return len(s.Brokers) == len(nodes) })
	for _, n := range nodes {
		b, _ := state.Broker(n.id)
		inSync = append(inSync, b.Replica())
		if n.id == preferred {
			ids = append([]string{n.id}, ids...)
		} else {
			ids = append(ids, n.id)
		}
	}
	c := nodes[0].c
	ctx, resign := context.WithCancel(context.Background())
	defer resign()
	err := c.Campaign(ctx, inSync[0], nil, func(ctx context.Context, office *coordination.Office) {
		defer resign()
		for i := range topics {
			name := fmt.Sprintf("t%d", i)
			spec := coordination.TopicSpec{Subjects: []string{name + ".>"}, Shards: shards, Replicas: len(nodes)}
			topic, err := c.CreateTopic(ctx, name, spec, coordination.Owner{Kind: coordination.ClientOwner})
			if err != nil {
				t.Error(err)
				return
			}
			for from := 0; from < shards; from += coordination.MaxShardWrites {
				var writes []coordination.ShardWrite
				for n := from; n < min(from+coordination.MaxShardWrites, shards); n++ {
					writes = append(writes, coordination.ShardWrite{Topic: topic, Shard: coordination.Shard{
						Topic: topic.ID, Number: n, Epoch: 1, Leader: nodes[0].id, Replicas: ids, InSync: inSync,
					}})
				}
				if revisions, err := office.WriteShards(ctx, writes); err != nil || slices.Contains(revisions, 0) {
					t.Errorf("the new shards were not written: revisions %v, %v", revisions, err)
					return
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.wait("all shards", func(s *coordination.State) bool { return s.ShardCount() == topics*shards })
	}
}

// failover evicts the leader of the given number of shards, which is not the controller. It returns
// the time until the nodes saw other leaders.
func failover(t testing.TB, shards int) (took time.Duration, revisions int64) {
	endpoint := etcdtest.Start(t).Endpoint()
	stands, never := make(chan struct{}), make(chan struct{})
	first, stop := startNode(t, endpoint, "a", never)
	second, _ := startNode(t, endpoint, "b", stands)
	third, _ := startNode(t, endpoint, "c", never)
	seed(t, []*node{first, second, third}, 10, shards/10, "a")
	close(stands)
	third.wait("a controller", func(s *coordination.State) bool { return s.Controller.Broker == "b" })
	before := revisionOf(t, third.c)
	began := time.Now()
	stop()
	state := third.wait("other leaders", func(s *coordination.State) bool {
		for shard := range s.AllShards() {
			if shard.Leader == "a" {
				return false
			}
		}
		return true
	})
	took = time.Since(began)
	// Balancing may have moved a few before.
	const moved = 2 * leaderMovesPerPlan
	leads, without := map[string]int{}, 0
	for shard := range state.AllShards() {
		leads[shard.Leader]++
		without += order(len(shard.InSync) == 2)
	}
	if without < shards-moved || leads["b"]-leads["c"] > 1 || leads["c"]-leads["b"] > 1 {
		t.Errorf("they lead %v, and of %d sets the dead one is gone", leads, without)
	}
	// Nodes may see an election before all writes of its plan are counted. Of a transaction that
	// failed the controller doesn't know whether etcd committed it, as when the answer was late,
	// and counts none of it.
	testutil.Eventually(t, "all elections are counted", func() error {
		writes, failed := int(second.controller.Stats().Writes[LeaderElected]), int(second.unanswered.transactions.Load())
		if writes > without || writes+failed*coordination.MaxShardWrites < without {
			return fmt.Errorf("the controller counts %d elections, of %d, and %d transactions failed", writes, without, failed)
		}
		return nil
	})
	return took, state.Revision - before
}

// TestManyLeadersAreElected: the leader of all shards fails: others are elected in as few
// transactions as possible, without waiting for each to return by the watch.
func TestManyLeadersAreElected(t *testing.T) {
	took, revisions := failover(t, 3000)
	t.Logf("3,000 shards had leaders again after %v, %d transactions", took.Round(time.Millisecond), revisions)
	if revisions > 3000/coordination.MaxShardWrites+2 {
		t.Errorf("it took %d transactions", revisions)
	}
}

// slowOffice writes nothing until all parts of a plan have been requested.
type slowOffice struct {
	mu       sync.Mutex
	parts    int
	calls    int
	full     chan struct{}
	revision int64
	fails    func(first int) (written int, err error) // with an error none is written
}

func (o *slowOffice) WriteShards(ctx context.Context, writes []coordination.ShardWrite) (revisions []int64, err error) {
	o.mu.Lock()
	if o.calls++; o.calls == o.parts {
		close(o.full)
	}
	o.mu.Unlock()
	select {
	case <-o.full:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.fails(writes[0].Shard.Number)
	o.revision++
	if err != nil {
		return nil, err
	}
	revisions = make([]int64, len(writes))
	for i := range min(n, len(writes)) {
		revisions[i] = o.revision
	}
	return revisions, nil
}

// TestTransactionsOfAPlanAreConcurrent: the transactions of a plan are concurrent. A failed one
// stops no other, and the successful ones are counted as written.
func TestTransactionsOfAPlanAreConcurrent(t *testing.T) {
	const size = coordination.MaxShardWrites
	var plan Plan
	topic := &coordination.Topic{ID: "id", Name: "t"}
	for n := range maxPlanWrites {
		plan.Writes = append(plan.Writes, Write{ShardWrite: coordination.ShardWrite{Topic: topic, Shard: coordination.Shard{Topic: "id", Number: n, Leader: "a"}}, Reason: LeaderElected})
	}
	for name, with := range map[string]struct {
		fails   func(first int) (int, error)
		written int
		stale   bool
		failed  bool
	}{
		"all":     {func(int) (int, error) { return size, nil }, maxPlanWrites, false, false},
		"stale":   {func(first int) (int, error) { return 7 + size*order(first != 3*size), nil }, maxPlanWrites - size + 7, true, false},
		"deposed": {func(int) (int, error) { return 0, &coordination.DeposedError{} }, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
			defer cancel()
			o := &slowOffice{parts: maxPlanWrites / size, full: make(chan struct{}), fails: with.fails}
			c := NewController(nil, nil, slog.New(slog.DiscardHandler))
			w := &tenure{c: c, office: o, ahead: newAhead()}
			stale, err := w.carryOut(ctx, &plan)
			if stale != with.stale || (err != nil) != with.failed || ctx.Err() != nil {
				t.Errorf("stale %t, %v", stale, err)
			}
			if got := len(w.ahead.shards["id"]); got != with.written || int(c.Stats().Writes[LeaderElected]) != got {
				t.Errorf("%d are known to be written, and %d are counted, want %d", got, c.Stats().Writes[LeaderElected], with.written)
			}
			if name == "stale" && (w.ahead.shards["id"][3*size+6] == nil || w.ahead.shards["id"][3*size+7] != nil) {
				t.Error("it doesn't know which were written")
			}
		})
	}
}

// TestLeadershipIsRestoredGently: leaderships return to their preferred leaders, a few per second.
func TestLeadershipIsRestoredGently(t *testing.T) {
	endpoint := etcdtest.Start(t).Endpoint()
	stands, never := make(chan struct{}), make(chan struct{})
	first, _ := startNode(t, endpoint, "a", never)
	second, _ := startNode(t, endpoint, "b", stands)
	const topics = 2*leaderMovesPerPlan + 1
	seed(t, []*node{first, second}, topics, 1, "b")
	began := time.Now()
	close(stands)
	state := first.wait("leaderships restored", func(s *coordination.State) bool {
		for shard := range s.AllShards() {
			if shard.Leader != "b" {
				return false
			}
		}
		return true
	})
	took := time.Since(began)
	together := map[int64]int{} // what one transaction moved has one revision
	for shard := range state.AllShards() {
		together[shard.Revision]++
	}
	for _, n := range together {
		if n > leaderMovesPerPlan {
			t.Errorf("%d were moved at once", n)
		}
	}
	if len(together) != 3 || took < 2*movesPause {
		t.Errorf("all were moved %d times within %v", len(together), took)
	}
}

func BenchmarkFailover(b *testing.B) {
	for range b.N {
		took, revisions := failover(b, 10_000)
		b.ReportMetric(float64(took.Milliseconds()), "ms/failover")
		b.ReportMetric(float64(revisions), "txns")
	}
}
