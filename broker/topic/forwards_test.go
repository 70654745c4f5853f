package topic

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/forward"
	replication "github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// way is one direction of a link between two brokers of a test. What is carried arrives on a
// goroutine of its own.
type way struct {
	mu     sync.Mutex
	more   *sync.Cond
	frames [][]byte
	ended  bool
	deaf   bool // what is carried from now on is lost
	done   chan struct{}
}

func newWay() *way {
	w := &way{done: make(chan struct{})}
	w.more = sync.NewCond(&w.mu)
	return w
}

func (w *way) Carry(parts ...[]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended && !w.deaf {
		w.frames = append(w.frames, bytes.Join(parts, nil))
		w.more.Signal()
	}
	return false
}

func (w *way) Wait() {}

func (w *way) run(t testing.TB, to *sender.Link) {
	defer close(w.done)
	defer to.Detach()
	for {
		w.mu.Lock()
		for len(w.frames) == 0 && !w.ended {
			w.more.Wait()
		}
		frames, ended := w.frames, w.ended
		w.frames = nil
		w.mu.Unlock()
		if ended {
			return
		}
		for _, frame := range frames {
			if err := to.Take(frame); err != nil {
				t.Errorf("a frame is refused: %v", err)
			}
		}
		to.Flush()
	}
}

func (w *way) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.more.Signal()
}

// join links two brokers. cut ends that; what is on its way then is lost.
func join(a, b *site) (there, back *way, cut func()) {
	there, back = newWay(), newWay()
	at, from := b.service.Attach(a.self, back), a.service.Attach(b.self, there)
	go there.run(b.t, at)
	go back.run(a.t, from)
	cut = func() {
		for _, w := range []*way{there, back} {
			w.set(func() { w.ended = true })
			<-w.done
		}
	}
	a.t.Cleanup(cut)
	return there, back, cut
}

// three are brokers with a Topic of three replicas, the first of which leads.
func three(t *testing.T) (c *cluster, a, b, other *site) {
	c = newCluster(t, 3)
	c.begin()
	a, b, other = c.sites[0], c.sites[1], c.sites[2]
	return c, a, b, other
}

func (n *site) values() (all []string) {
	for _, line := range n.read("orders") {
		all = append(all, line[strings.LastIndexByte(line, ' ')+1:])
	}
	return all
}

// TestAForwardIsAnsweredAfterItsLinkWasCut: a message that was appended when the link was cut is
// not appended again, and its publisher gets the ack.
func TestAForwardIsAnsweredAfterItsLinkWasCut(t *testing.T) {
	t.Parallel()
	_, a, b, _ := three(t)
	_, back, cut := join(b, a)
	b.expect(b.ask("orders.a", "one"), "orders@1")
	back.set(func() { back.deaf = true })
	b.hub.publish(message("orders.a", "r2", "two"), message("orders.a", "r3", "three", "Expect-Last: 2"), message("orders.a", "r4", "no", "Expect-Last: 9"),
		message("orders.a", "r5", "\x01x\x01y", "Records: 2", "Id: five"))
	a.eventually("the leader has them", func() bool { return a.service.Topic("orders").Shard().Info().Last == 5 })
	cut()
	b.hub.publish(message("orders.a", "r6", "six")) // there is no link now
	join(b, a)
	for reply, want := range map[string]string{
		"r2": "orders@2", "r3": "orders@3", "r4": "no: topic orders: the last message is at offset 3", "r5": "orders@5/2", "r6": "orders@6",
	} {
		if got := b.hub.answer(t, reply); got != want {
			t.Errorf("%s was answered %q, want %q", reply, got, want)
		}
	}
	if got := a.values(); !slices.Equal(got, []string{"one", "two", "three", "x", "y", "six"}) {
		t.Errorf("kept %q", got)
	}
	if s, l := b.service.Stats(), a.service.Stats(); s.Resent < 4 || l.Deduplicated != 3 {
		t.Errorf("%d went again, %d were known to the leader", s.Resent, l.Deduplicated)
	}
	b.eventually("nothing is held", func() bool {
		s := b.service.Stats()
		return s.OutboxBytes == 0 && s.OutboxMessages == 0
	})
}

