package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestABrokerGoesAndComesBack: the only broker with a replica of some shards goes away. The shards
// wait for it, and no other broker takes them. After its return it leads them in a new epoch, once
// it has vouched for its copy or reported that it may lack records. The state of a broker of an
// earlier version is inferred.
func TestABrokerGoesAndComesBack(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		w := newWorld()
		w.earlier["a"], w.earlier["b"] = earlier, earlier
		w.start("a", "")
		w.start("b", "")
		w.topic("synced", 1)
		unsynced := w.topic("unsynced", 1, coordination.TopicSpec{Replicas: 1, Durability: coordination.Replicated})
		w.settle(t)
		for _, topic := range w.sorted() {
			shard := w.shards[topic.ID][0]
			id := shard.Leader
			delete(w.brokers, id)
			p := Decide(w.facts())
			if len(p.Writes) != 0 || len(p.Waits) != 1 || p.Waits[0].Reason != BrokerAway || p.Waits[0].Topic != topic {
				t.Fatalf("without %s the plan is %+v", id, p)
			}
			w.start(id, "")
			want := LeaderReturned
			if !earlier {
				want = LeaderElected
				if wait := waits(t, w); wait.Reason != CopiesOpening {
					t.Fatalf("%+v", wait)
				}
				if topic == unsynced {
					w.report(id, shard, coordination.Suspect{Topic: topic.ID, Epoch: 1, End: 1})
				}
				w.vouchAll(nil)
			}
			if topic == unsynced {
				want = LeaderReturnedUnsynced
			}
			p = Decide(w.facts())
			if len(p.Writes) != 1 || len(p.Waits) != 0 || p.Writes[0].Reason != want || p.Writes[0].Shard.Epoch != 2 || p.Writes[0].Shard.Leader != id {
				t.Fatalf("with %s back the plan is %+v, want %s", id, p, want)
			}
			w.carryOut(p)
			w.settle(t)
		}
	}
}

// TestCopiesThatWereCutComeLast: opening cut a torn tail of every copy: the copy that goes furthest
// leads, without a doubt, and without waiting for a member that is away. It waits for a member that
// may still vouch.
func TestCopiesThatWereCutComeLast(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{})
	w.settle(t)
	shard := w.shards[orders.ID][0]
	for _, id := range []string{"a", "b", "c"} {
		delete(w.brokers, id)
	}
	for broker, end := range map[string]uint64{"a": 3, "b": 5} {
		w.report(broker, shard, coordination.Suspect{Topic: orders.ID, Epoch: 1, End: end, Cut: true})
		w.start(broker, "")
	}
	// These are under way.
	w.log("b", shardID{orders.ID, 0}).records = append(w.log("b", shardID{orders.ID, 0}).records, record{1, 1}, record{1, 2})
	w.start("c", "")
	if wait := waits(t, w); wait.Reason != CopiesOpening {
		t.Fatalf("%+v", wait)
	}
	opened := *shard
	delete(w.brokers, "c")
	if p := Decide(w.facts()); len(p.Writes) != 1 || p.Writes[0].Reason != LeaderElected || p.Writes[0].Shard.Leader != "b" || p.Writes[0].Shard.Doubt.Epoch != 0 {
		t.Fatalf("without c the plan is %+v", p)
	}
	w.start("c", "")
	w.put(opened)
	w.vouchAll(nil)
	if write := only(t, w); write.Reason != LeaderElected || write.Shard.Leader != "c" {
		t.Fatalf("with c the plan is %+v", write)
	}
}

