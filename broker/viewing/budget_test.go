package viewing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/view"
)

// TestViewsTakeNoMoreThanTheirMemory: whatever is restored and lent, however they grow, and
// whenever they begin and end. Each that has less than its share grows, and beyond it only while
// there is some of what is for whoever comes first.
func TestViewsTakeNoMoreThanTheirMemory(t *testing.T) {
	const most, step = 1 << 20, 400
	var full, aheads, refused, small, high, turns int
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := &budget{}
		b.init(most)
		var holds []int64
		begin := func() {
			holds = append(holds, 0)
			b.holders.Add(1)
		}
		begin()
		var lent []*loan
		for range 3000 {
			i := r.IntN(len(holds))
			share := b.share()
			switch n := r.IntN(100); {
			case n < 8 && len(holds) < 40+int(seed):
				begin()
			case n == 8 && len(holds) > 1: // as when leaders change
				for len(holds) > 1 && r.IntN(len(holds)) > 0 {
					b.give(holds[len(holds)-1])
					holds = holds[:len(holds)-1]
					b.holders.Add(-1)
				}
			case n < 20 && holds[i] == 0: // it is restored
				size, all := r.Int64N(b.sixths(4)), b.bytes.Load()
				if r.IntN(2) == 0 {
					size = r.Int64N(share + share/2 + 2)
				}
				if b.take(0, size) {
					holds[i] = size
				} else if refused++; size <= share || all+size <= b.sixths(4) {
					t.Fatalf("a checkpoint of %d bytes is refused beside %d, with a share of %d", size, all, share)
				}
			case n < 24:
				b.give(holds[i])
				holds[i] = 0
			case n < 30:
				l := &loan{of: b, kind: []chan struct{}{b.telling, b.making}[r.IntN(2)]}
				size := r.Int64N(most)
				if !l.take(size) && len(l.kind) == 0 && l.wait(t.Context()) && l.take(min(size, l.rest())) {
					turns++
				}
				lent = append(lent, l)
			case n < 40 && len(lent) > 0:
				lent[0].give()
				lent = lent[1:]
			default:
				ahead := r.IntN(3) == 0
				for range 50 {
					all, grows := b.bytes.Load(), b.grows(holds[i], ahead)
					if want := holds[i] < share || all < b.sixths(2) || !ahead && all < b.sixths(4); grows != want {
						t.Fatalf("one with %d bytes, and a share of %d, grows beside %d: %v", holds[i], share, all, grows)
					}
					if room := b.room(holds[i]); room < share || room > share && room > max(holds[i], b.sixths(2)) {
						t.Fatalf("an owner with %d bytes has room for %d beside %d", holds[i], room, all)
					}
					if !grows {
						full++
						if ahead && all < b.sixths(4) {
							aheads++
						}
						break
					}
					if all >= b.sixths(4) {
						small++
					}
					if all > b.sixths(5) {
						high++
					}
					b.bytes.Add(step)
					holds[i] += step
				}
			}
			large, sum := int64(0), int64(0)
			for _, l := range lent {
				if sum += l.size; l.turn {
					large += l.size
				}
			}
			for _, size := range holds {
				sum += size
			}
			if all := b.bytes.Load(); all != sum || all-large > most+step*int64(len(holds)) {
				t.Fatalf("seed %d: %d bytes of %d are held, %d of them by large loans, and %d are counted", seed, sum, most, large, all)
			}
		}
	}
	if min(full, aheads, refused, small, high, turns) < 100 {
		t.Errorf("%d waits, %d of those that are ahead, %d refusals, %d steps within a share, %d of them beyond five sixths, and %d turns", full, aheads, refused, small, high, turns)
	}
}

// TestSharesOfAllWhoEverComeFit: those that begin one by one, and fill their share before the next
// one begins, have a sixth together.
func TestSharesOfAllWhoEverComeFit(t *testing.T) {
	b := &budget{}
	b.init(1 << 30)
	sum := int64(0)
	for n := range int64(maxParts + maxOwners) {
		b.holders.Store(n + 1)
		if b.share() == 0 {
			t.Fatalf("%d holders have no share", n+1)
		}
		sum += b.share()
	}
	if sum > b.sixths(1) || sum < b.sixths(1)/2 {
		t.Errorf("all shares are %d bytes, of %d", sum, b.sixths(1))
	}
}

