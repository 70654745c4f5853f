package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	replication "github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// clusterWindow is for how long clusters of tests know message ids, unless a test is about the end
// of that time. No test takes so long, even on a starved machine.
const clusterWindow = time.Hour

// cluster is several brokers that share what coordination says, and one Topic, orders.
type cluster struct {
	t     testing.TB
	sites []*site

	mu     sync.Mutex
	shard  coordination.Shard
	lives  map[string]int64
	cut    map[string]bool // brokers that nobody reaches
	way    time.Duration   // from one broker to another
	conns  map[net.Conn]string
	lose   int  // so many answers to what brokers say of their copies
	away   bool // etcd answers nothing
	unsaid int  // what brokers would have said of their copies meanwhile
	// said is what brokers have reported of their copies, which all hear; nil: nobody does.
	said map[string][]coordination.Suspect
	// hold is called before a leader's swap is done, which fails with its error; nil: nothing is.
	hold func(inSync []coordination.Replica) error
}

func newCluster(t testing.TB, size int) *cluster {
	c := &cluster{t: t, lives: map[string]int64{}, cut: map[string]bool{}, conns: map[net.Conn]string{}}
	for i := range size {
		n := newSite(t)
		n.self, n.name, n.link = fmt.Sprintf("broker-%c", 'a'+i), fmt.Sprintf("main-%d", i), c.link
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.Deduplication = size, clusterWindow })
		c.sites = append(c.sites, n)
	}
	return c
}

func (c *cluster) link(n *site) replication.Config {
	return replication.Config{Self: n.self, Store: c, Dial: func(_ context.Context, broker string) (net.Conn, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.IndexFunc(c.sites, func(other *site) bool { return other.self == broker })
		if c.cut[n.self] || c.cut[broker] || c.lives[broker] == 0 {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		c.conns[here], c.conns[there] = n.self, broker
		go c.sites[i].exchange.Serve(there, n.self)
		if c.way > 0 {
			return testutil.Slow(here, c.way), nil
		}
		return here, nil
	}}
}

// SwapInSync is the compare-and-swap of etcd.
func (c *cluster) SwapInSync(_ context.Context, by coordination.Replica, before *coordination.Shard, inSync []coordination.Replica) (*coordination.Shard, error) {
	c.mu.Lock()
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		if err := hold(inSync); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errors.New("etcd does not answer")
	}
	if before.Revision != c.shard.Revision || c.lives[by.Broker] != by.Incarnation {
		return nil, &coordination.StaleError{}
	}
	c.shard.InSync = inSync
	c.shard.Revision++
	after := c.shard
	return &after, nil
}

// Vouch, Withdraw and Resign are those of coordination.Client.
func (c *cluster) Vouch(_ context.Context, self coordination.Replica, before *coordination.Shard, _ coordination.Reach, leads bool) (*coordination.Shard, error) {
	return c.swapEntry(self, before, self.Incarnation, !leads)
}

func (c *cluster) Withdraw(_ context.Context, self coordination.Replica, before *coordination.Shard) (*coordination.Shard, error) {
	return c.swapEntry(self, before, 0, true)
}

func (c *cluster) Resign(_ context.Context, self coordination.Replica, before *coordination.Shard) (*coordination.Shard, error) {
	own, _ := before.Member(self.Broker)
	return c.swapEntry(self, before, own.Incarnation, true)
}

func (c *cluster) swapEntry(self coordination.Replica, before *coordination.Shard, incarnation int64, unled bool) (*coordination.Shard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		c.unsaid++
		return nil, errors.New("etcd does not answer")
	}
	at := slices.IndexFunc(before.InSync, func(m coordination.Replica) bool { return m.Broker == self.Broker })
	if before.Revision != c.shard.Revision || c.lives[self.Broker] != self.Incarnation || at < 0 {
		return nil, &coordination.StaleError{}
	}
	c.shard.InSync = slices.Clone(c.shard.InSync)
	c.shard.InSync[at].Incarnation = incarnation
	if unled && c.shard.Leader == self.Broker {
		c.shard.Leader = ""
	}
	c.shard.Revision++
	if c.lose > 0 {
		c.lose--
		return nil, errors.New("the answer was lost")
	}
	after := c.shard
	return &after, nil
}

