package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// openTime is how long a broker may take to open a query, before it is asked again.
const openTime = 10 * time.Second

// openRequest is docs/queries.md's.
type openRequest struct {
	Where    string `json:"where"`
	Syntax   string `json:"syntax,omitempty"`
	Subjects string `json:"subjects,omitempty"`
	Content  string `json:"content,omitempty"`
	Messages *bool  `json:"messages,omitempty"`
	Inbox    string `json:"inbox"`
	Resume   string `json:"resume,omitempty"`
}

// openFirst opens the query for the first time, again and again while the reason against it may
// pass, until ctx ends. at is the number of reconnects before.
func (q *LiveQuery) openFirst(ctx context.Context) (at uint64, err error) {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		at = q.nc.Stats().Reconnects
		if err = q.open(ctx); errors.Is(err, nats.ErrNoResponders) {
			err = ErrNotCarillon
		}
		if err == nil || !opensLater(err) {
			return at, err
		}
		select {
		case <-ctx.Done():
			return at, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// keep opens the query again whenever it has ended with its connection, or for a reason that
// passes. at is the number of reconnects before it was opened.
func (q *LiveQuery) keep(ctx context.Context, changes <-chan nats.Status, at uint64) {
	var retry <-chan time.Time
	open, wait := true, firstBackoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-retry:
		case <-q.again:
			open = false
		}
		if q.nc.IsClosed() {
			q.fail(nats.ErrConnectionClosed)
			return
		}
		now := q.nc.Stats().Reconnects
		if open && now == at || !q.nc.IsConnected() {
			continue
		}
		at = now
		switch err := q.open(ctx); {
		case err == nil:
			open, wait, retry = true, firstBackoff, nil
		case !opensLater(err):
			q.fail(fmt.Errorf("open the live query again: %w", err))
			return
		default:
			open, retry = false, time.After(wait)
			wait = min(2*wait, lastBackoff)
		}
	}
}

// open opens the query, in place of the one that is open. The error is nats.ErrNoResponders if the
// server has no live queries. That passes for a query that was open: during a rolling change its
// connection may come to a broker of an earlier version, until that is changed, too.
func (q *LiveQuery) open(ctx context.Context) error {
	q.leave()
	inbox := q.nc.NewInbox()
	q.mu.Lock()
	if q.err != nil {
		q.mu.Unlock()
		return q.err
	}
	q.opening++
	opening, resume := q.opening, q.resume
	q.mu.Unlock()
	// An inbox of its own for each opening: a broker ends a query with its subscription, so one whose
	// answer was lost doesn't stay.
	sub, err := q.nc.Subscribe(inbox, func(m *nats.Msg) { q.received(opening, m) })
	if err != nil {
		return err
	}
	// received never waits, and has the bounds.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return errors.Join(err, sub.Unsubscribe())
	}
	q.mu.Lock()
	q.sub, err = sub, q.err
	q.mu.Unlock()
	if err != nil { // it has ended meanwhile
		q.leave()
		return err
	}
	request, err := json.Marshal(q.request(inbox, resume))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	m, err := q.nc.RequestWithContext(ctx, "$CARILLON.API.QUERY.OPEN", request)
	if err != nil {
		return err
	}
	var answer struct {
		Query string      `json:"query"`
		Error *QueryError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err == nil && answer.Error != nil && answer.Error.unknown():
		return nats.ErrNoResponders
	case err == nil && answer.Error != nil:
		return answer.Error
	case err != nil, answer.Query == "":
		return &QueryError{Code: string(Malformed), Text: "the answer to the opening of a live query is none"}
	}
	q.mu.Lock()
	q.tellReopened()
	q.mu.Unlock()
	q.poke()
	return nil
}

func (q *LiveQuery) request(inbox, resume string) openRequest {
	o := &q.options
	r := openRequest{Where: o.Where, Syntax: o.Syntax, Subjects: o.Subjects, Content: o.Content, Inbox: inbox, Resume: resume}
	if o.NoMessages {
		r.Messages = new(bool)
	}
	return r
}

// leave ends the present subscription, and with it the query of the broker.
func (q *LiveQuery) leave() {
	q.mu.Lock()
	sub := q.sub
	q.sub = nil
	q.mu.Unlock()
	if sub != nil {
		_ = sub.Unsubscribe() // it fails if the connection is closed, which ends the query, too
	}
}

// ended takes the end that a broker tells.
func (q *LiveQuery) ended(why *QueryError) {
	switch {
	case why == nil:
		q.fail(&QueryError{Code: string(Malformed), Text: "the broker has ended the query without a reason"})
	case why.passes():
		select {
		case q.again <- struct{}{}:
		default:
		}
	default:
		q.fail(why)
	}
}

// opensLater reports whether opening a query again may help.
func opensLater(err error) bool {
	var e *QueryError
	if errors.As(err, &e) {
		return e.passes()
	}
	for _, final := range []error{nats.ErrConnectionClosed, ErrNotCarillon, ErrClosed, ErrSlowConsumer, context.Canceled} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
