package mirror

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/plan"
)

const (
	// Whether the keys are the Broker's is asked again after a pause that grows between these:
	// a Broker that is being made claims them as soon as it can.
	minOwnerPause, maxOwnerPause = 250 * time.Millisecond, 5 * time.Second
	// maxNames bounds the names of brokers that are away: each volume that is lost leaves an id.
	maxNames = 1000
)

// Mirror is what one Broker's coordinators hold.
type Mirror struct {
	Broker types.NamespacedName
	UID    types.UID
	Keys   observe.Keys

	etcd     observe.Etcd
	identity string
	tell     teller
	log      *slog.Logger
	numbers  *numbers

	state   atomic.Pointer[coordination.State]
	wanted  atomic.Int32 // brokers, as the Broker's spec last said
	trouble atomic.Pointer[string]

	mu     sync.Mutex
	owners owners
	names  map[string]string        // of brokers, by id; also of those that are away
	told   bool                     // follow has been called
	doubts map[string][]plan.Action // by id of the Topic; what Doubts hasn't returned yet

	stop context.CancelFunc
	done chan struct{}
}

// teller brings what may concern manifests to them.
type teller struct {
	topic        func(types.NamespacedName)
	subscription func(types.NamespacedName)
	// referring tells all that refer to the Broker.
	referring func(context.Context, types.NamespacedName)
	// waiting tells those of a namespace that wait for a name or a subject.
	waiting func(namespace string)
	// broker tells the Broker itself.
	broker func(types.NamespacedName)
	// readers tells the Subscriptions whose manifests refer to that Topic.
	readers func(ctx context.Context, topic types.NamespacedName)
}

// start follows the keys until close is called.
func (m *Mirror) start(ctx context.Context, known *coordination.State) {
	m.state.Store(known)
	ctx, m.stop = context.WithCancel(ctx)
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		var both sync.WaitGroup
		defer both.Wait()
		if !m.waitUntilOurs(ctx) {
			return
		}
		both.Go(func() { m.poll(ctx) })
		if err := m.Keys.WatchState(ctx, func(state *coordination.State, changes coordination.Changes) { m.follow(ctx, state, changes) }); err != nil {
			m.log.Error("Following a Broker's keys ended", "broker", m.Broker, "error", err)
		}
	}()
}

// close ends it, and what runs for it.
func (m *Mirror) close() {
	m.stop()
	<-m.done
	m.discard()
}

// discard closes the way to etcd of a mirror that follows nothing.
func (m *Mirror) discard() {
	if err := m.etcd.Close(); err != nil {
		m.log.Warn("Closing the way to etcd failed", "broker", m.Broker, "error", err)
	}
}

// State is what etcd holds; nil: that is not known yet.
func (m *Mirror) State() *coordination.State { return m.state.Load() }

// Trouble is why State is not known yet; empty: nothing was found out.
func (m *Mirror) Trouble() string {
	if trouble := m.trouble.Load(); trouble != nil {
		return *trouble
	}
	return ""
}

