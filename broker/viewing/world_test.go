package viewing

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/trigger"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// shardLogs are the logs of a shard, as all in-sync replicas have them.
type shardLogs struct {
	topic       string
	number      int
	data, state *log.Log
	removed     removal.Set

	mu    sync.Mutex
	lasts map[string]uint64 // offsets of the last records
	now   *leader
}

// leader is a leader of a shard: the present one, or one that has been replaced.
type leader struct {
	records.Reader
	*shardLogs
	broker   int
	over     atomic.Bool
	cut      atomic.Bool // followers don't get what is appended to the state log
	watchers work.Watchers
}

var errOver = errors.New("another broker leads")

func (s *leader) Name() string                       { return s.topic }
func (s *leader) Offsets() (start, end uint64)       { start, end, _ = s.data.Offsets(); return start, end }
func (s *leader) Watch(changed func()) (stop func()) { return s.watchers.Watch(changed) }
func (s *leader) Unreadable(err error) error         { return err }
func (s *leader) Removed() *removal.Set              { return &s.removed }
func (s *leader) State() *log.Log                    { return s.state }
func (s *leader) Confirm(done func(error)) (now bool) {
	if s.over.Load() {
		done(errOver)
		return false
	}
	return true
}

// AppendState appends. Of a leader that is replaced meanwhile nobody learns whether it did.
func (s *leader) AppendState(a *log.Append) (uint64, error) {
	if s.over.Load() {
		return 0, errOver
	}
	a.Epoch = 1
	if done := a.Done; done != nil {
		a.Done = completed(func(first, end uint64, err error) {
			if s.cut.Load() {
				go func() {
					for !s.over.Load() {
						time.Sleep(time.Millisecond)
					}
					done.Committed(first, end, errOver)
				}()
				return
			}
			if s.over.Load() {
				err = errOver
			}
			done.Committed(first, end, err)
		})
	}
	return s.state.Append(a)
}

type completed func(first, end uint64, err error)

func (c completed) Committed(first, end uint64, err error) { c(first, end, err) }

// network links the brokers of a world.
type network struct {
	publish.Hub
	world *world
	self  int
}

type offer struct{}

func (offer) Set([]string) {}
func (offer) Close()       {}

func (n *network) Offer(publish.Taker) publish.Offer { return offer{} }

func (n *network) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	to, _ := strconv.Atoi(broker)
	w := n.world
	w.mu.Lock()
	s, lost, twice := w.services[to], w.chance(w.losses), w.chance(w.losses)
	w.mu.Unlock()
	if s == nil || lost {
		return s != nil, behind
	}
	sent := protocol.Message{Subject: slices.Clone(m.Subject), Data: slices.Clone(m.Data)}
	s.Take([]protocol.Message{sent}, nil, true)
	if twice {
		s.Take([]protocol.Message{sent}, nil, true)
	}
	return true, behind
}

// world has brokers, a source Topic "in", and the output Topics "out" and "alerts".
type world struct {
	t        *testing.T
	disk     *log.Disk
	declared *Declared

	steps *rand.Rand // of the test

	mu       sync.Mutex
	r        *rand.Rand
	services []*Service[*leader]
	topics   map[string][]*shardLogs
	losses   int // of 100 messages between brokers
	refusals int // of 100 appends to outputs
	none     bool

	moves, refused, unknown int
}

// chance reports true in so many of 100 cases. mu is held.
func (w *world) chance(of int) bool { return w.r.IntN(100) < of }

func newWorld(t *testing.T, seed uint64, of *Declared, shards int) *world {
	w := &world{t: t, declared: of, r: rand.New(rand.NewPCG(seed, 7)), steps: rand.New(rand.NewPCG(seed, 8)), topics: map[string][]*shardLogs{}, services: make([]*Service[*leader], 3)}
	var err error
	if w.disk, err = log.OpenDisk(crashfs.New(), "data", log.Options{}); err != nil {
		t.Fatal(err)
	}
	for topic, n := range map[string]int{"in": shards, "out": 2, "alerts": 1} {
		for number := range n {
			l := &shardLogs{topic: topic, number: number, lasts: map[string]uint64{}}
			if l.data, err = w.disk.Open(log.Identity{Topic: topic, Shard: number}, 1, 1, nil); err != nil {
				t.Fatal(err)
			}
			if l.state, err = w.disk.Open(log.Identity{Topic: topic, Shard: number, Part: "state"}, 1, 1, nil); err != nil {
				t.Fatal(err)
			}
			w.topics[topic] = append(w.topics[topic], l)
		}
	}
	for n := range w.services {
		w.start(n)
	}
	for _, all := range w.topics {
		for _, l := range all {
			w.lead(l, w.steps.IntN(len(w.services)))
		}
	}
	return w
}

