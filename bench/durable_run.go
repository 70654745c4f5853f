package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// durableRun carries one run of the durable scenario through its phases: it makes a stream,
// publishes to it, reads it back, and deletes it.
type durableRun struct {
	target   Target
	workload Workload
	plan     durablePlan
	limits   Limits
	status   func(phase string)
	id       uint64
	brokers  []Address // that the publishers connect to, in turn
	account  *ackAccount
	usage    usage
	from, to int64 // what counts; to comes forward when the run ends early
	told     int64 // when the status was last told
}

// An ackClient is all the publishers of a run.
type ackClient interface {
	connect(ctx context.Context) error
	// drive publishes until the run is over and every answer is there, or none comes any more.
	drive(ctx context.Context) error
	close()
}

func (r *durableRun) client() ackClient {
	if r.workload.Client == ClientNATS {
		return &natsAckClient{run: r}
	}
	return &lightAckClient{run: r}
}

// measureDurable never returns an error: what went wrong is in the Run, beside what was measured.
func measureDurable(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &durableRun{target: t, workload: w, plan: *w.durable, limits: limits, status: status, id: rand.Uint64()}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond)}
	err := r.play(ctx, &run)
	r.report(&run, err)
	return run
}

func (r *durableRun) play(ctx context.Context, run *Run) (err error) {
	start := now()
	r.status("making a stream")
	s, err := openStream(ctx, r.target, r.id, r.plan.replicas, r.limits)
	if err != nil {
		return err
	}
	// Also after a failure or an interrupt nothing of ours may stay.
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()

	connectCtx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	if run.Placement, err = r.place(connectCtx, s.leader); err != nil {
		return err
	}
	client := r.client()
	defer client.close()
	if err := client.connect(connectCtx); err != nil {
		return fmt.Errorf("connect the publishers to %s: %w", r.target.Name, err)
	}
	connected := now()
	run.ConnectNS = connected - start
	probes, err := s.settle(connectCtx)
	if err != nil {
		return err
	}
	run.SettleNS = now() - connected

	r.from = now() + r.workload.Parameters.WarmupNS
	r.to = r.from + r.workload.Parameters.DurationNS
	r.account = newAckAccount(s.name, r.plan.publishers, r.plan.most, r.from, r.to)
	r.account.probes = probes
	stopUsage := r.usage.watch(ctx, r.from, r.target.PIDs)
	defer stopUsage()
	err = client.drive(ctx)
	r.stop(now())
	run.Acks = new(r.account.close())
	if err == nil && run.Acks.Refused+run.Acks.Wrong > 0 {
		err = fmt.Errorf("%s: %w", r.target.Name, r.account.refusal)
	}
	if ctx.Err() != nil {
		return err // what is in the stream is not read: whoever interrupts wants to be gone
	}
	r.status("reading the stream back")
	found, verified := s.readBack(ctx, r.account)
	run.Deliveries = found
	return errors.Join(err, verified)
}

// place chooses whom the publishers connect to. There is nothing to tell of a server by itself.
func (r *durableRun) place(ctx context.Context, leader string) (*Placement, error) {
	r.brokers = r.target.Addresses
	p := &Placement{Leader: leader, Replicas: r.plan.replicas}
	if len(r.brokers) > 1 && leader != "" {
		names, err := r.target.brokers(ctx)
		if err != nil {
			return nil, err
		}
		var leads []bool
		if r.brokers, leads, err = choose(r.brokers, names, leader, r.plan.connect); err != nil {
			return nil, err
		}
		for publisher := range r.plan.publishers {
			if leads[publisher%len(leads)] {
				p.AtLeader++
			}
		}
	} else if r.plan.connect != ConnectSpread {
		return nil, fmt.Errorf("%s has one address, or does not say who leads a stream: publishers can't connect to the %s; give the addresses of all brokers", r.target.Name, r.plan.connect)
	}
	p.Connections = min(r.plan.publishers, len(r.brokers))
	if p.Connections == 1 && len(r.target.Addresses) == 1 {
		return nil, nil
	}
	r.brokers = r.brokers[:p.Connections]
	return p, nil
}

// over tells a client whether to send no more, and that it has been told.
func (r *durableRun) over(ctx context.Context, at int64) bool {
	if at < r.to && ctx.Err() == nil && r.account.acks.Refused == 0 && r.account.published < r.account.limit {
		r.tell(at)
		return false
	}
	r.stop(at)
	return true
}

// stop ends what counts; only the first call does.
func (r *durableRun) stop(at int64) {
	if at < r.to {
		r.to, r.account.to = at, at
	}
	r.usage.finish()
}

func (r *durableRun) tell(at int64) {
	if at-r.told < int64(200*time.Millisecond) {
		return
	}
	r.told = at
	seconds, of := float64(at-r.from)/1e9, float64(r.workload.Parameters.DurationNS)/1e9
	if seconds < 0 {
		r.status(fmt.Sprintf("warm-up %.0f of %.0f s", seconds+float64(r.workload.Parameters.WarmupNS)/1e9, float64(r.workload.Parameters.WarmupNS)/1e9))
		return
	}
	r.status(fmt.Sprintf("measuring %.0f of %.0f s", seconds, of))
}

// patience is how long a client waits for the next answer before it gives up.
func (r *durableRun) patience(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return min(r.limits.Drain, interruptedDrain)
	}
	return r.limits.Drain
}

func (r *durableRun) report(run *Run, err error) {
	run.Partial = run.Acks == nil || r.to < r.from+r.workload.Parameters.DurationNS
	if r.account != nil {
		run.Published = r.account.published
		latency := r.account.latency
		run.Latency, run.OverTime = latency.summary(), r.account.over.points()
		if window := r.to - r.from; window > 0 && latency.count > 0 {
			run.AckRate = float64(latency.count) / (float64(window) / 1e9)
			u := &r.usage
			if used := float64(u.finished-u.began) / 1e9; u.began > 0 && used > 0 {
				run.ClientCPU = cpu(u.client, used, latency.count)
				if u.server >= 0 {
					run.ServerCPU, run.ServerRSS = new(cpu(u.server, used, latency.count)), u.rss
				}
			}
			run.HDR = latency.hdr()
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
}

func (r *durableRun) subject(publisher int) string {
	return fmt.Sprintf("%s.%d", streamSubject(r.id), publisher)
}

// stampFor fills the payload of a message.
func (r *durableRun) stampFor(payload []byte, publisher, number int, at int64) {
	stamp{run: r.id, publisher: uint32(publisher), sequence: uint32(number), due: at}.put(payload)
}
