package live

import (
	"errors"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/query"
)

// content is the condition of a query on each message: a session.Condition.
type content struct {
	filter  *filter.Filter
	reads   filter.Reads
	failed  atomic.Uint64  // messages that could not be judged; they are not delivered
	all     *atomic.Uint64 // those of all queries
	tooSlow atomic.Bool    // its query is to end
	touch   func()         // has the query looked at
	record  filter.Record  // owned by the loop
}

// Errors of compileContent beside those of a condition that is none.
var (
	errContentSlow       = errors.New("it can't be judged while messages are delivered: compare fields of json, headers and the subject with constants, also by startsWith, endsWith, in and has, and join that by &&, || and ! (a Subscription takes other conditions, too)")
	errContentAttributes = errors.New("a query's condition on messages can't name attributes (name them in where, which chooses subjects)")
	errContentTime       = errors.New("a message that is not stored has no time (leave time out, or use a Subscription)")
)

// compileContent compiles the condition on messages. It takes only what is judged in less than some
// microseconds, since messages are judged where they are delivered.
func compileContent(text string) (*content, error) {
	f, err := filter.Shared(text)
	if err != nil {
		return nil, err
	}
	reads, quick := f.Reads()
	switch {
	case f.NamesAttributes():
		return nil, &filter.Error{Text: text, Err: errContentAttributes}
	case !quick:
		return nil, &filter.Error{Text: text, Err: errContentSlow}
	case reads.Time:
		return nil, &filter.Error{Text: text, Err: errContentTime}
	}
	return &content{filter: f, reads: reads}, nil
}

// Judge implements session.Condition.
func (c *content) Judge(subject, header, payload []byte) bool {
	c.record = filter.Record{Subject: subject, Header: header, Data: payload}
	verdict := c.filter.Judge(&c.record)
	c.record = filter.Record{} // its slices are the loop's
	if verdict == filter.Failed {
		c.failed.Add(1)
		c.all.Add(1)
	}
	return verdict == filter.Yes
}

// Work implements session.Condition.
func (c *content) Work(header, payload int) int { return c.reads.Work(header, payload) }

// TooSlow implements session.Condition.
func (c *content) TooSlow() {
	c.tooSlow.Store(true)
	c.touch()
}

// setContent has a query deliver only messages that its condition accepts. mu is held.
func (s *Server) setContent(q *live, only *content) *Error {
	if only == nil {
		return nil
	}
	size, owned := only.filter.Bytes(), s.contentsOf[q.owner]
	if s.contents+size > contentBytes || owned+size > ownedContentBytes {
		s.counts.Refused++
		return refuse(TooLarge, "the conditions on messages of all queries, or of those of this user, take too much memory: with this one %d of %d KiB, and %d of %d (open fewer queries with content, or write shorter ones)",
			(s.contents+size)>>10, contentBytes>>10, (owned+size)>>10, ownedContentBytes>>10)
	}
	share := query.Share{Name: "bytes of conditions on messages", Own: ownedContentBytes, All: contentBytes}
	if err := share.Check(uint64(s.contents), uint64(owned+size)); err != nil && owned > 0 {
		return s.tooLarge(err)
	}
	s.contents += size
	s.contentsOf[q.owner] += size
	q.only = only
	only.all, only.touch = &s.unjudged, func() { s.touch(q.id) }
	q.feed.Only(only)
	return nil
}

// tooLarge refuses a query that is beyond a bound, and counts it. mu is held.
func (s *Server) tooLarge(err error) *Error {
	if _, shared := errors.AsType[*query.ShareError](err); shared {
		s.counts.Shared++
	} else {
		s.counts.Refused++
	}
	return refuse(TooLarge, "%v", err)
}

// dropContent gives back the room of a query's condition. mu is held.
func (s *Server) dropContent(q *live) {
	if q.only == nil {
		return
	}
	size := q.only.filter.Bytes()
	s.contents -= size
	if s.contentsOf[q.owner] -= size; s.contentsOf[q.owner] == 0 {
		delete(s.contentsOf, q.owner)
	}
	q.only = nil
}
