package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// measureThroughput never returns an error: what went wrong is in the Run, beside what was
// measured.
func measureThroughput(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond)}
	f := newFlood(t, rand.Uint64(), w.throughput.publishers, w.throughput.subscribers, w.Parameters.PayloadBytes, limits)
	var u usage
	err := playThroughput(ctx, f, w, &u, &run, status)
	f.close()
	figures, found := f.figures()
	var rss int64
	figures.Client, figures.Server, rss = u.of(figures.counted())
	run.Throughput, run.Deliveries, run.Published = &figures, found, int(f.published())
	run.Rate, run.Delivered = figures.PublishRate, figures.ReceiveRate
	run.ClientCPU, run.ServerCPU, run.ServerRSS = figures.Client, figures.Server, rss
	run.Partial = ctx.Err() != nil
	dropped, reason := f.ends.read()
	if run.Dropped = dropped; dropped > 0 {
		err = errors.Join(err, fmt.Errorf("%s cut off %d of %d subscribers: %s", t.Name, dropped, w.throughput.subscribers, reason))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func playThroughput(ctx context.Context, f *flood, w Workload, u *usage, run *Run, status func(string)) error {
	start := now()
	status("connecting")
	connectCtx, cancel := context.WithTimeoutCause(ctx, f.limits.Connect, fmt.Errorf("%d connections took more than %v", w.sockets(), f.limits.Connect))
	defer cancel()
	if err := f.connect(connectCtx); err != nil {
		return err
	}
	run.ConnectNS = now() - start
	from := now() + int64(leadIn) + w.Parameters.WarmupNS
	to := from + w.Parameters.DurationNS
	stop := u.watch(ctx, from, f.target.PIDs)
	defer stop()
	stopStatus := tellTime(from, to, status)
	err := f.run(ctx, from, to)
	stopStatus()
	u.finish()
	return err
}

// tellTime tells a status of how much of a measurement is over, until the returned function is
// called.
func tellTime(from, to int64, status func(string)) (stop func()) {
	begin := now()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			switch at := now(); {
			case at < from:
				status(fmt.Sprintf("warm-up %.0f of %.0f s", float64(at-begin)/1e9, float64(from-begin)/1e9))
			case at < to:
				status(fmt.Sprintf("measuring %.0f of %.0f s", float64(at-from)/1e9, float64(to-from)/1e9))
			default:
				status("draining")
			}
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
