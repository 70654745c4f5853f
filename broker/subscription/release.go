package subscription

import (
	"errors"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subject"
)

// releases removes the records of a shard that no Subscription needs any more, where the Topic's
// retention says so:
//
//	Interest   a record goes when no Subscription needs it
//	WorkQueue  a record goes when a Subscription that it matches does not need it any more
//
// A Subscription needs a record that matches its filter and is not delivered yet, or whose ack it
// waits for, or that it has given up without an ack. What it needs is in its cursor. So a new
// leader finds again what is to be removed, and a removal that is lost is repeated.
//
// Each change of a cursor that ends a need notes the offsets. They are looked at once the change is
// in the state log; there a removal follows the acks that led to it. One removal is on its way at
// a time, and what is noted meanwhile goes with the next one.
type releases struct {
	// Guarded by the store's mu.
	policy   coordination.StreamRetention
	settled  []span // acknowledged; they match their Subscription
	again    []span // whether a Subscription needs them is to be looked at
	removing bool   // a removal is on its way

	// Guarded by the store's stepping.
	acked  spans          // settled ones of a work queue whose acks are in the state log
	todo   spans          // to be looked at
	seen   uint64         // records below were looked at, or are in todo; Interest only
	out    []removal.Span // to be removed
	next   int64          // when Subscriptions are asked again at the earliest
	cursor *log.Cursor    // of the subjects of records
}

// removes reports whether a policy removes what is acknowledged.
func removes(policy coordination.StreamRetention) bool {
	return policy == coordination.InterestPolicy || policy == coordination.WorkQueue
}

// setPolicy applies the retention of the Topic. A new one looks at all records. stepping is held.
func (k *cursorStore) setPolicy(policy coordination.StreamRetention) {
	r := &k.releases
	k.mu.Lock()
	defer k.mu.Unlock()
	k.releasing.Store(removes(policy))
	if policy == r.policy || !removes(policy) && !removes(r.policy) {
		return
	}
	removing := r.removing
	*r = releases{policy: policy, removing: removing}
	if removes(policy) {
		start, end := k.shard.Offsets()
		r.todo, r.seen = merge([]span{{start, end}}), end
	}
}

// policyOf returns the retention of the shard's Topic in a State.
func (k *cursorStore) policyOf(state desires) coordination.StreamRetention {
	if state != nil {
		if t := state.TopicByID(k.shard.topicID); t != nil && t.Spec.Stream.Retention != "" {
			return t.Spec.Stream.Retention
		}
	}
	return coordination.LimitsPolicy
}

// settle notes that offsets were acknowledged. mu is held.
func (k *cursorStore) settle(from, next uint64) {
	if k.releasing.Load() {
		k.releases.settled = k.addSpan(k.releases.settled, span{from, next})
	}
}

