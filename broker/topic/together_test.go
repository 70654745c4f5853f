package topic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// takesBatches declares that orders takes atomic batches.
func (n *site) takesBatches(change func(*coordination.TopicSpec)) {
	n.topic("orders", func(s *coordination.TopicSpec) {
		if s.Stream.AllowAtomic = true; change != nil {
			change(s)
		}
	})
}

// part is a message of a batch, as "subject payload header header", of which payload - is none. end
// is the last one's: "commit", "end" or nothing.
func part(id string, sequence int, reply, of, end string) protocol.Message {
	fields := strings.Fields(of)
	headers := []string{strings.TrimSpace(fmt.Sprintf("Batch: %s %d %s", id, sequence, end))}
	for _, h := range fields[2:] {
		headers = append(headers, strings.Replace(h, ":", ": ", 1))
	}
	return message(fields[0], reply, strings.TrimPrefix(fields[1], "-"), headers...)
}

// parts are the messages of a batch. The last one commits it, and is answered.
func parts(id, reply string, of ...string) (all []protocol.Message) {
	for i := range of[:len(of)-1] {
		all = append(all, part(id, i+1, "", of[i], ""))
	}
	return append(all, part(id, len(of), reply, of[len(of)-1], "commit"))
}

// batch publishes a batch in one read, and returns the answer to its commit.
func (n *site) batch(id string, of ...string) string {
	n.t.Helper()
	n.revision++
	reply := fmt.Sprintf("_INBOX.batch.%d", n.revision)
	n.hub.publish(parts(id, reply, of...)...)
	return n.hub.answer(n.t, reply)
}

func (n *site) has(want ...string) {
	n.t.Helper()
	if got := n.read("orders"); !slices.Equal(got, want) {
		n.t.Fatalf("it has %q, want %q", got, want)
	}
}

// TestABatchIsKeptTogether: nothing of it is there before its commit, and then all is, with one
// answer; messages before and behind it in the same read keep their places.
func TestABatchIsKeptTogether(t *testing.T) {
	n := newSite(t)
	n.takesBatches(func(s *coordination.TopicSpec) { s.Deduplication = 1 << 40 })
	n.serve("orders")
	n.expect(n.ask("orders.a", "1"), "orders@1")
	n.hub.publish(part("x", 1, "r1", "orders.a 2", ""), part("x", 2, "", "orders.b 3 Id:three", ""))
	n.expect(n.hub.answer(t, "r1"), "")
	n.has("1 orders.a 1")
	n.hub.publish(message("orders.c", "r2", "first"), part("x", 3, "r3", "orders.a 4", "commit"), message("orders.c", "r4", "last"))
	n.expect(n.hub.answer(t, "r2"), "orders@2")
	n.expect(n.hub.answer(t, "r3"), "orders@5/3 x")
	n.expect(n.hub.answer(t, "r4"), "orders@6")
	n.hub.publish(part("y", 1, "", "orders.a 7", ""), part("y", 2, "r5", "orders.a -", "end"))
	n.expect(n.hub.answer(t, "r5"), "orders@7/1 y")
	want := []string{"1 orders.a 1", "2 orders.c first", "3 orders.a 2", "4 orders.b 3", "5 orders.a 4", "6 orders.c last", "7 orders.a 7"}
	n.has(want...)
	last, err := n.leaderOf("orders").Get(7)
	if err != nil || !strings.Contains(string(last.Data[:last.Header]), "Committed: yes") {
		t.Errorf("the last message is %q (%v)", last.Data, err)
	}
	n.restart("orders")
	n.has(want...)
	n.expect(n.ask("orders.a", "again", "Id: three"), "orders@4 again")
	n.expect(n.batch("z", "orders.a 8 Id:eight", "orders.a 9 Id:three"), "no: topic orders: a message id in the batch is known")
	n.expect(n.batch("z", "orders.a 8 Id:eight", "orders.a 9 Id:eight"), "no: topic orders: a message id in the batch is known")
	n.expect(n.ask("orders.a", "8", "Id: eight"), "orders@8")
}

