package topic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// stands says which logs are on the disk.
func (n *site) stands() []string {
	n.t.Helper()
	names, err := n.disk.Names()
	if err != nil {
		n.t.Fatal(err)
	}
	return names
}

func (n *site) reason(name string) publish.NotServedReason {
	var why *publish.NotServedError
	if errors.As(n.service.Topic(name).WhyNot(), &why) {
		return why.Reason
	}
	return ""
}

// mark and remove are what coordination shows of a deletion.
func (n *site) mark(name string) {
	marked := *n.topics[name]
	marked.Deleting = true
	n.topics[name] = &marked
}

func (n *site) remove(name string) {
	delete(n.shards, n.topics[name].ID)
	delete(n.topics, name)
}

func TestEachTopicIsOfferedWithItsLeader(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	changed := n.service.Changed()
	n.topic("here", nil)
	n.topic("there", nil)
	n.topic("away", nil)
	n.topic("nowhere", nil)
	n.topic("wide", func(s *coordination.TopicSpec) { s.Shards = placement.MaxShards + 1 })
	n.topic("copied", func(s *coordination.TopicSpec) { s.Replicas = 3 })
	n.place("here", self)
	n.place("there", "broker-b")
	n.place("away", "broker-c")
	n.tell()
	n.open("here")
	<-changed
	for name, want := range map[string]string{
		"here":    "here@1",
		"there":   "no: topic there: broker main-1 leads it, and broker main-0 has no link there now; try again",
		"away":    "no: topic away: its messages are on broker broker-c, which is away; it is served again when that broker is back",
		"nowhere": "no: topic nowhere: no broker was chosen for it yet; try again",
		"wide":    "no: topic wide: it asks for 65 shards, and brokers serve Topics of at most 64 (make it anew with shards: 64 or fewer)",
		"copied":  "no: topic copied: no broker was chosen for it yet; try again",
	} {
		if got := n.ask(name+".a", "x"); got != want {
			t.Errorf("%s: answered %q", name, got)
		}
	}
	// One that was a member is known by its name when it is away.
	members := n.brokers
	n.brokers = members[:1]
	n.tell()
	if got := n.ask("there.a", "x"); !strings.Contains(got, "broker main-1, which is away") {
		t.Errorf("of a broker that went away: %q", got)
	}
	n.brokers = members
	n.tell()
	if got := n.stands(); !slices.Equal(got, []string{"id-here-0", "id-here-0.state"}) {
		t.Errorf("there are logs %q", got)
	}
	if all := n.service.Topics(); len(all) != 6 || all[0].Name() != "away" || n.service.ByID("id-there").Leader() != "broker-b" || n.service.Stats().Open != 1 {
		t.Errorf("topics: %v", all)
	}
	// Its only replica is elsewhere all of a sudden: what is on the disk is set aside, and nothing
	// is kept here any more.
	shard := n.service.Topic("here").Shard()
	n.place("here", "broker-b")
	n.tell()
	n.eventually("it is closed", func() bool { return n.service.Topic("here").Shard() == nil })
	if got := n.ask("here.a", "x"); !strings.Contains(got, "broker main-1 leads it") {
		t.Errorf("answered %q", got)
	}
	n.eventually("it is set aside", func() bool { return len(n.stands()) == 0 && n.service.Stats().SetAside == 2 })
	if _, err := shard.Data().Append(&log.Append{Epoch: 9, Records: []log.Record{{Data: []byte("x")}}}); err == nil {
		t.Error("its log is still open")
	}
	// And back: it had messages in an earlier epoch.
	n.doubt = true
	n.place("here", self)
	n.tell()
	n.open("here")
	n.expect(n.ask("here.a", "x"), "here@1")
	// Other subjects.
	n.topic("here", func(s *coordination.TopicSpec) { s.Subjects = []string{"elsewhere.>"} })
	n.tell()
	n.expect(n.ask("elsewhere.a", "x"), "here@2")
	n.hub.publish(message("here.a", "r", "nobody takes it"))
	n.stop()
	if len(n.hub.answers["r"]) > 0 {
		t.Error("the old subject is still taken")
	}
}

