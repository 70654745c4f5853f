package jetstream

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// waitingRoom keeps pulls and acks for consumers that are about to be served: the stream's leader
// is being elected, or the log of cursors is being read. Without it a client would be answered with
// no responders after each change of the leader, and several clients end their work then.
//
// A message leaves the room when its consumer is served, when it turns out that it won't be, and at
// the latest after timeouts.open. A forwarded pull leaves it after timeouts.stray if another broker
// leads. It then takes the way of any other one. Messages beyond the bounds
// of the room are not kept.
type waitingRoom struct {
	server *Server
	filled chan struct{} // the room is not empty; of size 1

	mu       sync.Mutex
	messages []waitingMessage
	bytes    int
}

// waitingMessage is a pull or an ack with memory of its own.
type waitingMessage struct {
	message protocol.Message
	by      puller
	since   time.Time
}

func newWaitingRoom(s *Server) *waitingRoom {
	return &waitingRoom{server: s, filled: make(chan struct{}, 1)}
}

func (m *waitingMessage) size() int {
	return 128 + len(m.message.Subject) + len(m.message.Reply) + len(m.message.Data)
}

// add keeps a copy of the message. It reports false if there is no room.
func (r *waitingRoom) add(m *protocol.Message, by puller) bool {
	w := waitingMessage{by: by, since: time.Now(), message: protocol.Message{
		Subject: slices.Clone(m.Subject), Reply: slices.Clone(m.Reply), Header: m.Header, Data: slices.Clone(m.Data),
	}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) >= waitingMessages || r.bytes+w.size() > waitingBytes {
		return false
	}
	r.messages = append(r.messages, w)
	r.bytes += w.size()
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

// takeAgain takes all messages again, and reports whether some stay.
func (r *waitingRoom) takeAgain() (more bool) {
	r.mu.Lock()
	all := r.messages
	r.messages, r.bytes = nil, 0
	r.mu.Unlock()
	var stay []waitingMessage
	size := 0
	for _, w := range all {
		if !r.server.takeOfConsumer(&w.message, w.by, w.since) {
			stay = append(stay, w)
			size += w.size()
		}
	}
	if len(stay) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(stay, r.messages...) // they came first
	r.bytes += size
	return true
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
