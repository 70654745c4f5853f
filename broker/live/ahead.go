package live

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// parked is a request to resume from a revision that this broker has not come to. Another broker
// has, and the client was there.
type parked struct {
	request  *request
	revision uint64
	late     time.Time // then it goes on, whatever is known
	place    *work.Queued[*parked]
}

// park has a request wait, and reports whether it does: once, and if there is a place for it.
// Users share these, and their connections: one of the user with most goes on at once, so that one
// with few waits. mu is held.
func (s *Server) park(r *request, revision uint64) bool {
	if r.waited {
		return false
	}
	again := &request{s: s, client: r.client, owner: r.owner, reply: r.reply, body: r.body, waited: true} // r still runs
	again.do = again.open
	p := &parked{request: again, revision: revision, late: time.Now().Add(s.patience)}
	place, dropped := s.places.Push(r.by(), p, len(r.body)+requestBytes)
	for _, other := range dropped {
		s.parked = slices.DeleteFunc(s.parked, func(p *parked) bool { return p == other })
		s.again = append(s.again, other.request)
	}
	if place == nil {
		return false
	}
	p.place = place
	s.parked = append(s.parked, p)
	s.nudge()
	return true
}

// unpark has requests go on that have waited for long enough. mu is held.
func (s *Server) unpark() {
	if len(s.parked) == 0 {
		return
	}
	now, left := time.Now(), s.parked[:0]
	for _, p := range s.parked {
		if p.revision <= s.set.Revision() || !now.Before(p.late) || s.closed {
			s.places.Remove(p.place)
			s.again = append(s.again, p.request)
		} else {
			left = append(left, p)
		}
	}
	clear(s.parked[len(left):])
	s.parked = left
}

// untilLate returns how long run may sleep.
func (s *Server) untilLate() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parked) == 0 {
		return time.Hour
	}
	return min(time.Until(s.parked[0].late), aheadEvery) // the watch passes a revision without a word
}

// by returns who sent the request, as pools tell clients apart.
func (r *request) by() work.Client { return work.Client{User: uint64(r.owner), Connection: r.client} }

// submit queues a request. Users take turns, and the connections of each, as in all pools: a flood
// keeps others waiting for one of its requests each, and not for all.
func (s *Server) submit(r *request) bool {
	queued := s.openings.Submit(r.by(), r, len(r.body)+requestBytes)
	if !queued {
		r.Drop()
	}
	return queued
}
