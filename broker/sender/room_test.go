package sender

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// newRoomOf returns a room with so many senders, which hold nothing.
func newRoomOf(many int) (fw *Senders, all []*Sender) {
	fw, s, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
	for range many {
		all = append(all, fw.New(ID{TopicID: "id-orders", Topic: "orders", Name: "orders"}, s))
	}
	return fw, all
}

// TestPublishersWaitWhileTheirSenderIsFull: whatever senders get and have answered, in any order,
// and however many publishers wait, those of a sender go on as soon as it is within its share.
func TestPublishersWaitWhileTheirSenderIsFull(t *testing.T) {
	for seed := range uint64(15) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			fw, all := newRoomOf(1 + r.IntN(12))
			for step := range 300 {
				f := all[r.IntN(len(all))]
				held := f.own.load()
				switch r.IntN(4) {
				case 0:
					go fw.room.wait(f)
				case 1:
					fw.room.add(f, amount{-r.Int64N(held.bytes + 1), -r.Int64N(held.messages + 1)})
				default:
					fw.room.add(f, amount{r.Int64N(OutboxBytes / 8), r.Int64N(OutboxMessages / 8)})
				}
				synctest.Wait()
				for i, f := range all {
					if f.waiting.Load() > 0 && !f.full() {
						t.Fatalf("seed %d, step %d: publishers wait for sender %d, which holds %v of %v", seed, step, i, f.own.load(), fw.room.held.load())
					}
				}
			}
			for _, f := range all {
				held := f.own.load()
				fw.room.add(f, amount{-held.bytes, -held.messages})
			}
			synctest.Wait()
			if held := fw.room.held.load(); held != (amount{}) || len(fw.room.waiters) > 0 {
				t.Errorf("seed %d: %v is held, %d senders are waited for", seed, held, len(fw.room.waiters))
			}
		})
	}
}

// TestASilentLeaderHoldsUpItsOwnPublishersOnly: several connections flood a shard whose leader
// answers nothing. They wait when it holds most of the room. Meanwhile a connection publishes to
// another shard by the same broker, and is never asked to wait. When the leader answers, the others
// go on.
func TestASilentLeaderHoldsUpItsOwnPublishersOnly(t *testing.T) {
	for _, size := range []int{0, 1 << 10, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			fw, slow, _ := newShard(state{leader: "a", epoch: 1, replicas: 3})
			fast := &shard{}
			fast.now.Store(slow.now.Load())
			fast.sender = fw.New(ID{TopicID: "id-fast", Topic: "fast", Name: "fast"}, fast)
			both := map[string]Shard{"id-orders": slow, "id-fast": fast}
			fw.config.Shard = func(topic []byte, _ int) Shard { return both[string(topic)] }
			way := &counting{Carrier: &frames{}}
			link := fw.Attach("a", way)
			answer := func(topic string, f *Sender, first, count uint64) {
				var a forward.Answers
				for seq := first; seq < first+count; seq++ {
					a.Single(seq, seq, 0, false)
				}
				a.Flush()
				f.mu.Lock()
				round := f.round
				f.mu.Unlock()
				if err := link.Take(append(forward.AppendFrameHead(nil, forward.FrameAnswers, topic, 0, f.source, round), a.Buf...)); err != nil {
					t.Error(err)
				}
				link.Flush()
			}
			data := make([]byte, size)
			const connections = 8
			var sent atomic.Int64 // by all: however few of them run, they meet the bound
			for range connections {
				go func() {
					for n := sent.Add(1); n < 2*OutboxMessages && n*int64(size) < 2*OutboxBytes; n = sent.Add(1) {
						if slow.sender.Publish(slow.View(), messageOf(data), nil) {
							slow.sender.Wait()
						}
					}
				}()
			}
			synctest.Wait()
			if slow.sender.waiting.Load() != connections {
				t.Fatalf("of %d connections %d wait for the silent leader", connections, slow.sender.waiting.Load())
			}
			if held := slow.sender.own.load(); held.bytes < OutboxBytes*3/4 && held.messages < OutboxMessages*3/4 || held.bytes > OutboxBytes+connections<<21 {
				t.Errorf("with %d bytes each it holds %d MiB, %d messages", size, held.bytes>>20, held.messages)
			}
			small := make([]byte, 256)
			for seq := range uint64(3000) {
				if fast.sender.Publish(fast.View(), messageOf(small), nil) {
					t.Fatalf("message %d of the other shard: its publisher is asked to wait", seq)
				}
				fast.sender.Wait()
				if seq >= 100 {
					answer("id-fast", fast.sender, seq-99, 1)
				}
			}
			if fw.Stats().Full > 0 || fw.Stats().Failed > 0 {
				t.Errorf("%+v", fw.Stats())
			}
			for slow.sender.waiting.Load() > 0 {
				slow.sender.mu.Lock()
				first, next := slow.sender.box.First, slow.sender.box.Next()
				slow.sender.mu.Unlock()
				answer("id-orders", slow.sender, first, next-first)
				synctest.Wait()
			}
		})
	}
}

// TestShardsWithoutLeadersLeaveRoom: many shards have lost their leaders, and publishers to each of
// them, more than fill the room together. What waits for them does not have messages refused that
// go to a shard with a leader.
func TestShardsWithoutLeadersLeaveRoom(t *testing.T) {
	fw, all := newRoomOf(3 * OutboxBytes / leastBytes)
	fw.config.Hub = discarding{}
	led := &shard{}
	led.now.Store(&state{leader: "c", epoch: 1, replicas: 3})
	led.sender = fw.New(ID{TopicID: "id-led", Topic: "led", Name: "led"}, led)
	fw.Attach("c", &frames{})
	data := make([]byte, leastBytes)
	for _, f := range all {
		f.Publish(f.shard.View(), messageOf(data), nil)
	}
	if held := fw.room.held.load(); held.bytes > OutboxBytes*3/2+2*leastBytes || held.bytes < OutboxBytes {
		t.Errorf("shards without leaders hold %d MiB of %d", held.bytes>>20, OutboxBytes>>20)
	}
	refused := fw.Stats().Full
	if refused == 0 {
		t.Error("none of them was refused anything")
	}
	led.sender.Publish(led.View(), messageOf(data), nil)
	if fw.Stats().Full != refused || led.sender.own.load().messages != 1 {
		t.Error("a message to a shard with a leader was refused")
	}
}

// discarding is a Hub without publishers.
type discarding struct{}

func (discarding) Send([]protocol.Message) (behind work.Behind) { return behind }
