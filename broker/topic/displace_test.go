package topic

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// limits declares the limits of a Topic.
func (n *site) limits(change func(*coordination.StreamSettings)) {
	n.topic("orders", func(s *coordination.TopicSpec) { change(&s.Stream) })
}

// perSubject declares how many messages a subject has at most.
func (n *site) perSubject(limit int64) {
	n.limits(func(s *coordination.StreamSettings) { s.MaxPerSubject = limit })
}

// left returns what readers see of a Topic, without its removed records: "offset subject".
func left(t testing.TB, s *ShardLeader) (out []string) {
	t.Helper()
	start, end := s.Offsets()
	if done, err := s.Scan(start, end, math.MaxInt64, func(r *log.Record) bool {
		out = append(out, fmt.Sprintf("%d %s", r.Offset, r.Subject))
		return true
	}); err != nil || !done {
		t.Fatal(done, err)
	}
	return out
}

// shows waits until readers see what is wanted, and nothing else.
func (n *site) shows(when string, want ...string) {
	n.t.Helper()
	s := n.leaderOf("orders")
	testutil.Eventually(n.t, when, func() error {
		if got := left(n.t, s); !slices.Equal(got, want) {
			return fmt.Errorf("readers see %v, want %v", got, want)
		}
		return nil
	})
}

// TestAMessageRemovesTheOldestOfItsSubject: with each limit the newest messages of a subject are
// left as soon as the last one is acknowledged, and in the next lives, whoever reads what of the
// logs.
func TestAMessageRemovesTheOldestOfItsSubject(t *testing.T) {
	for limit, want := range map[int64][3][]string{
		1: {
			{"5 orders.b", "6 orders.a"},
			{"6 orders.a", "7 orders.b"},
			{"7 orders.b", "8 orders.a"},
		},
		2: {
			{"4 orders.a", "5 orders.b", "6 orders.a"},
			{"4 orders.a", "5 orders.b", "6 orders.a", "7 orders.b"},
			{"5 orders.b", "6 orders.a", "7 orders.b", "8 orders.a"},
		},
		3: {
			{"3 orders.a", "4 orders.a", "5 orders.b", "6 orders.a"},
			{"3 orders.a", "4 orders.a", "5 orders.b", "6 orders.a", "7 orders.b"},
			{"4 orders.a", "5 orders.b", "6 orders.a", "7 orders.b", "8 orders.a"},
		},
	} {
		n := newSite(t)
		n.perSubject(limit)
		n.serve("orders")
		for i, of := range []string{"a", "a", "a", "a", "b", "a"} {
			n.expect(n.ask("orders."+of, "x"), fmt.Sprintf("orders@%d", i+1))
		}
		if got := left(t, n.leaderOf("orders")); !slices.Equal(got, want[0]) {
			t.Errorf("limit %d: an acknowledged message has not removed others: %v", limit, got)
		}
		n.restart("orders")
		n.shows("after a restart", want[0]...)
		n.expect(n.ask("orders.b", "x"), "orders@7")
		n.shows("in the second life", want[1]...)
		n.restart("orders")
		n.shows("in the third life", want[1]...)
		n.expect(n.ask("orders.a", "x"), "orders@8")
		n.shows("in the third life", want[2]...)
		n.crash()
		n.serve("orders")
		n.shows("after a crash", want[2]...)
	}
}

// TestARefusedMessageLeavesNothingToTheNextOnes: what it noted before it was refused is not carried
// by the next batch, which may be another shard's.
func TestARefusedMessageLeavesNothingToTheNextOnes(t *testing.T) {
	n := newSite(t)
	n.perSubject(1)
	n.serve("orders")
	in := &intake{}
	in.removed.Unlimited(&n.leaderOf("orders").removing, log.Synced)
	in.finish(n.leaderOf("orders").shard)
	if carried, _ := in.removed.Carry(&n.leaderOf("orders").removing, 1, nil); len(carried) > 0 {
		t.Errorf("the next batch carries %d extensions", len(carried))
	}
}

