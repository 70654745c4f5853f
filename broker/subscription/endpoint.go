package subscription

import (
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// Endpoint sends the records of one Subscription to where its spec says (coordination.Push). The
// Subscription hands it records while it is open; each stays in its hand until the Endpoint has
// acknowledged it or given it up, with Ack. Meanwhile it has no deadline.
//
// All methods but Info are called under the Subscription's lock. None may block or call the
// Subscription, except that a goroutine of its own may.
type Endpoint interface {
	// Respecify applies a spec, of a Subscription with Push.
	Respecify(spec *coordination.SubscriptionSpec)
	// Open reports whether it takes another record now. When it opens, it calls Wake.
	Open() bool
	// Take takes a record. d and r are valid during the call only.
	Take(d *Delivery, r *log.Record)
	// Pause: while paused, no request begins.
	Pause(paused bool)
	// Forget drops all records in its hand. Answers to requests under way have no effect.
	Forget()
	// Close is Forget for good.
	Close()
	// Info describes it.
	Info() EndpointInfo
}

// EndpointInfo is the state of an Endpoint.
type EndpointInfo struct {
	Reason  string // why it is not reached, in one word; empty: it is, or nothing was sent yet
	Trouble string // the same for people, with the last answer
	Held    int    // records in its hand
	Sending int    // requests under way
	// Answer is the last answer, or why there was none; Answered is when. Empty: nothing was sent.
	Answer   string
	Answered time.Time
	// Retry is when its circuit, which is open, lets the next request through. Zero: it is closed.
	Retry time.Time
}

// The deadlines of records in the hand of an Endpoint, in milliseconds. They are far beyond any
// time and far from each other, also after the clock corrections that decoding makes. An op of its
// own would be unreadable for earlier versions.
//
//  1. A record with the deadline untried was handed over and not sent. Its count includes the
//     attempt to come. Handing it over again does not count. When it gets another deadline without
//     an attempt, its count is one less (cursor.unmark).
//  2. One with the deadline tried was sent as often as its count says.
//  3. The next leader hands over again what it finds with either.
const (
	tried   = int64(1) << 52
	untried = int64(1) << 56
)

func (d *delivery) isHeld() bool    { return d.deadline >= tried/2 && !d.isTerminated() }
func (d *delivery) isUntried() bool { return d.deadline >= untried/2 && !d.isTerminated() }

// attempts returns how often it was delivered.
func (d *delivery) attempts() uint32 {
	if d.isUntried() && d.count > 0 {
		return d.count - 1
	}
	return d.count
}

// endpointInterest is the Interest of a push to an Endpoint.
type endpointInterest struct{ Endpoint }

func (e endpointInterest) Present() bool { return e.Open() }
func (e endpointInterest) Stop()         { e.Close() }

// openEndpoint returns the interest of a push to an Endpoint. mu is held.
func (s *Subscription) openEndpoint() Interest {
	e := s.service.config.Endpoint(s, s.store.shard.topic)
	e.Respecify(s.spec)
	return endpointInterest{e}
}

// endpoint returns the Endpoint, or nil. mu is held.
func (s *Subscription) endpoint() Endpoint {
	if s.push == nil {
		return nil
	}
	if e, ok := s.push.interest.(endpointInterest); ok {
		return e.Endpoint
	}
	return nil
}

// handAgain queues the records that a former Endpoint had in its hand. mu is held.
func (s *Subscription) handAgain() {
	for i := s.cursor.pending.head; i < len(s.cursor.pending.list); i++ {
		if d := &s.cursor.pending.list[i]; !d.removed && !d.queued && d.isHeld() {
			s.cursor.enqueue(d)
		}
	}
}

// freeHeld makes the records that an Endpoint had in its hand ones that clients can pull. mu is
// held.
func (s *Subscription) freeHeld() {
	for i := s.cursor.pending.head; i < len(s.cursor.pending.list); i++ {
		if d := &s.cursor.pending.list[i]; !d.removed && d.isHeld() {
			d.queued = false
			s.change(op{kind: opRetryNow, offset: d.offset})
		}
	}
}

// pauseEndpoint pauses the Endpoint, if there is one, or lets it go on. mu is held.
func (s *Subscription) pauseEndpoint(paused bool) {
	if e := s.endpoint(); e != nil {
		e.Pause(paused)
	}
}

// Attempt counts an attempt of a record in an Endpoint's hand, which is about to be sent. It
// returns the number of attempts with this one. ok is false if the record is not to be sent any
// more.
func (s *Subscription) Attempt(offset uint64) (attempts uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.cursor.pending.find(offset)
	if !s.wants(d) {
		return 0, false
	}
	now := s.service.now()
	if d.isUntried() {
		s.change(op{kind: opProgress, offset: offset, deadline: tried})
	} else {
		s.change(op{kind: opDeliver, offset: offset, count: 1, deadline: tried})
		s.service.delivered.Add(1)
		s.service.redelivered.Add(1)
	}
	s.dead.delivered(&s.cursor, offset, now)
	s.lastSeen.delivered, s.lastSeen.used = now, now
	return uint64(d.count), true
}

// Spare takes an attempt back: the Endpoint could not take the record, or asked to wait.
func (s *Subscription) Spare(offset uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.cursor.pending.find(offset); s.wants(d) && !d.isUntried() {
		s.change(op{kind: opProgress, offset: offset, deadline: untried})
	}
}

// Wanted reports whether a record in an Endpoint's hand is still to be sent.
func (s *Subscription) Wanted(offset uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wants(s.cursor.pending.find(offset))
}

// wants is Wanted for a pending record, or nil. mu is held.
func (s *Subscription) wants(d *delivery) bool {
	return d != nil && s.closed == 0 && d.isHeld() && !d.queued && !s.isRemoved(d.offset)
}

// Wake has the Subscription hand over what its Endpoint takes. It does not block.
func (s *Subscription) Wake() { s.service.tasks.wake(s) }

// TopicName returns the name of the stream that is read: the Topic, or a shard of it.
func (s *Subscription) TopicName() string { return s.store.shard.name }

// refusesPush returns why records can't be sent where the spec says, or "".
func (k *cursorStore) refusesPush(spec *coordination.SubscriptionSpec) string {
	if spec.Push != nil && k.service.config.Endpoint == nil {
		return "this broker can't push to URLs; leave delivery out"
	}
	return ""
}
