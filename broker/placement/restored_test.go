package placement

import (
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// restored is a shard of the generation before, with replicas a, b and c, and what brokers say of
// their copies.
type restored struct {
	topic   *coordination.Topic
	shard   coordination.Shard
	brokers []string
	said    map[string]coordination.Suspect
	silent  string // a broker that has not reported its copies yet

	generation, stride int64
	former             []string // brokers that are still registered in an earlier generation
	settling           bool
	raised             int64
}

const generation = 3

func newRestored() *restored {
	topic := &coordination.Topic{Name: "orders", ID: "orders-1", Spec: coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1, Replicas: 3, MinInSync: 2}}
	r := &restored{topic: topic, brokers: []string{"a", "b", "c"}, said: map[string]coordination.Suspect{}, generation: generation}
	r.shard = coordination.Shard{Topic: topic.ID, Epoch: 4, Leader: "a", Replicas: []string{"a", "b", "c"}, Generation: generation - 1, Revision: 9}
	for _, id := range r.brokers {
		r.shard.InSync = append(r.shard.InSync, coordination.Replica{Broker: id, Incarnation: 10})
		r.say(id, coordination.Suspect{Epoch: 4, End: 10, StateEpoch: 4, State: 3, Known: 4, Whole: true})
	}
	return r
}

func (r *restored) say(id string, said coordination.Suspect) {
	said.Topic = r.topic.ID
	r.said[id] = said
}

func (r *restored) plan() Plan {
	facts := Facts{
		Topics: []*coordination.Topic{r.topic}, MaxShards: MaxShards, Generation: r.generation, Stride: r.stride,
		Shards: func(string) []*coordination.Shard {
			if r.shard.Topic == "" {
				return nil
			}
			return []*coordination.Shard{&r.shard}
		},
		Reported: func(id, _ string, _ int) (coordination.Suspect, bool) { s, ok := r.said[id]; return s, ok },
		ReportedIn: func(id, _ string) int64 {
			if id == r.silent {
				return r.generation - 1
			}
			return r.generation
		},
	}
	for i, id := range r.brokers {
		facts.Brokers = append(facts.Brokers, coordination.Broker{ID: id, Incarnation: int64(100 + i), Features: coordination.Features()})
	}
	for _, id := range r.former {
		facts.Former = append(facts.Former, coordination.Broker{ID: id, Incarnation: 7})
	}
	facts.Settling, facts.Raised = r.settling, r.raised
	return Decide(facts)
}

func (r *restored) elected(t *testing.T) coordination.Shard {
	t.Helper()
	p := r.plan()
	if len(p.Writes) != 1 || len(p.Waits) != 0 {
		t.Fatalf("writes %+v, waits %+v", p.Writes, p.Waits)
	}
	s := p.Writes[0].Shard
	if s.Generation != r.generation || s.Epoch <= r.shard.Epoch {
		t.Errorf("%+v", s)
	}
	return s
}

func (r *restored) waits(t *testing.T, reason WaitReason) {
	t.Helper()
	if p := r.plan(); len(p.Writes) != 0 || len(p.Waits) != 1 || p.Waits[0].Reason != reason {
		t.Fatalf("writes %+v, waits %+v; want it to wait with %s", p.Writes, p.Waits, reason)
	}
}

func members(s coordination.Shard) (ids []string) {
	for _, m := range s.InSync {
		ids = append(ids, m.Broker)
	}
	slices.Sort(ids)
	return ids
}

// TestAShardThatIsYoungerThanTheBackup: the backup is older than the shard, so etcd lacks its key.
// The copies that brokers have are compared before one leads. A shard of which nobody has a copy is
// placed anew.
func TestAShardThatIsYoungerThanTheBackup(t *testing.T) {
	r := newRestored()
	r.shard = coordination.Shard{}
	delete(r.said, "a")
	r.say("c", coordination.Suspect{Epoch: 5, End: 12, StateEpoch: 4, State: 3, Known: 5, Whole: true})
	r.silent = "a"
	r.waits(t, CopiesOpening)
	r.silent = ""
	s := r.elected(t)
	if s.Topic != r.topic.ID || s.Leader != "c" || !slices.Equal(members(s), []string{"c"}) || !slices.Equal(s.Replicas, []string{"b", "c"}) || s.Epoch < 5+epochLeap || s.Revision != 0 {
		t.Errorf("it becomes %+v, and c goes furthest", s)
	}
	r.say("b", coordination.Suspect{Opening: true})
	r.waits(t, CopiesOpening)
	r.say("b", coordination.Suspect{Closed: true})
	r.waits(t, EtcdRestored)
	clear(r.said)
	if s := r.elected(t); s.Epoch <= generation*epochLeap || !s.New() || len(s.InSync) != 3 {
		t.Errorf("nobody has a copy, and it becomes %+v", s)
	}
}

