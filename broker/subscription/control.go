package subscription

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// pausedFor returns how long nothing is to be delivered. Requests wait meanwhile, and acks are
// taken. mu is held.
func (s *Subscription) pausedFor() time.Duration {
	until := s.spec.Consumer.PauseUntil
	if until.IsZero() {
		return 0
	}
	return max(until.Sub(s.service.config.Clock.Time()), 0)
}

// replay delivers records in the intervals in which they were published, until the end of the log
// is reached. It is in memory only: the next leader delivers its first record at once.
type replay struct {
	last int64 // time of the record that was delivered last; 0: none
	at   int64 // when it was delivered, as of Service.now
	due  int64 // when the next record is due; math.MaxInt64: none waits
	over bool
}

// allows reports whether a record may be delivered now, and counts it as delivered then.
func (p *replay) allows(r *log.Record, now int64) bool {
	if p.over {
		return true
	}
	if p.last > 0 {
		if due := p.at + max(r.Time-p.last, 0); due > now {
			p.due = due
			return false
		}
	}
	p.last, p.at = r.Time, now
	return true
}

// turnstile bounds the messages per second. Each delivery moves the earliest time of the next one.
// Up to paceBurst of unused time is kept, so that late timers do not lower the rate. It is in
// memory only: the next leader delivers its first record at once.
type turnstile struct {
	next int64 // earliest time of the next delivery, of Service.now
	due  int64 // when the next record may go; math.MaxInt64: none waits
}

// allows reports whether a record may be delivered now.
func (t *turnstile) allows(s *settings, now int64) bool {
	if s.every > 0 && t.next > now {
		t.due = t.next
		return false
	}
	return true
}

func (t *turnstile) delivered(s *settings, now int64) {
	if s.every > 0 {
		t.next = max(t.next, now-int64(paceBurst)) + s.every
	}
}

// rateShare returns the time between two deliveries of one of several shards, in nanoseconds; 0:
// none.
func rateShare(spec *coordination.SubscriptionSpec, shards int) int64 {
	if spec.Rate <= 0 {
		return 0
	}
	return max(int64(shards)*int64(time.Second)/int64(spec.Rate), 1)
}

// samplePercent returns the share of acks that a spec has reported.
func samplePercent(spec *coordination.SubscriptionSpec) int32 {
	n, err := strconv.Atoi(strings.TrimSuffix(spec.Consumer.SampleFrequency, "%"))
	if err != nil {
		return 0
	}
	return int32(min(max(n, 0), 100))
}

// Sampled is an ack that is to be reported.
type Sampled struct {
	Sequence   uint64 // of the delivery
	Deliveries uint64
	After      time.Duration // since the last delivery, or since its ack wait was extended
}

