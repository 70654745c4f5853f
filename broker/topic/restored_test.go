package topic

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// telling notes what a broker reports.
type telling struct {
	mu         sync.Mutex
	generation int64
	suspects   []coordination.Suspect
}

func (r *telling) report(_ context.Context, generation int64, suspects []coordination.Suspect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation, r.suspects = generation, suspects
	return nil
}

// said returns what was reported of a Topic in a generation; false: nothing that is final.
func (r *telling) said(generation int64, topicID string) (coordination.Suspect, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.suspects {
		if r.generation == generation && s.Topic == topicID && !s.Opening {
			return s, true
		}
	}
	return coordination.Suspect{}, false
}

// restore gives etcd the shards of a backup, in the next generation: this broker has registered
// again.
func (n *site) restore(backup map[string]*coordination.Shard) {
	n.generation++
	n.life++
	n.brokers[0].Incarnation = n.life
	n.shards = backup
	n.tell()
}

func backupOf(shards map[string]*coordination.Shard) map[string]*coordination.Shard {
	backup := map[string]*coordination.Shard{}
	for key, s := range shards {
		copied := *s
		backup[key] = &copied
	}
	return backup
}

// standsStill waits until the broker reports its copy of one record, which is where it was.
func (n *site) standsStill(told *telling) {
	n.t.Helper()
	n.eventually("it says how far its copy goes", func() bool {
		said, ok := told.said(1, "id-orders")
		return ok && said.End == 2 && said.Whole
	})
	if got := n.stands(); !slices.Equal(got, []string{"id-orders-0", "id-orders-0.state"}) {
		n.t.Errorf("there are %q", got)
	}
}

// TestARestoredEtcdIsNotBelieved: after a restore a broker leads nothing by the shards of the
// backup. It reports how far its copies go, and leads when it is elected in the new generation. The
// log of a Topic that the backup lacks is set aside and not deleted.
func TestARestoredEtcdIsNotBelieved(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	backup := backupOf(n.shards)
	n.place("orders", self) // epoch 2
	n.topic("later", nil)
	n.place("later", self)
	n.tell()
	n.open("later")
	n.eventually("it leads epoch 2", func() bool {
		s := n.service.Topic("orders").Shard()
		return s != nil && s.Epoch() == 2
	})
	n.expect(n.ask("orders.a", "two"), "orders@2")
	n.expect(n.ask("later.a", "kept"), "later@1")

	delete(n.topics, "later")
	n.restore(backup)
	var said coordination.Suspect
	n.eventually("it says how far its copy goes", func() (ok bool) {
		said, ok = told.said(1, "id-orders")
		return ok
	})
	want := coordination.Suspect{Topic: "id-orders", Epoch: 2, End: 3, State: 1, Whole: true, Known: 2}
	if said != want {
		t.Errorf("it reports %+v, want %+v", said, want)
	}
	if p := n.service.Topic("orders"); p.Shard() != nil || p.WhyNot() == nil || n.service.Suspects() != 0 {
		t.Errorf("it leads %v (%v), and doubts %d copies", p.Shard(), p.WhyNot(), n.service.Suspects())
	}
	n.eventually("the other one is set aside", func() bool {
		aside, err := n.fs.List("data/set-aside")
		return err == nil && slices.Equal(aside, []string{"id-later-0.1", "id-later-0.state.1"})
	})
	if !n.said("etcd was restored from a backup that lacks this Topic; its log was set aside") {
		t.Error("nothing was said of what was set aside")
	}

	elected := *backup["id-orders"]
	elected.Epoch, elected.Generation, elected.Revision = 1000, 1, 1000
	elected.InSync = []coordination.Replica{{Broker: self, Incarnation: n.life}}
	n.shards["id-orders"] = &elected
	n.tell()
	n.open("orders")
	n.expect(n.ask("orders.a", "three"), "orders@3")
	n.eventually("it takes its report back", func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return len(told.suspects) == 0
	})
}

