package coordination

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"
)

// states is what a WatchState reported.
type states struct {
	t     *testing.T
	news  news
	mu    sync.Mutex
	last  *State
	saw   []Changes
	texts map[*State]string // every State, printed when it arrived
}

func (c *Client) watchState(t *testing.T) *states {
	t.Helper()
	s := &states{t: t, texts: map[*State]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.WatchState(ctx, func(state *State, changes Changes) {
			s.mu.Lock()
			s.last, s.saw = state, append(s.saw, changes)
			s.texts[state] = text(state)
			s.mu.Unlock()
			s.news.tell()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("WatchState ended with %v", err)
		}
		for state, was := range s.texts {
			if now := text(state); now != was {
				t.Errorf("a State changed behind its readers' backs:\n%s\n%s", was, now)
			}
		}
	})
	return s
}

// text prints a State without its revision.
func text(s *State) string {
	var lines []string
	for topic := range s.Topics() {
		lines = append(lines, fmt.Sprintf("topic %+v", *topic))
		if s.Topic(topic.Name) != topic || s.TopicByID(topic.ID) != topic {
			lines = append(lines, "not found: "+topic.Name)
		}
	}
	for shard := range s.AllShards() {
		lines = append(lines, fmt.Sprintf("shard %+v", *shard))
	}
	for _, b := range s.byTopic.all() {
		for _, subscription := range b.subscriptions {
			lines = append(lines, subscriptionText(subscription))
		}
	}
	for v := range s.Views() {
		lines = append(lines, viewText(v))
		if s.View(v.Name) != v || !slices.Contains(s.ViewsOf(v.Spec.Topic), v) {
			lines = append(lines, "not found: "+v.Name)
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%v %v %v %v %d %d %v\n%s", s.Drains(), s.reports, s.Controller, s.Brokers, s.TopicCount(), s.ShardCount(), s.Unreadable(), strings.Join(lines, "\n"))
}

// subscriptionText returns all of a Subscription, with its spec.
func subscriptionText(s *Subscription) string {
	all := *s
	all.Spec = nil
	return fmt.Sprintf("subscription %+v %+v", all, *s.Spec)
}

// viewText returns all of a View, with its spec.
func viewText(v *View) string {
	all := *v
	all.Spec = nil
	return fmt.Sprintf("view %+v %+v", all, *v.Spec)
}

// wait waits for a State for which ok returns true.
func (s *states) wait(what string, ok func(*State) bool) *State {
	s.t.Helper()
	var found *State
	s.news.await(s.t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last == nil || !ok(s.last) {
			return false
		}
		found = s.last
		return true
	})
	return found
}

// all returns the States seen, in no particular order.
func (s *states) all() []*State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.texts))
}

func (s *states) changes() []Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saw)
}

func TestAStateContainsEveryKindOfEntry(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	if empty := seen.wait("an empty state", func(s *State) bool { return true }); empty.TopicCount() != 0 || empty.Controller.Term != 0 {
		t.Fatalf("an empty cluster is %s", text(empty))
	}

	self := Replica{"a", c.join(t, broker("a")).incarnation()}
	orders := c.mustCreate(t, "orders", spec("orders"), client)
	billing, err := c.CreateSubscription(ctx, "orders", "billing", SubscriptionSpec{}, client)
	if err != nil {
		t.Fatal(err)
	}
	office := c.office(t, self)
	shard := newShard(orders.ID, 0, self)
	revisions, err := office.WriteShards(ctx, []ShardWrite{{shard, orders}})
	if err != nil {
		t.Fatal(err)
	}
	revision := revisions[0]
	s := seen.wait("the shard", func(s *State) bool { return s.Revision >= revision })
	shard.Revision = revision
	if fmt.Sprint(*s.Topic("orders")) != fmt.Sprint(*orders) || fmt.Sprint(*s.Shard(orders.ID, 0)) != fmt.Sprint(shard) ||
		subscriptionText(s.Subscription(orders.ID, "billing")) != subscriptionText(billing) || s.Controller != (Controller{self, office.term}) {
		t.Fatalf("the state is %s", text(s))
	}
	if b, ok := s.Broker("a"); !ok || b.Incarnation != self.Incarnation {
		t.Errorf("broker a is %+v", b)
	}

	// A Topic that was deleted and recreated during a pause of the watch is a deletion and an
	// addition.
	if err := c.DeleteTopic(ctx, "orders", "", client); err != nil {
		t.Fatal(err)
	}
	anew := c.mustCreate(t, "orders", spec("orders"), client)
	s = seen.wait("the new topic", func(s *State) bool { return s.Topic("orders") != nil && s.Topic("orders").ID == anew.ID })
	if s.TopicByID(orders.ID) != nil || s.Shards(orders.ID) != nil || s.ShardCount() != 0 || s.byTopic.count != 1 {
		t.Errorf("of the deleted topic is left: %s", text(s))
	}
	var story []string
	for _, changes := range seen.changes() {
		for _, change := range changes.Topics {
			switch {
			case change.Before == nil:
				story = append(story, "came")
			case change.After == nil:
				story = append(story, "went")
			case change.After.Deleting:
				story = append(story, "is going")
			}
		}
	}
	if got := strings.Join(story, ", "); got != "came, is going, went, came" {
		t.Errorf("the topic %s", got)
	}
}