// lookAgain notes that a Subscription may need the records from from up to and without next no
// longer. A Subscription's mu may be held.
func (k *cursorStore) lookAgain(from, next uint64) {
	if !k.releasing.Load() || from >= next {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.releases.again = k.addSpan(k.releases.again, span{from, next})
	if !k.armed {
		k.arm(lazyFor)
	}
}

// unneeded notes that a Subscription with this cursor is gone. In a work queue its records wait for
// the next one.
func (k *cursorStore) unneeded(c *cursor) {
	k.mu.Lock()
	interest := k.releases.policy == coordination.InterestPolicy
	k.mu.Unlock()
	if interest {
		k.lookAgain(c.lowest(), endless)
	}
}

// addSpan adds s to all. If they are too many, they become one, which is looked at in parts.
func (k *cursorStore) addSpan(all []span, s span) []span {
	if last := len(all) - 1; last >= 0 && all[last].next == s.from {
		all[last].next = s.next
		return all
	}
	if all = append(all, s); len(all) < mostNoted {
		return all
	}
	if all = merge(all); len(all) < mostNoted/2 {
		return all
	}
	first, last := all[0].from, all[len(all)-1].next
	k.releases.again = append(k.releases.again, span{first, last})
	return all[:0]
}

// noted returns what was noted, and forgets it. mu is held.
func (r *releases) noted() (settled, again []span) {
	settled, again = r.settled, r.again
	r.settled, r.again = nil, nil
	return settled, again
}

// logged takes what noted returned, once the changes of cursors that led to it are in the state
// log, or keeps it until they are. stepping is held.
func (k *cursorStore) logged(settled, again []span, in bool) {
	if len(settled)+len(again) == 0 {
		return
	}
	r := &k.releases
	k.mu.Lock()
	defer k.mu.Unlock()
	if !in {
		r.settled, r.again = append(settled, r.settled...), append(again, r.again...)
		return
	}
	start, end := k.shard.Offsets()
	for i := range again {
		again[i] = span{max(again[i].from, start), min(again[i].next, end)} // later ones are looked at as new
	}
	if r.policy == coordination.WorkQueue {
		r.acked = merge(append(settled, r.acked...))
	} else {
		again = append(again, settled...)
	}
	r.todo = merge(append(again, r.todo...))
}

// release removes a bounded number of records that no Subscription needs any more, and reports
// whether there may be more. stepping is held.
func (k *cursorStore) release(w *worker) (more bool) {
	if !k.releasing.Load() {
		return false
	}
	r := &k.releases
	k.mu.Lock()
	policy, busy := r.policy, r.removing || k.failed != nil || !removes(r.policy)
	k.mu.Unlock()
	if busy {
		return false // its end wakes the store
	}
	_, end := k.shard.Offsets()
	if policy == coordination.InterestPolicy && r.seen < end {
		r.todo = merge(append(r.todo, span{max(r.seen, 1), end}))
		r.seen = end
	}
	if len(r.acked)+len(r.todo)+len(r.out) == 0 {
		return false
	}
	state := k.service.current()
	if state == nil || !state.AllHave(coordination.FeatureRemovals) {
		k.retryRelease()
		return false
	}
	var some spans
	for len(r.acked) > 0 && len(r.out) < removal.ItemSpans {
		some, r.acked = r.acked.take(releaseOffsets)
		r.queue(k.left(some), k.shard.Data())
	}
	held := policy == coordination.InterestPolicy && k.unknownNeeds(state)
	if len(r.todo) > 0 && !held {
		held = k.rests(k.service.now())
	}
	for budget := stepBytes; budget > 0 && len(r.todo) > 0 && len(r.out) < removal.ItemSpans && !held; {
		budget -= judgedBytes
		some, r.todo = r.todo.take(releaseOffsets)
		gone, rest, err := k.judge(w, policy, k.left(some), &budget)
		r.queue(gone, k.shard.Data())
		if r.todo = merge(append(rest, r.todo...)); err != nil {
			k.service.config.Logger.Warn("what no subscription needs can't be read; trying again", "topic", k.shard.name, "error", err)
			k.retryRelease()
			held = true
		}
	}
	if len(r.out) > 0 {
		k.remove() // its end wakes the store
		return false
	}
	return len(r.todo) > 0 && !held
}

// rests reports whether the Subscriptions were asked what they need so recently that others wait
// for them. The store is stepped again then. stepping is held.
func (k *cursorStore) rests(now int64) bool {
	r := &k.releases
	k.mu.Lock()
	defer k.mu.Unlock()
	if now >= r.next {
		r.next = now + min(int64(len(k.subs))*int64(releaseRest), int64(lazyFor))
		return false
	}
	if !k.armed {
		k.arm(time.Duration(r.next - now))
	}
	return true
}

// retryRelease has the store stepped again after a while. stepping is held.
func (k *cursorStore) retryRelease() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.armed {
		k.arm(retryAfter)
	}
}

