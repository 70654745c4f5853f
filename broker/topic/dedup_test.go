package topic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	replication "github.com/carillon-mq/carillon/broker/replica"
)

// sameID reports whether two windows know an id alike. The one that judged it knows its age a
// little better.
func sameID(a, b dedup.Known) bool {
	return a.ID == b.ID && a.Offset == b.Offset && time.Duration(a.At-b.At).Abs() < time.Second
}

// anew is the window as a read of the log, of no more than so many bytes, gives it.
func (n *site) anew(p *Shard, budget int64) *dedup.Window {
	n.t.Helper()
	fresh := &Shard{topic: p.topic, name: p.name, logs: p.opened.Load()}
	fresh.ids.Init(&n.service.counts.followedIDs)
	if err := n.service.readIDs(fresh, p.view.Load(), budget); err != nil {
		n.t.Fatal(err)
	}
	return &fresh.ids
}

// TestFollowersKeepTheDeduplicationWindow: after any sequence of messages, batches of records,
// elections, partitions, deaths and time, each replica's deduplication window equals that read from
// its log, so an elected broker need not read it.
func TestFollowersKeepTheDeduplicationWindow(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			c := newCluster(t, 3)
			for i, n := range c.sites {
				n.machine = newMachine(t)
				n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.Deduplication = 3, time.Minute })
				c.start(i)
			}
			leader, asked, known, elections := 0, 0, 0, 0
			elect := func(next int, inSync ...int) {
				elections++
				c.elect(next, inSync...)
				c.tell()
				c.sites[next].open("orders")
				leader = next
			}
			elect(0, 0, 1, 2)
			some := func() (messages []protocol.Message) {
				for range 1 + rng.IntN(8) {
					asked++
					id, reply := fmt.Sprintf("Id: %d", rng.IntN(60)), fmt.Sprintf("r%d", asked)
					switch rng.IntN(5) {
					case 0:
						messages = append(messages, message("orders.a", reply, "plain"))
					case 1:
						messages = append(messages, message("orders.a", reply, prefixed("x", "y", "z"), "Records: 3", id))
					default:
						messages = append(messages, message("orders.a", reply, "one", id))
					}
				}
				return messages
			}
			for range 40 {
				at := c.sites[leader]
				switch other := (leader + 1 + rng.IntN(2)) % 3; rng.IntN(8) {
				case 0: // leadership is handed over
					elect(other, 0, 1, 2)
				case 1: // nobody hears the leader any more, and it goes on alone for a while
					c.mu.Lock()
					c.cut[at.self] = true
					for conn := range c.conns {
						conn.Close()
					}
					c.lives[at.self] = 0
					c.mu.Unlock()
					at.hub.publish(some()...)
					was := leader
					elect(other, (was+1)%3, (was+2)%3)
					c.sites[leader].hub.publish(some()...)
					c.mu.Lock()
					c.cut[at.self] = false
					c.lives[at.self] = at.life
					c.mu.Unlock()
				case 2:
					was := leader
					c.kill(was)
					elect(other, (was+1)%3, (was+2)%3)
					c.start(was)
				case 3:
					for d := time.Duration(rng.IntN(40)) * time.Second; d > 0; d = 0 {
						for _, n := range c.sites {
							n.machine.pass(d)
						}
					}
				default:
					messages := some()
					at.hub.publish(messages...)
					for i := range messages {
						if strings.HasSuffix(at.hub.answer(t, string(messages[i].Reply)), " again") {
							known++
						}
					}
				}
				c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
				c.settle("all hold the same", func() bool { return equal(c.copies()) })
				for _, n := range c.sites {
					p := n.service.Topic("orders").shards[0]
					// A follower notes a batch just after its log has it.
					n.eventually(n.self+" keeps all ids that its log has, and no others", func() bool {
						fresh := n.anew(p, math.MaxInt64)
						defer fresh.Forget(dedup.Never)
						since := n.machine.mono() - int64(time.Minute)
						all := p.ids.Complete(since) && fresh.Complete(since)
						queue := p.ids.All(since)
						want := fresh.All(since)
						return all && slices.EqualFunc(queue, want, sameID)
					})
				}
			}
			if known == 0 || elections < 5 {
				t.Errorf("%d messages were known, in %d epochs", known, elections)
			}
			for i, n := range c.sites {
				s := n.service
				if led, followed := s.Stats().IDs, s.Stats().Followed; led > 0 != (i == leader) && led+followed > 0 || led*followed > 0 {
					t.Errorf("%s counts %d ids as its own, and %d of others", n.self, led, followed)
				}
				n.stop()
				if left := s.counts.ids.Load() + s.counts.followedIDs.Load(); left != 0 {
					t.Errorf("%s has ended and counts %d ids", n.self, left)
				}
			}
		})
	}
}

