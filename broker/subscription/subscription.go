package subscription

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// Subscription is one durable reader, served here.
type Subscription struct {
	work.State
	service *Service
	store   *cursorStore
	id      identity
	created time.Time
	// inactive is how long an ephemeral one outlives its last use, and a durable one waits until it is
	// reported; in nanoseconds. 0: for ever.
	inactive  int64
	ephemeral bool

	// sinkMu is held while the sink is used; it comes before mu.
	sinkMu sync.Mutex
	sink   DeliverySink
	sizer  Sizer // the same, if it is one

	waits bool // it is among those that are woken by new records; guarded by the store's mu

	mu       sync.Mutex
	spec     *coordination.SubscriptionSpec
	settings settings
	handle   uint64
	cursor   cursor
	closed   End    // 0: open
	known    uint64 // records below it may have been delivered in an earlier life
	seeking  seeking
	reader   log.Cursor  // for what is delivered first
	readEnd  uint64      // where what it read last ends
	unnoted  bool        // what was skipped is not in the state log
	failing  string      // why records can't be read just now
	again    *log.Cursor // for what is delivered again
	mean     int         // bytes per record, about
	waiting  requests
	refused  []*request
	blocked  bool // too much is on its way
	told     bool // the sink has something to flush
	timer    *time.Timer
	timerAt  int64
	scanned  int64 // when deadlines were looked at last
	ahead    lookahead
	newest   []uint64 // what is left to deliver below cursor.until; nil: not known yet
	lastSeen struct {
		delivered, acked, used int64
	}
	exhausted, skipped uint64
	trouble            string
}

func newSubscription(k *cursorStore, id identity, spec *coordination.SubscriptionSpec) *Subscription {
	s := &Subscription{
		service: k.service, store: k, id: id, spec: spec, settings: settingsOf(spec),
		mean: 256, timerAt: math.MaxInt64, sink: k.service.sink(k.place.topic, id.name),
	}
	s.sizer, _ = s.sink.(Sizer)
	s.lastSeen.used = k.service.now()
	s.cursor.setMost(s.settings.most)
	return s
}

// Name is the Subscription's name.
func (s *Subscription) Name() string { return s.id.name }

// Spec is what is asked for. It belongs to all its readers.
func (s *Subscription) Spec() *coordination.SubscriptionSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// Created is when it was made.
func (s *Subscription) Created() time.Time { return s.created }

// Ephemeral says that it is in this broker's memory only.
func (s *Subscription) Ephemeral() bool { return s.ephemeral }