// TestOneReadOfManyMessagesKeepsTheLimit: messages of one batch remove each other, and those of the
// batch before, which is not committed yet.
func TestOneReadOfManyMessagesKeepsTheLimit(t *testing.T) {
	for _, limit := range []int64{1, 2, 5} {
		n := newSite(t)
		n.perSubject(limit)
		n.serve("orders")
		next := uint64(1)
		var want []string
		for read := range 20 {
			var messages []protocol.Message
			for i := range 64 {
				of := fmt.Sprintf("orders.%d", (i+read)%3)
				messages = append(messages, message(of, fmt.Sprintf("r%d.%d", read, i), "x"))
				want = append(want, fmt.Sprintf("%d %s", next, of))
				next++
			}
			n.hub.publish(messages...)
		}
		n.hub.answer(t, "r19.63")
		counts := map[string]int64{}
		slices.Reverse(want)
		want = slices.DeleteFunc(want, func(line string) bool {
			of := strings.Fields(line)[1]
			counts[of]++
			return counts[of] > limit
		})
		slices.Reverse(want)
		n.shows(fmt.Sprintf("with a limit of %d", limit), want...)
		n.restart("orders")
		n.shows(fmt.Sprintf("with a limit of %d after a restart", limit), want...)
	}
}

// TestTheRecordsOfOneMessageKeepTheLimit: a message may carry more records than its subject may
// have.
func TestTheRecordsOfOneMessageKeepTheLimit(t *testing.T) {
	for limit, want := range map[int64][]string{
		1: {"9 orders.b", "12 orders.a"},
		3: {"8 orders.b", "9 orders.b", "10 orders.a", "11 orders.a", "12 orders.a"},
	} {
		n := newSite(t)
		n.perSubject(limit)
		n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
		n.serve("orders")
		n.ask("orders.a", "x")
		n.expect(n.ask("orders.a", prefixed(numbered(5)...), "Records: 5"), "orders@6/5")
		n.ask("orders.b", "x")
		n.expect(n.ask("orders.b", prefixed(numbered(2)...), "Records: 2"), "orders@9/2")
		n.expect(n.ask("orders.a", prefixed(numbered(3)...), "Records: 3"), "orders@12/3")
		if limit == 3 {
			want = slices.Insert(want, 0, "7 orders.b")
		}
		n.shows("with records", want...)
		n.expect(n.ask("orders.a", prefixed(numbered(6)...), "Records: 6", "Rollup: sub"), "orders@18/6")
		if limit == 3 {
			want = []string{"7 orders.b", "8 orders.b", "9 orders.b", "16 orders.a", "17 orders.a", "18 orders.a"}
		} else {
			want = []string{"9 orders.b", "18 orders.a"}
		}
		n.shows("after a rollup with records", want...)
		n.restart("orders")
		n.shows("after a restart", want...)
	}
}

// TestRollups: a message removes the older ones of its subject, or all, if the Topic permits it.
func TestRollups(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.expect(n.ask("orders.a", "x", "Rollup: sub"), "no: rollup not permitted")
	n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
	n.tell()
	n.eventually("rollups are permitted", func() bool { return n.leaderOf("orders").shard.view.Load().limits.RollUps })
	for _, of := range []string{"a", "b", "a", "a"} {
		n.ask("orders."+of, "x")
	}
	n.ask("orders.a", "x", "Rollup: sub")
	n.shows("the subject is rolled up", "2 orders.b", "5 orders.a")
	n.restart("orders")
	n.hub.publish(message("orders.b", "", "x"), message("orders.b", "", "x", "Rollup: all"), message("orders.a", "r", "x"))
	n.hub.answer(t, "r")
	n.shows("all is rolled up", "7 orders.b", "8 orders.a")
	n.expect(n.ask("orders.a", "x", "Rollup: sub", "Expect-Last-By-Subject: 7"), "no: topic orders: the last message of subject orders.a is at offset 8")
	n.restart("orders")
	n.shows("a refused rollup removes nothing", "7 orders.b", "8 orders.a")
}

// TestARollupOfManyMessages: all are removed with one batch.
func TestARollupOfManyMessages(t *testing.T) {
	n := newSite(t)
	n.options = log.Options{}
	n.limits(func(s *coordination.StreamSettings) { s.AllowRollup = true })
	n.serve("orders")
	const many = 3 * 4096
	for at := 0; at < many; at += 512 {
		var read []protocol.Message
		for i := range 512 {
			read = append(read, message(fmt.Sprintf("orders.%c", 'a'+i%2), "", "x"))
		}
		n.hub.publish(read...)
	}
	n.expect(n.ask("orders.a", "x", "Rollup: sub"), fmt.Sprintf("orders@%d", many+1))
	if got := n.leaderOf("orders").Removed().Len(); got != many/2 {
		t.Errorf("%d are removed, want %d", got, many/2)
	}
	n.restart("orders")
	if got := n.leaderOf("orders").Removed().Len(); got != many/2 {
		t.Errorf("%d are removed after a restart, want %d", got, many/2)
	}
}