// TestAVolumeThatWasRolledBackComesLast: a volume is rolled back while its broker is away, and the
// broker vouches for what it finds. A member that was present all the time leads. If there is none,
// the copy that goes furthest leads.
func TestAVolumeThatWasRolledBackComesLast(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{})
	w.settle(t)
	back := func(id string, reach coordination.Reach) coordination.Return {
		delete(w.brokers, id)
		w.start(id, "")
		return coordination.Return{Replica: coordination.Replica{Broker: id, Incarnation: w.brokers[id].Incarnation}, Reach: reach}
	}
	vouch := func(all ...coordination.Return) {
		after := *w.shards[orders.ID][0]
		after.InSync, after.Leader = slices.Clone(after.InSync), ""
		for _, r := range all {
			i := slices.IndexFunc(after.InSync, func(m coordination.Replica) bool { return m.Broker == r.Broker })
			after.InSync[i] = r.Replica
		}
		after.Returned = all
		w.put(after)
	}
	led := w.shards[orders.ID][0].Leader
	vouch(back(led, coordination.Reach{Epoch: 1, End: 90}))
	if write := only(t, w); write.Shard.Leader == led {
		t.Errorf("%s leads, which has returned, and others have not", led)
	}
	for _, least := range []coordination.Reach{{Epoch: 2, End: 30}, {Epoch: 1, End: 90}} {
		for _, most := range []string{"a", "b", "c"} {
			var all []coordination.Return
			for _, id := range []string{"a", "b", "c"} {
				reach := least
				if id == most {
					reach = coordination.Reach{Epoch: 2, End: 40}
				}
				all = append(all, back(id, reach))
			}
			vouch(all...)
			if write := only(t, w); write.Shard.Leader != most || write.Reason != LeaderElected {
				t.Errorf("%s leads by %s; %s goes further", write.Shard.Leader, write.Reason, most)
			}
		}
	}
}

// TestAnotherMemberLeadsWhenALeaderWithdraws: a leader withdraws: another member that vouches
// leads. If there is none, the shard waits for all of them.
func TestAnotherMemberLeadsWhenALeaderWithdraws(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{})
	w.settle(t)
	first := *w.shards[orders.ID][0]
	w.withdraw(first.Leader, w.shards[orders.ID][0])
	write := only(t, w)
	if write.Reason != LeaderElected || write.Shard.Leader == first.Leader || write.Shard.Epoch != first.Epoch+1 || len(write.Shard.InSync) != 3 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	for _, m := range write.Shard.InSync {
		if m.Broker != first.Leader {
			w.withdraw(m.Broker, w.shards[orders.ID][0])
		}
	}
	if wait := waits(t, w); wait.Reason != CopiesOpening {
		t.Fatalf("%+v", wait)
	}
}

// only returns the single write of a plan.
func only(t *testing.T, w *world) Write {
	t.Helper()
	p := Decide(w.facts())
	w.check(t, p)
	if len(p.Writes) != 1 {
		t.Fatalf("the plan is %+v, waits %+v", p.Writes, p.Waits)
	}
	w.carryOut(p)
	return p.Writes[0]
}

// waits returns the single wait of a plan without writes.
func waits(t *testing.T, w *world) Wait {
	t.Helper()
	p := Decide(w.facts())
	if len(p.Writes) != 0 || len(p.Waits) != 1 {
		t.Fatalf("the plan is %+v, waits %+v", p.Writes, p.Waits)
	}
	return p.Waits[0]
}

func inLife(w *world, id string) coordination.Replica { return w.brokers[id].Replica() }

// TestTheLeaderOfThreeDiesAndReturns: the leader of three replicas dies, and another one leads. The
// first one returns, catches up, and leads again.
func TestTheLeaderOfThreeDiesAndReturns(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{})
	w.settle(t)
	shard := func() *coordination.Shard { return w.shards[orders.ID][0] }
	first, others := shard().Replicas[0], shard().Replicas[1:]
	w.stop(first, killed, nil)
	write := only(t, w)
	if write.Reason != LeaderElected || write.Shard.Leader != others[0] || len(write.Shard.InSync) != 2 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.workAll(true, nil)

	// A second one dies. The last one alone cannot acknowledge, so the set stays as it is.
	w.stop(others[0], killed, nil)
	write = only(t, w)
	if write.Shard.Leader != others[1] || len(write.Shard.InSync) != 2 || write.Shard.InSync[0].Broker != others[0] {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}

	// It dies, too. The broker that died first lacks later records and must not lead.
	w.stop(others[1], killed, nil)
	w.start(first, "")
	if wait := waits(t, w); wait.Reason != NoLeaderCandidate {
		t.Fatalf("%+v", wait)
	}
	w.start(others[0], "")
	if wait := waits(t, w); wait.Reason != CopiesOpening {
		t.Fatalf("%+v", wait)
	}
	w.vouchAll(nil)
	write = only(t, w)
	if write.Shard.Leader != others[0] || write.Reason != LeaderElected || !slices.Contains(write.Shard.InSync, inLife(w, others[0])) {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.start(others[1], "")
	w.workAll(true, nil)
	_, last := w.settle(t)
	if shard().Leader != first || len(shard().InSync) != 3 || len(last.Waits) != 0 {
		t.Errorf("at last: %+v", *shard())
	}
}