// TestAShardIsLedOnlyByTheProcessThatItNames: a shard is led only by the process whose incarnation
// it names. That process leads on while it registers again.
func TestAShardIsLedOnlyByTheProcessThatItNames(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	n.startAgain()
	n.tell() // the shard still names the life before
	if got := n.ask("orders.a", "two"); got != "no: topic orders: broker main-0 has its messages and waits to be named its leader again; try again" {
		t.Errorf("answered %q", got)
	}
	registered := n.brokers
	n.brokers = n.brokers[1:] // not registered yet
	n.place("orders", self)
	n.tell()
	if n.reason("orders") != publish.NotConfirmed {
		t.Errorf("why not: %v", n.service.Topic("orders").WhyNot())
	}
	n.brokers = registered
	n.service.Follow(coordination.NewState(99, n.brokers, []*coordination.Topic{n.topics["orders"]}, []*coordination.Shard{n.shards["id-orders"]}, nil), coordination.Changes{Brokers: true})
	n.open("orders")
	n.expect(n.ask("orders.a", "two"), "orders@2")
	// The lease is lost: data flow on. Then it is registered anew, and named in another epoch.
	n.brokers = n.brokers[1:]
	n.service.Follow(coordination.NewState(100, n.brokers, []*coordination.Topic{n.topics["orders"]}, []*coordination.Shard{n.shards["id-orders"]}, nil), coordination.Changes{Brokers: true})
	n.expect(n.ask("orders.a", "three"), "orders@3")
	n.life++
	n.brokers = append(n.brokers, coordination.Broker{ID: self, Incarnation: n.life})
	before := n.service.Topic("orders").Shard()
	n.place("orders", self)
	n.tell()
	n.eventually("the epoch is taken over", func() bool { return before.Epoch() == 3 })
	n.expect(n.ask("orders.a", "four"), "orders@4")
	if n.service.Topic("orders").Shard() != before {
		t.Error("the log was opened again for an epoch")
	}
	if meta := before.Data().Meta(); meta.Epoch != 1 {
		t.Errorf("an election alone wrote the manifest, in epoch %d", meta.Epoch)
	}
	if got := before.Data().Epochs(); len(got) != 3 || got[2].Start != 4 {
		t.Errorf("epochs %v", got)
	}
}

func TestTheSpecIsStoredBesideTheLog(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	data := n.service.Topic("orders").Shard().Data()
	if spec := string(data.Meta().Spec); !strings.Contains(spec, `"name":"orders"`) || !strings.Contains(spec, `"id":"id-orders"`) || !strings.Contains(spec, `"subjects":["orders.\u003e"]`) {
		t.Errorf("kept %s", spec)
	}
	n.topic("orders", func(s *coordination.TopicSpec) { s.MaxMessage = 123 })
	n.tell()
	n.eventually("the change is kept", func() bool { return strings.Contains(string(data.Meta().Spec), `"maxMessage":123`) })
}

// TestDeletingATopicDeletesItsLogs: a deletion deletes the logs, whether the broker saw its
// beginning or only its end.
func TestDeletingATopicDeletesItsLogs(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills", "kept")
	for _, name := range []string{"orders", "bills", "kept"} {
		n.ask(name+".a", "one")
	}
	n.mark("orders")
	n.tell()
	if n.reason("orders") != publish.BeingDeleted {
		t.Errorf("why not: %v", n.service.Topic("orders").WhyNot())
	}
	n.eventually("its logs are gone", func() bool { return len(n.stands()) == 4 })
	n.remove("orders")
	n.remove("bills")
	n.tell()
	n.eventually("those of the other are gone", func() bool { return len(n.stands()) == 2 })
	if n.service.Topic("orders") != nil || n.service.ByID("id-bills") != nil || len(n.hub.offers) != 1 {
		t.Error("they are still known")
	}
	if aside, err := n.fs.List("data/set-aside"); err != nil || len(aside) > 0 {
		t.Errorf("set aside instead: %q, %v", aside, err)
	}
	// One of the same name is another Topic.
	again := n.topic("orders", nil)
	again.ID = "id-orders-2"
	n.place("orders", self)
	n.tell()
	n.open("orders")
	n.expect(n.ask("orders.a", "anew"), "orders@1")
	n.expect(n.ask("kept.a", "two"), "kept@2")
	// In one step, too.
	n.remove("orders")
	again = n.topic("orders", nil)
	again.ID = "id-orders-3"
	n.place("orders", self)
	n.tell()
	n.open("orders")
	n.expect(n.ask("orders.a", "anew"), "orders@1")
	n.eventually("the old one is gone", func() bool {
		return slices.Equal(n.stands(), []string{"id-kept-0", "id-kept-0.state", "id-orders-3-0", "id-orders-3-0.state"})
	})
}

// TestLogsOfUnknownTopicsAreSetAside: logs of Topics that etcd does not know are not deleted.
func TestLogsOfUnknownTopicsAreSetAside(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills")
	n.ask("orders.a", "one")
	n.stop()
	n.remove("orders") // while this broker was away
	n.startAgain()
	n.place("bills", self)
	n.tell()
	n.open("bills")
	n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 })
	if got := n.stands(); !slices.Equal(got, []string{"id-bills-0", "id-bills-0.state"}) {
		t.Errorf("there are %q", got)
	}
	if aside, err := n.fs.List("data/set-aside"); err != nil || !slices.Equal(aside, []string{"id-orders-0.1", "id-orders-0.state.1"}) {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	n.stop()
	if !strings.Contains(n.logged.String(), "a log of a Topic that does not exist was set aside") {
		t.Errorf("nothing was said: %s", n.logged)
	}
	if files, err := n.fs.List("data/set-aside/id-orders-0.1"); err != nil || len(files) != 4 || !slices.Contains(files, "set-aside.json") {
		t.Errorf("it holds %q, %v", files, err)
	}
}

