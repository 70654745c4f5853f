package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// metadataWhere is where JetStream clients write the condition of a consumer; see docs/queries.md.
const metadataWhere = "carillon.dev/where"

// manyFilters is how many Subscriptions may be made within each Limits.Connect.
const manyFilters = 1000

// filterRun carries one run of the filter scenario through its phases: it makes a stream and its
// consumers, asks for the messages of each, publishes, and deletes the stream.
type filterRun struct {
	target   Target
	workload Workload
	plan     *filterPlan
	limits   Limits
	status   func(phase string)
	id       uint64
	account  *filterAccount
	late     *recorder
	usage    usage
	taker    *nats.Conn
	sender   *nats.Conn
	inbox    string // of acks
	sent     int    // messages, without probes

	mu      sync.Mutex
	acked   int
	refusal error
}

// measureFilter never returns an error: what went wrong is in the Run, beside what was measured.
func measureFilter(
	ctx context.Context, t Target, w Workload, limits Limits, status func(string),
) Run {
	r := &filterRun{
		target: t, workload: w, plan: w.filter, limits: limits, status: status, id: rand.Uint64(),
		late: newRecorder(),
	}
	r.account = newFilterAccount(r.plan, r.id, w.Parameters.DurationNS)
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Planned: r.plan.messages}
	err := r.play(ctx, &run)
	r.report(&run, err)
	return run
}

func (r *filterRun) subject() string { return streamSubject(r.id) + ".records" }

// consumerName is that of the JetStream consumer of a filter.
func consumerName(filter int) string { return "f" + strconv.Itoa(filter) }

func (r *filterRun) play(ctx context.Context, run *Run) (err error) {
	start := now()
	r.status("making a stream")
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
	ready, cancel := context.WithTimeoutCause(ctx,
		r.limits.Connect*time.Duration(1+r.plan.filters/manyFilters),
		fmt.Errorf("%d Subscriptions of %s were not ready in time; raise --connect-timeout",
			r.plan.filters, r.target.Name))
	defer cancel()
	if err := r.connect(ready); err != nil {
		return err
	}
	defer r.taker.Close()
	defer r.sender.Close()
	if err := r.make(ready, s); err != nil {
		return err
	}
	run.ConnectNS = now() - start
	if err := r.settle(ready); err != nil {
		return err
	}
	run.SettleNS = now() - start - run.ConnectNS
	zero := now() + int64(leadIn)
	from := zero + r.workload.Parameters.WarmupNS
	r.account.over.begin(from)
	stop := r.usage.watch(ctx, from, r.target.PIDs)
	defer stop()
	err = r.pace(ctx, zero)
	if drained := r.drain(ctx); err == nil {
		err = drained
	}
	r.usage.finish()
	return err
}

func (r *filterRun) connect(ctx context.Context) (err error) {
	if r.taker, err = r.target.address(0).connect(ctx, "carillon-bench", nil); err != nil {
		return fmt.Errorf("connect the subscriber to %s: %w", r.target.Name, err)
	}
	if r.sender, err = r.target.address(1).connect(ctx, "carillon-bench", nil); err != nil {
		r.taker.Close()
		return fmt.Errorf("connect the publisher to %s: %w", r.target.Name, err)
	}
	r.inbox = nats.NewInbox()
	s, err := r.sender.Subscribe(r.inbox, r.onAck)
	if err == nil {
		err = s.SetPendingLimits(-1, -1)
	}
	if err != nil {
		r.taker.Close()
		r.sender.Close()
	}
	return err
}

// make makes the consumers, and asks for all messages of each.
func (r *filterRun) make(ctx context.Context, s *benchStream) error {
	var mu sync.Mutex
	made := 0
	err := inParallel(ctx, r.plan.filters, func(ctx context.Context, filter int) error {
		err := untilReady(ctx, func(ctx context.Context) error {
			_, err := s.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
				Durable: consumerName(filter), AckPolicy: jetstream.AckNonePolicy,
				Metadata: map[string]string{metadataWhere: r.plan.condition(filter)},
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("make Subscription %d on %s: %w", filter, r.target.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if made++; made%100 == 0 {
			r.status(fmt.Sprintf("made %d of %d Subscriptions", made, r.plan.filters))
		}
		return nil
	})
	if err != nil {
		return err
	}
	inbox := nats.NewInbox()
	sub, err := r.taker.Subscribe(inbox+".*", func(m *nats.Msg) { r.take(m, now()) })
	if err != nil {
		return err
	}
	// The client must not drop what the server delivered; the schedule bounds how much that is.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	// One request without an end, so that to ask again is no part of the load.
	data, err := json.Marshal(map[string]int{"batch": r.plan.messages + 2})
	if err != nil {
		return err
	}
	for filter := range r.plan.filters {
		next := "$JS.API.CONSUMER.MSG.NEXT." + s.name + "." + consumerName(filter)
		if err := r.taker.PublishRequest(next, inbox+"."+strconv.Itoa(filter), data); err != nil {
			return fmt.Errorf("ask for messages of %s: %w", r.target.Name, err)
		}
	}
	return confirm(ctx, r.taker)
}

// take enters what came to the inbox.
func (r *filterRun) take(m *nats.Msg, at int64) {
	if status := m.Header.Get("Status"); status != "" {
		if status != "100" { // else a heartbeat
			r.refuse(fmt.Errorf("a request for messages ended: %s %s", status,
				m.Header.Get("Description")))
		}
		return
	}
	// $JS.ACK.STREAM.CONSUMER.…
	filter := -1
	if _, rest, ok := strings.Cut(m.Reply, "."+streamName(r.id)+"."); ok {
		name, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "f")); err == nil {
			filter = n
		}
	}
	r.account.deliver(filter, m.Data, at)
}

func (r *filterRun) onAck(m *nats.Msg) {
	ack, err := readPubAck(m.Data)
	switch {
	case m.Header.Get("Status") != "":
		err = nats.ErrNoResponders
	case err == nil && (string(ack.stream) != streamName(r.id) || ack.duplicate):
		err = fmt.Errorf("a message was stored in the stream %q, or taken for a duplicate",
			ack.stream)
	}
	r.mu.Lock()
	r.acked++
	r.mu.Unlock()
	if err != nil {
		r.refuse(fmt.Errorf("a message was not stored: %w", err))
	}
}

func (r *filterRun) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusal == nil {
		r.refusal = err
	}
}