// TestALeaderThatRegistersAgainLeadsOn: a broker that only lost its lease has lost nothing. It
// vouches in its new incarnation and leads on in its epoch, unless another one was elected first. A
// broker of an earlier version is named again before it leads.
func TestALeaderThatRegistersAgainLeadsOn(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		w := newWorld()
		for _, id := range []string{"a", "b", "c"} {
			w.earlier[id] = earlier
		}
		// again checks a shard for which no other broker was elected.
		again := func(orders *coordination.Topic) {
			t.Helper()
			before := *w.shards[orders.ID][0]
			if !earlier {
				w.vouchAll(nil)
				if p := Decide(w.facts()); len(p.Writes) != 0 || len(p.Waits) != 0 {
					t.Fatalf("it leads on: %+v, %+v", p.Writes, p.Waits)
				}
				if after := w.shards[orders.ID][0]; after.Epoch != before.Epoch || after.Leader != before.Leader || !w.leads(after) {
					t.Fatalf("%+v follows %+v", *after, before)
				}
			} else if write := only(t, w); write.Reason != LeaderReturned || write.Shard.Leader != before.Leader {
				t.Fatalf("%s: %+v", write.Reason, write.Shard)
			}
		}
		w.start("a", "")
		orders := w.topic("orders", 1, coordination.TopicSpec{Durability: coordination.Replicated})
		w.settle(t)
		w.evict("a")
		again(orders)
		w.start("b", "")
		w.start("c", "")
		w.settle(t)
		leader := w.shards[orders.ID][0].Leader
		w.evict(leader)
		if write := only(t, w); write.Reason != LeaderElected || write.Shard.Leader == leader || len(write.Shard.InSync) != 3 {
			t.Fatalf("of three: %s: %+v", write.Reason, write.Shard)
		}
		for _, id := range []string{"a", "b", "c"} {
			w.evict(id)
		}
		again(orders)
	}
}

// TestTheLongestCopyLeadsAfterAllBrokersWereKilled: all brokers are killed before they have synced:
// the copy that goes furthest leads when all are present to be compared.
func TestTheLongestCopyLeadsAfterAllBrokersWereKilled(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		w := newWorld("a", "b", "c")
		orders := w.topic("orders", 1, coordination.TopicSpec{Durability: coordination.Replicated, UncleanElection: unclean})
		w.settle(t)
		for range 5 {
			w.workAll(true, nil)
		}
		id := shardID{orders.ID, 0}
		for broker, end := range map[string]int{"a": 3, "b": 5, "c": 4} {
			delete(w.brokers, broker)
			w.log(broker, id).records = w.log(broker, id).records[:end]
			w.report(broker, w.shards[orders.ID][0], coordination.Suspect{Topic: orders.ID, Epoch: 1, End: uint64(end)})
		}
		if wait := waits(t, w); wait.Reason != NoLeaderCandidate {
			t.Fatalf("%+v", wait)
		}
		w.start("a", "")
		w.start("c", "")
		if unclean {
			if write := only(t, w); write.Reason != Unclean || write.Shard.Leader != "c" || len(write.Shard.InSync) != 1 {
				t.Fatalf("%s: %+v", write.Reason, write.Shard)
			}
			continue
		}
		if wait := waits(t, w); wait.Reason != AllSuspect {
			t.Fatalf("%+v", wait)
		}
		said := w.reports["b"]
		delete(w.reports, "b")
		w.start("b", "")
		// It is present, and has not reported its copy yet.
		if wait := waits(t, w); wait.Reason != CopiesOpening {
			t.Fatalf("%+v", wait)
		}
		w.reports["b"] = said
		if write := only(t, w); write.Reason != LeastLoss || write.Shard.Leader != "b" || len(write.Shard.InSync) != 3 {
			t.Fatalf("%s: %+v", write.Reason, write.Shard)
		}
		w.workAll(true, nil)
		w.settle(t)
		if shard := w.shards[orders.ID][0]; len(shard.InSync) != 3 {
			t.Errorf("at last: %+v", *shard)
		}
	}
}

