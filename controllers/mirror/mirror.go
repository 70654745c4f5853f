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
	// minOwnerPause and maxOwnerPause bound the growing pause between checks of who owns the keys:
	// a new Broker claims them as soon as it can.
	minOwnerPause, maxOwnerPause = 250 * time.Millisecond, 5 * time.Second
	// maxNames bounds the names of absent brokers: each lost volume leaves an id.
	maxNames = 1000
)

// Mirror is the content of one Broker's etcd, and its brokers' numbers.
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
	wanted  atomic.Int32 // spec.replicas of the Broker, as seen last
	trouble atomic.Pointer[string]

	mu     sync.Mutex
	owners owners
	names  map[string]string        // of brokers, by id, including absent ones
	told   bool                     // follow has been called
	doubts map[string][]plan.Action // by id of the Topic; not yet returned by Doubts

	stop context.CancelFunc
	done chan struct{}
}

// teller triggers passes over the manifests that a change may affect.
type teller struct {
	topic        func(types.NamespacedName)
	subscription func(types.NamespacedName)
	view         func(types.NamespacedName)
	// referring triggers all manifests that refer to the Broker.
	referring func(context.Context, types.NamespacedName)
	// waiting triggers the manifests of a namespace that wait for a name or a subject.
	waiting func(namespace string)
	// broker triggers the Broker itself.
	broker func(types.NamespacedName)
	// users triggers the users of the Broker.
	users func(types.NamespacedName)
	// readers triggers the Subscriptions and Views whose manifests refer to that Topic.
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

// close ends the mirror and waits for its goroutines.
func (m *Mirror) close() {
	m.stop()
	<-m.done
	m.discard()
}

// discard closes the etcd client of a mirror that was never started.
func (m *Mirror) discard() {
	if err := m.etcd.Close(); err != nil {
		m.log.Warn("Closing the way to etcd failed", "broker", m.Broker, "error", err)
	}
}

// State returns the content of etcd; nil: not known yet.
func (m *Mirror) State() *coordination.State { return m.state.Load() }

// Trouble returns why State is not known yet; empty: unknown.
func (m *Mirror) Trouble() string {
	if trouble := m.trouble.Load(); trouble != nil {
		return *trouble
	}
	return ""
}

// waitUntilOurs waits until etcd answers that the keys belong to this Broker.
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

// follow stores a State, and triggers the manifests that the changes may affect.
func (m *Mirror) follow(ctx context.Context, state *coordination.State, changes coordination.Changes) {
	before := m.state.Swap(state)
	m.mu.Lock()
	first := !m.told
	if m.told = true; first {
		m.owners = newOwners() // the first changes contain everything
	}
	for _, c := range changes.Topics {
		m.owners.topic(c)
	}
	for _, c := range changes.Subscriptions {
		m.owners.subscription(c)
	}
	for _, c := range changes.Views {
		m.owners.view(c)
	}
	for _, b := range state.Brokers {
		if len(m.names) >= maxNames {
			clear(m.names) // absent brokers are shown by their ids then
		}
		m.names[b.ID] = b.Name
	}
	m.mu.Unlock()

	freed := false
	for _, c := range changes.Topics {
		if c.After == nil {
			m.Doubts(c.Before.ID) // nobody reads them any more
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
		if c.After == nil { // a manifest of that name may have waited
			m.tell.subscription(types.NamespacedName{Namespace: m.Broker.Namespace, Name: c.Before.Name})
		}
	}
	for _, c := range changes.Views {
		for _, v := range []*coordination.View{c.Before, c.After} {
			if v != nil {
				m.tellView(v)
			}
		}
		if c.After == nil { // a manifest of that name may have waited
			m.tell.view(types.NamespacedName{Namespace: m.Broker.Namespace, Name: c.Before.Name})
		}
	}
	if changes.Brokers && before != nil {
		m.tellMoved(before, state)
	}
	if first || len(changes.Shards) > 0 || changes.Brokers || changes.Controller || changes.Drains {
		m.tell.broker(m.Broker)
	}
	if first || changes.Users {
		m.tell.users(m.Broker)
	}
	switch {
	case first:
		m.tell.referring(ctx, m.Broker)
	case freed:
		m.tell.waiting(m.Broker.Namespace)
	}
}

// frees reports whether a change may make a name or a subject available, or gives it to another
// owner.
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

// tellOf triggers the manifests of a Topic, of its Subscriptions, and of the Views that read it.
func (m *Mirror) tellOf(state *coordination.State, topicID string) {
	if t := state.TopicByID(topicID); t != nil {
		if manifest, ok := manifestOf(t.Owner); ok {
			m.tell.topic(manifest)
		}
		for _, v := range state.ViewsOf(t.Name) {
			m.tellView(v)
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

func (m *Mirror) tellView(v *coordination.View) {
	if manifest, ok := manifestOf(v.Owner); ok {
		m.tell.view(manifest)
	}
}

// tellMoved triggers the Topics with replicas on a broker that joined, left or restarted.
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

// tellLeaderless triggers the Topics with a shard without a leader, since the brokers' reports
// determine their status.
func (m *Mirror) tellLeaderless(state *coordination.State) {
	for shard := range state.AllShards() {
		if shard.Leader == "" {
			m.tellOf(state, shard.Topic)
		}
	}
}

// tellOwners triggers every manifest that owns a key in etcd, including deleted ones.
func (m *Mirror) tellOwners() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for manifest := range m.owners.topics {
		m.tell.topic(manifest)
	}
	for manifest := range m.owners.subscriptions {
		m.tell.subscription(manifest)
	}
	for manifest := range m.owners.views {
		m.tell.view(manifest)
	}
}

// TopicsOf returns the Topics that a manifest of that namespace and name declared, without orphaned
// ones.
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

// SubscriptionsOf returns the same for Subscriptions.
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

// ViewsOf returns the same for Views.
func (m *Mirror) ViewsOf(manifest types.NamespacedName) (views []*coordination.View) {
	state := m.State()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.owners.views[manifest] {
		if v := state.View(name); v != nil {
			views = append(views, v)
		}
	}
	return views
}
