package subscription

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// Subscription is one Subscription that is served here. Its methods are safe for concurrent use.
//
// Brokers have many that are idle. So it fits into 1,280 bytes, one of the allocator's sizes, of
// which the next is 1,408 (TestIdleSubscriptionsAreCheap): small fields stand together, without
// gaps between them, and what few Subscriptions use is behind a pointer.
type Subscription struct {
	work.State
	ephemeral atomic.Bool  // a reader: its spec is in the state log, too
	sample    atomic.Int32 // share of acks that is reported, in percent
	// unstarted: it was reset, and its new start position is not durable yet. Nothing is delivered
	// before, since after a crash it would begin at another record then.
	unstarted     atomic.Bool
	ackless       bool // it expects no acks, which never changes
	counted       bool // as a reader of its maker; guarded by mu of makers
	waits         bool // it is in the store's waiting list; guarded by the store's mu
	awaitsRemoval bool // it is in the store's blocked list; guarded by the store's mu

	service *Service
	store   *cursorStore
	id      identity
	created time.Time
	// inactive is how long an unused reader lives, and a durable Subscription is unused before it is
	// reported, in nanoseconds. 0: for ever.
	inactive   int64
	maker      string // of a reader: the user who made it; empty: no user
	readerSize int    // of its reader item, in bytes; guarded by the store's mu
	// keepUntil is before when it is not retired, in nanoseconds of Service.now.
	keepUntil int64
	// declaring is before when it is not retired, since it is being declared; guarded by mu of the
	// store.
	declaring int64
	unlogged  unlogged

	// sinkMu is held while the sink is used. It is locked before mu.
	sinkMu sync.Mutex
	sink   DeliverySink
	sizer  Sizer // sink, if it is a Sizer

	mu               sync.Mutex
	spec             *coordination.SubscriptionSpec
	begin            *coordination.Start // where its cursor begins
	settings         settings
	handle           uint64
	cursor           cursor
	closed           End    // 0: open
	skipUnlogged     bool   // the state log lacks the last skip
	counting         bool   // the index counts for the next delivery
	blocked          bool   // too many records are pending
	unflushed        bool   // the sink has something to flush
	endangered       bool   // what Endangered said last
	freed            bool   // it was looked for records that a former leader's Endpoint had
	known            uint64 // records below it may have been delivered in an earlier life
	search           *startSearch
	changes          uint64     // how often it was reset or its spec changed
	reader           log.Cursor // of first deliveries
	readEnd          uint64     // end of what it read last
	passes           uint64     // the state log lacks these last deliveries without acks
	passedFrom       uint64     // the first offset behind the cursor before them
	replay           replay     // of a replay at the original speed
	turnstile        turnstile
	countNext        int64       // when it is asked again after a failure
	pin              *pin        // the pinned client, if that is the policy; nil: nobody is pinned
	readError        string      // why records cannot be read at present
	redeliveryReader *log.Cursor // of redeliveries
	mean             int         // average bytes per record
	push             *push       // nil: clients pull
	claim            Claim       // the latest one of a relay
	waiting          requests
	refused          []*request
	timer            *time.Timer
	timerAt          int64
	scanned          int64 // when deadlines were scanned last
	ahead            lookahead
	verdicts         *verdicts // of its condition; nil: it never had one
	removals         removals
	newest           []uint64     // records to deliver below cursor.until; nil: not known yet
	dead             *deadLetters // nil: records that are given up are dropped
	swept            int64        // when requests that nobody waits for were last looked for
	lastSeen         struct {
		delivered, acked, used int64
	}
	exhausted, skipped uint64
	trouble            string
}

// newSubscription returns a Subscription with a cursor in each of so many shards.
func newSubscription(k *cursorStore, id identity, spec *coordination.SubscriptionSpec, shards int) *Subscription {
	s := &Subscription{
		service: k.service, store: k, id: id, spec: spec, begin: &spec.Start, search: &startSearch{}, settings: settingsOf(spec, shards),
		mean: 256, timerAt: math.MaxInt64, sink: k.service.sink(k.shard.topic, id.name),
	}
	s.verdicts = newVerdicts(&s.settings)
	s.sizer, _ = s.sink.(Sizer)
	s.lastSeen.used = k.service.now()
	s.cursor.setMaxDeliver(s.settings.maxDeliver)
	s.push = newPush(&s.settings)
	s.dead = newDeadLetters(nil, spec.DeadLetter)
	s.sample.Store(samplePercent(spec))
	s.ackless = s.settings.policy == coordination.AckNone
	return s
}

// Name returns the Subscription's name.
func (s *Subscription) Name() string { return s.id.name }

// Spec returns the desired spec. It is shared: never change it.
func (s *Subscription) Spec() *coordination.SubscriptionSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// Created returns when it was created.
func (s *Subscription) Created() time.Time { return s.created }

