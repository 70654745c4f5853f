package subscription

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// cursorStore holds the Subscriptions of one shard and writes its state log.
type cursorStore struct {
	work.State
	service *Service
	shard   *servedShard
	// base is when the buffer began to fill, in milliseconds since 1970. Times in the buffer are
	// relative to it.
	base    int64
	putting bool // a buffer is being appended; if that fails, its content comes back
	loose   bool // of what was appended last nobody has awaited that it is durable

	// stepping is held by step and close. It is locked before the locks of Subscriptions, and those
	// before mu.
	stepping  sync.Mutex
	recovered map[string]recovered // cursors of the state log whose Subscription is not known yet
	damage    error                // the damage of the state log, if any
	since     time.Time            // when the state log was opened
	written   int                  // bytes since the last full snapshot
	snapshot  int                  // bytes of that snapshot
	removals  uint64               // RemovalBytes then
	append    log.Append
	record    [1]log.Record
	stopWatch func()
	// wholeAt is the RemovalBytes at which a snapshot is due.
	wholeAt atomic.Uint64
	// releasing: the Topic's retention removes what is acknowledged.
	releasing atomic.Bool
	releases  releases

	mu         sync.Mutex
	opened     bool   // the state log was read; set by step
	handles    uint64 // the greatest handle in use
	subs       map[string]*entry
	holds      map[string]int // by name: who holds the first delivery of a push
	buffer     []byte
	spare      []byte
	readers    []byte // reader items that go with buffer
	readerSize int    // of all reader items of this store, in bytes
	last       op     // not yet in buffer, so that acks in sequence merge; kind 0: none
	lastHandle uint64 // handle
	waiters    []func(error)
	again      []func(error) // waiters that wait for the next write after one that failed
	free       []*completion
	others     int  // bytes of others before what they need, see Rewrite
	dirty      bool // the log lacks changes: only a full snapshot repairs that
	// desiredVersion counts the changes of the desired Subscriptions, and appliedVersion the
	// applied ones. names are those still to apply; all means all of them.
	desiredVersion, appliedVersion int
	names                          []string
	all                            bool
	// startAgain is when to write start positions again whose write failed; zero: none.
	startAgain time.Time
	failed     error
	trimTo     uint64
	tail       *tail
	timer      *time.Timer
	armed      bool
	closed     End
	waiting    []*Subscription // those that wait for new records
	blocked    []*Subscription // those that have too many pending records
	wokenAt    uint64          // version of the set of removed records that woke those last
}

// entry is a name in a cursorStore.
type entry struct {
	sub          *Subscription // nil: not served
	of           int64         // create revision of its key
	made         int64         // its incarnation
	served       bool
	startPending bool // the start position is being written
	why          *NotServedError
}

func newCursorStore(s *Service, p *servedShard) *cursorStore {
	k := &cursorStore{
		service: s, shard: p, base: s.now() / int64(time.Millisecond),
		subs: map[string]*entry{}, desiredVersion: 1, all: true, since: time.Now(),
	}
	k.tail = newTail(k)
	return k
}

// step opens the state log, applies the desired Subscriptions, writes pending ops, and removes
// what is not needed any more.
func (k *cursorStore) step(w *worker) (more bool) {
	k.stepping.Lock()
	defer k.stepping.Unlock()
	k.mu.Lock()
	closed, opened := k.closed, k.opened
	k.mu.Unlock()
	if closed != 0 {
		return false
	}
	if !opened {
		if err := k.open(); err != nil {
			k.service.config.Logger.Error("the cursors of a topic can't be read; trying again", "topic", k.shard.name, "error", err)
			k.mu.Lock()
			k.failed = err
			k.arm(retryAfter)
			k.mu.Unlock()
			k.service.notifyWaiters()
			return false
		}
		k.releasing.Store(removes(k.policyOf(k.service.newest())))
		k.restoreReaders()
		k.mu.Lock()
		k.opened, k.failed = true, nil
		k.mu.Unlock()
		k.service.notifyWaiters()
		k.stopWatch = k.shard.Watch(k.moved)
	}
	k.reconcile()
	k.write()
	k.followTail()
	if k.release(w) {
		k.service.tasks.Wake(k, work.Normal) // deliveries don't wait for it
	}
	k.trim()
	k.mu.Lock()
	if !k.startAgain.IsZero() && !k.armed {
		k.arm(time.Until(k.startAgain))
	}
	k.mu.Unlock()
	return false
}