// Sample decides whether an ack of a pending record is to be reported. It is called before Ack.
func (s *Subscription) Sample(offset uint64) (Sampled, bool) {
	if share := s.sample.Load(); share == 0 || rand.Int32N(100) >= share {
		return Sampled{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.cursor.pending.find(offset)
	if d == nil {
		return Sampled{}, false
	}
	since := d.deadline - s.settings.ackWait(d.count)
	after := max(s.service.now()-since*int64(time.Millisecond), 0)
	return Sampled{d.sequence, uint64(d.count), time.Duration(after)}, true
}

// ExpectsAcks reports whether deliveries are acknowledged.
func (s *Subscription) ExpectsAcks() bool { return !s.ackless }

// Reset makes next the next record, or the one after the ack floor if it is 0, and forgets all
// deliveries. It returns the record. done is called once, when that is durable or failed; it must
// not block. If Reset returns an error, done is not called.
func (s *Subscription) Reset(next uint64, done func(error)) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != 0 || !s.search.done {
		return 0, s.store.notServed(s.id.name, Opening, "it is being opened or closed; try again", nil)
	}
	if next == 0 {
		_, floor := s.cursor.floor()
		next = floor + 1
	}
	_, end := s.store.shard.Offsets()
	next = max(min(next, end), 1)
	s.notePasses()
	s.store.lookAgain(s.cursor.lowest(), next)
	until := s.cursor.until
	s.forgetDeliveries(next)
	if until > next {
		s.cursor.until = until
	}
	if err := s.store.rewrite(s, done); err != nil {
		return 0, err
	}
	s.service.tasks.wake(s)
	return next, nil
}

// forgetDeliveries begins a new cursor whose next record is next. mu is held.
func (s *Subscription) forgetDeliveries(next uint64) {
	s.notePasses()
	s.cursor = cursor{offset: next - 1, maxDeliver: s.cursor.maxDeliver, due: math.MaxInt64}
	s.reader, s.readEnd, s.redeliveryReader = *s.store.shard.NewCursor(next), 0, nil
	s.known, s.newest, s.ahead, s.replay = 0, nil, lookahead{}, replay{}
	if e := s.endpoint(); e != nil {
		e.Forget()
	}
	s.skipUnlogged = false
	s.dead = newDeadLetters(nil, s.spec.DeadLetter).counted(s.dead)
	s.lastSeen.delivered, s.lastSeen.acked, s.lastSeen.used = 0, 0, s.service.now()
}

// restart begins a new cursor where a reset has it begin. Waiting requests go on waiting. The
// store's stepping is held.
func (s *Subscription) restart(d *coordination.Subscription) {
	s.respecify(&d.Spec)
	s.mu.Lock()
	s.unstarted.Store(true)
	s.forgetDeliveries(1)
	s.id.made, s.begin = d.Incarnation(), d.Begin()
	s.search, s.trouble, s.readError = startSearch{}, "", ""
	s.mu.Unlock()
	s.service.tasks.wake(s)
}

// rewrite writes the cursor of a Subscription, and the spec of a reader, anew. done is as of await.
// The Subscription's mu is held.
func (k *cursorStore) rewrite(s *Subscription, done func(error)) error {
	k.mu.Lock()
	if !k.dirty && k.closed == 0 {
		k.addSnapshot(s)
	}
	k.mu.Unlock()
	return k.await(done)
}

// Update changes the spec of a reader. It returns when the change is durable, or at once if the
// reader has memory storage.
func (s *Service) Update(ctx context.Context, key, name string, spec coordination.SubscriptionSpec) (*Subscription, error) {
	sub, not := s.find(key, name)
	if not != nil {
		return nil, not
	}
	why := unsupported(&spec, 1)
	if why == "" && sub.store.isQueue() {
		why = sub.store.queueConflict(name, &spec)
	}
	if why != "" || !sub.ephemeral {
		return nil, sub.store.notServed(name, Unsupported, why, nil)
	}
	if err := sub.store.resize(sub, &spec); err != nil {
		return nil, err
	}
	sub.respecify(&spec)
	written := make(chan error, 1)
	sub.mu.Lock()
	volatile := sub.volatile()
	err := sub.store.rewrite(sub, func(err error) { written <- err })
	sub.mu.Unlock()
	if err != nil || volatile {
		return sub, err
	}
	select {
	case err = <-written:
	case <-ctx.Done():
		err = fmt.Errorf("subscription %s: the change is not confirmed by the replicas yet: %w", name, ctx.Err())
	}
	return sub, err
}

// resize counts the new spec of a reader, if the bounds permit it.
func (k *cursorStore) resize(s *Subscription, spec *coordination.SubscriptionSpec) error {
	size := len(appendReader(nil, 0, &reader{V: readerVersion, Spec: *spec, Created: s.created}))
	k.mu.Lock()
	defer k.mu.Unlock()
	if size > s.readerSize && k.readerSize+size-s.readerSize > readerBytes {
		return k.tooMuch(s.id.name)
	}
	k.readerSize += size - s.readerSize
	s.readerSize = size
	return nil
}
