package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// queryRun carries one run of the query scenario through its phases: it fills a stream, scans it,
// and deletes it.
type queryRun struct {
	target Target
	plan   *queryPlan
	size   int
	limits Limits
	status func(phase string)
	id     uint64

	mu      sync.Mutex
	acked   int
	refusal error
}

// measureQuery never returns an error: what went wrong is in the Run, beside what was measured.
func measureQuery(
	ctx context.Context, t Target, w Workload, limits Limits, status func(string),
) Run {
	r := &queryRun{
		target: t, plan: w.query, size: w.Parameters.PayloadBytes, limits: limits, status: status,
		id: rand.Uint64(),
	}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Query: &QueryFigures{}}
	err := r.play(ctx, &run)
	f := run.Query
	run.Latency, run.Partial = f.Selective.Latency, ctx.Err() != nil
	run.ClientCPU, run.ServerCPU = f.Selective.Client, f.Selective.Server
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *queryRun) play(ctx context.Context, run *Run) (err error) {
	r.status("making a stream")
	start := now()
	config := jetstream.StreamConfig{
		Name: streamName(r.id), Subjects: []string{streamSubject(r.id) +
			".*"}, Replicas: r.plan.replicas,
		Description: "made by carillon bench; delete it if no benchmark is running",
	}
	setDurability(&config, r.plan.durability)
	s, err := openStreamAs(ctx, r.target, r.id, r.plan.replicas, r.limits, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	run.ConnectNS = now() - start
	nc, err := r.target.address(0).connect(ctx, "carillon-bench", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.target.Name, err)
	}
	defer nc.Close()
	begun := now()
	if err := r.fill(ctx, nc); err != nil {
		return err
	}
	run.Published = r.plan.records
	run.Query.FillRate = float64(r.plan.records) / (float64(now()-begun) / 1e9)
	if err := s.awaitWhole(ctx); err != nil {
		return err
	}
	for i, kind := range r.plan.kinds() {
		if err := r.scan(ctx, nc, kind, run, run.Query.phases()[i]); err != nil {
			return err
		}
	}
	return nil
}

// fill publishes all records, and returns when they are stored.
func (r *queryRun) fill(ctx context.Context, nc *nats.Conn) error {
	inbox, free := nats.NewInbox(), make(chan struct{}, fillWindow)
	s, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		r.onAck(m)
		<-free
	})
	if err == nil {
		err = s.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return err
	}
	var data []byte
	for n := range r.plan.records {
		select {
		case free <- struct{}{}:
		default:
			if err := r.wait(ctx, func() bool { return len(free) < cap(free) }); err != nil {
				return err
			}
			free <- struct{}{}
		}
		data = r.plan.payloadOf(data[:0], r.size, n)
		if err := nc.PublishRequest(streamSubject(r.id)+".records", inbox, data); err != nil {
			return fmt.Errorf("publish to %s: %w", r.target.Name, err)
		}
		if n%10_000 == 0 {
			r.status(fmt.Sprintf("filling the stream, %d of %d records", n, r.plan.records))
		}
	}
	return r.wait(ctx, func() bool { return len(free) == 0 })
}

// wait returns when a condition of acks holds, or none has come for as long as the limit allows.
func (r *queryRun) wait(ctx context.Context, done func() bool) error {
	before, since := -1, now()
	for {
		r.mu.Lock()
		acked, refusal := r.acked, r.refusal
		r.mu.Unlock()
		switch {
		case refusal != nil:
			return refusal
		case done():
			return nil
		case acked != before:
			before, since = acked, now()
		case now()-since > int64(r.limits.Drain):
			return fmt.Errorf("%s has acknowledged %d records, and none for %v", r.target.Name,
				acked, r.limits.Drain)
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (r *queryRun) onAck(m *nats.Msg) {
	ack, err := readPubAck(m.Data)
	if err == nil && (string(ack.stream) != streamName(r.id) || ack.duplicate) {
		err = fmt.Errorf("it was stored in the stream %q, or taken for a duplicate", ack.stream)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked++
	if err != nil && r.refusal == nil {
		r.refusal = fmt.Errorf("a record was not stored on %s: %w", r.target.Name, err)
	}
}

// scan measures one kind of scan, and compares what each found.
func (r *queryRun) scan(ctx context.Context, nc *nats.Conn, kind queryKind, run *Run,
	p *KVPhase) error {
	times := newRecorder()
	var u usage
	began := now()
	stop := u.watch(ctx, began, r.target.PIDs)
	defer stop()
	for n := range r.plan.scans {
		r.status(fmt.Sprintf("scan of %s, %d of %d", kind.name, n+1, r.plan.scans))
		limit := r.limits.Connect + time.Duration(r.plan.records)*scanTimeout
		within, cancel := context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("a scan of %d records took more than %v", r.plan.records, limit))
		start := now()
		matched, err := r.plan.scan(within, nc, streamName(r.id), kind.where)
		times.record(now() - start)
		late := context.Cause(within)
		cancel()
		if late != nil {
			err = late
		}
		if err != nil {
			return fmt.Errorf("scan of %s on %s: %w", kind.name, r.target.Name, err)
		}
		d := &run.Deliveries
		d.Expected += kind.matching
		d.Received += min(matched, kind.matching)
		d.Lost += max(0, kind.matching-matched)
		d.Unexpected += max(0, matched-kind.matching)
	}
	u.finish()
	p.Operations, p.Latency = int64(r.plan.scans*r.plan.records), times.summary()
	p.Rate = float64(r.plan.records) / (p.Latency.Mean / 1e9)
	p.Client, p.Server, run.ServerRSS = u.of(p.Operations)
	return nil
}
