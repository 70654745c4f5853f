package topic

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// world is a cluster in which plans are carried out.
type world struct {
	brokers  map[string]coordination.Broker
	draining map[string]bool
	topics   map[string]*coordination.Topic // by name
	shards   map[string][]*coordination.Shard
	clock    int64 // of incarnations, revisions and creations
}

func newWorld(brokers ...string) *world {
	w := &world{brokers: map[string]coordination.Broker{}, draining: map[string]bool{}, topics: map[string]*coordination.Topic{}, shards: map[string][]*coordination.Shard{}}
	for _, id := range brokers {
		w.start(id, "")
	}
	return w
}

func (w *world) tick() int64 { w.clock++; return w.clock }

func (w *world) start(id, zone string) {
	w.brokers[id] = coordination.Broker{ID: id, Incarnation: w.tick(), Zone: zone}
}

func (w *world) topic(name string, shards int) *coordination.Topic {
	t := &coordination.Topic{Name: name, ID: fmt.Sprintf("%s-%d", name, w.tick()), Created: time.Unix(w.clock, 0), Spec: coordination.TopicSpec{Subjects: []string{name}, Shards: shards}}
	w.topics[name] = t
	return t
}

func (w *world) facts() Facts {
	return Facts{
		Brokers: slices.Collect(maps.Values(w.brokers)), Draining: w.draining, Topics: slices.Collect(maps.Values(w.topics)),
		Shards: func(id string) []*coordination.Shard { return w.shards[id] }, MaxShards: 64,
	}
}

func (w *world) carryOut(p Plan) {
	for _, write := range p.Writes {
		shard := write.Shard
		shard.Revision = w.tick()
		list := w.shards[shard.Topic]
		i, found := slices.BinarySearchFunc(list, shard.Number, func(s *coordination.Shard, n int) int { return s.Number - n })
		if found {
			list[i] = &shard
		} else {
			w.shards[shard.Topic] = slices.Insert(list, i, &shard)
		}
	}
	for _, t := range p.Sweeps {
		delete(w.topics, t.Name)
		delete(w.shards, t.ID)
	}
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// settle carries plans out until there is nothing to do, and says how many it took.
func (w *world) settle(t failer) (plans int, last Plan) {
	t.Helper()
	todo := 1
	for _, topic := range w.topics {
		todo += topic.Spec.Shards + 1
	}
	for {
		last = PlanPlacement(w.facts())
		w.check(t, last)
		if len(last.Writes)+len(last.Sweeps) == 0 {
			if last.More {
				t.Fatalf("a plan of nothing says that there is more")
			}
			return plans, last
		}
		if plans++; plans > todo {
			t.Fatalf("%d plans have not come to an end", plans)
		}
		w.carryOut(last)
	}
}

func (w *world) counts() map[string]int {
	counts := map[string]int{}
	for id := range w.brokers {
		counts[id] = 0
	}
	for _, topic := range w.topics {
		if topic.Deleting {
			continue
		}
		for _, shard := range w.shards[topic.ID] {
			if _, alive := counts[shard.Replicas[0]]; alive {
				counts[shard.Replicas[0]]++
			}
		}
	}
	return counts
}

// check holds a plan to P1 to P5.
func (w *world) check(t failer, p Plan) {
	t.Helper()
	if again := PlanPlacement(w.facts()); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", p) {
		t.Fatalf("P5: facts in another order make another plan")
	}
	if len(p.Writes) > coordination.MaxShardWrites || len(p.Sweeps) > maxSweeps {
		t.Fatalf("a plan of %d writes and %d sweeps", len(p.Writes), len(p.Sweeps))
	}
	counts := w.counts()
	for _, write := range p.Writes {
		s := write.Shard
		broker, alive := w.brokers[s.Leader]
		if !alive || len(s.InSync) != 1 || s.InSync[0] != (coordination.Replica{Broker: broker.ID, Incarnation: broker.Incarnation}) || len(s.Replicas) != 1 || s.Replicas[0] != s.Leader {
			t.Fatalf("P3: %+v is led by nobody alive", s)
		}
		i := slices.IndexFunc(w.shards[s.Topic], func(old *coordination.Shard) bool { return old.Number == s.Number })
		if i >= 0 {
			old := w.shards[s.Topic][i]
			if !slices.Equal(old.Replicas, s.Replicas) {
				t.Fatalf("P1: shard %d moved from %v to %v", s.Number, old.Replicas, s.Replicas)
			}
			if s.Epoch <= old.Epoch || s.Revision != old.Revision || write.Reason == Placed {
				t.Fatalf("P2: %+v follows %+v, for %s", s, *old, write.Reason)
			}
			continue
		}
		if s.Epoch != 1 || s.Revision != 0 || write.Reason != Placed || write.Topic != w.topics[write.Topic.Name] || write.Topic.ID != s.Topic || w.draining[s.Leader] {
			t.Fatalf("a new shard %+v, for %s", s, write.Reason)
		}
		for id, n := range counts {
			if !w.draining[id] && n < counts[s.Leader] {
				t.Fatalf("P4: %s has %d shards and was given another; %s has %d", s.Leader, counts[s.Leader], id, n)
			}
		}
		counts[s.Leader]++
	}
}