// TestAFewFullShardsFitIntoTheSmallestBroker: of keys or windows that stay open, and without a
// share.
func TestAFewFullShardsFitIntoTheSmallestBroker(t *testing.T) {
	const open = 16 << 20 // package view: maxOpenBytes
	profile, err := limits.ForProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	b := &budget{}
	b.init(profile.Views)
	b.holders.Store(maxParts + maxOwners)
	for n := range 5 {
		if !b.take(0, open-1) || !b.grows(open-1, false) {
			t.Fatalf("shard %d does not grow beside %d bytes", n, b.bytes.Load())
		}
	}
}

// hours returns a view of windows that stay open.
func hours() *Declared {
	of := tumbling(0, 0)
	of.Spec.Window.Tumbling = 1000 * time.Hour
	return of
}

// TestCheckpointsAreRestoredAsThereIsRoom: a broker that begins to lead many shards has no more in
// memory than it may. The others say that they wait, keep their checkpoints, and go on with room.
func TestCheckpointsAreRestoredAsThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, keys = 6, 100
		w := newWorld(t, 1, hours(), shards)
		defer w.close()
		in := w.topics["in"]
		for n, l := range in {
			w.lead(l, 1+n%2)
			for key := range keys {
				w.publish(n, event{time.Now().UnixMilli(), fmt.Sprint("key", key), 1})
			}
		}
		pass(15 * time.Second) // there are checkpoints
		one := w.services[1].bytes.Load() / 3
		s := w.services[0]
		s.Trim = func(*leader, int64) {}
		s.memory.Store(4 * one) // three are restored, and there is room for what owners have
		for _, l := range in {
			w.lead(l, 0)
		}
		states := func() (restored, waiting int) {
			for _, l := range in {
				p := s.part(l.now, "means")
				p.mu.Lock()
				engine, paused := p.engine, p.paused
				p.mu.Unlock()
				switch {
				case engine != nil:
					restored++
				case errors.Is(paused, errMemory) && strings.Contains(paused.Error(), "; the checkpoint of this shard waits for "):
					waiting++
				}
			}
			return restored, waiting
		}
		pass(5 * time.Second)
		ends := make([]uint64, shards)
		for n, l := range in { // the log goes on, and is trimmed
			for range 3 * heldBytes / chunkBytes {
				if _, err := l.state.Append(&log.Append{Epoch: 1, Records: []log.Record{{Data: make([]byte, chunkBytes)}}}); err != nil {
					t.Fatal(err)
				}
			}
			_, ends[n], _ = l.state.Offsets()
		}
		pass(30 * time.Second)
		for _, l := range in {
			if _, err := l.data.Trim(keys); err != nil {
				t.Fatal(err)
			}
			l.state.Roll()
			_, end, _ := l.state.Offsets()
			if _, err := l.state.Trim(end); err != nil {
				t.Fatal(err)
			}
			if held := l.state.Pinned(); held < ends[l.number] {
				t.Errorf("the state log of shard %d is held from %d on, and not from %d", l.number, held, ends[l.number])
			}
		}
		restored, waiting := states()
		if restored == 0 || restored+waiting != shards || waiting == 0 {
			t.Errorf("%d of %d are restored, and %d wait", restored, shards, waiting)
		}
		stats := s.Stats()
		if stats.Bytes > stats.Most || stats.Crowded < waiting {
			t.Errorf("%d bytes of %d, and %d wait for memory", stats.Bytes, stats.Most, stats.Crowded)
		}
		troubles := 0
		for _, l := range in {
			for _, r := range s.Reports(l.now) {
				if strings.Contains(r.Trouble, errMemory.Error()) {
					troubles++
				}
			}
		}
		if troubles < waiting {
			t.Errorf("%d of %d reports say why", troubles, waiting)
		}
		if _, err := s.Values(t.Context(), in[0].now, "means", &Ask{}); err == nil || !strings.Contains(err.Error(), errMemory.Error()) {
			t.Errorf("values are answered with %v", err)
		}
		s.memory.Store(1 << 30)
		pass(10 * time.Second)
		for _, l := range in {
			if n := known(s.part(l.now, "means")); n != keys {
				t.Errorf("shard %d knows %d of %d records", l.number, n, keys)
			}
		}
		if stats := s.Stats(); stats.Crowded > 0 || stats.RemovedUnread > 0 {
			t.Errorf("with room there are %+v", stats)
		}
		page, err := s.Values(t.Context(), in[0].now, "means", &Ask{Limit: 3})
		if err != nil || len(page.Values) != 3 || page.Values[0].Values["readings"].Count != shards {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// TestAnOwnerTakesNoMoreThanThereIs: of a shard that is ahead of others, and of what it can read
// again. It says so, and goes on.
func TestAnOwnerTakesNoMoreThanThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, most = 500, 20 << 10
		w := newWorld(t, 1, tumbling(0, 0), 2)
		defer w.close()
		behind, ahead := w.topics["in"][0], w.topics["in"][1]
		w.lead(behind, 0)
		w.lead(ahead, 1)
		s := w.services[0]
		var lost atomic.Bool
		s.MayRead = func(string, string, []string) bool { return !lost.Load() }
		s.memory.Store(most)
		at := time.Now().UnixMilli()
		for key := range keys {
			w.publish(1, event{at, fmt.Sprint("key", key), 1})
		}
		w.publish(1, event{at + 5000, "later", 1})
		pass(30 * time.Second)
		stats := s.Stats()
		if stats.Crowded != 1 || stats.Bytes == 0 || stats.Bytes > most+64<<10 {
			t.Errorf("%d wait for memory, and there are %d bytes", stats.Crowded, stats.Bytes)
		}
		if all := s.Reports(behind.now); len(all) != 1 || !strings.Contains(all[0].Trouble, "shard 1: "+errMemory.Error()) {
			t.Errorf("the report is %+v", all)
		}
		lost.Store(true)
		pass(30 * time.Second)
		if stats := s.Stats(); stats.Crowded != 0 || stats.Failing != 1 {
			t.Errorf("without the right, %d wait for memory, and %d fail", stats.Crowded, stats.Failing)
		}
		lost.Store(false)
		pass(30 * time.Second)
		w.publish(0, event{at + 5000, "later", 1})
		pass(30 * time.Second)
		if results, _ := w.outputs(); len(results) != keys {
			t.Errorf("there are results of %d keys", len(results))
		}
		w.publish(0, event{at + 9000, "later", 1})
		w.publish(1, event{at + 9000, "later", 1})
		pass(30 * time.Second)
		o := s.owner(behind.now, "means")
		o.mu.Lock()
		bytes := o.tenure.known
		o.mu.Unlock()
		if bytes == 0 || bytes > 10*(lastBytes+50) {
			t.Errorf("%d bytes are known of the outputs", bytes)
		}
		if stats := s.Stats(); stats.Crowded > 0 {
			t.Errorf("%d wait", stats.Crowded)
		}
	})
}

