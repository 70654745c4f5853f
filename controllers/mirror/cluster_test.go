package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// town is a model of a Broker: shards in etcd, a controller that moves and repairs them, and pods
// that come and go. The plan is made from the mirror's facts about it.
type town struct {
	want, now int32 // numbers of brokers: spec.replicas, and of the StatefulSet
	template  int
	pods      []townPod // by ordinal; those beyond now are terminating
	shards    []*coordination.Shard
	topics    []*coordination.Topic
	drains    map[string]coordination.DrainMode
	placer    int // ordinal of the broker that places shards
	life      int64
	forgets   bool // the operator doesn't know the names of absent brokers
}

type townPod struct {
	there, ready bool
	template     int
	life         int64 // incarnation; 0: not a member
	volume       int   // a lost volume is replaced by the next one, with another broker id
	readyFor     time.Duration
}

func podOf(n int) string { return fmt.Sprintf("main-%d", n) }

// idOf returns the broker id on the pod's volume.
func (w *town) idOf(n int) string { return fmt.Sprintf("id-%d.%d", n, w.pods[n].volume) }

// podOfID returns the ordinal of the pod with that id.
func podOfID(id string) (n int) {
	_, _ = fmt.Sscanf(id, "id-%d.", &n)
	return n
}

func (w *town) state() *coordination.State {
	var brokers []coordination.Broker
	for n, p := range w.pods {
		if p.life > 0 {
			brokers = append(brokers, coordination.Broker{ID: w.idOf(n), Name: podOf(n), Incarnation: p.life})
		}
	}
	s := coordination.NewState(1, brokers, w.topics, w.shards, nil).With(w.drains, nil)
	if w.placer < len(w.pods) && w.pods[w.placer].life > 0 {
		s.Controller = coordination.Controller{Replica: coordination.Replica{Broker: w.idOf(w.placer), Incarnation: w.pods[w.placer].life}, Term: 1}
	}
	return s
}

func (w *town) name(id string) string {
	if w.forgets {
		return ""
	}
	return podOf(podOfID(id))
}

func (w *town) facts() plan.Facts {
	well := plan.Set{Name: "main-coordinator", Exists: true, Replicas: 1, Settled: true, Pods: []plan.Pod{{Name: "main-coordinator-0", Ready: true, Started: true, Serving: true}}}
	f := plan.Facts{
		Coordinators: well, WantBrokers: w.want, Bootstrapped: true,
		Brokers: plan.Set{Name: "main", Exists: true, Replicas: w.now, Settled: true, Age: time.Hour},
		Etcd:    plan.Etcd{Asked: true, Quorum: true, AllStarted: true, Owner: plan.OwnerOurs},
	}
	for n, p := range w.pods {
		if p.there {
			f.Brokers.Pods = append(f.Brokers.Pods, plan.Pod{Name: podOf(n), Ready: p.ready, Started: p.ready, Outdated: p.template != w.template, Why: "changed",
				Surplus: int32(n) >= w.now, ReadyFor: p.readyFor})
		}
	}
	f.Shards = clusterFacts(w.state(), w.name, Pods{Set: "main", Now: w.now, Want: w.want, Demands: func(t *coordination.Topic) bool {
		return t.Spec.ResolvedReplicas(int(w.want)) > int(w.want)
	}})
	for i := range f.Shards.LeavingPods {
		l := &f.Shards.LeavingPods[i]
		l.Settled = l.Shards == 0 && len(l.Drained) == len(l.Brokers)
	}
	return f
}

func (w *town) demanded() int {
	most := 0
	for _, t := range w.topics {
		most = max(most, t.Spec.Replicas)
	}
	return most
}

