package jetstream

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// waitingRoom keeps pulls and acks for consumers that are about to be served: the stream's leader
// is being elected, or the log of cursors is being read. Without it a client would be answered with
// no responders after each change of the leader, and several clients end their work then.
//
// A message leaves the room when its consumer is served, when it turns out that it won't be, and at
// the latest after timeouts.open. A forwarded pull leaves it after timeouts.stray if another broker
// leads. It then takes the way of any other one. Users share the room, and the connections of each:
// beyond its bounds, the newest message of the one with the most gives way, as if it had found no
// room. Acks that other brokers forward name nobody, and count for one user.
type waitingRoom struct {
	server *Server
	filled chan struct{} // the room is not empty; of size 1

	mu       sync.Mutex
	messages []*waitingMessage // in the order in which they came; some may have lost their places
	places   *work.FairQueue[*waitingMessage]
}

// waitingMessage is a pull or an ack with memory of its own.
type waitingMessage struct {
	message protocol.Message
	by      puller
	since   time.Time
	place   *work.Queued[*waitingMessage] // nil: it gave way; guarded by the room's mu
}

func newWaitingRoom(s *Server) *waitingRoom {
	return &waitingRoom{
		server: s, filled: make(chan struct{}, 1),
		places: work.NewFairQueue[*waitingMessage](0, waitingMessages, waitingBytes),
	}
}

// clientOf returns who sent a message, as pools tell clients apart.
func (r *waitingRoom) clientOf(m *protocol.Message, by puller) work.Client {
	switch {
	case !by.forwarded:
		return identity.ClientOf(r.server.accountOf(by.client), by.client)
	case by.pulls:
		header, _ := protocol.SplitData(m.Data, m.Header)
		return identity.ClientOf(identity.ForwardedAccount(header), 0)
	}
	return brokers
}

func (m *waitingMessage) size() int {
	return 128 + len(m.message.Subject) + len(m.message.Reply) + len(m.message.Data)
}

// add keeps a copy of the message. It reports false if there is no room.
func (r *waitingRoom) add(m *protocol.Message, by puller) bool {
	w := &waitingMessage{by: by, since: time.Now(), message: protocol.Message{
		Subject: slices.Clone(m.Subject), Reply: slices.Clone(m.Reply), Header: m.Header, Data: slices.Clone(m.Data),
	}}
	of := r.clientOf(m, by)
	r.mu.Lock()
	defer r.mu.Unlock()
	place, gone := r.places.Push(of, w, w.size())
	for _, other := range gone {
		other.place = nil // takeAgain refuses it
	}
	if place == nil {
		return false
	}
	w.place = place
	r.messages = append(r.messages, w)
	select {
	case r.filled <- struct{}{}:
	default:
	}
	return true
}

// run takes messages again until the server closes, each time that the State changes and every
// waitingPoll: opening logs and cursors does not change the State.
func (r *waitingRoom) run() {
	s := r.server
	for {
		select {
		case <-r.filled:
		case <-s.ctx.Done():
			return
		}
		tick := time.NewTicker(waitingPoll)
		for more := true; more; {
			changed := s.topics.Changed()
			if more = r.takeAgain(); !more {
				break
			}
			select {
			case <-changed:
			case <-tick.C:
			case <-s.ctx.Done():
				more = false
			}
		}
		tick.Stop()
	}
}

// takeAgain takes all messages again, and reports whether some stay. Those that have given way
// since are tried once more, and then refused.
func (r *waitingRoom) takeAgain() (more bool) {
	r.mu.Lock()
	all := r.messages
	r.messages = nil
	r.mu.Unlock()
	var waiting []*waitingMessage
	for _, w := range all {
		if taken := r.server.takeOfConsumer(&w.message, w.by, w.since); !taken {
			waiting = append(waiting, w)
			continue
		}
		r.mu.Lock()
		r.leave(w)
		r.mu.Unlock()
	}
	r.mu.Lock()
	stay := waiting[:0]
	var refused []*waitingMessage
	for _, w := range waiting {
		if w.place == nil {
			refused = append(refused, w)
		} else {
			stay = append(stay, w)
		}
	}
	r.messages = append(stay, r.messages...) // they came first
	more = len(r.messages) > 0
	r.mu.Unlock()
	for _, w := range refused {
		r.server.refuseWaiting(&w.message)
	}
	return more
}

// leave gives up the place of a message. mu is held.
func (r *waitingRoom) leave(w *waitingMessage) {
	if w.place != nil {
		r.places.Remove(w.place)
		w.place = nil
	}
}

// refuseWaiting refuses a message that finds no room to wait.
func (s *Server) refuseWaiting(m *protocol.Message) {
	if len(m.Reply) > 0 {
		s.sendStatus(m.Reply, noResponders)
	}
}

// ledElsewhere reports whether another broker leads a stream, and is there.
func (s *Server) ledElsewhere(stream []byte) bool {
	t := s.topics.Shard(string(stream))
	var e *publish.NotServedError
	return t != nil && errors.As(t.WhyNot(), &e) && e.Reason == publish.LedElsewhere
}

// mayServeSoon reports whether a stream that is not served at the moment is expected to be, here or
// by another broker: its log is being opened, or its leader is away and another replica may lead.
func (s *Server) mayServeSoon(t *topic.Shard) bool {
	why := t.WhyNot()
	if streamStarting(why) {
		return true
	}
	var e *publish.NotServedError
	if !errors.As(why, &e) {
		return false
	}
	switch e.Reason {
	case publish.LedElsewhere: // there is no link now
		return true
	case publish.LeaderAway:
		shard := s.state().Shard(t.ID(), t.Number())
		return shard != nil && len(shard.Replicas) > 1
	}
	return false
}

// consumerMaySoon is mayServeSoon for a consumer that is not served here.
func (s *Server) consumerMaySoon(t *topic.Shard, name string) bool {
	if t.Leader() != s.config.Self || t.Led() == nil {
		return s.mayServeSoon(t)
	}
	return consumerStarting(s.config.Subscriptions().WhyNot(t.Key(), name), s.state().Subscription(t.ID(), name) != nil)
}

// consumerStarting reports whether the reason why a consumer is not served is expected to pass
// soon. declared reports whether it is in etcd.
func consumerStarting(why error, declared bool) bool {
	var e *subscription.NotServedError
	return why == nil || errors.As(why, &e) && (e.Reason == subscription.Opening || declared && e.Reason == subscription.NoSuch)
}
