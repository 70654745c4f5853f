package sender

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// of publishes messages of a connection in one read. A reply behind a question mark is that of a
// message that asks about a pattern. It returns what the connection is to wait for.
func (s *shard) of(client uint64, replies ...string) (behind work.Behind) {
	var messages []protocol.Message
	for _, reply := range replies {
		m := protocol.Message{Subject: []byte("orders.a"), Reply: []byte(reply), Data: []byte("x")}
		if reply[0] == '?' {
			m.Reply, m.Data, m.Header = m.Reply[1:], []byte("orders.*"), len("orders.*")
		}
		messages = append(messages, m)
	}
	s.sender.PublishOf(s.View(), client, messages, nil, &behind)
	return behind
}

// lane returns a lane of the sender.
func (s *shard) lane(n int) *Sender { return s.sender.lanes.Load().all[n] }

// by has the next answers go to a sender.
func (c *bodies) by(f *Sender) *bodies {
	c.head.Source, c.head.Round = f.source, f.round
	return c
}

// woken reports whether Run has to look at the senders, and takes that back.
func (fw *Senders) woken() bool {
	select {
	case <-fw.wake:
		return true
	default:
		return false
	}
}

// TestALaneKeepsTheOrderOfAConnection: a message that may wait, and what its connection publishes
// behind it, go by a lane, which the messages of other connections don't wait for. Nothing is sent
// there while earlier messages of the connection may be unanswered, and the connection comes back
// when it has no unanswered ones there.
func TestALaneKeepsTheOrderOfAConnection(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	sent := &bodies{}
	link := fw.Attach("a", sent)
	s.of(7, "r1", "?r2", "r3")
	sent.expect(t, "1 r1<0")
	s.of(8, "r4")
	s.of(7, "r5")
	sent.expect(t, "2 r4<0")
	s.lane(0).look(time.Now())
	sent.expect(t)
	fw.woken()
	sent.by(s.sender).answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 1) })
	expect(t, hub, "r1: kept")
	if !fw.woken() {
		t.Error("nobody looks at the lane")
	}
	s.lane(0).look(time.Now())
	sent.expect(t, "1 r2<0", "2 r3<0", "3 r5<0")
	s.of(8, "r6")
	s.of(9, "r7")
	s.of(7, "r8")
	sent.expect(t, "3 r6<0", "4 r7<0", "4 r8<0")
	sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(1, 2, 3) })
	s.of(7, "r9")
	sent.expect(t, "5 r9<0")
	sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(4, 5, 2) })
	s.of(7, "r10")
	sent.expect(t, "5 r10<0")
}

// TestALaneHasFewMessagesOnTheirWay: the others follow as these are answered.
func TestALaneHasFewMessagesOnTheirWay(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	sent := &bodies{}
	link := fw.Attach("a", sent)
	var all, first []string
	for i := range laneWindow + 3 {
		all = append(all, fmt.Sprint("?r", i+1))
		first = append(first, fmt.Sprintf("%d r%d<0", i+1, i+1))
	}
	s.of(7, all...)
	sent.expect(t, first[:laneWindow]...)
	fw.woken()
	sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 2) })
	expect(t, hub, "r1: kept")
	expect(t, hub, "r2: kept")
	if !fw.woken() {
		t.Error("nobody looks at the lane")
	}
	s.lane(0).look(time.Now())
	sent.expect(t, first[laneWindow:laneWindow+2]...)
}

// TestConnectionsHaveLanesOfTheirOwn as long as there are not too many. An idle one is used again.
func TestConnectionsHaveLanesOfTheirOwn(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	sent := &bodies{}
	link := fw.Attach("a", sent)
	for client := range uint64(2 * mostLanes) {
		s.of(1+client, "?r")
	}
	if n := len(s.sender.lanes.Load().all); n != mostLanes {
		t.Errorf("%d lanes", n)
	}
	if n := s.lane(0).Next(); n != 3 {
		t.Errorf("the next number of a lane of two connections is %d", n)
	}
	sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 2) })
	expect(t, hub, "r: kept")
	s.of(100, "?r")
	if n := s.lane(0).Next(); n != 4 {
		t.Errorf("the next number of the idle lane is %d", n)
	}
	for client := range uint64(2 * minSweep) { // connections that end
		for _, lane := range s.sender.lanes.Load().all {
			lane.settled.Store(1 << 20)
		}
		s.of(1000+client, "r", "?r")
	}
	if n := len(s.sender.lanes.Load().clients); n > 2*minSweep {
		t.Errorf("%d connections are known", n)
	}
}

// TestAFastBatchStaysInItsLane: it goes by the sender where it was opened. A message that asks may
// open one, and joins none that others may hold up.
func TestAFastBatchStaysInItsLane(t *testing.T) {
	fw, s, hub := newShard(takesFast(1))
	sent := &bodies{}
	link := fw.Attach("a", sent)
	s.of(7, "?fast x 1", "fast x 2")
	expect(t, hub, "fast x 1: ack 0")
	sent.expect(t, "1 fast x 1<0", "2 fast x 2<1")
	sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 2) })
	expect(t, hub, "fast x 2: ack 2")
	s.of(8, "fast y 1")
	expect(t, hub, "fast y 1: ack 0")
	s.of(7, "fast x 3")
	s.of(7, "fast y 2")
	sent.expect(t, "1 fast y 1<0", "2 fast y 2<1")
	sent.by(s.sender).answer(t, link, func(a *forward.Answers) { a.Kept(1, 3, 2) })
	expect(t, hub, "fast y 2: ack 2")
	s.lane(0).look(time.Now())
	sent.expect(t, "3 fast x 3<2")
	s.of(8, "?fast y 3")
	expect(t, hub, "fast y 3: topic orders: a pattern of subjects in a fast batch that began without one is not possible: other messages would wait for it; begin a batch with that message, or publish it by itself")
	sent.expect(t)
}

