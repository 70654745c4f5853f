package subscription

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// Config configures a Service.
type Config struct {
	Self   string // id of this broker
	Topics *topic.Service
	Sink   func(t *topic.Shard, name string) DeliverySink
	Clock  *clock.Clock // nil: the machine's clock alone
	// DeadLetters stores records that are given up. nil: Subscriptions with dead letters are
	// refused.
	DeadLetters DeadLetters
	// Endpoint returns the Endpoint of a Subscription of the shard, whose lock is held. nil:
	// Subscriptions with one are refused.
	Endpoint func(s *Subscription, t *topic.Shard) Endpoint
	Logger   *slog.Logger
	// Retired is called for a reader that was deleted because nobody used it. It must not block. It
	// may be nil.
	Retired func(t *topic.Shard, name string)
	// MayRead returns an error if a user may not have one more reader, beside so many of this broker.
	// It is called with locks held, and must not block. nil: all may.
	MayRead func(user string, has int) error
	// Inactive is called for a durable Subscription that was unused for as long as its spec
	// permits. Its creator may delete it, but not one with another incarnation. It must not
	// block. It may be nil.
	Inactive func(t *topic.Shard, name string, incarnation int64)
}

// Service serves the Subscriptions of the shards that this broker leads.
type Service struct {
	config Config
	tasks  tasks
	counts *work.Jobs      // of the index, for deliveries
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	epoch  int64 // offset of now from the clock's Mono
	// snapshotBytes, countBytes and mostSubjects, except in tests.
	wholeAfter, countBytes, mostSubjects int

	mu     sync.Mutex
	state  desires
	ahead  desires                 // that of Observe; nil: none
	stores map[string]*cursorStore // by shard key
	closed bool

	makers makers

	eager atomic.Bool // nothing waits for lazyFor

	changedMu sync.Mutex // guards changed; locked after all other locks
	changed   chan struct{}

	delivered, redelivered, acked, exhausted, deadLettered, lost, stateBytes, released, unjudged atomic.Uint64
}

// New returns a Service without shards. ShardChanged adds them.
func New(config Config) *Service {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.New(clock.Config{Logger: config.Logger})
	}
	s := &Service{
		config: config, counts: work.NewJobs(countsAtOnce, countsWaiting, 0), tasks: newTasks(max(2, runtime.GOMAXPROCS(0))), epoch: config.Clock.Off(), wholeAfter: snapshotBytes, countBytes: countBytes, mostSubjects: mostSubjects,
		stores: map[string]*cursorStore{}, makers: makers{of: map[string]int{}}, changed: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// now returns nanoseconds that run as the clock's Mono, for deadlines. It starts at the clock's
// time and does not follow its changes.
func (s *Service) now() int64 { return s.epoch + s.config.Clock.Mono() }

// at converts a value of now to the clock's time.
func (s *Service) at(now int64) time.Time {
	if now == 0 {
		return time.Time{}
	}
	return time.Unix(0, s.recordTime(now))
}

// recordTime returns the clock's time at a value of now, in nanoseconds since 1970.
func (s *Service) recordTime(now int64) int64 { return now - s.epoch + s.config.Clock.Off() }

// written returns the value of now at which a record with the given time was written, on any
// broker. It is never later than now, and now itself if the ages of records are unknown. So a
// deadline after it never passes later than if it began now.
func (s *Service) written(record int64) int64 {
	c := s.config.Clock
	if !c.Verdict().Elapsed {
		return s.now()
	}
	return s.epoch + c.Written(record)
}

func (s *Service) sink(t *topic.Shard, name string) DeliverySink { return s.config.Sink(t, name) }

// notifyWaiters wakes Wait.
func (s *Service) notifyWaiters() {
	s.changedMu.Lock()
	defer s.changedMu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// desires is the desired state of Subscriptions. *coordination.State implements it.
type desires interface {
	// Subscriptions returns those of one Topic.
	Subscriptions(topicID string) []*coordination.Subscription
	// Subscription returns one of them, or nil.
	Subscription(topicID, name string) *coordination.Subscription
	// Unreadable returns the keys that this version cannot decode.
	Unreadable() []string
	// TopicByID returns a Topic, or nil.
	TopicByID(id string) *coordination.Topic
	// AllHave reports whether all registered brokers announce a feature.
	AllHave(feature coordination.Feature) bool
}

func (s *Service) current() desires {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// newest returns the State of Observe, or of Follow if there is none.
func (s *Service) newest() desires {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead != nil {
		return s.ahead
	}
	return s.state
}

// Observe announces a State before anybody follows it. A shard that is led because of it is served
// with at least the Subscriptions that it has: otherwise records that only one of them needs could
// be removed.
func (s *Service) Observe(state *coordination.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = state
}

// Follow applies a new State of the cluster. It does not block.
func (s *Service) Follow(state *coordination.State, changes coordination.Changes) {
	s.follow(state, changes)
}

func (s *Service) follow(state desires, changes coordination.Changes) {
	s.mu.Lock()
	all := s.state == nil || changes.Unreadable
	s.state = state
	s.mu.Unlock()
	if all {
		for _, k := range s.allStores() {
			k.desiredChanged("", true)
		}
		return
	}
	for _, c := range changes.Topics {
		if c.Before == nil || c.After == nil || c.Before.Spec.Stream.Retention == c.After.Spec.Stream.Retention {
			continue
		}
		for n := range max(c.After.Spec.Shards, 1) {
			if k := s.store(coordination.ShardKey(c.After.ID, n)); k != nil {
				k.topicChanged()
			}
		}
	}
	for _, c := range changes.Subscriptions {
		of := c.After
		if of == nil {
			of = c.Before
		}
		for n := range placement.MaxShards {
			if k := s.store(coordination.ShardKey(of.Topic, n)); k != nil {
				k.desiredChanged(of.Name, false)
			}
		}
	}
}

// allStores returns all cursor stores, in no particular order.
func (s *Service) allStores() []*cursorStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.stores))
}

