package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumeRun carries one run of the consume scenario through its phases: it fills a stream,
// consumers take all of it, then they take what is published at a fixed rate. The stream is
// deleted at the end.
type consumeRun struct {
	target   Target
	workload Workload
	plan     *consumePlan
	size     int
	limits   Limits
	status   func(phase string)
	id       uint64
	account  *takenAccount
	late     *recorder
	stalled  bool // the missing messages did not come although they had the time
}

// A taker is all the consumers of a run. It hands what comes to the run's account, and acknowledges
// it.
type taker interface {
	connect(ctx context.Context) error
	// begin lets the consumers take messages. failed is called, from any goroutine, when one can't
	// continue.
	begin(failed func(error)) error
	close()
}

// durableName is the name of the consumer that all takers share, and of their queue group.
const durableName = "takers"

func (r *consumeRun) stream() string         { return streamName(r.id) }
func (r *consumeRun) subject() string        { return streamSubject(r.id) + ".0" }
func (r *consumeRun) deliverSubject() string { return fmt.Sprintf("_DELIVER.%016x", r.id) }

func (r *consumeRun) taker() taker {
	if r.workload.Client == ClientNATS {
		return &natsTaker{run: r}
	}
	return &lightTaker{run: r}
}

// measureConsume never returns an error: what went wrong is in the Run, beside what was measured.
func measureConsume(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &consumeRun{
		target: t, workload: w, plan: w.consume, size: w.Parameters.PayloadBytes, limits: limits, status: status,
		id: rand.Uint64(), late: newRecorder(),
	}
	r.account = newTakenAccount(r.id, r.size, r.plan.consumers, r.plan.ackWait)
	r.account.over = newTimeline(w.Parameters.DurationNS)
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Consume: &ConsumeFigures{}}
	err := r.play(ctx, &run)
	found, redelivered, fault := r.account.close(run.Published)
	run.Consume.Redelivered = redelivered
	if run.Deliveries = found; err != nil && !r.stalled {
		run.Deliveries.Lost = 0 // what was not taken before a failure or an interrupt is not lost
	}
	if fault != nil {
		err = errors.Join(fmt.Errorf("%s: %w", t.Name, fault), err)
	}
	run.Latency, run.Late = r.account.latency.summary(), r.late.summary()
	run.OverTime = r.account.over.points()
	run.Partial = ctx.Err() != nil
	run.HDR = r.account.latency.hdr()
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *consumeRun) play(ctx context.Context, run *Run) (err error) {
	start := now()
	r.status("making a stream")
	s, err := openStream(ctx, r.target, r.id, r.plan.replicas, r.limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	if r.account.probes, err = s.settle(ctx); err != nil {
		return err
	}
	p, err := r.openPublisher(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.fill(ctx, r.plan.messages); err != nil {
		return fmt.Errorf("fill the stream %s on %s: %w", s.name, r.target.Name, err)
	}
	run.Published = r.plan.messages
	if err := s.awaitWhole(ctx); err != nil {
		return err
	}
	consumer, err := r.makeConsumer(ctx, s)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	takers := r.taker()
	defer takers.close()
	if err := takers.connect(ctx); err != nil {
		return fmt.Errorf("connect the consumers to %s: %w", r.target.Name, err)
	}
	run.ConnectNS = now() - start
	if err := r.drain(ctx, run, consumer, takers, cancel); err != nil {
		return err
	}
	return r.pace(ctx, run, consumer, p)
}

func (r *consumeRun) makeConsumer(ctx context.Context, s *benchStream) (*ackObserver, error) {
	config := jetstream.ConsumerConfig{
		Durable: durableName, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: r.plan.ackWait, MaxAckPending: r.plan.pending,
	}
	ctx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	observer := &ackObserver{name: fmt.Sprintf("the consumer of the stream %s on %s", s.name, r.target.Name)}
	err := untilReady(ctx, func(ctx context.Context) error {
		if r.plan.push {
			config.DeliverSubject, config.DeliverGroup = r.deliverSubject(), durableName
			made, err := s.stream.CreateOrUpdatePushConsumer(ctx, config)
			if err == nil {
				observer.info = made.Info
			}
			return err
		}
		config.MaxWaiting = max(512, 4*r.plan.consumers)
		made, err := s.stream.CreateOrUpdateConsumer(ctx, config)
		if err == nil {
			observer.info = made.Info
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", observer.name, err)
	}
	return observer, nil
}

// drain is the first phase: the consumers take and acknowledge everything that the stream holds.
func (r *consumeRun) drain(ctx context.Context, run *Run, consumer *ackObserver, takers taker, failed func(error)) error {
	f := run.Consume
	r.status(fmt.Sprintf("taking %d messages", r.plan.messages))
	var u usage
	from := now()
	stop := u.watch(ctx, from, r.target.PIDs)
	defer stop()
	complete := r.account.expect(r.plan.messages, maxConsumeMessages)
	if err := takers.begin(failed); err != nil {
		return fmt.Errorf("begin to take messages of %s: %w", r.target.Name, err)
	}
	if err := r.await(ctx, complete); err != nil {
		return err
	}
	if err := consumer.await(ctx, r.limits.Drain); err != nil {
		return err
	}
	took := now() - from
	u.finish()
	f.Taken, f.Rate = int64(r.plan.messages), float64(r.plan.messages)/(float64(took)/1e9)
	f.Client, f.Server, run.ServerRSS = u.of(f.Taken)
	run.ClientCPU, run.ServerCPU = f.Client, f.Server
	return nil
}

// pace is the second phase: messages are published at a fixed rate, and their latency counts from
// the time they are due.
func (r *consumeRun) pace(ctx context.Context, run *Run, consumer *ackObserver, p *consumePublisher) error {
	f := run.Consume
	if r.plan.rate == 0 {
		r.plan.rate = min(max(1, math.Floor(f.Rate*pacedShare)), maxRate)
	}
	rate := r.plan.rate
	warmup, duration := time.Duration(r.workload.Parameters.WarmupNS), time.Duration(r.workload.Parameters.DurationNS)
	warm := int(rate * warmup.Seconds())
	messages := warm + max(1, int(rate*duration.Seconds()))
	if messages > maxConsumeMessages/2 {
		return fmt.Errorf("the second phase has %d messages at %.0f a second; shorten it, to at most %d messages", messages, rate, maxConsumeMessages/2)
	}
	f.PacedRate, run.Planned = rate, r.plan.messages+messages
	complete := r.account.expect(messages, r.plan.messages+warm)
	zero := now() + int64(leadIn)
	r.account.over.begin(zero + int64(warmup))
	var u usage
	stop := u.watch(ctx, zero+int64(warmup), r.target.PIDs)
	defer stop()
	sent, err := p.pace(ctx, zero, rate, warm, messages)
	run.Published = r.plan.messages + sent
	if err != nil {
		return fmt.Errorf("publish to %s: %w", r.target.Name, err)
	}
	if err := r.await(ctx, complete); err != nil {
		return err
	}
	if err := consumer.await(ctx, r.limits.Drain); err != nil {
		return err
	}
	u.finish()
	f.Paced = int64(messages - warm)
	f.PacedClient, f.PacedServer, _ = u.of(f.Paced)
	run.Rate, run.Delivered = rate, rate
	return nil
}

// await waits until everything expected was taken. It fails when nothing comes for the drain
// timeout.
func (r *consumeRun) await(ctx context.Context, complete <-chan struct{}) error {
	before, _ := r.account.state()
	for {
		select {
		case <-complete:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.limits.Drain):
		}
		progress, missing := r.account.state()
		if progress == before && missing > 0 {
			r.stalled = true
			return fmt.Errorf("%s: %d of %d published messages did not come, and nothing came for %v", r.target.Name, missing, r.account.expected, r.limits.Drain)
		}
		before = progress
	}
}

// An ackObserver asks the server for the state of the consumer.
type ackObserver struct {
	name string
	info func(context.Context) (*jetstream.ConsumerInfo, error)
}

// await returns when the server reports that nothing is left to deliver or to acknowledge.
func (o *ackObserver) await(ctx context.Context, patience time.Duration) error {
	deadline := now() + int64(patience)
	for {
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		info, err := o.info(asked)
		cancel()
		if err == nil && info.NumPending == 0 && info.NumAckPending == 0 {
			return nil
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
		switch {
		case now() < deadline:
		case err != nil:
			return fmt.Errorf("ask for %s: %w", o.name, err)
		default:
			return fmt.Errorf("all messages were acknowledged, and after %v %s reports %d undelivered and %d unacknowledged ones", patience, o.name, info.NumPending, info.NumAckPending)
		}
	}
}
