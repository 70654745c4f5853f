package viewing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/view"
)

// troubled makes a world that has trouble while records come: leaders and the owner change between
// any two steps, brokers restart, or have no memory for a while, messages between them are lost or
// come twice, and outputs refuse appends or don't answer. In the end there is none, and a record
// that closes all windows.
func troubled(t *testing.T, seed uint64, of *Declared, number func(w *world) int) *world {
	w := newWorld(t, seed, of, 1+int(seed%3))
	w.mu.Lock()
	if w.losses, w.refusals = 10, 8; of.Output == "" {
		w.refusals = 30 // it has few appends
	}
	w.mu.Unlock()
	shards := w.topics["in"]
	for range 250 {
		switch n := w.steps.IntN(21); {
		case n < 13:
			w.publish(w.steps.IntN(len(shards)), event{time.Now().UnixMilli() - int64(w.steps.ExpFloat64()*800), string(rune('a' + w.steps.IntN(3))), number(w)})
			time.Sleep(time.Duration(w.steps.IntN(300)) * time.Millisecond)
		case n < 15:
			w.lead(shards[w.steps.IntN(len(shards))], w.steps.IntN(3))
		case n < 16:
			w.lead(shards[0], w.steps.IntN(3)) // the owner
		case n < 17 && w.steps.IntN(2) == 0: // as after a snapshot of cursors
			of := shards[w.steps.IntN(len(shards))].state
			of.Roll()
			_, end, _ := of.Offsets()
			if _, err := of.Trim(end); err != nil {
				t.Fatal(err)
			}
		case n < 17:
			w.lead(w.topics["out"][w.steps.IntN(2)], w.steps.IntN(3))
		case n < 18 && w.steps.IntN(6) == 0:
			w.restart(w.steps.IntN(3))
		case n < 18 && w.steps.IntN(2) == 0: // its parts pause, or go on
			w.mu.Lock()
			s := w.services[w.steps.IntN(3)]
			w.mu.Unlock()
			s.memory.Store(1<<30 - s.memory.Load())
		case n < 19:
			w.ask()
		default:
			time.Sleep(time.Duration(w.steps.IntN(3000)) * time.Millisecond)
		}
	}
	w.mu.Lock()
	w.losses, w.refusals = 0, 0
	for _, s := range w.services {
		s.memory.Store(1 << 30)
	}
	w.mu.Unlock()
	for n := range shards {
		w.publish(n, event{time.Now().Add(time.Minute).UnixMilli(), "end", 0})
	}
	return w
}

// tally is what some worlds have had. A kind of trouble that hardly happened tests nothing.
type tally struct {
	moves, refused, unknown, raised, pages int
	late, passed                           int // records; those that only an advance has made late
}

func (n *tally) add(w *world) {
	n.moves, n.refused, n.unknown, n.pages = n.moves+w.moves, n.refused+w.refused, n.unknown+w.unknown, n.pages+len(w.pages)
	for _, all := range w.messages("alerts") {
		n.raised += len(all)
	}
	inputs := w.inputs()
	late := recount(&w.declared.Spec, inputs).late
	for i := range inputs {
		inputs[i].advances = nil
	}
	n.late, n.passed = n.late+late, n.passed+late-recount(&w.declared.Spec, inputs).late
}

// parts calls f with the parts of all shards.
func (w *world) parts(f func(p *part[*leader])) {
	w.each(func(_ *shardLogs, at *leader) {
		if p := w.services[at.broker].part(at, "means"); p != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.engine != nil {
				f(p)
			}
		}
	})
}

