package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

const (
	// controlRetry is how long a controller waits after an error before it looks again.
	controlRetry = time.Second
	// movesPause is how long it waits between moves of leaderships for balance: each makes that shard's
	// publishers wait for a moment, and clients learn of it.
	movesPause = time.Second
	// restPause bounds how long it rests after a plan of nothing. It rests three times as long as the plan took, lest a
	// cluster of many shards, of which some change all the time, keeps a core busy with plans.
	restPause = 100 * time.Millisecond
)

// States is what brokers know of etcd: the newest State, nil before the first, and a channel that is
// closed when it is no longer the newest.
type States interface {
	State() *coordination.State
	Changed() <-chan struct{}
}

// Controller stands for election in etcd, and places shards while it is elected.
type Controller struct {
	store  *coordination.Client
	states States
	log    *slog.Logger

	mu    sync.Mutex
	stats ControllerStats
}

// ControllerStats are counters of this process, and what its last plan could not do.
type ControllerStats struct {
	Leads  bool
	Terms  uint64
	Writes map[WriteReason]uint64
	Waits  map[WaitReason]int // empty if it doesn't lead
}

// NewController returns a Controller; Run makes it work.
func NewController(store *coordination.Client, states States, logger *slog.Logger) *Controller {
	return &Controller{store: store, states: states, log: logger.With("component", "controller"), stats: ControllerStats{Writes: make(map[WriteReason]uint64)}}
}

// Run stands for election in one life of this broker, until ctx ends or that life has; then it returns nil.
func (c *Controller) Run(ctx context.Context, self coordination.Replica) error {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	vacant := make(chan struct{}, 1)
	watching.Go(func() { c.watch(ctx, vacant) })
	err := c.store.Campaign(ctx, self, vacant, c.lead)
	if gone := (*coordination.NotRegisteredError)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}

