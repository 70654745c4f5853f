package live

import (
	"context"
	"slices"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/work"
)

// held is a change of a member's attributes that the watch of etcd has brought, and that waits for
// what was published before it (V8).
type held struct {
	event attribute.Event
	round uint64 // it is applied at the end of this round of Sync
	// passed is up to where all changes had been applied. The event may be of a later revision than
	// the change: of one at which a broker found that a subject had no attributes any more.
	passed uint64
}

// made is a change of a subject whose broker, this or a linked one, has told of it, and so has sent
// what came before.
type made struct {
	subject  string
	revision int64
}

// hold keeps a change of a member back, and reports whether it does. mu is held.
func (s *Server) hold(e *attribute.Event) bool {
	if s.holds[e.Subject] == 0 && !s.hasMember(e.Subject) {
		return false
	}
	if len(s.held) >= maxHeld {
		s.release(func(*held) bool { return true })
		return false
	}
	s.held = append(s.held, held{*e, s.round + 1, s.set.Revision()})
	s.holds[e.Subject]++
	return true
}

// hasMember reports whether a subject is a member of a query. mu is held.
func (s *Server) hasMember(subject string) bool {
	for range s.set.Queries(subject) {
		return true
	}
	return false
}

// mayHold reports whether changes may wait. Without links nothing is on its way, and after a gap in
// the watch, or a restore of etcd, the order of changes says little. mu is held.
func (s *Server) mayHold(store *attribute.Stats) bool {
	if s.mesh == nil || s.closed || !store.Ready || store.Distrusted {
		return false
	}
	return s.lists == store.Lists && s.history == store.History
}

// release applies the held changes that are ready. mu is held.
func (s *Server) release(ready func(h *held) bool) {
	s.held = slices.DeleteFunc(s.held, func(h held) bool {
		if !ready(&h) {
			return false
		}
		if s.holds[h.event.Subject]--; s.holds[h.event.Subject] == 0 {
			delete(s.holds, h.event.Subject)
		}
		s.take(&h.event)
		return true
	})
}

// releases reports whether the held change is this one, or one of the same subject before it.
func (of made) releases(h *held) bool {
	return h.event.Subject == of.subject && h.event.Revision <= of.revision
}

// sync applies what is held, in rounds, until nothing is. Behind a round of Sync this broker has
// taken what linked brokers had sent when the round began. It ends before that if all have told of
// their changes meanwhile, as they mostly have.
func (s *Server) sync() {
	for work.Sleep(s.ctx, madeTimeout) {
		more := false
		s.locked(func() {
			more = len(s.held) > 0
			s.syncing = more
			s.round++
		})
		if !more {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, syncTimeout)
		s.mesh.Sync(ctx, s.feature)
		cancel()
		s.locked(func() {
			s.release(func(h *held) bool { return h.round <= s.round })
			s.turn()
		})
	}
}
