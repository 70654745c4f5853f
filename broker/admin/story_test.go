package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/internal/testutil"
	etcdtest "github.com/carillon-mq/carillon/internal/testutil/etcd"
)

// cluster is a real etcd, and a Server that follows it.
type cluster struct {
	*testing.T
	*coordination.Client
	server *Server
	box    *inbox

	mu      sync.Mutex
	state   *coordination.State
	changed chan struct{} // closed when state is no longer the newest; nil: no waiter
}

// await waits for a State for which ok returns true.
func (c *cluster) await(what string, ok func(*coordination.State) bool) {
	c.Helper()
	late := time.After(testutil.Patience)
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		state, changed := c.state, c.changed
		c.mu.Unlock()
		if state != nil && ok(state) {
			return
		}
		select {
		case <-changed:
		case <-late:
			c.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (c *cluster) State() *coordination.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *cluster) ByID(string) *topic.Topic { return nil }

// startAdmin starts a Server without brokers or Topics, over an etcd of its own.
func startAdmin(t *testing.T) *cluster {
	t.Helper()
	store, err := coordination.Open(coordination.Config{
		// No test waits for the end of a lease.
		Endpoints: []string{etcdtest.Start(t).Endpoint()}, Cluster: "default/main", LeaseTTL: testutil.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := &cluster{T: t, Client: store}
	c.server, c.box = newServer(nil)
	c.server.topics = c
	c.background(func(ctx context.Context) {
		_ = store.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.state = state
			if c.changed != nil {
				close(c.changed)
				c.changed = nil
			}
		})
	})
	return c
}

// background runs a function until the test or stop ends it.
func (c *cluster) background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	stop = func() { cancel(); <-done }
	c.Cleanup(stop)
	return stop
}

// join registers a broker.
func (c *cluster) join(id string) (life int64, leave func()) {
	lives := make(chan int64, 1)
	leave = c.background(func(ctx context.Context) {
		_ = c.Join(ctx, coordination.Broker{ID: id, Name: "main-" + id, Client: id + ":4222"}, func(life int64) { lives <- life })
	})
	return <-lives, leave
}

// topic requests a Topic after each change of the State until ok accepts the answer.
func (c *cluster) topic(name, what string, ok func(*Topic) bool) (is *Topic) {
	c.Helper()
	c.await(what, func(*coordination.State) bool {
		is = ask[TopicInfo](c.T, c.server, c.box, TopicInfoSubject+name, "").Topic
		return is != nil && ok(is)
	})
	return is
}

func because(reason Reason) func(*Topic) bool {
	return func(t *Topic) bool { return !t.Served && t.Reason == reason && t.Why != "" }
}

// TestATopicFromCreationToDeletion: a Topic is declared, placed, loses its broker, gets it back, is
// orphaned and deleted. At each step the answer names the leader, or why it is not served.
func TestATopicFromCreationToDeletion(t *testing.T) {
	ctx := context.Background()
	c := startAdmin(t)
	manifest := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "orders", UID: "u1"}
	made, err := c.CreateTopic(ctx, "orders", coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: 1}, manifest)
	if err != nil {
		t.Fatal(err)
	}
	got := c.topic("orders", "there is no broker", because("NoBroker"))
	if got.ID != made.ID || got.Owner.Coordination() != manifest || got.Spec.Durability != coordination.Synced || got.Spec.DeletionPolicy != coordination.Retain || len(got.Shards) != 1 || got.Shards[0].Leader != nil {
		t.Errorf("it is shown as %+v", got)
	}

	life, leave := c.join("a")
	c.topic("orders", "there is no controller", because(NoController))
	offices := make(chan *coordination.Office, 1)
	c.background(func(ctx context.Context) {
		_ = c.Campaign(ctx, coordination.Replica{Broker: "a", Incarnation: life}, nil, func(ctx context.Context, office *coordination.Office) {
			offices <- office
			<-ctx.Done()
		})
	})
	office := <-offices
	c.topic("orders", "the controller places it", because(Placing))
	shard := coordination.Shard{Topic: made.ID, Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: life}}}
	if _, err := office.WriteShards(ctx, []coordination.ShardWrite{{Shard: shard, Topic: made}}); err != nil {
		t.Fatal(err)
	}
	got = c.topic("orders", "it is served", func(t *Topic) bool { return t.Served })
	if leader := got.Shards[0].Leader; leader == nil || *leader != (Broker{ID: "a", Name: "main-a"}) || got.Shards[0].Epoch != 1 || got.Reason != "" {
		t.Errorf("it is shown as %+v", got)
	}

	leave()
	got = c.topic("orders", "its broker is away", because("BrokerAway"))
	if leader := got.Shards[0].Leader; leader == nil || *leader != (Broker{ID: "a", Away: true}) || !strings.Contains(got.Why, "bring that broker back") {
		t.Errorf("it is shown as %+v", got)
	}
	c.join("a") // a new incarnation, which is not elected yet; there is no controller
	c.topic("orders", "it waits for a controller", because(NoController))

	if _, err := c.CreateSubscription(ctx, "orders", "billing", coordination.SubscriptionSpec{}, manifest); err != nil {
		t.Fatal(err)
	}
	c.topic("orders", "the subscription is counted", func(t *Topic) bool { return t.Subscriptions == 1 })
	one := ask[SubscriptionInfo](t, c.server, c.box, SubscriptionInfoSubject+"orders.billing", "").Subscription
	if one == nil || one.Name != "billing" || one.Topic != "orders" || one.Served || one.Reason != NoController || one.Spec.Start.From != coordination.FromLatest {
		t.Errorf("the subscription is shown as %+v", one)
	}
	if got := ask[onlyError](t, c.server, c.box, SubscriptionInfoSubject+"orders.audit", "").Error; got == nil || got.Code != NotFound || !strings.Contains(got.Text, "no subscription") {
		t.Errorf("of one that is not there it said %+v", got)
	}

	if _, err := c.OrphanTopic(ctx, "orders", manifest); err != nil {
		t.Fatal(err)
	}
	c.topic("orders", "it is orphaned", func(t *Topic) bool {
		return t.Owner.Orphaned != nil && time.Since(*t.Owner.Orphaned) < time.Minute
	})
}

