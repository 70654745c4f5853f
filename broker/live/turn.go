package live

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/query"
	"github.com/carillon-mq/carillon/broker/session"
)

// note is told of each change of attributes, with the Store locked.
func (s *Server) note(e attribute.Event) {
	s.incoming.Lock()
	s.events = append(s.events, e)
	s.incoming.Unlock()
	s.nudge()
}

// touch notes that a feed has ended or that its client's rights have changed, and the index of the
// hub is locked; or that its messages take too much to judge, and a loop calls.
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
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-late.C:
		}
		s.Flush()
		late.Reset(s.untilLate())
	}
}

// Flush returns when all changes that the Store has taken have reached the feeds of queries, but
// those that are held (V8).
func (s *Server) Flush() { s.flushMade() }

// flushMade is Flush, which takes changes that brokers have told of.
func (s *Server) flushMade(changes ...made) { s.locked(func() { s.turn(changes...) }) }

// turn applies what has come in, and tells the queries that it changes. Changes that brokers have
// told of are not held. mu is held.
func (s *Server) turn(changes ...made) {
	store := s.store.Stats() // before the events: they have all up to its revision
	s.incoming.Lock()
	events, touched := s.events, s.touched
	s.events, s.touched = nil, nil
	s.incoming.Unlock()
	mayHold := s.mayHold(&store)
	if !mayHold {
		s.release(func(*held) bool { return true })
	}
	for i := range events {
		if e := &events[i]; !mayHold || !s.hold(e) {
			s.take(e)
		}
	}
	for _, of := range changes {
		if s.holds[of.subject] > 0 {
			s.release(of.releases)
		}
	}
	if len(s.held) > 0 && !s.syncing {
		s.syncing = true
		s.running.Go(s.sync)
	}
	s.pass(&store)
	s.unpark()
	for _, id := range touched {
		s.recheck(id)
	}
	for _, q := range s.turned {
		s.flush(q)
	}
	clear(s.turned)
	s.turned = s.turned[:0]
}

// take applies a change, and notes what its queries are told. mu is held.
func (s *Server) take(e *attribute.Event) {
	s.latest = max(s.latest, uint64(e.Revision))
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

// pass takes over up to where all changes were applied. mu is held.
func (s *Server) pass(store *attribute.Stats) {
	s.doubted = store.Distrusted
	if !store.Ready || store.Distrusted {
		return
	}
	if passed := uint64(store.Revision); s.lists == store.Lists && s.history == store.History {
		for i := range s.held {
			passed = min(passed, s.held[i].passed)
		}
		s.set.Passed(passed)
	} else {
		told := s.set.Revision()
		if s.set.Loaded(passed); s.loaded && passed < told {
			s.latest = 0
			s.set.Forget(told) // etcd was restored from a backup, in which it may not have happened
		}
		s.loaded, s.lists, s.history = true, store.Lists, store.History
	}
	s.newest = uint64(store.Newest)
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
	case q.only != nil && q.only.tooSlow.Load():
		s.end(q, refuse(TooSlow, "judging the messages of this connection's queries takes too much (ask for fewer subjects, or open queries with content on several connections)"))
	case !q.feed.Identity().MayPublish([]byte(OpenSubject)):
		s.end(q, refuse(Forbidden, "the user may not open queries any more"))
	default:
		rights := q.feed.Identity().SubscribeDigest() // before they are judged: later ones are rechecked
		s.deltas = s.set.Refresh(id, s.deltas[:0])
		for _, d := range slices.Clone(s.deltas) {
			if of := s.open[d.Query]; of != nil {
				s.tell(of, d)
			}
		}
		s.restore(q)
		q.rights = rights // after what was sent in between, which is not all
	}
}

// restore has members join the feed again that it lost with a right which the user has again. No
// notice told that they left. mu is held.
func (s *Server) restore(q *live) {
	if s.open[q.id] != q || !q.feed.Reduced() {
		return
	}
	s.flush(q) // first those that come now, with their notice
	var some []string
	join := func() {
		if s.open[q.id] == q {
			_, err := q.feed.Change(nil, nil, 0, some)
			s.failed(q, err)
		}
		some = some[:0]
	}
	for _, name := range slices.Collect(s.set.Members(q.id)) {
		if _, waits := q.waiting[name]; waits {
			continue
		}
		if some = append(some, name); len(some) == session.FeedChunk {
			join()
		}
	}
	join()
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
	s.counts.Told++
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
	n.kind, n.revision, n.resume = change, s.set.Revision(), s.resumable(q)
	q.next = notice{}
	clear(q.in)
	data, header := n.data()
	_, err := q.feed.Change(n.left, data, header, q.feeds(n.joined))
	s.failed(q, err)
}
