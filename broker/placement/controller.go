package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// controlRetry is the pause after an error, or after another write came first.
	controlRetry = time.Second
	// maxStride bounds by how much an election raises an epoch: one of a thousand that are granted
	// twice is the same. 2^63 is not reached in a billion years of an election per second.
	maxStride = 1000
	// movesPause is the pause between moves of leaderships for balance. Each move delays the
	// shard's publishers for a moment, and clients learn of it.
	movesPause = time.Second
	// restPause bounds the pause after an empty plan. The pause is three times as long as the plan
	// took, so that frequent changes in a cluster of many shards do not keep a core busy with
	// plans.
	restPause = 100 * time.Millisecond
)

// States is a broker's view of etcd. State returns the newest State, nil before the first. Changed
// returns a channel that is closed when there is a newer State.
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

// ControllerStats are counters of this process, and the number of waits in its last plan.
type ControllerStats struct {
	Leads  bool
	Terms  uint64
	Writes map[WriteReason]uint64
	Waits  map[WaitReason]int // empty unless Leads
}

// NewController returns a Controller. It does nothing before Run.
func NewController(store *coordination.Client, states States, logger *slog.Logger) *Controller {
	return &Controller{store: store, states: states, log: logger.With("component", "controller"),
		stats: ControllerStats{Writes: make(map[WriteReason]uint64)}}
}

// Run stands for election in one incarnation of this broker, until ctx or the incarnation ends. It
// returns nil if the incarnation has ended.
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

// watch signals vacant when a State shows that there is no controller.
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

// lead carries out plans until ctx ends or the office is lost.
func (c *Controller) lead(ctx context.Context, office *coordination.Office) {
	c.log.Info("Elected as the controller", "term", office.Term())
	c.note(func(s *ControllerStats) { s.Leads = true; s.Terms++ })
	defer c.note(func(s *ControllerStats) { s.Leads, s.Waits = false, nil })
	w := &tenure{c: c, office: office, ahead: newAhead()}
	for {
		changed := c.states.Changed()
		state := c.states.State()
		var again time.Duration // 0: only after a change
		if state != nil && state.Generation == office.Generation() && state.Revision >= office.Term() &&
			state.Revision >= w.wait {
			next, err := w.step(ctx, state)
			if deposed := (*coordination.DeposedError)(nil); errors.As(err, &deposed) || ctx.Err() != nil {
				c.log.Info("No longer the controller", "term", office.Term())
				return
			}
			if again = next; err != nil {
				c.log.Warn(failedPlan, "error", err)
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
		if !work.Sleep(ctx, w.rest) {
			return
		}
	}
}

// office writes shards for a controller. *coordination.Office implements it.
type office interface {
	WriteShards(ctx context.Context, writes []coordination.ShardWrite) (revisions []int64, err error)
}

// tenure is what an elected controller knows beyond the State.
type tenure struct {
	c      *Controller
	office office
	ahead  *ahead
	waits  []Wait

	wait  int64         // least revision of a State to plan with; an older one gives the same plan
	moved time.Time     // when leaderships were last moved for balance
	rest  time.Duration // pause before the next plan
}

// step makes a plan and carries it out. again says when to plan again if the State stays the same:
// -1: at once; 0: not at all.
func (w *tenure) step(ctx context.Context, state *coordination.State) (
	again time.Duration, err error) {
	began := time.Now()
	facts := w.ahead.facts(state)
	facts.Stride = 1 + rand.Int64N(maxStride)
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
		return controlRetry, nil // the State with the other write is on its way
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

// failedPlan is logged with the errors of a plan's transactions.
const failedPlan = "Could not carry out a plan; trying again"

// carryOut carries out a plan. stale reports that some shards were changed by others first, which
// is not an error.
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
			if revision == 0 {
				stale = true
				continue
			}
			w.ahead.wrote(&part.writes[i].Shard, revision)
			done = append(done, part.writes[i])
		}
		if part.err != nil {
			failed = append(failed, part.err)
		}
	}
	w.c.logWrites(done)
	return stale, errors.Join(failed...)
}

// part is one transaction of a plan's writes, and its result.
type part struct {
	writes    []Write
	revisions []int64 // of the writes; 0: another write came first
	err       error
}

// write writes the parts of a plan concurrently, because etcd syncs concurrent writes together. A
// plan writes each shard once, so parts are independent, and a failed part stops no other.
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

// logWrites counts the writes and logs a summary, with a warning if acknowledged records may be
// lost.
func (c *Controller) logWrites(done []Write) {
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
	attributes := []any{"shards", len(done),
		"first", fmt.Sprintf("%s/%d", done[0].Topic.Name, done[0].Shard.Number)}
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
		c.log.Warn("Some shards are led by a replica that may lack what was acknowledged",
			"shards", atRisk, "among", strings.Join(lost, " "))
	}
}

// mayLose reports whether a write for that reason may lose acknowledged records.
func mayLose(reason WriteReason) bool {
	return reason == LeastLoss || reason == Unclean || reason == LeaderReturnedUnsynced
}

// report logs the waits that have begun since the last plan, and returns the present ones.
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
		// The metric counts all of them.
		if !known[key{w.Topic.ID, w.Shard, w.Reason}] && counts[w.Reason] <= 10 {
			c.log.Warn("A shard waits", "topic", w.Topic.Name, "shard", w.Shard,
				"reason", string(w.Reason), "why", w.Why)
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

// Stats returns a snapshot of the counters.
func (c *Controller) Stats() ControllerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Writes, s.Waits = maps.Clone(s.Writes), maps.Clone(s.Waits)
	return s
}
