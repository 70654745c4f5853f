package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// world is a cluster in which plans are carried out, brokers come and go, and leaders and followers
// act as package coordination requires.
type world struct {
	brokers map[string]coordination.Broker // present ones
	drains  map[string]coordination.DrainMode
	topics  map[string]*coordination.Topic // by name
	shards  map[string][]*coordination.Shard
	clock   int64 // of incarnations, revisions, creations and records

	volumes map[string]map[shardID]*copied // copies of each broker, by its id
	reports map[string]map[shardID]coordination.Suspect
	since   map[string]map[shardID]int64 // the epoch in which each doubt was first reported
	acked   map[shardID][]record
	earlier map[string]bool // brokers of a version that does not vouch
	process map[string]int  // number of starts of each broker
	ledBy   map[shardID]int // the process that was last named leader
	swaps   int             // changes by leaders and followers of what plans are made from
}

type shardID struct {
	topic  string
	number int
}

type record struct{ epoch, id int64 }

// copied is one broker's log of a shard.
type copied struct {
	records  []record
	followed int64 // epoch under which it was last compared with its leader
}

func newWorld(brokers ...string) *world {
	w := &world{
		brokers: map[string]coordination.Broker{}, drains: map[string]coordination.DrainMode{}, topics: map[string]*coordination.Topic{},
		shards: map[string][]*coordination.Shard{}, volumes: map[string]map[shardID]*copied{},
		reports: map[string]map[shardID]coordination.Suspect{}, since: map[string]map[shardID]int64{}, acked: map[shardID][]record{},
		earlier: map[string]bool{}, process: map[string]int{}, ledBy: map[shardID]int{},
	}
	for _, id := range brokers {
		w.start(id, "")
	}
	return w
}

func (w *world) tick() int64 { w.clock++; return w.clock }

// start starts a new incarnation after an end that was not orderly.
func (w *world) start(id, zone string) { w.startSince(id, zone, 0) }

func (w *world) startSince(id, zone string, since int64) {
	b := coordination.Broker{ID: id, Incarnation: w.tick(), Zone: zone, Since: since}
	if !w.earlier[id] {
		b.Features = coordination.MakeFeatureSet(coordination.FeatureVouches)
	}
	w.brokers[id] = b
	w.process[id]++
	if w.volumes[id] == nil {
		w.volumes[id] = map[shardID]*copied{}
	}
	if w.reports[id] == nil {
		w.reports[id], w.since[id] = map[shardID]coordination.Suspect{}, map[shardID]int64{}
	}
}

func (w *world) topic(name string, shards int, spec ...coordination.TopicSpec) *coordination.Topic {
	t := &coordination.Topic{Name: name, ID: fmt.Sprintf("%s-%d", name, w.tick()), Created: time.Unix(w.clock, 0)}
	if len(spec) > 0 {
		t.Spec = spec[0]
	} else {
		t.Spec.Replicas = 1
	}
	t.Spec.Subjects, t.Spec.Shards = []string{name}, shards
	w.topics[name] = t
	return t
}

func (w *world) facts() Facts {
	return Facts{
		Brokers: slices.Collect(maps.Values(w.brokers)), Drains: w.drains, Topics: slices.Collect(maps.Values(w.topics)),
		Shards:   func(id string) []*coordination.Shard { return w.shards[id] },
		Reported: w.reported, MaxShards: 64,
	}
}

func (w *world) reported(id, topic string, number int) (coordination.Suspect, bool) {
	if _, there := w.brokers[id]; !there {
		return coordination.Suspect{}, false
	}
	s, ok := w.reports[id][shardID{topic, number}]
	if ok { // reported anew without a leader, since it may have caught up in part
		log := w.log(id, shardID{topic, number}).records
		s.Epoch, s.End = uint64(lastEpoch(log)), uint64(len(log))
	}
	return s, ok
}

// put swaps a shard by its revision.
func (w *world) put(s coordination.Shard) {
	s.Revision = w.tick()
	list := w.shards[s.Topic]
	i, found := slices.BinarySearchFunc(list, s.Number, func(s *coordination.Shard, n int) int { return s.Number - n })
	if found {
		list[i] = &s
	} else {
		w.shards[s.Topic] = slices.Insert(list, i, &s)
	}
}