// TestARefusedBatchLeavesNothing: one of its messages can't be kept, so none is.
func TestARefusedBatchLeavesNothing(t *testing.T) {
	n := newSite(t)
	n.takesBatches(func(s *coordination.TopicSpec) {
		s.Stream.DiscardNew, s.Stream.DiscardNewPerSubject, s.Stream.MaxPerSubject, s.Retention.Messages = true, true, 3, 6
		s.Stream.AllowRollup = true
	})
	n.serve("orders")
	n.expect(n.batch("x", "orders.a 1 Expect-Last:0", "orders.b 2 Expect-Last-By-Subject:0"), "orders@2/2 x")
	for _, refused := range []struct {
		why   string
		parts []string
	}{
		{"the last message is at offset 2", []string{"orders.a 3 Expect-Last:1", "orders.b 4"}},
		{"a message of the batch expects what the batch changes", []string{"orders.a 3", "orders.b 4 Expect-Last:3"}},
		{"the last message is at offset 3", []string{"orders.a 3", "orders.b 4 Expect-Last:2"}},
		{"the last message of subject orders.b is at offset 2", []string{"orders.a 3", "orders.b 4 Expect-Last-By-Subject:1"}},
		{"a message of the batch expects what the batch changes", []string{"orders.a 3", "orders.a 4 Expect-Last-By-Subject:1"}},
		{"a message of the batch asks for Nats-Expected-Last-Msg-Id", []string{"orders.a 3", "orders.a 4 Expect-Last-Id:1"}},
		{"has 3 messages per subject", []string{"orders.a 3", "orders.a 4", "orders.a 5"}},
		{"has 6 messages", []string{"orders.a 3", "orders.c 4", "orders.d 5", "orders.e 6", "orders.f 7"}},
		{"batch rollup sub invalid", []string{"orders.a 3", "orders.a 4 Rollup:sub"}},
		{"a message of the batch asks for Nats-Rollup of a subject with wildcards", []string{"orders.c 3", "orders.* 4 Rollup:sub"}},
		{"a message of the batch asks for Nats-Expected-Last-Subject-Sequence of a subject with wildcards", []string{"orders.c 3", "orders.* 4 Expect-Last-By-Subject:2"}},
		{"batch rollup all invalid", []string{"orders.a 3", "orders.b 4 Rollup:all"}},
		{"messages may not have a TTL", []string{"orders.a 3", "orders.b 4 TTL:1h"}},
	} {
		if got := n.batch("y", refused.parts...); !strings.HasPrefix(got, "no: ") || !strings.Contains(got, refused.why) {
			t.Errorf("%q was answered %q, want %q", refused.parts, got, refused.why)
		}
	}
	n.has("1 orders.a 1", "2 orders.b 2")
	n.expect(n.batch("y", "orders.a 3 Expect-Last-By-Subject:1", "orders.b 4 Rollup:sub Expect-Last-By-Subject:2", "orders.a 5"), "orders@5/3 y")
	n.expect(n.ask("orders.a", "6", "Batch: z 1"), "")
	n.shows("at the end", "1 orders.a", "3 orders.a", "4 orders.b", "5 orders.a")
}

// TestABatchOfManySubjectsIsPublishedAgain: more last messages are looked for than at once. All of
// them are found before anything of the batch is noted.
func TestABatchOfManySubjectsIsPublishedAgain(t *testing.T) {
	n, l := newSite(t), &listener{}
	n.again = l
	n.takesBatches(again)
	n.serve("orders")
	s := n.leaderOf("orders")
	s.mu.Lock()
	s.subjects = n.service.indexes.NewLasts(s.Removed(), s.LastBelow, func(context.Context, uint64, func(), func([]byte, uint64) bool) error {
		return &indexing.NotReadyError{Why: "a stream of many subjects is not loaded"}
	}, s.OldestBelow, s.MatchingBelow, s.shard.announceOpen)
	s.mu.Unlock()
	var of, want []string
	for i := range 3*lookupMessages + 1 {
		of = append(of, fmt.Sprintf("orders.%d x", i))
		want = append(want, fmt.Sprintf("again.orders.%d x: %d 0", i, i+1))
	}
	n.expect(n.batch("x", of...), fmt.Sprintf("orders@%d/%d x", len(of), len(of)))
	l.hears(n, "a batch", want...)
}

// TestARefusedBatchKeepsWhatIsKnown: the last message of another subject is not looked for again.
func TestARefusedBatchKeepsWhatIsKnown(t *testing.T) {
	n := newSite(t)
	n.takesBatches(func(s *coordination.TopicSpec) {
		s.Stream.DiscardNew, s.Retention.Messages = true, 4
	})
	n.serve("orders")
	n.expect(n.ask("orders.a", "1", "Expect-Last-By-Subject: 0"), "orders@1")
	n.expect(n.ask("orders.b", "2", "Expect-Last-By-Subject: 0"), "orders@2")
	if got := n.batch("x", "orders.b 3 Expect-Last-By-Subject:2", "orders.c 4", "orders.d 5"); !strings.Contains(got, "has 4 messages") {
		t.Fatal(got)
	}
	s := n.leaderOf("orders")
	s.mu.Lock()
	for of, want := range map[string]uint64{"orders.a": 1, "orders.b": 2} {
		if last, wait, err := s.subjects.Last([]byte(of)); last != want || wait > 0 || err != nil {
			t.Errorf("the last message of %s is %d (%d, %v), want %d", of, last, wait, err, want)
		}
	}
	s.mu.Unlock()
	n.expect(n.ask("orders.b", "3", "Expect-Last-By-Subject: 2"), "orders@3")
}