// unknownNeeds reports whether there is a Subscription whose needs are not known: one that can't be
// served, or read. stepping is held.
func (k *cursorStore) unknownNeeds(state desires) bool {
	if len(k.recovered) > 0 {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.subs {
		if e.sub == nil {
			return true
		}
	}
	return slices.ContainsFunc(state.Unreadable(), func(key string) bool {
		return isSubscriptionOf(key, k.shard.topicID)
	})
}

// left returns what the log still has of some offsets.
func (k *cursorStore) left(some spans) spans {
	start, end := k.shard.Offsets()
	inside := make(spans, 0, len(some))
	for _, s := range some {
		if s.from, s.next = max(s.from, start), min(s.next, end); s.from < s.next {
			inside = append(inside, s)
		}
	}
	set := k.shard.Removed()
	if set.Len() == 0 {
		return inside
	}
	var removed spans
	for _, s := range inside {
		for from, next := range set.Ranges(s.from, s.next) {
			removed = append(removed, span{from, next})
		}
	}
	return inside.without(removed)
}

// queue has records removed.
func (r *releases) queue(some spans, data *log.Log) {
	for _, s := range some {
		r.out = slices.AppendSeq(r.out, removal.Split(s.from, s.next, data.EpochAt))
	}
}

// remove removes the first of the queued records. stepping is held.
func (k *cursorStore) remove() {
	r := &k.releases
	some := slices.Clone(r.out[:min(len(r.out), removal.ItemSpans)])
	k.mu.Lock()
	r.removing = true
	k.mu.Unlock()
	err := k.shard.Remove(some, func(err error) {
		n := uint64(0)
		k.mu.Lock()
		defer k.mu.Unlock()
		r.removing = false
		for _, s := range some {
			n += s.Next - s.From
			if err != nil {
				r.again = k.addSpan(r.again, span{s.From, s.Next})
			}
		}
		switch {
		case k.closed != 0:
		case err != nil:
			k.arm(retryAfter)
		default:
			k.service.released.Add(n)
			k.service.tasks.wake(k)
		}
	})
	if err == nil {
		r.out = slices.Delete(r.out, 0, len(some))
		return
	}
	k.service.config.Logger.Warn("what no subscription needs can't be removed; trying again", "topic", k.shard.name, "error", err)
	k.mu.Lock()
	r.removing = false
	k.mu.Unlock()
	k.retryRelease()
}

// need is what a Subscription with a filter needs, of all records that match.
type need struct {
	filters [][]byte
	of      spans
}

// judge returns the records that no Subscription needs, and the offsets that are still to be looked
// at. It reads subjects for as long as there is a budget, and only those that it depends on. An
// error is that of reading. stepping is held.
func (k *cursorStore) judge(w *worker, policy coordination.StreamRetention, some spans, budget *int) (gone, rest spans, err error) {
	var filtered []need
	unfiltered := false
	for _, s := range k.each() {
		s.mu.Lock()
		filters, needed := s.settings.filters, s.cursor.needs(some)
		s.mu.Unlock()
		needed = k.heldBack(s, some, needed)
		if len(filters) > 0 {
			filtered = append(filtered, need{filters, needed})
			continue
		}
		unfiltered = true
		some = some.without(needed)
	}
	var unsure spans
	switch {
	case policy == coordination.WorkQueue && unfiltered:
		return some, nil, nil
	case policy == coordination.WorkQueue:
		for _, n := range filtered {
			unsure = append(unsure, some.without(n.of)...)
		}
		unsure = merge(unsure)
	default:
		gone = some
		for _, n := range filtered {
			gone = gone.without(n.of)
		}
		unsure = some.without(gone)
	}
	rest, err = k.readSubjects(w, unsure, budget, func(r *log.Record) {
		matched := false
		for _, n := range filtered {
			if !slices.ContainsFunc(n.filters, func(f []byte) bool { return subject.Matches(f, r.Subject) }) {
				continue
			}
			if matched = true; n.of.has(r.Offset) {
				return
			}
		}
		if matched || policy == coordination.InterestPolicy {
			gone = append(gone, span{r.Offset, r.Offset + 1})
		}
	})
	return merge(gone), rest, err
}

// readSubjects calls f for the records of some offsets that can be read, until the budget of bytes
// is used. It returns the offsets that are left. stepping is held.
func (k *cursorStore) readSubjects(w *worker, of spans, budget *int, f func(*log.Record)) (rest spans, err error) {
	if len(of) == 0 {
		return nil, nil
	}
	if k.releases.cursor == nil {
		k.releases.cursor = k.shard.NewCursor(of[0].from)
	}
	c := k.releases.cursor
	c.Lend(w.otherMemory)
	defer func() { w.otherMemory = c.Lend(nil) }()
	for at := of[0].from; ; {
		for len(of) > 0 && of[0].next <= at {
			of = of[1:]
		}
		if len(of) == 0 {
			return nil, nil
		}
		if at = max(at, of[0].from); at > of[0].from {
			of[0].from = at
		}
		if *budget <= 0 {
			return of, nil
		}
		if c.Next() != at {
			c.Seek(at)
		}
		want := readLargest
		if of[0].next-at <= fewReleased {
			want = readSmallest
		}
		v, err := c.Read(want)
		if err != nil {
			if at, err = k.passUnreadable(at, err); err != nil {
				return of, err
			}
			continue
		}
		if v.End == v.From {
			return of, errNoRecords
		}
		rest := of
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			*budget -= len(b)
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				for len(rest) > 0 && rest[0].next <= r.Offset {
					rest = rest[1:]
				}
				if len(rest) > 0 && r.Offset >= max(rest[0].from, at) {
					f(&r)
				}
			}
		}
		at = v.End
		v.Release()
	}
}

var errNoRecords = errors.New("the log ends there")

// passUnreadable returns the offset behind records that can't be read: they stay. An error is to
// be tried again.
func (k *cursorStore) passUnreadable(at uint64, err error) (next uint64, _ error) {
	var gone *log.RangeError
	var damaged *log.CorruptError
	err = k.shard.Unreadable(err)
	switch {
	case errors.As(err, &gone) && gone.Start > at:
		return gone.Start, nil
	case errors.As(err, &damaged) && damaged.Next > at:
		return damaged.Next, nil
	}
	return at, err
}