func (r *filterRun) state() (acked int, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked, r.refusal
}

// settle publishes a message for each Subscription, and returns when each has got its own.
func (r *filterRun) settle(ctx context.Context) error {
	r.status("settling")
	var data []byte
	for filter := range r.plan.filters {
		data = r.account.payload(data[:0], r.workload.Parameters.PayloadBytes, filter, filterProbe,
			now())
		if err := r.sender.PublishRequest(r.subject(), r.inbox, data); err != nil {
			return fmt.Errorf("publish a probe to %s: %w", r.target.Name, err)
		}
	}
	for {
		acked, refusal := r.state()
		missing := r.account.missing()
		if refusal != nil {
			return refusal
		}
		if missing == 0 && acked >= r.plan.filters {
			return nil
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return fmt.Errorf("%d of %d Subscriptions have not got their first message: %w",
				missing, r.plan.filters, err)
		}
	}
}

// pace publishes every message when it is due, or as soon after as it can.
func (r *filterRun) pace(ctx context.Context, zero int64) error {
	return steadily(func() error { return r.publishAll(ctx, zero) })
}

func (r *filterRun) publishAll(ctx context.Context, zero int64) error {
	spin := min(longestSpin, time.Duration(float64(time.Second)/r.plan.rate/spinShare))
	lastStatus := int64(0)
	var data []byte
	for n := range r.plan.messages {
		due := zero + int64(float64(n)/r.plan.rate*1e9)
		if err := awaitDue(ctx, due, spin); err != nil {
			return err
		}
		at := now()
		if at-due > int64(overrun) {
			return fmt.Errorf("the publisher fell %v behind the schedule; lower --rate", overrun)
		}
		data = r.account.payload(data[:0], r.workload.Parameters.PayloadBytes, n%r.plan.filters, n,
			due)
		if err := r.sender.PublishRequest(r.subject(), r.inbox, data); err != nil {
			return fmt.Errorf("publish to %s: %w", r.target.Name, err)
		}
		if r.sent++; n >= r.plan.warm {
			r.late.record(at - due)
		}
		if at-lastStatus > int64(200*time.Millisecond) {
			lastStatus = at
			if _, refusal := r.state(); refusal != nil {
				return refusal
			}
			r.status(fmt.Sprintf("%d of %d messages", n, r.plan.messages))
		}
	}
	return nil
}

// drain waits until every message has come and is acknowledged, or nothing has come for as long as
// the limit allows.
func (r *filterRun) drain(ctx context.Context) error {
	r.status("draining")
	limit := r.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	before, since := int64(-1), now()
	for {
		acked, refusal := r.state()
		got := r.account.received()
		if refusal != nil {
			return refusal
		}
		if got >= int64(r.sent) && acked >= r.sent+r.plan.filters {
			r.usage.finish()
			return sleep(context.WithoutCancel(ctx), r.limits.Grace)
		}
		if sum := got + int64(acked); sum != before {
			before, since = sum, now()
		}
		if now()-since > int64(limit) {
			if missing := r.sent + r.plan.filters - acked; missing > 0 {
				return fmt.Errorf("%d of %d messages were not acknowledged by %s", missing, r.sent,
					r.target.Name)
			}
			return nil // what has not come is counted as lost
		}
		if err := sleep(context.WithoutCancel(ctx), pollEvery); err != nil {
			return err
		}
	}
}

func (r *filterRun) report(run *Run, err error) {
	found, wrong := r.account.close(r.sent)
	run.Published, run.Partial, run.Deliveries = r.sent, r.sent < run.Planned, found
	latency := r.account.latency
	run.Latency, run.Late, run.HDR = latency.summary(), r.late.summary(), latency.hdr()
	run.OverTime = r.account.over.points()
	if wrong != nil {
		err = errors.Join(fmt.Errorf("%s: %w", r.target.Name, wrong), err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	run.ClientCPU, run.ServerCPU, run.ServerRSS = r.usage.of(latency.count)
	if window := float64(r.account.last-r.usage.began) / 1e9; r.usage.began > 0 && window > 0 {
		run.Rate, run.Delivered = float64(run.Late.Count)/window, float64(latency.count)/window
	}
}
