package topic

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func (c plainCodec) IsFast(reply []byte) bool {
	_, ok := c.Fast(reply, nil)
	return ok
}

// Fast reads "fast id sequence", with "commit" behind it: of a batch that ends with a gap.
func (plainCodec) Fast(reply, _ []byte) (p publish.FastPart, ok bool) {
	rest, ok := bytes.CutPrefix(reply, []byte("fast "))
	if !ok {
		return p, false
	}
	fields := bytes.Fields(rest)
	p.Batch, p.Flow = fields[0], 100
	p.Sequence, _ = strconv.ParseUint(string(fields[1]), 10, 64)
	if len(fields) > 2 {
		p.Op = publish.FastCommit
	}
	return p, true
}

func (plainCodec) AppendFlow(dst []byte, sequence uint64, every uint16) []byte {
	return fmt.Appendf(dst, "ack %d", sequence)
}

func (plainCodec) AppendGap(dst []byte, expected, came uint64) []byte {
	return fmt.Appendf(dst, "gap %d %d", expected, came)
}

func (plainCodec) AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte {
	return fmt.Appendf(dst, "err %d %s", sequence, refusal)
}

func (n *site) takesFastBatches() {
	n.topic("orders", func(s *coordination.TopicSpec) {
		s.Stream.AllowBatched, s.Stream.AllowAtomic, s.Replicas = true, true, 3
	})
}

// fastParts are messages of a fast batch from a sequence on. The last one commits it if it says so.
func fastParts(id string, from int, of ...string) (all []protocol.Message) {
	for i, data := range of {
		header := []string{}
		if data == "refused" {
			header = []string{"Expect-Last: 99"}
		}
		reply := fmt.Sprint("fast ", id, " ", from+i)
		if data == "last" {
			reply += " commit"
		}
		all = append(all, message("orders.a", reply, data, header...))
	}
	return all
}

// said returns the answers to a message of a fast batch, once there are so many.
func (n *site) answers(reply string, count int) []string {
	n.t.Helper()
	n.hub.await(n.t, "the answers to "+reply, func() bool { return len(n.hub.answers[reply]) >= count })
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	return slices.Clone(n.hub.answers[reply])
}

// TestNothingIsKeptBehindARefusedMessageOfItsFastBatch: although all were sent to the leader before
// it judged the first. Other messages between them are kept, and another batch is.
func TestNothingIsKeptBehindARefusedMessageOfItsFastBatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.takesFastBatches()
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	join(b, a)
	for _, n := range []*site{a, b} { // the leader itself, and another broker
		kept := len(a.values())
		read := fastParts("x", 1, "1", "refused", "3", "4")
		read = append(read, fastParts("y", 1, "y1")...)
		read = append(read, message("orders.a", "r "+n.self, "other"))
		read = append(read, fastParts("x", 5, "5", "last")...)
		read = append(read, fastParts("y", 2, "last")...)
		n.hub.publish(read...)
		n.expect(n.hub.answer(t, "r "+n.self), fmt.Sprintf("orders@%d", kept+3))
		if got, want := n.answers("fast x 6 commit", 2), []string{"err 2 no: topic orders: the last message is at offset ", "orders@"}; len(got) != 2 ||
			got[0] != want[0]+fmt.Sprint(kept+1) || got[1] != want[1]+fmt.Sprintf("%d/1 x", kept+1) {
			t.Errorf("the batch was answered %q", got)
		}
		n.expect(n.hub.answer(t, "fast y 2 commit"), fmt.Sprintf("orders@%d/2 y", kept+4))
		if got := a.values()[kept:]; !slices.Equal(got, []string{"1", "y1", "other", "last"}) {
			t.Errorf("kept %q", got)
		}
	}
}

// TestAFastBatchGoesOnWithTheNextLeader: its messages that the next leader has are acknowledged
// where they are, and the others are sent to it. It judges anew what the former leader refused, if
// nobody knows that, and keeps nothing behind it if it refuses it, too.
func TestAFastBatchGoesOnWithTheNextLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.sites {
		n.takesFastBatches()
	}
	c.begin()
	a, b := c.sites[0], c.sites[1]
	join(a, b)
	a.hub.publish(fastParts("x", 1, "1", "2")...)
	a.hub.publish(fastParts("z", 1, "z1")...)
	a.ends(4)
	c.alone(2) // so nothing is acknowledged
	a.hub.publish(fastParts("x", 3, "3", "4")...)
	b.ends(6)
	c.alone(0)
	a.hub.publish(fastParts("x", 5, "5", "6")...)
	a.hub.publish(fastParts("z", 2, "z2", "refused", "z4", "last")...)
	a.ends(9)
	c.elect(1, 1, 2)
	c.tell()
	c.reach(0)
	c.reach(2)
	b.open("orders")
	a.hub.publish(fastParts("x", 7, "last")...)
	a.expect(a.hub.answer(t, "fast x 7 commit"), "orders@9/7 x")
	if got := a.answers("fast z 5 commit", 2); len(got) != 2 || got[1] != "orders@8/2 z" {
		t.Errorf("the other batch was answered %q", got)
	}
	if got := b.values(); !slices.Equal(got, []string{"1", "2", "z1", "3", "4", "5", "6", "z2", "last"}) {
		t.Errorf("kept %q", got)
	}
	a.eventually("nothing is held", func() bool { return a.service.Stats().OutboxMessages == 0 })
}

// TestALaterRunOfTheSameReadDoesNotHideARefusal: the sender has learned of the refusal, and so
// raised its floor, while a message behind the refused one lay unread at the leader. One read
// brings that message and what the sender sent since.
func TestALaterRunOfTheSameReadDoesNotHideARefusal(t *testing.T) {
	c := newCluster(t, 1)
	c.sites[0].topic("orders", func(s *coordination.TopicSpec) { s.Stream.AllowBatched = true })
	c.start(0)
	c.elect(0, 0)
	c.tell()
	a := c.sites[0]
	a.open("orders")
	from := a.service.Attach("broker-z", newWay())
	read := func(runs ...func()) {
		for _, run := range runs {
			run()
		}
		from.Flush()
	}
	run := func(first, floor, behind uint64, m protocol.Message) func() {
		return func() {
			m.Behind = behind
			frame := forward.AppendRunHead(forward.AppendFrameHead(nil, forward.FrameRun, "id-orders", 0, 7, 1), 1, first, floor, 1)
			testutil.Must(t, from.Take(forward.AppendEntry(frame, &m)))
		}
	}
	parts := fastParts("x", 1, "1", "refused", "3")
	read(run(1, 1, 0, parts[0]))
	read(run(2, 1, 1, parts[1]))
	read(run(3, 1, 2, parts[2]), run(4, 3, 0, message("orders.a", "r", "other")))
	a.eventually("another publisher's message is kept", func() bool { return slices.Contains(a.values(), "other") })
	if got := a.values(); !slices.Equal(got, []string{"1", "other"}) {
		t.Errorf("kept %q", got)
	}
}
