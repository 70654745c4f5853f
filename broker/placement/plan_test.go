package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestPlansLoseNothingAndTerminate: brokers and Topics come and go, and brokers are killed,
// disconnected, damaged and drained, while leaders and followers do their part. In every case:
//
//  1. No broker leads that lacks acknowledged records.
//  2. Planning comes to an end.
//  3. Every shard is then served, or waits for a true reason.
func TestPlansLoseNothingAndTerminate(t *testing.T) {
	for range 10 { // some faults show in one of several hundred worlds; each takes a millisecond
		rapid.Check(t, evolve)
	}
}

// evolve runs one random world.
func evolve(t *rapid.T) {
	w := newWorld()
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	names := rapid.SampledFrom([]string{"t", "u", "v"})
	zones := map[string]string{}
	since := map[string]int64{}
	zoned := rapid.Bool().Draw(t, "zoned")
	start := func(id string) {
		if _, there := w.brokers[id]; there {
			return
		}
		if _, known := zones[id]; !known && zoned {
			zones[id] = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "zone")
		}
		if _, known := w.earlier[id]; known && w.earlier[id] && rapid.Bool().Draw(t, "upgraded") || !known {
			w.earlier[id] = !known && rapid.IntRange(0, 2).Draw(t, "earlier version") == 0
		}
		w.startSince(id, zones[id], since[id])
		delete(since, id)
	}
	for _, id := range []string{"a", "b", "c"} {
		start(id)
	}
	for _, name := range []string{"t", "u"} {
		w.topic(name, rapid.SampledFrom([]int{1, 2, 5, 70}).Draw(t, "shards"), drawSpec(t))
	}
	w.settle(t)
	somePlans := func(t *rapid.T) { // the last of them is carried out in part, or not at all
		for range rapid.IntRange(1, 4).Draw(t, "plans") {
			p := Decide(w.facts())
			w.check(t, p)
			p.Writes = p.Writes[:rapid.IntRange(0, len(p.Writes)).Draw(t, "writes")]
			w.carryOut(p)
			w.workAll(false, random)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"start": func(t *rapid.T) { start(ids.Draw(t, "broker")) },
		"stop": func(t *rapid.T) {
			if id := ids.Draw(t, "broker"); w.brokers[id].ID != "" {
				since[id] = w.stop(id, rapid.SampledFrom([]end{inOrder, killed, killed, damaged}).Draw(t, "end"), random)
			}
		},
		"evict": func(t *rapid.T) {
			if id := ids.Draw(t, "broker"); w.brokers[id].ID != "" {
				w.evict(id)
			}
		},
		"drain": func(t *rapid.T) {
			id, mode := ids.Draw(t, "broker"), rapid.SampledFrom([]coordination.DrainMode{"", "", coordination.DrainLeadership, coordination.DrainAll}).Draw(t, "mode")
			if w.drains[id] = mode; mode == "" {
				delete(w.drains, id)
			}
		},
		"topic": func(t *rapid.T) {
			if name := names.Draw(t, "topic"); w.topics[name] == nil {
				w.topic(name, rapid.SampledFrom([]int{1, 2, 5, 70}).Draw(t, "shards"), drawSpec(t))
			}
		},
		"change": func(t *rapid.T) {
			if topic := w.topics[names.Draw(t, "topic")]; topic != nil {
				changed := *topic
				spec := drawSpec(t)
				changed.Spec.Replicas, changed.Spec.MinInSync = spec.Replicas, spec.MinInSync
				w.topics[topic.Name] = &changed
			}
		},
		"delete": func(t *rapid.T) {
			if topic := w.topics[names.Draw(t, "topic")]; topic != nil {
				going := *topic
				going.Deleting = true
				w.topics[topic.Name] = &going
			}
		},
		"work":       func(*rapid.T) { w.workAll(false, random) },
		"some plans": somePlans, "more plans": somePlans,
		"settle": func(t *rapid.T) {
			_, last := w.settle(t)
			w.served(t, last)
		},
		"everybody": func(t *rapid.T) {
			for _, id := range []string{"a", "b", "c", "d", "e"} {
				start(id)
			}
			clear(w.drains)
			_, last := w.settle(t)
			w.served(t, last)
			w.wholeAndSpread(t)
		},
	})
}

