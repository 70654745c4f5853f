package coordination

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// asked is a context that reports when Done is first called. A call that shares transactions does
// that once it is in the queue.
type asked struct {
	context.Context
	first sync.Once
	waits chan struct{} // closed then
}

func askedOf(ctx context.Context) *asked {
	return &asked{Context: ctx, waits: make(chan struct{})}
}

func (a *asked) Done() <-chan struct{} {
	a.first.Do(func() { close(a.waits) })
	return a.Context.Done()
}

// queued waits until the call with that context is one of n in the queue.
func (g *txnQueue[T]) queued(t *testing.T, call *asked, n int) {
	t.Helper()
	select {
	case <-call.waits:
	case <-time.After(testutil.Patience):
		t.Fatal("the call does not wait for the turn")
	}
	g.mustWait(t, n)
}

func (g *txnQueue[T]) mustWait(t *testing.T, n int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) != n {
		t.Fatalf("%d wait, not %d", len(g.queue), n)
	}
}

// TestManyTopicsShareTransactions: concurrent creations share transactions. Of two with one subject
// only one succeeds, two equal ones get the same answer, and a call that times out does not affect
// the others.
func TestManyTopicsShareTransactions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "first", spec("first"), client)
	const topics = maxPuts + 10
	var made [topics]*Topic
	var failed [topics]error
	var calls sync.WaitGroup
	before := c.revision(t)
	<-c.puts.turn
	create := func(ctx context.Context, n int, name string, of TopicSpec) (done <-chan struct{}) {
		call, ended := askedOf(ctx), make(chan struct{})
		calls.Go(func() {
			defer close(ended)
			made[n], failed[n] = c.CreateTopic(call, name, of, client)
		})
		c.puts.queued(t, call, n+1)
		return ended
	}
	for n := range topics - 3 {
		name := fmt.Sprintf("t%d", n)
		create(ctx, n, name, spec(name))
	}
	create(ctx, topics-3, "t0", spec("t0"))    // the same
	create(ctx, topics-2, "other", spec("t1")) // a subject that t1 claims
	hurried, cancel := context.WithCancel(ctx)
	gaveUp := create(hurried, topics-1, "hurried", spec("hurried"))
	cancel()
	<-gaveUp
	c.puts.mustWait(t, topics-1)
	c.puts.turn <- struct{}{}
	calls.Wait()
	for n := range topics - 2 {
		if failed[n] != nil {
			t.Fatalf("topic %d: %v", n, failed[n])
		}
	}
	if made[0].ID != made[topics-3].ID {
		t.Error("two of one name were made")
	}
	if overlap := as[*OverlapError](t, failed[topics-2]); overlap.Other != "t1" {
		t.Errorf("%+v", overlap)
	}
	if !errors.Is(failed[topics-1], context.Canceled) {
		t.Errorf("given up: %v", failed[topics-1])
	}
	if took := c.revision(t) - before; took > 3 {
		t.Errorf("%d topics took %d transactions", topics, took)
	}
	list, _, err := c.listTopics(ctx)
	if err != nil || len(list) != topics-3+1 {
		t.Errorf("%d topics, %v", len(list), err)
	}

	// Brokers that create Topics concurrently see each other's claims.
	other := &Client{Coordinators: c.Coordinators, prefix: c.prefix, ttl: c.ttl, log: c.log, claims: newClaims(), puts: newGather[topicPut](), swaps: newGather[swap](), room: newClientRoom()}
	var overlaps sync.Map
	for n := range 40 {
		for i, by := range []*Client{c, other} {
			calls.Go(func() {
				_, err := by.CreateTopic(ctx, fmt.Sprintf("u%d-%d", n, i), spec(fmt.Sprintf("u%d", n)), client)
				if overlap := (*OverlapError)(nil); errors.As(err, &overlap) {
					_, twice := overlaps.LoadOrStore(n, true)
					if twice {
						t.Errorf("neither of the two Topics of subject u%d was made", n)
					}
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	for n := range 40 {
		if _, refused := overlaps.Load(n); !refused {
			t.Errorf("both Topics of subject u%d were made", n)
		}
	}
}

// TestOverlapsAreFoundByFirstTokens: overlapping Topics are found by the first tokens of their
// subjects, including wildcards on both sides, and deleted Topics are not.
func TestOverlapsAreFoundByFirstTokens(t *testing.T) {
	c := newClaims()
	for name, subjects := range map[string][]string{"a": {"x.a"}, "b": {"x.>", "y"}, "c": {"*.c"}, "d": {"z.d"}} {
		c.set(name, claim{subjects, client})
	}
	for _, try := range []struct {
		subject, want string
	}{
		{"x.a", "a"}, {"x.b", "b"}, {"y", "b"}, {"w.c", "c"}, {"w.d", ""}, {"z.d", "d"}, {"*.d", "b"}, {"*", "b"}, {">", "a"}, {"z", ""}, {"z.c", "c"},
	} {
		got := ""
		if o := c.overlap(&Topic{Name: "new", Spec: TopicSpec{Subjects: []string{try.subject}}}); o != nil {
			got = o.Other
		}
		if got != try.want {
			t.Errorf("%s overlaps with %q, want %q", try.subject, got, try.want)
		}
	}
	c.drop("a")
	c.set("b", claim{[]string{"v"}, client})
	c.drop("c")
	if o := c.overlap(&Topic{Name: "new", Spec: TopicSpec{Subjects: []string{"x.a", "*.c"}}}); o != nil {
		t.Errorf("%+v", o)
	}
	c.drop("b")
	c.drop("d")
	if len(c.first)+len(c.topics) != 0 {
		t.Errorf("left: %v", c.first)
	}
}
