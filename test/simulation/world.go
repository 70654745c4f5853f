package simulation

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// world is everything there is. One goroutine runs it: whatever happens is an event of its queue.
type world struct {
	seed  uint64
	rng   *rand.Rand
	now   time.Duration
	queue events
	count int // of events that were queued

	shape    shape
	mutation Mutation
	only     []string  // names of faults; none: all
	brokers  []*broker // by id
	etcd     *etcd
	network  *network
	topics   []*coordination.Topic
	ids      []shardID
	judge    *judge
	clients  []*publisher
	readers  []*reader

	trace io.Writer // nil: nobody reads it
	// broken is the first thing that went wrong; the world stands still then.
	broken *Violation
}

// shape is what the seed decides about a world before anything happens in it.
type shape struct {
	brokers, shards int
	faults          time.Duration // how long they go on
	every           time.Duration // about how often one comes
}

// shardID names a shard.
type shardID struct {
	topic  string
	number int
}

func (id shardID) String() string { return fmt.Sprintf("%s/%d", id.topic, id.number) }

// event is something that is going to happen.
type event struct {
	at  time.Duration
	seq int // of two at the same time the one that was queued first is first
	do  func()
}

type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q *events) Push(x any) { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}

// after queues something.
func (w *world) after(d time.Duration, do func()) {
	w.count++
	heap.Push(&w.queue, event{w.now + max(d, 0), w.count, do})
}

// every does something again and again, from one step from now on.
func (w *world) every(d time.Duration, do func()) {
	w.after(d, func() {
		do()
		w.every(d, do)
	})
}

// run lets events happen until the time has come, nothing is left, or something is broken.
func (w *world) run(until time.Duration, done func() bool) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.broken == nil && (done == nil || !done()) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
}

// between is a random time from low to high.
func (w *world) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

// chance is true in so many of a hundred cases.
func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.4f  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// Violation is a promise that was found broken.
type Violation struct {
	Kind Kind
	At   time.Duration
	What string
}

func (v *Violation) Error() string { return fmt.Sprintf("%s at %v: %s", v.Kind, v.At, v.What) }

// Kind says which promise.
type Kind string

// The kinds.
const (
	SplitWatermark Kind = "SplitWatermark" // two values were declared safe at one offset
	ChangedRecord  Kind = "ChangedRecord"  // what an ack or a read promised is another value now
	LostPrefix     Kind = "LostPrefix"     // acknowledged, and not there: of a shard's first
	LostMiddle     Kind = "LostMiddle"     // in between
	LostPostfix    Kind = "LostPostfix"    // of its last
	NotInSync      Kind = "NotInSync"      // a member of the in-sync set lacks what was declared safe
	TooFew         Kind = "TooFew"         // something was declared safe on fewer brokers than the Topic asks for
	StaleRead      Kind = "StaleRead"      // a new leader let read less than an earlier one had
	Unpublished    Kind = "Unpublished"    // a value that nobody published
	OutOfOrder     Kind = "OutOfOrder"     // two of one publisher's records have changed places
	Duplicated     Kind = "Duplicated"     // one value stands twice
	StaleAnswer    Kind = "StaleAnswer"    // an answer doesn't fit what was known before its question
	Diverged       Kind = "Diverged"       // replicas that are in sync differ
	Stuck          Kind = "Stuck"          // nothing is broken, and it doesn't get whole
	Impossible     Kind = "Impossible"     // something that the model itself rules out
)

// fail notes what is broken; the first counts.
func (w *world) fail(kind Kind, format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{kind, w.now, fmt.Sprintf(format, args...)}
		w.logf("VIOLATION %v", w.broken)
	}
}