// TestLanesShareTheBoundOfAShardWithoutALeader: with lanes, too, such a shard leaves room to
// others.
func TestLanesShareTheBoundOfAShardWithoutALeader(t *testing.T) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
	data := make([]byte, 1<<20)
	copy(data, "orders.*")
	for range 2 * outboxUnled / len(data) {
		for client := range uint64(mostLanes) {
			s.sender.PublishOf(s.View(), client+1, []protocol.Message{{Subject: []byte("orders.a"), Header: len("orders.*"), Data: data}}, nil, &work.Behind{})
			s.sender.PublishOf(s.View(), mostLanes+1, []protocol.Message{{Subject: []byte("orders.a"), Data: data}}, nil, &work.Behind{})
		}
	}
	if held := fw.Stats().Bytes; held > outboxUnled+2*int64(len(data)) {
		t.Errorf("it holds %d MiB, of %d for a shard that nobody leads", held>>20, outboxUnled>>20)
	}
}

// TestAFullLaneKeepsWhatIsPublishedBeforeALeaderIsThere: a lane has room for few messages, and
// connections that share it publish during an election. They wait, and nothing is refused.
func TestAFullLaneKeepsWhatIsPublishedBeforeALeaderIsThere(t *testing.T) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3}) // which is not reached yet
	for client := range uint64(2 * mostLanes) {
		behind := s.of(client+1, slices.Repeat([]string{"?"}, laneWindow+1)...)
		if !behind.Any() {
			t.Error("a connection does not wait for a full lane")
		}
	}
	if is := fw.Stats(); is.Full > 0 || is.Messages != 2*mostLanes*(laneWindow+1) {
		t.Errorf("%d messages are held, and %d times they were refused", is.Messages, is.Full)
	}
}

// crowded is a Carrier that is always behind.
type crowded struct {
	bodies
	waits int
}

func (c *crowded) Carry(parts ...[]byte) bool { c.bodies.Carry(parts...); return true }
func (c *crowded) Wait()                      { c.waits++ }

// TestPublishersWaitForTheWayOfALane: also if nothing goes by the main sender.
func TestPublishersWaitForTheWayOfALane(t *testing.T) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
	way := &crowded{}
	fw.Attach("a", way)
	behind := s.of(7, "?r1")
	if behind.Wait(); way.waits == 0 {
		t.Error("its publisher does not wait")
	}
	behind = s.of(8, "r1")
	if behind.Wait(); way.waits < 2 {
		t.Error("another publisher does not wait")
	}
}

// TestAFullLaneHoldsUpItsOwnConnections: their patterns take longer than they publish, so they wait
// until few of their messages are unanswered. However much is in lanes, it takes no room of others.
func TestAFullLaneHoldsUpItsOwnConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
		sent := &bodies{}
		link := fw.Attach("a", sent)
		ask := func(n int) (replies []string) { return slices.Repeat([]string{"?"}, n) }
		waits := func(client uint64, replies ...string) bool {
			behind := s.of(client, replies...)
			return behind.Any()
		}
		if waits(7, ask(laneWindow)...) {
			t.Error("a connection waits while the leader may look up all that it asks")
		}
		behind := s.of(7, ask(1)...)
		var done atomic.Bool
		go func() {
			behind.Wait()
			done.Store(true)
		}()
		if synctest.Wait(); done.Load() {
			t.Error("a connection does not wait for its lane")
		}
		if waits(8, "?") || waits(9, "r") {
			t.Error("others wait for the lane")
		}
		sent.by(s.lane(0)).answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 1) })
		if synctest.Wait(); !done.Load() {
			t.Error("a connection waits although its lane has room")
		}
		for range 2 * OutboxMessages / lanesMessages {
			for client := range uint64(mostLanes) {
				s.of(10+client, ask(lanesMessages/mostLanes)...)
			}
		}
		if waits(9, "r") || s.sender.box.Next()-s.sender.box.First != 2 {
			t.Error("a full outbox of lanes holds up those that don't use them")
		}
		if held := fw.Stats().Messages; held > 3*lanesMessages {
			t.Errorf("lanes hold %d messages, of about %d", held, 2*lanesMessages)
		}
	})
}

// TestNobodyWaitsForALaneOfABrokerThatStops: also if what fills it is published at the same time.
func TestNobodyWaitsForALaneOfABrokerThatStops(t *testing.T) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
	fw.Attach("a", &bodies{})
	for range 2 {
		behind := s.of(7, slices.Repeat([]string{"?"}, laneWindow+1)...)
		if !behind.Any() {
			t.Error("a connection is not asked to wait for its lane")
		}
		fw.Close()
		behind.Wait()
	}
}

// TestRefusedMessagesOfALaneLeaveNothing: nor does what is published there again and again.
func TestRefusedMessagesOfALaneLeaveNothing(t *testing.T) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
	s.of(8, "r1")
	fw.laneRoom.held.add(amount{2*lanesBytes + 1, 0})
	ask := []protocol.Message{{Subject: []byte("orders.a"), Header: len("orders.*"), Data: []byte("orders.*")}}
	for range 100 {
		s.sender.PublishOf(s.View(), 7, ask, nil, &work.Behind{})
	}
	if lane := s.lane(0); len(lane.holds) > 1 || !lane.idle() {
		t.Errorf("it has %d holds", len(lane.holds))
	}
}
