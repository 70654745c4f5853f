package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Limits bound the phases of a run around its schedule.
type Limits struct {
	Connect time.Duration // to connect, subscribe, and hear a probe on every way
	Drain   time.Duration // after the last message, for those still under way
	Grace   time.Duration // after everything came, for what comes twice
}

// DefaultLimits suit ten thousand subscribers beside the server on two cores.
var DefaultLimits = Limits{Connect: time.Minute, Drain: 10 * time.Second, Grace: 250 * time.Millisecond}

const (
	leadIn           = 100 * time.Millisecond // between settling and the schedule's start
	probeAgain       = time.Second            // when not everybody has heard a probe
	longestNap       = 50 * time.Millisecond  // so that an interrupt is noticed
	pollEvery        = 5 * time.Millisecond
	interruptedDrain = 2 * time.Second  // instead of Limits.Drain once interrupted
	overrun          = 30 * time.Second // by which a schedule may be late before it is given up

	// A thread that sleeps wakes some 50 µs late. Waiting awake for that long is on time, but
	// takes CPU from the server beside us; so only where it is at most a hundredth of the time.
	longestSpin = 100 * time.Microsecond
	spinShare   = 100
)

// A Run is one Workload against one Target, once. Times are in nanoseconds.
type Run struct {
	Repeat  int       `json:"repeat"`
	Started time.Time `json:"started"`
	Partial bool      `json:"partial"` // it was cut short; what is here was measured
	Latency Latency   `json:"latency"`
	// Late is how long after its due time each message was handed to the client.
	Late       Latency    `json:"publisher_late"`
	Deliveries Deliveries `json:"deliveries"`
	Planned    int        `json:"planned_messages"`
	Published  int        `json:"published_messages"`
	Dropped    int        `json:"dropped_subscribers"` // cut off by the server
	ConnectNS  int64      `json:"connect_and_subscribe_ns"`
	// SettleNS is the time until every subscriber had received from each of its publishers.
	SettleNS    int64               `json:"settle_ns"`
	Rate        float64             `json:"achieved_messages_per_s"`
	Delivered   float64             `json:"achieved_deliveries_per_s"`
	Acks        *Acks               `json:"acks,omitempty"`
	Placement   *Placement          `json:"placement,omitempty"`
	AckRate     float64             `json:"acks_per_s,omitempty"`
	Outage      *Outage             `json:"outage,omitempty"`
	Log         *LogFigures         `json:"log,omitempty"`
	Consume     *ConsumeFigures     `json:"consume,omitempty"`
	KV          *KVFigures          `json:"kv,omitempty"`
	Throughput  *ThroughputFigures  `json:"throughput,omitempty"`
	Request     *RequestFigures     `json:"request,omitempty"`
	Connections *ConnectionsFigures `json:"connections,omitempty"`
	Noisy       *NoisyFigures       `json:"noisy,omitempty"`
	Requery     *RequeryFigures     `json:"requery,omitempty"`
	Query       *QueryFigures       `json:"query,omitempty"`
	Cluster     *ClusterFigures     `json:"cluster,omitempty"`
	ClientCPU   CPU                 `json:"client_cpu"`
	ServerCPU   *CPU                `json:"server_cpu,omitempty"`
	ServerRSS   int64               `json:"server_rss_bytes,omitempty"`
	Error       string              `json:"error,omitempty"`
	OverTime    []LatencyPoint      `json:"latency_over_time,omitempty"`
	HDR         string              `json:"latency_hdr_v2,omitempty"`
}

// CPU is what a process used between the end of the warm-up and the last delivery.
type CPU struct {
	Seconds     float64 `json:"seconds"`
	Cores       float64 `json:"cores"` // seconds per second
	PerDelivery float64 `json:"per_delivery_ns"`
}

// faulty tells whether anything is wrong beyond being cut short by the user.
func (r Run) faulty() bool {
	return r.Deliveries.faulty() || r.Acks != nil && r.Acks.faulty() || r.Dropped > 0 || r.Outage != nil && r.Outage.Wrong > 0 || r.Error != ""
}

// runner carries one run through its phases.
type runner struct {
	target     Target
	workload   Workload
	limits     Limits
	status     func(phase string)
	prefix     string
	id         uint64
	collector  *collector
	publishers []publisher
	published  []int
	failed     []error // by publisher
	late       *recorder
	usage      usage
}

