package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// connectionsRun carries one run of the connections scenario through its phases: it opens
// connections, leaves them idle, has each answer once more, and closes them.
type connectionsRun struct {
	target Target
	plan   connectionsPlan
	limits Limits
	status func(phase string)
	wires  []*wire
	opened atomic.Int64
	allIn  atomic.Int64 // when the last one was in
	mu     sync.Mutex
	times  *recorder
	late   *recorder
	over   *timeline
	failed []error
}

// measureConnections never returns an error: what went wrong is in the Run, beside what was
// measured.
func measureConnections(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &connectionsRun{
		target: t, plan: *w.connections, limits: limits, status: status, wires: make([]*wire, w.connections.connections),
		times: newRecorder(), late: newRecorder(),
	}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Planned: r.plan.connections, Connections: &ConnectionsFigures{}}
	err := r.play(ctx, &run)
	r.close()
	run.Latency, run.Late, run.OverTime = r.times.summary(), r.late.summary(), r.over.points()
	run.HDR = r.times.hdr()
	run.Partial = ctx.Err() != nil
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *connectionsRun) play(ctx context.Context, run *Run) error {
	r.status("connecting")
	zero := now() + int64(leadIn)
	var u usage
	stop := u.watch(ctx, zero, r.target.PIDs)
	defer stop()
	r.openAll(ctx, zero)
	u.finish()
	opened := r.opened.Load()
	f := run.Connections
	f.Opened, f.AllIn = opened, max(0, r.allIn.Load()-zero)
	f.Client, f.Server, _ = u.of(opened)
	run.ClientCPU, run.ServerCPU, run.ConnectNS = f.Client, f.Server, f.AllIn
	if f.AllIn > 0 {
		run.Rate = float64(opened) / (float64(f.AllIn) / 1e9)
	}
	// What is open is looked at also where some could not be opened.
	run.Deliveries.Expected = opened + int64(len(r.failed))
	if err := r.hold(ctx, f); err != nil {
		return err
	}
	run.ServerRSS = f.Idle
	alive, err := r.askAll(ctx)
	run.Deliveries.Received = alive
	run.Deliveries.Lost = run.Deliveries.Expected - alive
	if len(r.failed) > 0 {
		err = errors.Join(fmt.Errorf("%d of %d connections to %s failed; the first: %w", len(r.failed), r.plan.connections, r.target.Name, r.failed[0]), err)
	}
	return errors.Join(err, context.Cause(ctx))
}

// openAll starts each connection when it is due, and returns when all have come to an end.
func (r *connectionsRun) openAll(ctx context.Context, zero int64) {
	span := int64(time.Second)
	if r.plan.rate > 0 {
		span = int64(float64(r.plan.connections) / r.plan.rate * 1e9)
	}
	r.over = newTimeline(span).begin(zero)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(span)+r.limits.Connect)
	defer cancel()
	done := make(chan struct{})
	// A goroutine of its own, since it changes its thread.
	go func() {
		defer close(done)
		defer steady()()
		var wg sync.WaitGroup
		for i := range r.plan.connections {
			due := zero
			if r.plan.rate > 0 {
				due += int64(float64(i) / r.plan.rate * 1e9)
			}
			for left := due - now(); left > 0 && ctx.Err() == nil; left = due - now() {
				nap(min(time.Duration(left), longestNap))
			}
			if ctx.Err() != nil {
				break
			}
			late := now() - due
			wg.Go(func() { r.open(ctx, i, due, late) })
			if i%100 == 0 {
				r.status(fmt.Sprintf("%d of %d connections are in", r.opened.Load(), r.plan.connections))
			}
		}
		wg.Wait()
	}()
	<-done
}

func (r *connectionsRun) open(ctx context.Context, i int, due, late int64) {
	w, err := dialWireWithin(ctx, r.limits.Connect, r.target.address(i))
	at := now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late.record(late)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			r.failed = append(r.failed, err)
		}
		return
	}
	r.wires[i] = w
	r.times.record(at - due)
	r.over.record(due, at-due)
	r.opened.Add(1)
	r.allIn.Store(max(r.allIn.Load(), at))
}

// hold leaves the connections idle, and then reads the server's memory.
func (r *connectionsRun) hold(ctx context.Context, f *ConnectionsFigures) error {
	r.status(fmt.Sprintf("%d connections are idle", f.Opened))
	if err := sleep(ctx, r.plan.hold); err != nil {
		return err
	}
	if len(r.target.PIDs) == 0 || r.target.memory == 0 || f.Opened == 0 {
		return nil
	}
	idle, err := anonymousMemory(r.target.PIDs)
	if err != nil {
		return nil // as everywhere, figures of a process that can't be read are left out
	}
	f.Idle, f.Before = idle, r.target.memory
	f.PerConnection = float64(idle-r.target.memory) / float64(f.Opened)
	return nil
}

// askAll has each connection answer a PING, and returns how many do.
func (r *connectionsRun) askAll(ctx context.Context) (alive int64, err error) {
	r.status("asking all connections")
	var answered atomic.Int64
	var mu sync.Mutex
	var first error
	_ = inParallel(ctx, len(r.wires), func(ctx context.Context, i int) error {
		w := r.wires[i]
		if w == nil {
			return nil
		}
		if err := w.ping(r.limits.Drain); err != nil {
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = fmt.Errorf("%s: an idle connection does not answer: %w", r.target.Name, err)
			}
			return nil
		}
		answered.Add(1)
		return nil
	})
	return answered.Load(), first
}

func (r *connectionsRun) close() {
	for _, w := range r.wires {
		if w != nil {
			_ = w.socket.Close()
		}
	}
}

// A ponging waits for a PONG.
type ponging struct {
	wire   *wire
	ponged bool
	failed error
}

func (p *ponging) onMessage(_, _, _ []byte) {}
func (p *ponging) onInfo([]byte)            {}
func (p *ponging) onPing()                  { _ = p.wire.out.write(pong) }
func (p *ponging) onPong()                  { p.ponged = true }
func (p *ponging) onError(text []byte)      { p.failed = fmt.Errorf("server says %q", text) }

// ping returns when the PONG has come. Nobody else may be reading.
func (c *wire) ping(within time.Duration) error {
	if err := c.out.write([]byte("PING\r\n")); err != nil {
		return err
	}
	p := &ponging{wire: c}
	err := c.read(p, 4<<10, within, func() error {
		if p.failed != nil {
			return p.failed
		}
		if p.ponged {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}