// TestATopicThatIsYoungerThanTheGeneration: a Topic that was made after the generation began has no
// copies. It waits for nobody.
func TestATopicThatIsYoungerThanTheGeneration(t *testing.T) {
	r := newRestored()
	r.shard, r.raised = coordination.Shard{}, 40
	r.silent, r.settling, r.former = "a", true, []string{"d"}
	clear(r.said)
	r.topic.Made = 40
	r.waits(t, CopiesOpening)
	r.topic.Made = 41
	if s := r.elected(t); !s.New() || s.Epoch <= generation*epochLeap || len(s.InSync) != 3 {
		t.Errorf("%+v", s)
	}
}

// TestEpochsOfTwoGenerationsDiffer: etcd is restored several times, from older and older backups.
// No two leaders of a shard get the same epoch, not even if the shard is placed anew, or by an
// unclean election.
func TestEpochsOfTwoGenerationsDiffer(t *testing.T) {
	epochs := map[int64]int64{1: 0} // the generation in which it was granted
	for g := int64(1); g <= generation; g++ {
		for _, stride := range []int64{1, maxStride} {
			r := newRestored()
			r.generation, r.stride, r.shard.Generation = g, stride, 0
			elected := r.elected(t)
			r.brokers, r.topic.Spec.UncleanElection = []string{"b"}, true
			r.say("b", coordination.Suspect{})
			unclean := r.elected(t)
			r = newRestored()
			r.generation, r.stride, r.shard = g, stride, coordination.Shard{}
			clear(r.said)
			placed := r.elected(t)
			if !placed.New() || elected.New() || unclean.New() {
				t.Errorf("generation %d: new are %+v, and not %+v and %+v", g, placed, elected, unclean)
			}
			for _, s := range []coordination.Shard{elected, unclean, placed} {
				if before, granted := epochs[s.Epoch]; granted && before != g {
					t.Errorf("epoch %d is granted in generations %d and %d", s.Epoch, before, g)
				}
				epochs[s.Epoch] = g
			}
		}
	}
}

// TestARestoredInSyncSetIsNotBelieved: the set of the backup has all three and is not believed: c
// has records of a later epoch, which it and b have confirmed since. All report how far they go,
// and c leads.
func TestARestoredInSyncSetIsNotBelieved(t *testing.T) {
	r := newRestored()
	r.say("b", coordination.Suspect{Epoch: 7, End: 20, Known: 7, Whole: true})
	r.say("c", coordination.Suspect{Epoch: 7, End: 21, Known: 900, Whole: true})
	s := r.elected(t)
	if s.Leader != "c" || !slices.Equal(members(s), []string{"c"}) || s.InSync[0].Incarnation != 102 || s.Epoch <= 900 || s.Doubt.Epoch != 0 {
		t.Errorf("%+v", s)
	}
	// Equal copies are in sync at once. One in doubt is not.
	r.say("b", coordination.Suspect{Epoch: 7, End: 21, Known: 7, Whole: true})
	r.say("a", coordination.Suspect{Epoch: 7, End: 21, Known: 7})
	if s := r.elected(t); !slices.Equal(members(s), []string{"b", "c"}) {
		t.Errorf("%+v", s)
	}
	// What was acknowledged of Subscriptions counts as well.
	r.say("a", coordination.Suspect{Epoch: 7, End: 21, StateEpoch: 7, State: 4, Known: 7, Whole: true})
	r.say("b", coordination.Suspect{Epoch: 7, End: 21, StateEpoch: 5, State: 9, Known: 7, Whole: true})
	if s := r.elected(t); s.Leader != "a" {
		t.Errorf("%+v", s)
	}
}

