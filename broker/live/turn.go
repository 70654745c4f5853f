package live

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/query"
)

// note is told of each change of attributes, with the Store locked.
func (s *Server) note(e attribute.Event) {
	s.incoming.Lock()
	s.events = append(s.events, e)
	s.incoming.Unlock()
	s.nudge()
}

// touch notes that a feed has ended or that its client's rights have changed. The index of the hub
// is locked.
func (s *Server) touch(of query.ID) {
	s.incoming.Lock()
	s.touched = append(s.touched, of)
	s.incoming.Unlock()
	s.nudge()
}

func (s *Server) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Server) run() {
	for {
		select {
		case <-s.quit:
			return
		case <-s.wake:
			s.Flush()
		}
	}
}

// Flush returns when all changes that the Store has taken have reached the feeds of queries.
func (s *Server) Flush() { s.locked(s.turn) }

// turn applies what has come in, and tells the queries that it changes. mu is held.
func (s *Server) turn() {
	store := s.store.Stats() // before the events: they have all up to its revision
	s.incoming.Lock()
	events, touched := s.events, s.touched
	s.events, s.touched = nil, nil
	s.incoming.Unlock()
	for i := range events {
		e := &events[i]
		attributes := ""
		for _, d := range s.apply(e) {
			q := s.open[d.Query]
			if q == nil {
				continue
			}
			if d.Kind == query.New && attributes == "" {
				attributes = string(e.After.AppendJSON(nil))
			}
			s.tellOf(q, d, attributes)
		}
	}
	switch passed := uint64(store.Revision); {
	case !store.Ready:
	case !s.loaded, passed < s.set.Revision(): // or etcd was restored from a backup
		s.set.Loaded(passed)
		s.loaded = true
	default:
		s.set.Passed(passed)
	}
	for _, id := range touched {
		s.recheck(id)
	}
	for _, q := range s.turned {
		s.flush(q)
	}
	clear(s.turned)
	s.turned = s.turned[:0]
}

func (s *Server) apply(e *attribute.Event) []query.Delta {
	s.deltas = s.set.Apply(e.Subject, e.After, uint64(e.Revision), s.deltas[:0])
	return s.deltas
}

// recheck ends a query whose receiver is gone, and judges the rights of its user again.
func (s *Server) recheck(id query.ID) {
	q := s.open[id]
	switch {
	case q == nil:
	case q.feed.Ended():
		s.end(q, nil)
	default:
		s.deltas = s.set.Refresh(id, s.deltas[:0])
		for _, d := range slices.Clone(s.deltas) {
			if of := s.open[d.Query]; of != nil {
				s.tell(of, d)
			}
		}
	}
}

// tell notes a change of a query's members for its client. mu is held.
func (s *Server) tell(q *live, d query.Delta) {
	attributes := ""
	if d.Kind == query.New {
		attributes = s.attributes(d.Subject)
	}
	s.tellOf(q, d, attributes)
}

func (s *Server) tellOf(q *live, d query.Delta, attributes string) {
	if d.Kind == query.Ended {
		s.end(q, refuse(TooLarge, "the members of all queries take too much memory, and those of this client most (ask for fewer subjects)"))
		return
	}
	knows, waits := q.waiting[d.Subject]
	delete(q.waiting, d.Subject)
	if d.Kind == query.Del && waits && !bool(knows) {
		return // it was never announced
	}
	if _, twice := q.in[d.Subject]; twice || q.next.full() {
		s.flush(q)
	}
	if len(q.in) == 0 {
		s.turned = append(s.turned, q)
	}
	q.in[d.Subject] = struct{}{}
	if d.Kind == query.New {
		q.next.join(d.Subject, attributes)
	} else {
		q.next.left = append(q.next.left, d.Subject)
	}
}

// flush tells the client what has changed. mu is held.
func (s *Server) flush(q *live) {
	if q.next.empty() || s.open[q.id] != q {
		return
	}
	n := q.next
	n.kind, n.revision = change, s.set.Revision()
	q.next = notice{}
	clear(q.in)
	data, header := n.data()
	_, err := q.feed.Change(n.left, data, header, n.joined)
	s.failed(q, err)
}

// announced is a change of attributes on its way to linked brokers, ahead of their watches.
type announced struct {
	Entry   *attribute.Entry `json:"entry,omitempty"` // nil: the subject has none any more
	Subject string           `json:"subject,omitempty"`
	At      int64            `json:"at,omitempty"` // revision of a deletion
}

// Spread has changes that etcd has answered, and that the Store has, reach the queries of this and
// of all linked brokers. It returns when that is done, or after a bounded time. A deleted subject
// is an Entry without Text.
func (s *Server) Spread(ctx context.Context, changes []attribute.Entry) {
	s.Flush()
	if s.mesh == nil {
		return
	}
	for i := range changes {
		e := &changes[i]
		a := announced{Entry: e}
		if e.Text == "" {
			a = announced{Subject: e.Subject, At: e.Revision}
		}
		data, err := json.Marshal(a)
		if err != nil {
			s.log.Error("A change of attributes can't be encoded; other brokers learn of it from etcd", "subject", e.Subject, "error", err)
			continue
		}
		s.mesh.Notify(s.feature, data)
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if err := s.mesh.Sync(ctx); err != nil {
		s.late.Add(1)
	}
}

// Notice takes a change from a linked broker (route.Config.Notices).
func (s *Server) Notice(_ string, data []byte) error {
	var a announced
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("a change of attributes: %w", err)
	}
	if a.Entry != nil {
		s.store.PutAhead(*a.Entry)
	} else {
		s.store.DeleteAhead(a.Subject, a.At, true)
	}
	s.Flush()
	return nil
}
