package sender

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// state is a View that a test makes.
type state struct {
	leader   string
	epoch    uint64
	replicas int
	gone     bool
	unplaced bool
	batches  *batching.Topic
}

func (v *state) Gone() bool               { return v.gone }
func (v *state) Served() bool             { return !v.unplaced }
func (v *state) Leader() string           { return v.leader }
func (v *state) Leads() bool              { return v.leader == "b" }
func (v *state) Epoch() uint64            { return v.epoch }
func (v *state) Replicas() int            { return v.replicas }
func (v *state) NoAck() bool              { return false }
func (v *state) Batches() *batching.Topic { return v.batches }
func (v *state) Keeps(s []byte) bool      { return !strings.HasPrefix(string(s), "$") }

// shard is a Shard that another broker leads, or nobody, or this one if arrive is set.
type shard struct {
	now    atomic.Pointer[state]
	sender *Sender
	arrive func(*Arrival)
}

func (s *shard) View() View      { return s.now.Load() }
func (s *shard) Sender() *Sender { return s.sender }
func (s *shard) Used() *Sender   { return s.sender }
func (s *shard) Why() string     { return "it is away" }
func (s *shard) Refusal() error {
	if s.now.Load().unplaced {
		return &publish.NotServedError{Topic: "orders", Reason: publish.Unplaced, Why: "no broker was chosen"}
	}
	return errors.New("it is away")
}
func (s *shard) publish(reply string) { s.send("orders.a", reply) }
func (s *shard) Arrive(_ *Link, a *Arrival) {
	if s.arrive != nil {
		s.arrive(a)
	}
}
func (s *shard) send(subject, to string) bool {
	return s.sender.Publish(s.View(), []protocol.Message{{Subject: []byte(subject), Reply: []byte(to), Data: []byte("x")}}, nil)
}

// messageOf returns one message that nobody wants an answer to.
func messageOf(data []byte) []protocol.Message {
	return []protocol.Message{{Subject: []byte("orders.a"), Data: data}}
}

// plain is a Codec that answers in words.
type plain struct{}

// Conditions reads the subject of which no message is expected.
func (plain) Conditions(header []byte) (c publish.Conditions, refusal error) {
	c.ExpectedSubject, c.ExpectsLastBySubject = header, true
	return c, nil
}
func (plain) AppendAck(dst []byte, _ string, _ publish.Ack) []byte             { return append(dst, "kept"...) }
func (plain) Part([]byte) (p publish.Part, ok bool)                            { return p, false }
func (plain) Counter(_, _ []byte) (total, sources []byte, ok bool)             { return nil, nil, false }
func (plain) AppendCounter(dst, _ []byte, _, _ string, _ []byte) ([]byte, int) { return dst, 0 }
func (plain) CounterSource(_ []byte, _, _, _ string) (updated []byte, before string, ok bool) {
	return nil, "", false
}
func (plain) AppendCommit(dst, header []byte) []byte                    { return append(dst, header...) }
func (plain) AppendMarker(dst []byte, _ time.Duration, _ uint64) []byte { return dst }

func (plain) AppendRefusal(dst []byte, _ string, err error) []byte {
	return append(dst, err.Error()...)
}

// answers are a Hub.
type answers chan string

func (a answers) Send(messages []protocol.Message) (behind work.Behind) {
	for _, m := range messages {
		a <- string(m.Subject) + ": " + string(m.Data)
	}
	return behind
}

// frames are a Carrier.
type frames struct {
	mu  sync.Mutex
	all []forward.FrameHead
}

func (c *frames) Carry(parts ...[]byte) bool {
	h, _, err := forward.ParseFrameHead(append([]byte(nil), parts[0]...))
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, h)
	return false
}

func (c *frames) Wait() {}

func (c *frames) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

func newShard(v state) (*Senders, *shard, answers) {
	fw, s, hub := &Senders{}, &shard{}, make(answers, 100)
	s.now.Store(&v)
	fw.Init(Config{Self: "b", Name: "main-1", Codec: plain{}, Hub: hub, Refused: &publish.Refusals{},
		Closing: func() bool { return false }, Shard: func([]byte, int) Shard { return s }})
	s.sender = fw.New(ID{TopicID: "id-orders", Topic: "orders", Name: "orders"}, s)
	return fw, s, hub
}

