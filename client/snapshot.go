package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// SnapshotOptions are how a Snapshot is held. The zero value is good.
type SnapshotOptions struct {
	// Lease is how long brokers hold the records when nothing is heard of this program. It is
	// renewed until Close, three times as often. 0: 30 s. 1 s to 10 min.
	Lease time.Duration
}

// Shard is one shard's part of a Snapshot: its records from Start up to, not including, High.
type Shard struct {
	Number      int
	Start, High uint64
}

// Snapshot is a Topic as it was when it was taken: of each shard, everything below the high
// watermark that it had then. Brokers hold it, whatever retention says, until Close, or until the
// program is not heard of for a lease. A change of leaders does it no harm, unless what was held is
// gone by the time the new one is asked. Its methods may be called at the same time.
type Snapshot struct {
	nc     *nats.Conn
	topic  string
	id     string
	lease  time.Duration
	shards []Shard
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex
	err error
}

// TakeSnapshot takes one of a Topic, of all its shards by one request: all are held, or none.
// Everything that was acknowledged before the call is inside, and nothing that is published after
// it returned. If the broker that is asked knows of single shards only, each is asked.
func TakeSnapshot(ctx context.Context, nc *nats.Conn, topic string, options SnapshotOptions) (*Snapshot, error) {
	usual(&options.Lease, 30*time.Second)
	if options.Lease < time.Second || options.Lease > 10*time.Minute {
		return nil, fmt.Errorf("take a snapshot of topic %s: a Lease of %s (use 1s to 10m)", topic, options.Lease)
	}
	s := &Snapshot{nc: nc, topic: topic, id: rand.Text(), lease: options.Lease}
	err := s.holdAll(ctx)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err != nil {
		_ = s.release(renewing)
		stop()
		return nil, fmt.Errorf("take a snapshot of topic %s: %w", topic, err)
	}
	s.done.Go(func() { s.renew(renewing) })
	return s, nil
}

// Shards are what there is to read, in the order of their numbers.
func (s *Snapshot) Shards() []Shard { return append([]Shard(nil), s.shards...) }

// Reader reads one shard of the snapshot from an offset on; 0: from its first record. After the
// last one, Next and Batch return io.EOF. There may be many at the same time.
func (s *Snapshot) Reader(shard int, offset uint64, options ReaderOptions) (*Reader, error) {
	if shard < 0 || shard >= len(s.shards) {
		return nil, fmt.Errorf("read shard %d of a snapshot of topic %s: it has %d", shard, s.topic, len(s.shards))
	}
	if offset == 0 {
		offset = s.shards[shard].Start
	}
	return newReader(s.nc, s.topic, shard, offset, options, s)
}

// Err is why the snapshot could not be held, or nil. A Reader says so, too.
func (s *Snapshot) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close lets go of what is held, as far as brokers can be told: what they aren't told they find
// when the lease is over.
func (s *Snapshot) Close(ctx context.Context) error {
	s.mu.Lock()
	if errors.Is(s.err, ErrClosed) {
		s.mu.Unlock()
		return ErrClosed
	}
	s.err = ErrClosed
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
	return s.release(ctx)
}

// bounds are what was answered of a shard.
type bounds struct {
	Start uint64 `json:"start,omitempty"`
	High  uint64 `json:"high,omitempty"`
}

// snapshotRequest is docs/protocol.md's.
type snapshotRequest struct {
	ID    string `json:"id"`
	Lease int64  `json:"lease_ms,omitempty"`
	bounds
	Shards  []bounds `json:"shards,omitempty"`
	Release bool     `json:"release,omitempty"`
}

// holdAll has all shards held, or held again. The first time, it is said what that is.
func (s *Snapshot) holdAll(ctx context.Context) error {
	request := snapshotRequest{ID: s.id, Lease: s.lease.Milliseconds()}
	for _, shard := range s.shards {
		request.Shards = append(request.Shards, bounds{shard.Start, shard.High})
	}
	var answer struct {
		Shards []bounds `json:"shards"`
	}
	err := s.ask(ctx, "SNAPSHOT."+s.topic, request, &answer)
	switch {
	case ofAnOlderBroker(err):
		return s.each(ctx, s.hold)
	case err == nil && len(answer.Shards) == 0:
		return ErrNotCarillon
	case err == nil && s.shards == nil:
		for n, is := range answer.Shards {
			s.shards = append(s.shards, Shard{n, is.Start, is.High})
		}
	}
	return err
}