// TestUnsupportedSettingsAreReported: settings that brokers do not support are reported with the
// planner's reason for the whole Topic.
func TestUnsupportedSettingsAreReported(t *testing.T) {
	ctx := context.Background()
	c := startAdmin(t)
	c.join("a")
	who := coordination.Owner{Kind: coordination.ClientOwner, Name: "carillon"}
	for name, spec := range map[string]coordination.TopicSpec{
		"wide": {Subjects: []string{"wide"}, Shards: placement.MaxShards + 1},
		"safe": {Subjects: []string{"safe"}, Shards: 1, Replicas: 6},
	} {
		if _, err := c.CreateTopic(ctx, name, spec, who); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.topic("wide", "shards are not supported", because("ShardsUnsupported")); len(got.Shards) != placement.MaxShards+1 || got.Shards[3].Served || got.Owner.Kind != coordination.ClientOwner {
		t.Errorf("it is shown as %+v", got)
	}
	c.topic("safe", "replicas are not supported", because("ReplicasUnsupported"))
}

// TestPagesFollowEachOther: pages follow each other without a gap, whatever their limit, and end
// early when they get long.
func TestPagesFollowEachOther(t *testing.T) {
	var (
		want          []string
		topics        []*coordination.Topic
		subscriptions []*coordination.Subscription
	)
	for i := range 10 {
		name := fmt.Sprintf("t%02d", i)
		spec := coordination.TopicSpec{Subjects: []string{name}, Shards: 1, Stream: coordination.StreamSettings{Description: strings.Repeat("x", 200<<10)}}
		topics = append(topics, &coordination.Topic{Name: name, ID: "id of " + name, Spec: spec})
		subscriptions = append(subscriptions, &coordination.Subscription{Topic: "id of t00", Name: "s" + name, Spec: new(coordination.SubscriptionSpec{})})
		want = append(want, name)
	}
	s, box := newServer(coordination.NewState(1, nil, topics, nil, subscriptions))
	for _, limit := range []int{0, 1, 2, 10} {
		var names []string
		pages := 1
		for after := ""; ; pages++ {
			list := ask[TopicList](t, s, box, TopicListSubject, fmt.Sprintf(`{"after":%q,"limit":%d}`, after, limit))
			if list.Total != 10 || limit > 0 && len(list.Topics) > limit || len(box.got[0].Data) > 2*maxAnswer {
				t.Fatalf("a page of %d in %d bytes, of %d", len(list.Topics), len(box.got[0].Data), list.Total)
			}
			for _, topic := range list.Topics {
				names = append(names, topic.Name)
			}
			if after = list.Next; after == "" {
				break
			}
		}
		if !slices.Equal(names, want) || pages < 4 {
			t.Errorf("with pages of %d: %v in %d pages", limit, names, pages)
		}
	}
	var names []string
	for after := ""; ; {
		list := ask[SubscriptionList](t, s, box, SubscriptionListSubject+"t00", fmt.Sprintf(`{"after":%q,"limit":3}`, after))
		for _, s := range list.Subscriptions {
			names = append(names, strings.TrimPrefix(s.Name, "s"))
		}
		if after = list.Next; after == "" {
			break
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the subscriptions: %v", names)
	}
}

// TestALeaderThatCannotServeIsReported: a leader that cannot serve a shard reports it, though its
// State says that the shard has a leader.
func TestALeaderThatCannotServeIsReported(t *testing.T) {
	broker := coordination.Broker{ID: "a", Incarnation: 5, Name: "main-0"}
	made := &coordination.Topic{Name: "orders", ID: "id", Spec: coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1}}
	shard := &coordination.Shard{Topic: "id", Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: 5}}}
	state := coordination.NewState(1, []coordination.Broker{broker}, []*coordination.Topic{made}, []*coordination.Shard{shard}, nil)
	well := view{state: state, trouble: func(string, int) error { return nil }}
	if got := well.topic(made); !got.Served || !got.Shards[0].Served {
		t.Errorf("without trouble: %+v", got.Status)
	}
	ill := view{state: state, trouble: func(id string, _ int) error { return fmt.Errorf("the disk under %s is full", id) }}
	if got := ill.topic(made); got.Served || got.Reason != Trouble || got.Why != "the disk under id is full" || got.Shards[0].Leader.Name != "main-0" {
		t.Errorf("with trouble: %+v", got)
	}
	gone := *made
	gone.Deleting = true
	if got := well.topic(&gone); got.Served || got.Reason != Deleting {
		t.Errorf("while it is deleted: %+v", got.Status)
	}
}