// TestAFullSubjectRefuses: with discard new per subject the new message is refused, until there is
// room; a message that was kept before is answered again.
func TestAFullSubjectRefuses(t *testing.T) {
	n := newSite(t)
	n.limits(func(s *coordination.StreamSettings) {
		s.MaxPerSubject, s.DiscardNew, s.DiscardNewPerSubject = 2, true, true
	})
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = time.Minute })
	n.serve("orders")
	n.expect(n.ask("orders.a", "x", "Id: 1"), "orders@1")
	n.expect(n.ask("orders.a", "x"), "orders@2")
	if got := n.ask("orders.a", "x"); !strings.Contains(got, "messages per subject") {
		t.Error(got)
	}
	if got := n.ask("orders.b", prefixed("a", "b", "c"), "Records: 3"); !strings.Contains(got, "messages per subject") {
		t.Error(got)
	}
	n.expect(n.ask("orders.a", "x", "Id: 1"), "orders@1 again")
	if err := n.erase(n.leaderOf("orders"), 2); err != nil {
		t.Fatal(err)
	}
	n.expect(n.ask("orders.a", "x"), "orders@3")
	n.shows("with room", "1 orders.a", "3 orders.a")
}

// TestWildcardsInASubjectAreNoWildcards: such a message is stored under that subject, and its limit
// concerns no other subject.
func TestWildcardsInASubjectAreNoWildcards(t *testing.T) {
	n := newSite(t)
	n.perSubject(1)
	n.serve("orders")
	var read []protocol.Message
	var want []string
	for i := range 100 {
		read = append(read, message(fmt.Sprintf("orders.$%d", i), "", "x")) // in front of the asterisk
		want = append(want, fmt.Sprintf("%d orders.$%d", i+1, i))
	}
	for range 200 {
		read = append(read, message("orders.*", "", "x"))
	}
	n.hub.publish(read...)
	n.ask("orders.end", "x")
	n.shows("in the end", append(want, "300 orders.*", "301 orders.end")...)
}

// TestLimitsThatAreLoweredAndRaised: messages beyond a lower limit are removed in the background,
// and with a higher one no more are.
func TestLimitsThatAreLoweredAndRaised(t *testing.T) {
	t.Parallel()
	n := newSite(t)
	n.serve("orders")
	var all []string
	put := func(subjects ...string) {
		for _, of := range subjects {
			n.ask("orders."+of, "x")
			all = append(all, fmt.Sprintf("%d orders.%s", len(all)+1, of))
		}
	}
	put("a", "b", "a", "a", "a", "b")
	n.shows("without a limit", all...)
	n.perSubject(3)
	n.tell()
	n.shows("with a limit of 3", all[1:]...)
	n.perSubject(1)
	n.tell()
	n.shows("with a limit of 1", all[4:]...)
	n.perSubject(2)
	n.tell()
	n.eventually("the limit is 2", func() bool { return n.leaderOf("orders").shard.view.Load().limits.PerSubject == 2 })
	put("a", "b", "b")
	want := []string{all[4], all[6], all[7], all[8]}
	n.shows("with a limit of 2", want...)
	n.restart("orders")
	n.shows("with a limit of 2 after a restart", want...)
	n.perSubject(1)
	n.stop()
	n.serve("orders")
	n.shows("lowered while it was down", all[6], all[8])
}

// TestMessagesThatAFormerLimitJudgesAreLimited: the limit is lowered, and enforced, between the
// moment when a sender looks at it and the one when its messages are appended.
func TestMessagesThatAFormerLimitJudgesAreLimited(t *testing.T) {
	t.Parallel()
	for _, was := range []int64{0, 3} {
		n := newSite(t)
		n.perSubject(was)
		n.serve("orders")
		n.ask("orders.a", "x")
		s := n.leaderOf("orders")
		former := s.shard.view.Load()
		n.perSubject(1)
		n.tell()
		n.eventually("the limit is enforced", func() bool {
			limit, _ := s.removing.Limiting(1, math.MaxUint64)
			return s.shard.view.Load().limits.PerSubject == 1 && limit == 0
		})
		in := &intake{sourced: copied(1, 2)}
		in.sourced.Messages = []protocol.Message{message("orders.a", "", "y"), message("orders.a", "", "z")}
		n.eventually("they are appended", func() bool { // they may wait for the index
			return len(s.appendMessages(in, former, in.sourced.Rest())) == 0 || in.sourced.Err != nil
		})
		testutil.Must(t, in.sourced.Err)
		n.shows("with a limit of 1", "3 orders.a")
	}
}