// measure never returns an error: what went wrong is in the Run, beside what was measured.
func measure(ctx context.Context, t Target, w Workload, limits Limits, status func(string)) Run {
	if w.failover != nil {
		return measureFailover(ctx, t, w, limits, status)
	}
	if w.log != nil {
		return measureLog(ctx, t, w, limits, status)
	}
	if w.consume != nil {
		return measureConsume(ctx, t, w, limits, status)
	}
	if w.kv != nil {
		return measureKV(ctx, t, w, limits, status)
	}
	if w.throughput != nil {
		return measureThroughput(ctx, t, w, limits, status)
	}
	if w.connections != nil {
		return measureConnections(ctx, t, w, limits, status)
	}
	if w.noisy != nil {
		return measureNoisy(ctx, t, w, limits, status)
	}
	if w.requery != nil {
		return measureRequery(ctx, t, w, limits, status)
	}
	if w.cluster != nil {
		return measureCluster(ctx, t, w, limits, status)
	}
	if w.query != nil {
		return measureQuery(ctx, t, w, limits, status)
	}
	if w.filter != nil {
		return measureFilter(ctx, t, w, limits, status)
	}
	if w.request != nil {
		return measureRequest(ctx, t, w, limits, status)
	}
	if w.durable != nil {
		return measureDurable(ctx, t, w, limits, status)
	}
	id := rand.Uint64()
	r := &runner{
		target: t, workload: w, limits: limits, status: status,
		prefix: fmt.Sprintf("bench.%016x.", id), id: id, collector: newCollector(id, w),
		published: make([]int, len(w.topics)), failed: make([]error, len(w.topics)), late: newRecorder(),
	}
	d := newDriver(w.Client, r.collector)
	if w.Scenario == scenarioForward && w.Parameters.Queries > 0 {
		d = newQueryDriver(w, r.collector, limits)
	}
	run := Run{Started: time.Now().UTC().Truncate(time.Millisecond), Planned: w.schedule.len()}
	err := r.play(ctx, d, &run)
	d.close()
	r.report(&run, err)
	return run
}

func (r *runner) play(ctx context.Context, d driver, run *Run) error {
	start := now()
	if err := r.connect(ctx, d); err != nil {
		return err
	}
	connected := now()
	run.ConnectNS = connected - start
	if err := r.settle(ctx); err != nil {
		return err
	}
	run.SettleNS = now() - connected

	zero := now() + int64(leadIn)
	r.collector.over.begin(zero + r.workload.Parameters.WarmupNS)
	stopUsage := r.usage.watch(ctx, zero+r.workload.Parameters.WarmupNS, r.target.PIDs)
	defer stopUsage()
	err := r.pace(ctx, zero)
	if drained := r.drain(ctx); err == nil {
		err = drained
	}
	r.usage.finish()
	return err
}

func (r *runner) connect(ctx context.Context, d driver) error {
	within := r.workload.connectWithin(r.limits)
	ctx, cancel := context.WithTimeoutCause(ctx, within,
		fmt.Errorf("%d connections took more than %v", r.workload.sockets(), within))
	defer cancel()
	r.status("connecting")
	if err := d.subscribe(ctx, r.target, r.prefix, r.workload.subscribers); err != nil {
		return fmt.Errorf("connect the subscribers to %s: %w", r.target.Name, err)
	}
	subjects := make([]string, len(r.workload.topics))
	for i, topic := range r.workload.topics {
		subjects[i] = r.prefix + topic
	}
	var err error
	if r.publishers, err = d.connect(ctx, r.target, subjects); err != nil {
		return fmt.Errorf("connect the publishers to %s: %w", r.target.Name, err)
	}
	return nil
}

