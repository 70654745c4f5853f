package batching

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// fastWords are words whose replies are "id flow gaps sequence operation", with the operation
// message, commit, end or ping.
type fastWords struct{ words }

func (c fastWords) IsFast(reply []byte) bool {
	_, ok := c.Fast(reply, nil)
	return ok
}

func (fastWords) Fast(reply, _ []byte) (p publish.FastPart, ok bool) {
	fields := bytes.Fields(reply)
	if len(fields) != 5 {
		return p, false
	}
	flow, _ := strconv.ParseUint(string(fields[1]), 10, 16)
	p.Batch, p.Flow, p.GapOK = fields[0], uint16(flow), string(fields[2]) == "ok"
	p.Sequence, _ = strconv.ParseUint(string(fields[3]), 10, 64)
	p.Op = map[string]publish.FastOp{"commit": publish.FastCommit, "end": publish.FastEnd, "ping": publish.FastPing}[string(fields[4])]
	p.Unserved = string(fields[4]) == "unserved"
	return p, true
}
func (fastWords) AppendFlow(dst []byte, sequence uint64, every uint16) []byte {
	return fmt.Appendf(dst, "ack %d/%d", sequence, every)
}
func (fastWords) AppendGap(dst []byte, expected, came uint64) []byte {
	return fmt.Appendf(dst, "gap %d/%d", expected, came)
}
func (fastWords) AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte {
	return fmt.Appendf(dst, "err %d: %s", sequence, refusal)
}
func (fastWords) AppendAck(dst []byte, _ string, a publish.Ack) []byte {
	return fmt.Appendf(dst, "end %d/%d %s", a.Offset, a.Records, a.Batch)
}

// fastBench is a Fast whose answers are noted. Numbers begin with 101, offsets with 1001.
type fastBench struct {
	Fast
	t       *testing.T
	topic   Topic
	number  uint64
	now     int64
	full    bool
	answers []string
}

func newFastBench(t *testing.T) *fastBench {
	return &fastBench{t: t, topic: Topic{Fast: true}, number: 100}
}

func (b *fastBench) with(f func(to *Answers)) {
	out := publish.Replies{}
	f(&Answers{Codec: fastWords{}, Topic: "orders", Out: &out})
	for _, m := range out.Messages {
		b.answers = append(b.answers, string(m.Data))
	}
}

// take brings a message, and returns what it is to stand behind, and whether it goes on.
func (b *fastBench) take(reply string) (behind uint64, goesOn bool) {
	m := protocol.Message{Reply: []byte(reply)}
	p, _ := fastWords{}.Fast(m.Reply, nil)
	b.with(func(to *Answers) {
		if behind, goesOn = b.Take(&b.topic, &m, &p, b.number+1, !b.full, b.now, to); goesOn {
			b.number++
		}
	})
	return behind, goesOn
}

// settle answers the message with a number, and returns what is abandoned.
func (b *fastBench) settle(reply string, number uint64, refusal string) (abandoned []uint64) {
	p, _ := fastWords{}.Fast([]byte(reply), nil)
	b.with(func(to *Answers) {
		abandoned = b.Settle(&p, number, []byte(reply), Outcome{Refused: refusal != "", Refusal: []byte(refusal), Offset: number + 900}, to)
	})
	return abandoned
}

// expect fails unless the answers since the last call are these.
func (b *fastBench) expect(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.answers, want) {
		b.t.Errorf("answers: %q, want %q", b.answers, want)
	}
	b.answers = nil
}

// TestAnAckOfAFastBatchCoversAllBefore: answers that overtake others wait for them.
func TestAnAckOfAFastBatchCoversAllBefore(t *testing.T) {
	b := newFastBench(t)
	for i := 1; i <= 5; i++ {
		behind, goesOn := b.take(fmt.Sprintf("x 2 fail %d message", i))
		if want := uint64(99 + i); !goesOn || behind != want && i > 1 || behind != 0 && i == 1 {
			t.Errorf("message %d goes on (%v) behind %d, want %d", i, goesOn, behind, want)
		}
	}
	b.expect("ack 0/2")
	for _, n := range []uint64{102, 104, 103} {
		b.settle("x 2 fail 2 message", n, "")
	}
	b.expect()
	b.settle("x 2 fail 1 message", 101, "")
	b.expect("ack 4/2")
	b.settle("x 2 fail 1 message", 101, "a second answer")
	b.take("x 2 fail 6 commit")
	b.settle("x 2 fail 6 commit", 106, "")
	b.take("x 2 fail 7 message")
	b.expect()
	b.settle("x 2 fail 5 message", 105, "")
	b.expect("end 1006/6 x")
	if b.Len() > 0 {
		t.Error("it is still open")
	}
	b.take("x 2 fail 7 message")
	b.expect("topic orders: the fast batch is not open on this broker (begin another one)")
}

// TestTheFirstRefusedMessageEndsAFastBatch: the refusal of a later one, which stands behind it, may
// come before its own.
func TestTheFirstRefusedMessageEndsAFastBatch(t *testing.T) {
	b := newFastBench(t)
	for i := 1; i <= 6; i++ {
		b.take(fmt.Sprintf("x 100 fail %d message", i))
	}
	if got := b.settle("x 100 fail 4 message", 104, "it stands behind"); !slices.Equal(got, []uint64{105, 106}) {
		t.Errorf("abandoned are %v", got)
	}
	if _, goesOn := b.take("x 100 fail 7 message"); goesOn {
		t.Error("a message goes on behind a refused one")
	}
	if got := b.settle("x 100 fail 3 message", 103, "because"); len(got) > 0 {
		t.Errorf("abandoned are %v", got)
	}
	b.settle("x 100 fail 5 message", 105, "it stands behind")
	b.settle("x 100 fail 1 message", 101, "")
	b.expect("ack 0/100")
	b.settle("x 100 fail 2 message", 102, "")
	b.expect("err 3: because", "end 1002/2 x")
}

