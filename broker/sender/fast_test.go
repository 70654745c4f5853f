package sender

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

func (c plain) IsFast(reply []byte) bool {
	_, ok := c.Fast(reply, nil)
	return ok
}

// Fast reads "fast id sequence": of a batch that ends with a gap.
func (plain) Fast(reply, _ []byte) (p publish.FastPart, ok bool) {
	fields := bytes.Fields(reply)
	if len(fields) != 3 {
		return p, false
	}
	p.Batch, p.Flow = fields[1], 2
	p.Sequence, _ = strconv.ParseUint(string(fields[2]), 10, 64)
	return p, true
}

func (plain) AppendFlow(dst []byte, sequence uint64, _ uint16) []byte {
	return fmt.Appendf(dst, "ack %d", sequence)
}
func (plain) AppendGap(dst []byte, expected, _ uint64) []byte {
	return fmt.Appendf(dst, "gap %d", expected)
}
func (plain) AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte {
	return fmt.Appendf(dst, "err %d: %s", sequence, refusal)
}

// bodies are a Carrier that notes the messages of frames as "number reply<behind", with - for a
// void one.
type bodies struct {
	mu   sync.Mutex
	all  []string
	head forward.FrameHead
}

func (c *bodies) Carry(parts ...[]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, rest, err := forward.ParseFrameHead(bytes.Join(parts, nil))
	if err != nil || h.Kind != forward.FrameRun {
		panic(fmt.Sprint("a frame of kind ", h.Kind, ": ", err))
	}
	c.head = h
	r, _ := forward.ParseRun(rest)
	a := Arrival{}
	if err := a.read(r.Entries); err != nil {
		panic(err)
	}
	for i, m := range a.Messages {
		text := fmt.Sprintf("%d -", r.First+uint64(i))
		if len(m.Subject) > 0 {
			text = fmt.Sprintf("%d %s<%d", r.First+uint64(i), m.Reply, m.Behind)
		}
		c.all = append(c.all, text)
	}
	return false
}

func (c *bodies) Wait() {}

func (c *bodies) expect(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.all, want) {
		t.Errorf("sent %q, want %q", c.all, want)
	}
	c.all = nil
}

// answer brings the answers of the present round.
func (c *bodies) answer(t *testing.T, from *Link, answers func(*forward.Answers)) {
	t.Helper()
	var a forward.Answers
	answers(&a)
	a.Flush()
	if err := from.Take(append(forward.AppendFrameHead(nil, forward.FrameAnswers, "id-orders", 0, c.head.Source, c.head.Round), a.Buf...)); err != nil {
		t.Fatal(err)
	}
	from.Flush()
}

func takesFast(epoch uint64) state {
	return state{leader: "a", epoch: epoch, replicas: 3, batches: &batching.Topic{Fast: true}}
}

// TestNothingBehindARefusedMessageGoesToAnotherLeader: each message of a fast batch names the one
// before it. One of them is refused, and the answers to those behind it are lost: the next leader
// knows nothing of that, so they go to it as void.
func TestNothingBehindARefusedMessageGoesToAnotherLeader(t *testing.T) {
	fw, s, hub := newShard(takesFast(1))
	first, next := &bodies{}, &bodies{}
	link := fw.Attach("a", first)
	for i := 1; i <= 5; i++ {
		s.publish(fmt.Sprint("fast x ", i))
		if i == 3 {
			s.publish("r")
		}
	}
	expect(t, hub, "fast x 1: ack 0")
	first.expect(t, "1 fast x 1<0", "2 fast x 2<1", "3 fast x 3<2", "4 r<0", "5 fast x 4<3", "6 fast x 5<5")
	first.answer(t, link, func(a *forward.Answers) { a.Refused(3, plain{}, "orders", &publish.SealedError{Topic: "orders"}) })
	s.publish("fast x 6")
	first.expect(t)
	link.Detach()
	to := fw.Attach("a", next)
	s.now.Store(new(takesFast(2)))
	s.sender.look(time.Now())
	next.expect(t, "1 fast x 1<0", "2 fast x 2<1", "3 -", "4 r<0", "5 -", "6 -")
	next.answer(t, to, func(a *forward.Answers) { a.Kept(1, 1, 2); a.Kept(4, 3, 1) })
	expect(t, hub, "fast x 3: err 3: topic orders is sealed: it takes no messages")
	expect(t, hub, "fast x 3: kept")
	expect(t, hub, "r: kept")
	if held := fw.Stats(); held.Messages != 0 || len(hub) != 0 || fw.fasts.Load() != 0 {
		t.Errorf("it holds %+v and %d open batches, and %d more answers", held, fw.fasts.Load(), len(hub))
	}
	s.publish("r2")
	next.expect(t, "7 r2<0")
}

