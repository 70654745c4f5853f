package live

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/query"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
)

// live is an open query. The Server's mu guards it.
type live struct {
	id     query.ID
	name   string // for clients
	client uint64
	of     OpenRequest
	asks   *query.Query
	rights uint64 // of the user, as its members were judged (identity.SubscribeDigest)
	owner  query.Owner
	only   *content // nil: all messages are delivered
	feed   *session.Feed
	// waiting are members that are to join the feed; order has them, and others. known says that
	// the client knows the member already, since it resumes the query.
	waiting map[string]known
	order   []string
	resumed bool                // the client knew members, and is told the difference
	whole   bool                // the client has been told all members
	next    notice              // changes that are not sent yet
	in      map[string]struct{} // the subjects of next
}

type known bool

// quiet reports whether no messages are asked for.
func (of *OpenRequest) quiet() bool { return of.Messages != nil && !*of.Messages }

// feeds returns which of the members that join have their messages delivered. If none are asked
// for, no broker sends any.
func (q *live) feeds(joined []string) []string {
	if q.of.quiet() {
		return nil
	}
	return joined
}

// open opens a query. It announces its members in pieces; changes are told between two of them.
func (r *request) open() *Error {
	var of OpenRequest
	if refusal := r.parse(&of); refusal != nil {
		return refusal
	}
	syntax := query.CEL
	switch of.Syntax {
	case "", "cel":
	case "cqbs":
		syntax = query.CQBS
	default:
		return refuse(BadRequest, "syntax %q: choose cel or cqbs", of.Syntax)
	}
	if !subject.Valid([]byte(of.Inbox)) {
		return refuse(BadRequest, "inbox %q is no subject (give one to which this connection is subscribed)", of.Inbox)
	}
	if len(of.Inbox) > maxSubject || len(of.Subjects) > maxSubject {
		return refuse(BadRequest, "the inbox has %d bytes, and subjects %d (make each %d at most)", len(of.Inbox), len(of.Subjects), maxSubject)
	}
	if of.Subjects != "" && !subject.ValidPattern([]byte(of.Subjects)) {
		return refuse(BadRequest, "subjects %q is no pattern of subjects", of.Subjects)
	}
	var knows token
	if of.Resume != "" {
		var err error
		if knows, err = parseToken(of.Resume); err != nil {
			return refuse(BadRequest, "resume: %v", err)
		}
	}
	asks, err := query.Compile(of.Where, syntax)
	if err != nil {
		return refuse(BadRequest, "%v", err)
	}
	if of.Content != "" && of.quiet() {
		return refuse(BadRequest, "content chooses among messages, and messages is false (leave out one of them)")
	}
	if of.Content != "" {
		if r.only, err = compileContent(of.Content); err != nil {
			return refuse(BadRequest, "content: %v", err)
		}
	}
	var q *live
	var refusal *Error
	for known := false; !known; {
		var judged *query.Judged
		r.s.locked(func() { judged, err = r.s.set.Ahead(asks) })
		if err != nil {
			return refuse(TooLarge, "%v", err)
		}
		judged.Judge(r.s.ctx.Done()) // may take seconds, for which no change is to wait
		r.s.locked(func() {
			if known = r.s.set.Use(asks, judged); known {
				q, refusal = r.begin(&of, asks, knows)
			}
			r.s.set.Used()
		})
	}
	for more := q != nil; more; {
		var behind work.Behind
		r.s.locked(func() { behind, more = r.s.announce(q) })
		behind.Wait()
	}
	return refusal
}