// start starts a broker.
func (w *world) start(n int) {
	s := New(Config[*leader]{
		Self: strconv.Itoa(n), Payload: 4 << 10, Memory: 1 << 30, Hub: &network{world: w, self: n}, Logger: slog.New(slog.DiscardHandler),
		Led: func() (all []*leader) {
			w.each(func(l *shardLogs, at *leader) {
				if at != nil && at.broker == n && l.topic == "in" {
					all = append(all, at)
				}
			})
			return all
		},
		Of: func(of *leader) (Place, []*Declared) {
			p := Place{Topic: of.topic, Name: of.topic, Number: of.number, Shards: len(w.topics[of.topic])}
			w.mu.Lock()
			defer w.mu.Unlock()
			if of.topic != "in" || w.none {
				return p, nil
			}
			return p, []*Declared{w.declared}
		},
		Shard: func(topic string, number int) (*leader, bool, string) {
			l := w.topics[topic][number]
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.now == nil {
				return nil, false, ""
			}
			return l.now, l.now.broker == n, strconv.Itoa(l.now.broker)
		},
		Locate: func(topic string, subject []byte) (string, int, error) {
			return topic, int(subject[len(subject)-1]) % len(w.topics[topic]), nil
		},
		Append:     w.append,
		MayRead:    func(string, string, []string) bool { return true },
		Durability: func(*leader) log.Durability { return log.Memory },
		Trim: func(of *leader, _ int64) {
			of.state.Roll()
			_, end, _ := of.state.Offsets()
			_, err := of.state.Trim(end)
			if p := w.services[n].part(of, "means"); p != nil && err == nil { // its checkpoint has all before
				_, err = of.data.Trim(p.engine.Next())
			}
			if err != nil && !of.over.Load() {
				w.t.Error(err)
			}
		},
		Now: func() (time.Time, bool) { return time.Now(), true },
	})
	w.mu.Lock()
	w.services[n], s.chunk = s, 64
	w.mu.Unlock()
	s.Start()
}

func (w *world) each(f func(l *shardLogs, at *leader)) {
	for _, all := range w.topics {
		for _, l := range all {
			l.mu.Lock()
			at := l.now
			l.mu.Unlock()
			f(l, at)
		}
	}
}

// lead has a broker lead a shard.
func (w *world) lead(l *shardLogs, broker int) {
	next := &leader{shardLogs: l, broker: broker}
	next.Init(next, l.topic, l.data, nil)
	l.mu.Lock()
	before := l.now
	if before != nil {
		before.over.Store(true)
	}
	l.mu.Unlock()
	w.mu.Lock()
	s := w.services[broker]
	w.mu.Unlock()
	s.Leading(next, true)
	l.mu.Lock()
	l.now = next
	l.mu.Unlock()
	if before != nil {
		w.mu.Lock()
		former := w.services[before.broker]
		w.moves++
		w.mu.Unlock()
		former.Leading(before, false)
	}
}

// append appends to an output Topic, or refuses to, or does it and does not say so.
func (w *world) append(_, topic string, m *protocol.Message, done func(uint64, error)) {
	l := w.topics[topic][int(m.Subject[len(m.Subject)-1])%len(w.topics[topic])]
	w.mu.Lock()
	refuses, silent, slow := w.chance(w.refusals), w.chance(w.refusals), time.Duration(w.r.IntN(30))*time.Millisecond
	w.mu.Unlock()
	time.AfterFunc(slow, func() {
		header, data := protocol.SplitData(m.Data, m.Header)
		text, _ := header.Get("Nats-Expected-Last-Subject-Sequence")
		want, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			w.t.Error("an append has no condition")
		}
		l.mu.Lock()
		offset := uint64(0)
		switch {
		case refuses:
			err = errors.New("it is full")
		case l.lasts[string(m.Subject)] != want:
			err = errors.New("wrong last sequence")
		default:
			offset, err = l.data.Append(&log.Append{Epoch: 1, Records: []log.Record{{Subject: m.Subject, Data: data}}})
			l.lasts[string(m.Subject)] = offset
		}
		l.mu.Unlock()
		if err == nil && silent {
			err = errors.New("no answer")
		}
		w.mu.Lock()
		if err != nil && !silent {
			w.refused++
		} else if err != nil {
			w.unknown++
		}
		w.mu.Unlock()
		done(offset, err)
	})
}