// TestResultsAreTheSameWhateverRoomThereIs: while brokers have room and none by turns, and leaders
// change, restore and wait. In the end each window and each alert is there once, and no broker
// counts memory of what is gone.
func TestResultsAreTheSameWhateverRoomThereIs(t *testing.T) {
	crowded, forgot := 0, 0
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			const lateness = time.Second
			w := newWorld(t, seed, tumbling(lateness, 0), 1+int(seed%3))
			defer w.close()
			for _, s := range w.services {
				s.Trim = func(*leader, int64) {}
			}
			logs := make([][]event, len(w.topics["in"]))
			put := func(shard int, e event) {
				logs[shard] = append(logs[shard], e)
				w.publish(shard, e)
			}
			for range 200 {
				switch n := w.steps.IntN(20); {
				case n < 14:
					put(w.steps.IntN(len(logs)), event{time.Now().UnixMilli() - int64(w.steps.ExpFloat64()*600), string(rune('a' + w.steps.IntN(6))), w.steps.IntN(20)})
					time.Sleep(time.Duration(w.steps.IntN(300)) * time.Millisecond)
				case n < 16:
					w.lead(w.topics["in"][w.steps.IntN(len(logs))], w.steps.IntN(3))
				case n < 18:
					w.services[w.steps.IntN(3)].memory.Store([]int64{0, 1000, 4000, 1 << 30}[w.steps.IntN(4)])
				default:
					time.Sleep(time.Duration(w.steps.IntN(3000)) * time.Millisecond)
				}
				for _, s := range w.services {
					crowded += s.Stats().Crowded
				}
				w.each(func(l *shardLogs, at *leader) {
					if l.topic != "in" || l.number != 0 {
						return
					}
					if o := w.services[at.broker].owner(at, "means"); o != nil {
						o.mu.Lock()
						if t := o.tenure; t != nil && t.begun && t.known == 0 && t.engine.Watermark() > 0 {
							forgot++
						}
						o.mu.Unlock()
					}
				})
			}
			for _, s := range w.services {
				s.memory.Store(1 << 30)
			}
			for shard := range logs {
				put(shard, event{time.Now().Add(time.Minute).UnixMilli(), "end", 0})
			}
			w.settle()
			if _, err := w.services[w.topics["in"][0].now.broker].Values(t.Context(), w.topics["in"][0].now, "means", &Ask{}); err != nil {
				t.Error(err)
			}
			w.mu.Lock()
			w.none = true
			w.mu.Unlock()
			pass(5 * time.Second)
			for n, s := range w.services {
				if bytes := s.bytes.Load(); bytes != 0 {
					t.Errorf("broker %d has %d bytes of views that are gone", n, bytes)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d waits for memory, %d owners that know no messages", crowded, forgot)
	if crowded < 100 || forgot < 20 {
		t.Error("there is too much room")
	}
}

// TestAPartThatIsAheadLeavesRoomForTheOthers: it holds closed windows until the others are there,
// too, which takes memory. So it stops at half of what is for whoever comes first.
func TestAPartThatIsAheadLeavesRoomForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const windows, keys = 10, 160
		w := newWorld(t, 1, tumbling(0, 0), 2)
		defer w.close()
		ahead, behind := w.topics["in"][0], w.topics["in"][1]
		w.lead(ahead, 0)
		w.lead(behind, 0)
		s := w.services[0]
		s.Trim = func(*leader, int64) {}
		s.memory.Store(640 << 10)
		at := time.Now().Truncate(time.Second).UnixMilli()
		fill := func(shard int) {
			for window := range windows {
				for key := range keys {
					w.publish(shard, event{at + 1000*int64(window), fmt.Sprint("key", key), 1})
				}
				pass(2 * time.Second)
			}
			w.publish(shard, event{at + 1000*windows, "later", 1})
			pass(5 * time.Second)
		}
		fill(0)
		p := s.part(ahead.now, "means")
		p.mu.Lock()
		if p.paused == nil || p.size > 240<<10 || p.size < 40<<10 {
			t.Errorf("the part that is ahead has %d bytes, and is paused by %v", p.size, p.paused)
		}
		p.mu.Unlock()
		fill(1)
		pass(time.Minute)
		results, _ := w.outputs()
		if len(results) != keys {
			t.Errorf("there are results of %d of %d keys", len(results), keys)
		}
		for key, all := range results {
			if len(all) != windows || !strings.HasSuffix(all[0], " count 2 sum 2") {
				t.Errorf("the results of %s are %v", key, all)
			}
		}
		if stats := s.Stats(); stats.Crowded > 0 {
			t.Errorf("%d wait for memory", stats.Crowded)
		}
	})
}