// Ephemeral reports whether it is a reader: it is in the shard's state log only, and deleted when
// it was unused for some time.
func (s *Subscription) Ephemeral() bool { return s.ephemeral.Load() }

// volatile reports whether nobody waits until its start and its acks are durable. mu is held.
func (s *Subscription) volatile() bool { return s.ephemeral.Load() && s.spec.Consumer.MemoryStorage }

// respecify applies a changed spec.
func (s *Subscription) respecify(spec *coordination.SubscriptionSpec) {
	s.mu.Lock()
	s.changeSpec(spec)
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// changeSpec is respecify without a wake. mu is held.
func (s *Subscription) changeSpec(spec *coordination.SubscriptionSpec) {
	s.changes++
	before := s.settings
	shards := 1
	if !s.ephemeral.Load() { // a reader reads one shard
		shards = s.store.shards()
	}
	s.spec, s.settings = spec, settingsOf(spec, shards)
	if s.verdicts == nil {
		s.verdicts = newVerdicts(&s.settings)
	}
	s.sample.Store(samplePercent(spec))
	s.inactive = int64(spec.Consumer.InactiveThreshold)
	former := s.dead
	s.dead = newDeadLetters(former, spec.DeadLetter)
	if s.dead != former || s.settings.maxDeliver != before.maxDeliver {
		s.cursor.setMaxDeliver(s.settings.maxDeliver)
		s.dead.reconsider(&s.cursor)
	}
	if s.settings.priority != coordination.PriorityPinned {
		s.pin = nil
	}
	if !before.sameFilters(&s.settings) {
		s.store.lookAgain(s.cursor.lowest(), endless)
		s.ahead = lookahead{}
		s.verdicts.restart()
		s.store.tail.leave(s)
		s.newest = nil
	}
	if s.closed == 0 {
		s.redirect(&before)
	}
}

// Pull requests messages. The DeliverySink gets them, and the End of the request.
func (s *Subscription) Pull(p Pull) { s.pull(&p, nil, nil) }

// PullWithin is Pull of a user with a quota, beside p so that nothing of that escapes to the heap.
// Beyond the quota it ends as one beyond the Subscription's own bound.
func (s *Subscription) PullWithin(quota *PullQuota, p Pull) { s.pull(&p, quota, nil) }

// PullFunc is Pull whose result goes to done instead of the DeliverySink. done is called once,
// after the deliveries were flushed, without a lock of this package. It must not block. The caller
// bounds its waiting requests itself.
func (s *Subscription) PullFunc(p Pull, done func(Outcome)) { s.pull(&p, nil, done) }

func (s *Subscription) pull(p *Pull, quota *PullQuota, done func(Outcome)) {
	s.mu.Lock()
	now := s.service.now()
	s.lastSeen.used = now
	if (s.waiting.n >= s.settings.maxWaiting || quota.Full()) && s.closed == 0 && (s.waiting.n <= fewWaiting || now-s.swept >= int64(sweepEvery)) {
		s.dropDeserted()
		s.swept = now
	}
	why := TooManyWaiting
	if s.push != nil || s.settings.relayed != p.Relay {
		why = Pushed
	} else if p.Relay && s.claimed(p.Claim) != 0 {
		why = Superseded
	} else if !s.pin.admits(p.Pin, now+s.settings.pinFor) {
		why = PinMismatch
	}
	switch {
	case why == TooManyWaiting && s.closed == 0 && (s.waiting.n < s.settings.maxWaiting || done != nil) && quota.Enter(p.names()):
		s.waiting.add(p, quota, done, now)
	case why == TooManyWaiting && p.Heartbeat > 0 && s.closed == 0:
		// Its client would pull again at once, in a loop. It learns by the missing heartbeats.
	case len(s.refused) < s.settings.maxWaiting || done != nil:
		r := &request{to: append([]byte(nil), p.To...), left: max(p.Batch, 1), bytes: p.MaxBytes, bounded: p.MaxBytes > 0, done: done, why: why}
		s.refused = append(s.refused, r)
	}
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// dropDeserted drops the requests whose destination has no subscriber any more. mu is held.
func (s *Subscription) dropDeserted() {
	s.waiting.sweep(func(r *request) bool {
		return r.peek || s.sink.Interested(r.to)
	})
}

var errNotDelivered = errors.New("it was not delivered; nothing changed")

// Ack acknowledges a delivery. done, if not nil, is called once: with nil when the ack is as
// durable as the Topic requires, or with an error. It must not block.
func (s *Subscription) Ack(offset, sequence, delivered uint64, kind AckKind, delay time.Duration, done func(error)) {
	s.mu.Lock()
	err := s.ack(offset, delivered, kind, delay)
	wake := (s.waiting.n > 0 || s.push != nil) && (s.blocked && s.cursor.pending.live < s.settings.maxPending || kind == Retry)
	wake = wake || s.dead != nil && kind == Term
	if done != nil && err == nil && !s.volatile() {
		// Under mu, so that the op is noted before.
		err = s.store.await(done)
		if err == nil {
			done = nil
		}
	}
	s.mu.Unlock()
	if wake {
		s.service.tasks.wake(s)
	}
	if done != nil {
		if err != nil {
			err = fmt.Errorf("subscription %s: ack of offset %d: %w", s.id.name, offset, err)
		}
		done(err)
	}
}

// Deliveries returns how often a pending record was delivered, or 0 if it isn't pending.
func (s *Subscription) Deliveries(offset uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.cursor.pending.find(offset); d != nil {
		return uint64(d.count)
	}
	return 0
}

// ack changes the cursor. mu is held.
func (s *Subscription) ack(offset, delivered uint64, kind AckKind, delay time.Duration) error {
	if s.closed != 0 {
		return &NotServedError{Topic: s.store.shard.topicID, Name: s.id.name, Reason: NoShard, Why: "it is not served here any more (" + s.closed.String() + "); acknowledge again"}
	}
	now := s.service.now()
	s.lastSeen.used, s.lastSeen.acked = now, now
	if s.settings.policy == coordination.AckNone {
		return nil
	}
	if offset > s.cursor.offset && (kind != Done && (kind != Term || s.dead != nil) || offset >= s.known || s.isFull(offset)) {
		return errNotDelivered
	}
	if kind == Done || kind == Term && (s.dead == nil || s.cursor.isKept(offset)) {
		s.settle(offset, kind)
		if s.dead != nil && s.cursor.pending.find(offset) == nil {
			s.dead.forget(offset)
		}
		return nil
	}
	d := s.cursor.pending.find(offset)
	if kind == Term {
		if d != nil {
			s.terminate(d)
		}
		return nil
	}
	if d == nil || delivered > 0 && delivered < uint64(d.count) {
		return nil // delivered to another client since, or not pending any more
	}
	if s.dead != nil && s.dead.givenUp[offset] != nil {
		return nil // it is not delivered again
	}
	ms := now / int64(time.Millisecond)
	switch {
	case kind == Progress:
		s.change(op{kind: opProgress, offset: offset, deadline: after(ms, s.settings.ackWait(d.count))})
	case delay > 0:
		s.change(op{kind: opRetry, offset: offset, deadline: after(ms, milliseconds(delay))})
	default:
		s.change(op{kind: opRetryNow, offset: offset})
	}
	return nil
}

// isFull reports whether too many acks beyond the cursor are noted to note another one. mu is held.
func (s *Subscription) isFull(offset uint64) bool {
	return len(s.cursor.ahead) >= mostAhead && s.settings.policy != coordination.AckAll
}

// settle ends the deliveries of a record. mu is held.
func (s *Subscription) settle(offset uint64, kind AckKind) {
	_, floor := s.cursor.floor()
	lowest := s.cursor.lowest()
	switch {
	case len(s.cursor.kept) > 0 && s.cursor.isKept(offset):
		s.change(op{kind: opAck, offset: offset, count: 1})
	case offset <= floor:
		return
	case kind == Done && s.settings.policy == coordination.AckAll:
		s.change(op{kind: opAckAll, offset: offset})
		s.store.lookAgain(lowest, offset+1)
		s.ahead.at = 0
	case offset > s.cursor.offset:
		if !s.cursor.isAhead(offset) {
			s.ahead.passed(offset, s.cursor.until)
		}
		s.change(op{kind: opAck, offset: offset, count: 1})
	case s.cursor.pending.find(offset) != nil:
		s.change(op{kind: opAck, offset: offset, count: 1})
	default:
		return
	}
	s.service.acked.Add(1)
}

// change applies an op and notes it for the state log. Deliveries without acks are noted together,
// by the next op or at the end of the step. mu is held.
func (s *Subscription) change(o op) {
	if o.kind == opPass {
		if s.passes == 0 {
			s.passedFrom = s.cursor.offset + 1
		}
		s.cursor.apply(o)
		s.passes += o.count
		return
	}
	s.notePasses()
	s.cursor.apply(o)
	s.dead.note(o)
	s.store.note(s.handle, o)
}

// notePasses notes deliveries without acks for the state log. A cursor keeps their number and the
// last offset only, so one op has all of them. mu is held.
func (s *Subscription) notePasses() {
	if n := s.passes; n > 0 {
		s.passes = 0
		s.store.note(s.handle, op{kind: opPass, offset: s.cursor.offset - n + 1, count: n})
		s.store.lookAgain(s.passedFrom, s.cursor.offset+1)
	}
}

// Info returns the state of the Subscription. Count before it makes its lag exact.
func (s *Subscription) Info() Info {
	s.judgeForInfo()
	w := spareWorkers.Get().(*worker)
	defer spareWorkers.Put(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info(w, s.service.now())
}

// InitialInfo is Info for the answer to whoever created the Subscription. Of a new push it returns,
// once, the state before the first delivery: clients count from there.
func (s *Subscription) InitialInfo() Info {
	s.judgeForInfo()
	w := spareWorkers.Get().(*worker)
	defer spareWorkers.Put(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.push; p != nil && p.initial != nil {
		i := *p.initial
		p.initial = nil
		return i
	}
	return s.info(w, s.service.now())
}

// info returns the state. mu is held.
func (s *Subscription) info(w *worker, now int64) Info {
	start, end := s.store.shard.Offsets()
	if s.closed == 0 && s.search.done {
		s.catchUp(now, start)
		s.dropDeserted()
		if len(s.waiting.ended) > 0 {
			s.service.tasks.wake(s)
		}
		s.recount(start, now, true)
		s.countAhead(w, start, end, infoBytes)
	}
	i := Info{
		DeliveredSequence: s.cursor.sequence, DeliveredOffset: s.cursor.offset,
		Pending: s.cursor.pending.live, Redelivered: s.cursor.repeated, Waiting: s.waiting.n,
		LastDelivered: s.service.at(s.lastSeen.delivered), LastAcked: s.service.at(s.lastSeen.acked),
		Exhausted: s.exhausted, Lost: s.skipped, Trouble: s.trouble,
	}
	if v := s.verdicts; v != nil {
		i.Unjudged, i.UnjudgedWhy = v.failed, v.why
	}
	if s.readError != "" {
		i.Trouble = s.readError
	}
	s.dead.describe(&i)
	if e := s.endpoint(); e != nil {
		i.Pushes, i.Endpoint = true, e.Info()
	}
	i.Bound, i.PausedFor = s.watched() && !s.settings.endpoint, s.pausedFor()
	if s.pin != nil {
		i.Pin, i.Pinned = s.pin.id, s.service.at(s.pin.since)
	}
	i.FloorSequence, i.FloorOffset = s.cursor.floor()
	i.Lag, i.LagExact = s.lag(start, end)
	return i
}

// spareWorkers are workers lent to callers that are not worker goroutines.
var spareWorkers = sync.Pool{New: func() any { return &worker{} }}

// close ends all requests. When it returns, the Subscription does not use the sink and the shard
// any more.
func (s *Subscription) close(why End) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	s.mu.Lock()
	if s.closed == 0 {
		s.closed = why
		s.service.makers.leave(s)
		for s.waiting.n > 0 {
			r := s.waiting.at(0)
			s.end(r, why)
			s.waiting.remove()
		}
		s.endRefused()
		if s.push != nil {
			s.push.stop()
		}
		if s.timer != nil {
			s.timer.Stop()
		}
		s.reader, s.redeliveryReader, s.ahead = log.Cursor{}, nil, lookahead{}
		s.verdicts.restart()
		s.store.tail.leave(s)
	}
	unflushed, over := s.unflushed, s.waiting.takeEnded()
	s.unflushed = false
	s.mu.Unlock()
	if unflushed {
		s.sink.Flush()
	}
	completeEnded(over)
}

// endPulls ends the requests of clients that wait. Those with a completion are of other brokers.
func (s *Subscription) endPulls(why End) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	s.mu.Lock()
	s.waiting.sweep(func(r *request) bool {
		if r.done == nil {
			s.end(r, why)
		}
		return r.done != nil
	})
	unflushed := s.unflushed
	s.unflushed = false
	s.mu.Unlock()
	if unflushed {
		s.sink.Flush()
	}
}

// gone notes that the shard's records are not needed by it any more. It is closed.
func (s *Subscription) gone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.unneeded(&s.cursor)
}

// completeEnded calls the completions of requests that have ended. mu is not held.
func completeEnded(over []ended) {
	for _, e := range over {
		e.done(e.outcome)
	}
}

// end ends a request with a reason. mu is held.
func (s *Subscription) end(r *request, why End) {
	if r.done != nil {
		r.why = why
		return
	}
	left := 0
	if r.bounded {
		left = r.bytes
	}
	s.sink.End(r.to, why, r.left, left)
	s.unflushed = true
}

// endRefused ends the requests that found no place to wait, or whose Subscription pushes. mu is
// held.
func (s *Subscription) endRefused() {
	for _, r := range s.refused {
		why := r.why
		if s.closed != 0 {
			why = s.closed
		}
		s.end(r, why)
		r.leave()
		if r.done != nil {
			s.waiting.ended = append(s.waiting.ended, ended{r.done, r.outcome()})
		}
	}
	s.refused = s.refused[:0]
}