// TestAFollowerWithoutRoomForIDsReadsThem: a follower that has no room for ids forgets some, and
// reads them from its log if it is elected.
func TestAFollowerWithoutRoomForIDsReadsThem(t *testing.T) {
	t.Parallel()
	c, a, b, _ := three(t)
	b.service.counts.followedIDs.Add(dedup.MaxTogether - 2) // as if other Topics had taken the room
	for i := range 5 {
		a.expect(a.ask("orders.a", "x", fmt.Sprint("Id: ", i)), fmt.Sprintf("orders@%d", i+1))
	}
	p := b.service.Topic("orders").shards[0]
	since := b.service.config.Clock.Mono() - int64(clusterWindow)
	if queue := p.ids.All(since); len(queue) != 2 || p.ids.Complete(since) {
		t.Errorf("it keeps %d ids, and all: %t", len(queue), p.ids.Complete(since))
	}
	c.elect(1, 0, 1, 2)
	c.tell()
	b.open("orders")
	for i := range 5 {
		b.expect(b.ask("orders.a", "x", fmt.Sprint("Id: ", i)), fmt.Sprintf("orders@%d again", i+1))
	}
	if s := b.service.Stats(); s.IDs != 5 || s.Followed != dedup.MaxTogether-2 {
		t.Errorf("it counts %d ids as its own, and %d of others", s.IDs, s.Followed)
	}
}

// TestTheWindowOfALongLogIsReadInPart: a broker that begins to follow reads the end of a long log,
// and knows since when its window is complete.
func TestTheWindowOfALongLogIsReadInPart(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Hour })
	n.serve("orders")
	var times []int64
	for i := range 300 {
		n.expect(n.ask("orders.a", strings.Repeat("x", 100), fmt.Sprint("Id: ", i)), fmt.Sprintf("orders@%d", i+1))
		times = append(times, n.service.config.Clock.Written(n.service.Topic("orders").Shard().lastTime))
	}
	p := n.service.Topic("orders").shards[0]
	w := n.anew(p, 10_000)
	queue := w.All(math.MinInt64)
	if len(queue) < 20 || len(queue) > 200 {
		t.Fatalf("%d ids were read", len(queue))
	}
	before := times[len(times)-len(queue)-1]
	if w.Complete(before) || !w.Complete(before+1) {
		t.Error("it doesn't know which ids it knows")
	}
	if all := n.anew(p, math.MaxInt64).All(math.MinInt64); len(all) != 300 {
		t.Errorf("%d ids are in the log", len(all))
	}
}