// acked is a model of what a Topic with a limit shows: the newest acknowledged messages of each
// subject.
type acked map[string][]int

func (a acked) put(of, answer string, limit int) {
	offset, err := strconv.Atoi(strings.TrimPrefix(answer, "orders@"))
	if err != nil {
		panic(answer)
	}
	a[of] = append(a[of], offset)
	a[of] = a[of][max(0, len(a[of])-limit):]
}

func (a acked) left() (out []string) {
	at := map[int]string{}
	for of, offsets := range a {
		for _, offset := range offsets {
			at[offset] = of
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(at)) {
		out = append(out, fmt.Sprintf("%d %s", offset, at[offset]))
	}
	return out
}

// TestTheNextLeaderShowsWhatWasAcknowledged: leaders die right after an ack, one after the other,
// and return. Each shows the newest messages of each subject up to its limit, and nothing else.
func TestTheNextLeaderShowsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			c := newCluster(t, 3)
			for _, n := range c.sites {
				n.perSubject(int64(limit))
			}
			rng := rand.New(rand.NewPCG(uint64(limit), 1))
			c.begin()
			model := acked{}
			publish := func(n *site, messages int) {
				for range messages {
					of := fmt.Sprintf("orders.%c", 'a'+rng.IntN(4))
					model.put(of, n.ask(of, "x"), limit)
				}
			}
			for life := range 7 {
				i := life % 3
				publish(c.sites[i], 1+rng.IntN(12))
				if life == 3 { // with one replica away
					away := (i + 1) % 3
					c.kill(away)
					c.settle("the other two are the set", func() bool { return len(c.inSync()) == 2 })
					publish(c.sites[i], 9)
					c.start(away)
					c.settle("all are in sync again", func() bool { return len(c.inSync()) == 3 })
				}
				c.kill(i)
				next := (i + 1) % 3
				c.elect(next, next, (i+2)%3)
				c.tell()
				c.sites[next].open("orders")
				c.sites[next].shows(fmt.Sprintf("leader %d", life+2), model.left()...)
				c.start(i)
				c.settle("all are in sync", func() bool { return len(c.inSync()) == 3 })
			}
		})
	}
}

// TestShardsLimitTheirOwnSubjects: each subject is in one shard, so its limit holds. No shard can
// remove the messages of all.
func TestShardsLimitTheirOwnSubjects(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) {
		s.Shards, s.Stream.MaxPerSubject, s.Stream.AllowRollup = 3, 2, true
	})
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n.placeShard("orders", i, self)
	}
	n.tell()
	n.open("orders")
	for i := range 60 {
		n.ask(fmt.Sprintf("orders.%d", i%10), "x")
	}
	if got := n.ask("orders.1", "x", "Rollup: all"); !strings.HasPrefix(got, "no: ") {
		t.Error(got)
	}
	counts := map[string]int{}
	for _, p := range n.service.Topic("orders").shards {
		n.eventually("it is led", func() bool { return p.Led() != nil })
		for _, line := range left(t, p.Led()) {
			counts[strings.Fields(line)[1]]++
		}
	}
	for i := range 10 {
		if got := counts[fmt.Sprintf("orders.%d", i)]; got != 2 {
			t.Errorf("orders.%d has %d messages", i, got)
		}
	}
}

