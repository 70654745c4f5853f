package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// requeryRun carries one run of the requery scenario through its phases: it opens the queries, has
// publishers arrive and change, and deletes their attributes.
type requeryRun struct {
	target   Target
	workload Workload
	plan     *requeryPlan
	limits   Limits
	status   func(phase string)
	prefix   string // of the publishers' subjects
	account  *requeryAccount
	conns    []*nats.Conn // first the queries' ones, and then the publishers'
	ended    sync.WaitGroup
	ends     subscriberEnds
	open     sync.WaitGroup // queries that were not told their members yet
	late     *recorder
	usage    usage

	lives context.Context // until the run ends
	again sync.WaitGroup  // changes that are to be repeated

	mu         sync.Mutex
	closing    bool
	unanswered []bool // by publisher
	answer     *recorder
	answered   int64
	repeated   int64
	struck     int64 // when what is done halfway was done
	failed     error // the first refusal, or what else is wrong
}

// measureRequery never returns an error: what went wrong is in the Run, beside what was measured.
func measureRequery(ctx context.Context, t Target, w Workload, limits Limits,
	status func(string)) Run {
	r := &requeryRun{
		target: t, workload: w, plan: w.requery, limits: limits, status: status,
		prefix: fmt.Sprintf("bench.%016x.",
			rand.Uint64()), account: newRequeryAccount(w.requery), late: newRecorder(),
		answer: newRecorder(),
	}
	run := Run{
		Started: time.Now().UTC().Truncate(time.Millisecond), Planned: len(r.plan.due), Requery: &RequeryFigures{},
	}
	err := r.play(ctx, &run)
	r.report(&run, err)
	run.Partial = run.Published < run.Planned
	return run
}

func (r *requeryRun) play(ctx context.Context, run *Run) (err error) {
	r.status("connecting")
	start := now()
	lives, end := context.WithCancel(context.WithoutCancel(ctx))
	r.lives, r.unanswered = lives, make([]bool, r.plan.publishers)
	defer func() {
		end()
		r.again.Wait()
		r.close()
	}()
	if err := r.connect(ctx); err != nil {
		return err
	}
	connected := now()
	run.ConnectNS = connected - start
	if err := r.openQueries(ctx); err != nil {
		return err
	}
	run.SettleNS = now() - connected
	run.Requery.OpenNS = run.SettleNS
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	zero := now() + int64(leadIn)
	r.account.over = newTimeline(r.workload.Parameters.DurationNS).begin(zero)
	stop := r.usage.watch(ctx, zero, r.target.PIDs)
	defer stop()
	err = r.change(ctx, zero)
	if drained := r.drain(ctx); err == nil {
		err = drained
	}
	r.usage.finish()
	// What is deleted afterwards causes notices, too.
	r.account.close()
	return err
}

func (r *requeryRun) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.limits.Connect)
	defer cancel()
	r.conns = make([]*nats.Conn, 2*r.plan.sessions)
	return inParallel(ctx, len(r.conns), func(ctx context.Context, i int) error {
		r.ended.Add(1)
		nc, err := r.target.address(i).connect(ctx, "carillon-bench", func(err error) {
			defer r.ended.Done()
			r.lost(err)
		})
		if err != nil {
			r.ended.Done()
			return fmt.Errorf("connect to %s: %w", r.target.Name, err)
		}
		r.conns[i] = nc
		return nil
	})
}

// lost notes a connection that the server has closed.
func (r *requeryRun) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	reason := "connection closed by the server"
	if err != nil {
		reason = err.Error()
	}
	r.ends.add(reason)
}

func (r *requeryRun) close() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	for _, nc := range r.conns {
		if nc != nil {
			nc.Close()
		}
	}
	r.ended.Wait()
}

