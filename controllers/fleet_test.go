package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil/keys"
)

// leaseTTL is the TTL of a fake broker's lease: longer than a busy machine stops a goroutine. No
// test waits for the end of a lease; brokers that stop revoke theirs.
const leaseTTL = 30 * time.Second

// fleet is fake brokers of the Broker main: registered in etcd, one of them placing shards, each
// answering requests for its numbers.
type fleet struct {
	t    *testing.T
	keys *coordination.Client
	// features are announced by brokers that start from now on.
	features coordination.FeatureSet

	mu     sync.Mutex
	counts map[string]counted // by id of the Topic
	asked  int
	behind map[string]bool // ids of brokers whose replicas stay out of sync
	doubt  string          // why leaders that are elected from now on may lack records; empty: they don't
	// comparing means that shards of an earlier generation wait.
	comparing bool
}

// counted is the brokers' numbers of a Topic. The zero value is an empty one.
type counted struct {
	messages, bytes int64
	trouble         string
	lag             int64
	dead            string // why dead letters are not stored
	endangered      string // why retention is about to delete what was not acknowledged
	endpoint        string // why the endpoint is not reached
	silent          bool   // they don't answer
	clients         int64  // of each Subscription, of each broker
	heldUp          string // why Views can't go on
}

// member is one broker of the fleet.
type member struct {
	*fleet
	id, name string
	stop     func()

	mu     sync.Mutex
	state  *coordination.State
	change chan struct{}
}

func (w *world) newFleet(names ...string) (*fleet, map[string]*member) {
	w.t.Helper()
	f := &fleet{t: w.t, counts: map[string]counted{}, behind: map[string]bool{}}
	f.keys = w.keys()
	members := map[string]*member{}
	for _, name := range names {
		members[name] = f.start(name)
	}
	return f, members
}

// keys returns a client of the keys of the Broker main, besides the operator's.
func (w *world) keys() *coordination.Client {
	w.t.Helper()
	keys, err := coordination.Open(coordination.Config{
		Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}, Cluster: w.namespace + "/main", LeaseTTL: leaseTTL,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = keys.Close() })
	return keys
}

// start starts a broker. Its id depends on its name, as with its volume.
func (f *fleet) start(name string) *member { return f.startAs(name, "id-of-"+name) }

// startAs starts a broker on a volume with that id.
func (f *fleet) startAs(name, id string) *member {
	m := &member{fleet: f, id: id, name: name, change: make(chan struct{})}
	server := httptest.NewServer(m)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.run(ctx, strings.TrimPrefix(server.URL, "http://"))
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-done; server.Close() })
	f.t.Cleanup(m.stop)
	return m
}

func (m *member) run(ctx context.Context, address string) {
	var both sync.WaitGroup
	defer both.Wait()
	lives, vacant := make(chan int64, 1), make(chan struct{}, 1)
	both.Go(func() {
		_ = m.keys.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
			if state.Controller.Term == 0 {
				select {
				case vacant <- struct{}{}:
				default:
				}
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.state = state
			close(m.change)
			m.change = make(chan struct{})
		})
	})
	both.Go(func() {
		self := coordination.Broker{ID: m.id, Name: m.name, Client: m.name + ":4222", HTTP: address, Features: m.features}
		if err := m.keys.Join(ctx, self, func(life int64) { lives <- life }); err != nil {
			m.t.Error(err)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case life := <-lives:
			err := m.keys.Campaign(ctx, coordination.Replica{Broker: m.id, Incarnation: life}, vacant, m.place)
			if lost := (*coordination.NotRegisteredError)(nil); err != nil && !errors.As(err, &lost) {
				m.t.Error(err)
			}
		}
	}
}