// TestARestoredEtcdHasATopicAgainWhoseLogWasSetAside: a Topic is unknown when its broker starts,
// which sets the log aside. Then etcd is restored, and has the Topic: the empty copy that the
// broker makes is one that lacks records.
func TestARestoredEtcdHasATopicAgainWhoseLogWasSetAside(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	backup, topic := backupOf(n.shards), n.topics["orders"]
	n.remove("orders")
	n.startAgain()
	n.tell()
	n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 })
	n.topics["orders"] = topic
	n.restore(backup)
	var said coordination.Suspect
	n.eventually("it says how far its copy goes", func() (ok bool) {
		said, ok = told.said(1, "id-orders")
		return ok
	})
	if said.Whole || said.End > 1 {
		t.Errorf("it reports %+v", said)
	}
}

// TestARestoredEtcdHasATopicAgainWhoseLogWasHalfDeleted: the same, of a Topic that was deleted, and
// the disk refuses a step of the deletion of its logs. If they were moved, the copy that is made
// anew lacks records. If they weren't, it is the former one.
func TestARestoredEtcdHasATopicAgainWhoseLogWasHalfDeleted(t *testing.T) {
	for refused, end := range map[string]uint64{"remove": 1, "rename": 2} {
		n, told := newSite(t), &telling{}
		n.report = told.report
		n.serve("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		backup, topic := backupOf(n.shards), n.topics["orders"]
		n.remove("orders")
		n.buried = map[string]bool{"id-orders": true}
		n.startAgain()
		fs := n.fs.(*crashfs.FS)
		fs.SetHook(func(op crashfs.Op) error {
			if op.Kind == refused && strings.Contains(op.Path, "id-orders-0") {
				return errors.New("not now")
			}
			return nil
		})
		n.tell()
		n.eventually("it was tried", func() bool { return n.count("a log of an unknown Topic could not be deleted or set aside") == 2 })
		fs.SetHook(nil)
		n.topics["orders"] = topic
		n.restore(backup)
		var said coordination.Suspect
		n.eventually("it says how far its copy goes", func() (ok bool) {
			said, ok = told.said(1, "id-orders")
			return ok
		})
		if said.Whole != (end > 1) || said.End != end {
			t.Errorf("without %s it reports %+v", refused, said)
		}
		n.stop()
	}
}

// TestACopyThatARestoredShardDoesNotNameIsReported: the backup was made before the replica was
// moved here. The copy is reported, and not deleted as an unused one. Once another broker leads, it
// is set aside.
func TestACopyThatARestoredShardDoesNotNameIsReported(t *testing.T) {
	for _, again := range []bool{false, true} { // the broker is restarted, too
		n, told := newSite(t), &telling{}
		n.report = told.report
		n.serve("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		elsewhere := *n.shards["id-orders"]
		elsewhere.Leader, elsewhere.Replicas, elsewhere.InSync = "broker-b", []string{"broker-b"}, []coordination.Replica{{Broker: "broker-b", Incarnation: 1}}
		if again {
			n.startAgain()
		}
		n.restore(map[string]*coordination.Shard{"id-orders": &elsewhere})
		n.standsStill(told)
		elected := elsewhere
		elected.Epoch, elected.Generation, elected.Revision = 1000, 1, 1000
		n.shards["id-orders"] = &elected
		n.tell()
		n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 && len(n.stands()) == 0 })
		n.stop()
	}
}