func (w *world) carryOut(p Plan) {
	written := map[shardID]bool{}
	for _, write := range p.Writes {
		s, id := write.Shard, shardID{write.Shard.Topic, write.Shard.Number}
		if written[id] {
			panic(fmt.Sprintf("a plan writes shard %d of topic %s twice, and its parts are written at once", s.Number, write.Topic.Name))
		}
		written[id] = true
		w.put(s)
		w.ledBy[id] = w.process[s.Leader]
		if write.Reason == LeastLoss || write.Reason == Unclean || write.Reason == LeaderReturnedUnsynced {
			has := w.log(s.Leader, id).records // the rest is lost, as the reason says
			n := 0
			for n < len(has) && n < len(w.acked[id]) && has[n] == w.acked[id][n] {
				n++
			}
			w.acked[id] = w.acked[id][:n]
		}
		for broker, volume := range w.volumes {
			if !slices.Contains(s.Replicas, broker) {
				delete(volume, id)
				delete(w.reports[broker], id)
			}
		}
	}
	for _, t := range p.Sweeps {
		delete(w.topics, t.Name)
		delete(w.shards, t.ID)
	}
}

func (w *world) log(broker string, id shardID) *copied {
	if w.volumes[broker][id] == nil {
		w.volumes[broker][id] = &copied{}
	}
	return w.volumes[broker][id]
}

// leads reports whether the shard's leader is present and leads.
func (w *world) leads(s *coordination.Shard) bool {
	b, there := w.brokers[s.Leader]
	m, in := s.Member(s.Leader)
	return there && in && m == b.Replica()
}

// work does the work of a shard's leader and followers: follow, publish, acknowledge, change the
// set.
func (w *world) work(t *coordination.Topic, s *coordination.Shard, everyone bool, random *rand.Rand) {
	if !w.leads(s) {
		return
	}
	id := shardID{s.Topic, s.Number}
	if said, suspect := w.reports[s.Leader][id]; suspect {
		doubted := s.Doubt.Epoch == s.Epoch && s.Doubt.Leader == s.Leader
		switch {
		case said.Spent > 0 && s.Epoch > said.Spent || said.Cut:
		case w.earlier[s.Leader] && s.Epoch <= w.since[s.Leader][id]:
			return // not served before the suspect leader is named in a later epoch
		case !w.earlier[s.Leader] && !doubted:
			w.withdraw(s.Leader, s)
			return
		}
		w.settleReport(s.Leader, id) // its copy is what the shard holds
	}
	leader := w.log(s.Leader, id)
	leader.followed = s.Epoch
	leader.records = append(leader.records, record{s.Epoch, w.tick()})
	set, caughtUp := slices.Clone(s.InSync), []coordination.Replica(nil)
	least := s.MinInSync(&t.Spec)
	for _, broker := range s.Replicas {
		b, there := w.brokers[broker]
		if broker == s.Leader {
			continue
		}
		at := slices.IndexFunc(set, func(m coordination.Replica) bool { return m.Broker == broker })
		if !there || !everyone && random.IntN(3) == 0 {
			if at >= 0 && len(set) > least && (!there || random.IntN(2) == 0) {
				set = slices.Delete(set, at, at+1)
			}
			continue
		}
		follower := w.log(broker, id)
		follower.records = shared(leader.records, follower.records) // truncate, then copy
		follower.followed = s.Epoch
		upTo := len(leader.records)
		if !everyone {
			upTo -= random.IntN(2)
		}
		follower.records = slices.Clone(leader.records[:max(upTo, len(follower.records))])
		if len(follower.records) < len(leader.records) {
			continue
		}
		caughtUp = append(caughtUp, b.Replica())
		if at < 0 {
			set = append(set, b.Replica())
		} else {
			set[at] = b.Replica()
		}
	}
	// Both sets must have a record before it is acknowledged, since the swap may still fail.
	acked := len(leader.records)
	for _, m := range append(slices.Clone(s.InSync), set...) {
		b, there := w.brokers[m.Broker]
		if log := w.log(m.Broker, id); !there || b.Replica() != m || log.followed != s.Epoch {
			acked = 0
		} else {
			acked = min(acked, len(log.records))
		}
	}
	if len(s.InSync) >= least && len(set) >= least && acked > len(w.acked[id]) {
		w.acked[id] = slices.Clone(leader.records[:acked])
	}
	if !slices.Equal(set, s.InSync) && (everyone || random.IntN(4) > 0) {
		after := *s
		after.InSync = set
		w.put(after)
		w.swaps++
	} else if !slices.Equal(set, s.InSync) {
		set = s.InSync
	}
	for _, m := range caughtUp { // suspect until the set names its current incarnation
		if slices.Contains(set, m) {
			w.settleReport(m.Broker, id)
		}
	}
}