// Brokers and Topics come and go; whatever happened, plans come to an end, and everything
// that is asked for is then served, or waits for a reason that is so.
func TestPlansComeToAnEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		ids := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		names := rapid.SampledFrom([]string{"t", "u", "v", "w", "x"})
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				w.start(ids.Draw(t, "broker"), rapid.SampledFrom([]string{"", "y", "z"}).Draw(t, "zone"))
			},
			"stop":  func(t *rapid.T) { delete(w.brokers, ids.Draw(t, "broker")) },
			"drain": func(t *rapid.T) { w.draining[ids.Draw(t, "broker")] = rapid.Bool().Draw(t, "drains") },
			"topic": func(t *rapid.T) {
				if name := names.Draw(t, "topic"); w.topics[name] == nil {
					w.topic(name, rapid.IntRange(1, 70).Draw(t, "shards"))
				}
			},
			"delete": func(t *rapid.T) {
				if topic := w.topics[names.Draw(t, "topic")]; topic != nil {
					going := *topic
					going.Deleting = true
					w.topics[topic.Name] = &going
				}
			},
			"replicate": func(t *rapid.T) {
				if topic := w.topics[names.Draw(t, "topic")]; topic != nil {
					changed := *topic
					changed.Spec.Replicas = rapid.IntRange(0, 3).Draw(t, "replicas")
					w.topics[topic.Name] = &changed
				}
			},
			"some plans": func(t *rapid.T) { // of which the last is carried out in part, or not at all
				p := PlanPlacement(w.facts())
				w.check(t, p)
				p.Writes = p.Writes[:rapid.IntRange(0, len(p.Writes)).Draw(t, "writes")]
				w.carryOut(p)
			},
			"settle": func(t *rapid.T) {
				_, last := w.settle(t)
				w.served(t, last)
			},
		})
	})
}

func (w *world) served(t failer, last Plan) {
	t.Helper()
	waits := map[string]WaitReason{}
	for _, wait := range last.Waits {
		waits[fmt.Sprint(wait.Topic.Name, wait.Shard)] = wait.Reason
		if wait.Why == "" {
			t.Fatalf("a wait without an explanation: %+v", wait)
		}
	}
	takers := 0
	for id := range w.brokers {
		if !w.draining[id] {
			takers++
		}
	}
	for name, topic := range w.topics {
		if topic.Deleting {
			t.Fatalf("the deletion of %s was not finished", name)
		}
		unsupported, want := waits[fmt.Sprint(name, -1)], WaitReason("")
		switch {
		case topic.Spec.Replicas > 1:
			want = ReplicasUnsupported
		case topic.Spec.Shards > 64:
			want = ShardsUnsupported
		}
		if unsupported != want {
			t.Fatalf("topic %s of %d shards with %d replicas waits for %q, want %q", name, topic.Spec.Shards, topic.Spec.Replicas, unsupported, want)
		}
		has := map[int]*coordination.Shard{}
		for _, shard := range w.shards[topic.ID] {
			has[shard.Number] = shard
		}
		for n := range topic.Spec.Shards {
			shard, wait, want := has[n], waits[fmt.Sprint(name, n)], WaitReason("")
			switch {
			case shard == nil && unsupported != "":
			case shard == nil:
				if want = NoBroker; takers > 0 {
					t.Fatalf("shard %d of %s was not placed", n, name)
				}
			default:
				broker, alive := w.brokers[shard.Replicas[0]]
				if !alive {
					want = BrokerAway
				} else if shard.Leader != broker.ID || shard.InSync[0].Incarnation != broker.Incarnation {
					t.Fatalf("shard %d of %s is %+v, and its broker %+v", n, name, *shard, broker)
				}
			}
			if wait != want {
				t.Fatalf("shard %d of %s waits for %q, want %q", n, name, wait, want)
			}
		}
	}
}

