package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/nats-io/nats.go"
)

// QueryOptions are what a live query asks for. All subjects with attributes match the zero value.
type QueryOptions struct {
	// Where is the condition on the attributes of subjects. Empty: all subjects with attributes.
	Where string
	// Syntax is the language of Where: "cel", "cqbs", or empty for "cel".
	Syntax string
	// Subjects is a pattern; only subjects that match it are members. Empty: all.
	Subjects string
	// Content is a condition on each message; only those that match come. Empty: all.
	Content string
	// NoMessages: only members are told, and brokers send no messages.
	NoMessages bool
	// MaxPending and MaxPendingBytes bound what has come and was not taken by Next: so many
	// messages, or so many bytes of them. Beyond, the query ends with ErrSlowConsumer. 0: 65,536
	// and 64 MiB.
	MaxPending, MaxPendingBytes int
}

func (o *QueryOptions) complete() error {
	if o.MaxPending < 0 || o.MaxPendingBytes < 0 {
		return fmt.Errorf("a bound below zero (use 0 for what is usual)")
	}
	if o.NoMessages && o.Content != "" {
		return fmt.Errorf("content chooses among messages, and NoMessages asks for none")
	}
	if o.Where == "" {
		if o.Syntax == "cqbs" {
			return fmt.Errorf("no Where in the syntax cqbs (leave out both for all subjects)")
		}
		o.Where = "true"
	}
	usual(&o.MaxPending, 64<<10)
	usual(&o.MaxPendingBytes, 64<<20)
	return nil
}

// EventKind is what a QueryEvent tells.
type EventKind int

// Kinds of events.
const (
	// EventNew: the subject is a member from now on. Its messages follow.
	EventNew EventKind = iota + 1
	// EventDel: the subject is no member any more. Nothing of it follows.
	EventDel
	// EventMessage: a message was published on a member.
	EventMessage
	// EventReady: all members have been told, and what is published on them comes from now on.
	EventReady
	// EventReopened: the connection was lost, and the query was opened again. What was published on
	// members meanwhile has not come. What has changed follows as EventNew and EventDel, and then
	// EventReady.
	EventReopened
)

// String returns the kind in one word.
func (k EventKind) String() string {
	switch k {
	case EventNew:
		return "new"
	case EventDel:
		return "del"
	case EventMessage:
		return "message"
	case EventReady:
		return "ready"
	case EventReopened:
		return "reopened"
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// QueryEvent is what a LiveQuery yields. It belongs to the program.
type QueryEvent struct {
	Kind    EventKind
	Subject string // of EventNew, EventDel and EventMessage
	// Attributes are those of a new member, a JSON object.
	Attributes json.RawMessage
	// Initial: a new member that matched when the query was opened first.
	Initial bool
	// Header, Data and Reply are those of a message, as it was published.
	Header nats.Header
	Data   []byte
	Reply  string
}

// LiveQuery is an open live query: which subjects match a condition on their attributes, what
// changes of that, and what is published on them. A subject is told as new before its first
// message, and after it has left nothing of it comes. One goroutine uses it at a time, but for
// Close.
//
// A query ends with its connection. The LiveQuery opens it again when the connection is back, with
// the difference to what it has told: members that are still there are not told again.
type LiveQuery struct {
	nc      *nats.Conn
	options QueryOptions
	stop    context.CancelFunc
	done    sync.WaitGroup

	// What was taken, for Next.
	members map[string]json.RawMessage
	next    []step
	telling uint64              // the opening whose members are told
	seen    map[string]struct{} // the members that it has told so far; nil: it has told all
	ready   bool                // the first opening has told all

	come  chan struct{} // something came, or the query has ended
	again chan struct{} // the broker has ended the query for a reason that passes

	mu      sync.Mutex
	waiting []arrival
	bytes   int    // of waiting
	opening uint64 // whose messages are taken
	told    uint64 // the last opening of which something was told; 0: none was
	sub     *nats.Subscription
	resume  string // what to go on from; empty: from nothing
	err     error  // why nothing follows
}

// Query opens a live query of subjects by their attributes. It waits until a broker has answered,
// or ctx ends; a query that is open doesn't need ctx. Close ends it; the connection stays the
// program's. An error of the broker is a *[QueryError].
func Query(ctx context.Context, nc *nats.Conn, options QueryOptions) (*LiveQuery, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("open a live query: %w", err)
	}
	q := &LiveQuery{
		nc: nc, options: options, members: map[string]json.RawMessage{},
		come: make(chan struct{}, 1), again: make(chan struct{}, 1),
	}
	// Before the query is opened, so that no change of the connection is missed.
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	at, err := q.openFirst(ctx)
	if err != nil {
		nc.RemoveStatusListener(changes)
		q.fail(err)
		return nil, fmt.Errorf("open a live query: %w", err)
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	q.stop = stop
	q.done.Go(func() {
		defer nc.RemoveStatusListener(changes)
		q.keep(keeping, changes, at)
	})
	return q, nil
}

// Next returns what comes next, and waits for it until ctx ends. After an error of ctx it may be
// called again; all others end the query: a *[QueryError] of the broker, ErrSlowConsumer, and
// ErrClosed. What came before that is returned first.
func (q *LiveQuery) Next(ctx context.Context) (QueryEvent, error) {
	for {
		for len(q.next) > 0 && !q.closed() {
			s := q.next[0]
			q.next = q.next[1:]
			if e, ok := q.apply(&s); ok {
				return e, nil
			}
		}
		arrived, err := q.take()
		switch {
		case arrived != nil:
			q.next = arrived.steps()
			continue
		case err != nil:
			return QueryEvent{}, err
		}
		select {
		case <-q.come:
		case <-ctx.Done():
			return QueryEvent{}, ctx.Err()
		}
	}
}

// Events yields what Next returns. After an error, also one of ctx, it ends.
func (q *LiveQuery) Events(ctx context.Context) iter.Seq2[QueryEvent, error] {
	return func(yield func(QueryEvent, error) bool) {
		for {
			e, err := q.Next(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Members returns the members that Next has told of so far, each with the attributes that it had
// when it became one, or when all members were listed last.
func (q *LiveQuery) Members() map[string]json.RawMessage { return maps.Clone(q.members) }

// Close ends the query. What was not taken is dropped.
func (q *LiveQuery) Close() error {
	q.mu.Lock()
	if q.err == ErrClosed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.waiting, q.bytes, q.err = nil, 0, ErrClosed
	q.mu.Unlock()
	q.poke()
	q.stop()
	q.done.Wait()
	q.leave()
	return nil
}

func (q *LiveQuery) closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err == ErrClosed
}

// fail ends the query for a reason that Next returns.
func (q *LiveQuery) fail(why error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = why
	}
	q.mu.Unlock()
	q.poke()
	q.leave()
}

func (q *LiveQuery) poke() {
	select {
	case q.come <- struct{}{}:
	default:
	}
}

// take returns what came first, or why nothing follows, or neither.
func (q *LiveQuery) take() (*arrival, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil, q.err
	}
	a := q.waiting[0]
	q.waiting[0] = arrival{}
	q.waiting = q.waiting[1:]
	q.bytes -= a.size
	return &a, nil
}