// TestABrokerThatCannotOpenItsCopyCountsAsAway: a present broker can't open its copy. It counts as
// away, whatever it reports: an election does not wait for its report, and waits for the broker
// where it waits for absent ones.
func TestABrokerThatCannotOpenItsCopyCountsAsAway(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		w := newWorld("a", "b", "c")
		orders := w.topic("orders", 1, coordination.TopicSpec{UncleanElection: unclean})
		w.settle(t)
		shard := *w.shards[orders.ID][0]
		for _, id := range []string{"a", "b", "c"} {
			delete(w.brokers, id)
		}
		w.start("a", "")
		w.start("b", "")
		if wait := waits(t, w); wait.Reason != CopiesOpening {
			t.Fatalf("%+v", wait)
		}
		w.report("a", &shard, coordination.Suspect{Topic: orders.ID, Epoch: 1, End: 9, Lacks: 1})
		w.report("b", &shard, coordination.Suspect{Topic: orders.ID, Closed: true})
		if unclean {
			if write := only(t, w); write.Reason != Unclean || write.Shard.Leader != "a" {
				t.Fatalf("%s: %+v", write.Reason, write.Shard)
			}
			continue
		}
		w.start("c", "")
		w.report("c", &shard, coordination.Suspect{Topic: orders.ID, Epoch: 1, End: 8, Lacks: 1})
		if wait := waits(t, w); wait.Reason != AllSuspect || !strings.Contains(wait.Why, "b (which can't open its copy") {
			t.Fatalf("%+v", wait)
		}
		// It vouched before, or is named in the set by its leader, and can't open its copy any
		// more.
		w.entry("b", w.shards[orders.ID][0], w.brokers["b"].Incarnation, true)
		if wait := waits(t, w); wait.Reason != AllSuspect {
			t.Fatalf("%+v", wait)
		}
		delete(w.reports["c"], shardID{orders.ID, 0})
		w.vouchAll(nil)
		if write := only(t, w); write.Reason != LeaderElected || write.Shard.Leader != "c" {
			t.Fatalf("%s: %+v", write.Reason, write.Shard)
		}
	}
	w := newWorld("a")
	alone := w.topic("alone", 1, coordination.TopicSpec{UncleanElection: true})
	w.settle(t)
	delete(w.brokers, "a")
	w.start("a", "")
	w.report("a", w.shards[alone.ID][0], coordination.Suspect{Topic: alone.ID, Closed: true})
	if wait := waits(t, w); wait.Reason != BrokerAway || !strings.Contains(wait.Why, "can't open its copy") {
		t.Fatalf("%+v", wait)
	}
}

// TestAWholeCopyIsBetterThanADamagedOne: of two copies that go equally far, one has lost segments
// in between: the complete one leads.
func TestAWholeCopyIsBetterThanADamagedOne(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{Durability: coordination.Replicated})
	w.settle(t)
	for range 5 {
		w.workAll(true, nil)
	}
	lacks := map[string]int{"a": 1, "b": 1, "c": 1}
	// Being the leader, or the first replica, must not matter.
	for _, m := range w.shards[orders.ID][0].InSync {
		if m.Broker != w.shards[orders.ID][0].Leader {
			lacks[m.Broker] = 0
			break
		}
	}
	for broker, n := range lacks {
		w.evict(broker)
		w.report(broker, w.shards[orders.ID][0], coordination.Suspect{Topic: orders.ID, Epoch: 1, End: 5, Lacks: n})
	}
	if write := only(t, w); write.Reason != LeastLoss || lacks[write.Shard.Leader] > 0 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
}

