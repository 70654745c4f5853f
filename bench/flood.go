package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A flood is publishers that send on one subject as fast as the server takes it, and subscribers
// that each receive everything. Its client is made to cost little beside a server on the same
// machine: publishers write many frames at once and change only the headers in them; subscribers
// read many at once and compare each with the expected line and filler.
type flood struct {
	target      Target
	limits      Limits
	id          uint64
	subject     string
	size        int
	filler      []byte
	publishers  []*floodPublisher
	subscribers []*floodSubscriber
	from, to    atomic.Int64 // when messages count; publishers stop at to
	closing     atomic.Bool
	readers     sync.WaitGroup
	ends        subscriberEnds
}

// The sizes of what is written and read at once.
const (
	floodWriteBytes = 64 << 10
	floodReadBytes  = 256 << 10
)

func newFlood(t Target, id uint64, publishers, subscribers, size int, limits Limits) *flood {
	f := &flood{target: t, limits: limits, id: id, subject: fmt.Sprintf("bench.%016x.flood", id), size: size, filler: floodFiller(uint32(id), size)}
	f.from.Store(math.MaxInt64)
	f.publishers, f.subscribers = make([]*floodPublisher, publishers), make([]*floodSubscriber, subscribers)
	return f
}

// connect returns when every subscriber has received a probe from each publisher.
func (f *flood) connect(ctx context.Context) error {
	err := inParallel(ctx, len(f.subscribers), func(ctx context.Context, i int) error {
		conn, err := dialWire(ctx, f.target.address(i), f.subject)
		if err != nil {
			return err
		}
		f.subscribers[i] = newFloodSubscriber(f, conn, len(f.publishers))
		return nil
	})
	if err != nil {
		return fmt.Errorf("connect the subscribers to %s: %w", f.target.Name, err)
	}
	for _, s := range f.subscribers {
		f.readers.Go(func() { f.ended(s, s.read()) })
	}
	err = inParallel(ctx, len(f.publishers), func(ctx context.Context, i int) error {
		conn, err := dialWire(ctx, f.target.address(i))
		if err != nil {
			return err
		}
		f.publishers[i] = newFloodPublisher(f, conn, i)
		return nil
	})
	if err != nil {
		return fmt.Errorf("connect the publishers to %s: %w", f.target.Name, err)
	}
	for _, p := range f.publishers {
		f.readers.Go(p.read)
	}
	return f.settle(ctx)
}

func (f *flood) settle(ctx context.Context) error {
	for {
		for _, p := range f.publishers {
			if err := p.probe(); err != nil {
				return fmt.Errorf("publish a probe to %s: %w", f.target.Name, err)
			}
		}
		for again := now() + int64(probeAgain); now() < again; {
			if f.settled() {
				return nil
			}
			if n, reason := f.ends.read(); n > 0 {
				return fmt.Errorf("%s cut off a subscriber before the load: %s", f.target.Name, reason)
			}
			if sleep(ctx, pollEvery) != nil {
				return fmt.Errorf("the subscribers of %s do not hear all publishers: %w", f.target.Name, context.Cause(ctx))
			}
		}
	}
}

func (f *flood) settled() bool {
	for _, s := range f.subscribers {
		for i := range s.probed {
			if !s.probed[i].Load() {
				return false
			}
		}
	}
	return true
}

// ended is called when a subscriber's connection is over.
func (f *flood) ended(s *floodSubscriber, err error) {
	s.over.Store(true)
	if f.closing.Load() {
		return
	}
	if s.refused != "" {
		err = errors.New(s.refused)
	}
	f.ends.add(err.Error())
}

// run publishes until to, and returns when everything was received, or when nothing has come for as
// long as the limit allows.
func (f *flood) run(ctx context.Context, from, to int64) error {
	f.from.Store(from)
	f.to.Store(to)
	failed := make([]error, len(f.publishers))
	var wg sync.WaitGroup
	for i, p := range f.publishers {
		wg.Go(func() { failed[i] = p.publish(ctx) })
	}
	wg.Wait()
	limit := f.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	err := errors.Join(failed...)
	for _, p := range f.publishers {
		if p.failed.Load() {
			continue
		}
		if flushed := p.flush(limit); flushed != nil {
			err = errors.Join(err, flushed)
		}
	}
	f.drain(limit)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", f.target.Name, err)
	}
	return nil
}

// drain waits until the subscribers have everything, for as long as something comes within the
// limit. One that was cut off gets nothing more.
func (f *flood) drain(limit time.Duration) {
	published := f.published()
	before, since := int64(-1), now()
	for {
		received, missing := int64(0), false
		for _, s := range f.subscribers {
			n := s.received.Load()
			received += n
			missing = missing || n < int64(published) && !s.over.Load()
		}
		if !missing {
			return
		}
		if received != before {
			before, since = received, now()
		}
		if time.Duration(now()-since) > limit {
			return // what has not come is counted as lost
		}
		time.Sleep(pollEvery)
	}
}

// published is how many messages were written in whole.
func (f *flood) published() (n uint64) {
	for _, p := range f.publishers {
		n += p.sequence
	}
	return n
}

// close ends all connections and waits until nothing is read any more.
func (f *flood) close() {
	f.closing.Store(true)
	for _, s := range f.subscribers {
		if s != nil {
			_ = s.conn.socket.Close()
		}
	}
	for _, p := range f.publishers {
		if p != nil {
			_ = p.conn.socket.Close()
		}
	}
	f.readers.Wait()
}

// figures are those of a flood that was closed. Usage is the caller's to add.
func (f *flood) figures() (figures ThroughputFigures, found Deliveries) {
	from, receivedEnd, begun, confirmed := f.from.Load(), int64(0), int64(math.MaxInt64), int64(0)
	for _, p := range f.publishers {
		if p == nil || p.confirmed == 0 {
			continue
		}
		figures.Published += int64(p.sequence - p.mark)
		begun, confirmed = min(begun, p.begun), max(confirmed, p.confirmed)
	}
	for _, s := range f.subscribers {
		if s == nil {
			continue
		}
		figures.Received += s.counted
		receivedEnd = max(receivedEnd, s.last)
		found.Unexpected += s.unexpected
		for i := range s.accounts {
			if p := f.publishers[i]; p != nil {
				found = found.plus(s.accounts[i].settle(p.sequence))
			}
		}
	}
	rate := func(n, begin, end int64) float64 {
		if end <= begin {
			return 0
		}
		return float64(n) / (float64(end-begin) / 1e9)
	}
	figures.PublishRate, figures.ReceiveRate = rate(figures.Published, begun, confirmed), rate(figures.Received, from, receivedEnd)
	figures.PublishBytes, figures.ReceiveBytes = figures.PublishRate*float64(f.size), figures.ReceiveRate*float64(f.size)
	return figures, found
}

// counted is how many messages server and client were busy with: those that arrived, or where
// nobody subscribes those that were published.
func (t ThroughputFigures) counted() int64 {
	if t.Received > 0 {
		return t.Received
	}
	return t.Published
}