// place places the shards of each Topic, and elects leaders again for returned brokers.
func (m *member) place(ctx context.Context, office *coordination.Office) {
	for ctx.Err() == nil {
		m.mu.Lock()
		state, change := m.state, m.change
		m.mu.Unlock()
		var writes []coordination.ShardWrite
		if state != nil {
			writes = m.missing(ctx, state)
		}
		if len(writes) > 0 {
			if _, err := office.WriteShards(ctx, writes[:min(len(writes), coordination.MaxShardWrites)]); err != nil && ctx.Err() == nil {
				m.t.Log("placing:", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-change:
		case <-time.After(time.Second): // a broker may have been released from holdBack
		}
	}
}

func (m *member) missing(ctx context.Context, state *coordination.State) (writes []coordination.ShardWrite) {
	for topic := range state.Topics() {
		if topic.Deleting {
			_ = m.keys.SweepTopic(ctx, topic)
			continue
		}
		for number := range topic.Spec.Shards {
			if shard, ok := m.shard(state, topic, number, len(writes)); ok {
				writes = append(writes, coordination.ShardWrite{Shard: shard, Topic: topic})
			}
		}
	}
	return writes
}

// shard returns the next state of a Topic's shard, if there is one: with the wanted number of
// replicas, in sync at once unless held back, and none on a drained broker.
func (m *member) shard(state *coordination.State, topic *coordination.Topic, number, turn int) (coordination.Shard, bool) {
	want := topic.Spec.ResolvedReplicas(len(state.Brokers))
	next := coordination.Shard{Topic: topic.ID, Number: number}
	found := state.Shard(topic.ID, number)
	if found != nil {
		next = *found
		next.Replicas, next.InSync = slices.Clone(found.Replicas), nil
		if found.Generation < state.Generation && m.waits() {
			return next, false
		}
	}
	next.Generation = state.Generation
	staying := func(id string) bool { return state.Drain(id) != coordination.DrainAll }
	for i := range state.Brokers {
		b := state.Brokers[(turn+state.ShardCount()+i)%len(state.Brokers)]
		stay := 0
		for _, id := range next.Replicas {
			if staying(id) {
				stay++
			}
		}
		if stay < want && staying(b.ID) && !slices.Contains(next.Replicas, b.ID) {
			next.Replicas = append(next.Replicas, b.ID)
		}
	}
	m.fleet.mu.Lock()
	for _, id := range next.Replicas {
		b, there := state.Broker(id)
		_, was := next.Member(id)
		if there && (was || !m.fleet.behind[id]) && (found == nil || len(found.Replicas) > 1 || want > 1 || slices.Contains(found.Replicas, id)) {
			next.InSync = append(next.InSync, b.Replica())
		}
	}
	m.fleet.mu.Unlock()
	if len(next.InSync) == 0 {
		return next, false // unchanged until one of them is back
	}
	for _, id := range slices.Clone(next.Replicas) {
		if without := slices.DeleteFunc(slices.Clone(next.InSync), func(r coordination.Replica) bool { return r.Broker == id }); len(next.Replicas) > want && len(without) >= want &&
			(!staying(id) || !slices.ContainsFunc(next.Replicas, func(id string) bool { return !staying(id) })) {
			next.Replicas = slices.DeleteFunc(next.Replicas, func(other string) bool { return other == id })
			next.InSync = without
		}
	}
	leader := next.InSync[0]
	if member, in := next.Member(next.Leader); in && found != nil {
		leader = member
	}
	if found != nil && found.Generation == next.Generation && found.Leader == leader.Broker && slices.Equal(found.InSync, next.InSync) && slices.Equal(found.Replicas, next.Replicas) {
		return next, false
	}
	next.Leader = leader.Broker
	next.Epoch++
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.fleet.doubt != "" {
		next.Doubt = coordination.Doubt{Epoch: next.Epoch, Leader: next.Leader, Reason: m.fleet.doubt}
	}
	return next, true
}

// compare sets whether shards of an earlier generation wait.
func (f *fleet) compare(waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.comparing = waits
}

func (f *fleet) waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.comparing
}

// ServeHTTP answers /topics.
func (m *member) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	m.mu.Lock()
	state, id := m.state, m.id
	m.mu.Unlock()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.asked++
	if request.URL.Path != "/topics" || state == nil {
		http.NotFound(w, request)
		return
	}
	topics, clients := []map[string]any{}, []map[string]any{}
	for topic := range state.Topics() {
		for _, s := range state.Subscriptions(topic.ID) {
			if n := m.counts[topic.ID].clients; n > 0 {
				clients = append(clients, map[string]any{"topic": topic.ID, "subscription": s.Name, "clients": n})
			}
		}
	}
	for shard := range state.AllShards() {
		counts, topic := m.counts[shard.Topic], state.TopicByID(shard.Topic)
		if shard.Leader != id || topic == nil || counts.silent {
			continue
		}
		var subscriptions []map[string]any
		for _, s := range state.Subscriptions(shard.Topic) {
			unreached := ""
			if counts.endpoint != "" {
				unreached = "Unreachable"
			}
			subscriptions = append(subscriptions, map[string]any{"endpoint": unreached, "endpointWhy": counts.endpoint, "name": s.Name, "lag": counts.lag, "pending": 1, "redelivered": 0, "deadLettered": 2, "givenUp": 1, "deadLetterTrouble": counts.dead, "endangered": counts.endangered})
		}
		var views []map[string]any
		for _, v := range state.ViewsOf(topic.Name) {
			views = append(views, map[string]any{"name": v.Name, "keys": 3, "late": 1, "failed": 2, "refused": 4, "removedUnread": 5, "trouble": counts.heldUp,
				"watermark": time.Date(2026, 1, 2, 3, 4, 5+shard.Number, 6, time.UTC)})
		}
		topics = append(topics, map[string]any{
			"views": views,
			"id":    shard.Topic, "shard": shard.Number, "name": topic.Name, "epoch": shard.Epoch, "first": 1, "last": counts.messages,
			"messages": counts.messages, "bytes": counts.bytes, "trouble": counts.trouble, "subscriptions": subscriptions,
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"broker": id, "topics": topics, "clients": clients})
}

// count sets the brokers' numbers of a Topic.
func (f *fleet) count(name string, counts counted) {
	f.t.Helper()
	topic := f.topic(name)
	if topic == nil {
		f.t.Fatalf("there is no topic %s to count", name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[topic.ID] = counts
}

// topic returns a Topic in etcd, or nil.
func (f *fleet) topic(name string) *coordination.Topic {
	f.t.Helper()
	topic, err := f.keys.GetTopic(f.t.Context(), name)
	if gone := (*coordination.NotFoundError)(nil); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return topic
}

func (f *fleet) subscription(topic, name string) *coordination.Subscription {
	f.t.Helper()
	s, err := f.keys.GetSubscription(f.t.Context(), topic, name)
	if gone := (*coordination.NotFoundError)(nil); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// view returns a View in etcd, or nil.
func (f *fleet) view(name string) *coordination.View {
	f.t.Helper()
	v, err := f.keys.GetView(f.t.Context(), name)
	if gone := (*coordination.NotFoundError)(nil); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// until waits until a condition about etcd holds.
func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	eventually.For(f.t, what, func(context.Context) error {
		if !ok() {
			names := []string{}
			for t := range keys.State(f.t, f.keys).Topics() {
				names = append(names, fmt.Sprintf("%s %v of %s", t.Name, t.Spec.Subjects, t.Owner))
			}
			slices.Sort(names)
			return fmt.Errorf("not yet; there are %v", names)
		}
		return nil
	})
}
