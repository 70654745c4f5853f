package sender

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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

// change changes what a sender holds, as its outbox would.
func (f *Sender) change(by func(held amount) amount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change := by(f.own.load()); change != (amount{}) {
		f.room.add(f, change)
	}
}

// moves has a sender join a broker's party, or leave its own if it holds nothing.
func (f *Sender) moves(broker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.party.Load(); f.own.load() == (amount{}) && p != nil {
		f.room.leave(f)
	} else if p == nil || p.broker != broker {
		f.room.join(f, broker)
	}
}

// check reports what is wrong with a room while nothing happens: a publisher that waits although
// its sender is within its share, or what a party or all hold that their senders don't.
func (r *room) check(all []*Sender) error {
	var sum amount
	parties := map[string]amount{}
	for i, f := range all {
		held := f.own.load()
		if f.waiting > 0 && !r.full(f) {
			return fmt.Errorf("publishers wait for sender %d, which holds %v of %v", i, held, r.held.load())
		}
		if f.waiting == 0 && f.place > 0 {
			return fmt.Errorf("sender %d is enlisted, and nobody waits for it", i)
		}
		sum = amount{sum.bytes + held.bytes, sum.messages + held.messages}
		if p := f.party.Load(); p != nil {
			of := parties[p.broker]
			parties[p.broker] = amount{of.bytes + held.bytes, of.messages + held.messages}
		} else if held != (amount{}) {
			return fmt.Errorf("sender %d holds %v and is in no party", i, held)
		}
	}
	if held := r.held.load(); held != sum || len(r.parties) != len(parties) {
		return fmt.Errorf("the room holds %v in %d parties, its senders %v in %d", held, len(r.parties), sum, len(parties))
	}
	for broker, p := range r.parties {
		if held := p.held.load(); held != parties[broker] || int(p.crowd.Load()) != len(p.waiters) {
			return fmt.Errorf("party %q holds %v, its members %v; of %d waiters it counts %d", broker, held, parties[broker], len(p.waiters), p.crowd.Load())
		}
	}
	return nil
}

// empties has all that is held answered, and all senders leave. Nothing may be left.
func (r *room) empties(all []*Sender) error {
	for _, f := range all {
		f.change(func(held amount) amount { return amount{-held.bytes, -held.messages} })
	}
	synctest.Wait()
	for i, f := range all {
		if f.waiting > 0 {
			return fmt.Errorf("publishers wait for sender %d although nothing is held", i)
		}
		if f.party.Load() != nil {
			f.moves("")
		}
	}
	if err := r.check(all); err != nil {
		return err
	}
	if held := r.held.load(); held != (amount{}) || len(r.parties) > 0 {
		return fmt.Errorf("%v is held, in %d parties", held, len(r.parties))
	}
	return nil
}