// TestARestoredShardWaitsForAllReplicas: the shard waits for all replicas, unless the Topic allows
// unclean elections.
func TestARestoredShardWaitsForAllReplicas(t *testing.T) {
	r := newRestored()
	r.silent = "b"
	r.waits(t, CopiesOpening)
	r.silent = ""
	r.say("b", coordination.Suspect{Opening: true})
	r.waits(t, CopiesOpening)
	delete(r.said, "b")
	r.waits(t, CopiesOpening)
	r.brokers = []string{"a", "c"}
	r.waits(t, EtcdRestored)
	r.topic.Spec.UncleanElection = true
	if s := r.elected(t); s.Leader != "a" || s.Doubt.Epoch != s.Epoch || s.Epoch < epochLeap {
		t.Errorf("%+v", s)
	}
}

// TestARestoredShardWaitsForBrokersThatMayBeAlive: broker d has the copy that goes furthest, and
// the restored etcd does not say so. It is alive, but registered in the former generation still, or
// in none. It is not overlooked.
func TestARestoredShardWaitsForBrokersThatMayBeAlive(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(r *restored)
	}{
		{"as the backup has it", func(*restored) {}},
		{"younger than the backup", func(r *restored) { r.shard = coordination.Shard{} }},
		{"not yet on any broker that is there", func(r *restored) { r.shard = coordination.Shard{}; clear(r.said) }},
		{"with unclean elections", func(r *restored) { r.topic.Spec.UncleanElection = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRestored()
			c.alter(r)
			r.former, r.settling = []string{"d"}, true
			r.waits(t, CopiesOpening)
			r.settling = false
			r.waits(t, CopiesOpening)
			r.former, r.settling = nil, true
			r.waits(t, CopiesOpening)
			r.settling = false
			r.brokers = append(r.brokers, "d")
			r.say("d", coordination.Suspect{Epoch: 5, End: 30, Known: 5, Whole: true})
			if s := r.elected(t); s.Leader != "d" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestARestoredShardIsFoundWhereItWasMoved: since the backup the replicas were moved to d, and the
// copies of the others were deleted.
func TestARestoredShardIsFoundWhereItWasMoved(t *testing.T) {
	r := newRestored()
	for _, id := range r.brokers {
		r.say(id, coordination.Suspect{End: 1, Known: 4}) // made anew
	}
	r.waits(t, EtcdRestored)
	r.brokers = append(r.brokers, "d")
	r.silent = "d"
	r.waits(t, CopiesOpening)
	r.silent = ""
	r.say("d", coordination.Suspect{Epoch: 9, End: 30, Known: 9, Whole: true})
	if s := r.elected(t); s.Leader != "d" || !slices.Equal(s.Replicas, []string{"a", "b", "c", "d"}) || !slices.Equal(members(s), []string{"d"}) || s.Doubt.Epoch != 0 {
		t.Errorf("%+v", s)
	}
	// A copy that is on its way out is no better than one that stays.
	r = newRestored()
	r.brokers = append(r.brokers, "d")
	r.say("d", r.said["a"])
	if s := r.elected(t); s.Leader != "a" || !slices.Equal(members(s), []string{"a", "b", "c"}) {
		t.Errorf("%+v", s)
	}
}

// TestARestoredShardIsLedByItsOnlyCopyInDoubt: the only copy is in doubt. It leads, and the shard
// records the doubt, without which the broker would not lead.
func TestARestoredShardIsLedByItsOnlyCopyInDoubt(t *testing.T) {
	r := newRestored()
	for _, id := range r.brokers {
		said := r.said[id]
		said.Whole = false
		r.say(id, said)
	}
	if s := r.elected(t); s.Doubt.Epoch != s.Epoch || s.Doubt.Leader != s.Leader {
		t.Errorf("%+v", s)
	}
}

// TestARestoredShardKeepsCursorsOfTheLastEpoch: the leader of epoch 4 died with records that nobody
// else has. The one of epoch 6 took no record, but acknowledged cursors with its follower. The
// former leader is back after the restore: its data log goes further, and it lacks what was
// acknowledged in epoch 6.
func TestARestoredShardKeepsCursorsOfTheLastEpoch(t *testing.T) {
	r := newRestored()
	r.say("a", coordination.Suspect{Epoch: 4, End: 15, StateEpoch: 4, State: 3, Known: 4, Whole: true})
	for _, id := range []string{"b", "c"} {
		r.say(id, coordination.Suspect{Epoch: 4, End: 10, StateEpoch: 6, State: 9, Known: 6, Whole: true})
	}
	if s := r.elected(t); s.Leader == "a" || len(s.InSync) != 2 {
		t.Errorf("%s leads with %v: cursors that b and c confirmed in epoch 6 are lost", s.Leader, s.InSync)
	}
}
