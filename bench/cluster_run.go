package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// headerAttributes sets attributes of the subject of a message; see docs/attributes.md.
const headerAttributes = "Carillon-Attributes"

// clusterRun carries one run of the cluster scenario through its phases: it connects, opens the
// queries while publishers begin, publishes, and deletes the attributes.
type clusterRun struct {
	target   Target
	workload Workload
	plan     *clusterPlan
	limits   Limits
	status   func(phase string)
	id       uint64
	account  *clusterAccount
	driver   *natsDriver
	queries  []*nats.Conn
	senders  []*nats.Conn
	replies  []string // where a publisher hears that its attributes were refused
	late     *recorder
	usage    usage

	mu     sync.Mutex
	failed error // the first
}

// measureCluster never returns an error: what went wrong is in the Run, beside what was measured.
func measureCluster(
	ctx context.Context, t Target, w Workload, limits Limits, status func(string),
) Run {
	id := rand.Uint64()
	r := &clusterRun{
		target: t, workload: w, plan: w.cluster, limits: limits, status: status, id: id, late: newRecorder(),
		account: newClusterAccount(w.cluster, id, w.Parameters.DurationNS),
		driver:  newNATSDriver(&collector{}),
	}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Planned: r.plan.schedule.len()}
	err := r.play(ctx, &run)
	r.report(&run, err)
	return run
}

func (r *clusterRun) play(ctx context.Context, run *Run) (err error) {
	defer r.driver.close()
	r.status("connecting")
	start := now()
	if err := r.connect(ctx); err != nil {
		return err
	}
	run.ConnectNS = now() - start
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	zero := now() + int64(leadIn)
	r.account.over.begin(zero)
	stop := r.usage.watch(ctx, zero, r.target.PIDs)
	defer stop()
	// Queries are opened while publishers begin.
	opening, cancel := context.WithTimeoutCause(ctx, r.limits.Connect,
		fmt.Errorf("%d queries were not open on %s after %v", r.plan.subscribers, r.target.Name,
			r.limits.Connect))
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- r.open(opening) }()
	err = r.pace(ctx, zero)
	err = errors.Join(err, <-opened)
	if drained := r.drain(ctx); err == nil {
		err = drained
	}
	r.usage.finish()
	// What is deleted afterwards causes notices, too.
	r.account.close()
	return err
}

func (r *clusterRun) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	r.queries, r.senders = make([]*nats.Conn, r.plan.subscribers), make([]*nats.Conn,
		r.plan.publishers)
	r.replies = make([]string, r.plan.publishers)
	err := inParallel(ctx, r.plan.subscribers, func(ctx context.Context, i int) (err error) {
		r.queries[i], err = r.driver.connection(ctx, r.target, i, r.driver.subscriberEnded)
		return err
	})
	if err != nil {
		return fmt.Errorf("connect the subscribers to %s: %w", r.target.Name, err)
	}
	err = inParallel(ctx, r.plan.publishers, func(ctx context.Context, i int) (err error) {
		nc, err := r.driver.connection(ctx, r.target, r.plan.broker(i), r.driver.subscriberEnded)
		if err != nil {
			return err
		}
		r.senders[i], r.replies[i] = nc, nats.NewInbox()
		if _, err := nc.Subscribe(r.replies[i], r.onReply); err != nil {
			return err
		}
		return confirm(ctx, nc)
	})
	if err != nil {
		return fmt.Errorf("connect the publishers to %s: %w", r.target.Name, err)
	}
	return nil
}

// onReply takes what comes where a broker says that it has not published a message. That nobody is
// subscribed to it is no refusal.
func (r *clusterRun) onReply(m *nats.Msg) {
	if m.Header.Get("Status") == "503" {
		return
	}
	r.fail(fmt.Errorf("%s refused a message with attributes: %.200s", r.target.Name, m.Data))
}