// begin opens the query and answers, or has the request wait, and returns nothing. mu is held.
func (r *request) begin(of *OpenRequest, asks *query.Query, knows token) (*live, *Error) {
	s := r.s
	if s.turn(); s.closed || !s.loaded {
		return nil, s.notReady()
	}
	if s.ahead(knows) && s.park(r, knows.latest) {
		return nil, nil
	}
	s.last++
	q := &live{id: s.last, name: newName(), client: r.client, owner: r.owner, of: *of, asks: asks, waiting: map[string]known{}, in: map[string]struct{}{}}
	var err error
	if q.feed, err = s.hub.OpenFeed(r.client, of.Inbox, func() { s.touch(q.id) }); err != nil {
		return nil, refuse(BadRequest, "inbox %s: %v", of.Inbox, err)
	}
	// The request may have waited. A right that is lost from here on has the feed call touch.
	if !q.feed.Identity().MayPublish([]byte(OpenSubject)) {
		s.gone = append(s.gone, q.feed)
		return nil, refuse(Forbidden, "the user may not open queries any more")
	}
	if refusal := s.setContent(q, r.only); refusal != nil {
		s.gone = append(s.gone, q.feed)
		return nil, refusal
	}
	q.rights = q.feed.Identity().SubscribeDigest()
	may := func(name string) bool {
		return (of.Subjects == "" || subject.Matches([]byte(of.Subjects), []byte(name))) && q.feed.May(name)
	}
	var missed []query.Delta
	err = query.ErrTooOld
	if s.resumes(knows, q) {
		missed, err = s.set.Resume(q.id, r.owner, asks, may, knows.revision, nil)
		if q.resumed = err == nil; q.resumed && q.rights != q.feed.Identity().SubscribeDigest() {
			s.set.Remove(q.id) // rights have changed meanwhile, and the difference is of both
			q.resumed, missed, err = false, nil, query.ErrTooOld
		}
	}
	if errors.Is(err, query.ErrTooOld) {
		err = s.set.Add(q.id, r.owner, asks, may)
	}
	if err != nil {
		s.gone = append(s.gone, q.feed)
		s.dropContent(q)
		return nil, s.tooLarge(err)
	}
	s.open[q.id], s.names[q.name] = q, q
	for name := range s.set.Members(q.id) {
		q.waiting[name] = known(q.resumed)
		q.order = append(q.order, name)
	}
	n := len(q.order)
	s.answer(r.reply, answer{Query: q.name, Revision: s.set.Revision(), Members: &n})
	for _, d := range missed {
		s.tell(q, d)
	}
	s.flush(q)
	if q.resumed {
		s.counts.Resumed++
	}
	return q, nil
}

// announce has some of the waiting members of a query join. It reports whether more are waiting. mu
// is held.
func (s *Server) announce(q *live) (behind work.Behind, more bool) {
	if s.open[q.id] != q {
		return behind, false
	}
	n := notice{kind: members, revision: s.set.Revision()}
	if q.resumed {
		n.kind = change // which has no members, and says that there is no other difference
	}
	for len(q.order) > 0 && !n.full() {
		name := q.order[0]
		q.order = q.order[1:]
		if _, waits := q.waiting[name]; waits {
			delete(q.waiting, name)
			n.join(name, s.attributes(name))
		}
	}
	more = len(q.order) > 0
	if n.done = !more; n.done {
		q.order, q.waiting, q.whole = nil, nil, true
		n.resume = s.resumable(q)
	}
	var data []byte
	header := 0
	if q.resumed {
		n.body = nil
	}
	if !q.resumed || n.done {
		data, header = n.data()
	}
	behind, err := q.feed.Change(nil, data, header, q.feeds(n.joined))
	s.failed(q, err)
	return behind, more
}

// attributes returns those of a subject as JSON.
func (s *Server) attributes(of string) string {
	if e := s.store.Get(of); e.Text != "" {
		return e.Text
	}
	return "{}" // it has lost them, and the notice follows
}

// notReady refuses a request while the members of queries are not known, or not any more. mu is
// held.
func (s *Server) notReady() *Error {
	if s.closed {
		return refuse(NotReady, stops)
	}
	return refuse(NotReady, "the broker does not know all attributes yet (try again in a moment)")
}

// end ends a query, and tells its client why if there is a reason. mu is held.
func (s *Server) end(q *live, why *Error) {
	if s.open[q.id] != q {
		return
	}
	delete(s.open, q.id)
	delete(s.names, q.name)
	s.set.Remove(q.id)
	s.gone = append(s.gone, q.feed)
	s.dropContent(q)
	if why != nil {
		if why.Code == TooLarge || why.Code == TooSlow {
			s.counts.Ended++
		}
		data, header := endOf(why)
		_, _ = q.feed.Change(nil, data, header, nil) // without a receiver nobody is to be told
	}
}

// failed ends a query whose feed can't be changed. mu is held.
func (s *Server) failed(q *live, err error) {
	switch {
	case errors.Is(err, session.ErrFeedTooLarge):
		s.end(q, refuse(TooLarge, "the members of the query: %v", err))
	case err != nil:
		s.end(q, nil)
	}
}