// report makes a broker report that it does not vouch for its replica.
func (w *world) report(broker string, s *coordination.Shard, what coordination.Suspect) {
	id := shardID{s.Topic, s.Number}
	w.reports[broker][id], w.since[broker][id] = what, s.Epoch
}

// entry changes a broker's own entry in a shard.
func (w *world) entry(broker string, s *coordination.Shard, incarnation int64, unled bool) {
	after := *s
	after.InSync = slices.Clone(s.InSync)
	at := slices.IndexFunc(after.InSync, func(m coordination.Replica) bool { return m.Broker == broker })
	after.InSync[at].Incarnation = incarnation
	if unled && after.Leader == broker {
		after.Leader = ""
	}
	w.put(after)
	w.swaps++
}

// withdraw makes a broker withdraw its entry in a shard.
func (w *world) withdraw(broker string, s *coordination.Shard) { w.entry(broker, s, 0, true) }

// vouchAll makes present brokers open their copies, and vouch for those that they do not report, in
// shards that no other broker leads. With some, only part of them do so.
func (w *world) vouchAll(some *rand.Rand) {
	for _, t := range w.sorted() {
		for i := range w.shards[t.ID] {
			for _, m := range w.shards[t.ID][i].InSync {
				s := w.shards[t.ID][i]
				id := shardID{s.Topic, s.Number}
				b, there := w.brokers[m.Broker]
				_, suspect := w.reports[m.Broker][id]
				if !there || w.earlier[m.Broker] || suspect || m == b.Replica() || w.leads(s) || some != nil && some.IntN(3) == 0 {
					continue
				}
				w.entry(m.Broker, s, b.Incarnation, w.ledBy[id] != w.process[m.Broker])
				said := coordination.Return{Replica: b.Replica()}
				if records := w.log(m.Broker, id).records; len(records) > 0 {
					said.Reach = coordination.Reach{Epoch: records[len(records)-1].epoch, End: uint64(len(records))}
				}
				after := w.shards[t.ID][i]
				after.Returned = append(slices.Clone(after.Returned), said)
			}
		}
	}
}

// settleReport ends the report of a replica.
func (w *world) settleReport(broker string, id shardID) {
	if _, suspect := w.reports[broker][id]; suspect {
		delete(w.reports[broker], id)
		w.swaps++
	}
}

func shared(a, b []record) []record {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return slices.Clone(b[:n])
}

// sorted returns the Topics by name.
func (w *world) sorted() []*coordination.Topic {
	return slices.SortedFunc(maps.Values(w.topics), func(a, b *coordination.Topic) int { return strings.Compare(a.Name, b.Name) })
}

// workAll lets every leader work once.
func (w *world) workAll(everyone bool, random *rand.Rand) {
	if everyone {
		w.vouchAll(nil)
	} else {
		w.vouchAll(random)
	}
	for _, t := range w.sorted() {
		for _, s := range slices.Clone(w.shards[t.ID]) {
			w.work(t, s, everyone, random)
		}
	}
}

// end is the way in which an incarnation of a broker ends.
type end int

const (
	inOrder end = iota
	killed      // what was not synced may be lost
	damaged     // what was synced may be lost, too
)

func (w *world) stop(id string, how end, random *rand.Rand) (since int64) {
	b := w.brokers[id]
	delete(w.brokers, id)
	for _, t := range w.sorted() {
		for _, shard := range w.shards[t.ID] {
			if !slices.Contains(shard.Replicas, id) || how == inOrder || synced(t) && (how == killed || random.IntN(2) == 0) {
				continue
			}
			log := w.log(id, shardID{t.ID, shard.Number})
			log.records = log.records[:len(log.records)-random.IntN(min(3, len(log.records)+1))]
			log.followed = 0
			w.report(id, shard, coordination.Suspect{
				Topic: t.ID, Shard: shard.Number, Epoch: uint64(lastEpoch(log.records)), End: uint64(len(log.records)),
			})
		}
	}
	if how != inOrder {
		return 0
	}
	if b.Since != 0 {
		return b.Since
	}
	return b.Incarnation
}

// evict ends an incarnation for the cluster only. The process goes on and registers anew.
func (w *world) evict(id string) {
	b := w.brokers[id]
	if b.Since == 0 {
		b.Since = b.Incarnation
	}
	b.Incarnation = w.tick()
	w.brokers[id] = b
}