// TestForwardsGoOnWithTheNextLeader: the leader dies with messages under way, some of them on the
// other replicas and some not: publishers on other brokers notice nothing.
func TestForwardsGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c, a, b, other := three(t)
	there, back, cut := join(b, a)
	join(b, other)
	b.expect(b.ask("orders.a", "1"), "orders@1")
	back.set(func() { back.deaf = true })
	for i := 2; i <= 50; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	a.eventually("the leader has them", func() bool { return a.service.Topic("orders").Shard().Info().Last == 50 })
	there.set(func() { there.deaf = true })
	for i := 51; i <= 60; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	cut()
	c.kill(0)
	for i := 61; i <= 70; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	c.elect(2, 1, 2)
	c.tell()
	other.open("orders")
	var want []string
	for i := 1; i <= 70; i++ {
		if want = append(want, fmt.Sprint(i)); i > 1 {
			b.expect(b.hub.answer(t, fmt.Sprintf("r%d", i)), fmt.Sprintf("orders@%d", i))
		}
	}
	if got := other.values(); !slices.Equal(got, want) {
		t.Errorf("kept %q", got)
	}
}

// TestForwardsToThisBrokerItself: while messages are under way, the forwarding broker becomes the
// leader, and then loses leadership again.
func TestForwardsToThisBrokerItself(t *testing.T) {
	t.Parallel()
	c, a, b, _ := three(t)
	_, back, cut := join(b, a)
	back.set(func() { back.deaf = true })
	for i := 1; i <= 20; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	a.eventually("the leader has some", func() bool { return a.service.Topic("orders").Shard().Info().Last == 20 })
	cut()
	b.hub.publish(message("orders.a", "r21", "21"))
	c.elect(1, 0, 1, 2)
	b.hub.publish(message("orders.a", "r22", "22"))
	c.tell()
	for i := 23; i <= 40; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	b.open("orders")
	for i := 1; i <= 40; i++ {
		b.expect(b.hub.answer(t, fmt.Sprintf("r%d", i)), fmt.Sprintf("orders@%d", i))
	}
	b.expect(b.ask("orders.a", "41"), "orders@41")
	join(b, a)
	c.elect(0, 0, 1, 2)
	c.tell()
	for i := 42; i <= 60; i++ {
		b.hub.publish(message("orders.a", fmt.Sprintf("r%d", i), fmt.Sprint(i)))
	}
	for i := 42; i <= 60; i++ {
		b.expect(b.hub.answer(t, fmt.Sprintf("r%d", i)), fmt.Sprintf("orders@%d", i))
	}
}

// alone has nobody reach a broker from now on.
func (c *cluster) alone(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sites[i].self
	c.cut[of] = true
	for conn, by := range c.conns {
		if by == of {
			conn.Close()
		}
	}
}

// holds has swaps of the set in sync wait for hold, which may refuse them.
func (c *cluster) holds(hold func(inSync []coordination.Replica) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = hold
}

func (c *cluster) reach(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[c.sites[i].self] = false
}

func (n *site) ends(at uint64) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%s's log ends at %d", n.self, at), func() bool {
		logs := n.service.Topic("orders").shards[0].opened.Load()
		if logs == nil {
			return false
		}
		_, end, _ := logs.parts[replication.Data].Offsets()
		return end == at
	})
}

// TestPublishersOnTheLeadersBrokerNoticeNoElection: leadership moves while messages that were
// published on the leader's own broker are in flight. Those in the next leader's log are
// acknowledged at their offsets; the others are sent to it. Publishers see no error.
func TestPublishersOnTheLeadersBrokerNoticeNoElection(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(c *cluster){
		"at once":                  func(c *cluster) { c.elect(1, 1, 2) },
		"after nobody led a while": func(c *cluster) { c.elect(1, 1, 2); c.shard.Leader = ""; c.tell(); c.elect(1, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			c, a, b, _ := three(t)
			join(a, b)
			a.expect(a.ask("orders.a", "1"), "orders@1")
			c.alone(2) // so nothing is acknowledged
			a.hub.publish(message("orders.a", "r2", "2"), message("orders.a", "", "3"), message("orders.a", "r4", "4", "Id: four"))
			a.hub.publish(message("orders.a", "r5", "\x011\x012", "Records: 2", "Id: five"))
			b.ends(7)
			c.alone(0)
			a.hub.publish(message("orders.a", "r7", "7", "Expect-Last: 6"), message("orders.a", "r8", "8", "Id: eight"), message("orders.a", "r9", "9", "Expect-Last: 1"))
			a.hub.publish(message("orders.a", "r10", "\x013\x014", "Records: 2"))
			a.ends(11)
			next(c)
			c.tell() // before it is reached: a follower of its epoch would copy what it took alone
			c.reach(0)
			c.reach(2)
			a.hub.publish(message("orders.a", "r11", "11")) // it doesn't overtake what came before
			b.open("orders")
			for reply, want := range map[string]string{
				"r2": "orders@2", "r4": "orders@4", "r5": "orders@6/2", "r7": "orders@7", "r8": "orders@8", "r10": "orders@10/2", "r11": "orders@11",
				"r9": "no: topic orders: the last message is at offset 8", // the next leader judges it anew
			} {
				if got := a.hub.answer(t, reply); got != want {
					t.Errorf("%s was answered %q, want %q", reply, got, want)
				}
			}
			if got := b.values(); !slices.Equal(got, []string{"1", "2", "3", "4", "1", "2", "7", "8", "3", "4", "11"}) {
				t.Errorf("kept %q", got)
			}
			b.expect(b.ask("orders.a", "8 again", "Id: eight"), "orders@8 again")
			c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
			a.eventually("nothing is held", func() bool {
				s := a.service.Stats()
				return s.OutboxBytes == 0 && s.OutboxMessages == 0
			})
			// It leads again, and goes on.
			c.elect(0, 0, 1, 2)
			c.tell()
			a.open("orders")
			a.expect(a.ask("orders.a", "12"), "orders@12")
			a.expect(a.ask("orders.a", "13"), "orders@13")
		})
	}
}

