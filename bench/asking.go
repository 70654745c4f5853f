package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Asking is clients that send requests and take the replies to them, each on a connection of its
// own: to responders, or to a stream, whose replies are acks.
type asking struct {
	target  Target
	limits  Limits
	id      uint64
	size    int
	askers  []*asker
	check   func(payload []byte, sent stamp) error // what is wrong with a reply
	closed  atomic.Bool                            // each reply makes its asker send the next request
	from    atomic.Int64                           // requests count that are due from here
	to      atomic.Int64                           // up to here
	over    atomic.Pointer[timeline]
	closing atomic.Bool
	readers sync.WaitGroup
	ends    subscriberEnds
	late    *recorder // of an open loop
	shards  []latencyShard
}

// A latencyShard has the latencies of every so many-th client.
type latencyShard struct {
	mu      sync.Mutex
	latency *recorder
	_       [64]byte
}

// newAsking has the i-th client ask on the i-th subject.
func newAsking(t Target, id uint64, subjects []string, size int, limits Limits, check func([]byte, stamp) error) *asking {
	a := &asking{target: t, limits: limits, id: id, size: size, check: check, late: newRecorder(), shards: make([]latencyShard, workers())}
	for i := range a.shards {
		a.shards[i].latency = newRecorder()
	}
	for i, subject := range subjects {
		a.askers = append(a.askers, newAsker(a, i, subject))
	}
	return a
}

// connect returns when every client has had a reply to a first request.
func (a *asking) connect(ctx context.Context) error {
	err := inParallel(ctx, len(a.askers), func(ctx context.Context, i int) (err error) {
		a.askers[i].conn, err = dialWire(ctx, a.target.address(i), a.askers[i].inbox+"*")
		return err
	})
	if err != nil {
		return fmt.Errorf("connect the requesters to %s: %w", a.target.Name, err)
	}
	for _, p := range a.askers {
		a.readers.Go(func() { a.ended(p, p.read()) })
	}
	for {
		waiting := 0
		for _, p := range a.askers {
			if p.ready.Load() {
				continue
			}
			waiting++
			if err := p.probe(); err != nil {
				return fmt.Errorf("send a first request to %s: %w", a.target.Name, err)
			}
		}
		if waiting == 0 {
			return nil
		}
		for again := now() + int64(probeAgain); now() < again && !a.allReady(); {
			if n, reason := a.ends.read(); n > 0 {
				return fmt.Errorf("%s cut off a requester before the load: %s", a.target.Name, reason)
			}
			if sleep(ctx, pollEvery) != nil {
				return fmt.Errorf("%d of %d requesters of %s get no reply: %w", waiting, len(a.askers), a.target.Name, context.Cause(ctx))
			}
		}
	}
}

func (a *asking) allReady() bool {
	for _, p := range a.askers {
		if !p.ready.Load() {
			return false
		}
	}
	return true
}

func (a *asking) ended(p *asker, err error) {
	p.over.Store(true)
	if a.closing.Load() {
		return
	}
	if p.refused != "" {
		err = errors.New(p.refused)
	}
	a.ends.add(err.Error())
}

// begin empties the figures. Nothing may be without a reply.
func (a *asking) begin(from, to int64) {
	for i := range a.shards {
		a.shards[i].mu.Lock()
		a.shards[i].latency = newRecorder()
		a.shards[i].mu.Unlock()
	}
	a.late = newRecorder()
	a.over.Store(newTimeline(to - from).begin(from))
	a.from.Store(from)
	a.to.Store(to)
}

// closedLoop has each client send its next request when it has the reply to the one before.
func (a *asking) closedLoop(ctx context.Context, from, to int64) error {
	a.begin(from, to)
	a.closed.Store(true)
	defer a.closed.Store(false)
	for _, p := range a.askers {
		if err := p.ask(now()); err != nil {
			return fmt.Errorf("send a request to %s: %w", a.target.Name, err)
		}
	}
	_ = sleep(ctx, time.Duration(to-now()))
	a.to.Store(min(to, now())) // what an interrupt cut off is not measured
	a.drain(ctx)
	return nil
}

// openLoop sends every request when it is due, or as soon after as it can; it skips none.
func (a *asking) openLoop(ctx context.Context, s *ticking, zero, from, to int64) error {
	a.begin(from, to)
	done := make(chan error, 1)
	// A goroutine of its own, since it changes its thread.
	go func() {
		defer steady()()
		done <- a.askAll(ctx, s, zero)
	}()
	err := <-done
	a.drain(ctx)
	return err
}

func (a *asking) askAll(ctx context.Context, s *ticking, zero int64) error {
	spin := min(longestSpin, s.period/time.Duration(len(s.phase))/spinShare)
	for i := range s.len() {
		m := s.slot(i)
		due := zero + int64(m.due)
		for left := due - now(); left > 0 && ctx.Err() == nil; left = due - now() {
			if rest := time.Duration(left) - spin; rest > 0 {
				nap(min(rest, longestNap))
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		late := now() - due
		if late > int64(overrun) {
			return fmt.Errorf("the requesters fell %v behind the schedule; the load is more than this machine or %s carries", overrun, a.target.Name)
		}
		p := a.askers[m.publisher]
		if p.over.Load() {
			continue // told by ends
		}
		if err := p.ask(due); err != nil {
			return fmt.Errorf("send a request to %s: %w", a.target.Name, err)
		}
		if due >= a.from.Load() {
			a.late.record(late)
		}
	}
	return nil
}

// drain waits for the replies that are missing, for as long as some come within the limit.
func (a *asking) drain(ctx context.Context) {
	limit := a.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	before, since := int64(-1), now()
	for {
		answered, missing := int64(0), false
		for _, p := range a.askers {
			n := p.answered.Load()
			answered += n
			missing = missing || n < p.sent.Load() && !p.over.Load()
		}
		if !missing {
			return
		}
		if answered != before {
			before, since = answered, now()
		}
		if time.Duration(now()-since) > limit {
			return // what has not come is counted as lost
		}
		time.Sleep(pollEvery)
	}
}

// latency is that of all clients since begin.
func (a *asking) latency() *recorder {
	all := newRecorder()
	for i := range a.shards {
		a.shards[i].mu.Lock()
		all.merge(a.shards[i].latency)
		a.shards[i].mu.Unlock()
	}
	return all
}

// close ends all connections and waits until nothing is read any more.
func (a *asking) close() {
	a.closing.Store(true)
	for _, p := range a.askers {
		if p.conn != nil {
			_ = p.conn.socket.Close()
		}
	}
	a.readers.Wait()
}

// found compares, after close, the replies with the requests.
func (a *asking) found() (d Deliveries, first error) {
	for _, p := range a.askers {
		d = d.plus(p.account.settle(uint64(p.sent.Load())))
		d.Unexpected += p.unexpected
		if first == nil {
			first = p.first
		}
	}
	if first != nil {
		first = fmt.Errorf("%s: %w", a.target.Name, first)
	}
	return d, first
}