// fail keeps the first error.
func (r *requeryRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

func (r *requeryRun) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// openQueries returns when every query has been told its members: none.
func (r *requeryRun) openQueries(ctx context.Context) error {
	r.status(fmt.Sprintf("opening %d queries", r.plan.queries))
	ctx, cancel := context.WithTimeoutCause(ctx, r.limits.Connect,
		fmt.Errorf("%d queries were not open on %s after %v; raise --connect-timeout",
			r.plan.queries, r.target.Name, r.limits.Connect))
	defer cancel()
	r.open.Add(r.plan.queries)
	err := inParallel(ctx, r.plan.sessions, func(ctx context.Context, session int) error {
		for q := session; q < r.plan.queries; q += r.plan.sessions {
			told := sync.OnceFunc(r.open.Done)
			inbox := liveInbox{failed: r.fail, notice: func(n *liveNotice, at int64) {
				r.take(q, n, at)
				if n.Done {
					told()
				}
			}}
			query := liveQuery{Where: r.plan.where(q), Subjects: r.prefix + ">"}
			if err := openLive(ctx, r.conns[session], query, inbox); err != nil {
				return fmt.Errorf("on %s: %w", r.target.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := make(chan struct{})
	go func() {
		r.open.Wait()
		close(all)
	}()
	for {
		select {
		case <-all:
			return r.failure()
		case <-time.After(pollEvery):
			if err := r.failure(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take enters a notice of a query.
func (r *requeryRun) take(query int, n *liveNotice, at int64) {
	for _, member := range n.joined() {
		r.account.joined(query, r.publisher(member.Subject), member.Attributes.Generation, at)
	}
	for _, subject := range n.Del {
		r.account.left(query, r.publisher(subject), at)
	}
}

func (r *requeryRun) subject(publisher int) string { return r.prefix + strconv.Itoa(publisher) }

// publisher returns -1 for a subject that is none of this run.
func (r *requeryRun) publisher(subject string) int {
	return numberBehind(r.prefix, subject)
}

// change makes every change when it is due, or as soon after as it can.
func (r *requeryRun) change(ctx context.Context, zero int64) error {
	return steadily(func() error { return r.changeAll(ctx, zero) })
}

func (r *requeryRun) changeAll(ctx context.Context, zero int64) error {
	bound := true
	middle := len(r.plan.due) / 2
	var commands sync.WaitGroup
	defer commands.Wait()
	for e, after := range r.plan.due {
		due := zero + int64(after)
		publisher, generation := r.plan.event(e)
		if err := awaitDue(ctx, due, longestSpin); err != nil {
			return err
		}
		if e == middle && (r.plan.midway != "" || r.plan.strike != nil) {
			commands.Go(func() { r.strike(ctx, zero) })
		}
		if e == len(r.plan.due)-len(r.plan.due)/4 {
			commands.Wait() // so that changes follow what is done halfway
		}
		if err := r.awaitNotices(ctx, publisher); err != nil {
			return err
		}
		if err := r.failure(); err != nil {
			return err
		}
		data, err := json.Marshal(attributeChange{Subject: r.subject(publisher),
			Set: r.plan.attributes(publisher, generation), Bound: &bound})
		if err != nil {
			return err
		}
		r.account.begin(publisher, generation, due)
		r.late.record(now() - due)
		r.mu.Lock()
		r.unanswered[publisher] = true
		r.mu.Unlock()
		if err := r.send(requeryChange{publisher, due, data}); err != nil {
			return fmt.Errorf("send a change to %s: %w", r.target.Name, err)
		}
		if e%10 == 0 {
			r.status(fmt.Sprintf("%d of %d changes", e, len(r.plan.due)))
		}
	}
	return nil
}

// awaitNotices waits until a publisher's last change was answered and its notices have come, so
// that each notice belongs to one change; or for as long as the limit allows.
func (r *requeryRun) awaitNotices(ctx context.Context, publisher int) error {
	for end := now() + int64(r.limits.Drain); now() < end; {
		r.mu.Lock()
		open := r.unanswered[publisher]
		r.mu.Unlock()
		if !open && r.account.settled(publisher) {
			break
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// A requeryChange is a request that is under way.
type requeryChange struct {
	publisher int
	due       int64
	data      []byte
}

// send makes a request whose answer nobody waits for here.
func (r *requeryRun) send(c requeryChange) error {
	nc, inbox := r.conns[r.plan.sessions+c.publisher%r.plan.sessions], nats.NewInbox()
	s, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		if r.onAnswer(&c, m, now()) {
			r.sendAgain(c)
		}
	})
	if err != nil {
		return err
	}
	if err := s.AutoUnsubscribe(1); err != nil {
		return err
	}
	return nc.PublishRequest(attributesSet, inbox, c.data)
}

// sendAgain repeats a change, a little later. It changes nothing if the first one was made.
func (r *requeryRun) sendAgain(c requeryChange) {
	r.again.Go(func() {
		if sleep(r.lives, askAgain) != nil {
			return
		}
		if err := r.send(c); err != nil {
			r.fail(fmt.Errorf("repeat a change on %s: %w", r.target.Name, err))
		}
	})
}

// onAnswer takes the answer to a change, and tells whether it is to be made again: while no
// coordinator leads, nobody knows whether it was made.
func (r *requeryRun) onAnswer(c *requeryChange, m *nats.Msg, at int64) (again bool) {
	err := ErrNoQueries
	if m.Header.Get("Status") != "503" {
		err = readAnswer(m.Data, nil)
	}
	var refused *refusal
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.As(err, &refused) && refused.passes():
		r.repeated++
		return true
	case err != nil:
		if r.failed == nil {
			r.failed = fmt.Errorf("%s refused a change: %w", r.target.Name, err)
		}
		return false
	}
	r.unanswered[c.publisher] = false
	r.answered++
	r.answer.record(at - c.due)
	return false
}

// strike does what is to be done in the middle of the run.
func (r *requeryRun) strike(ctx context.Context, zero int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	do := r.command
	if r.plan.strike != nil {
		do = r.plan.strike
	}
	if err := do(ctx); err != nil {
		r.fail(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.struck = now() - zero
}

// command runs the command for the middle of the run.
func (r *requeryRun) command(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", r.plan.midway)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %.*s", r.plan.midway, err, commandOutput,
			strings.TrimSpace(said.String()))
	}
	return nil
}

// drain waits until every notice and every answer has come, or for as long as the limit allows.
func (r *requeryRun) drain(ctx context.Context) error {
	r.status("draining")
	limit := r.limits.Drain
	if ctx.Err() != nil {
		limit = min(limit, interruptedDrain)
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for {
		r.mu.Lock()
		answered, failed := r.answered, r.failed
		r.mu.Unlock()
		begun := r.account.events()
		if failed != nil || r.account.outstanding() == 0 && answered >= int64(begun) {
			r.usage.finish()
			return sleep(context.WithoutCancel(ctx), r.limits.Grace)
		}
		if sleep(waiting, pollEvery) != nil {
			if answered < int64(begun) {
				return fmt.Errorf("%d of %d changes were not answered by %s within %v",
					int64(begun)-answered, begun, r.target.Name, limit)
			}
			return nil // what has not come is counted as lost
		}
	}
}

// remove deletes the attributes of all publishers that have arrived.
func (r *requeryRun) remove(ctx context.Context) error {
	r.status("deleting attributes")
	subjects := make([]string, min(r.account.events(), r.plan.publishers))
	for i := range subjects {
		subjects[i] = r.subject(i)
	}
	// Over another connection, since those of the run may be gone.
	ctx = context.WithoutCancel(ctx)
	nc, err := r.target.address(0).connect(ctx, "carillon-bench", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.target.Name, err)
	}
	defer nc.Close()
	return removeAttributes(ctx, nc, subjects)
}

func (r *requeryRun) report(run *Run, err error) {
	found, wrong := r.account.close()
	run.Deliveries, run.Late, run.Published = found, r.late.summary(), r.account.events()
	run.Latency, run.HDR, run.OverTime = r.account.latency.summary(), r.account.latency.hdr(), r.account.over.points()
	run.Requery.Answered, run.Requery.Answer = r.answered, r.answer.summary()
	run.Requery.Repeated, run.Requery.StruckNS = r.repeated, r.struck
	if r.failed != nil {
		err = errors.Join(r.failed, err)
	}
	if wrong != nil {
		err = errors.Join(fmt.Errorf("%s: %w", r.target.Name, wrong), err)
	}
	dropped, reason := r.ends.read()
	run.Dropped = dropped
	if dropped > 0 {
		err = errors.Join(fmt.Errorf("%s cut off %d of %d connections: %s", r.target.Name, dropped,
			len(r.conns), reason), err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		run.Error = err.Error()
	}
	client, server, rss := r.usage.of(found.Received)
	run.ClientCPU, run.ServerCPU, run.ServerRSS = client, server, rss
	if window := float64(r.account.last-r.usage.began) / 1e9; r.usage.began > 0 && window > 0 {
		run.Rate, run.Delivered = float64(run.Published)/window, float64(found.Received)/window
	}
}