// pass plans, judges the plan, and carries it out.
func (w *town) pass(t *rapid.T) plan.Action {
	f := w.facts()
	a := plan.Next(f)
	blocked := w.want < w.now && w.demanded() > int(w.want)
	ordinal, lost := -1, true
	for n := range w.pods {
		if a.Target == podOf(n) || a.Target == w.idOf(n) && (int32(n) < w.now || w.pods[n].life > 0) {
			ordinal, lost = n, false
		}
	}
	switch a.Kind {
	case plan.Drain:
		if !lost && (int32(ordinal) < w.want || blocked) {
			t.Fatalf("P7: %s is drained with %d brokers asked for, and Topics that ask for %d", a.Target, w.want, w.demanded())
		}
		w.drains[a.Target] = coordination.DrainAll
	case plan.EndDrain:
		if !lost && int32(ordinal) >= w.want && w.pods[ordinal].life > 0 && !blocked {
			t.Fatalf("P7: the drain of %s ends, which is to go", a.Target)
		}
		delete(w.drains, a.Target)
	case plan.Shrink:
		if int32(ordinal) != w.now-1 || w.now <= w.want {
			t.Fatalf("P7: %s is taken away, of %d, with %d asked for", a.Target, w.now, w.want)
		}
		for _, s := range w.shards {
			if slices.Contains(s.Replicas, w.idOf(ordinal)) {
				t.Fatalf("P7: %s is taken away, and holds %s", a.Target, s)
			}
		}
		w.now--
	case plan.ReplacePod:
		if w.pods[ordinal].ready {
			w.mayGo(t, ordinal)
		}
		w.lose(ordinal)
	case plan.None, plan.Wait:
	case plan.Stall:
		if !blocked {
			t.Fatalf("P7: %s", a.Message)
		}
	default:
		t.Fatalf("nothing in this world asks for %+v", a)
	}
	return a
}

// mayGo fails the test unless a ready broker may be stopped: the replicas on all others are in
// sync.
func (w *town) mayGo(t *rapid.T, ordinal int) {
	steady := true
	for n, p := range w.pods[:w.now] {
		if !p.ready && n != ordinal {
			t.Fatalf("P1: main-%d is replaced while main-%d is not ready", ordinal, n)
		}
		steady = steady && p.readyFor >= 15*time.Minute
	}
	if steady {
		return
	}
	state := w.state()
	for _, s := range w.shards {
		if want := state.TopicByID(s.Topic).Spec.Replicas; want > 1 && w.lacks(s, want) {
			for _, id := range s.Replicas {
				if _, there := state.Broker(id); there && id != w.idOf(ordinal) && !inSync(state, s, id) && !slices.Contains(s.Removing, id) {
					t.Fatalf("P6: main-%d is replaced while %s is not in sync on %s", ordinal, s, id)
				}
			}
		}
	}
}

func (w *town) lacks(s *coordination.Shard, want int) bool {
	n := 0
	for _, id := range s.Replicas {
		if inSync(w.state(), s, id) {
			n++
		}
	}
	return n < want
}

// tend takes one step for a shard: elect a leader, bring a replica in sync, or move one off a
// drained broker.
func (w *town) tend(s *coordination.Shard) {
	state := w.state()
	lives := func(id string) (coordination.Replica, bool) {
		b, there := state.Broker(id)
		return b.Replica(), there
	}
	want := state.TopicByID(s.Topic).Spec.Replicas
	for _, m := range slices.Clone(s.InSync) {
		if _, there := lives(m.Broker); !there && len(s.InSync) > 1 {
			s.InSync = slices.DeleteFunc(s.InSync, func(other coordination.Replica) bool { return other == m })
		}
	}
	if !slices.ContainsFunc(s.InSync, func(m coordination.Replica) bool { return m.Broker == s.Leader }) {
		s.Leader = ""
	}
	if leader, there := lives(s.Leader); !there || !slices.Contains(s.InSync, leader) {
		for i, m := range s.InSync {
			if now, there := lives(m.Broker); there {
				s.InSync[i], s.Leader = now, m.Broker
				s.Epoch++
				return
			}
		}
		return
	}
	for _, id := range s.Replicas {
		if now, there := lives(id); there && !inSync(state, s, id) {
			s.InSync = slices.DeleteFunc(s.InSync, func(m coordination.Replica) bool { return m.Broker == id })
			s.InSync = append(s.InSync, now)
			return
		}
	}
	stays := slices.DeleteFunc(slices.Clone(s.Replicas), func(id string) bool { return state.Drain(id) == coordination.DrainAll })
	for _, b := range state.Brokers {
		if state.Drain(b.ID) == "" && !slices.Contains(s.Replicas, b.ID) && len(stays) < want {
			s.Replicas, s.Adding = append(s.Replicas, b.ID), append(s.Adding, b.ID)
			return
		}
	}
	if len(stays) < want {
		return
	}
	s.Adding = nil
	kept := func(without string) (n int) {
		for _, id := range s.Replicas {
			if id != without && inSync(state, s, id) {
				n++
			}
		}
		return n
	}
	for _, id := range s.Replicas {
		if len(s.Replicas) > want && kept(id) >= want && (state.Drain(id) != "" || len(stays) == len(s.Replicas)) {
			s.Replicas = slices.DeleteFunc(slices.Clone(s.Replicas), func(other string) bool { return other == id })
			s.InSync = slices.DeleteFunc(s.InSync, func(m coordination.Replica) bool { return m.Broker == id })
			if s.Leader == id {
				s.Leader = s.InSync[0].Broker
				s.Epoch++
			}
			return
		}
	}
}