// TestResultsAndAlertsAreThereOnceWhateverMoves: in the end each window and each alert is there
// once, as a recount has them, also if a shard without records was passed over: then a record is
// late after an advance. The same records are late. Present values that a client was told meanwhile
// are those of a recount of the records before their offsets.
func TestResultsAndAlertsAreThereOnceWhateverMoves(t *testing.T) {
	for name, window := range map[string]view.Window{
		"tumbling": {Tumbling: time.Second},
		"sliding":  {Sliding: &view.Sliding{Size: time.Second, Every: 300 * time.Millisecond}},
		"session":  {Session: 400 * time.Millisecond},
	} {
		for _, idle := range []time.Duration{0, 700 * time.Millisecond} {
			var n tally
			window.Time, window.Lateness, window.Idle = "json.t", time.Second, idle
			if idle > 0 {
				window.Lateness = 300 * time.Millisecond
			}
			for seed := range uint64(12) {
				synctest.Test(t, func(t *testing.T) {
					w := troubled(t, seed, viewOf(window), func(w *world) int { return w.steps.IntN(20) })
					defer w.close()
					w.settle()
					pass(time.Minute) // and nothing comes again
					w.settle()
					late := 0
					w.parts(func(p *part[*leader]) {
						late += int(p.engine.Counts().Late)
						if p.removed > 0 {
							t.Errorf("of shard %d %d records were gone", p.place.Number, p.removed)
						}
						if held := p.engine.Held(); held > 1 && window.Sliding == nil || held > 4 { // those of the end
							t.Errorf("shard %d holds %d windows", p.place.Number, held)
						}
					})
					if want := recount(&w.declared.Spec, w.inputs()).late; late != want {
						t.Errorf("%d records are late, want %d", late, want)
					}
					w.judgePages()
					n.add(w)
				})
				if t.Failed() {
					t.Fatalf("%s, seed %d, idle %v", name, seed, idle)
				}
			}
			t.Logf("%s, idle %v: %+v", name, idle, n)
			if min(n.moves, n.refused, n.unknown, n.raised, n.late, n.pages) < 10 || idle > 0 && n.passed < 4 {
				t.Errorf("%s, idle %v: the worlds are too quiet: %+v", name, idle, n)
			}
		}
	}
}

// TestPresentAlertsAgreeWithARecountWhateverMoves: of a view without windows. Each alert is there
// once, and was judged by what a recount has of the records before its offsets. In the end all keys
// are raised or cleared as all records say, and so are the present values.
func TestPresentAlertsAgreeWithARecountWhateverMoves(t *testing.T) {
	var n tally
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			w := troubled(t, seed, viewOf(view.Window{}), func(w *world) int { return w.steps.IntN(79) - 39 })
			defer w.close()
			pass(2 * time.Minute) // alertsAgain, and more
			w.judgePresentAlerts()
			w.asking.Wait()
			before := len(w.pages)
			w.ask()
			w.asking.Wait()
			if len(w.pages) == before {
				t.Error("there are no present values in the end")
			} else if last := w.pages[before].page; !slices.Equal(last.Offsets, w.ends()) {
				t.Errorf("the present values in the end are of %v, want %v", last.Offsets, w.ends())
			}
			w.judgePages()
			if results := w.messages("out"); len(results) > 0 {
				t.Errorf("it has results: %v", results)
			}
			n.add(w)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%+v", n)
	if min(n.moves, n.refused, n.unknown, n.raised, n.pages) < 10 {
		t.Errorf("the worlds are too quiet: %+v", n)
	}
}

// TestAlertsGoOnSoonAfterAShardWasSilent: the wait for its answer does not count as work, by which
// the pause of an owner without windows grows.
func TestAlertsGoOnSoonAfterAShardWasSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, viewOf(view.Window{}), 2)
		defer w.close()
		w.lead(w.topics["in"][0], 0)
		w.lead(w.topics["in"][1], 1)
		losses := func(of int) {
			w.mu.Lock()
			w.losses = of
			w.mu.Unlock()
		}
		losses(100)
		pass(20 * time.Second)
		losses(0)
		w.publish(1, event{Key: "a", N: 31})
		pass(2*answerWithin + 2*presentEvery + time.Second)
		if got := len(w.messages("alerts")); got != 1 {
			t.Errorf("there are alerts of %d keys", got)
		}
		w.publish(1, event{Key: "b", N: 31})
		pass(2*presentEvery + time.Second)
		if got := len(w.messages("alerts")); got != 2 {
			t.Errorf("there are alerts of %d keys", got)
		}
	})
}

// known returns how many records a part knows.
func known(p *part[*leader]) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Counts().Records
}