// TestNoCrashSplitsABatch: the power is cut at each step of an append. All of a batch is there, or
// nothing, and what was acknowledged is.
func TestNoCrashSplitsABatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	kept := map[int]int{}
	for step := range 12 {
		fs := crashfs.New()
		n := newSite(t)
		n.fs = fs
		n.takesBatches(nil)
		n.serve("orders")
		n.expect(n.batch("x", "orders.a 1", "orders.b 2"), "orders@2/2 x")
		fs.StopAfter(step)
		n.hub.publish(parts("y", "r", "orders.a 3", "orders.b 4", "orders.c 5")...)
		answer := n.hub.answer(t, "r")
		n.stop()
		n.fs = fs.Crash(rng)
		n.serve("orders")
		got := n.read("orders")
		kept[len(got)]++
		if len(got) != 2 && len(got) != 5 || len(got) == 2 && !strings.HasPrefix(answer, "no: ") {
			t.Errorf("cut at step %d it has %q, and the answer was %q", step, got, answer)
		}
		n.stop()
	}
	if len(kept) < 2 {
		t.Errorf("each crash ended in the same way: %v", kept)
	}
}

// TestBatchesGoOnWithTheNextLeader: leadership moves while batches are open or committed. Those in
// the next leader's log are acknowledged where they are, the others are sent to it, and open ones
// are committed there. None is there twice, or in part.
func TestBatchesGoOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.takesBatches(func(s *coordination.TopicSpec) { s.Replicas = 3 })
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	join(a, b)
	a.expect(a.batch("w", "orders.a 1", "orders.a 2"), "orders@2/2 w")
	a.hub.publish(part("open", 1, "r0", "orders.a o1", ""))
	a.expect(a.hub.answer(t, "r0"), "")
	c.alone(2) // so nothing is acknowledged
	a.hub.publish(append(parts("x", "rx", "orders.a 3", "orders.b 4"), message("orders.a", "r5", "5"))...)
	a.hub.publish(parts("one", "r6", "orders.a 6")...)
	b.ends(7)
	c.alone(0)
	a.hub.publish(parts("y", "ry", "orders.a 7", "orders.b 8", "orders.c 9")...)
	a.hub.publish(parts("z", "rz", "orders.a 7 Expect-Last:1", "orders.b 8")...)
	a.hub.publish(message("orders.a", "r10", "10"))
	a.ends(11)
	c.elect(1, 1, 2)
	c.tell()
	c.reach(0)
	c.reach(2)
	a.hub.publish(part("open", 2, "ro", "orders.b o2", "commit"))
	b.open("orders")
	for reply, want := range map[string]string{
		"rx": "orders@4/2 x", "r5": "orders@5", "r6": "orders@6/1 one", "ry": "orders@9/3 y", "r10": "orders@10", "ro": "orders@12/2 open",
		"rz": "no: topic orders: the last message is at offset 9",
	} {
		if got := a.hub.answer(t, reply); got != want {
			t.Errorf("%s was answered %q, want %q", reply, got, want)
		}
	}
	if got := b.values(); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "o1", "o2"}) {
		t.Errorf("kept %q", got)
	}
	a.eventually("nothing is held", func() bool { return a.service.Stats().OutboxMessages == 0 })
}

// TestARestartedLeaderKnowsItsBatches: the table of numbers is read from the log. A batch that is
// sent again is answered as the first time.
func TestARestartedLeaderKnowsItsBatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.takesBatches(func(s *coordination.TopicSpec) { s.Replicas = 3 })
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	_, back, cut := join(b, a)
	back.set(func() { back.deaf = true })
	b.hub.publish(parts("x", "rx", "orders.a 1", "orders.b 2", "orders.c 3")...)
	b.hub.publish(parts("y", "ry", "orders.a 4", "orders.b 5")...)
	a.eventually("the leader has them", func() bool { return a.service.Topic("orders").Shard().Info().Last == 5 })
	cut()
	c.kill(0)
	c.start(0)
	join(b, a)
	c.elect(0, 0, 1, 2)
	c.tell()
	a.open("orders")
	b.expect(b.hub.answer(t, "rx"), "orders@3/3 x")
	b.expect(b.hub.answer(t, "ry"), "orders@5/2 y")
	if got := a.values(); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("kept %q", got)
	}
}
