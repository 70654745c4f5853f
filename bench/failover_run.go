package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// failoverRun carries one run of the failover scenario through its tries: one stream, published to
// all the while, and read back at the end.
type failoverRun struct {
	target     Target
	plan       failoverPlan
	limits     Limits
	status     func(phase string)
	id         uint64
	publishers []*failoverPublisher
	observers  []*nats.Conn // one to each address, whatever happens there
	brokers    []string     // at these addresses

	mu      sync.Mutex // guards what follows
	account *ackAccount
	gaps    *gapWatch
	latency *recorder // of messages that were sent while nothing was wrong
}

const (
	// observing is how often the state of a stream is asked for while it is not whole.
	observing = 50 * time.Millisecond
	// calm is how long a fault that ended is watched further, at least.
	calm = 2 * time.Second
)

// measureFailover never returns an error: what went wrong is in the Run, beside what was measured.
func measureFailover(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	r := &failoverRun{target: t, plan: *w.failover, limits: limits, status: status, id: rand.Uint64(), latency: newRecorder()}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Planned: r.plan.Tries}
	err := r.play(ctx, &run)
	run.Partial = run.Outage == nil || len(run.Outage.Tries) < r.plan.Tries
	run.Latency = r.latency.summary()
	run.HDR = r.latency.hdr()
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	return run
}