// event is a record of the source.
type event struct {
	At  int64  `json:"t"` // ms
	Key string `json:"k"`
	N   int    `json:"n"`
}

// publish appends a record to a shard of the source.
func (w *world) publish(shard int, e event) {
	l := w.topics["in"][shard]
	data, _ := json.Marshal(map[string]any{"t": time.UnixMilli(e.At).UTC().Format(time.RFC3339Nano), "k": e.Key, "n": e.N})
	if _, err := l.data.Append(&log.Append{Epoch: 1, Records: []log.Record{{Time: time.Now().UnixNano(), Subject: []byte("in.x"), Data: data}}}); err != nil {
		w.t.Fatal(err)
	}
	l.mu.Lock()
	at := l.now
	l.mu.Unlock()
	if at != nil {
		at.watchers.Call()
	}
}

// restart ends a broker, and starts it again with other shards.
func (w *world) restart(n int) {
	w.mu.Lock()
	s := w.services[n]
	w.mu.Unlock()
	w.each(func(l *shardLogs, at *leader) {
		if at.broker == n {
			w.lead(l, (n+1+w.steps.IntN(2))%3)
		}
	})
	s.Close()
	w.start(n)
}

func (w *world) close() {
	for _, s := range w.services {
		s.Close()
	}
	if err := w.disk.Close(); err != nil {
		w.t.Error(err)
	}
}

// messages returns the payloads of a Topic by subject, in order.
func (w *world) messages(topic string) map[string][][]byte {
	all := map[string][][]byte{}
	for _, l := range w.topics[topic] {
		_, end, _ := l.data.Offsets()
		if end == 1 {
			continue
		}
		_, err := records.ScanBatches(l.data, 1, end, 1<<30, func(b log.Batch, _ uint64) (bool, error) {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				all[string(r.Subject)] = append(all[string(r.Subject)], slices.Clone(r.Data))
			}
			return true, it.Err()
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return all
}

// tumbling returns a view of tumbling windows of one second.
func tumbling(lateness, idle time.Duration) *Declared {
	return &Declared{Name: "means", Made: 3, Output: "out", Alerts: map[string]string{"high": "alerts"}, Spec: view.Spec{
		By: "json.k", Window: view.Window{Tumbling: time.Second, Time: "json.t", Lateness: lateness, Idle: idle},
		Values:   map[string]string{"readings": "count()", "sum": "sum(json.n)"},
		Triggers: []trigger.Spec{{Name: "high", When: "sum > 30.0", Until: "sum < 20.0"}},
	}}
}

// recount returns the results and alerts of logs, in the plainest way: lines by subject. Windows
// that end behind the least watermark are left out.
func recount(logs [][]event, lateness int64) (results, alerts map[string][]string) {
	type cell struct {
		key   string
		start int64
	}
	counts, sums := map[cell]int{}, map[cell]int{}
	least := int64(1 << 62)
	for _, all := range logs {
		mark := int64(-1 << 62)
		for _, e := range all {
			c := cell{e.Key, e.At / 1000 * 1000}
			if c.start+1000 > mark {
				counts[c]++
				sums[c] += e.N
			}
			mark = max(mark, e.At-lateness)
		}
		least = min(least, mark)
	}
	results, alerts = map[string][]string{}, map[string][]string{}
	raised := map[string]bool{}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b cell) int { return int(a.start - b.start) })
	for _, c := range order {
		if c.start+1000 > least || c.key == "end" {
			continue
		}
		results["out.means."+c.key] = append(results["out.means."+c.key], fmt.Sprintf("%d count %d sum %d", c.start, counts[c], sums[c]))
		if sum := sums[c]; !raised[c.key] && sum > 30 || raised[c.key] && sum < 20 {
			raised[c.key] = !raised[c.key]
			at := "alerts.means.high." + c.key
			alerts[at] = append(alerts[at], fmt.Sprintf("%d %v %d", len(alerts[at])+1, raised[c.key], c.start+1000))
		}
	}
	return results, alerts
}

// outputs returns what the output Topics have, as recount does.
func (w *world) outputs() (results, alerts map[string][]string) {
	results, alerts = map[string][]string{}, map[string][]string{}
	for subject, all := range w.messages("out") {
		if strings.HasSuffix(subject, ".end") { // an idle shard closes it later
			continue
		}
		for _, b := range all {
			var m struct {
				From   time.Time
				Values map[string]float64
			}
			if err := json.Unmarshal(b, &m); err != nil {
				w.t.Fatal(err)
			}
			results[subject] = append(results[subject], fmt.Sprintf("%d count %v sum %v", m.From.UnixMilli(), m.Values["readings"], m.Values["sum"]))
		}
	}
	for subject, all := range w.messages("alerts") {
		for _, b := range all {
			is, err := trigger.DecodeState(b)
			if err != nil {
				w.t.Fatal(err)
			}
			alerts[subject] = append(alerts[subject], fmt.Sprintf("%d %v %d", is.Serial, is.Raised, is.End/1e6))
		}
	}
	return results, alerts
}