// TestACopiedRollupThatAShardCantServe is kept, and removes nothing: a refusal would hold up its
// source for ever.
func TestACopiedRollupThatAShardCantServe(t *testing.T) {
	rollups := func(of string) *sourcing.Batch {
		b := copied(1, 4)
		b.Messages = []protocol.Message{
			message(of, "", "all", "Rollup: all"), message("orders.*", "", "pattern", "Rollup: sub"),
			message(of, "", "subject", "Rollup: sub"), message(of, "", "plain"),
		}
		return b
	}
	t.Run("several shards", func(t *testing.T) {
		n := newSite(t)
		n.copying(func(s *coordination.TopicSpec) { s.Shards, s.Stream.AllowRollup = 2, true })
		testutil.Must(t, n.start())
		for i := range 2 {
			n.placeShard("orders", i, self)
		}
		n.tell()
		n.open("orders")
		shard := n.service.Topic("orders").shards[0]
		var own []string // of this shard
		for i := range 10 {
			subject := fmt.Sprintf("orders.%d", i)
			n.ask(subject, "x")
			if n.service.Topic("orders").ShardFor([]byte(subject)) == shard {
				own = append(own, subject)
			}
		}
		b := rollups(own[0])
		n.eventually("the copies", func() bool {
			b.Wait = false
			shard.Led().AppendSourced(b)
			return b.Err != nil || b.Taken == len(b.Messages)
		})
		testutil.Must(t, b.Err)
		// The rollup of one subject removes its messages, the copy of the first rollup included.
		n.eventually("all others", func() bool { return len(left(t, shard.Led())) == len(own)-1+3 })
	})
	t.Run("too many messages", func(t *testing.T) {
		n := copying(t, func(s *coordination.TopicSpec) { s.Stream.AllowRollup = true })
		for range 17 {
			n.ask("orders.many", prefixed(numbered(4096)...), "Records: 4096")
		}
		b := rollups("orders.one")
		b.Messages = b.Messages[1:2]
		b.Sequences = b.Sequences[:1]
		n.take(b)
		n.expect(n.ask("orders.last", "x"), fmt.Sprintf("orders@%d", 17*4096+2))
		if got := n.leaderOf("orders").Removed().Len(); got != 0 {
			t.Errorf("%d messages are removed", got)
		}
	})
}

// TestAMessageThatCantBeLimitedIsKept: while the index is not ready messages are kept beyond their
// limit, and removed once it is.
func TestAMessageThatCantBeLimitedIsKept(t *testing.T) {
	n := newSite(t)
	n.perSubject(1)
	n.serve("orders")
	s := n.leaderOf("orders")
	n.ask("orders.a", "x")
	s.mu.Lock() // as displaces does when a lookup fails
	_ = s.limitUnknown(&intake{}, s.shard.view.Load(), context.DeadlineExceeded)
	s.mu.Unlock()
	if limit, _ := s.removing.Limiting(1, math.MaxUint64); limit != 1 {
		t.Error("the limit is not enforced")
	}
	n.eventually("it is enforced", func() bool { limit, _ := s.removing.Limiting(1, math.MaxUint64); return limit == 0 })
	if err := s.limitUnknown(&intake{}, &view{limits: publish.Limits{DiscardNew: true}}, context.DeadlineExceeded); err == nil {
		t.Error("a message is kept that may be beyond a limit that refuses")
	}
}

// TestALimitOfMessagesCountsWhatIsLeft: a message that removes another one takes no place of a
// third, also for those that read while it becomes readable.
func TestALimitOfMessagesCountsWhatIsLeft(t *testing.T) {
	n := newSite(t)
	n.perSubject(1)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 10 })
	n.serve("orders")
	var want []string
	for i := range 9 {
		n.ask(fmt.Sprint("orders.", i), "x")
		want = append(want, fmt.Sprintf("%d orders.%d", i+1, i))
	}
	n.ask("orders.x", "x")
	s := n.leaderOf("orders")
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.Offsets()
			}
		}
	})
	for i := range 500 {
		n.hub.publish(message("orders.x", fmt.Sprint("r", i), "x"), message("orders.x", "", "x"))
		if i%7 == 0 {
			n.hub.answer(t, fmt.Sprint("r", i))
		}
	}
	n.ask("orders.x", "x")
	close(stop)
	reading.Wait()
	n.shows("in the end", append(want, "1011 orders.x")...)
}

// TestASubjectWithALimitIsNeverEmpty: whoever asks for the last message of a subject meets the old
// one or the new one, while messages replace each other.
func TestASubjectWithALimitIsNeverEmpty(t *testing.T) {
	c := newCluster(t, 2)
	for _, n := range c.sites {
		n.perSubject(1)
	}
	c.begin()
	n := c.sites[0]
	n.ask("orders.x", "x")
	s := n.leaderOf("orders")
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.LastFor("orders.x"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 1000 {
		reply := fmt.Sprint("r", i)
		n.hub.publish(message("orders.x", reply, "x"))
		if i%3 == 0 {
			n.hub.answer(t, reply)
		}
	}
	n.ask("orders.x", "x")
	close(stop)
	asking.Wait()
}

// TestASealedTopicSaysSo: also to a message that asks for what it does not allow.
func TestASealedTopicSaysSo(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Stream.DiscardNew, s.Stream.Sealed = true, true })
	n.serve("orders")
	for _, header := range []string{"Trace: 1", "Rollup: sub", "Expect-Last-By-Subject: 5"} {
		if got := n.ask("orders.a", "x", header); !strings.Contains(got, "is sealed") {
			t.Errorf("%s: %s", header, got)
		}
	}
}