// leadsBehindAnother has the first broker lead, take what came to it while nobody led, and then go
// on by itself.
func (c *cluster) leadsBehindAnother(between func()) {
	c.t.Helper()
	a := c.sites[0]
	a.expect(a.ask("orders.a", "1"), "orders@1")
	c.shard.Leader = ""
	c.tell()
	a.hub.publish(message("orders.a", "r", "2"))
	between()
	c.elect(0, 0, 1, 2)
	c.tell()
	a.expect(a.hub.answer(c.t, "r"), "orders@2")
	a.ask("orders.a", "3")
}

// TestMessagesThatWaitedForALeaderAreKeptFirst: a message that arrived while the shard had no
// leader is kept before one that arrives when this broker leads.
func TestMessagesThatWaitedForALeaderAreKeptFirst(t *testing.T) {
	t.Parallel()
	c, a, _, _ := three(t)
	c.leadsBehindAnother(func() {
		a.hub.publish(message("orders.a", "", "2b"))
	})
	if got := a.values(); !slices.Equal(got, []string{"1", "2", "2b", "3"}) {
		t.Errorf("kept %q", got)
	}
}

// TestALeaderThatRestartsInItsEpochResendsUnsafeMessages: a leader that restarts in its epoch,
// because the Topic's durability changed, sends messages that were not safe to itself.
func TestALeaderThatRestartsInItsEpochResendsUnsafeMessages(t *testing.T) {
	t.Parallel()
	c, a, _, _ := three(t)
	c.leadsBehindAnother(func() {})
	c.alone(0)
	a.hub.publish(message("orders.a", "r4", "4"), message("orders.a", "r5", "5"))
	a.ends(6)
	for _, n := range c.sites {
		n.topic("orders", func(s *coordination.TopicSpec) { s.Replicas, s.Durability = 3, coordination.Replicated })
	}
	c.tell()
	c.reach(0)
	a.expect(a.hub.answer(t, "r4"), "orders@4")
	a.expect(a.hub.answer(t, "r5"), "orders@5")
	if got := a.values(); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("kept %q", got)
	}
}

// TestAResentMessageIsKnownToALaterLeader: messages that the next leader lacks are sent to it, and
// it dies before they are safe. The leader after it has them from the first leader's log, and does
// not keep them twice.
func TestAResentMessageIsKnownToALaterLeader(t *testing.T) {
	t.Parallel()
	c, a, b, other := three(t)
	_, _, cut := join(a, b)
	join(a, other)
	a.expect(a.ask("orders.a", "1"), "orders@1")
	// No leader goes on without another broker, however slow the test is.
	c.holds(func([]coordination.Replica) error { return errors.New("etcd does not answer") })
	c.alone(1)
	a.hub.publish(message("orders.a", "r2", "2"), message("orders.a", "r3", "3"))
	other.ends(4)
	c.alone(2)
	c.elect(1, 1, 2)
	c.tell() // before b is reached: as a follower of a it would copy them
	c.reach(1)
	b.ends(4) // they were sent to it
	cut()
	c.kill(1)
	c.holds(nil)
	c.reach(2)
	c.elect(2, 2)
	c.tell()
	other.open("orders")
	a.expect(a.hub.answer(t, "r2"), "orders@2")
	a.expect(a.hub.answer(t, "r3"), "orders@3")
	if got := other.values(); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("kept %q", got)
	}
}