// TestANewLeaderTrimsNothingThatItsPartsNeed: the state log is trimmed as soon as a broker leads,
// and the part goes on from its checkpoint.
func TestANewLeaderTrimsNothingThatItsPartsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 0), 1)
		defer w.close()
		in := w.topics["in"][0]
		for n := range 40 {
			w.publish(0, event{time.Now().UnixMilli(), "a", n})
			pass(time.Second)
		}
		before := w.services[in.now.broker].saves.Load()
		if before < 2 {
			t.Fatalf("%d checkpoints were written", before)
		}
		w.lead(in, (in.now.broker+1)%3)
		in.state.Roll()
		_, end, _ := in.state.Offsets()
		if _, err := in.state.Trim(end); err != nil {
			t.Fatal(err)
		}
		if _, err := in.data.Trim(20); err != nil { // a part without its checkpoint would begin there
			t.Fatal(err)
		}
		pass(5 * time.Second)
		p := w.services[in.now.broker].part(in.now, "means")
		if got := known(p); got != 40 {
			t.Errorf("of 40 records the view knows %d", got)
		}
		for range 3 { // another idle time needs no other checkpoint
			p = w.services[in.now.broker].part(in.now, "means")
			w.mu.Lock()
			other := *w.declared
			other.Spec.Window.Idle += time.Hour
			w.declared = &other
			w.mu.Unlock()
			for range 50 {
				time.Sleep(9 * time.Millisecond)
				in.state.Roll()
				_, end, _ := in.state.Offsets()
				if _, err := in.state.Trim(end); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			after := w.services[in.now.broker].part(in.now, "means")
			if got := known(after); after == p || got != 40 {
				t.Errorf("of 40 records the changed view knows %d (the same part: %v)", got, after == p)
			}
		}
	})
}

// TestALaterLeaderMakesTheAdvancesOfAnEarlierOne: what was late under one leader is late under the
// next one, which was not idle for long enough itself.
func TestALaterLeaderMakesTheAdvancesOfAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 3*time.Second), 1)
		defer w.close()
		in := w.topics["in"][0]
		began := time.Now().UnixMilli()
		w.publish(0, event{began, "a", 1})
		pass(8 * time.Second) // it is advanced, and the checkpoint is from before
		w.lead(in, (in.now.broker+1)%3)
		w.publish(0, event{began, "a", 1})
		pass(2 * time.Second)
		p := w.services[in.now.broker].part(in.now, "means")
		p.mu.Lock()
		defer p.mu.Unlock()
		if c := p.engine.Counts(); c.Records != 2 || c.Late != 1 {
			t.Errorf("of 2 records the view knows %d, and %d are late", c.Records, c.Late)
		}
	})
}

// TestAViewThatIsGoneLeavesNothing: its goroutines end, and its state log is not held any more. One
// that is made anew under its name begins anew.
func TestAViewThatIsGoneLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 0), 2)
		defer w.close()
		for n := range 30 {
			w.publish(n%2, event{time.Now().UnixMilli(), "a", n})
			pass(time.Second)
		}
		count := func() (runs int, held bool) {
			for _, s := range w.services {
				s.mu.Lock()
				runs += len(s.runs)
				for _, l := range s.ledgers {
					held = held || l.entry != nil
				}
				s.mu.Unlock()
			}
			return runs, held
		}
		if runs, held := count(); runs != 3 || held {
			t.Fatalf("there are %d goroutines (held %v), want two parts and an owner", runs, held)
		}
		w.mu.Lock()
		w.none = true
		w.mu.Unlock()
		pass(5 * time.Second)
		if runs, held := count(); runs != 0 || held {
			t.Errorf("there are %d goroutines (held %v)", runs, held)
		}
		for _, l := range w.topics["in"] {
			l.state.Roll()
			_, end, _ := l.state.Offsets()
			if start, err := l.state.Trim(end); start != end || err != nil {
				t.Errorf("the state log begins at %d, and ends at %d: %v", start, end, err)
			}
		}
		w.mu.Lock()
		again := *w.declared
		again.Made++
		w.none, w.declared = false, &again
		w.mu.Unlock()
		pass(5 * time.Second)
		records := uint64(0)
		for _, s := range w.services {
			records += s.Stats().Records
		}
		if _, end, _ := w.topics["in"][0].data.Offsets(); records == 0 || records > 2*end {
			t.Errorf("the view that was made anew knows %d records", records)
		}
	})
}