// ShardChanged starts or stops serving the Subscriptions of a shard. When a stop returns, the
// shard is not used any more.
func (s *Service) ShardChanged(shard *topic.ShardLeader, open bool) {
	t := shard.Shard()
	if !open {
		s.leave(t.Key(), shard)
		return
	}
	s.lead(&servedShard{Source: shard, topic: t, topicID: t.ID(), key: t.Key(), name: t.Name()})
}

// Rewrite has the state log of a shard trimmed if it is worth it: others than this package have
// written that many bytes that they do not need any more. They hold the log from where they do.
func (s *Service) Rewrite(shard *topic.ShardLeader, others int64) {
	if k := s.store(shard.Shard().Key()); k != nil {
		k.othersWrote(int(others))
	}
}

// lead starts serving a shard.
func (s *Service) lead(p *servedShard) {
	if p.key == "" {
		p.key = p.topicID
	}
	k := newCursorStore(s, p)
	s.mu.Lock()
	before := s.stores[p.key]
	if !s.closed {
		s.stores[p.key] = k
	}
	closed := s.closed
	s.mu.Unlock()
	if before != nil {
		before.close(LeaderGone)
	}
	if !closed {
		s.tasks.wake(k)
	}
}

// leave stops serving a shard.
func (s *Service) leave(key string, source Source) {
	s.mu.Lock()
	k := s.stores[key]
	if k != nil && k.shard.Source == source {
		delete(s.stores, key)
	} else {
		k = nil
	}
	s.mu.Unlock()
	if k != nil {
		k.close(k.shard.endReason())
		s.notifyWaiters()
	}
}

func (s *Service) store(key string) *cursorStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stores[key]
}