func drawSpec(t *rapid.T) (spec coordination.TopicSpec) {
	spec.Replicas = rapid.SampledFrom([]int{0, 1, 2, 3, 3, 3, 5, 6}).Draw(t, "replicas")
	spec.MinInSync = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "minInSync")
	if spec.Replicas > 0 {
		spec.MinInSync = min(spec.MinInSync, spec.Replicas)
	}
	spec.Durability = rapid.SampledFrom([]coordination.Durability{"", coordination.Replicated}).Draw(t, "durability")
	spec.UncleanElection = rapid.IntRange(0, 5).Draw(t, "unclean") == 0
	return spec
}

// served checks a cluster in which nothing is left to plan.
func (w *world) served(t failer, last Plan) {
	t.Helper()
	waits := map[string]WaitReason{}
	for _, wait := range last.Waits {
		waits[fmt.Sprint(wait.Topic.Name, wait.Shard)] = wait.Reason
	}
	takers := 0
	for id := range w.brokers {
		if w.drains[id] == "" {
			takers++
		}
	}
	for name, topic := range w.topics {
		if topic.Deleting {
			t.Fatalf("the deletion of %s was not finished", name)
		}
		unsupported, want := waits[fmt.Sprint(name, -1)], WaitReason("")
		switch {
		case topic.Spec.Replicas > MaxReplicas:
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
			shard, wait := has[n], waits[fmt.Sprint(name, n)]
			if shard == nil && unsupported != "" {
				continue
			}
			if want := w.mayWait(topic, shard, takers); !slices.Contains(want, wait) {
				t.Fatalf("shard %d of %s waits for %q, want one of %q: %+v", n, name, wait, want, valueOf(shard))
			}
		}
	}
}

func valueOf(s *coordination.Shard) coordination.Shard {
	if s == nil {
		return coordination.Shard{}
	}
	return *s
}

// mayWait returns the reasons for which a shard may wait; empty: it must be served.
func (w *world) mayWait(t *coordination.Topic, s *coordination.Shard, takers int) []WaitReason {
	if s == nil {
		want := t.Spec.ResolvedReplicas(takers)
		switch least := t.Spec.ResolvedMinInSync(want); {
		case takers == 0:
			return []WaitReason{NoBroker}
		case takers < least:
			return []WaitReason{NotEnoughBrokers}
		}
		return nil // it must be placed
	}
	if w.leads(s) {
		for _, id := range s.Replicas {
			if w.drains[id] == coordination.DrainAll {
				return []WaitReason{"", DrainBlocked}
			}
		}
		return []WaitReason{""}
	}
	there, gone := 0, 0
	for _, m := range s.InSync {
		if b, alive := w.brokers[m.Broker]; !alive {
			gone++
		} else if there++; w.canLead(t, b, m, s) {
			return nil
		}
	}
	switch {
	case gone == 0:
		return nil // the one that goes furthest must lead
	case len(s.Replicas) == 1:
		return []WaitReason{BrokerAway}
	case there == 0:
		return []WaitReason{NoLeaderCandidate}
	}
	return []WaitReason{AllSuspect}
}

func (w *world) canLead(t *coordination.Topic, b coordination.Broker, m coordination.Replica, s *coordination.Shard) bool {
	said, suspect := w.reported(m.Broker, s.Topic, s.Number)
	switch {
	case suspect && !said.Cut:
		return false
	case b.Replica() == m || suspect:
		return true
	}
	return w.earlier[m.Broker] && (synced(t) || b.Holds(m.Incarnation))
}

// wholeAndSpread checks a cluster in which all brokers are present and none is drained.
func (w *world) wholeAndSpread(t failer) {
	t.Helper()
	equal, first := true, 0 // the same number of replicas of every shard
	for _, topic := range w.topics {
		unsupported := topic.Spec.Replicas > MaxReplicas || topic.Spec.Shards > 64
		replicas := topic.Spec.ResolvedReplicas(len(w.brokers))
		equal = equal && !unsupported && (first == 0 || first == replicas)
		first = replicas
		for _, s := range w.shards[topic.ID] {
			want := min(replicas, MaxReplicas)
			if len(s.Replicas) != want || len(s.InSync) != want || len(s.Adding)+len(s.Removing) > 0 || s.Leader != s.Replicas[0] {
				t.Fatalf("of %d replicas is left %+v", want, *s)
			}
			for _, m := range s.InSync {
				if w.brokers[m.Broker].Replica() != m {
					t.Fatalf("%v is in sync in a life that is over: %+v", m, *s)
				}
			}
		}
	}
	zones := map[string]bool{}
	for _, b := range w.brokers {
		zones[b.Zone] = true
	}
	if !equal || len(zones) > 1 || len(w.topics) == 0 {
		return
	}
	if spread(w.counts()) > 1 || spread(w.leaders()) > 1 {
		t.Fatalf("replicas are spread as %v, leaders as %v", w.counts(), w.leaders())
	}
}

