package client

import (
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go"
)

// Headers of what comes to the inbox of a live query, as docs/queries.md has them.
const (
	subjectHeader = "Carillon-Subject" // of a message: what it was published on
	queryHeader   = "Carillon-Query"   // of a notice: what it tells
)

// member is one that a notice tells of.
type member struct {
	Subject    string          `json:"subject"`
	Attributes json.RawMessage `json:"attributes"`
}

// notice is what comes beside messages.
type notice struct {
	Resume  string      `json:"resume"`
	Members []member    `json:"members"`
	Done    bool        `json:"done"`
	New     []member    `json:"new"`
	Del     []string    `json:"del"`
	Error   *QueryError `json:"error"`
	kind    string
}

// Kinds of notices.
const (
	noticeMembers  = "Members"
	noticeChange   = "Change"
	noticeEnd      = "End"
	noticeReopened = "" // of this package: the query was opened again
)

// arrival is what came and was not taken yet.
type arrival struct {
	opening uint64
	notice  *notice   // nil: a message
	message *nats.Msg // nil: a notice
	size    int
}

// arrivalBytes is about what an arrival takes beside its message.
const arrivalBytes = 128

// arrivalOf reads what came to an inbox. ok is false if it means nothing to this version.
func arrivalOf(m *nats.Msg, opening uint64) (a arrival, ok bool, err error) {
	a = arrival{opening: opening, size: arrivalBytes + m.Size()}
	// The broker lets through none of its publisher's.
	if len(m.Header[subjectHeader]) > 0 {
		a.message = m
		return a, true, nil
	}
	switch kind := m.Header.Get(queryHeader); kind {
	case noticeMembers, noticeChange, noticeEnd:
		a.notice = &notice{kind: kind}
		return a, true, json.Unmarshal(m.Data, a.notice)
	}
	return a, false, nil
}

// received takes what came to the inbox of an opening. The connection calls it.
func (q *LiveQuery) received(opening uint64, m *nats.Msg) {
	a, ok, err := arrivalOf(m, opening)
	if !ok {
		return
	}
	if err != nil {
		q.fail(&QueryError{Code: string(Malformed), Text: "what the broker sent is no notice of a live query: " + err.Error()})
		return
	}
	q.mu.Lock()
	switch {
	case q.opening != opening || q.err != nil:
		q.mu.Unlock()
		return
	case a.notice != nil && a.notice.kind == noticeEnd:
		q.mu.Unlock()
		q.ended(a.notice.Error)
		return
	case len(q.waiting) >= q.options.MaxPending || q.bytes+a.size > q.options.MaxPendingBytes:
		q.mu.Unlock()
		q.fail(ErrSlowConsumer)
		return
	}
	q.tellReopened()
	if n := a.notice; n != nil && n.Resume != "" {
		q.resume = n.Resume
	}
	q.waiting = append(q.waiting, a)
	q.bytes += a.size
	q.mu.Unlock()
	q.poke()
}

// tellReopened tells once of an opening, unless it is the first one. mu is held.
func (q *LiveQuery) tellReopened() {
	if q.told != 0 && q.told != q.opening {
		q.waiting = append(q.waiting, arrival{opening: q.opening, notice: &notice{kind: noticeReopened}})
	}
	q.told = q.opening
}

// step is a part of an arrival: at most one event.
type step struct {
	kind    EventKind
	listed  bool   // in a list of all members, or at its end
	opening uint64 // of EventNew and endOfOpening
	member
	message *nats.Msg
}

// endOfOpening is the step after which all members are told: of a list of them, or, of an opening
// that resumes, of the difference.
const endOfOpening EventKind = 0

// steps returns what an arrival means, in order.
func (a *arrival) steps() (all []step) {
	switch {
	case a.message != nil:
		return []step{{kind: EventMessage, message: a.message}}
	case a.notice.kind == noticeReopened:
		return []step{{kind: EventReopened}}
	}
	for _, m := range a.notice.Members {
		all = append(all, step{kind: EventNew, listed: true, opening: a.opening, member: m})
	}
	for _, name := range a.notice.Del {
		all = append(all, step{kind: EventDel, member: member{Subject: name}})
	}
	for _, m := range a.notice.New {
		all = append(all, step{kind: EventNew, opening: a.opening, member: m})
	}
	if a.notice.Done {
		all = append(all, step{kind: endOfOpening, listed: a.notice.kind == noticeMembers, opening: a.opening})
	}
	return all
}

// apply changes the members, and returns what the program is told; ok: there is something.
func (q *LiveQuery) apply(s *step) (e QueryEvent, ok bool) {
	e = QueryEvent{Kind: s.kind, Subject: s.Subject}
	switch s.kind {
	case EventNew:
		q.see(s)
		_, known := q.members[s.Subject]
		q.members[s.Subject] = s.Attributes
		e.Attributes, e.Initial = s.Attributes, s.listed && !q.ready
		return e, !known
	case EventDel:
		_, known := q.members[s.Subject]
		delete(q.members, s.Subject)
		delete(q.seen, s.Subject)
		return e, known
	case EventMessage:
		return messageEvent(s.message), true
	case endOfOpening:
		q.opened(s)
		return e, false
	}
	return e, true
}

// see notes that a member was told by the present opening, while that has not told all.
func (q *LiveQuery) see(s *step) {
	if q.telling != s.opening {
		q.telling, q.seen = s.opening, map[string]struct{}{}
	}
	if q.seen != nil {
		q.seen[s.Subject] = struct{}{}
	}
}

// opened ends what an opening tells. If it was a list, members that were not told have left.
func (q *LiveQuery) opened(end *step) {
	if q.telling != end.opening {
		q.telling, q.seen = end.opening, nil // there are no members
	}
	var gone []string
	for name := range q.members {
		if _, seen := q.seen[name]; !seen && end.listed {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	rest := make([]step, 0, len(gone)+1)
	for _, name := range gone {
		rest = append(rest, step{kind: EventDel, member: member{Subject: name}})
	}
	q.seen, q.ready = nil, true
	q.next = append(append(rest, step{kind: EventReady}), q.next...)
}

// messageEvent returns a message as it was published. Its publisher's headers of these names were
// left out by the broker.
func messageEvent(m *nats.Msg) QueryEvent {
	e := QueryEvent{Kind: EventMessage, Subject: m.Header[subjectHeader][0], Header: m.Header, Data: m.Data, Reply: m.Reply}
	delete(m.Header, subjectHeader)
	if len(e.Header) == 0 {
		e.Header = nil
	}
	return e
}