// settle carries out plans until nothing is left to do, and returns their number.
func (w *world) settle(t failer) (plans int, last Plan) {
	t.Helper()
	todo := 50
	for _, topic := range w.topics {
		todo += 20 * (topic.Spec.Shards + 1)
	}
	for {
		last = Decide(w.facts())
		w.check(t, last)
		if len(last.Writes)+len(last.Sweeps) == 0 {
			swaps := w.swaps
			if w.workAll(true, nil); w.swaps != swaps {
				continue
			}
			if last.More || last.Held {
				t.Fatalf("a plan of nothing says that there is more")
			}
			return plans, last
		}
		if plans++; plans > todo {
			t.Fatalf("%d plans have not come to an end; the last is %+v", plans, last.Writes)
		}
		w.carryOut(last)
		w.workAll(true, nil)
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
			for _, id := range shard.Replicas {
				if _, alive := counts[id]; alive && !slices.Contains(shard.Removing, id) {
					counts[id]++
				}
			}
		}
	}
	return counts
}

// leaders returns how many shards each broker leads.
func (w *world) leaders() map[string]int {
	leads := map[string]int{}
	for id := range w.brokers {
		leads[id] = 0
	}
	for _, topic := range w.topics {
		for _, shard := range w.shards[topic.ID] {
			leads[shard.Leader]++
		}
	}
	return leads
}

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// check checks what every plan must keep.

func (w *world) check(t failer, p Plan) {

	t.Helper()
	if again := Decide(w.facts()); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", p) {
		t.Fatalf("P9: facts in another order make another plan:\n%+v\n%+v", p, again)
	}
	if len(p.Writes) > maxPlanWrites || len(p.Sweeps) > maxSweeps || p.Moves > leaderMovesPerPlan {
		t.Fatalf("a plan of %d writes, %d sweeps and %d moves", len(p.Writes), len(p.Sweeps), p.Moves)
	}
	for _, wait := range p.Waits {
		if wait.Why == "" {
			t.Fatalf("a wait without an explanation: %+v", wait)
		}
	}
	seen := map[shardID]bool{}
	for _, write := range p.Writes {
		id := shardID{write.Shard.Topic, write.Shard.Number}
		if seen[id] {
			t.Fatalf("two writes of one shard: %+v", write)
		}
		seen[id] = true
		i := slices.IndexFunc(w.shards[id.topic], func(old *coordination.Shard) bool { return old.Number == id.number })
		if i < 0 {
			w.checkNew(t, write)
		} else {
			w.checkChange(t, write, w.shards[id.topic][i])
		}
	}
}

func (w *world) checkNew(t failer, write Write) {
	t.Helper()
	s, spec := write.Shard, write.Topic.Spec
	if s.Epoch != 1 || s.Revision != 0 || write.Reason != Placed || write.Topic != w.topics[write.Topic.Name] || write.Topic.ID != s.Topic {
		t.Fatalf("a new shard %+v, for %s", s, write.Reason)
	}
	takers, zones, used := 0, map[string]bool{}, map[string]bool{}
	for id, b := range w.brokers {
		if w.drains[id] == "" {
			takers++
			zones[b.Zone] = true
		}
	}
	for i, id := range s.Replicas {
		b, alive := w.brokers[id]
		if !alive || w.drains[id] != "" || s.InSync[i] != b.Replica() {
			t.Fatalf("P5: a new shard %+v on %s", s, id)
		}
		used[b.Zone] = true
	}
	want := spec.Replicas
	if want == 0 {
		want = max(3, spec.MinInSync)
	}
	if len(s.Replicas) != min(want, takers) || s.Leader != s.Replicas[0] || len(s.InSync) < s.MinInSync(&spec) || len(used) != min(len(s.Replicas), len(zones)) {
		t.Fatalf("P5: a new shard %+v of a Topic %+v, with %d takers in %v", s, spec, takers, zones)
	}
}