// TestALargeViewPausesAndASmallOneGoesOn: when the windows of a broker take more memory than they
// may. The large one says so, and goes on where it was when memory is given back.
func TestALargeViewPausesAndASmallOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(time.Hour, 0), 2)
		defer w.close()
		large, small := w.topics["in"][0], w.topics["in"][1]
		w.lead(large, 0)
		w.lead(small, 0)
		s := w.services[0]
		pass(5 * time.Second)
		const most, others = 6 << 18, 4<<18 - 20<<10
		s.memory.Store(most)
		s.bytes.Add(others)
		for n := range 500 {
			w.publish(0, event{time.Now().UnixMilli(), fmt.Sprint("key", n), 1})
			if n%50 == 0 {
				pass(2 * time.Second)
			}
		}
		pass(5 * time.Second)
		for n := range 10 {
			w.publish(1, event{time.Now().UnixMilli(), fmt.Sprint("key", n), 1})
		}
		pass(5 * time.Second)
		known := func(l *shardLogs) (records uint64, paused error) {
			p := s.part(l.now, "means")
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.engine.Counts().Records, p.paused
		}
		if n, paused := known(large); n == 0 || n >= 500 || paused != errMemory {
			t.Errorf("the large view knows %d of 500 records, and is paused by %v", n, paused)
		}
		if n, paused := known(small); n != 10 || paused != nil {
			t.Errorf("the small view knows %d of 10 records, and is paused by %v", n, paused)
		}
		if stats := s.Stats(); stats.Bytes < 4<<18 || stats.Bytes > 4<<18+10<<10 || stats.Most != most || stats.Crowded != 1 {
			t.Errorf("of %d bytes %d are held, and %d wait", stats.Most, stats.Bytes, stats.Crowded)
		}
		if page, err := s.Values(t.Context(), large.now, "means", &Ask{Limit: 1}); err != nil || page.Trouble != "shard 0: "+errMemory.Error() {
			t.Errorf("a request for values is answered by %+v, %v", page, err)
		}
		s.give(others)
		pass(5 * time.Second)
		if n, paused := known(large); n != 500 || paused != nil {
			t.Errorf("the large view knows %d of 500 records, and is paused by %v", n, paused)
		}
	})
}

// TestAnAdvanceCountsOnlyOnceAllReplicasHaveIt: also for a part that begins while it waits for
// them, since the view was changed. Else a window would be closed that the next leader keeps open.
func TestAnAdvanceCountsOnlyOnceAllReplicasHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(0, 3*time.Second), 1)
		defer w.close()
		in := w.topics["in"][0]
		pass(2 * time.Second)
		w.publish(0, event{time.Now().UnixMilli() - 2000, "a", 1}) // the first advance closes its window
		pass(time.Millisecond)
		in.now.cut.Store(true)
		pass(20 * time.Second) // the advance is in the state log of the leader
		w.mu.Lock()
		other := *w.declared
		other.Spec.Window.Idle++
		w.declared = &other
		w.mu.Unlock()
		pass(20 * time.Second)
		if results, _ := w.outputs(); len(results) > 0 {
			t.Errorf("there are results of an advance that may be lost: %v", results)
		}
		w.lead(in, (in.now.broker+1)%3)
		pass(20 * time.Second)
		if results, _ := w.outputs(); len(results) != 1 {
			t.Errorf("there are %v", results)
		}
	})
}