func (r *failoverRun) play(ctx context.Context, run *Run) (err error) {
	r.status("making a stream")
	s, err := openStream(ctx, r.target, r.id, r.plan.Replicas, r.limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	connectCtx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	probes, err := s.settle(connectCtx)
	if err != nil {
		return err
	}
	if r.brokers, err = r.target.brokers(connectCtx); err != nil {
		return err
	}
	if err := r.checkBrokers(); err != nil {
		return err
	}
	r.account = newAckAccount(s.name, r.plan.Publishers, maxDurableMessages, 0, 0)
	r.account.probes, r.account.handedOn = probes, true
	r.gaps = newGapWatch(r.plan.Publishers)
	outage := &Outage{Tries: []Try{}}
	run.Outage = outage
	err = r.disturb(ctx, s.name, outage)
	acks := r.account.close()
	run.Published = r.account.published
	outage.Published, outage.Acked, outage.Wrong, outage.LongestSteady = acks.Published, acks.Acked, acks.Wrong, r.gaps.steady
	for _, p := range r.publishers {
		outage.TimedOut, outage.Refused = outage.TimedOut+p.timedOut, outage.Refused+p.refused
	}
	if err == nil && acks.Wrong > 0 {
		err = fmt.Errorf("%s: %w", r.target.Name, r.account.refusal)
	}
	if ctx.Err() != nil {
		return err // what is in the stream is not read: whoever interrupts wants to be gone
	}
	r.status("reading the stream back")
	if again := s.again(ctx); again != nil {
		return errors.Join(err, again)
	}
	found, verified := s.readBack(ctx, r.account)
	run.Deliveries = found
	return errors.Join(err, verified)
}

// checkBrokers refuses a target whose leader could not be taken away.
func (r *failoverRun) checkBrokers() error {
	for i, name := range r.brokers {
		if slices.Contains(r.brokers[:i], name) {
			return fmt.Errorf("two addresses of %s are of the broker %q; give one address of each broker", r.target.Name, name)
		}
		if r.plan.Fault.Command != "" {
			continue
		}
		if _, err := r.target.Processes.find(name); err != nil {
			return err
		}
	}
	return nil
}

// disturb publishes, and takes the leader away, try after try.
func (r *failoverRun) disturb(ctx context.Context, stream string, outage *Outage) (err error) {
	defer func() {
		for _, nc := range r.observers {
			nc.Close()
		}
	}()
	for _, a := range r.target.Addresses {
		nc, err := dialResilient([]Address{a}, "carillon-bench")
		if err != nil {
			return fmt.Errorf("observe %s: %w", r.target.Name, err)
		}
		r.observers = append(r.observers, nc)
	}
	driven, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	failed := make([]error, r.plan.Publishers)
	defer func() {
		stop()
		wg.Wait()
		for _, p := range r.publishers {
			p.nc.Load().Close()
		}
		err = errors.Join(append(failed, err)...)
	}()
	for i := range r.plan.Publishers {
		p := &failoverPublisher{run: r, number: i, home: i % len(r.target.Addresses)}
		if err := p.connect(); err != nil {
			return err
		}
		r.publishers = append(r.publishers, p)
		wg.Go(func() { failed[i] = p.drive(ctx, driven) })
	}
	began := now()
	for n := range r.plan.Tries {
		try, err := r.try(ctx, stream, fmt.Sprintf("try %d of %d", n+1, r.plan.Tries))
		if err != nil {
			return fmt.Errorf("try %d of %d on %s: %w", n+1, r.plan.Tries, r.target.Name, err)
		}
		try.BeganAfter -= began
		outage.Tries = append(outage.Tries, try)
	}
	return nil
}

// try takes the leader away once, and returns when all is as before.
func (r *failoverRun) try(ctx context.Context, stream, label string) (t Try, err error) {
	r.status(label + ": waiting until all is well")
	r.enter(gapIdle)
	if _, err := r.await(ctx, stream, 0); err != nil {
		return t, err
	}
	if err := r.gatherHome(ctx); err != nil {
		return t, err
	}
	r.status(label + ": undisturbed")
	r.enter(gapSteady)
	if err := sleep(ctx, r.plan.Steady); err != nil {
		return t, err
	}
	// Leadership may have moved by itself, gently.
	if t.Leader, err = r.await(ctx, stream, 0); err != nil {
		return t, err
	}
	atVictim := make([]bool, len(r.publishers))
	for i, p := range r.publishers {
		atVictim[i] = p.broker() == t.Leader && r.plan.Fault.Kind != FaultOther
	}
	failed := r.failedAcks()

	r.status(fmt.Sprintf("%s: %s of %s", label, r.plan.Fault.Kind, t.Leader))
	struck := r.enter(gapFault)
	t.BeganAfter = struck
	heal, err := r.plan.Fault.strike(ctx, r.target.Processes, t.Leader)
	healed := false
	// Whatever happens, nothing stays paused or cut off.
	defer func() {
		if !healed {
			err = errors.Join(err, heal(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return t, err
	}
	if err := sleep(ctx, r.plan.Fault.For); err != nil {
		return t, err
	}
	if err := heal(ctx); err != nil {
		return t, err
	}
	healed = true
	if r.plan.Fault.Kind != FaultKill {
		if err := sleep(ctx, calm); err != nil {
			return t, err
		}
	}
	r.status(label + ": waiting until all is well again")
	if t.NewLeader, err = r.await(ctx, stream, struck); err != nil {
		return t, err
	}
	at := now()
	t.WholeAfter = at - struck
	if err := r.awaitAcks(ctx, at); err != nil {
		return t, err
	}
	r.mu.Lock()
	t.GapOthers, t.GapAll, t.Others = r.gaps.gaps(atVictim, now())
	r.mu.Unlock()
	t.Failed = r.failedAcks() - failed
	return t, nil
}

func (r *failoverRun) enter(phase gapPhase) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now()
	r.gaps.enter(phase, at)
	return at
}

// await waits until the stream has its leader, every replica is current, and every publisher was
// acknowledged since; it returns who leads.
func (r *failoverRun) await(ctx context.Context, stream string, since int64) (leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, returning)
	defer cancel()
	for {
		info, err := r.ask(ctx, stream)
		if err == nil {
			if err = whole(info, r.plan.Replicas); err == nil && info.Cluster == nil {
				err = errors.New("the server does not say who leads it")
			}
		}
		if err == nil {
			if err = r.awaitAcks(ctx, since); err == nil {
				return info.Cluster.Leader, nil
			}
		}
		if sleep(ctx, observing) != nil {
			return "", fmt.Errorf("the stream is not whole after %v: %w", returning, err)
		}
	}
}

// ask asks one broker after another, since any may be gone, for the state of the stream.
func (r *failoverRun) ask(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	errs := []error{errors.New("no broker answers for the stream")}
	for _, nc := range r.observers {
		if !nc.IsConnected() {
			continue
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		once, cancel := context.WithTimeout(ctx, askTimeout)
		s, err := js.Stream(once, stream)
		cancel()
		if err == nil {
			return s.CachedInfo(), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// awaitAcks waits until every publisher was acknowledged at that time or later.
func (r *failoverRun) awaitAcks(ctx context.Context, since int64) error {
	ctx, cancel := context.WithTimeout(ctx, returning)
	defer cancel()
	for {
		r.mu.Lock()
		all := r.gaps.allSince(since)
		r.mu.Unlock()
		if all {
			return nil
		}
		if sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("a publisher is not acknowledged any more: %w", context.Cause(ctx))
		}
	}
}

// gatherHome waits until each publisher is connected to the broker where it belongs, and was
// acknowledged there.
func (r *failoverRun) gatherHome(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, returning)
	defer cancel()
	for again := int64(0); ; {
		away := 0
		for _, p := range r.publishers {
			if p.broker() != r.brokers[p.home] {
				away++
				if now() >= again {
					p.goHome.Store(true)
				}
			}
		}
		if away == 0 {
			return r.awaitAcks(ctx, now())
		}
		if now() >= again {
			again = now() + int64(dialTimeout)
		}
		if sleep(limited, pollEvery) != nil {
			return fmt.Errorf("%d of %d publishers do not find back to their brokers: %w", away, len(r.publishers), context.Cause(limited))
		}
	}
}

func (r *failoverRun) failedAcks() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.publishers {
		n += p.timedOut + p.refused
	}
	return n
}

// send enters a message, or says that there have been enough.
func (r *failoverRun) send(publisher int, at int64) (number int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.account.send(publisher, at)
}

// answered enters what came of a message. One without an answer stays open: it may be in the
// stream, or not.
func (r *failoverRun) answered(p *failoverPublisher, number int, sent int64, data []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := now()
	if errors.Is(err, nats.ErrNoResponders) {
		p.refused++
		return
	}
	if err != nil {
		p.timedOut++
		return
	}
	ack, refused := readPubAck(data)
	if refused != nil {
		p.refused++
		return
	}
	r.account.settle(p.number, number, ack, nil, at)
	if r.gaps.phase == gapSteady && sent >= r.gaps.since {
		r.latency.record(at - sent)
	}
	r.gaps.ack(p.number, at)
}