// TestACopyOfAShardThatIsYoungerThanTheBackup: the backup that etcd was restored from has the
// Topic, and is older than its shard. The copy stays where it is and is reported, also if the
// broker is restarted meanwhile, and the broker leads it when the controller says so.
func TestACopyOfAShardThatIsYoungerThanTheBackup(t *testing.T) {
	for _, again := range []bool{false, true} { // the broker is restarted, too
		n, told := newSite(t), &telling{}
		n.report = told.report
		n.serve("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		placed := *n.shards["id-orders"]
		if again {
			n.startAgain()
		}
		n.restore(nil)
		n.standsStill(told)
		elected, me := placed, n.service.State().Brokers[0].Replica()
		elected.Epoch, elected.Generation, elected.Revision, elected.InSync = 1000, 1, 1000, []coordination.Replica{me}
		n.shards = map[string]*coordination.Shard{"id-orders": &elected}
		n.tell()
		n.open("orders")
		n.expect(n.ask("orders.a", "two"), "orders@2")
		n.stop()
	}
}

// TestAMoveEndsWithItsGeneration: a replica is being moved away when etcd is restored. The broker
// sees no State of the time in which the copies were compared. The next one names other replicas,
// not by that plan, so the copy is set aside. In the same generation it would be the result of that
// plan.
func TestAMoveEndsWithItsGeneration(t *testing.T) {
	for _, restored := range []bool{false, true} {
		n := newSite(t)
		n.serve("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		moving := *n.shards["id-orders"]
		moving.Epoch, moving.Leader, moving.Removing, moving.Replicas = 2, "", []string{self}, []string{"broker-b", self}
		moving.InSync = []coordination.Replica{{Broker: "broker-b", Incarnation: 1}}
		n.shards["id-orders"] = &moving
		n.tell()
		elsewhere := moving
		elsewhere.Epoch, elsewhere.Removing, elsewhere.Replicas = 1000, nil, []string{"broker-b"}
		setAside := uint64(0)
		if restored {
			elsewhere.Generation, setAside = 1, 2
			n.generation++
		}
		n.shards["id-orders"] = &elsewhere
		n.tell()
		n.eventually("the copy is gone", func() bool { return len(n.stands()) == 0 })
		if got := n.service.Stats().SetAside; got != setAside {
			t.Errorf("restored is %v, and %d logs were set aside, want %d", restored, got, setAside)
		}
		n.stop()
	}
}

// TestAShardThatIsPlacedAfterARestore: a shard that is placed after a restore begins with a late
// epoch. It is new: its leader makes a log, vouches for it and leads. In a later epoch a log that
// isn't there is one that was lost.
func TestAShardThatIsPlacedAfterARestore(t *testing.T) {
	const first = 1 << 32
	for _, epoch := range []int64{first, first + 1} {
		n := newSite(t)
		n.generation = 1
		n.startAgain()
		n.topic("orders", nil)
		n.place("orders", self)
		s := n.shards["id-orders"]
		s.Generation, s.First, s.Epoch = 1, first, epoch
		n.tell()
		if epoch > first {
			n.eventually("its copy is in doubt", func() bool { return n.service.Suspects() == 1 })
			n.stop()
			continue
		}
		n.open("orders")
		n.expect(n.ask("orders.a", "one"), "orders@1")
		n.stop()
	}
}

// TestAnEvictedBrokerStopsLeadingWhenAGenerationBegins: the broker was evicted before the
// generation changed, so its incarnation does not change with it. It stops at once, and does not
// lead until it has registered again.
func TestAnEvictedBrokerStopsLeadingWhenAGenerationBegins(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	n.brokers = nil
	n.tell()
	if n.service.Topic("orders").Shard() == nil {
		t.Fatal("the end of its registration alone ended its leadership")
	}
	n.generation++
	n.tell()
	n.eventually("it says how far its copy goes", func() bool {
		said, ok := told.said(1, "id-orders")
		return ok && said.End == 2 && said.Whole
	})
	if s := n.service.Topic("orders").Shard(); s != nil {
		t.Errorf("it leads epoch %d of an earlier generation", s.Epoch())
	}
}

// TestAReportIsWrittenAnewForARegistration: a later registration has the first part of a long
// report only. So the broker writes its report anew after each registration, though nothing of it
// has changed.
func TestAReportIsWrittenAnewForARegistration(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	n.restore(backupOf(n.shards))
	n.standsStill(told)
	told.mu.Lock()
	told.suspects = nil
	told.mu.Unlock()
	n.life++
	n.brokers[0].Incarnation = n.life
	n.tell()
	n.standsStill(told)
}

// TestAPassOfTheFormerGenerationReportsNothing: a pass that began before etcd was restored may end
// afterwards, while the copy still leads or follows: it reports nothing, and withdraws no report.
// The next pass reports, when the copy has stopped.
func TestAPassOfTheFormerGenerationReportsNothing(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	backup := backupOf(n.shards)
	p := n.service.Topic("orders").shards[0]
	before := p.view.Load()
	reported := false
	n.service.changeReport(p, before, func() { reported = true })
	if !reported {
		t.Error("a pass has not reported, although etcd was not restored")
	}
	n.restore(backup)
	n.service.changeReport(p, before, func() { t.Error("a pass of the generation before has reported") })
	n.eventually("it says how far its copy goes", func() bool {
		said, ok := told.said(1, "id-orders")
		return ok && said.End == 2 && said.Whole
	})
}

// TestATopicIsBackBeforeItsLogIsDeleted: the log of a deleted Topic can't be deleted yet when a
// restored etcd has the Topic again. It is not deleted any more: the broker says how far it goes,
// though with a doubt, as a deletion was tried, and leads it when it is named.
func TestATopicIsBackBeforeItsLogIsDeleted(t *testing.T) {
	t.Parallel()
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	topic, backup := n.topics["orders"], backupOf(n.shards)
	fs := n.fs.(*crashfs.FS)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "rename" && strings.HasPrefix(op.Path, "data/shards/") {
			return errors.New("not now")
		}
		return nil
	})
	delete(n.topics, "orders")
	n.shards = map[string]*coordination.Shard{}
	n.tell()
	deletions := func() int { return n.count("doing=delete") }
	n.eventually("a deletion has failed", func() bool { return deletions() > 0 })

	n.topics["orders"] = topic
	n.restore(backup)
	said := func() (coordination.Suspect, bool) { return told.said(1, "id-orders") }
	n.eventually("it says how far its copy goes", func() bool {
		one, ok := said()
		return ok && one.End == 2 && one.Epoch == 1 && !one.Whole
	})
	fs.SetHook(nil)
	tried := deletions()
	n.service.retry(time.Now().Add(2 * lastRetry))
	n.eventually("what is to be tried again was tried", func() bool {
		n.service.openMu.Lock()
		defer n.service.openMu.Unlock()
		return len(n.service.retries) == 0 || deletions() > tried
	})
	if one, ok := said(); !ok {
		t.Errorf("it has taken its report back; without it nobody is elected")
	} else if one.End != 2 {
		t.Errorf("it reports %+v", one)
	}
	elected := *backup["id-orders"]
	elected.Epoch, elected.Generation, elected.Revision = 1000, 1, 1000
	elected.InSync = []coordination.Replica{{Broker: self, Incarnation: n.life}}
	elected.Doubt = coordination.Doubt{Epoch: 1000, Leader: self, Reason: "LeastLoss"}
	n.shards["id-orders"] = &elected
	n.tell()
	n.open("orders")
	n.expect(n.ask("orders.a", "two"), "orders@2")
	if more := deletions() - tried; more > 0 {
		t.Errorf("its log was to be deleted %d times more", more)
	}
}

// TestACopyCreatedAfterARestoreIsNotWhole: the Topic was deleted with its log after the backup, and
// the broker has not been restarted since. The copy that it creates is no evidence that the shard
// is empty: another broker, which is away, may have all records.
func TestACopyCreatedAfterARestoreIsNotWhole(t *testing.T) {
	n, told := newSite(t), &telling{}
	n.report = told.report
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	topic, backup := n.topics["orders"], backupOf(n.shards)
	delete(n.topics, "orders")
	n.shards = map[string]*coordination.Shard{}
	n.tell()
	n.eventually("the log is deleted, and the Topic forgotten", func() bool {
		n.service.mu.RLock()
		defer n.service.mu.RUnlock()
		return len(n.stands()) == 0 && len(n.service.removed) == 0
	})
	n.topics["orders"] = topic
	n.restore(backup)
	n.eventually("it says how far its copy goes", func() bool {
		one, ok := told.said(1, "id-orders")
		return ok && one.Epoch == 0 && !one.Whole
	})
}