// TestTheFateOfAMessageThatCannotBeResentIsUnknown: a former leader that reaches no other leader
// for too long tells its publishers that the fate of their messages is unknown.
func TestTheFateOfAMessageThatCannotBeResentIsUnknown(t *testing.T) {
	t.Parallel()
	c, a, b, _ := three(t)
	c.alone(0)
	a.hub.publish(message("orders.a", "r1", "1"))
	c.elect(1, 1, 2)
	c.tell()
	b.open("orders")
	a.eventually("it is to go to the next leader", func() bool { return a.service.Stats().OutboxMessages == 1 })
	f := a.service.Topic("orders").shards[0].out.Load()
	f.SetPatience(0)
	if got := a.hub.answer(t, "r1"); !strings.Contains(got, "it isn't known whether the message was kept") {
		t.Errorf("answered %q", got)
	}
	a.eventually("nothing is held", func() bool { return a.service.Stats().OutboxMessages == 0 })
}

// TestARestartedLeaderKeepsNoMessageTwice: a restarted leader finds the messages that were in
// flight in its log. A message whose fate it can't know is refused, not kept twice.
func TestARestartedLeaderKeepsNoMessageTwice(t *testing.T) {
	n := newCluster(t, 1)
	n.start(0)
	n.elect(0, 0)
	n.tell()
	a := n.sites[0]
	a.open("orders")
	out := newWay()
	from := a.service.Attach("broker-z", out)
	entries := func(from, to int) (all []byte) {
		for i := from; i <= to; i++ {
			m := message("orders.a", "r", fmt.Sprint(i))
			all = forward.AppendEntry(all, &m)
		}
		return all
	}
	send := func(epoch, first, floor, ever uint64, entries []byte) {
		t.Helper()
		frame := forward.AppendRunHead(forward.AppendFrameHead(nil, forward.FrameRun, "id-orders", 0, 7, 1), epoch, first, floor, ever)
		if err := from.Take(append(frame, entries...)); err != nil {
			t.Fatal(err)
		}
		from.Flush()
	}
	// said waits for the next frame, and returns its kind and what it says.
	said := func() string {
		t.Helper()
		var frame []byte
		a.eventually("a frame comes back", func() bool {
			out.mu.Lock()
			defer out.mu.Unlock()
			if len(out.frames) == 0 {
				return false
			}
			frame, out.frames = out.frames[0], out.frames[1:]
			return true
		})
		h, rest, err := forward.ParseFrameHead(frame)
		if err != nil {
			t.Fatal(err)
		}
		text := map[forward.FrameKind]string{forward.FrameAgain: "again", forward.FrameReady: "ready", forward.FrameAnswers: "answers"}[h.Kind]
		for len(rest) > 0 {
			var i forward.Answer
			if i, rest, err = forward.ParseAnswer(rest); err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintf(" %d+%d@%d%s", i.Seq, i.Count, i.Offset, i.Refusal)
		}
		return text
	}
	// both are what is known already, and what the disk has to take first: that may be quicker.
	both := func(known, fresh string) {
		t.Helper()
		got := []string{said(), said()}
		slices.Sort(got)
		if !slices.Equal(got, []string{known, fresh}) {
			t.Errorf("answered %q", got)
		}
	}
	send(1, 1, 1, 1, entries(1, 3))
	a.expect(said(), "answers 1+3@1")
	send(1, 5, 2, 5, entries(5, 6)) // 4 was lost
	a.expect(said(), "again")
	send(1, 2, 2, 5, entries(2, 6))
	both("answers 2+2@2", "answers 4+3@4")
	send(9, 7, 7, 7, entries(7, 7)) // of an epoch that it hasn't heard of
	a.expect(said(), "again")

	n.kill(0)
	n.start(0)
	n.elect(0, 0)
	n.tell()
	a.open("orders")
	out.frames = nil
	from = a.service.Attach("broker-z", out)
	send(1, 7, 7, 7, entries(7, 7)) // for the leader in its life before
	a.expect(said(), "again")
	send(2, 4, 4, 8, entries(4, 8))
	both("answers 4+3@4", "answers 7+2@7")
	// A leader that has not seen everything that was kept takes what can't have been, since its
	// source had less that was; and it refuses what might have been.
	shard := a.service.Topic("orders").Shard()
	shard.mu.Lock()
	shard.origins.Since = forward.Mono()
	shard.mu.Unlock()
	send(2, 9, 9, 11, entries(9, 10))
	a.expect(said(), "answers 9+2@9")
	shard.mu.Lock()
	shard.origins.Reset(forward.Mono())
	shard.mu.Unlock()
	send(2, 11, 11, 12, entries(11, 12))
	both("answers 11+1@0"+`no: topic orders: it isn't known any more whether the message was kept; publish it again, with a message id if it must not be kept twice`,
		"answers 12+1@11")
	// What was answered to an earlier life is nothing to this one.
	if err := from.Take(forward.AppendFrameHead(nil, forward.FrameAgain, "id-orders", 0, a.service.senders.Source()+1, 1)); err != nil {
		t.Error(err)
	}
	for _, garbage := range [][]byte{nil, {1}, {1, 200}, bytes.Repeat([]byte{9}, 64), forward.AppendFrameHead(nil, forward.FrameRun, "id-orders", 0, 7, 1)} {
		if from.Take(garbage) == nil {
			t.Errorf("%v is taken", garbage)
		}
	}
}