// TestAFastBatchEndsWithAMessageThatIsTooOld: nobody knows whether it is kept, so nothing behind it
// is sent again.
func TestAFastBatchEndsWithAMessageThatIsTooOld(t *testing.T) {
	fw, s, hub := newShard(takesFast(1))
	sent := &bodies{}
	link := fw.Attach("a", sent)
	for i := 1; i <= 3; i++ {
		s.publish(fmt.Sprint("fast x ", i))
	}
	expect(t, hub, "fast x 1: ack 0")
	sent.answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 1) })
	s.sender.SetPatience(0)
	s.sender.look(time.Now())
	got := <-hub
	if !strings.HasPrefix(got, "fast x 2: err 2: ") || !strings.Contains(got, "it isn't known whether the message was kept") {
		t.Errorf("answered %q", got)
	}
	expect(t, hub, "fast x 2: kept")
	s.publish("fast x 4")
	expect(t, hub, "fast x 4: topic orders: the fast batch is not open on this broker (begin another one)")
	if held := fw.Stats(); held.Messages != 0 || len(hub) != 0 {
		t.Errorf("it holds %+v, and %d more answers", held, len(hub))
	}
}

// TestIdleFastBatchesEnd: the sender looks at its open batches although its outbox is empty, and no
// longer.
func TestIdleFastBatchesEnd(t *testing.T) {
	fw, s, hub := newShard(takesFast(1))
	sent := &bodies{}
	link := fw.Attach("a", sent)
	s.publish("fast x 1")
	expect(t, hub, "fast x 1: ack 0")
	sent.answer(t, link, func(a *forward.Answers) { a.Kept(1, 1, 1) })
	s.sender.look(time.Now())
	if s.sender.listed == nil || fw.fasts.Load() != 1 {
		t.Fatal("nobody looks at the open batch")
	}
	s.now.Store(&state{leader: "a", epoch: 1, replicas: 3}) // which ends them at once
	s.sender.look(time.Now())
	if s.sender.listed != nil || fw.fasts.Load() != 0 {
		t.Errorf("%d batches are open", fw.fasts.Load())
	}
	s.publish("fast y 1")
	expect(t, hub, "fast y 1: topic orders: it takes no fast batches")
	s.publish("plain")
	sent.expect(t, "1 fast x 1<0", "2 plain<0")
	sent.answer(t, link, func(a *forward.Answers) { a.Kept(2, 2, 1) })
	expect(t, hub, "plain: kept")
}

// TestTheFastBatchesOfABrokerAreBounded: those of all shards.
func TestTheFastBatchesOfABrokerAreBounded(t *testing.T) {
	fw, s, hub := newShard(takesFast(1))
	fw.Attach("a", &bodies{})
	fw.fasts.Store(batching.MaxFastTotal)
	s.publish("fast x 1")
	expect(t, hub, "fast x 1: topic orders: too many fast batches are open")
	fw.fasts.Store(batching.MaxFastTotal - 1)
	s.sender.Publish(s.View(), []protocol.Message{
		{Subject: []byte("orders.a"), Reply: []byte("fast x 1")}, {Subject: []byte("orders.a"), Reply: []byte("fast y 1")},
	}, nil)
	expect(t, hub, "fast x 1: ack 0")
	expect(t, hub, "fast y 1: topic orders: too many fast batches are open")
}