// live advances time for a pod.
func (w *town) live(n int) {
	p := &w.pods[n]
	switch {
	case int32(n) >= w.now:
		w.lose(n)
	case !p.there:
		p.there, p.template = true, w.template
	case p.life == 0:
		w.life++
		p.life = w.life
	default:
		p.ready = true
		p.readyFor += time.Minute
	}
}

// lose removes a pod. Its volume stays.
func (w *town) lose(n int) { w.pods[n] = townPod{volume: w.pods[n].volume} }

func (w *town) grow() {
	w.now = max(w.now, w.want)
	for len(w.pods) < int(w.now) {
		w.pods = append(w.pods, townPod{})
	}
}

// TestBrokersComeAndGoInOrder: in any order of scaling, losses and changes, no wanted broker is
// drained, no broker with replicas is removed, and none is stopped while others catch up. Without
// further changes there are finally as many brokers as wanted, unless Topics need more.
func TestBrokersComeAndGoInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &town{drains: map[string]coordination.DrainMode{}, forgets: rapid.Bool().Draw(t, "forgets")}
		w.want = rapid.Int32Range(1, 5).Draw(t, "brokers")
		w.grow()
		for n := range w.pods {
			for range 3 {
				w.live(n)
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "topics") {
			id := fmt.Sprintf("%032d", i)
			replicas := rapid.IntRange(1, min(3, int(w.want))).Draw(t, "replicas")
			w.topics = append(w.topics, &coordination.Topic{Name: fmt.Sprintf("t%d", i), ID: id, Spec: coordination.TopicSpec{Shards: 1, Replicas: replicas}})
			s := &coordination.Shard{Topic: id, Epoch: 1}
			for n := range replicas {
				on := (i + n) % int(w.now)
				s.Replicas = append(s.Replicas, w.idOf(on))
				s.InSync = append(s.InSync, coordination.Replica{Broker: w.idOf(on), Incarnation: w.pods[on].life})
			}
			s.Leader = s.Replicas[0]
			w.shards = append(w.shards, s)
		}
		anyPod := func() int { return rapid.IntRange(0, len(w.pods)-1).Draw(t, "pod") }
		steps := map[string]func(){
			"plan":   func() { w.pass(t) },
			"plans":  func() { w.pass(t); w.pass(t); w.pass(t) },
			"live":   func() { w.live(anyPod()) },
			"tend":   func() { w.tendAll() },
			"scale":  func() { w.want = rapid.Int32Range(1, 6).Draw(t, "want"); w.grow() },
			"change": func() { w.template++ },
			"lose":   func() { w.lose(anyPod()) },
			"wipe": func() {
				n := anyPod()
				w.lose(n)
				w.pods[n].volume++
			},
			"elect": func() { w.placer = anyPod() },
			"ask": func() {
				if len(w.topics) > 0 {
					i := rapid.IntRange(0, len(w.topics)-1).Draw(t, "topic")
					other := *w.topics[i]
					other.Spec.Replicas = rapid.IntRange(1, 3).Draw(t, "replicas")
					w.topics[i] = &other
				}
			},
			"forgets": func() { w.forgets = !w.forgets },
		}
		names := []string{"plan", "plans", "plans", "live", "live", "live", "tend", "tend", "scale", "change", "lose", "wipe", "elect", "ask", "forgets"}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			steps[rapid.SampledFrom(names).Draw(t, "step")]()
		}
		for idle, rounds := 0, 0; idle < 20 && rounds < 500; rounds++ {
			if a := w.pass(t); a.Kind == plan.None || a.Kind == plan.Stall {
				idle++
			}
			for n := range w.pods {
				w.live(n)
			}
			w.tendAll()
		}
		a := w.pass(t)
		// Shards that only lost volumes have stay as they are: nothing is given up without a
		// person.
		kept := 0
		for id := range w.drains {
			n := podOfID(id)
			// It waits for one that is removed before it.
			waits := int32(n) >= w.want && int32(n) < w.now && id == w.idOf(n)
			if !waits && !slices.ContainsFunc(w.shards, func(s *coordination.Shard) bool { return slices.Contains(s.Replicas, id) }) {
				t.Fatalf("P5: it ends with %s drained, which holds nothing", id)
			}
			kept++
		}
		switch {
		case a.Kind == plan.Stall && len(w.drains) == kept: // judged by the pass
		case a.Kind == plan.Wait && a.Reason == plan.Draining && w.lostAlone():
		case a.Kind != plan.None || w.now != w.want:
			t.Fatalf("P5: it ends with %+v, %d brokers of %d, drains %v", a, w.now, w.want, w.drains)
		}
		state := w.state()
		for _, s := range w.shards {
			if a.Kind == plan.None && leads(state, s) && w.lacks(s, min(int(w.now), state.TopicByID(s.Topic).Spec.Replicas)) {
				t.Fatalf("P8: all is well, and %s is on %v, in sync %v", s, s.Replicas, s.InSync)
			}
		}
	})
}