// followTail has cursors follow what the tail has judged, where acks remove. stepping is held.
func (k *cursorStore) followTail() {
	if !k.releasing.Load() {
		return
	}
	_, end := k.shard.Offsets()
	rest := k.tail.follow(end, k.service.now())
	k.mu.Lock()
	defer k.mu.Unlock()
	if rest > 0 && !k.armed {
		k.arm(rest)
	}
}

// moved wakes the Subscriptions that wait for new records, or for pending ones to be removed. It
// must not take long, so the store's step wakes many of the first.
func (k *cursorStore) moved() {
	if k.shard.RemovalBytes() > k.wholeAt.Load() {
		k.service.tasks.wake(k)
	}
	k.mu.Lock()
	if version := k.shard.Removed().Version(); version != k.wokenAt {
		k.wokenAt = version
		for i, s := range k.blocked {
			s.awaitsRemoval = false
			k.service.tasks.wake(s)
			k.blocked[i] = nil
		}
		k.blocked = k.blocked[:0]
	}
	if k.releases.policy == coordination.InterestPolicy && !k.armed {
		k.arm(lazyFor) // nobody may be interested in new records
	}
	if k.tail.waiting.Load() > 0 {
		k.service.tasks.wake(k.tail)
	}
	if len(k.waiting) <= 64 {
		k.wakeWaiting()
	} else {
		k.service.tasks.wake(k)
	}
	k.mu.Unlock()
}

// wakeWaiting wakes the Subscriptions that wait for new records. mu is held.
func (k *cursorStore) wakeWaiting() {
	for i, s := range k.waiting {
		s.waits = false
		k.service.tasks.wake(s)
		k.waiting[i] = nil
	}
	k.waiting = k.waiting[:0]
}

// wait wakes a Subscription when the next records arrive.
func (k *cursorStore) wait(s *Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !s.waits {
		s.waits = true
		k.waiting = append(k.waiting, s)
	}
}

// waitForRemoval wakes a Subscription with too many pending records when records are removed, and
// reports whether some were removed that it has not looked at. The Subscription's mu is held.
func (k *cursorStore) waitForRemoval(s *Subscription) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !s.awaitsRemoval {
		s.awaitsRemoval = true
		k.blocked = append(k.blocked, s)
	}
	return k.shard.Removed().Version() != s.removals.pending
}

// fill sets base if the buffer is empty. mu is held.
func (k *cursorStore) fill() {
	if len(k.buffer) == 0 && k.last.kind == 0 && !k.putting {
		k.base = k.service.now() / int64(time.Millisecond)
	}
}

// note adds an op to the buffer. It is written within lazyFor.
func (k *cursorStore) note(handle uint64, o op) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed != 0 {
		return
	}
	if o.kind == opAck {
		k.settle(o.offset, o.offset+o.count)
	}
	if k.dirty {
		return // the snapshot will have it
	}
	k.fill()
	if l := &k.last; l.kind == o.kind && o.kind.counted() && k.lastHandle == handle && o.offset == l.offset+l.count &&
		o.deadline == l.deadline && l.count+o.count <= mostPending {
		l.count += o.count
	} else {
		k.flushLast()
		k.last, k.lastHandle = o, handle
	}
	eager := k.service.eager.Load()
	if !k.armed && !eager {
		k.arm(lazyFor)
	}
	if eager || len(k.buffer) > lazyBytes {
		k.service.tasks.wake(k)
	}
}