// TestAFullOutboxRefuses: an outbox for a leader that does not answer is bounded, and further
// messages are refused.
func TestAFullOutboxRefuses(t *testing.T) {
	t.Parallel()
	c, a, b, _ := three(t)
	_, back, cut := join(b, a)
	back.set(func() { back.deaf = true })
	var releases []func()
	hold := func(bytes int64) {
		releases = append(releases, b.service.senders.Hold(b.service.Topic("orders").shards[0].Leader(), bytes))
	}
	hold(sender.OutboxBytes)
	if b.hub.publish(message("orders.a", "r1", "one")) {
		t.Error("a publisher waits although its shard has hardly anything")
	}
	f := b.service.Topic("orders").shards[0].out.Load()
	f.SetPatience(time.Hour) // what is too old would leave room
	hold(sender.OutboxBytes / 2)
	if !b.hub.publish(message("orders.a", "r2", "two")) {
		t.Error("a publisher is not asked to wait")
	}
	hold(sender.OutboxBytes / 2)
	full := "no: topic orders: not forwarded: more waits for its leader's answers than this broker keeps; publish more slowly, or try again when it is answered"
	b.expect(b.ask("orders.a", "x"), full)
	for _, release := range releases {
		release()
	}
	a.eventually("the leader has them", func() bool { return a.service.Topic("orders").Shard().Info().Last == 2 })
	cut()
	c.kill(0)
	c.tell()
	for range 9 { // without a leader there is less room
		b.hub.publish(message("orders.a", "", strings.Repeat("x", 1<<20)))
	}
	b.expect(b.ask("orders.a", "x"), full)
	// When it is too old, its publisher is told.
	f.SetPatience(0)
	if got := b.hub.answer(t, "r1"); !strings.Contains(got, "it isn't known whether the message was kept") {
		t.Errorf("answered %q", got)
	}
	b.eventually("nothing is held", func() bool { return b.service.Stats().OutboxBytes == 0 })
}

// TestStoppingAndDeletingAnswerAllPublishers: a broker that stops answers the publishers whose
// messages it holds, and so does a broker whose Topic is deleted.
func TestStoppingAndDeletingAnswerAllPublishers(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(c *cluster, b *site){
		"stopping": func(_ *cluster, b *site) { _ = b.service.Close() },
		"deleted": func(_ *cluster, b *site) {
			b.remove("orders")
			b.tell()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, a, b, _ := three(t)
			_, back, _ := join(b, a)
			back.set(func() { back.deaf = true })
			b.hub.publish(message("orders.a", "r", "x"), message("orders.a", "", "nobody asks"))
			then(c, b)
			if got := b.hub.answer(t, "r"); !strings.HasPrefix(got, "no: topic orders: ") {
				t.Errorf("answered %q", got)
			}
		})
	}
}

// TestALeaderForgetsSilentSenders: a leader forgets senders that have been silent for long, and
// takes what they send later as new.
func TestALeaderForgetsSilentSenders(t *testing.T) {
	t.Parallel()
	_, a, b, other := three(t)
	join(b, a)
	join(other, a)
	for i, n := range []*site{a, b, other} {
		a.expect(n.ask("orders.a", n.self), fmt.Sprintf("orders@%d", i+1))
	}
	shard := a.service.Topic("orders").Shard()
	sources := func() int {
		shard.mu.Lock()
		defer shard.mu.Unlock()
		return shard.origins.Sources()
	}
	if got := sources(); got != 3 {
		t.Fatalf("it knows %d senders", got)
	}
	for range 2 {
		shard.forgetSources(forward.Mono())
	}
	if got := sources(); got != 0 || a.service.Stats().Sources != 0 {
		t.Errorf("it still knows %d senders, and counts %d", got, a.service.Stats().Sources)
	}
	for i, n := range []*site{a, b, other} {
		a.expect(n.ask("orders.a", "again"), fmt.Sprintf("orders@%d", i+4))
	}
}