// TestTheLongestCopyMayReturnShorter: the copy that went furthest is gone again before another
// broker has copied it, and returns with less than others have. They are still in the set, and lead
// instead.
func TestTheLongestCopyMayReturnShorter(t *testing.T) {
	w := newWorld("a", "b", "c")
	orders := w.topic("orders", 1, coordination.TopicSpec{Durability: coordination.Replicated})
	w.settle(t)
	for range 5 {
		w.workAll(true, nil)
	}
	id := shardID{orders.ID, 0}
	for broker, end := range map[string]int{"a": 3, "b": 5, "c": 4} {
		w.evict(broker)
		w.log(broker, id).records = w.log(broker, id).records[:end]
		w.report(broker, w.shards[orders.ID][0], coordination.Suspect{Topic: orders.ID, Epoch: 1, End: uint64(end)})
	}
	if write := only(t, w); write.Reason != LeastLoss || write.Shard.Leader != "b" {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.carryOut(Decide(w.facts()))
	if p := Decide(w.facts()); len(p.Writes) != 0 {
		t.Fatalf("before it has taken its report back: %+v", p.Writes)
	}
	w.evict("b")
	w.log("b", id).records = w.log("b", id).records[:1]
	w.report("b", w.shards[orders.ID][0], coordination.Suspect{Topic: orders.ID, Epoch: 1, End: 1})
	if write := only(t, w); write.Reason != LeastLoss || write.Shard.Leader != "c" {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.settle(t)
	if shard := w.shards[orders.ID][0]; len(shard.InSync) != 3 || len(w.log("a", id).records) < 4 {
		t.Errorf("at last: %+v, with %d records", *shard, len(w.log("a", id).records))
	}
}

// TestAMemberWhoseLeaseEndsFirstStaysInTheSet: all brokers lose power at once, but the lease of one
// ends first. If the Topic is not Synced, that broker stays in the set: when all have returned, its
// copy may go furthest.
func TestAMemberWhoseLeaseEndsFirstStaysInTheSet(t *testing.T) {
	for durability, stay := range map[coordination.Durability]int{coordination.Synced: 2, coordination.Replicated: 3} {
		w := newWorld("a", "b", "c")
		orders := w.topic("orders", 1, coordination.TopicSpec{Durability: durability})
		w.settle(t)
		delete(w.brokers, w.shards[orders.ID][0].Leader)
		if write := only(t, w); write.Reason != LeaderElected || len(write.Shard.InSync) != stay {
			t.Errorf("%s: %s: %+v, want %d in the set", durability, write.Reason, write.Shard, stay)
		}
	}
}

// TestASuspectLeaderIsReplaced: a leader of an earlier version that does not vouch for its log is
// replaced if another member vouches.
func TestASuspectLeaderIsReplaced(t *testing.T) {
	w := newWorld()
	for _, id := range []string{"a", "b", "c"} {
		w.earlier[id] = true
		w.start(id, "")
	}
	orders := w.topic("orders", 1, coordination.TopicSpec{})
	w.settle(t)
	shard := w.shards[orders.ID][0]
	w.report(shard.Leader, shard, coordination.Suspect{Topic: orders.ID})
	if write := only(t, w); write.Reason != LeaderElected || write.Shard.Leader == shard.Leader || len(write.Shard.InSync) != 3 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.settle(t)
	if got := w.shards[orders.ID][0]; got.Leader != shard.Leader {
		t.Errorf("it was compared with another, and leads not again: %+v", *got)
	}
}

// TestALeaderWithASpentEpochIsReplaced: a leader whose log failed is replaced by an in-sync member.
// If there is none, it leads on under the next epoch.
func TestALeaderWithASpentEpochIsReplaced(t *testing.T) {
	for alone, reason := range map[bool]WriteReason{false: LeaderElected, true: LeaderReturned} {
		w := newWorld("a", "b", "c")
		orders := w.topic("orders", 1, coordination.TopicSpec{Replicas: 3, MinInSync: 1})
		w.settle(t)
		shard := *w.shards[orders.ID][0]
		if alone {
			m, _ := shard.Member(shard.Leader)
			shard.InSync = []coordination.Replica{m}
			w.put(shard)
		}
		w.report(shard.Leader, &shard, coordination.Suspect{Topic: orders.ID, Spent: shard.Epoch})
		write := only(t, w)
		if write.Reason != reason || (write.Shard.Leader == shard.Leader) != alone || len(write.Shard.InSync) != len(w.shards[orders.ID][0].InSync) || write.Shard.Doubt.Epoch != 0 {
			t.Errorf("%s: %+v", write.Reason, write.Shard)
		}
		w.carryOut(Decide(w.facts()))
		if p := Decide(w.facts()); len(p.Writes) != 0 {
			t.Errorf("afterwards, before the report is taken back: %+v", p.Writes)
		}
	}
}

// TestABrokerIsDrained: a broker that stops soon leads nothing. A broker that is drained for good
// ends up without replicas, even if it is away.
func TestABrokerIsDrained(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := newWorld("a", "b", "c", "d")
		for i := range 80 {
			w.topic(fmt.Sprintf("t%d", i), 1, coordination.TopicSpec{Replicas: 3})
		}
		w.settle(t)
		w.drains["a"] = coordination.DrainLeadership
		p := Decide(w.facts())
		w.check(t, p)
		w.carryOut(p)
		if w.leaders()["a"] != 0 || p.Writes[0].Reason != LeaderMoved || spread(w.counts()) != 0 {
			t.Fatalf("it leads %d of %v after %d writes", w.leaders()["a"], w.counts(), len(p.Writes))
		}
		if w.settle(t); w.counts()["a"] != 60 || w.leaders()["a"] != 0 {
			t.Fatalf("afterwards %v", w.counts())
		}
		delete(w.drains, "a")
		if w.settle(t); spread(w.leaders()) != 0 {
			t.Fatalf("the leaderships came back as %v", w.leaders())
		}

		w.drains["a"] = coordination.DrainAll
		if gone {
			w.stop("a", killed, nil)
		}
		w.settle(t)
		for _, shards := range w.shards {
			if slices.Contains(shards[0].Replicas, "a") || len(shards[0].InSync) != 3 {
				t.Fatalf("at last (away: %v): %+v", gone, *shards[0])
			}
		}

		// Another broker cannot be drained, since no broker can take its replicas. Topics without a
		// fixed number of replicas do not block the drain.
		free := w.topic("free", 1, coordination.TopicSpec{})
		w.settle(t)
		w.drains["b"] = coordination.DrainAll
		_, last := w.settle(t)
		blocked := 0
		for _, wait := range last.Waits {
			if wait.Reason == DrainBlocked {
				blocked++
			}
		}
		if blocked != 80 || w.leaders()["b"] != 0 || w.counts()["b"] != 80 || len(w.shards[free.ID][0].Replicas) != 2 {
			t.Errorf("%d wait; %v, leaders %v, %+v", blocked, w.counts(), w.leaders(), *w.shards[free.ID][0])
		}
	}
}

// TestNewBrokersGetTheirShare: new brokers get their share, a few replicas at a time, and
// leaderships follow, even fewer at a time.
func TestNewBrokersGetTheirShare(t *testing.T) {
	w := newWorld("a", "b", "c")
	for i := range 50 {
		w.topic(fmt.Sprintf("t%d", i), 1, coordination.TopicSpec{Replicas: 3})
	}
	w.settle(t)
	w.start("d", "")
	w.start("e", "")
	most := 0
	for range 1000 {
		p := Decide(w.facts())
		if w.check(t, p); len(p.Writes) == 0 {
			break
		}
		w.carryOut(p)
		moving := 0
		for _, shards := range w.shards {
			moving += order(len(shards[0].Adding)+len(shards[0].Removing) > 0)
		}
		most = max(most, moving)
		w.workAll(true, nil)
	}
	if most == 0 || most > movesUnderWay {
		t.Errorf("%d shards were on their way at a time", most)
	}
	if spread(w.counts()) != 0 || spread(w.leaders()) != 0 {
		t.Errorf("at last %v, leaders %v", w.counts(), w.leaders())
	}
}

// TestReplicasMoveWithinTheirZone: one of two zones has more brokers: they share what the single
// broker of the other zone has alone.
func TestReplicasMoveWithinTheirZone(t *testing.T) {
	w := newWorld()
	w.start("a", "y")
	w.start("b", "z")
	for i := range 20 {
		w.topic(fmt.Sprintf("t%d", i), 1, coordination.TopicSpec{Replicas: 2})
	}
	w.settle(t)
	w.start("c", "z")
	w.settle(t)
	if counts := w.counts(); counts["a"] != 20 || counts["b"] != 10 || counts["c"] != 10 {
		t.Errorf("they have %v", counts)
	}
	if leads := w.leaders(); spread(leads) > 1 {
		t.Errorf("they lead %v", leads)
	}
}

// TestReplicasComeAndGo: a Topic asks for more replicas than there are brokers: it is served when
// enough brokers are present for the in-sync minimum, and gets the other replicas when more brokers
// come.
func TestReplicasComeAndGo(t *testing.T) {
	w := newWorld("a")
	three, auto := w.topic("three", 1, coordination.TopicSpec{Replicas: 3}), w.topic("auto", 1, coordination.TopicSpec{})
	_, last := w.settle(t)
	if len(last.Waits) != 1 || last.Waits[0].Reason != NotEnoughBrokers || last.Waits[0].Topic != three || len(w.shards[auto.ID][0].Replicas) != 1 {
		t.Fatalf("with one broker: %+v", last.Waits)
	}
	w.start("b", "")
	if w.settle(t); len(w.shards[three.ID][0].Replicas) != 2 || len(w.shards[auto.ID][0].Replicas) != 2 {
		t.Fatalf("with two: %+v", *w.shards[three.ID][0])
	}
	w.start("c", "")
	if w.settle(t); len(w.shards[three.ID][0].InSync) != 3 || len(w.shards[auto.ID][0].InSync) != 3 {
		t.Fatalf("with three: %+v", *w.shards[three.ID][0])
	}
	set := func(replicas int) {
		changed := *w.topics["three"]
		changed.Spec.Replicas = replicas
		w.topics["three"] = &changed
	}
	for _, id := range []string{"d", "e"} {
		w.start(id, "")
	}
	set(5)
	if w.settle(t); len(w.shards[three.ID][0].InSync) != 5 {
		t.Fatalf("with five: %+v", *w.shards[three.ID][0])
	}
	leader := w.shards[three.ID][0].Leader
	set(1)
	if w.settle(t); len(w.shards[three.ID][0].Replicas) != 1 || w.shards[three.ID][0].Leader != leader {
		t.Fatalf("with one: %+v", *w.shards[three.ID][0])
	}
	// A broker that is away keeps its replicas, and none is replaced.
	w.stop("e", killed, nil)
	w.settle(t)
	if shard := w.shards[auto.ID][0]; len(shard.Replicas) != 3 {
		t.Errorf("%+v", *shard)
	}
}

// TestAMoveWhoseTargetDies: a broker dies while it catches up: another one takes its place. If
// there is none, the replica to be removed stays.
func TestAMoveWhoseTargetDies(t *testing.T) {
	w := newWorld("a", "b", "c")
	topic := w.topic("orders", 1, coordination.TopicSpec{Replicas: 3})
	w.settle(t)
	w.start("d", "")
	w.drains["a"] = coordination.DrainAll
	shard := func() *coordination.Shard { return w.shards[topic.ID][0] }
	for len(shard().Adding) == 0 {
		only(t, w)
	}
	w.stop("d", killed, nil)
	w.start("e", "")
	if write := only(t, w); !slices.Equal(write.Shard.Adding, []string{"e"}) || !slices.Equal(write.Shard.Removing, []string{"a"}) || len(write.Shard.Replicas) != 4 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
	w.stop("e", killed, nil)
	delete(w.drains, "a")
	if write := only(t, w); len(write.Shard.Adding)+len(write.Shard.Removing) != 0 || len(write.Shard.Replicas) != 3 {
		t.Fatalf("%s: %+v", write.Reason, write.Shard)
	}
}