// unsettled reports whether something that was noted may not be as durable as the Topic requires.
func (k *cursorStore) unsettled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.kind != 0 || len(k.buffer) > 0 || len(k.readers) > 0 || k.putting || k.loose || k.dirty
}

// flushLast moves the last op into the buffer. mu is held.
func (k *cursorStore) flushLast() {
	if k.last.kind != 0 {
		k.buffer = appendOp(k.buffer, k.lastHandle, k.last, k.base)
		k.last = op{}
	}
}

// await calls done when everything noted so far is as durable as the Topic requires, or cannot be.
// If it returns an error, done is not called.
func (k *cursorStore) await(done func(error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refusal(); err != nil {
		return err
	}
	k.waiters = append(k.waiters, done)
	k.service.tasks.wake(k)
	return nil
}

// othersWrote has a full snapshot written if so many bytes of others are worth it.
func (k *cursorStore) othersWrote(others int) {
	k.mu.Lock()
	k.others = others
	k.mu.Unlock()
	k.service.tasks.wake(k)
}

// accepts returns why nothing can be written, or nil.
func (k *cursorStore) accepts() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refusal()
}

// refusal is accepts under mu.
func (k *cursorStore) refusal() error {
	switch {
	case k.closed != 0:
		return fmt.Errorf("it is not served here any more (%s); acknowledge again", k.closed)
	case k.failed != nil:
		return fmt.Errorf("it can't be kept: %w", k.failed)
	}
	return nil
}

// writeStart writes the start position of a Subscription, which is served once that is durable. The
// Subscription's mu is held.
func (k *cursorStore) writeStart(s *Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.subs[s.id.name]
	if e == nil || e.sub != s || e.served || e.startPending {
		return
	}
	switch {
	case s.search.failed != "":
		e.why = k.notServed(s.id.name, Unsupported, s.search.failed, nil)
		k.service.notifyWaiters()
		return
	}
	if !k.dirty {
		k.addSnapshot(s)
	}
	if s.volatile() {
		e.served = true
		k.service.notifyWaiters()
		if !k.armed {
			k.arm(lazyFor)
		}
		return
	}
	e.startPending = true
	pushes := s.push != nil
	k.waiters = append(k.waiters, func(err error) {
		k.mu.Lock()
		e.startPending, e.served = false, err == nil
		e.why = nil
		if restarted := err == nil && e.sub == s && k.subs[s.id.name] == e; restarted && s.unstarted.Swap(false) {
			pushes = true
		}
		if err != nil {
			e.why = k.notServed(s.id.name, Troubled, "where it starts can't be written; trying again: "+err.Error(), err)
			if k.startAgain.IsZero() && !s.ephemeral.Load() { // whoever creates a reader tries again
				k.startAgain = time.Now().Add(retryAfter)
			}
			k.arm(retryAfter)
		}
		k.mu.Unlock()
		k.service.notifyWaiters()
		if pushes { // nothing else wakes it, and requests may wait for a reset
			k.service.tasks.wake(s)
		}
	})
	k.service.tasks.wake(k)
}

func (k *cursorStore) notServed(name string, reason NotServedReason, why string, err error) *NotServedError {
	return &NotServedError{Topic: k.shard.topicID, Name: name, Reason: reason, Why: why, Err: err}
}

// arm schedules a step of the store. mu is held.
func (k *cursorStore) arm(after time.Duration) {
	if k.closed != 0 {
		return
	}
	k.armed = true
	if k.timer == nil {
		k.timer = time.AfterFunc(after, func() { k.service.tasks.wake(k) })
	} else {
		k.timer.Reset(after)
	}
}