// TestFastBatchesInAnyOrder: however answers come, an ack covers what is settled without a gap, and
// the end is told once and counts what came before the first refused message.
func TestFastBatchesInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		b := newFastBench(t)
		n, refused := 1+rng.IntN(200), 0
		if rng.IntN(2) == 0 {
			refused = 2 + rng.IntN(n)
		}
		flow := 1 + rng.IntN(20)
		reply := func(i int) string {
			return fmt.Sprintf("x %d fail %d %s", flow, i, map[bool]string{false: "message", true: "commit"}[i == n])
		}
		done, sent, settled, ends := map[int]bool{}, 0, 0, 0
		for sent < n || len(done) < sent {
			if i := sent + 1; sent < n && rng.IntN(2) == 0 {
				if _, goesOn := b.take(reply(i)); !goesOn {
					break // it has ended
				}
				sent++
			} else if sent > len(done) {
				i := 1 + rng.IntN(sent)
				if done[i] {
					continue
				}
				done[i] = true
				why := map[bool]string{false: "", true: "no"}[refused > 0 && i >= refused]
				b.settle(reply(i), uint64(100+i), why)
			}
			for done[settled+1] && (refused == 0 || settled+1 < refused) {
				settled++
			}
			for _, a := range b.answers {
				var seq, of int
				if k, _ := fmt.Sscanf(a, "ack %d/%d", &seq, &of); k == 2 && (seq > settled || of > flow) {
					t.Fatalf("%s, and %d are settled", a, settled)
				}
				if strings.HasPrefix(a, "end ") {
					ends++
					want := fmt.Sprintf("end %d/%d x", 1000+settled, settled)
					if a != want || settled != n && settled != refused-1 {
						t.Fatalf("%s, want %s of %d (%d is refused)", a, want, n, refused)
					}
				}
			}
			b.answers = nil
		}
		for i := 1; i <= sent; i++ { // what is not answered yet
			if !done[i] {
				b.settle(reply(i), uint64(100+i), map[bool]string{false: "", true: "no"}[refused > 0 && i >= refused])
			}
		}
		for _, a := range b.answers {
			if strings.HasPrefix(a, "end ") {
				ends++
			}
		}
		if ends != 1 || b.Len() > 0 {
			t.Fatalf("it ended %d times, and %d are open", ends, b.Len())
		}
	}
}

// TestFastBatchesAreBounded: in number, of a shard and in all, and in time.
func TestFastBatchesAreBounded(t *testing.T) {
	b := newFastBench(t)
	for i := range maxFast {
		b.take(fmt.Sprintf("x%d 500 fail 1 message", i))
	}
	if b.answers[0] != "ack 0/500" || b.answers[1] != "ack 0/1" || len(b.answers) != maxFast {
		t.Errorf("answers: %q", b.answers[:2])
	}
	b.answers = nil
	b.take("y 500 fail 1 message")
	b.expect("topic orders: too many fast batches are open")
	b.now = int64(maxAge)
	b.take("x1 500 fail 1 ping")
	for i := range maxFast - 1 {
		b.settle(fmt.Sprintf("x%d 500 fail 1 message", i), uint64(101+i), "")
	}
	b.answers = nil
	if b.Expire(&b.topic, b.now-1); b.Len() != maxFast {
		t.Errorf("%d are open", b.Len())
	}
	if b.Expire(&b.topic, b.now); b.Len() != 2 {
		t.Errorf("%d are open: want the one that asked, and the one that waits for its leader", b.Len())
	}
	b.full = true
	b.take("y 500 fail 1 message")
	b.expect("topic orders: too many fast batches are open")
	if b.Expire(nil, b.now); b.Len() != 1 {
		t.Errorf("%d are open", b.Len())
	}
	last := fmt.Sprintf("x%d 500 fail 1 message", maxFast-1)
	b.settle(last, uint64(100+maxFast), "")
	if b.expect(); b.Len() > 0 {
		t.Errorf("%d are open", b.Len())
	}
}

// TestADroppedFastBatchStillAbandons: a Topic that takes no fast batches any more answers nothing,
// and nothing behind a refused message goes to another leader.
func TestADroppedFastBatchStillAbandons(t *testing.T) {
	b := newFastBench(t)
	for i := 1; i <= 3; i++ {
		b.take(fmt.Sprintf("x 100 fail %d message", i))
	}
	b.Expire(&Topic{}, 0)
	if got := b.settle("x 100 fail 2 message", 102, "no"); !slices.Equal(got, []uint64{103}) {
		t.Errorf("abandoned are %v", got)
	}
	b.settle("x 100 fail 1 message", 101, "")
	if b.expect("ack 0/100"); b.Len() > 0 {
		t.Error("it is open")
	}
}

// TestAFastBatchRampsUp: beside another one, from one message to its share.
func TestAFastBatchRampsUp(t *testing.T) {
	b := newFastBench(t)
	b.take("other 500 fail 1 message")
	b.answers = nil
	for i := 1; i <= 1023; i++ {
		reply := fmt.Sprintf("x 400 ok %d message", i)
		if behind, _ := b.take(reply); behind != 0 {
			t.Fatalf("a message stands behind %d although gaps are ok", behind)
		}
		b.settle(reply, b.number, "")
	}
	b.expect("ack 0/1", "ack 1/2", "ack 3/4", "ack 7/8", "ack 15/16", "ack 31/32", "ack 63/64", "ack 127/128", "ack 255/250", "ack 505/250", "ack 755/250", "ack 1005/250")
}
