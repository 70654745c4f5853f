package placement

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
	etcdtest "github.com/carillon-mq/carillon/internal/testutil/etcd"
	"github.com/carillon-mq/carillon/internal/testutil/keys"
)

// node is the part of a broker that placement needs: registered, watching, and the controller when
// elected.
type node struct {
	t          testing.TB
	c          *coordination.Client
	id         string
	controller *Controller
	stands     <-chan struct{} // closed when it may stand for election
	unanswered unanswered

	mu     sync.Mutex
	state  *coordination.State
	change chan struct{} // closed when state changes
}

func (n *node) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	lives := make(chan int64, 16)
	wg.Go(func() {
		err := n.c.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.state = state
			close(n.change)
			n.change = make(chan struct{})
		})
		if err != nil {
			n.t.Error(err)
		}
	})
	wg.Go(func() {
		self := coordination.Broker{ID: n.id, Name: n.id, Client: n.id + ":4222"}
		if err := n.c.Join(ctx, self, func(incarnation int64) { lives <- incarnation }); err != nil {
			n.t.Error(err)
		}
	})
	select {
	case <-n.stands:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case life := <-lives:
			if err := n.controller.Run(ctx, coordination.Replica{Broker: n.id, Incarnation: life}); err != nil {
				n.t.Error(err)
			}
		}
	}
}

// unanswered counts the transactions of a controller that failed, of which nobody knows whether
// etcd committed them. It reads the controller's log.
type unanswered struct {
	slog.Handler
	transactions *atomic.Int64
}

func (u unanswered) Enabled(context.Context, slog.Level) bool { return true }

func (u unanswered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return unanswered{u.Handler.WithAttrs(attrs), u.transactions}
}

func (u unanswered) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && record.Message == failedPlan {
			u.transactions.Add(int64(1 + strings.Count(err.Error(), "\n"))) // joined errors are lines
		}
		return true
	})
	return u.Handler.Handle(ctx, record)
}

// startNode runs a node until it is stopped or the test ends.
func startNode(t testing.TB, endpoint, id string, stands <-chan struct{}) (n *node, stop func()) {
	t.Helper()
	// No test of this package has a lease run out, and on a busy machine one must not.
	c, err := coordination.Open(coordination.Config{Endpoints: []string{endpoint}, Cluster: "default/main", LeaseTTL: 10 * testutil.Patience})
	if err != nil {
		t.Fatal(err)
	}
	n = &node{t: t, c: c, id: id, stands: stands, change: make(chan struct{})}
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("broker", id)
	}
	n.unanswered = unanswered{logger.Handler(), &atomic.Int64{}}
	n.controller = NewController(c, n, slog.New(n.unanswered))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(func() { stop(); _ = c.Close() })
	return n, stop
}

// State and Changed implement States for the node's controller.
func (n *node) State() *coordination.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.change
}

// wait waits until ok returns true for the state that n knows.
func (n *node) wait(what string, ok func(*coordination.State) bool) *coordination.State {
	n.t.Helper()
	deadline := time.After(2 * testutil.Patience)
	for {
		n.mu.Lock()
		state, change := n.state, n.change
		n.mu.Unlock()
		if state != nil && ok(state) {
			return state
		}
		select {
		case <-change:
		case <-deadline:
			n.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// TestAThousandTopicsArePlaced: three brokers get a thousand Topics at once, and the controller is
// stopped in the middle. All are placed, evenly and with few writes, and afterwards nothing is
// written.
func TestAThousandTopicsArePlaced(t *testing.T) {
	endpoint := etcdtest.Start(t).Endpoint()
	atOnce := make(chan struct{})
	close(atOnce)
	nodes, stops := map[string]*node{}, map[string]func(){}
	for _, id := range []string{"a", "b", "c"} {
		nodes[id], stops[id] = startNode(t, endpoint, id, atOnce)
	}
	start := nodes["a"].wait("a controller and three brokers", func(s *coordination.State) bool { return s.Controller.Term != 0 && len(s.Brokers) == 3 })

	const topics = 1000
	maker, began := nodes["a"].c, time.Now()
	client := coordination.Owner{Kind: coordination.ClientOwner}
	var all sync.WaitGroup
	for i := range topics {
		all.Go(func() {
			name := fmt.Sprintf("t%d", i)
			spec := coordination.TopicSpec{Subjects: []string{name, name + ".>"}, Shards: 1, Replicas: 1}
			if _, err := maker.CreateTopic(context.Background(), name, spec, client); err != nil {
				t.Error(err)
			}
		})
	}
	// The controller stops when a part is placed. Its own shards wait for it.
	first := start.Controller.Broker
	rest := nodes[map[string]string{"a": "b", "b": "c", "c": "a"}[first]]
	rest.wait("some shards", func(s *coordination.State) bool { return s.ShardCount() > topics/10 })
	stops[first]()
	all.Wait()
	// The first controller may have placed all of them itself. It leaves nevertheless.
	state := rest.wait("all shards, and another controller", func(s *coordination.State) bool {
		_, there := s.Broker(first)
		return s.ShardCount() == topics && !there && s.Controller.Term != 0 && s.Controller.Broker != first
	})
	took, revisions := time.Since(began), state.Revision-start.Revision
	t.Logf("%d topics were made and placed in %v with %d transactions that wrote", topics, took.Round(time.Millisecond), revisions)
	if revisions > 2*topics {
		t.Errorf("%d topics took %d transactions that wrote", topics, revisions)
	}
	plan := Decide(FactsOf(state))
	of := map[string]int{}
	for shard := range state.AllShards() {
		of[shard.Leader]++
	}
	if len(plan.Writes) != 0 || len(plan.Waits) != of[first] || plan.Waits[0].Reason != BrokerAway {
		t.Errorf("afterwards the plan has %d writes and %d waits; %s, which is away, has %d shards", len(plan.Writes), len(plan.Waits), first, of[first])
	}
	delete(of, first)
	var counts []int
	for _, n := range of {
		counts = append(counts, n)
	}
	if len(counts) != 2 || counts[0]-counts[1] > 1 || counts[1]-counts[0] > 1 {
		t.Errorf("the brokers that stayed have %v", of)
	}

	// At rest nothing is written. Each of these Topics makes the controller plan for all Topics,
	// and takes two transactions: its own, and that of its shard.
	quiet := revisionOf(t, rest.c)
	const passes = 5
	for i := 1; i <= passes; i++ {
		name := fmt.Sprintf("late%d", i)
		spec := coordination.TopicSpec{Subjects: []string{name}, Shards: 1, Replicas: 1}
		if _, err := rest.c.CreateTopic(context.Background(), name, spec, client); err != nil {
			t.Fatal(err)
		}
		rest.wait(name, func(s *coordination.State) bool { return s.ShardCount() == topics+i })
	}
	if now := revisionOf(t, rest.c); now != quiet+2*passes {
		t.Errorf("with %d more Topics the revision went from %d to %d", passes, quiet, now)
	}
}

func revisionOf(t testing.TB, c *coordination.Client) int64 {
	t.Helper()
	return keys.State(t, c).Revision
}