// A thousand Topics over seven brokers in three zones: counts differ by one, in as few transactions as there can be.
func TestPlacementIsBalanced(t *testing.T) {
	w := newWorld()
	for i := range 7 {
		w.start(fmt.Sprintf("b%d", i), fmt.Sprintf("z%d", i%3))
	}
	for i := range 1000 {
		w.topic(fmt.Sprintf("t%d", i), 1)
	}
	plans, last := w.settle(t)
	counts := slices.Sorted(maps.Values(w.counts()))
	if counts[0] != 142 || counts[6] != 143 || len(last.Waits) != 0 {
		t.Errorf("the brokers have %v, and %d shards wait", counts, len(last.Waits))
	}
	if want := (1000 + coordination.MaxShardWrites - 1) / coordination.MaxShardWrites; plans != want {
		t.Errorf("it took %d plans, want %d", plans, want)
	}
	// A new broker gets what is new until it has as much as the others; nothing moves.
	w.start("b7", "z0")
	for i := range 100 {
		w.topic(fmt.Sprintf("n%d", i), 1)
	}
	w.settle(t)
	if n := w.counts()["b7"]; n != 100 {
		t.Errorf("the new broker has %d of 100 new shards", n)
	}
}

// The shards of one Topic are spread even where the counts alone would put two on one broker.
func TestOneTopicIsSpread(t *testing.T) {
	w := newWorld("b")
	w.topic("odd", 1)
	w.settle(t)
	w.start("a", "")
	topic := w.topic("orders", 2)
	w.settle(t)
	if shards := w.shards[topic.ID]; shards[0].Leader != "a" || shards[1].Leader != "b" {
		t.Errorf("orders is on %s and %s; want a, which has less, then b", shards[0].Leader, shards[1].Leader)
	}
}

// Of brokers that have the same the one whose zone has less is taken.
func TestZonesAreSpread(t *testing.T) {
	w := newWorld()
	w.start("a", "y")
	w.topic("first", 1)
	w.settle(t)
	w.start("b", "y")
	w.start("c", "z")
	topic := w.topic("second", 1)
	w.settle(t)
	if id := w.shards[topic.ID][0].Leader; id != "c" {
		t.Errorf("the second shard is on %s; want c, in the zone that has none", id)
	}
}

// The story of a broker that goes away: its shards wait for it, and nobody else takes them; back, it leads them in a new epoch.
func TestABrokerGoesAndComesBack(t *testing.T) {
	w := newWorld("a", "b")
	synced, unsynced := w.topic("synced", 1), w.topic("unsynced", 1)
	unsynced.Spec.Durability = coordination.Replicated
	w.settle(t)
	for _, topic := range []*coordination.Topic{synced, unsynced} {
		shard := w.shards[topic.ID][0]
		id := shard.Leader
		delete(w.brokers, id)
		p := PlanPlacement(w.facts())
		if len(p.Writes) != 0 || len(p.Waits) != 1 || p.Waits[0].Reason != BrokerAway || p.Waits[0].Topic != topic {
			t.Fatalf("without %s the plan is %+v", id, p)
		}
		w.start(id, "")
		p = PlanPlacement(w.facts())
		want := LeaderReturned
		if topic == unsynced {
			want = LeaderReturnedUnsynced
		}
		if len(p.Writes) != 1 || len(p.Waits) != 0 || p.Writes[0].Reason != want || p.Writes[0].Shard.Epoch != 2 || p.Writes[0].Shard.Leader != id {
			t.Fatalf("with %s back the plan is %+v", id, p)
		}
		w.carryOut(p)
		w.settle(t)
	}
}

// A shard as a later version may have written it is left alone.
func TestAShardOfSeveralReplicasIsLeftAlone(t *testing.T) {
	w := newWorld("a", "b")
	topic := w.topic("orders", 1)
	w.shards[topic.ID] = []*coordination.Shard{{Topic: topic.ID, Epoch: 3, Replicas: []string{"a", "b"}, Revision: 7}}
	if p := PlanPlacement(w.facts()); len(p.Writes) != 0 || len(p.Waits) != 1 || p.Waits[0].Reason != ReplicasUnsupported {
		t.Errorf("the plan is %+v", p)
	}
}

func BenchmarkPlan(b *testing.B) {
	w := newWorld("a", "b", "c")
	for i := range 1000 {
		w.topic(fmt.Sprintf("t%d", i), 10)
	}
	for p := PlanPlacement(w.facts()); len(p.Writes) > 0; p = PlanPlacement(w.facts()) {
		w.carryOut(p)
	}
	facts := w.facts()
	b.ReportAllocs()
	for b.Loop() {
		PlanPlacement(facts)
	}
}