func (c *cluster) ReadShards(context.Context, string) ([]*coordination.Shard, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shard
	return []*coordination.Shard{&s}, s.Revision, nil
}

// start begins another life of a broker.
func (c *cluster) start(i int) {
	c.t.Helper()
	n := c.sites[i]
	if err := n.start(); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.lives[n.self] = n.life
	c.mu.Unlock()
}

// begin has all brokers live and the first lead, with all in sync.
func (c *cluster) begin() {
	c.t.Helper()
	var all []int
	for i := range c.sites {
		c.start(i)
		all = append(all, i)
	}
	c.elect(0, all...)
	c.tell()
	c.sites[0].open("orders")
}

// kill ends a broker: its connections close, and what its file system doesn't hold safely is gone.
func (c *cluster) kill(i int) {
	n := c.sites[i]
	c.mu.Lock()
	c.lives[n.self] = 0
	for conn, of := range c.conns {
		if of == n.self {
			conn.Close()
		}
	}
	c.mu.Unlock()
	n.crash()
}

// elect names a leader under the next epoch.
func (c *cluster) elect(leader int, inSync ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shard.Topic = "id-orders"
	c.shard.Epoch++
	c.shard.Revision += 100
	c.shard.Leader = c.sites[leader].self
	c.shard.Replicas, c.shard.InSync = nil, nil
	for _, n := range c.sites {
		c.shard.Replicas = append(c.shard.Replicas, n.self)
	}
	for _, i := range inSync {
		n := c.sites[i]
		c.shard.InSync = append(c.shard.InSync, coordination.Replica{Broker: n.self, Incarnation: n.life})
	}
}

// doubt has the shard say that the leader that was just named may lack something.
func (c *cluster) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shard.Doubt = coordination.Doubt{Epoch: c.shard.Epoch, Leader: c.shard.Leader, Reason: "LeastLoss"}
}

// tell has all that live follow what there is.
func (c *cluster) tell() {
	c.mu.Lock()
	shard, said := c.shard, maps.Clone(c.said)
	var brokers []coordination.Broker
	for _, n := range c.sites {
		if life := c.lives[n.self]; life > 0 {
			brokers = append(brokers, coordination.Broker{ID: n.self, Name: n.name, Incarnation: life})
		}
	}
	c.mu.Unlock()
	for _, n := range c.sites {
		if c.lives[n.self] > 0 {
			n.brokers, n.revision, n.reports = brokers, max(n.revision, shard.Revision), said
			mine := shard
			n.shards["id-orders"] = &mine
			n.tell()
		}
	}
}

// settle tells until ok.
func (c *cluster) settle(what string, ok func() bool) {
	c.t.Helper()
	c.sites[0].eventually(what, func() bool {
		c.tell()
		return ok()
	})
}

func (c *cluster) inSync() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.shard.InSync {
		if c.lives[m.Broker] == m.Incarnation {
			names = append(names, m.Broker[len("broker-"):])
		}
	}
	slices.Sort(names)
	return names
}

// copies are what the logs of all that live hold, batch by batch.
func (c *cluster) copies() (all [][]string) {
	for _, n := range c.sites {
		if c.lives[n.self] == 0 {
			continue
		}
		var one []string
		if open := n.service.Topic("orders").shards[0].opened.Load(); open != nil {
			cursor := open.parts[replication.Data].NewCursor(1)
			for {
				v, err := cursor.Read(64 << 10)
				if err != nil || v.End == v.From {
					break
				}
				for b, ok := v.Next(); ok; b, ok = v.Next() {
					it := b.Records()
					for r := (log.Record{}); it.Next(&r); {
						one = append(one, fmt.Sprintf("%d/%d %s", b.Epoch(), r.Offset, r.Data[r.Header:]))
					}
				}
				v.Release()
			}
		}
		all = append(all, one)
	}
	return all
}

func equal(all [][]string) bool {
	for _, one := range all[1:] {
		if !slices.Equal(one, all[0]) {
			return false
		}
	}
	return true
}