func (r *clusterRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

func (r *clusterRun) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// open opens all queries at once. Subscriber i is at broker i.
func (r *clusterRun) open(ctx context.Context) error {
	return inParallel(ctx, r.plan.subscribers, func(ctx context.Context, i int) error {
		inbox := liveInbox{
			failed: r.fail,
			notice: func(n *liveNotice, _ int64) {
				for _, subject := range n.Del {
					r.account.left(i, r.publisher(subject))
				}
				for _, member := range n.joined() {
					r.account.joined(i, r.publisher(member.Subject), member.Attributes.Generation)
				}
				if n.Done {
					r.account.told(i)
				}
			},
			message: func(_ string, m *nats.Msg, at int64) { r.account.deliver(i, m.Data, at) },
		}
		query := liveQuery{Where: r.plan.where(i), Subjects: r.subject("*")}
		if err := openLive(ctx, r.queries[i], query, inbox); err != nil {
			return fmt.Errorf("on %s: %w", r.target.Name, err)
		}
		return nil
	})
}

func (r *clusterRun) subject(publisher string) string {
	return fmt.Sprintf("bench.%016x.%s", r.id, publisher)
}

// publisher returns -1 for a subject that is none of this run.
func (r *clusterRun) publisher(subject string) int {
	return numberBehind(r.subject(""), subject)
}

// pace publishes every message when it is due, or as soon after as it can.
func (r *clusterRun) pace(ctx context.Context, zero int64) error {
	return steadily(func() error { return r.publishAll(ctx, zero) })
}

func (r *clusterRun) publishAll(ctx context.Context, zero int64) error {
	s := r.plan.schedule
	spin := min(longestSpin,
		time.Duration(float64(time.Second)/r.workload.Parameters.OfferedMessages/spinShare))
	payload := make([]byte, r.workload.Parameters.PayloadBytes)
	lastStatus := int64(0)
	for i := range s.len() {
		m := s.slot(i)
		due := zero + int64(m.due)
		if err := awaitDue(ctx, due, spin); err != nil {
			return err
		}
		if err := r.awaitMessages(ctx, m); err != nil {
			return err
		}
		at := now()
		if at-due > int64(overrun) {
			return fmt.Errorf("the publishers fell %v behind the schedule; the load is more than this machine or %s carries",
				overrun, r.target.Name)
		}
		stamp{publisher: uint32(m.publisher), sequence: uint32(m.sequence), due: due,
			run: r.id}.put(payload)
		if err := r.publish(m, payload); err != nil {
			return fmt.Errorf("publisher %d to %s: %w", m.publisher, r.target.Name, err)
		}
		r.late.record(at - due)
		if at-lastStatus > int64(200*time.Millisecond) {
			lastStatus = at
			if err := r.failure(); err != nil {
				return err
			}
			r.status(fmt.Sprintf("measuring %.0f of %.0f s", m.due.Seconds(),
				float64(r.workload.Parameters.DurationNS)/1e9))
		}
	}
	return nil
}

// awaitMessages waits, before a publisher leaves its subscriber's query, until its messages have
// come: what is published just before that may be missed at other brokers, and nobody could tell it
// from a loss. Those at the beginning of a membership may be missed anyway.
func (r *clusterRun) awaitMessages(ctx context.Context, m slot) error {
	if !r.plan.leaves(m.publisher, m.sequence) {
		return nil
	}
	for began := now(); !r.account.settled(m.publisher); {
		waited := time.Duration(now() - began)
		if waited > r.limits.Drain || waited > lateMessage && r.account.entering(m.publisher) {
			return nil
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (r *clusterRun) publish(m slot, payload []byte) error {
	message := nats.NewMsg(r.subject(strconv.Itoa(m.publisher)))
	message.Data = payload
	if generation, changed := r.plan.generation(m.publisher, m.sequence); changed {
		message.Header.Set(headerAttributes, r.plan.attributes(m.publisher, generation))
		message.Reply = r.replies[m.publisher]
	}
	r.account.publish(m.publisher, m.sequence)
	return r.senders[m.publisher].PublishMsg(message)
}

// drain waits until everything has come, or for as long as the limit allows.
func (r *clusterRun) drain(ctx context.Context) error {
	r.status("draining")
	limit := r.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for !r.account.complete() {
		if err := r.failure(); err != nil {
			return err
		}
		if sleep(waiting, pollEvery) != nil {
			return nil // what has not come is counted as lost
		}
	}
	r.usage.finish()
	return sleep(context.WithoutCancel(ctx), r.limits.Grace)
}

// remove deletes the attributes of all publishers.
func (r *clusterRun) remove(ctx context.Context) error {
	r.status("deleting attributes")
	subjects := make([]string, r.plan.publishers)
	for i := range subjects {
		subjects[i] = r.subject(strconv.Itoa(i))
	}
	nc, err := r.target.address(0).connect(context.WithoutCancel(ctx), "carillon-bench", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.target.Name, err)
	}
	defer nc.Close()
	return removeAttributes(context.WithoutCancel(ctx), nc, subjects)
}

func (r *clusterRun) report(run *Run, err error) {
	found, figures, published, wrong := r.account.close()
	run.Deliveries, run.Cluster, run.Published = found, &figures, published
	run.Partial = published < run.Planned
	latency := r.account.latency
	run.Latency, run.Late, run.HDR = latency.summary(), r.late.summary(), latency.hdr()
	run.OverTime = r.account.over.points()
	err = errors.Join(r.failure(), err)
	if wrong != nil {
		err = errors.Join(fmt.Errorf("%s: %w", r.target.Name, wrong), err)
	}
	dropped, reason := r.driver.collector.dropped.read()
	run.Dropped = dropped
	if dropped > 0 {
		err = errors.Join(fmt.Errorf("%s cut off %d connections: %s", r.target.Name, dropped,
			reason), err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	run.ClientCPU, run.ServerCPU, run.ServerRSS = r.usage.of(latency.count)
	if window := float64(r.account.last-r.usage.began) / 1e9; r.usage.began > 0 && window > 0 {
		run.Rate, run.Delivered = float64(published)/window, float64(latency.count)/window
	}
}