func (w *world) checkChange(t failer, write Write, old *coordination.Shard) {
	t.Helper()
	s, id := write.Shard, shardID{write.Shard.Topic, write.Shard.Number}
	was, _ := old.Member(old.Leader)
	is, _ := s.Member(s.Leader)
	taken := slices.ContainsFunc(old.Replicas, func(id string) bool { return !slices.Contains(s.Replicas, id) })
	spent := write.Reason == LeaderReturned && w.reports[s.Leader][id].Spent >= old.Epoch
	if named := s.Leader != old.Leader || was != is || spent; s.Epoch != old.Epoch+int64(order(named || taken || len(s.InSync) == 1 && s.Epoch != old.Epoch)) || s.Revision != old.Revision || write.Reason == Placed {
		t.Fatalf("P2: %+v follows %+v, for %s", s, *old, write.Reason)
	}
	if !w.leads(&s) {
		t.Fatalf("P3: %+v is led by nobody who is there in that life, for %s", s, write.Reason)
	}
	alone := write.Reason == LeastLoss || write.Reason == Unclean || write.Reason == LeaderReturnedUnsynced
	if _, in := old.Member(s.Leader); !in && write.Reason != Unclean {
		t.Fatalf("P4: %s leads and was not in sync: %+v follows %+v, for %s", s.Leader, s, *old, write.Reason)
	}
	if doubt := (coordination.Doubt{Epoch: s.Epoch, Leader: s.Leader, Reason: string(write.Reason)}); alone && s.Doubt != doubt || !alone && s.Doubt != old.Doubt {
		t.Fatalf("P4: %+v follows %+v, for %s", s, *old, write.Reason)
	}
	if alone {
		stay := 1
		if write.Reason == LeastLoss {
			stay = len(old.InSync)
		}
		if len(s.InSync) != stay {
			t.Fatalf("P4: %+v after %s", s, write.Reason)
		}
		if write.Reason == LeastLoss { // of all copies that may be complete, none has more
			for _, m := range old.InSync {
				if _, there := w.brokers[m.Broker]; !there {
					t.Fatalf("P4: %+v without %s, which is away", s, m.Broker)
				}
				a, b := w.log(s.Leader, id).records, w.log(m.Broker, id).records
				if lastEpoch(b) > lastEpoch(a) || lastEpoch(b) == lastEpoch(a) && len(b) > len(a) {
					t.Fatalf("P4: %s with %d records leads, and %s has %d", s.Leader, len(a), m.Broker, len(b))
				}
			}
		}
		return
	}
	if now, vouched := w.brokers[s.Leader], was; s.Leader == old.Leader || true {
		vouched, _ = old.Member(s.Leader)
		if said := w.reports[s.Leader][id]; !w.earlier[s.Leader] && vouched != now.Replica() && !said.Cut {
			t.Fatalf("P4: %s leads and has not vouched for its copy: %+v follows %+v", s.Leader, s, *old)
		}
	}
	if has := w.log(s.Leader, id).records; len(shared(w.acked[id], has)) < len(w.acked[id]) {
		t.Fatalf("P4: %s leads with %d records and lacks some of %d that were acknowledged, for %s: %+v follows %+v", s.Leader, len(has), len(w.acked[id]), write.Reason, s, *old)
	}
	for _, m := range s.InSync {
		if m.Broker != s.Leader && !slices.Contains(old.InSync, m) {
			t.Fatalf("P6: the planner says that %v is in sync: %+v follows %+v", m, s, *old)
		}
	}
	if len(s.InSync) < len(old.InSync) && len(s.InSync) < s.MinInSync(&write.Topic.Spec) {
		t.Fatalf("P6: %d in sync, for %s: %+v follows %+v", len(s.InSync), write.Reason, s, *old)
	}
	if len(s.InSync) < len(old.InSync) && s.Epoch == old.Epoch {
		ready := 0
		for _, m := range s.InSync {
			if _, suspect := w.reported(m.Broker, s.Topic, s.Number); w.brokers[m.Broker].Replica() == m && !suspect {
				ready++
			}
		}
		if ready < s.MinInSync(&write.Topic.Spec) {
			t.Fatalf("P6: %d are there and in sync, for %s: %+v follows %+v", ready, write.Reason, s, *old)
		}
	}
	for _, added := range s.Replicas {
		if !slices.Contains(old.Replicas, added) && (w.drains[added] != "" || w.brokers[added].ID == "" || !slices.Contains(s.Adding, added)) {
			t.Fatalf("P7: %s is given %+v", added, s)
		}
	}
	if len(s.Replicas) < 1 || len(s.Replicas) > 2*MaxReplicas {
		t.Fatalf("%+v", s)
	}
	for _, members := range [][]string{s.Adding, s.Removing} {
		for _, id := range members {
			if !slices.Contains(s.Replicas, id) {
				t.Fatalf("%s is none of the replicas of %+v", id, s)
			}
		}
	}
}

func lastEpoch(records []record) int64 {
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].epoch
}

// spread returns the difference between the greatest and the smallest count.
func spread(counts map[string]int) int {
	values := slices.Sorted(maps.Values(counts))
	return values[len(values)-1] - values[0]
}
