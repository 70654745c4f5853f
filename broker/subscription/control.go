package subscription

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/flow"
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
// Up to flow.Burst of unused time is kept, so that late timers do not lower the rate. It is in
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
		t.next = max(t.next, now-int64(flow.Burst)) + s.every
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

// Update changes the spec of a reader. It returns when the change is durable, or at once if the
// reader has memory storage.
func (s *Service) Update(ctx context.Context, key, name string, spec coordination.SubscriptionSpec) (*Subscription, error) {
	sub, not := s.find(key, name)
	if not != nil {
		return nil, not
	}
	why := unsupported(&spec)
	if why == "" && sub.store.isQueue() {
		why = cmp.Or(sub.store.queueConflict(name, &spec, anyServed), spec.Unjudgeable(coordination.WorkQueue, 1))
	}
	if why != "" || !sub.ephemeral.Load() {
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