// TestACrowdedPartIsStillAdvanced: if its shard is idle, which closes windows and so gives memory
// back.
func TestACrowdedPartIsStillAdvanced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 3*time.Second), 1)
		defer w.close()
		in := w.topics["in"][0]
		w.publish(0, event{time.Now().UnixMilli(), "a", 1})
		pass(time.Second)
		s := w.services[in.now.broker]
		s.memory.Store(0)
		pass(20 * time.Second)
		if results, _ := w.outputs(); len(results) != 1 {
			t.Errorf("there are results of %d keys", len(results))
		}
		w.publish(0, event{time.Now().UnixMilli(), "a", 1})
		pass(5 * time.Second)
		if stats := s.Stats(); stats.Crowded != 1 || stats.Records != 1 {
			t.Errorf("%d records are known, and %d wait", stats.Records, stats.Crowded)
		}
	})
}

// TestPresentValuesAreToldWhateverOthersHave: to clients and to triggers, also of a shard that does
// not fit once more beside the rest.
func TestPresentValuesAreToldWhateverOthersHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		w := newWorld(t, 1, viewOf(view.Window{}), 1)
		defer w.close()
		in := w.topics["in"][0]
		w.lead(in, 0)
		s := w.services[0]
		for key := range keys {
			w.publish(0, event{time.Now().UnixMilli(), fmt.Sprint("key", key), 1})
		}
		pass(5 * time.Second)
		p := s.part(in.now, "means")
		p.mu.Lock()
		size := p.size
		p.mu.Unlock()
		s.memory.Store(8 * size)
		s.bytes.Add(5 * size / 2) // of others
		w.publish(0, event{time.Now().UnixMilli(), "hot", 31})
		pass(time.Minute)
		if got := len(w.messages("alerts")); got != 1 {
			t.Errorf("there are alerts of %d keys", got)
		}
		s.bytes.Add(10 * size)
		page, err := s.Values(t.Context(), in.now, "means", &Ask{})
		if err != nil || len(page.Values) != keys+1 {
			t.Errorf("the values are answered with %v", err)
		}
		if len(s.making) != 1 {
			t.Error("they fit beside the rest")
		}
		s.give(25 * size / 2)
		w.mu.Lock()
		w.none = true
		w.mu.Unlock()
		pass(5 * time.Second)
		if bytes := s.bytes.Load(); bytes != 0 {
			t.Errorf("there are %d bytes of a view that is gone", bytes)
		}
	})
}