// watch tells the election when a State shows that there is no controller.
func (c *Controller) watch(ctx context.Context, vacant chan<- struct{}) {
	for {
		changed := c.states.Changed()
		if s := c.states.State(); s != nil && s.Controller.Term == 0 {
			select {
			case vacant <- struct{}{}:
			default:
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// lead carries plans out until ctx ends or the office is lost.
func (c *Controller) lead(ctx context.Context, office *coordination.Office) {
	c.log.Info("Elected as the controller", "term", office.Term())
	c.note(func(s *ControllerStats) { s.Leads = true; s.Terms++ })
	defer c.note(func(s *ControllerStats) { s.Leads, s.Waits = false, nil })
	w := &tenure{c: c, office: office, ahead: newAhead()}
	for {
		changed := c.states.Changed()
		state := c.states.State()
		var again time.Duration // 0: not before something has changed
		if state != nil && state.Revision >= office.Term() && state.Revision >= w.wait {
			next, err := w.step(ctx, state)
			if deposed := (*coordination.DeposedError)(nil); errors.As(err, &deposed) || ctx.Err() != nil {
				c.log.Info("No longer the controller", "term", office.Term())
				return
			}
			if again = next; err != nil {
				c.log.Warn("Could not carry out a plan; trying again", "error", err)
				again = controlRetry
			}
			if next < 0 {
				continue
			}
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, w.rest) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// office is where a controller writes; *coordination.Office is one.
type office interface {
	WriteShards(ctx context.Context, writes []coordination.ShardWrite) (revisions []int64, err error)
}

// tenure is what a controller knows beside the State while it is elected.
type tenure struct {
	c      *Controller
	office office
	ahead  *ahead
	waits  []Wait

	wait  int64         // a State before that would have the same done again, in vain
	moved time.Time     // when leaderships were last moved for balance
	rest  time.Duration // before the next plan
}

// step makes a plan and carries it out. It says when to do so again although the State is the same: at
// once (-1), later, or not (0).
func (w *tenure) step(ctx context.Context, state *coordination.State) (again time.Duration, err error) {
	began := time.Now()
	facts := w.ahead.facts(state)
	facts.HoldMoves = began.Sub(w.moved) < movesPause
	plan := Decide(facts)
	took := time.Since(began)
	w.waits = w.c.report(w.waits, plan.Waits)
	stale, err := w.carryOut(ctx, &plan)
	if plan.Moves > 0 {
		w.moved = time.Now()
	}
	w.rest = 0
	switch {
	case err != nil:
		return 0, err
	case stale:
		return controlRetry, nil // the State that shows what came first is on its way
	case plan.More:
		return -1, nil
	case len(plan.Writes) == 0:
		w.rest = min(3*took, restPause)
	}
	w.wait = w.ahead.revision
	if plan.Held {
		return max(time.Until(w.moved.Add(movesPause)), time.Millisecond), nil
	}
	return 0, nil
}

// carryOut does what the plan says. stale says that another write came first, which is no error.
func (w *tenure) carryOut(ctx context.Context, plan *Plan) (stale bool, err error) {
	var failed []error
	for _, t := range plan.Sweeps {
		if err := w.c.store.SweepTopic(ctx, t); err != nil {
			failed = append(failed, err)
			continue
		}
		w.ahead.swept[t.ID] = true
	}
	done := make([]Write, 0, len(plan.Writes))
	for _, part := range w.write(ctx, plan.Writes) {
		for i, revision := range part.revisions {
			w.ahead.wrote(&part.writes[i].Shard, revision)
		}
		done = append(done, part.writes[:len(part.revisions)]...)
		if late := (*coordination.StaleError)(nil); errors.As(part.err, &late) {
			stale = true
		} else if part.err != nil {
			failed = append(failed, part.err)
		}
	}
	w.c.tell(done)
	return stale, errors.Join(failed...)
}

// part is some writes of a plan, and what came of them.
type part struct {
	writes    []Write
	revisions []int64 // of the first of them, which are written
	err       error
}

// write writes the parts of a plan, all at once: etcd writes those that come together with one sync. A plan writes each shard once, so no part
// rests on another, and what stops one stops none of the others.
func (w *tenure) write(ctx context.Context, writes []Write) []part {
	var parts []part
	for some := range slices.Chunk(writes, coordination.MaxShardWrites) {
		parts = append(parts, part{writes: some})
	}
	var writers sync.WaitGroup
	for i := range parts {
		p := &parts[i]
		writers.Go(func() {
			these := make([]coordination.ShardWrite, 0, len(p.writes))
			for _, write := range p.writes {
				these = append(these, write.ShardWrite)
			}
			p.revisions, p.err = w.office.WriteShards(ctx, these)
		})
	}
	writers.Wait()
	return parts
}

// tell counts what was written, and logs it in a line.
func (c *Controller) tell(done []Write) {
	if len(done) == 0 {
		return
	}
	var lost []string
	by := make(map[WriteReason]map[string]int)
	for _, write := range done {
		if by[write.Reason] == nil {
			by[write.Reason] = make(map[string]int)
		}
		by[write.Reason][write.Shard.Leader]++
		if mayLose(write.Reason) && len(lost) < 10 {
			lost = append(lost, fmt.Sprintf("%s/%d", write.Topic.Name, write.Shard.Number))
		}
	}
	attributes := []any{"shards", len(done), "first", fmt.Sprintf("%s/%d", done[0].Topic.Name, done[0].Shard.Number)}
	var atRisk int
	c.note(func(s *ControllerStats) {
		for _, reason := range slices.Sorted(maps.Keys(by)) {
			var leaders []string
			for _, id := range slices.Sorted(maps.Keys(by[reason])) {
				n := by[reason][id]
				s.Writes[reason] += uint64(n)
				leaders = append(leaders, fmt.Sprintf("%s: %d", id, n))
				if mayLose(reason) {
					atRisk += n
				}
			}
			attributes = append(attributes, string(reason), strings.Join(leaders, ", "))
		}
	})
	c.log.Info("Changed who serves shards", attributes...)
	if atRisk > 0 {
		c.log.Warn("Some shards are led by a replica that may lack what was acknowledged", "shards", atRisk, "among", strings.Join(lost, " "))
	}
}

// mayLose says whether something that was acknowledged may be gone.
func mayLose(reason WriteReason) bool {
	return reason == LeastLoss || reason == Unclean || reason == LeaderReturnedUnsynced
}

// report logs what has begun to wait since the last plan.
func (c *Controller) report(before, now []Wait) []Wait {
	type key struct {
		topic  string
		shard  int
		reason WaitReason
	}
	known := make(map[key]bool, len(before))
	for _, w := range before {
		known[key{w.Topic.ID, w.Shard, w.Reason}] = true
	}
	counts := make(map[WaitReason]int)
	for _, w := range now {
		counts[w.Reason]++
		if !known[key{w.Topic.ID, w.Shard, w.Reason}] && counts[w.Reason] <= 10 { // the metric has them all
			c.log.Warn("A shard waits", "topic", w.Topic.Name, "shard", w.Shard, "reason", string(w.Reason), "why", w.Why)
		}
	}
	c.note(func(s *ControllerStats) { s.Waits = counts })
	return now
}

func (c *Controller) note(change func(*ControllerStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Stats returns a picture of the controller.
func (c *Controller) Stats() ControllerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Writes, s.Waits = maps.Clone(s.Writes), maps.Clone(s.Waits)
	return s
}