// idBatches are so many batches of so many messages with these headers, in which %d becomes the
// number of the message.
func idBatches(t testing.TB, batches, messages int, header string) (all []log.Batch) {
	n := newSite(t)
	n.options = log.Options{}
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication, s.Durability = time.Hour, coordination.Memory })
	n.serve("orders")
	n.hub.quiet = true
	for i := range batches {
		var read []protocol.Message
		for j := range messages {
			var headers []string
			if header != "" {
				headers = []string{strings.Replace(header, "%d", fmt.Sprint(i*messages+j), 1)}
			}
			read = append(read, message("orders.a", "", strings.Repeat("x", 256), headers...))
		}
		n.hub.publish(read...)
	}
	data := n.service.Topic("orders").shards[0].opened.Load().parts[replication.Data]
	_, end, _ := data.Offsets()
	if _, err := records.ScanBatches(data, 1, end, math.MaxInt64, func(b log.Batch, _ uint64) (bool, error) {
		all = append(all, slices.Clone(b))
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func newWindow() (w *dedup.Window, counted func() int64) {
	var n atomic.Int64
	w = &dedup.Window{}
	w.Init(&n)
	w.Forget(dedup.Always)
	return w, n.Load
}

// BenchmarkFollowersWindow measures a follower's work for the deduplication window per batch of 64
// messages.
func BenchmarkFollowersWindow(b *testing.B) {
	for name, header := range map[string]string{"ids": "Id: %d", "headers": "Trace: %d", "nothing": ""} {
		b.Run("with="+name, func(b *testing.B) {
			batches := idBatches(b, 1000, 64, header)
			w, _ := newWindow()
			c := clock.New(clock.Config{})
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%len(batches) == 0 {
					w.Truncate(0)
				}
				_, _ = w.Note(plainCodec{}, c, batches[i%len(batches)], 1, int64(time.Hour))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/msg")
		})
	}
}

// TestAgesOfIDsFromTheLog: the ages of ids that are read from batches depend on what the clock says
// about the records' times.
func TestAgesOfIDsFromTheLog(t *testing.T) {
	batch := idBatches(t, 1, 1, "Id: %d")[0]
	for _, c := range []struct {
		name  string
		wrong time.Duration // of the clock, when the batch comes
		then  func(c *clock.Clock, m *testMachine)
		after time.Duration // it is an hour's window
		known bool
	}{
		{name: "it is known until the window is over", after: 59 * time.Minute, known: true},
		{name: "and then forgotten", after: 61 * time.Minute},
		{name: "the clock is ahead: it is older than it is", wrong: 30 * time.Minute, after: 31 * time.Minute},
		{name: "the clock is behind: it would be younger than it is", wrong: -time.Minute},
		{name: "the clock is behind by seconds", wrong: -10 * time.Second, after: 59 * time.Minute, known: true},
		{name: "the clock was ahead, and is put right", wrong: 30 * time.Minute, after: 59 * time.Minute, known: true,
			then: func(c *clock.Clock, m *testMachine) { m.set(0); _ = c.Confirm(c.Status().Wall) }},
		{name: "the clock was behind a little, and turns out to be so by more", after: 31 * time.Minute,
			then: func(c *clock.Clock, m *testMachine) { m.set(30 * time.Minute); _ = c.Confirm(c.Status().Wall) }},
		{name: "something else that was written is of the future", after: 0,
			then: nil, wrong: -clock.Bound / 2},
	} {
		m := newMachine(t)
		m.forgets = true
		m.jump.Store(int64(c.wrong))
		k := m.start()
		early := c.wrong == -clock.Bound/2
		if early {
			k.Wrote(k.Now() + int64(time.Hour))
		}
		w, _ := newWindow()
		if _, err := w.Note(plainCodec{}, k, batch, 1, int64(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if c.then != nil {
			c.then(k, m)
		}
		m.pass(c.after)
		w.Lock()
		w.Follow(k.Off())
		w.Unlock()
		if left := w.ExpireNow(k.Mono() - int64(time.Hour)); left > 0 != c.known {
			t.Errorf("%s: known %t, want %t", c.name, left > 0, c.known)
		}
	}
	// Two batches, of which the latter says that it is older.
	m := newMachine(t)
	k := m.start()
	w, _ := newWindow()
	w.Lock()
	w.Add(dedup.Hash{1}, 1, k.Mono())
	w.Unlock()
	if _, err := w.Note(plainCodec{}, k, batch, 1, int64(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if all := w.All(math.MinInt64); len(all) != 2 || all[0].At > all[1].At || all[1].At > k.Written(batch.Time()) {
		t.Errorf("of two ids, the first no later, it knows %+v", all)
	}
}

// leadsWithHiddenIDs has three brokers with 300 messages that have ids. All die, and a part of the
// first one's copy is damaged. It leads alone and in doubt, and can't read some ids. hidden is one
// of them.
func leadsWithHiddenIDs(t *testing.T) (c *cluster, hidden uint64) {
	c = newCluster(t, 3)
	for _, n := range c.sites {
		n.machine = newMachine(t)
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.MinInSync, s.Deduplication = 3, 1, clusterWindow })
	}
	c.begin()
	a := c.sites[0]
	for i := range 300 {
		a.expect(a.ask("orders.a", fmt.Sprintf("%d %0100d", i, i), fmt.Sprintf("Id: %d", i+1)), fmt.Sprintf("orders@%d", i+1))
	}
	c.settle("all have it", func() bool { all := c.copies(); return equal(all) && len(all[0]) == 300 })
	for i := range c.sites {
		c.kill(i)
	}
	a.flip(a.segments()[0])
	c.start(0)
	c.elect(0, 0)
	c.doubt()
	c.tell()
	a.open("orders")
	a.leading().ids.Lock()
	defer a.leading().ids.Unlock()
	unread := a.leading().ids.Unread()
	if len(unread) != 1 {
		t.Fatalf("damage that hides ids: %+v", unread)
	}
	return c, unread[0].Damage.From
}

func (n *site) leading() *ShardLeader { return n.service.Topic("orders").Shard() }

// hides publishes a message and reports whether it was refused because its id may be hidden.
func (n *site) hides(headers ...string) bool {
	n.t.Helper()
	said := n.ask("orders.a", "x", headers...)
	hides := strings.HasPrefix(said, "no: topic orders: it isn't known whether the message was kept before") && strings.Contains(said, "may have; try again")
	if !hides && strings.HasPrefix(said, "no: ") {
		n.t.Errorf("%v: answered %q", headers, said)
	}
	return hides
}

// A leader in doubt can't read the ids of some messages, and other replicas have them. It refuses
// unknown ids until another replica leads, which knows them. So no message is kept twice.
func TestAnIDThatAnotherReplicaMayKnowIsNotTakenForNew(t *testing.T) {
	t.Parallel()
	c, hidden := leadsWithHiddenIDs(t)
	a, b := c.sites[0], c.sites[1]
	id := fmt.Sprintf("Id: %d", hidden)
	if !a.hides(id) {
		t.Error("a message whose id can't be read is kept twice")
	}
	if !a.hides(fmt.Sprintf("After: %d", hidden)) {
		t.Error("a message is kept behind one that isn't known")
	}
	a.expect(a.ask("orders.a", "x", "Id: 300"), "orders@300 again")
	a.expect(a.ask("orders.a", "x"), "orders@301")
	a.scrub()
	c.start(1)
	c.settle("the leader withdraws when another one is in sync", func() bool { life, _ := c.entry(0); return life == 0 })
	c.name(1)
	c.tell()
	b.open("orders")
	b.expect(b.ask("orders.a", "x", id), fmt.Sprintf("orders@%d again", hidden))
	b.expect(b.ask("orders.a", "x", fmt.Sprintf("After: %d", hidden)), "orders@302")
}

// Unknown ids are new if no other replica can have the damaged records, and when all ids in them
// would be too old.
func TestHiddenIDsAreNewWhenNobodyCanKnowThem(t *testing.T) {
	t.Parallel()
	c, hidden := leadsWithHiddenIDs(t)
	a := c.sites[0]
	if !a.hides("Id: new") {
		t.Error("an id that may be hidden is taken for new")
	}
	none := []coordination.Suspect{{Topic: "id-orders", End: hidden, State: 1}}
	a.service.state.Store(a.state.With(nil, map[string][]coordination.Suspect{"broker-b": none, "broker-c": none}))
	if a.hides("Id: new") {
		t.Error("an id is refused that no replica can know")
	}
	a.service.state.Store(a.state)
	if !a.hides("Id: newer") {
		t.Error("an id that may be hidden is taken for new")
	}
	a.machine.pass(clusterWindow + time.Second)
	if a.hides("Id: newer") {
		t.Error("an id is refused though those that can't be read are too old")
	}
}