// TestAStateOutlivesCompactionAndRestart: while the watch is cut everything changes and etcd
// compacts the revisions in between; then etcd restarts.
func TestAStateOutlivesCompactionAndRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	cable := etcd.cable()
	seen := etcd.open(cable.endpoint()).restless().watchState(t)
	gone := c.mustCreate(t, "gone", spec("gone"), client)
	stays := c.mustCreate(t, "stays", spec("stays"), client)
	anew := c.mustCreate(t, "anew", spec("anew"), client)
	seen.wait("three topics", func(s *State) bool { return s.TopicCount() == 3 })

	cable.set(cut)
	for _, name := range []string{"gone", "anew"} {
		if err := c.DeleteTopic(ctx, name, "", client); err != nil {
			t.Fatal(err)
		}
	}
	c.mustCreate(t, "anew", spec("anew"), client)
	c.mustCreate(t, "new", spec("new"), client)
	if _, err := c.etcd.Compact(ctx, c.revision(t)); err != nil {
		t.Fatal(err)
	}
	before := len(seen.changes())
	cable.set(whole)
	s := seen.wait("the new topic", func(s *State) bool { return s.Topic("new") != nil })
	if s.Topic("gone") != nil || s.TopicByID(gone.ID) != nil || s.Topic("anew").ID == anew.ID || s.TopicByID(anew.ID) != nil || s.Topic("stays").Revision != stays.Revision {
		t.Fatalf("the state is %s", text(s))
	}
	var names []string
	for _, change := range seen.changes()[before].Topics {
		switch {
		case change.Before == nil:
			names = append(names, "+"+change.After.Name)
		case change.After == nil:
			names = append(names, "-"+change.Before.Name)
		default:
			names = append(names, change.After.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "+anew +new -anew -gone" {
		t.Errorf("the changes were %s", got)
	}

	etcd.Stop()
	etcd.Start()
	if calls := len(seen.changes()); calls != before+1 {
		t.Errorf("an etcd that is down was reported as a change")
	}
	c.mustCreate(t, "later", spec("later"), client)
	seen.wait("the topic made after the restart", func(s *State) bool { return s.Topic("later") != nil && s.TopicCount() == 4 })
}

// TestAnUnreadableValueKeepsThePreviousOne: an unreadable value must not look like a deletion.
func TestAnUnreadableValueKeepsThePreviousOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	orders := c.mustCreate(t, "orders", spec("orders"), client)
	seen.wait("the topic", func(s *State) bool { return s.Topic("orders") != nil })
	for _, value := range []string{"{", `{"v":2,"id":7}`, `{"v":1,"id":"../../etc"}`} {
		if _, err := c.etcd.Put(ctx, c.topicKey("orders"), value); err != nil {
			t.Fatal(err)
		}
		revision := c.revision(t)
		s := seen.wait(value, func(s *State) bool { return s.Revision >= revision })
		if s.Topic("orders") == nil || s.Topic("orders").Revision != orders.Revision || len(s.Unreadable()) != 1 {
			t.Errorf("%s: the state is %s", value, text(s))
		}
		if _, err := c.GetTopic(ctx, "orders"); err == nil {
			t.Errorf("%s was read", value)
		}
	}
	if _, list := c.UpdateTopic(ctx, "orders", TopicUpdate{By: client, Spec: spec("orders")}); list == nil || !strings.Contains(list.Error(), "decode topic orders") {
		t.Errorf("an unreadable topic was overwritten: %v", list)
	}
	if _, err := c.etcd.Delete(ctx, c.topicKey("orders")); err != nil {
		t.Fatal(err)
	}
	seen.wait("the deletion", func(s *State) bool { return s.TopicCount() == 0 && len(s.Unreadable()) == 0 })
}

// TestPagesAreOfOneRevision: more keys than one page are read at one revision.
func TestPagesAreOfOneRevision(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	for i := range pageKeys + 10 {
		if _, err := c.etcd.Put(ctx, fmt.Sprintf("%sx/%05d", c.prefix, i), ""); err != nil {
			t.Fatal(err)
		}
	}
	last, n := c.prefix+"x/99999", 0
	want := c.revision(t)
	revision, err := c.pages(ctx, c.prefix+"x/", func(*mvccpb.KeyValue) {
		if n++; n == 1 {
			if _, err := c.etcd.Put(ctx, last, ""); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err != nil || n != pageKeys+10 || revision != want {
		t.Fatalf("%d keys at revision %d, %v; want %d at %d", n, revision, err, pageKeys+10, want)
	}
}

// TestATableAgreesWithAMap: a table equals a map, and a shared view never changes.
func TestATableAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var writer table[int]
		model := map[string]int{}
		type shared struct {
			view table[int]
			was  map[string]int
		}
		var views []shared
		keys := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				key, value := keys.Draw(t, "key"), rapid.Int().Draw(t, "value")
				writer.set(key, value)
				model[key] = value
			},
			"remove": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				writer.remove(key)
				delete(model, key)
			},
			"share": func(t *rapid.T) { views = append(views, shared{writer.share(), maps.Clone(model)}) },
			"": func(t *rapid.T) {
				for _, s := range append(views, shared{writer, model}) {
					if got := maps.Collect(s.view.all()); !maps.Equal(got, s.was) || s.view.count != len(s.was) {
						t.Fatalf("the table is %v (%d), want %v", got, s.view.count, s.was)
					}
				}
			},
		})
	})
}