// respecify takes over another spec.
func (s *Subscription) respecify(spec *coordination.SubscriptionSpec) {
	s.mu.Lock()
	before := s.settings
	s.spec, s.settings = spec, settingsOf(spec)
	s.inactive = int64(spec.Consumer.InactiveThreshold)
	s.cursor.setMost(s.settings.most)
	if !before.sameFilters(&s.settings) {
		s.ahead = lookahead{}
		s.newest = nil
	}
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// Pull asks for messages. They go to the Outlet, as does the reason for which the request ends.
func (s *Subscription) Pull(p Pull) { s.pull(&p, nil) }

// Lend is Pull, but done is told how it ended, and not the Outlet: once, after what was delivered was handed on, and without a
// lock of this package. It must not block. Who lends sees to it that not too many wait.
func (s *Subscription) Lend(p Pull, done func(Outcome)) { s.pull(&p, done) }

func (s *Subscription) pull(p *Pull, done func(Outcome)) {
	s.mu.Lock()
	now := s.service.now()
	s.lastSeen.used = now
	if s.waiting.n >= s.settings.maxWaiting && s.closed == 0 {
		s.dropDeserted()
	}
	switch {
	case s.closed == 0 && (s.waiting.n < s.settings.maxWaiting || done != nil):
		s.waiting.add(p, done, now)
	case p.Heartbeat > 0 && s.closed == 0:
		// Its client would ask again at once, and again. It finds out by the missing heartbeats.
	case len(s.refused) < s.settings.maxWaiting || done != nil:
		r := &request{to: append([]byte(nil), p.To...), left: max(p.Batch, 1), bytes: p.MaxBytes, bounded: p.MaxBytes > 0, done: done}
		s.refused = append(s.refused, r)
	}
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// dropDeserted drops the requests that nobody listens for any more. mu is held.
func (s *Subscription) dropDeserted() {
	s.waiting.sweep(func(r *request) bool {
		return r.peek || s.sink.Interested(r.to)
	})
}

var errNotDelivered = errors.New("it was not delivered; nothing changed")

// Ack says what became of a delivery. If somebody waits for it, done is called, once, when what it says
// survives as the Topic's durability has it, or with the reason for which it doesn't. done must not block.
func (s *Subscription) Ack(offset, sequence, delivered uint64, kind AckKind, delay time.Duration, done func(error)) {
	s.mu.Lock()
	err := s.ack(offset, delivered, kind, delay)
	wake := s.waiting.n > 0 && (s.blocked && s.cursor.pending.live < s.settings.maxPending || kind == Retry)
	if done != nil && err == nil && !s.ephemeral {
		// Under mu, so that what was noted is before it.
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

// ack changes the cursor. mu is held.
func (s *Subscription) ack(offset, delivered uint64, kind AckKind, delay time.Duration) error {
	if s.closed != 0 {
		return &NotServedError{Topic: s.store.place.topicID, Name: s.id.name, Reason: NoShard, Why: "it is not served here any more (" + s.closed.String() + "); acknowledge again"}
	}
	now := s.service.now()
	s.lastSeen.used, s.lastSeen.acked = now, now
	if s.settings.policy == coordination.AckNone {
		return nil
	}
	if offset > s.cursor.offset && (kind != Done && kind != Term || offset >= s.known || s.isFull(offset)) {
		return errNotDelivered
	}
	switch kind {
	case Done, Term:
		s.settle(offset, kind)
		return nil
	}
	d := s.cursor.pending.find(offset)
	if d == nil || delivered > 0 && delivered < uint64(d.count) {
		return nil // somebody else has it by now
	}
	ms := now / int64(time.Millisecond)
	switch {
	case kind == Progress:
		s.change(op{kind: opProgress, offset: offset, deadline: ms + s.settings.patience(d.count)})
	case delay > 0:
		s.change(op{kind: opRetry, offset: offset, deadline: ms + milliseconds(delay)})
	default:
		s.change(op{kind: opRetryNow, offset: offset})
	}
	return nil
}

// isFull says that too many records are acknowledged beyond the cursor to note another one. mu is held.
func (s *Subscription) isFull(offset uint64) bool {
	return len(s.cursor.ahead) >= mostAhead && s.settings.policy != coordination.AckAll
}

// settle notes that a record is dealt with. mu is held.
func (s *Subscription) settle(offset uint64, kind AckKind) {
	_, floor := s.cursor.floor()
	switch {
	case offset <= floor:
		return
	case kind == Done && s.settings.policy == coordination.AckAll:
		s.change(op{kind: opAckAll, offset: offset})
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

// change applies an op and notes it for the state log. mu is held.
func (s *Subscription) change(o op) {
	s.cursor.apply(o)
	if !s.ephemeral {
		s.store.note(s.handle, o)
	}
}

// Info says where the Subscription stands.
func (s *Subscription) Info() Info {
	w := memories.Get().(*worker)
	defer memories.Put(w)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.service.now()
	start, end := s.store.place.Offsets()
	if s.closed == 0 && s.seeking.done {
		s.catchUp(now, start)
		s.dropDeserted()
		if len(s.waiting.over) > 0 {
			s.service.tasks.wake(s)
		}
		s.look(w, start, end, infoBytes)
	}
	i := Info{
		DeliveredSequence: s.cursor.sequence, DeliveredOffset: s.cursor.offset,
		Pending: s.cursor.pending.live, Redelivered: s.cursor.repeated, Waiting: s.waiting.n,
		LastDelivered: s.service.at(s.lastSeen.delivered), LastAcked: s.service.at(s.lastSeen.acked),
		Exhausted: s.exhausted, Lost: s.skipped, Trouble: s.trouble,
	}
	if s.failing != "" {
		i.Trouble = s.failing
	}
	i.FloorSequence, i.FloorOffset = s.cursor.floor()
	i.Lag, i.LagExact = s.lag(start, end)
	return i
}

// memories are lent to who isn't a worker.
var memories = sync.Pool{New: func() any { return &worker{} }}

// close ends all requests. What it returns from is the last use of the Outlet and of the shard.
func (s *Subscription) close(why End) {
	s.sinkMu.Lock()
	defer s.sinkMu.Unlock()
	s.mu.Lock()
	if s.closed == 0 {
		s.closed = why
		for s.waiting.n > 0 {
			r := s.waiting.at(0)
			s.end(r, why)
			s.waiting.remove()
		}
		s.endRefused()
		if s.timer != nil {
			s.timer.Stop()
		}
		s.reader, s.again, s.ahead = log.Cursor{}, nil, lookahead{}
	}
	told, over := s.told, s.waiting.takeOver()
	s.told = false
	s.mu.Unlock()
	if told {
		s.sink.Flush()
	}
	tell(over)
}

func tell(over []ended) {
	for _, e := range over {
		e.done(e.outcome)
	}
}

// end tells a request's sender why it gets nothing more. mu is held.
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
	s.told = true
}

// endRefused tells those who had no place to wait. mu is held.
func (s *Subscription) endRefused() {
	why := TooManyWaiting
	if s.closed != 0 {
		why = s.closed
	}
	for _, r := range s.refused {
		s.end(r, why)
		if r.done != nil {
			s.waiting.over = append(s.waiting.over, ended{r.done, r.outcome()})
		}
	}
	s.refused = s.refused[:0]
}