// TestAnotherReplicaLeadsWhenTheLeaderDies: an acknowledged record is on every replica. When the
// leader dies, another replica continues at its end. A replica that returns is made equal to the
// leader, whatever unconfirmed records it has.
func TestAnotherReplicaLeadsWhenTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.sites[0], c.sites[1]
	c.begin()
	for i := range 20 {
		a.expect(a.ask("orders.a", fmt.Sprint(i), "Id: "+fmt.Sprint(i)), fmt.Sprintf("orders@%d", i+1))
	}
	if all := c.copies(); !equal(all) || len(all[0]) != 20 {
		t.Fatalf("the replicas hold %q", all)
	}

	c.kill(0)
	c.elect(1, 1, 2)
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "5 again", "Id: 5"), "orders@6 again")
	b.expect(b.ask("orders.a", "next", "Expect-Last: 20"), "orders@21")
	if got := b.read("orders"); len(got) != 21 || got[19] != "20 orders.a 19" {
		t.Fatalf("b reads %q", got)
	}

	c.start(0)
	c.settle("it is in sync again", func() bool { return len(c.inSync()) == 3 })
	b.expect(b.ask("orders.a", "all three"), "orders@22")
	if all := c.copies(); !equal(all) || len(all[0]) != 22 {
		t.Fatalf("the replicas hold %q", all)
	}
}

// TestUnconfirmedRecordsOfAFormerLeaderAreTruncated: a leader without confirmations acknowledges
// nothing. When it returns, the records that only it has are truncated, and their messages are sent
// to the next leader.
func TestUnconfirmedRecordsOfAFormerLeaderAreTruncated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.sites[0], c.sites[1]
	c.begin()
	a.expect(a.ask("orders.a", "one"), "orders@1")
	c.mu.Lock()
	c.cut[a.self] = true
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	a.hub.publish(message("orders.a", "alone", "two"))
	c.elect(1, 1, 2)
	c.lives[a.self] = 0 // its lease has run out, and it doesn't hear that
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "other two"), "orders@2")
	c.mu.Lock()
	c.cut[a.self] = false
	c.lives[a.self] = a.life
	c.mu.Unlock()
	c.settle("it is in sync again", func() bool { return len(c.inSync()) == 3 })
	c.settle("all hold the same", func() bool {
		all := c.copies()
		return equal(all) && len(all[0]) == 2
	})
	join(a, b)
	a.expect(a.hub.answer(t, "alone"), "orders@3")
	if all := c.copies(); !equal(all) || !slices.Equal(all[0][1:], []string{"2/2 other two", "2/3 two"}) {
		t.Errorf("they hold %q", all)
	}
}

// TestUnsyncedCopiesAreReportedAfterACrash: a broker that died may have lost records of a Topic
// that isn't Synced. Its copy is reported until it leads alone or has caught up, in the incarnation
// that the set names.
func TestUnsyncedCopiesAreReportedAfterACrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	reports := make([]chan []coordination.Suspect, len(c.sites))
	for i, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.Durability = 2, coordination.Replicated })
		reports[i] = make(chan []coordination.Suspect, 16)
		n.report = func(_ context.Context, _ int64, suspects []coordination.Suspect) error {
			reports[i] <- suspects
			return nil
		}
		c.start(i)
	}
	c.elect(0, 0, 1)
	c.tell()
	c.sites[0].open("orders")
	c.sites[0].expect(c.sites[0].ask("orders.a", "one"), "orders@1")
	before := c.shard.InSync
	for i := range c.sites {
		c.kill(i)
	}
	for i := range c.sites {
		if len(reports[i]) > 0 {
			t.Fatalf("broker %d reported %v while nothing was wrong", i, <-reports[i])
		}
		c.start(i)
	}
	c.shard.InSync = before // nobody is elected yet
	c.tell()
	for i := range c.sites {
		select {
		case got := <-reports[i]:
			if len(got) != 1 || got[0].Topic != "id-orders" {
				t.Errorf("broker %d reported %v", i, got)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("broker %d reported nothing", i)
		}
	}
	c.elect(1, 1)
	c.doubt()
	c.tell()
	c.sites[1].open("orders")
	c.settle("it is in sync again", func() bool { return len(c.inSync()) == 2 })
	for i := range c.sites {
		c.settle("the report is taken back", func() bool {
			select {
			case got := <-reports[i]:
				return len(got) == 0
			default:
				return false
			}
		})
	}
}