// waitUntilOurs waits until etcd answers that the keys are this Broker's.
func (m *Mirror) waitUntilOurs(ctx context.Context) bool {
	pause := minOwnerPause
	for {
		owner, err := m.etcd.Owner(ctx)
		if err == nil && observe.Ours(owner, m.identity) {
			m.trouble.Store(nil)
			return true
		}
		trouble := "the keys in etcd are not claimed yet"
		switch {
		case err != nil:
			trouble = plan.Cause(err)
		case owner != "":
			trouble = "the keys in etcd belong to " + owner
		}
		if ctx.Err() == nil && m.Trouble() != trouble {
			m.trouble.Store(&trouble)
			m.tell.referring(ctx, m.Broker)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		pause = min(2*pause, maxOwnerPause)
	}
}

// follow takes what has changed, and tells whom it may concern.
func (m *Mirror) follow(ctx context.Context, state *coordination.State, changes coordination.Changes) {
	before := m.state.Swap(state)
	m.mu.Lock()
	first := !m.told
	if m.told = true; first {
		m.owners = newOwners() // the first changes are everything that there is
	}
	for _, c := range changes.Topics {
		m.owners.topic(c)
	}
	for _, c := range changes.Subscriptions {
		m.owners.subscription(c)
	}
	for _, b := range state.Brokers {
		if len(m.names) >= maxNames {
			clear(m.names) // of those that are away ids are shown then
		}
		m.names[b.ID] = b.Name
	}
	m.mu.Unlock()

	freed := false
	for _, c := range changes.Topics {
		if c.After == nil {
			m.Doubts(c.Before.ID) // nobody is left to be told
		}
		freed = freed || frees(c)
		for _, t := range []*coordination.Topic{c.Before, c.After} {
			if t == nil {
				continue
			}
			if manifest, ok := manifestOf(t.Owner); ok {
				m.tell.topic(manifest)
				if c.Before == nil || c.After == nil || c.Before.Owner != c.After.Owner {
					m.tell.readers(ctx, manifest)
				}
			}
		}
	}
	for _, c := range changes.Shards {
		if c.After != nil {
			m.doubt(c)
			m.tellOf(state, c.After.Topic)
		}
	}
	if changes.Reports {
		m.tellLeaderless(state)
	}
	for _, c := range changes.Subscriptions {
		for _, s := range []*coordination.Subscription{c.Before, c.After} {
			if s != nil {
				m.tellSubscription(s)
			}
		}
		if c.After == nil { // a manifest of that name may have waited for it
			m.tell.subscription(types.NamespacedName{Namespace: m.Broker.Namespace, Name: c.Before.Name})
		}
	}
	if changes.Brokers && before != nil {
		m.tellMoved(before, state)
	}
	if first || len(changes.Shards) > 0 || changes.Brokers || changes.Controller || changes.Drains {
		m.tell.broker(m.Broker)
	}
	switch {
	case first:
		m.tell.referring(ctx, m.Broker)
	case freed:
		m.tell.waiting(m.Broker.Namespace)
	}
}

// frees says that a name or a subject may be somebody else's now, or that it belongs to another.
func frees(c coordination.Change[coordination.Topic]) bool {
	if c.Before == nil {
		return false
	}
	if c.After == nil || c.After.Owner != c.Before.Owner || len(c.After.Spec.Subjects) != len(c.Before.Spec.Subjects) {
		return true
	}
	for i, s := range c.Before.Spec.Subjects {
		if c.After.Spec.Subjects[i] != s {
			return true
		}
	}
	return false
}

// tellOf tells the manifests of a Topic and of its Subscriptions.
func (m *Mirror) tellOf(state *coordination.State, topicID string) {
	if t := state.TopicByID(topicID); t != nil {
		if manifest, ok := manifestOf(t.Owner); ok {
			m.tell.topic(manifest)
		}
	}
	for _, s := range state.Subscriptions(topicID) {
		m.tellSubscription(s)
	}
}

func (m *Mirror) tellSubscription(s *coordination.Subscription) {
	if manifest, ok := manifestOf(s.Owner); ok {
		m.tell.subscription(manifest)
	}
}

// tellMoved tells those whose records are on a broker that came, went, or lives anew.
func (m *Mirror) tellMoved(before, state *coordination.State) {
	moved := func(id string) bool {
		was, wasThere := before.Broker(id)
		is, isThere := state.Broker(id)
		return wasThere != isThere || was.Incarnation != is.Incarnation
	}
	for shard := range state.AllShards() {
		for _, id := range shard.Replicas {
			if moved(id) {
				m.tellOf(state, shard.Topic)
				break
			}
		}
	}
}

// tellLeaderless tells those whose shards have no leader: what a broker can vouch for decides of
// it.
func (m *Mirror) tellLeaderless(state *coordination.State) {
	for shard := range state.AllShards() {
		if shard.Leader == "" {
			m.tellOf(state, shard.Topic)
		}
	}
}

// tellOwners tells every manifest that something in etcd belongs to; also those that are gone.
func (m *Mirror) tellOwners() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for manifest := range m.owners.topics {
		m.tell.topic(manifest)
	}
	for manifest := range m.owners.subscriptions {
		m.tell.subscription(manifest)
	}
}

// TopicsOf are the Topics that a manifest of that namespace and name declared; without those that
// are orphaned.
func (m *Mirror) TopicsOf(manifest types.NamespacedName) (topics []*coordination.Topic) {
	state := m.State()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.owners.topics[manifest] {
		if t := state.Topic(name); t != nil && !t.Deleting {
			topics = append(topics, t)
		}
	}
	return topics
}

// SubscriptionsOf are the same of Subscriptions.
func (m *Mirror) SubscriptionsOf(manifest types.NamespacedName) (subscriptions []*coordination.Subscription) {
	state := m.State()
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.owners.subscriptions[manifest] {
		if s := state.Subscription(key.topicID, key.name); s != nil {
			subscriptions = append(subscriptions, s)
		}
	}
	return subscriptions
}