// reconcile applies the desired Subscriptions. stepping is held.
func (k *cursorStore) reconcile() {
	k.mu.Lock()
	k.wakeWaiting()
	told, names, all := k.desiredVersion, k.names, k.all
	again := !k.startAgain.IsZero() && !time.Now().Before(k.startAgain)
	if again {
		k.startAgain = time.Time{}
	}
	fresh := told != k.appliedVersion
	k.names, k.all = nil, false
	k.mu.Unlock()
	if again {
		k.retryStarts()
	}
	if !fresh {
		return
	}
	state := k.service.current() // at least as new as desiredVersion
	if k.appliedVersion == 0 {
		state = k.service.newest() // that in which this broker leads, or a later one
	}
	if state == nil {
		k.mu.Lock()
		k.all = true
		k.mu.Unlock()
		return
	}
	policy := k.policyOf(state)
	if removes(policy) {
		defer k.setPolicy(policy) // when all needs are known
	} else {
		k.setPolicy(policy)
	}
	if all || policy == coordination.WorkQueue { // there one may make room for another
		k.applyAll(state, policy)
	} else {
		for _, name := range names {
			if d := state.Subscription(k.shard.topicID, name); d != nil {
				k.apply(d, policy, "")
			} else if !unreadable(state, k.shard.topicID, name) && !k.isReader(name) {
				k.drop(name)
			}
		}
	}
	k.mu.Lock()
	k.appliedVersion = told
	k.mu.Unlock()
	k.service.notifyWaiters()
}

// topicChanged makes the store apply a changed Topic.
func (k *cursorStore) topicChanged() {
	k.mu.Lock()
	k.desiredVersion++
	k.mu.Unlock()
	k.service.tasks.wake(k)
}

// desiredChanged makes the store apply what is desired under a name, or under all names.
func (k *cursorStore) desiredChanged(name string, all bool) {
	k.mu.Lock()
	k.desiredVersion++
	if all || len(k.names) >= 1024 {
		k.names, k.all = nil, true
	} else if !k.all {
		k.names = append(k.names, name)
	}
	k.mu.Unlock()
	k.service.tasks.wake(k)
}

// applyAll applies all desired Subscriptions. stepping is held.
func (k *cursorStore) applyAll(state desires, policy coordination.StreamRetention) {
	desired := map[string]bool{}
	all := slices.Clone(state.Subscriptions(k.shard.topicID))
	for _, d := range all {
		desired[d.Name] = true
	}
	k.mu.Lock()
	var gone []string
	for name, e := range k.subs {
		if !desired[name] && !(e.sub != nil && e.sub.ephemeral.Load()) {
			gone = append(gone, name)
		}
	}
	for name := range k.recovered {
		if !desired[name] && k.subs[name] == nil {
			gone = append(gone, name)
		}
	}
	k.mu.Unlock()
	for _, name := range gone {
		if !unreadable(state, k.shard.topicID, name) {
			k.drop(name)
		}
	}
	if policy != coordination.WorkQueue {
		for _, d := range all {
			k.apply(d, policy, "")
		}
		return
	}
	slices.SortFunc(all, func(a, b *coordination.Subscription) int { return cmp.Compare(a.Made, b.Made) })
	why := excluded(all)
	for _, first := range []bool{true, false} { // those that are excluded end first
		for _, d := range all {
			if (why[d.Name] != "") == first {
				k.apply(d, policy, why[d.Name])
			}
		}
	}
}

// unreadable reports whether there is a Subscription of that name that this version cannot decode.
func unreadable(state desires, topicID, name string) bool {
	for _, key := range state.Unreadable() {
		if strings.HasSuffix(key, "/subscriptions/"+topicID+"/"+name) {
			return true
		}
	}
	return false
}

// isSubscriptionOf reports whether a key is that of a Subscription of a Topic.
func isSubscriptionOf(key, topicID string) bool {
	return strings.Contains(key, "/subscriptions/"+topicID+"/")
}

// retryStarts writes start positions again whose write failed. stepping is held.
func (k *cursorStore) retryStarts() {
	k.mu.Lock()
	var some []*Subscription
	for _, e := range k.subs {
		if e.sub != nil && !e.served && !e.startPending {
			some = append(some, e.sub)
		}
	}
	k.mu.Unlock()
	for _, s := range some {
		s.mu.Lock()
		if s.search.done && s.closed == 0 {
			k.writeStart(s)
		}
		s.mu.Unlock()
	}
}

