package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// logRun carries one run of the log scenario through its phases: it makes a stream, writes, reads,
// and deletes it.
type logRun struct {
	target   Target
	workload Workload
	plan     logPlan
	size     int
	limits   Limits
	status   func(phase string)
	id       uint64
	stream   string
	subject  string

	from, to atomic.Int64 // what counts of the phase
	taken    atomic.Int64 // records given to writers
	written  []uint64     // acknowledged, by publisher
	total    uint64
	mu       sync.Mutex
	latency  *recorder
}

// measureLog never returns an error: what went wrong is in the Run, beside what was measured.
func measureLog(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &logRun{
		target: t, workload: w, plan: *w.log, size: w.Parameters.PayloadBytes, limits: limits, status: status,
		id: rand.Uint64(), written: make([]uint64, w.log.publishers), latency: newRecorder(),
	}
	r.stream, r.subject = streamName(r.id), streamSubject(r.id)+".records"
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Log: &LogFigures{}}
	err := r.play(ctx, &run)
	run.Latency = r.latency.summary()
	run.Partial = ctx.Err() != nil
	run.HDR = r.latency.hdr()
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *logRun) play(ctx context.Context, run *Run) (err error) {
	r.status("making a stream")
	config := jetstream.StreamConfig{
		Name: r.stream, Subjects: []string{r.subject}, Replicas: r.plan.replicas,
		Description: "made by carillon bench; delete it if no benchmark is running",
	}
	setDurability(&config, r.plan.durability)
	s, err := openStreamAs(ctx, r.target, r.id, r.plan.replicas, r.limits, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()

	f := run.Log
	began := now()
	var u usage
	records, window, err := r.phase(ctx, "writing", r.plan.publishers, &u, r.write)
	run.ConnectNS = r.from.Load() - r.workload.Parameters.WarmupNS - began
	for _, n := range r.written {
		r.total += n
	}
	f.Written, run.Published = int64(r.total), int(r.total)
	if window > 0 {
		f.WriteRate = float64(records) / window
		f.WriteCPU, f.WriteServer, run.ServerRSS = u.of(records)
	}
	if err != nil || ctx.Err() != nil || r.total == 0 {
		return errors.Join(err, ctx.Err())
	}
	// What was written sooner than half the time says little.
	if wanted := float64(r.workload.Parameters.DurationNS) / 1e9; window < wanted/2 {
		err = fmt.Errorf("all %d records were written after %.2f of %.2f s: allow more of them", r.plan.most, window, wanted)
	}
	var mu sync.Mutex
	var found Deliveries
	// Another one: what ends the first phase at its time may still use the first.
	var reading usage
	records, window, failed := r.phase(ctx, "reading", r.plan.readers, &reading, func(ctx context.Context, reader int) (int64, error) {
		counted, d, err := r.read(ctx, reader)
		mu.Lock()
		defer mu.Unlock()
		found = found.plus(d)
		return counted, err
	})
	f.Read = found.Received
	run.Deliveries = found
	if window > 0 {
		f.ReadRate = float64(records) / window
		f.ReadCPU, f.ReadServer, _ = reading.of(records)
	}
	return errors.Join(err, failed)
}

// phase has clients work at once, and counts what they did within the time that is measured.
func (r *logRun) phase(ctx context.Context, what string, clients int, u *usage, work func(ctx context.Context, client int) (int64, error)) (records int64, window float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.status(what)
	from := now() + int64(leadIn) + r.workload.Parameters.WarmupNS
	r.from.Store(from)
	r.to.Store(from + r.workload.Parameters.DurationNS)
	stop := u.watch(ctx, from, r.target.PIDs)
	defer stop()
	ended := time.AfterFunc(time.Duration(r.to.Load()-now()), u.finish)
	defer ended.Stop()
	var wg sync.WaitGroup
	var counted atomic.Int64
	for i := range clients {
		wg.Go(func() {
			n, err := work(ctx, i)
			counted.Add(n)
			if err != nil {
				cancel(fmt.Errorf("%s, client %d of %d: %w", what, i+1, clients, err))
			}
		})
	}
	wg.Wait()
	u.finish()
	if window = float64(min(r.to.Load(), now())-from) / 1e9; window <= 0 {
		window = 0
	}
	return counted.Load(), window, context.Cause(ctx)
}

// of is what was used for so many records: by this program and, if that could be read, by the
// server.
func (u *usage) of(records int64) (client CPU, server *CPU, rss int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := float64(u.finished-u.began) / 1e9
	if u.began == 0 || used <= 0 || records == 0 {
		return
	}
	client = cpu(u.client, used, records)
	if u.server >= 0 {
		server, rss = new(cpu(u.server, used, records)), u.rss
	}
	return
}

// counts says whether what happened at a time is measured.
func (r *logRun) counts(at int64) bool { return at >= r.from.Load() && at < r.to.Load() }

// reserve gives a writer leave for another message, until time or room is over.
func (r *logRun) reserve() bool {
	if now() >= r.to.Load() {
		return false
	}
	if r.taken.Add(int64(r.plan.batch)) <= r.plan.most {
		return true
	}
	if at := now(); at < r.to.Load() {
		r.to.Store(at) // that all was written sooner is what is measured
	}
	return false
}