// TestPlacementIsBalanced: a thousand Topics over seven brokers in three zones: counts differ by at
// most one, after as few plans as possible.
func TestPlacementIsBalanced(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		w := newWorld()
		for i := range 9 {
			w.start(fmt.Sprintf("b%d", i), fmt.Sprintf("z%d", i%3))
		}
		for i := range 1000 {
			w.topic(fmt.Sprintf("t%d", i), 1, coordination.TopicSpec{Replicas: replicas})
		}
		p := Decide(w.facts())
		if len(p.Writes) != 1000 || slices.ContainsFunc(p.Writes, func(write Write) bool { return write.Reason != Placed }) {
			t.Errorf("%d replicas: %d writes", replicas, len(p.Writes))
		}
		plans, last := w.settle(t)
		if spread(w.counts()) > 1 || spread(w.leaders()) > 1 || len(last.Waits) != 0 {
			t.Errorf("%d replicas: the brokers have %v, lead %v, and %d shards wait", replicas, w.counts(), w.leaders(), len(last.Waits))
		}
		if plans > 2 { // a second one may move some leaderships
			t.Errorf("%d replicas: it took %d plans", replicas, plans)
		}
		for _, shards := range w.shards {
			zones := map[string]bool{}
			for _, id := range shards[0].Replicas {
				zones[w.brokers[id].Zone] = true
			}
			if len(zones) != replicas {
				t.Fatalf("%+v is in %d zones", shards[0], len(zones))
			}
		}
	}
}

// TestOneTopicIsSpread: the shards of one Topic are spread even if the counts alone would put two
// on one broker.
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

// TestZonesAreSpread: of brokers with equal counts, the one in the zone with fewer replicas is
// chosen.
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

// TestTheLoadOfADeadLeaderIsSpread: many shards lose their leader at once: their leaderships are
// spread over the remaining brokers.
func TestTheLoadOfADeadLeaderIsSpread(t *testing.T) {
	w := newWorld("a", "b", "c", "d", "e")
	for i := range 100 {
		w.topic(fmt.Sprintf("t%d", i), 5, coordination.TopicSpec{Replicas: 3})
	}
	w.settle(t)
	w.stop("a", killed, nil)
	p := Decide(w.facts())
	w.check(t, p)
	w.carryOut(p)
	leads := w.leaders()
	delete(leads, "a")
	if counts := slices.Sorted(maps.Values(leads)); counts[3] > 140 || counts[1] < 130 {
		t.Errorf("they lead %v", leads)
	}
}

// TestEachBrokerOpensOtherShardsFirst: after a restart of three brokers every shard is among the
// first third of one of them, and each opens all.
func TestEachBrokerOpensOtherShardsFirst(t *testing.T) {
	w := newWorld("a", "b", "c")
	for n := range 30 {
		w.topic(fmt.Sprintf("t%d", n), 1).Spec.Replicas = 3
	}
	w.settle(t)
	var topics []*coordination.Topic
	var shards []*coordination.Shard
	for _, topic := range w.topics {
		topics = append(topics, topic)
		shards = append(shards, w.shards[topic.ID]...)
	}
	state := coordination.NewState(1, w.facts().Brokers, topics, shards, nil)
	first := map[string]string{} // by Topic
	for _, broker := range []string{"a", "b", "c"} {
		order := PreferredFirst(state, broker)
		if len(order) != 30 {
			t.Errorf("broker %s opens %d Topics", broker, len(order))
		}
		for _, topic := range order[:10] {
			if other := first[topic.Name]; other != "" {
				t.Errorf("%s is opened first by %s and %s", topic.Name, other, broker)
			}
			first[topic.Name] = broker
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		b.Run(fmt.Sprintf("%d replicas", replicas), func(b *testing.B) {
			w := newWorld("a", "b", "c")
			for i := range 1000 {
				w.topic(fmt.Sprintf("t%d", i), 10, coordination.TopicSpec{Replicas: replicas})
			}
			for p := Decide(w.facts()); len(p.Writes) > 0; p = Decide(w.facts()) {
				w.carryOut(p)
			}
			facts := w.facts()
			b.ReportAllocs()
			for b.Loop() {
				Decide(facts)
			}
		})
	}
}