// ofAnOlderBroker reports whether one refused that knows requests for single shards only.
func ofAnOlderBroker(err error) bool {
	var e *ReadError
	return errors.As(err, &e) && e.Code == BadRequest
}

// each does something for each shard, for all at once. How many there are is asked, if it isn't
// known.
func (s *Snapshot) each(ctx context.Context, do func(context.Context, *Shard) error) error {
	if s.shards == nil {
		count, err := s.count(ctx)
		if err != nil {
			return err
		}
		s.shards = make([]Shard, count)
		for n := range s.shards {
			s.shards[n].Number = n
		}
	}
	failed := make([]error, len(s.shards))
	var wg sync.WaitGroup
	for n := range s.shards {
		wg.Go(func() { failed[n] = do(ctx, &s.shards[n]) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// count asks how many shards there are.
func (s *Snapshot) count(ctx context.Context) (int, error) {
	var info struct {
		Topic *struct {
			Spec struct {
				Shards int `json:"shards"`
			} `json:"spec"`
		} `json:"topic"`
	}
	if err := s.ask(ctx, "TOPIC.INFO."+s.topic, nil, &info); err != nil {
		return 0, err
	}
	if info.Topic == nil || info.Topic.Spec.Shards < 1 {
		return 0, ErrNotCarillon
	}
	return info.Topic.Spec.Shards, nil
}

// hold has one shard held, or held again. The first time, it is said what that is.
func (s *Snapshot) hold(ctx context.Context, shard *Shard) error {
	var answer bounds
	request := snapshotRequest{ID: s.id, Lease: s.lease.Milliseconds(), bounds: bounds{shard.Start, shard.High}}
	if err := s.ask(ctx, s.subject(shard), request, &answer); err != nil {
		return err
	}
	if shard.High == 0 {
		shard.Start, shard.High = answer.Start, answer.High
	}
	return nil
}

func (s *Snapshot) subject(shard *Shard) string {
	return "SNAPSHOT." + s.topic + "." + strconv.Itoa(shard.Number)
}

// renew tells brokers that the snapshot is still wanted, until ctx ends.
func (s *Snapshot) renew(ctx context.Context) {
	ticker := time.NewTicker(s.lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, s.lease/3)
		err := s.holdAll(limited)
		cancel()
		var gone *ReadError
		if errors.As(err, &gone) && !gone.passes() {
			// Any other error may pass before the lease is over.
			s.fail(gone)
		}
	}
}

func (s *Snapshot) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// release lets go, as far as it is let.
func (s *Snapshot) release(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request := snapshotRequest{ID: s.id, Release: true}
	err := s.ask(limited, "SNAPSHOT."+s.topic, request, &struct{}{})
	if ofAnOlderBroker(err) {
		return s.each(limited, func(ctx context.Context, shard *Shard) error {
			return s.ask(ctx, s.subject(shard), request, &struct{}{})
		})
	}
	return err
}

// ask asks a broker, and again while what is in the way may pass.
func (s *Snapshot) ask(ctx context.Context, subject string, request, answer any) error {
	var payload []byte
	if request != nil {
		var err error
		if payload, err = json.Marshal(request); err != nil {
			return err
		}
	}
	var why error // what it was refused for last
	since := s.nc.LastError()
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		limited, cancel := context.WithTimeout(ctx, answerTime)
		once, end := context.WithCancelCause(limited)
		go endsWhenDenied(once, end, s.nc, since, "$CARILLON.API."+subject)
		m, err := s.nc.RequestWithContext(once, "$CARILLON.API."+subject, payload)
		refused := context.Cause(once)
		end(nil)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return ErrNotCarillon
		case err != nil && errors.Is(refused, nats.ErrPermissionViolation):
			return refused
		case err != nil && (ctx.Err() != nil || s.nc.IsClosed()):
			return because(err, why)
		case err == nil:
			var refused struct {
				Error *ReadError `json:"error"`
			}
			if err := errors.Join(json.Unmarshal(m.Data, &refused), json.Unmarshal(m.Data, answer)); err != nil {
				return fmt.Errorf("%w (the answer was %.100q)", ErrNotCarillon, m.Data)
			}
			if refused.Error == nil {
				return nil
			}
			if !refused.Error.passes() {
				return refused.Error
			}
			why = refused.Error
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return because(ctx.Err(), why)
		}
	}
}

// because adds what was in the way until the end, if that is known.
func because(err, why error) error {
	if why == nil {
		return err
	}
	return fmt.Errorf("%w; last it was refused: %w", err, why)
}