// TestLogsOfTopicsThatWereDeletedMeanwhileAreDeleted: Topics are deleted while their broker is
// away. It deletes its logs of those that have a tombstone, and sets the others aside.
func TestLogsOfTopicsThatWereDeletedMeanwhileAreDeleted(t *testing.T) {
	n := newSite(t)
	n.serve("orders", "bills", "offers")
	for _, name := range []string{"orders", "bills", "offers"} {
		n.expect(n.ask(name+".a", "one"), name+"@1")
	}
	n.stop()
	n.remove("orders")
	n.remove("offers")
	n.buried = map[string]bool{"id-orders": true}
	n.startAgain()
	n.place("bills", self)
	n.tell()
	n.open("bills")
	n.eventually("it has no log of them", func() bool { return slices.Equal(n.stands(), []string{"id-bills-0", "id-bills-0.state"}) })
	n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 })
	if aside, err := n.fs.List("data/set-aside"); err != nil || !slices.Equal(aside, []string{"id-offers-0.1", "id-offers-0.state.1"}) {
		t.Errorf("set aside: %q, %v", aside, err)
	}
	if n.count("a log of a Topic that was deleted while this broker was away is deleted") != 2 {
		t.Error("nothing was said of what was deleted")
	}
}

// TestATombstoneOfATopicThatExists: a tombstone has no effect on a Topic that exists.
func TestATombstoneOfATopicThatExists(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.a", "one"), "orders@1")
	n.buried = map[string]bool{"id-orders": true}
	n.startAgain()
	n.place("orders", "broker-b")
	n.tell()
	n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 })
	if got := n.stands(); len(got) > 0 {
		t.Errorf("there are %q", got)
	}
}

// TestLogsOfTopicsKeptElsewhereAreSetAside: a log of a shard whose replicas are on other brokers is
// set aside.
func TestLogsOfTopicsKeptElsewhereAreSetAside(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.a", "one")
	n.startAgain()
	n.place("orders", "broker-b")
	n.topic("bills", nil)
	n.place("bills", self)
	n.tell()
	n.open("bills")
	n.eventually("it is set aside", func() bool { return n.service.Stats().SetAside == 2 })
	if got := n.stands(); !slices.Equal(got, []string{"id-bills-0", "id-bills-0.state"}) {
		t.Errorf("there are %q", got)
	}
}

// TestADeletionIsTriedAgain: a deletion that can't be finished is tried again.
func TestADeletionIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.a", "one")
	fs := n.fs.(*crashfs.FS)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "remove" {
			return errors.New("not now")
		}
		return nil
	})
	n.remove("orders")
	n.tell()
	n.eventually("it is tried", func() bool { return len(n.stands()) == 0 })
	fs.SetHook(nil)
	n.eventually("nothing is left", func() bool {
		left, err := fs.List("data/deleted")
		return err == nil && len(left) == 0
	})
}

// TestClosingAnswersEverybody: Close ends everything under way, and answers every message.
func TestClosingAnswersEverybody(t *testing.T) {
	n := newSite(t)
	var told []string
	n.told = func(s *ShardLeader, open bool) {
		told = append(told, fmt.Sprint(s.Topic().Name(), open))
		if s.Shard().Led() != nil {
			t.Error("requests find a leader that Subscriptions don't know")
		}
	}
	n.serve("orders")
	topic := n.service.Topic("orders")
	for i := range 100 {
		n.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), "x"))
	}
	n.stop()
	for i := range 100 {
		n.expect(n.hub.answer(t, fmt.Sprintf("r%d", i)), fmt.Sprintf("orders@%d", i+1))
	}
	if (*taker)(topic).Take(nil, nil, false) {
		t.Error("behind")
	}
	if len(n.hub.offers) != 0 || !slices.Equal(told, []string{"orderstrue", "ordersfalse"}) {
		t.Errorf("%d offers, told %q", len(n.hub.offers), told)
	}
	(*taker)(topic).Take([]protocol.Message{message("orders.a", "late", "x")}, nil, false)
	if got := n.hub.answer(t, "late"); got != "no: topic orders: broker main-0 is stopping; try again" {
		t.Errorf("answered %q", got)
	}
}

// TestANewLeaderMarksNoEmptyLog: a mark that the log of a leader has no message ids saves reading
// it when it is opened. A log without messages is read at once, so ten thousand empty ones cost no
// writes when their leaders change.
func TestANewLeaderMarksNoEmptyLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.begin()
	marked := func(n *site) bool { return keptspec.NoIDs(n.service.Topic("orders").Shard().Data()) }
	lead := func(i int) *site {
		t.Helper()
		c.elect(i, 0, 1, 2)
		c.tell()
		c.sites[i].open("orders")
		return c.sites[i]
	}
	if !marked(c.sites[0]) {
		t.Error("the leader that made the log did not mark it")
	}
	second := lead(1)
	if marked(second) {
		t.Error("a leader marked an empty log")
	}
	second.expect(second.ask("orders.a", "one"), "orders@1")
	c.settle("all have the message", func() bool { return len(c.inSync()) == 3 })
	lead(2).eventually("a log with a message is marked", func() bool { return marked(c.sites[2]) })
}
