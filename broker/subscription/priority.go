package subscription

import (
	"crypto/rand"
	"math"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// pin is the client that is served alone. Deliveries carry its id, by which its next requests are
// known. It is in memory only: the next leader pins anew. A nil pin pins nobody.
type pin struct {
	id    string
	group string // of the request that was pinned
	since int64  // as of Service.now
	until int64  // it is unpinned then, if it requested nothing before
}

// admits reports whether a request with that id may wait. One of the pinned client extends the pin
// until the given time.
func (p *pin) admits(id string, until int64) bool {
	switch {
	case p == nil || id == "":
		return true
	case id == p.id:
		p.until = until
		return true
	}
	return false
}

// holds reports whether the request is of the pinned client.
func (p *pin) holds(r *request) bool { return p != nil && r.pin == p.id }

// PinSink is optionally implemented by a DeliverySink. Its methods do not block.
type PinSink interface {
	// Pinned reports that a client of the group was pinned.
	Pinned(group, id string)
	// Unpinned reports that the pinned client requested nothing for too long.
	Unpinned(group string)
}

// choose moves the request to serve next to the front of the queue, as the priority policy says. It
// reports false if none may be served now. mu is held.
func (s *Subscription) choose(start, end uint64) bool {
	switch s.settings.priority {
	case coordination.PriorityOverflow:
		lag, _ := s.lag(start, end)
		if s.cursor.next() != nil {
			lag++ // a redelivery waits, too
		}
		return s.waiting.promote(func(r *request) bool { return r.flowsOver(lag, s.cursor.pending.live) })
	case coordination.PriorityPrioritized:
		best := math.MaxInt
		for i := range s.waiting.n {
			best = min(best, s.waiting.at(i).priority)
		}
		return s.waiting.promote(func(r *request) bool { return r.priority == best })
	case coordination.PriorityPinned:
		s.endFormerlyPinned()
		return s.waiting.promote(func(r *request) bool { return s.pin == nil || s.pin.holds(r) })
	}
	return true
}

// flowsOver reports whether enough records wait, or are pending, for the request.
func (r *request) flowsOver(lag uint64, pending int) bool {
	return r.minPending <= 0 && r.minAckPending <= 0 ||
		r.minPending > 0 && uint64(r.minPending) <= lag ||
		r.minAckPending > 0 && r.minAckPending <= int64(pending)
}

// endFormerlyPinned ends the requests of clients that were pinned before. mu is held.
func (s *Subscription) endFormerlyPinned() {
	former := func(r *request) bool { return r.pin != "" && !s.pin.holds(r) }
	for i := range s.waiting.n {
		if !former(s.waiting.at(i)) {
			continue
		}
		s.waiting.sweep(func(r *request) bool {
			if former(r) {
				s.end(r, WrongPin)
				return false
			}
			return true
		})
		return
	}
}

// pinned returns the id of the pinned client, for a delivery to r. If nobody is pinned, the client
// of r is from now on, unless its request names no group. mu and sinkMu are held.
func (s *Subscription) pinned(r *request, now int64) string {
	if s.settings.priority == coordination.PriorityPinned && s.pin == nil && r.group != "" {
		s.pin = &pin{id: rand.Text()[:pinLength], group: r.group, since: now, until: now + s.settings.pinFor}
		r.pin = s.pin.id
		if sink, ok := s.sink.(PinSink); ok {
			sink.Pinned(s.pin.group, s.pin.id)
		}
	}
	if s.pin == nil {
		return ""
	}
	return s.pin.id
}

// unpinSilent unpins a client that requested nothing for too long. mu and sinkMu are held.
func (s *Subscription) unpinSilent(now int64) {
	if s.pin == nil || now < s.pin.until {
		return
	}
	if sink, ok := s.sink.(PinSink); ok {
		sink.Unpinned(s.pin.group)
	}
	s.pin = nil
}

// Unpin unpins the pinned client, if there is one.
func (s *Subscription) Unpin() {
	s.mu.Lock()
	s.pin = nil
	s.mu.Unlock()
	s.service.tasks.wake(s)
}