// lostAlone reports whether some shard has lost replicas only.
func (w *town) lostAlone() bool {
	return slices.ContainsFunc(w.shards, func(s *coordination.Shard) bool { return !leads(w.state(), s) })
}

func (w *town) tendAll() {
	for _, s := range w.shards {
		w.tend(s)
	}
}

// TestClusterCountsShards compares the mirror's counts of shards with those made by hand.
func TestClusterCountsShards(t *testing.T) {
	member := func(id string, life int64) coordination.Replica {
		return coordination.Replica{Broker: id, Incarnation: life}
	}
	topic := func(id, name string, replicas int) *coordination.Topic {
		return &coordination.Topic{ID: id, Name: name, Spec: coordination.TopicSpec{Shards: 1, Replicas: replicas}}
	}
	brokers := []coordination.Broker{{ID: "a", Name: "main-0", Incarnation: 5}, {ID: "b", Name: "main-1", Incarnation: 9, Since: 4}, {ID: "c", Name: "main-2", Incarnation: 7}}
	all := []string{"a", "b", "c"}
	for what, c := range map[string]struct {
		shard coordination.Shard
		want  int // replicas
		says  string
	}{
		"whole":                         {coordination.Shard{Leader: "a", Replicas: all, InSync: []coordination.Replica{member("a", 5), member("b", 9), member("c", 7)}}, 3, "0 0 map[]"},
		"whole with a life handed on":   {coordination.Shard{Leader: "a", Replicas: all, InSync: []coordination.Replica{member("a", 5), member("b", 4), member("c", 7)}}, 3, "0 0 map[]"},
		"one in a former life":          {coordination.Shard{Leader: "a", Replicas: all, InSync: []coordination.Replica{member("a", 5), member("b", 9), member("c", 2)}}, 3, "1 0 map[main-2:1]"},
		"one out":                       {coordination.Shard{Leader: "a", Replicas: all, InSync: []coordination.Replica{member("a", 5), member("c", 7)}}, 3, "1 0 map[main-1:1]"},
		"one gone for good":             {coordination.Shard{Leader: "a", Replicas: []string{"a", "x", "c"}, InSync: []coordination.Replica{member("a", 5), member("c", 7)}}, 3, "1 0 map[]"},
		"a leader in a former life":     {coordination.Shard{Leader: "a", Replicas: all, InSync: []coordination.Replica{member("a", 3), member("b", 9), member("c", 7)}}, 3, "0 1 map[main-0:1 main-1:1 main-2:1]"},
		"no leader, nobody there":       {coordination.Shard{Replicas: []string{"x"}, InSync: []coordination.Replica{member("x", 1)}}, 1, "0 1 map[]"},
		"one replica, about to be led":  {coordination.Shard{Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{member("a", 4)}}, 1, "0 1 map[]"},
		"being moved":                   {coordination.Shard{Leader: "a", Replicas: all, Adding: []string{"c"}, Removing: []string{"b"}, InSync: []coordination.Replica{member("a", 5), member("b", 9)}}, 2, "0 0 map[]"},
		"more asked for than it has":    {coordination.Shard{Leader: "a", Replicas: []string{"a", "b"}, InSync: []coordination.Replica{member("a", 5), member("b", 9)}}, 3, "1 0 map[]"},
		"a Topic that leaves it open":   {coordination.Shard{Leader: "a", Replicas: []string{"a", "b"}, InSync: []coordination.Replica{member("a", 5), member("b", 9)}}, 0, "0 0 map[]"},
		"and one of its replicas is in": {coordination.Shard{Leader: "a", Replicas: []string{"a", "b"}, InSync: []coordination.Replica{member("a", 5)}}, 0, "1 0 map[main-1:1]"},
	} {
		id := fmt.Sprintf("%032d", 1)
		c.shard.Topic, c.shard.Epoch = id, 1
		state := coordination.NewState(1, brokers, []*coordination.Topic{topic(id, "orders", c.want)}, []*coordination.Shard{&c.shard}, nil)
		f := clusterFacts(state, func(string) string { return "" }, Pods{Set: "main", Now: 3, Want: 3})
		if got := fmt.Sprintf("%d %d %v", f.UnderReplicated, f.Leaderless, f.CatchingUp); got != c.says || f.Total != 1 {
			t.Errorf("%s: %s, want %s", what, got, c.says)
		}
		if cmp.Or(f.UnderReplicated, f.Leaderless) > 0 && f.Example != "orders" {
			t.Errorf("%s: the example is %q", what, f.Example)
		}
	}
}

// TestClusterCountsShardsThatWaitSinceARestore: after a restore of etcd, shards of an earlier
// generation wait until their copies are compared. Shards of a Topic that is being deleted don't
// count.
func TestClusterCountsShardsThatWaitSinceARestore(t *testing.T) {
	topics := []*coordination.Topic{{ID: "1", Name: "orders"}, {ID: "2", Name: "billing"}, {ID: "3", Name: "audit"}, {ID: "4", Name: "a-last", Deleting: true}}
	var shards []*coordination.Shard
	for i, generation := range []int64{1, 1, 2, 1} {
		shards = append(shards, &coordination.Shard{Topic: topics[i].ID, Replicas: []string{"a"}, Generation: generation})
	}
	state := coordination.NewState(1, nil, topics, shards, nil)
	state.Generation = 2
	f := clusterFacts(state, func(string) string { return "" }, Pods{Set: "main", Now: 1, Want: 1})
	if f.Generation != 2 || f.Uncompared != 2 || f.UncomparedExample != "billing" {
		t.Errorf("generation %d, %d shards wait, such as one of %s; want 2, 2, billing", f.Generation, f.Uncompared, f.UncomparedExample)
	}
}
