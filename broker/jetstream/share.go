package jetstream

import (
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// Times of shares and watches, each with the reason for its value.
const (
	// watchTime is the duration of one watch: a broker that died keeps a leader busy for that long.
	watchTime = 10 * time.Second
	// lostAfter is how long after its end a watch or a share counts as lost. A leader answers
	// within one step.
	lostAfter = 5 * time.Second
	// relayedFor is how long a leader serves a share of a relay, which may have to wait for a count
	// of what is pending. Less than lostAfter, so that it delivers nothing for a share that counts
	// as lost.
	relayedFor = lostAfter / 2
	// groupAgain is the pause before a shard is tried again whose leader was away or refused.
	groupAgain = 100 * time.Millisecond
)

// shardRequest is an open share or watch. Its number is 0 if there is none.
type shardRequest struct {
	number uint64
	until  time.Time // it counts as lost if there is no result by then
	leader string    // id of the broker that serves it
	to     *shardedPull
	share  int // messages to a shardedPull, or bytes to a relay
}

// shareRequest asks the leader of a shard to serve a share or a watch.
type shareRequest struct {
	From   string        `json:"from"`
	Number uint64        `json:"number"`
	Stream string        `json:"stream"` // key of the shard
	Name   string        `json:"name"`   // of the consumer
	To     []byte        `json:"to,omitempty"`
	Batch  int           `json:"batch,omitempty"`
	Bytes  int           `json:"bytes,omitempty"`
	Watch  time.Duration `json:"watch,omitempty"` // 0: deliver what there is
	Relay  bool          `json:"relay,omitempty"` // it is a relay's, so To is that of relayTo
	State  bool          `json:"state,omitempty"` // deliver nothing, and say where the consumer stands
	// Claim is that of the relay; nil: its broker is of an earlier version. With Yield the relay of
	// an earlier one here is to yield to it: that of the Topic with an id, or of whichever shard's
	// stream the request is. Without either, only the answer is asked for, behind what was sent
	// before. Made is the incarnation of the consumer.
	Claim *shareClaim `json:"claim,omitempty"`
	Yield bool        `json:"yield,omitempty"`
	Topic string      `json:"topic,omitempty"`
	Made  int64       `json:"made,omitempty"`
}

// shareResult is the result of a share or a watch.
type shareResult struct {
	Number   uint64           `json:"number"`
	Why      subscription.End `json:"why"`
	Messages int              `json:"messages"` // messages that were not delivered
	Bytes    int              `json:"bytes"`
	State    *shareState      `json:"state,omitempty"` // nil: it was not asked for, or is not known
}

// shareState is where a consumer stands in a shard.
type shareState struct {
	Sequence uint64 `json:"sequence"` // of the last delivery
	Offset   uint64 `json:"offset"`
	Pending  uint64 `json:"pending"` // messages yet to deliver
	// Ended: what relays of the broker that asks had open in the shard is over. Earlier versions
	// don't say so.
	Ended bool `json:"ended,omitempty"`
}

// requester gets the results of its shares and watches.
type requester interface {
	finish(of openRequest, r shareResult)
}

// openRequest is a share or a watch without a result.
type openRequest struct {
	by    requester
	shard int
	watch bool
	round *round // that it is of; nil: it is to a shard
}

// openRequests are those of this broker.
type openRequests struct {
	server *Server

	mu     sync.Mutex
	all    map[uint64]openRequest
	number uint64
}

// begin notes a request, and returns its number. The first one is random, so that what is under
// way to this broker's process before has no effect.
func (o *openRequests) begin(r openRequest) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all, o.number = map[uint64]openRequest{}, rand.Uint64()>>1
	}
	o.number++
	o.all[o.number] = r
	return o.number
}

// find returns an open request.
func (o *openRequests) find(number uint64) (r openRequest, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok = o.all[number]
	return r, ok
}

// drop forgets a request.
func (o *openRequests) drop(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, number)
}

// send sends a request to the leader of its shard. It reports false if that can't be reached, or
// does not serve the consumer and is this broker.
func (o *openRequests) send(leader string, l *shareRequest) bool {
	l.From = o.server.config.Self
	switch leader {
	case "":
		return false
	case l.From:
		return o.server.serveShare(l, o.finish)
	}
	return o.server.forward(leader, shareSubject, nil, l)
}

// Linked is called when this broker has a new link to another one, which may have restarted, and
// messages are sent over it. What was under way over the link before may be lost. It never blocks.
func (s *Server) Linked(broker string) {
	for _, g := range s.groups.every() {
		g.linked(broker)
	}
	for _, r := range s.relays.every() {
		r.linked(broker)
	}
}

// finish ends a share or a watch.
func (o *openRequests) finish(r shareResult) {
	o.mu.Lock()
	of, known := o.all[r.Number]
	delete(o.all, r.Number)
	o.mu.Unlock()
	if known {
		of.by.finish(of, r)
	}
}

// takeResult handles a result from another broker.
func (o *openRequests) takeResult(m *protocol.Message) {
	var r shareResult
	if json.Unmarshal(m.Data, &r) == nil {
		o.finish(r)
	}
}

// serveShare serves a share or watch from a shard that is led here. Another broker may have asked
// for it. tell is called once with the result, unless serveShare reports false.
func (s *Server) serveShare(l *shareRequest, tell func(shareResult)) bool {
	if l.Yield {
		s.serveYield(l, tell)
		return true
	}
	number, of := l.Number, s.topics.ShardByKey(l.Stream)
	sub := s.config.Subscriptions().Find(l.Stream, l.Name)
	if sub == nil || of == nil {
		return false
	}
	pull := subscription.Pull{To: l.To, Batch: l.Batch, MaxBytes: l.Bytes, NoWait: true, Relay: l.Relay}
	if l.Relay {
		ok := false
		if pull.Claim, ok = s.claimOf(l, of.Topic()); !ok {
			return s.reads.Submit(brokers, asked{do: func() {
				tell(shareResult{Number: number, Why: subscription.Superseded, Messages: l.Batch, Bytes: l.Bytes})
			}}, 0)
		}
	}
	if l.State { // it may read
		gone := func(why subscription.End) { tell(shareResult{Number: number, Why: why}) }
		s.confirmClaim(sub, l, pull.Claim, func(why subscription.End) {
			if why != 0 {
				gone(why)
			} else if !s.infos.Submit(brokers, asked{func() {
				is := sub.Info()
				tell(shareResult{Number: number, State: &shareState{is.DeliveredSequence, is.DeliveredOffset, is.Lag, true}})
			}, func() { gone(subscription.LeaderGone) }}, 0) {
				gone(subscription.LeaderGone)
			}
		})
		return true
	}
	if l.Relay {
		pull.Expires = relayedFor
	}
	if l.Watch > 0 {
		pull.NoWait, pull.Peek, pull.Expires = false, true, min(l.Watch, watchTime)
	}
	sub.PullFunc(pull, func(o subscription.Outcome) {
		tell(shareResult{Number: number, Why: o.Why, Messages: o.Messages, Bytes: o.Bytes})
	})
	return true
}

// takeShareRequest serves a request of another broker.
func (s *Server) takeShareRequest(m *protocol.Message) {
	var l shareRequest
	if json.Unmarshal(m.Data, &l) != nil {
		return
	}
	from := l.From
	tell := func(r shareResult) { s.forward(from, shareResultSubject, nil, r) }
	if !s.serveShare(&l, tell) {
		s.reads.Submit(brokers, asked{do: func() {
			tell(shareResult{Number: l.Number, Why: subscription.LeaderGone, Messages: l.Batch, Bytes: l.Bytes})
		}}, 0)
	}
}