func expect(t *testing.T, hub answers, want string) {
	t.Helper()
	select {
	case got := <-hub:
		if got != want {
			t.Errorf("answered %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no answer; want %q", want)
	}
}

// TestAMessageThatIsTooOldIsNotResent: a sender begins no round with a message that is older than
// its publisher waits: its process may have been stopped for so long that leaders have forgotten
// it. The publisher learns that the fate of the message is unknown.
func TestAMessageThatIsTooOldIsNotResent(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	first, next := &frames{}, &frames{}
	link := fw.Attach("a", first)
	s.publish("r1")
	if first.count() != 1 {
		t.Fatalf("%d frames were sent", first.count())
	}
	link.Detach()
	fw.Attach("a", next)
	s.sender.SetPatience(0)
	s.sender.look(time.Now())
	if next.count() != 0 {
		t.Errorf("%d frames were sent again", next.count())
	}
	expect(t, hub, "r1: topic orders: it is away, and it isn't known whether the message was kept; publish it again, with a message id if it must not be kept twice")
	if held := fw.Stats(); held.Messages != 0 || held.Bytes != 0 || held.Failed != 1 {
		t.Errorf("it holds %+v", held)
	}
}

// TestMessagesWaitForThePlacementOfANewShard: what is published between the creation of a Topic and
// the choice of its first leader is sent to that leader. Without one its publishers learn the
// reason before their clients time out.
func TestMessagesWaitForThePlacementOfANewShard(t *testing.T) {
	fw, s, hub := newShard(state{unplaced: true})
	out := &frames{}
	fw.Attach("a", out)
	s.publish("r1")
	s.sender.look(time.Now())
	if len(hub) != 0 {
		t.Fatalf("answered %q", <-hub)
	}
	s.now.Store(&state{leader: "a", epoch: 1, replicas: 1})
	s.sender.look(time.Now())
	if out.count() != 1 {
		t.Errorf("%d frames were sent", out.count())
	}

	_, s, hub = newShard(state{unplaced: true})
	s.publish("r1")
	s.sender.mu.Lock()
	limit := forward.Mono() - s.sender.expired()
	s.sender.mu.Unlock()
	if limit > int64(3*time.Second) {
		t.Errorf("they wait for %v", time.Duration(limit))
	}
	s.sender.SetPatience(0)
	s.sender.look(time.Now())
	expect(t, hub, "r1: topic orders: no broker was chosen")

	// Once there is a leader, they have the usual time, although it is not linked yet.
	_, s, _ = newShard(state{unplaced: true})
	s.publish("r1")
	s.now.Store(&state{leader: "c", epoch: 1, replicas: 3})
	s.sender.look(time.Now())
	s.sender.mu.Lock()
	limit = forward.Mono() - s.sender.expired()
	s.sender.mu.Unlock()
	if limit < int64(3*time.Second) {
		t.Errorf("after the placement they wait for %v", time.Duration(limit))
	}
}

// TestAnotherLinkOrEpochBeginsARound: another link or epoch has all that is unanswered go again;
// the same leader on the same link has not.
func TestAnotherLinkOrEpochBeginsARound(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	first, next := &frames{}, &frames{}
	link := fw.Attach("a", first)
	s.publish("r1")
	s.publish("r2")
	s.sender.look(time.Now())
	if first.count() != 2 || fw.Stats().Resent != 0 {
		t.Errorf("%d frames, %d messages again", first.count(), fw.Stats().Resent)
	}
	link.Detach()
	to := fw.Attach("a", next)
	s.sender.look(time.Now())
	s.now.Store(&state{leader: "a", epoch: 2, replicas: 3})
	s.sender.look(time.Now())
	if got := fw.Stats().Resent; got != 4 {
		t.Errorf("%d messages went again, want 4", got)
	}
	// The answer of the last round reaches both publishers once.
	last := next.all[next.count()-1]
	var a forward.Answers
	a.Single(1, 1, 0, false)
	a.Single(2, 2, 0, false)
	a.Flush()
	frame := append(forward.AppendFrameHead(nil, forward.FrameAnswers, "id-orders", 0, last.Source, last.Round), a.Buf...)
	for range 2 {
		if err := to.Take(frame); err != nil {
			t.Fatal(err)
		}
		to.Flush()
	}
	expect(t, hub, "r1: kept")
	expect(t, hub, "r2: kept")
	if held := fw.Stats(); held.Messages != 0 || len(hub) != 0 {
		t.Errorf("it holds %+v, and %d more answers", held, len(hub))
	}
}

// TestARefusalCountsInItsOwnRoundOnly: a former leader may be deposed: what it refuses may be kept
// by its successor, so its refusal is dropped. What it acknowledges is kept. A refusal of the
// present round counts.
func TestARefusalCountsInItsOwnRoundOnly(t *testing.T) {
	fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
	sent := &frames{}
	link := fw.Attach("a", sent)
	s.publish("r1")
	s.publish("r2")
	former := sent.all[sent.count()-1].Round
	s.now.Store(&state{leader: "a", epoch: 2, replicas: 3})
	s.sender.look(time.Now())
	present := sent.all[sent.count()-1].Round
	if former == present {
		t.Fatalf("another epoch began no round after %d", former)
	}
	answer := func(round uint32, fill func(a *forward.Answers)) {
		var a forward.Answers
		fill(&a)
		a.Flush()
		frame := append(forward.AppendFrameHead(nil, forward.FrameAnswers, "id-orders", 0, sent.all[0].Source, round), a.Buf...)
		if err := link.Take(frame); err != nil {
			t.Fatal(err)
		}
		link.Flush()
	}
	refused := func(a *forward.Answers) { a.Refused(2, plain{}, "orders", errors.New("refused")) }
	answer(former, func(a *forward.Answers) {
		refused(a)
		a.Single(1, 7, 0, false)
	})
	expect(t, hub, "r1: kept")
	if held := fw.Stats(); held.Messages != 1 || len(hub) != 0 {
		t.Errorf("it holds %+v, and %d more answers", held, len(hub))
	}
	answer(present, refused)
	expect(t, hub, "r2: refused")
}

// TestALateAnswerDoesNotFreeMemoryThatTheLeaderReads: an answer of a former leader may come while
// the leader on this broker reads the message that is answered. The publisher gets the answer at
// once; the memory stays until the leader has read it.
func TestALateAnswerDoesNotFreeMemoryThatTheLeaderReads(t *testing.T) {
	for _, large := range []bool{false, true} {
		fw, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 3})
		way := &frames{}
		link := fw.Attach("a", way)
		var memory *testutil.LentMessages
		for _, reply := range []string{"r1", "r2"} {
			m := []protocol.Message{{Subject: []byte("orders.a"), Reply: []byte(reply), Data: []byte("the text")}}
			if large {
				memory = testutil.LendMessages(m)
				s.sender.Publish(s.View(), m, memory)
				memory.Release()
			} else {
				s.sender.Publish(s.View(), m, nil)
			}
		}
		sent, held := way.all[0], fw.Stats().Bytes
		var a forward.Answers
		a.Single(1, 1, 0, false)
		a.Single(2, 2, 0, false)
		a.Flush()
		s.arrive = func(arrival *Arrival) {
			if err := link.Take(append(forward.AppendFrameHead(nil, forward.FrameAnswers, "id-orders", 0, sent.Source, sent.Round), a.Buf...)); err != nil {
				t.Error(err)
			}
			link.Flush()
			expect(t, hub, "r1: kept")
			expect(t, hub, "r2: kept")
			if !large { // another shard of this broker takes what is free
				other := fw.New(ID{TopicID: "id-other", Topic: "other", Name: "other"}, s)
				m := protocol.Message{Subject: []byte("orders.b"), Reply: []byte("r9"), Data: []byte("not it")}
				other.Publish(&state{replicas: 3}, []protocol.Message{m, m}, nil)
			}
			if len(arrival.Messages) != 2 {
				t.Fatalf("%d messages came", len(arrival.Messages))
			}
			for _, m := range arrival.Messages {
				if string(m.Subject) != "orders.a" || string(m.Data) != "the text" {
					t.Errorf("large %v: the leader reads %s %s", large, m.Subject, m.Data)
				}
			}
			if now := fw.Stats().Bytes; now < held {
				t.Errorf("%d bytes are counted while they are read, %d before", now, held)
			}
		}
		s.now.Store(&state{leader: "b", epoch: 2, replicas: 3})
		s.sender.look(time.Now())
		if s.sender.box.Bytes != 0 || s.sender.own.load() != (amount{}) {
			t.Errorf("large %v: %d bytes are left, %d are counted", large, s.sender.box.Bytes, s.sender.own.bytes.Load())
		}
	}
}

// TestAMessageForAnAbsentSingleReplicaIsRefusedAtOnce: a message for a single replica that is away
// is refused at once; what the Topic does not keep is not answered.
func TestAMessageForAnAbsentSingleReplicaIsRefusedAtOnce(t *testing.T) {
	_, s, hub := newShard(state{leader: "a", epoch: 1, replicas: 1})
	s.send("$SYS.x", "r0")
	s.publish("r1")
	expect(t, hub, "r1: it is away")
	if len(hub) != 0 {
		t.Error("more was answered")
	}
}