// find returns the Subscription of that name, or why it is not served.
func (s *Service) find(key, name string) (*Subscription, *NotServedError) {
	s.mu.Lock()
	k, closed := s.stores[key], s.closed
	s.mu.Unlock()
	not := &NotServedError{Topic: key, Name: name}
	switch {
	case closed:
		not.Reason, not.Why = Closing, "this broker is stopping; another one, or this one later, will serve it"
		return nil, not
	case k == nil:
		not.Reason, not.Why = NoShard, "its topic is not led by this broker"
		return nil, not
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.subs[name]
	switch {
	case e != nil && e.served:
		return e.sub, nil
	case e != nil && e.why != nil && k.appliedVersion == k.desiredVersion:
		return nil, e.why
	case e != nil:
		not.Reason, not.Why = Opening, "where it starts is being found and written"
	case k.failed != nil:
		not.Reason, not.Why, not.Err = Troubled, "where it stands can't be read: "+k.failed.Error(), k.failed
	case k.appliedVersion != k.desiredVersion:
		not.Reason, not.Why = Opening, "where it stands is being read"
	default:
		not.Reason, not.Why = NoSuch, "there is none of that name"
	}
	return nil, not
}

// Find returns the Subscription of that name if it is served here, or nil; WhyNot returns the
// reason. It is called for every ack and pull, so it allocates nothing.
func (s *Service) Find(key, name string) *Subscription {
	s.mu.Lock()
	k, closed := s.stores[key], s.closed
	s.mu.Unlock()
	if k == nil || closed {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.subs[name]; e != nil && e.served {
		return e.sub
	}
	return nil
}

// WhyNot returns a *NotServedError if a Subscription is not served here, or nil.
func (s *Service) WhyNot(key, name string) error {
	if _, not := s.find(key, name); not != nil {
		return not
	}
	return nil
}

// Wait is Find that waits until the Subscription is served here, cannot be served, or ctx ends. A
// Subscription is served once its start position is durable.
func (s *Service) Wait(ctx context.Context, key, name string) (*Subscription, error) {
	for {
		s.changedMu.Lock()
		changed := s.changed
		s.changedMu.Unlock()
		found, not := s.find(key, name)
		switch {
		case not == nil:
			return found, nil
		case not.Reason == Unsupported, not.Reason == Troubled, not.Reason == Closing:
			return nil, not
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, not
		}
	}
}

// List returns the Subscriptions of a shard that are served here, sorted by name.
func (s *Service) List(key string) []*Subscription {
	k := s.store(key)
	if k == nil {
		return nil
	}
	k.mu.Lock()
	var all []*Subscription
	for _, e := range k.subs {
		if e.served {
			all = append(all, e.sub)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(all, func(a, b *Subscription) int { return strings.Compare(a.id.name, b.id.name) })
	return all
}

// EndPulls ends the requests of clients that wait, because this broker is about to close their
// connections.
func (s *Service) EndPulls() {
	for _, k := range s.allStores() {
		for _, sub := range k.each() {
			sub.endPulls(Stopping)
		}
	}
}

// Settle returns when all that was noted is as durable as the Topics require, or when ctx ends.
// From then on nothing waits for lazyFor. So little is delivered again by the next leaders.
func (s *Service) Settle(ctx context.Context) {
	s.eager.Store(true)
	var writes sync.WaitGroup
	for _, k := range s.allStores() {
		if !k.unsettled() {
			continue
		}
		writes.Add(1)
		if k.await(func(error) { writes.Done() }) != nil {
			writes.Done()
		}
	}
	written := make(chan struct{})
	go func() {
		writes.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// Close ends all requests, writes the cursors, and stops the workers.
func (s *Service) Close() error {
	s.mu.Lock()
	stores := s.stores
	s.stores, s.closed = map[string]*cursorStore{}, true
	s.mu.Unlock()
	for _, k := range stores {
		k.close(Stopping)
	}
	s.notifyWaiters()
	s.tasks.Close()
	s.stop()
	s.counts.Close()
	return nil
}

// Stats are counters and gauges.
type Stats struct {
	Subscriptions int
	Ephemerals    int // of Subscriptions
	Waiting       int // requests
	Pending       int // pending records
	Delivered     uint64
	Redelivered   uint64 // of Delivered
	Acked         uint64
	Exhausted     uint64 // records dropped after the maximum of deliveries
	DeadLettered  uint64 // records stored in dead-letter Topics
	GivenUp       int    // records that wait to be stored there
	Lost          uint64 // records skipped because they cannot be read
	StateBytes    uint64 // written to state logs
	Released      uint64 // records removed because no Subscription needs them
	Unjudged      uint64 // records that conditions could not judge
}

// Stats returns the service's counters and gauges.
func (s *Service) Stats() Stats {
	stats := Stats{
		Delivered: s.delivered.Load(), Redelivered: s.redelivered.Load(), Acked: s.acked.Load(),
		Exhausted: s.exhausted.Load(), DeadLettered: s.deadLettered.Load(), Lost: s.lost.Load(),
		StateBytes: s.stateBytes.Load(), Released: s.released.Load(), Unjudged: s.unjudged.Load(),
	}
	for _, k := range s.allStores() {
		for _, sub := range k.each() {
			sub.mu.Lock()
			stats.Subscriptions++
			if sub.ephemeral.Load() {
				stats.Ephemerals++
			}
			stats.Waiting += sub.waiting.n
			stats.Pending += sub.cursor.pending.live
			if sub.dead != nil {
				sub.dead.sweep()
				stats.GivenUp += len(sub.dead.givenUp)
			}
			sub.mu.Unlock()
		}
	}
	return stats
}
