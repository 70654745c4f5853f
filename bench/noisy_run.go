package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// noisyRun carries one run of the noisy scenario through its phases: the bystander alone, and then
// beside the noise.
type noisyRun struct {
	target    Target
	workload  Workload
	plan      noisyPlan
	limits    Limits
	status    func(phase string)
	id        uint64
	stream    *benchStream // or nil
	asking    *asking
	answering *answering
	flood     *flood
	usage     usage
}

// measureNoisy never returns an error: what went wrong is in the Run, beside what was measured.
func measureNoisy(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &noisyRun{target: t, workload: w, plan: *w.noisy, limits: limits, status: status, id: rand.Uint64()}
	size := w.Parameters.PayloadBytes
	subject, check := fmt.Sprintf("bench.%016x.request", r.id), checkEcho
	answers := []string{subject}
	if r.plan.stream {
		subject, check, answers = streamSubject(r.id)+".bystander", checkAck(streamName(r.id)), nil
	}
	r.asking = newAsking(t, r.id, []string{subject}, size, limits, check)
	r.answering = newAnswering(t, answers, size)
	// Another id: the fan-out's subject must not be one of the stream's.
	r.flood = newFlood(t, r.id^1, r.plan.publishers, r.plan.subscribers, size, limits)
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Noisy: &NoisyFigures{}}
	err := r.play(ctx, &run)
	run.Partial = ctx.Err() != nil
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *noisyRun) play(ctx context.Context, run *Run) (err error) {
	if r.plan.stream {
		r.status("making a stream")
		if r.stream, err = openStream(ctx, r.target, r.id, 1, r.limits); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.stream.remove(context.WithoutCancel(ctx))) }()
	}
	err = r.load(ctx, run)
	r.flood.close()
	r.asking.close()
	r.answering.close()
	f := run.Noisy
	var noise Deliveries
	f.Noise, noise = r.flood.figures()
	f.Noise.Client, f.Noise.Server, run.ServerRSS = r.usage.of(f.Noise.counted())
	run.ClientCPU, run.ServerCPU = f.Noise.Client, f.Noise.Server
	found, first := r.asking.found()
	run.Deliveries = found.plus(noise)
	run.Published = int(found.Expected) + int(r.flood.published())
	run.Latency, run.Late, run.HDR = f.Beside.Latency, f.Beside.Late, f.Beside.HDR
	dropped, _ := r.flood.ends.read()
	run.Dropped = dropped
	err = errors.Join(first, err, cutOffBy(r.target, &r.flood.ends, r.plan.subscribers, "subscribers of the noise"), r.asking.cut("bystanders"), r.answering.cut())
	if r.stream != nil && ctx.Err() == nil {
		lost, stored := r.missing(ctx, found.Received)
		run.Deliveries.Lost += lost
		err = errors.Join(err, stored)
	}
	return err
}

// missing returns how many acknowledged messages the stream does not have.
func (r *noisyRun) missing(ctx context.Context, acked int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	info, err := r.stream.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the state of the stream on %s: %w", r.target.Name, err)
	}
	if has := int64(info.State.Msgs); has < acked {
		return acked - has, fmt.Errorf("%s acknowledged %d messages, and has %d", r.target.Name, acked, has)
	}
	return 0, nil
}

func (r *noisyRun) load(ctx context.Context, run *Run) error {
	r.status("connecting")
	err := connectAll(ctx, r.workload, r.limits, run, r.answering, r.asking, r.flood)
	if err != nil {
		return err
	}
	if run.Noisy.Alone, err = r.phase(ctx, "alone", nil); err != nil || ctx.Err() != nil {
		return err
	}
	run.Noisy.Beside, err = r.phase(ctx, "beside the noise", func(from, to int64) error { return r.flood.run(ctx, from, to) })
	return err
}

// phase measures the bystander, with the noise or without one.
func (r *noisyRun) phase(ctx context.Context, name string, noise func(from, to int64) error) (p NoisyPhase, err error) {
	s := r.plan.schedule
	zero := now() + int64(leadIn)
	from, to := zero+int64(s.period)*int64(s.warm), zero+int64(s.period)*int64(s.ticks)
	defer tellTime(from, to, func(phase string) { r.status(name + ", " + phase) })()
	made := make(chan error, 1)
	if noise != nil {
		stop := r.usage.watch(ctx, from, r.target.PIDs)
		defer stop()
		go func() { made <- noise(from, to) }()
	} else {
		made <- nil
	}
	err = r.asking.openLoop(ctx, s, zero, from, to)
	err = errors.Join(err, <-made)
	if noise != nil {
		r.usage.finish()
	}
	latency := r.asking.latency()
	return NoisyPhase{
		Answered: latency.count, Latency: latency.summary(), Late: r.asking.late.summary(),
		OverTime: r.asking.over.Load().points(), HDR: latency.hdr(),
	}, err
}

// checkAck wants the ack of a stream as a reply.
func checkAck(stream string) func([]byte, stamp) error {
	return func(payload []byte, _ stamp) error {
		ack, err := readPubAck(payload)
		switch {
		case err != nil:
			return err
		case string(ack.stream) != stream || ack.sequence == 0:
			return fmt.Errorf("it acknowledges sequence %d of the stream %.64q", ack.sequence, ack.stream)
		}
		return nil
	}
}