// TestAViewWithoutRoomKeepsItsCheckpoint: until it has room, or its state log would have no end.
// Its report says why it is not kept.
func TestAViewWithoutRoomKeepsItsCheckpoint(t *testing.T) {
	for _, most := range []int{waitingBytes, 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, tumbling(0, 0), 1)
			defer w.close()
			in := w.topics["in"][0]
			for n := range 40 {
				w.publish(0, event{time.Now().UnixMilli(), "a", n})
				pass(time.Second)
			}
			to := (in.now.broker + 1) % 3
			s := w.services[to]
			room := func(parts, owners int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.maxParts, s.maxOwners, s.waitingBytes = parts, owners, most
			}
			room(0, 0)
			w.lead(in, to)
			pass(5 * time.Second)
			in.state.Roll()
			_, end, _ := in.state.Offsets()
			if _, err := in.state.Trim(end); err != nil {
				t.Fatal(err)
			}
			if trimmed := in.state.Start() == end; trimmed != (most == 0) {
				t.Errorf("with %d bytes for views that wait, the log is trimmed: %v", most, trimmed)
			}
			if all := s.Reports(in.now); len(all) != 1 || !strings.Contains(all[0].Trouble, "no room for this shard") {
				t.Errorf("without room the report is %+v", all)
			}
			if _, err := in.data.Trim(20); err != nil {
				t.Fatal(err)
			}
			room(1, 0)
			pass(5 * time.Second)
			if got := known(s.part(in.now, "means")); most > 0 && got != 40 {
				t.Errorf("of 40 records the view knows %d", got)
			}
			if all := s.Reports(in.now); len(all) != 1 || !strings.Contains(all[0].Trouble, "no room for its results") {
				t.Errorf("without room for owners the report is %+v", all)
			}
		})
	}
}

// TestPresentValuesAreForgotten: those of all shards may have much memory, and nobody asks again.
func TestPresentValuesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(time.Hour, 0), 1)
		defer w.close()
		in := w.topics["in"][0]
		w.publish(0, event{time.Now().UnixMilli(), "a", 1})
		pass(5 * time.Second)
		s := w.services[in.now.broker]
		page, err := s.Values(t.Context(), in.now, "means", &Ask{})
		if err != nil || len(page.Values) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		pass(5 * time.Second)
		got := &s.owner(in.now, "means").got
		got.turn <- struct{}{}
		defer func() { <-got.turn }()
		if got.rows != nil {
			t.Errorf("%d values are kept", len(got.rows))
		}
	})
}

// TestAPausedPartWritesCheckpoints: also before it has made the advances of an earlier leader, or
// it would hold the state log without end. The next leader makes them.
func TestAPausedPartWritesCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := tumbling(0, 3*time.Second)
		of.Spec.Window.Tumbling = time.Hour
		w := newWorld(t, 1, of, 1)
		defer w.close()
		in := w.topics["in"][0]
		w.publish(0, event{time.Now().UnixMilli(), "a", 1})
		pass(15 * time.Second)
		watermark := func() int64 {
			for range 25 { // less than after what it is idle itself
				pass(100 * time.Millisecond) // an advance that is due then is made
				p := w.services[in.now.broker].part(in.now, "means")
				if p == nil {
					continue
				}
				p.mu.Lock()
				if p.engine != nil && p.next > 1 {
					defer p.mu.Unlock()
					return p.engine.Watermark()
				}
				p.mu.Unlock()
			}
			t.Fatal("the part does not begin")
			return 0
		}
		before := watermark()
		s := w.services[(in.now.broker+1)%3]
		s.memory.Store((3*w.services[in.now.broker].bytes.Load() + 1) / 2) // it fits, and no more does
		w.publish(0, event{before/1e6 - 1000, "b", 1})
		w.lead(in, (in.now.broker+1)%3)
		pass(5 * time.Second)
		if at := watermark(); at >= before || s.saves.Load() > 0 {
			t.Fatalf("the part is not paused before an advance: %d of %d, and %d checkpoints", at, before, s.saves.Load())
		}
		for range 3 * heldBytes / chunkBytes {
			if _, err := in.state.Append(&log.Append{Epoch: 1, Records: []log.Record{{Data: make([]byte, chunkBytes)}}}); err != nil {
				t.Fatal(err)
			}
		}
		_, end, _ := in.state.Offsets()
		pass(20 * time.Second)
		if held := in.state.Pinned(); held < end {
			t.Errorf("the state log is held from %d on, and not from %d", held, end)
		}
		w.lead(in, (in.now.broker+1)%3)
		if at := watermark(); at != before {
			t.Errorf("the next leader has closed up to %d, and the first one up to %d", at, before)
		}
	})
}