// settle sends probes until every subscriber has heard each of its publishers: in a cluster
// a confirmed subscription may not be known to every broker yet.
func (r *runner) settle(ctx context.Context) error {
	r.status("settling")
	deadline := now() + int64(r.limits.Connect)
	for {
		waiting := r.collector.unheard(len(r.publishers))
		if len(waiting) == 0 {
			return nil
		}
		if now() > deadline {
			return fmt.Errorf("after %v the subscribers of %s still hear nothing from %d of %d publishers",
				r.limits.Connect, r.target.Name, len(waiting), len(r.publishers))
		}
		for _, p := range waiting {
			if err := r.publishers[p].publish(r.payload(stamp{kind: kindProbe, publisher: uint32(p)})); err != nil {
				return fmt.Errorf("publish a probe to %s: %w", r.target.Name, err)
			}
		}
		for again := now() + int64(probeAgain); now() < again && len(r.collector.unheard(len(r.publishers))) > 0; {
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
	}
}

// payload is valid for as long as publish runs; both clients copy it.
func (r *runner) payload(s stamp) []byte {
	p := make([]byte, r.workload.Parameters.PayloadBytes)
	s.run = r.id
	s.put(p)
	return p
}

// pace publishes every message when it is due, or as soon after as it can; it skips none.
func (r *runner) pace(ctx context.Context, zero int64) error {
	return steadily(func() error { return r.publishAll(ctx, zero) })
}

func (r *runner) publishAll(ctx context.Context, zero int64) error {
	s := r.workload.schedule
	payload := make([]byte, r.workload.Parameters.PayloadBytes)
	warm, warmDue := warmSlots(s), time.Duration(r.workload.Parameters.WarmupNS)
	spin := min(longestSpin, time.Duration(float64(time.Second)/r.workload.Parameters.OfferedMessages/spinShare))
	phase, lastStatus := "", int64(0)
	for i := range s.len() {
		m := s.slot(i)
		due := zero + int64(m.due)
		for left := due - now(); left > 0; left = due - now() {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if rest := time.Duration(left) - spin; rest > 0 {
				nap(min(rest, longestNap))
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := now()
		if late := at - due; late > int64(overrun) {
			return fmt.Errorf("the publishers fell %v behind the schedule; the load is more than this machine or %s carries",
				overrun, r.target.Name)
		}
		if r.failed[m.publisher] == nil {
			stamp{publisher: uint32(m.publisher), sequence: uint32(m.sequence), due: due, run: r.id}.put(payload)
			if err := r.publishers[m.publisher].publish(payload); err != nil {
				// The others go on: what one lost connection does to them is worth knowing.
				r.failed[m.publisher] = err
				continue
			}
			r.published[m.publisher]++
			if i >= warm {
				r.late.record(at - due)
			}
		}
		if at-lastStatus > int64(200*time.Millisecond) {
			lastStatus = at
			phase = fmt.Sprintf("warm-up %.0f of %.0f s", m.due.Seconds(), warmDue.Seconds())
			if i >= warm {
				phase = fmt.Sprintf("measuring %.0f of %.0f s", (m.due - warmDue).Seconds(), float64(r.workload.Parameters.DurationNS)/1e9)
			}
			r.status(phase)
		}
	}
	return r.failures()
}

// failures sums up the publishers that lost their connection.
func (r *runner) failures() error {
	count, first := 0, error(nil)
	for _, err := range r.failed {
		if err != nil {
			count++
			if first == nil {
				first = err
			}
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d publishers to %s failed; the first: %w", count, len(r.failed), r.target.Name, first)
}

// drain waits until every message has come, or for as long as the limit allows.
func (r *runner) drain(ctx context.Context) error {
	limit := r.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	// What was measured is worth its drain also after an interrupt.
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	r.status("draining")
	for i, p := range r.publishers {
		if r.published[i] == 0 || r.failed[i] != nil {
			continue
		}
		if err := p.flush(drainCtx); err != nil {
			return fmt.Errorf("flush publisher %d of %d to %s: %w", i+1, len(r.publishers), r.target.Name, err)
		}
	}
	expected := int64(0)
	for _, l := range r.workload.subscribers {
		for _, source := range l.sources {
			expected += int64(r.published[source])
		}
	}
	for r.collector.received() < expected {
		if sleep(drainCtx, pollEvery) != nil {
			return nil // what has not come is counted as lost
		}
	}
	r.usage.finish()
	return sleep(context.WithoutCancel(ctx), r.limits.Grace)
}

func (r *runner) report(run *Run, err error) {
	for _, n := range r.published {
		run.Published += n
	}
	run.Partial = run.Published < run.Planned
	deliveries, latency, last := r.collector.collect(r.published)
	run.Deliveries, run.Latency, run.Late = deliveries, latency.summary(), r.late.summary()
	dropped, reason := r.collector.dropped.read()
	run.Dropped = dropped
	if err == nil && dropped > 0 {
		err = fmt.Errorf("%s cut off %d of %d subscribers: %s", r.target.Name, dropped, len(r.workload.subscribers), reason)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	u := &r.usage
	if window := last - u.began; u.began > 0 && window > 0 && run.Latency.Count > 0 {
		seconds := float64(window) / 1e9
		run.Rate = float64(run.Late.Count) / seconds
		run.Delivered = float64(run.Latency.Count) / seconds
		used := float64(u.finished-u.began) / 1e9
		run.ClientCPU = cpu(u.client, used, run.Latency.Count)
		if u.server >= 0 {
			c := cpu(u.server, used, run.Latency.Count)
			run.ServerCPU, run.ServerRSS = &c, u.rss
		}
	}
	run.OverTime = r.collector.over.points()
	run.HDR = latency.hdr()
}

func cpu(d time.Duration, window float64, deliveries int64) CPU {
	return CPU{Seconds: d.Seconds(), Cores: d.Seconds() / window, PerDelivery: float64(d) / float64(deliveries)}
}

// sleep returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
