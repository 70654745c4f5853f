package expiring

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/work"
)

// Shard is a shard that this broker leads.
type Shard interface {
	comparable
	Name() string
	// Expiry returns the rules of the shard, and its removed records. The rules are off while
	// nothing is readable.
	Expiry() (Rules, *removing.Keeper)
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	// Get returns a record, and Scan calls f with some, as a records.Reader does.
	Get(offset uint64) (log.Record, error)
	Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error)
	// OldestBelow returns the oldest records of a subject below an offset, and how many it has, as
	// a records.Reader does.
	OldestBelow(ctx context.Context, subject string, end uint64, most int, patient bool) (offsets []uint64, count uint64, err error)
	// LastBelow returns the offset of the last record of a subject below an offset, as a
	// records.Reader does; 0: there is none.
	LastBelow(ctx context.Context, subject string, end uint64, patient bool) (uint64, error)
	// Spans returns offsets as spans of records.
	Spans(offsets []uint64) []removal.Span
	// Remove removes records, and calls done when that is durable.
	Remove(spans []removal.Span, done func(error)) error
	// Publish publishes messages to the shard. It reports whether it can take any now.
	Publish(messages []protocol.Message) bool
}

// Config is what Run needs.
type Config[S Shard] struct {
	Led func() []S
	// Changed returns a channel that is closed when one of them, or its rules, may have changed.
	Changed func() <-chan struct{}
	Clock   *clock.Clock
	Codec   publish.Codec
	Logger  *slog.Logger
}

// Run removes what has expired of the shards that this broker leads until ctx ends.
func Run[S Shard](ctx context.Context, config Config[S]) {
	e := expirer[S]{Config: config, places: map[S]*place{}}
	poll := work.Poll{Often: often, Rarely: rarely, Lively: lively, Changed: config.Changed}
	for poll.Wait(ctx, len(e.places) > 0) {
		for e.pass(ctx) && work.Sleep(ctx, hurry) {
		}
	}
}

// expirer is the work of Run.
type expirer[S Shard] struct {
	Config[S]
	places map[S]*place
	doubt  bool
}

// place is how far the work on a shard has come.
type place struct {
	removing atomic.Bool // a removal is on its way
	later    int64       // nothing is tried before that moment of the clock's Mono
	aged     aged
	asked    map[uint64]asked // markers that were published, by the offset of the record
	fired    map[uint64]fired // schedules that were published, by their offset
}

// pass looks at all shards once, and reports whether one of them has more that has expired.
func (e *expirer[S]) pass(ctx context.Context) (more bool) {
	if doubt := e.Clock.InDoubt(); doubt || e.doubt {
		if doubt != e.doubt {
			e.Logger.Warn("No message expires, as the time is in doubt", "why", e.Clock.Verdict().Why)
		}
		if e.doubt = doubt; doubt {
			return false
		}
	}
	before := e.places
	e.places = make(map[S]*place, len(before))
	for _, s := range e.Led() {
		rules, removed := s.Expiry()
		if !rules.On && rules.Schedules == nil {
			continue
		}
		p := before[s]
		if p == nil {
			p = &place{asked: map[uint64]asked{}, fired: map[uint64]fired{}}
		}
		e.places[s] = p
		now, mono := e.Clock.Read()
		if p.removing.Load() || mono < p.later || ctx.Err() != nil {
			continue
		}
		some, err := e.expire(ctx, s, p, rules, removed, now, mono)
		if more = more || some; err != nil && ctx.Err() == nil {
			p.later = mono + int64(failedRest)
			e.Logger.Warn("messages that have expired can't be removed; trying again", "topic", s.Name(), "error", err)
		}
	}
	return more
}

// expire removes, or replaces, records of a shard that have expired, and reports whether there may
// be more.
func (e *expirer[S]) expire(ctx context.Context, s S, p *place, rules Rules, removed *removing.Keeper, now, mono int64) (more bool, err error) {
	most, mostAged := dueAtOnce, agedAtOnce
	if rules.Marker > 0 {
		most, mostAged = markedAtOnce, markedAtOnce
	}
	due := removed.Due(now, most)
	more = len(due) == most
	if rules.Schedules != nil {
		var unread error
		due, more, unread = e.fire(ctx, s, p, rules, removed, due, now, mono)
		defer func() { err = errors.Join(err, unread) }()
	}
	if rules.Age > 0 && now >= p.aged.next(rules.Age) {
		old, err := p.aged.find(s, e.never, now, rules.Age, mostAged)
		if err != nil {
			return false, err
		}
		more = more || len(old) >= mostAged
		due = append(due, old...)
		slices.Sort(due)
		due = slices.Compact(due)
	}
	if len(due) == 0 {
		clear(p.asked)
		return more, nil
	}
	if rules.Marker > 0 {
		var marked bool
		if due, marked, err = e.mark(ctx, s, p, rules, due, mono); len(due) == 0 {
			return more && marked, err
		}
	}
	spans := s.Spans(due)
	p.removing.Store(true)
	if e := s.Remove(spans[:min(len(spans), removal.ItemSpans)], func(error) { p.removing.Store(false) }); e != nil {
		p.removing.Store(false)
		return false, e
	}
	return more || len(spans) > removal.ItemSpans, err
}

// conditions returns what the publisher of a record asked for.
func (e *expirer[S]) conditions(r *log.Record) (c publish.Conditions) {
	if r.Header > 0 {
		c, _ = e.Codec.Conditions(r.Data[:r.Header]) // it was judged before
	}
	return c
}

// never reports whether a record never expires.
func (e *expirer[S]) never(r *log.Record) bool { return e.conditions(r).TTL == publish.Never }