// apply creates a desired Subscription or updates the existing one. excluded is why a work queue
// has no room for it; empty: it has. stepping is held.
func (k *cursorStore) apply(d *coordination.Subscription, policy coordination.StreamRetention, excluded string) {
	why := cmp.Or(unsupported(d.Spec), k.refusesDeadLetters(d.Spec), k.refusesPush(d.Spec), d.Spec.Unjudgeable(policy, k.shards()), excluded)
	k.mu.Lock()
	e := k.subs[d.Name]
	k.mu.Unlock()
	if why == "" && policy == coordination.WorkQueue {
		why = cmp.Or(k.queueConflict(d.Name, d.Spec, func(s *Subscription) bool { return s.ephemeral.Load() }), k.resetConflict(d, e))
	}
	if e != nil && e.sub != nil && d.Forgot(e.made) {
		// The cursor of the later reset stays, and the next reset is another one.
		e.made = d.Incarnation()
		e.sub.mu.Lock()
		e.sub.id.made = e.made
		e.sub.mu.Unlock()
		k.mu.Lock()
		k.dirty = true
		k.mu.Unlock()
	}
	if e != nil && e.sub != nil && e.sub.ephemeral.Load() && e.sub.created.Equal(d.Created) {
		k.makeDurable(e, d)
	}
	if e != nil && e.made != d.Incarnation() {
		if why == "" && e.sub != nil && e.of == d.Made {
			e.sub.restart(d, &entry{sub: e.sub, of: d.Made, made: d.Incarnation()})
			return
		}
		k.drop(d.Name)
		e = nil
	}
	if e != nil && e.sub != nil && why != "" {
		k.park(e.sub)
		e = nil
	}
	if e != nil && e.sub != nil {
		if e.sub.Spec() != d.Spec {
			e.sub.respecify(d.Spec)
		}
		return
	}
	reset, kept := false, []uint64(nil) // while it was not led here
	if r, ok := k.recovered[d.Name]; ok && d.Forgot(r.id.made) {
		r.id.made = d.Incarnation()
		k.recovered[d.Name] = r
		k.mu.Lock()
		k.dirty = true
		k.mu.Unlock()
	} else if ok && r.id.made != d.Incarnation() {
		if d.Supersedes(r.id.made) && k.releasing.Load() {
			r.cursor.maxDeliver = uint32(min(d.Spec.Ack.MaxDeliver, math.MaxUint32))
			kept = r.cursor.givenUp(endless)
		}
		k.drop(d.Name)
		reset = d.Resets > 0
	}
	e = &entry{of: d.Made, made: d.Incarnation()}
	r, known := k.recovered[d.Name]
	switch {
	case why != "":
		e.why = k.notServed(d.Name, Unsupported, why, nil)
	case known && r.cursor.lost:
		e.why = k.notServed(d.Name, Troubled, "where it stood is on a part of the disk that is damaged; delete it and make it again, with the start that you want", k.damage)
	case !known && k.damage != nil && d.Created.Before(k.since) && !reset:
		// Whether it had a cursor is unknown, and starting anew could deliver acknowledged records.
		k.recovered[d.Name] = recovered{handle: k.newHandle(), id: identity{d.Name, d.Incarnation()}, cursor: cursor{lost: true}}
		k.mu.Lock()
		k.dirty = true
		k.mu.Unlock()
		e.why = k.notServed(d.Name, Troubled, "where it stood is on a part of the disk that is damaged; delete it and make it again, with the start that you want", k.damage)
	default:
		e.sub = newSubscription(k, identity{d.Name, d.Incarnation()}, d.Spec, k.shards())
		e.sub.created, e.sub.begin = d.Created, d.Begin()
		e.sub.inactive = int64(d.Spec.Consumer.InactiveThreshold)
		e.served = known
		if known {
			k.restoreCursor(e.sub, &r)
		} else {
			e.sub.handle, e.sub.cursor.kept = k.newHandle(), kept
		}
	}
	k.mu.Lock()
	k.subs[d.Name] = e
	k.mu.Unlock()
	if e.sub != nil {
		k.service.tasks.wake(e.sub)
	}
}