// settle waits until the outputs are as a recount has them.
func (w *world) settle(logs [][]event, lateness time.Duration) {
	w.t.Helper()
	wantResults, wantAlerts := recount(logs, lateness.Milliseconds())
	for range 600 { // of the bubble's time
		time.Sleep(time.Second)
		results, alerts := w.outputs()
		if equal(results, wantResults) && equal(alerts, wantAlerts) {
			return
		}
	}
	results, alerts := w.outputs()
	w.t.Fatalf("the results are\n%s\nwant\n%s\nand the alerts\n%s\nwant\n%s", lines(results), lines(wantResults), lines(alerts), lines(wantAlerts))
}

func equal(a, b map[string][]string) bool { return maps.EqualFunc(a, b, slices.Equal[[]string]) }

func lines(of map[string][]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "%s: %s\n", key, strings.Join(of[key], ", "))
	}
	return b.String()
}

// TestResultsAndAlertsAreThereOnceWhateverMoves: leaders and the owner change between any two
// steps, brokers restart, messages between them are lost or come twice, and outputs refuse appends
// or don't answer. In the end each window and each alert is there once, as a recount has them.
func TestResultsAndAlertsAreThereOnceWhateverMoves(t *testing.T) {
	moves, refused, unknown, raised, late := 0, 0, 0, 0, 0
	for seed := range uint64(12) {
		for _, idle := range []time.Duration{0, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				lateness := time.Second
				if idle > 0 {
					lateness = 10 * time.Second // an advance makes none late
				}
				w := newWorld(t, seed, tumbling(lateness, idle), 1+int(seed%3))
				defer w.close()
				w.mu.Lock()
				w.losses, w.refusals = 10, 5
				w.mu.Unlock()
				logs := make([][]event, len(w.topics["in"]))
				put := func(shard int, e event) {
					logs[shard] = append(logs[shard], e)
					w.publish(shard, e)
				}
				for range 250 {
					switch n := w.steps.IntN(20); {
					case n < 13:
						put(w.steps.IntN(len(logs)), event{time.Now().UnixMilli() - int64(w.steps.ExpFloat64()*600), string(rune('a' + w.steps.IntN(3))), w.steps.IntN(20)})
						time.Sleep(time.Duration(w.steps.IntN(300)) * time.Millisecond)
					case n < 15:
						w.lead(w.topics["in"][w.steps.IntN(len(logs))], w.steps.IntN(3))
					case n < 16:
						w.lead(w.topics["in"][0], w.steps.IntN(3)) // the owner
					case n < 17 && w.steps.IntN(2) == 0: // as after a snapshot of cursors
						of := w.topics["in"][w.steps.IntN(len(logs))].state
						of.Roll()
						_, end, _ := of.Offsets()
						if _, err := of.Trim(end); err != nil {
							t.Fatal(err)
						}
					case n < 17:
						w.lead(w.topics["out"][w.steps.IntN(2)], w.steps.IntN(3))
					case n < 18 && w.steps.IntN(6) == 0:
						w.restart(w.steps.IntN(3))
					default:
						time.Sleep(time.Duration(w.steps.IntN(3000)) * time.Millisecond)
					}
				}
				w.mu.Lock()
				w.losses, w.refusals = 0, 0
				w.mu.Unlock()
				for shard := range logs {
					put(shard, event{time.Now().Add(time.Minute).UnixMilli(), "end", 0})
				}
				w.settle(logs, lateness)
				time.Sleep(time.Minute) // and nothing comes again
				w.settle(logs, lateness)
				for _, all := range w.messages("alerts") {
					raised += len(all)
				}
				w.each(func(_ *shardLogs, at *leader) {
					p := w.services[at.broker].part(at, "means")
					if p == nil {
						return
					}
					p.mu.Lock()
					defer p.mu.Unlock()
					if p.engine != nil {
						late += int(p.engine.Counts().Late)
						if p.removed > 0 {
							t.Errorf("of shard %d %d records were gone", at.number, p.removed)
						}
						if held := p.engine.Held(); held > 1 {
							t.Errorf("shard %d holds %d windows", at.number, held)
						}
					}
				})
				moves, refused, unknown = moves+w.moves, refused+w.refused, unknown+w.unknown
			})
			if t.Failed() {
				t.Fatalf("seed %d, idle %v", seed, idle)
			}
		}
	}
	t.Logf("%d moves, %d refusals, %d appends without an answer, %d alerts, %d late", moves, refused, unknown, raised, late)
	for _, n := range []int{moves, refused, unknown, raised, late} {
		if n < 20 {
			t.Error("the worlds are too quiet")
		}
	}
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
			time.Sleep(time.Second)
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
		time.Sleep(5 * time.Second)
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
		time.Sleep(8 * time.Second) // it is advanced, and the checkpoint is from before
		w.lead(in, (in.now.broker+1)%3)
		w.publish(0, event{began, "a", 1})
		time.Sleep(2 * time.Second)
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
			time.Sleep(time.Second)
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
		time.Sleep(5 * time.Second)
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
		time.Sleep(5 * time.Second)
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
// may. With room again the large one goes on where it was.
func TestALargeViewPausesAndASmallOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, tumbling(time.Hour, 0), 2)
		defer w.close()
		large, small := w.topics["in"][0], w.topics["in"][1]
		w.lead(large, 0)
		w.lead(small, 0)
		s := w.services[0]
		time.Sleep(5 * time.Second)
		base := s.bytes.Load()
		s.memory.Store(base + 20<<10)
		for n := range 500 {
			w.publish(0, event{time.Now().UnixMilli(), fmt.Sprint("key", n), 1})
			if n%50 == 0 {
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(5 * time.Second)
		w.publish(1, event{time.Now().UnixMilli(), "a", 1})
		time.Sleep(5 * time.Second)
		known := func(l *shardLogs) (records uint64, paused error) {
			p := s.part(l.now, "means")
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.engine.Counts().Records, p.paused
		}
		if n, paused := known(large); n == 0 || n >= 500 || paused != errMemory {
			t.Errorf("the large view knows %d of 500 records, and is paused by %v", n, paused)
		}
		if n, paused := known(small); n != 1 || paused != nil {
			t.Errorf("the small view knows %d of 1 record, and is paused by %v", n, paused)
		}
		s.memory.Store(1 << 30)
		time.Sleep(5 * time.Second)
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
		time.Sleep(2 * time.Second)
		w.publish(0, event{time.Now().UnixMilli() - 2000, "a", 1}) // the first advance closes its window
		time.Sleep(time.Millisecond)
		in.now.cut.Store(true)
		time.Sleep(20 * time.Second) // the advance is in the state log of the leader
		w.mu.Lock()
		other := *w.declared
		other.Spec.Window.Idle++
		w.declared = &other
		w.mu.Unlock()
		time.Sleep(20 * time.Second)
		if results, _ := w.outputs(); len(results) > 0 {
			t.Errorf("there are results of an advance that may be lost: %v", results)
		}
		w.lead(in, (in.now.broker+1)%3)
		time.Sleep(20 * time.Second)
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
				time.Sleep(time.Second)
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
			time.Sleep(5 * time.Second)
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
			time.Sleep(5 * time.Second)
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
		time.Sleep(5 * time.Second)
		s := w.services[in.now.broker]
		page, err := s.Values(t.Context(), in.now, "means", &Ask{})
		if err != nil || len(page.Values) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		time.Sleep(5 * time.Second)
		got := &s.owner(in.now, "means").got
		got.mu.Lock()
		defer got.mu.Unlock()
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
		time.Sleep(15 * time.Second)
		watermark := func() int64 {
			for range 25 { // less than after what it is idle itself
				time.Sleep(100 * time.Millisecond)
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
		s.memory.Store(0)
		w.lead(in, (in.now.broker+1)%3)
		time.Sleep(5 * time.Second)
		if at := watermark(); at >= before || s.saves.Load() > 0 {
			t.Fatalf("the part is not paused before an advance: %d of %d, and %d checkpoints", at, before, s.saves.Load())
		}
		for range 3 * heldBytes / chunkBytes {
			if _, err := in.state.Append(&log.Append{Epoch: 1, Records: []log.Record{{Data: make([]byte, chunkBytes)}}}); err != nil {
				t.Fatal(err)
			}
		}
		_, end, _ := in.state.Offsets()
		time.Sleep(20 * time.Second)
		if held := in.state.Pinned(); held < end {
			t.Errorf("the state log is held from %d on, and not from %d", held, end)
		}
		w.lead(in, (in.now.broker+1)%3)
		if at := watermark(); at != before {
			t.Errorf("the next leader has closed up to %d, and the first one up to %d", at, before)
		}
	})
}
