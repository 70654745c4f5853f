package admin

import (
	"bytes"
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Store is the part of coordination.Client that is written to.
type Store interface {
	CreateTopic(ctx context.Context, name string, spec coordination.TopicSpec, owner coordination.Owner) (*coordination.Topic, error)
	GetTopic(ctx context.Context, name string) (*coordination.Topic, error)
	CreateSubscription(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner) (*coordination.Subscription, error)
	ResetSubscription(ctx context.Context, topic, name string, by coordination.Owner, to coordination.Start) (*coordination.Subscription, error)
	CreateView(ctx context.Context, name string, spec coordination.ViewSpec, owner coordination.Owner) (*coordination.View, error)
	UpdateView(ctx context.Context, name string, update coordination.ViewUpdate) (*coordination.View, error)
	DeleteView(ctx context.Context, name string, revision int64, by coordination.Owner) error
	GetView(ctx context.Context, name string) (*coordination.View, error)
	Drain(ctx context.Context, broker coordination.Replica, mode coordination.DrainMode, leased bool) error
	EndDrain(ctx context.Context, brokerID string) error
}

// Bounds of writing.
const (
	// writesAtOnce bounds concurrent writes: people and scripts request them, and etcd makes
	// thousands per second.
	writesAtOnce = 16
	// writeTimeout is a little less than programs wait for an answer, so that they learn the
	// reason.
	writeTimeout = 4 * time.Second
	// followTimeout bounds how long an answer waits until this broker's State contains the write.
	followTimeout = time.Second
	// followEvery is the interval of checks.
	followEvery = 5 * time.Millisecond
)

// Writing sets the store of writes. Call it before the first request.
func (s *Server) Writing(store Store) *Server {
	s.store = store
	return s
}

// Paced sets the rate of writes, of which those of an account take from what its API calls have
// (jetstream.Server.Pace). Call it before the first request.
func (s *Server) Paced(pace func(account string, bytes int) (wait time.Duration, ok bool)) *Server {
	s.pace = pace
	return s
}

// write starts a write. The answer is sent later.
func (s *Server) write(r *request, m *protocol.Message, by origin) *Error {
	if s.store == nil {
		return refuse(NotReady, "this broker is not ready to change anything (ask again in a second, or another broker)")
	}
	reply := bytes.Clone(m.Reply)
	do := func(ctx context.Context) []byte { return encode(s.createTopic(ctx, r.topic, &r.create)) }
	switch r.kind {
	case topicCreate:
	case subscriptionCreate:
		do = func(ctx context.Context) []byte {
			return encode(s.createSubscription(ctx, r.topic, r.subscription, &r.createSubscription))
		}
	case subscriptionReset:
		do = func(ctx context.Context) []byte {
			return encode(s.resetSubscription(ctx, r.topic, r.subscription, r.reset.To))
		}
	case viewCreate, viewUpdate, viewDelete:
		var refusal *Error
		if do, refusal = s.writeView(r, by); refusal != nil {
			return refusal
		}
	default:
		do = func(ctx context.Context) []byte { return encode(s.drain(ctx, r)) }
	}
	wait := time.Duration(0)
	if s.pace != nil {
		var ok bool
		if wait, ok = s.pace(by.account, len(m.Data)); !ok {
			return refuse(Busy, "this client asks for changes faster than its rate for too long (wait for the answers, or ask again in a moment)")
		}
	}
	busy := refuse(Busy, "more than %d changes are under way on this broker, and %d wait (ask again in a moment)", writesAtOnce, tasksWaiting)
	if !s.writes.submitIn(wait, by, len(m.Data), func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: do(ctx)})
	}, func() { s.refuse(reply, busy) }) {
		return busy
	}
	return nil
}

// followed waits until this broker's State contains the write, so that the next request sees it.
func (s *Server) followed(ctx context.Context, ok func(*coordination.State) bool) {
	ctx, stop := context.WithTimeout(ctx, followTimeout)
	defer stop()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for !ok(s.topics.State()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