// restoreCursor gives a Subscription its cursor of the state log. stepping is held.
func (k *cursorStore) restoreCursor(s *Subscription, r *recovered) {
	_, end := k.shard.Offsets()
	s.handle, s.cursor = r.handle, r.cursor
	if s.begin.From == coordination.FromOffset && s.cursor.sequence == 0 && r.beyond > 0 && r.beyond+1 == s.begin.Offset {
		s.cursor.apply(op{kind: opSkip, offset: r.beyond}) // it waits for its first record
	}
	s.cursor.setMaxDeliver(s.settings.maxDeliver)
	s.known = r.known
	s.search = started
	s.reader = *k.shard.NewCursor(min(s.cursor.offset+1, end))
	s.trouble = r.trouble
	delete(k.recovered, s.id.name)
}

// park ends a Subscription and keeps its cursor. stepping is held.
func (k *cursorStore) park(s *Subscription) {
	s.close(Deleted)
	s.mu.Lock()
	done := s.search.done
	r := recovered{handle: s.handle, id: s.id, cursor: s.cursor, known: s.known, trouble: s.trouble}
	s.mu.Unlock()
	k.mu.Lock()
	if e := k.subs[s.id.name]; e != nil && e.served && done {
		k.recovered[s.id.name] = r
	}
	delete(k.subs, s.id.name)
	k.mu.Unlock()
}

// drop ends the Subscription of a name and deletes its cursor. stepping is held.
func (k *cursorStore) drop(name string) {
	k.mu.Lock()
	e := k.subs[name]
	delete(k.subs, name)
	r, known := k.recovered[name]
	delete(k.recovered, name)
	if known {
		k.forget(r.handle)
	}
	k.mu.Unlock()
	if known {
		k.unneeded(&r.cursor)
	}
	if e == nil || e.sub == nil {
		return
	}
	e.sub.close(Deleted)
	e.sub.gone()
	k.mu.Lock()
	k.readerSize -= e.sub.readerSize
	k.forget(e.sub.handle)
	k.mu.Unlock()
}

// newHandle returns a handle that is not in use.
func (k *cursorStore) newHandle() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handles++
	return k.handles
}

// forget notes that a handle is free. mu is held.
func (k *cursorStore) forget(handle uint64) {
	if k.dirty {
		return
	}
	k.flushLast()
	k.buffer = appendGone(k.buffer, handle)
	if !k.armed {
		k.arm(lazyFor)
	}
}

// close ends all Subscriptions and appends what is not written yet. After it returns, the store
// does not use the shard any more.
func (k *cursorStore) close(why End) {
	k.stepping.Lock()
	defer k.stepping.Unlock()
	if k.stopWatch != nil {
		k.stopWatch()
	}
	for _, s := range k.each() {
		s.close(why)
	}
	k.mu.Lock()
	opened := k.opened
	k.mu.Unlock()
	if opened {
		k.write()
	}
	k.mu.Lock()
	k.closed = why
	waiters := k.waiters
	k.waiters, k.waiting, k.blocked = nil, nil, nil
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	// A create may have added one meanwhile.
	for _, s := range k.each() {
		s.close(why)
	}
	for _, done := range waiters {
		done(fmt.Errorf("it is not served here any more (%s); acknowledge again", why))
	}
}

// each returns the Subscriptions, in no particular order.
func (k *cursorStore) each() []*Subscription {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Subscription, 0, len(k.subs))
	for _, e := range k.subs {
		if e.sub != nil {
			all = append(all, e.sub)
		}
	}
	return all
}
