package topic

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// MaxShards is how many shards of one Topic brokers can serve, until partitioning is there.
const MaxShards = 1

// controlRetry is how long a controller waits after an error before it looks again.
const controlRetry = time.Second

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
	var wrote int64 // a State before that would have the same done again, in vain
	var waits []Wait
	for {
		var retry <-chan time.Time // nothing to do again unless something failed
		changed := c.states.Changed()
		state := c.states.State()
		if state != nil && state.Revision >= wrote && state.Revision >= office.Term() {
			plan := planFor(state)
			waits = c.report(waits, plan.Waits)
			revision, err := c.carryOut(ctx, office, &plan)
			wrote = max(wrote, revision)
			if deposed := (*coordination.DeposedError)(nil); errors.As(err, &deposed) || ctx.Err() != nil {
				c.log.Info("No longer the controller", "term", office.Term())
				return
			}
			if err != nil {
				c.log.Warn("Could not carry out a plan; trying again", "error", err)
				retry = time.After(controlRetry)
			}
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// carryOut does what the plan says and returns the revision of the last shard that was written. That
// another write came first is no error: the State that shows it is on its way.
func (c *Controller) carryOut(ctx context.Context, office *coordination.Office, plan *Plan) (revision int64, err error) {
	var failed []error
	for _, t := range plan.Sweeps {
		if err := c.store.SweepTopic(ctx, t); err != nil {
			failed = append(failed, err)
		}
	}
	if len(plan.Writes) == 0 {
		return 0, errors.Join(failed...)
	}
	writes := make([]coordination.ShardWrite, 0, len(plan.Writes))
	for _, w := range plan.Writes {
		writes = append(writes, w.ShardWrite)
	}
	revision, err = office.WriteShards(ctx, writes)
	if stale := (*coordination.StaleError)(nil); errors.As(err, &stale) {
		return 0, errors.Join(failed...)
	}
	if err == nil {
		c.note(func(s *ControllerStats) {
			for _, w := range plan.Writes {
				s.Writes[w.Reason]++
			}
		})
		first := plan.Writes[0]
		c.log.Info("Placed shards", "shards", len(writes), "first", first.Topic.Name, "leader", first.Shard.Leader, "epoch", first.Shard.Epoch, "reason", string(first.Reason))
	}
	return revision, errors.Join(append(failed, err)...)
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

func planFor(state *coordination.State) Plan {
	facts := Facts{Brokers: state.Brokers, Shards: state.Shards, MaxShards: MaxShards}
	for t := range state.Topics() {
		facts.Topics = append(facts.Topics, t)
	}
	return PlanPlacement(facts)
}
