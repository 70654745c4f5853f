package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// measureRequest never returns an error: what went wrong is in the Run, beside what was measured.
func measureRequest(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	id := rand.Uint64()
	var subjects []string
	for i := range w.request.pairs {
		subjects = append(subjects, fmt.Sprintf("bench.%016x.request.%d", id, i))
	}
	size := w.Parameters.PayloadBytes
	r := requestRun{
		workload: w, limits: limits, status: status,
		answering: newAnswering(t, subjects, size), asking: newAsking(t, id, subjects, size, limits, checkEcho),
	}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond)}
	err := r.play(ctx, &run)
	r.asking.close()
	r.answering.close()
	r.report(&run, errors.Join(err, r.asking.cut("requesters"), r.answering.cut()))
	run.Partial = ctx.Err() != nil
	return run
}

type requestRun struct {
	workload  Workload
	limits    Limits
	status    func(phase string)
	asking    *asking
	answering *answering
	usage     usage
}

func (r *requestRun) play(ctx context.Context, run *Run) error {
	r.status("connecting")
	if err := connectAll(ctx, r.workload, r.limits, run, r.answering, r.asking); err != nil {
		return err
	}
	p := r.workload.Parameters
	zero := now() + int64(leadIn)
	from, to := zero+p.WarmupNS, zero+p.WarmupNS+p.DurationNS
	s := r.workload.request.schedule
	if s != nil {
		from = zero + int64(s.period)*int64(s.warm)
		to = zero + int64(s.period)*int64(s.ticks)
	}
	stop := r.usage.watch(ctx, from, r.asking.target.PIDs)
	defer stop()
	defer tellTime(from, to, r.status)()
	var err error
	if s == nil {
		err = r.asking.closedLoop(ctx, from, to)
	} else {
		err = r.asking.openLoop(ctx, s, zero, from, to)
	}
	r.usage.finish()
	return err
}

// connectAll connects clients, one kind after the other, and notes how long that took.
func connectAll(
	ctx context.Context, w Workload, limits Limits, run *Run, all ...interface{ connect(context.Context) error },
) error {
	start := now()
	late := fmt.Errorf("%d connections took more than %v", w.sockets(), limits.Connect)
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Connect, late)
	defer cancel()
	for _, clients := range all {
		if err := clients.connect(ctx); err != nil {
			return err
		}
	}
	run.ConnectNS = now() - start
	return nil
}

func (r *requestRun) report(run *Run, err error) {
	latency := r.asking.latency()
	run.Latency, run.Late, run.HDR = latency.summary(), r.asking.late.summary(), latency.hdr()
	f := RequestFigures{Answered: latency.count}
	if over := r.asking.over.Load(); over != nil {
		run.OverTime = over.points()
		if measured := min(r.asking.to.Load(), now()) - r.asking.from.Load(); measured > 0 {
			f.Rate = float64(latency.count) / (float64(measured) / 1e9)
		}
	}
	f.Client, f.Server, run.ServerRSS = r.usage.of(latency.count)
	run.Request, run.Rate, run.Delivered, run.ClientCPU, run.ServerCPU = &f, f.Rate, f.Rate, f.Client, f.Server
	found, first := r.asking.found()
	run.Deliveries, run.Published = found, int(found.Expected)
	if err = errors.Join(first, err); err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
}

// cut says how many clients the server cut off.
func (a *asking) cut(who string) error { return cutOffBy(a.target, &a.ends, len(a.askers), who) }
func (a *answering) cut() error {
	return cutOffBy(a.target, &a.ends, len(a.responders), "responders")
}

func cutOffBy(t Target, ends *subscriberEnds, of int, who string) error {
	if n, reason := ends.read(); n > 0 {
		return fmt.Errorf("%s cut off %d of %d %s: %s", t.Name, n, of, who, reason)
	}
	return nil
}