// crowd returns the keys of a cluster with the given number of Topics, with the given number of
// shards each.
func crowd(tb testing.TB, topics, shards int) (*follower, []*mvccpb.KeyValue) {
	c, err := Open(Config{Endpoints: []string{"unix:///nowhere"}, Cluster: "default/main"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	var kvs []*mvccpb.KeyValue
	for i := range topics {
		name := fmt.Sprintf("topic-%d", i)
		topic := &Topic{Name: name, ID: newID(), Spec: spec(name, name+".>"), Generation: 1, Owner: manifest, Created: now()}
		value, _ := topic.encode()
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(c.topicKey(name)), Value: []byte(value), ModRevision: int64(len(kvs) + 1)})
		for n := range shards {
			shard := newShard(topic.ID, n, Replica{newID(), 7})
			value, _ := shard.encode()
			kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(c.shardKey(topic.ID, n)), Value: []byte(value), ModRevision: int64(len(kvs) + 1)})
		}
	}
	return newFollower(c, func(*State, Changes) {}), kvs
}

func newShard(topic string, n int, leader Replica) Shard {
	return Shard{Topic: topic, Number: n, Epoch: 1, Leader: leader.Broker, Replicas: []string{leader.Broker}, InSync: []Replica{leader}}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkState(b *testing.B) {
	for _, size := range []struct{ topics, shards int }{{1000, 10}, {10, 1000}} {
		name := fmt.Sprintf("%dx%d", size.topics, size.shards)
		f, kvs := crowd(b, size.topics, size.shards)
		b.Run(name+"/load", func(b *testing.B) {
			b.ReportAllocs()
			nothing := *f
			load := func() {
				*f = nothing
				f.brokers, f.unreadable, f.fresh = map[string]Broker{}, map[string]int64{}, map[string]bool{}
				for _, kv := range kvs {
					f.put(kv)
				}
				f.settled(1)
			}
			before := heap()
			load()
			held := float64(heap() - before)
			for b.Loop() {
				load()
			}
			b.ReportMetric(held, "B-held")
		})
		b.Run(name+"/event", func(b *testing.B) {
			b.ReportAllocs()
			revision := int64(len(kvs))
			for b.Loop() {
				revision++
				kv := kvs[1+int(revision)%size.shards]
				kv.ModRevision = revision
				f.put(kv)
				f.settled(revision)
			}
		})
	}
}