// TestPublishersWaitWhileTheirSenderIsFull: whatever senders get and have answered, in any order,
// whichever parties they move to meanwhile, and however many publishers wait, those of a sender go
// on as soon as it is within its share.
func TestPublishersWaitWhileTheirSenderIsFull(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			fw, all := newRoomOf(1 + r.IntN(12))
			brokers := []string{"", "a", "b", "c", "d"}[:1+r.IntN(5)]
			for _, f := range all {
				f.moves(brokers[r.IntN(len(brokers))])
			}
			for step := range 400 {
				f := all[r.IntN(len(all))]
				switch r.IntN(9) {
				case 0, 1:
					go fw.room.wait(f)
				case 2:
					f.moves(brokers[r.IntN(len(brokers))])
				case 3, 4:
					f.change(func(held amount) amount {
						return amount{-r.Int64N(held.bytes + 1), -r.Int64N(held.messages + 1)}
					})
				default:
					if f.party.Load() == nil {
						f.moves(brokers[r.IntN(len(brokers))])
					}
					f.change(func(amount) amount { return amount{r.Int64N(OutboxBytes / 8), r.Int64N(OutboxMessages / 8)} })
				}
				synctest.Wait()
				if err := fw.room.check(all); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			if err := fw.room.empties(all); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// steps decides, from a seed, in which order goroutines take the steps of a room. It belongs to a
// bubble of testing/synctest.
type steps struct {
	r  *rand.Rand
	mu sync.Mutex
	at []stopped
}

// stopped is a goroutine between two steps.
type stopped struct {
	point
	goOn chan struct{}
}

// stop is the step of a room.
func (s *steps) stop(p point) {
	here := stopped{p, make(chan struct{})}
	s.mu.Lock()
	s.at = append(s.at, here)
	s.mu.Unlock()
	<-here.goOn
}

// run has one goroutine at a time take a step, until all have ended or wait for a room. Nobody
// takes the lock of the room while another one holds it.
func (s *steps) run() {
	for {
		synctest.Wait()
		held := slices.ContainsFunc(s.at, func(a stopped) bool { return a.point == locked })
		var may []int
		for i, a := range s.at {
			if a.point != locking || !held {
				may = append(may, i)
			}
		}
		if len(may) == 0 {
			return
		}
		i := may[s.r.IntN(len(may))]
		next := s.at[i]
		s.at = slices.Delete(s.at, i, i+1)
		close(next.goOn)
	}
}

// TestNoWakeUpIsLost: publishers begin to wait while answers come, senders move to other parties or
// leave, and the room closes, and all of them stop between any two steps. In the end nobody waits
// for a sender that is within its share, nor for any if the room is closed.
func TestNoWakeUpIsLost(t *testing.T) {
	first, waited := rand.Uint64(), 0
	synctest.Test(t, func(t *testing.T) {
		for seed := first; seed < first+30_000; seed++ {
			r := rand.New(rand.NewPCG(seed, 4))
			fw, all := newRoomOf(2 + r.IntN(4))
			brokers := []string{"", "a", "b"}[:1+r.IntN(3)]
			for _, f := range all {
				f.moves(brokers[r.IntN(len(brokers))])
				f.change(func(amount) amount { return amount{1 + r.Int64N(leastBytes), 1 + r.Int64N(leastMessages)} })
			}
			for !slices.ContainsFunc(all, fw.room.full) {
				all[r.IntN(len(all))].change(func(amount) amount { return amount{r.Int64N(OutboxBytes / 4), r.Int64N(OutboxMessages / 4)} })
			}
			s := &steps{r: r}
			fw.room.step = s.stop
			for _, f := range all {
				if r.IntN(2) == 0 {
					go fw.room.wait(f)
				}
			}
			if r.IntN(2) == 0 { // some wait already
				s.run()
				for _, f := range all {
					waited += f.waiting
				}
			}
			// What concerns one sender comes in order: its mu would be held.
			for _, f := range all {
				var tasks []func()
				for range r.IntN(4) {
					switch to, part := brokers[r.IntN(len(brokers))], 1+r.Int64N(12); r.IntN(6) {
					case 0:
						tasks = append(tasks, func() { f.moves(to) })
					case 1:
						tasks = append(tasks, func() {
							if f.party.Load() == nil {
								f.moves(to)
							}
							f.change(func(amount) amount { return amount{leastBytes / part, leastMessages / part} })
						})
					default:
						tasks = append(tasks, func() {
							f.change(func(held amount) amount { return amount{-held.bytes / part, -held.messages / part} })
						})
					}
				}
				go func() {
					for _, task := range tasks {
						task()
					}
				}()
			}
			closes := r.IntN(4) == 0
			if closes {
				go func() {
					fw.closed.Store(true)
					fw.room.at(unlocked)
					fw.room.letGo()
				}()
			}
			s.run()
			if err := fw.room.check(all); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if closes && slices.ContainsFunc(all, func(f *Sender) bool { return f.waiting > 0 }) {
				t.Fatalf("seed %d: publishers wait although the room is closed", seed)
			}
			fw.room.step = nil
			if err := fw.room.empties(all); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
	if waited == 0 {
		t.Error("nobody ever waited")
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
			if slow.sender.waiting != connections {
				t.Fatalf("of %d connections %d wait for the silent leader", connections, slow.sender.waiting)
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
			for slow.sender.waiting > 0 {
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
	if held := fw.room.held.load(); held.bytes > OutboxBytes*4/3+2*leastBytes || held.bytes < OutboxBytes {
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
