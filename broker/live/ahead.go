package live

import "time"

// parked is a request to resume from a revision that this broker has not come to. Another broker
// has, and the client was there.
type parked struct {
	request  *request
	revision uint64
	late     time.Time // then it goes on, whatever is known
}

// park has a request wait, and reports whether it does: once, and if not too many do. mu is held.
func (s *Server) park(r *request, revision uint64) bool {
	if r.waited || len(s.parked) >= maxAhead {
		return false
	}
	again := &request{s: s, client: r.client, owner: r.owner, reply: r.reply, body: r.body, waited: true} // r still runs
	again.do = again.open
	s.parked = append(s.parked, parked{again, revision, time.Now().Add(s.patience)})
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

// submit queues a request.
func (s *Server) submit(r *request) {
	if !s.openings.Submit(uint64(r.owner), r, len(r.body)+requestBytes) {
		r.Drop()
	}
}
