package viewing

import (
	"context"
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
	input input
	spec  *view.Spec
	last  time.Time // when the last record was stored
	wrong []string  // advances that the definition has not
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

// judgeAdvance requires that a shard which is passed over has had no record for the idle time, and
// that the watermark keeps that time, and the lateness, from now. A checkpoint has earlier ones
// again. mu is held.
func (l *shardLogs) judgeAdvance(a *advance, now time.Time) {
	w := &l.spec.Window
	most, idle := now.Add(-w.Idle-w.Lateness).UnixNano(), now.Sub(l.last)
	if w.Idle == 0 || a.to > most || a.next > uint64(len(l.input.events)) && idle < w.Idle {
		l.wrong = append(l.wrong, fmt.Sprintf("shard %d is advanced to %d at %d, %v after its last record", l.number, a.to, now.UnixNano(), idle))
	}
}

// AppendState appends. Of a leader that is replaced meanwhile nobody learns whether it did.
func (s *leader) AppendState(a *log.Append) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over.Load() {
		return 0, errOver
	}
	a.Epoch = 1
	for i := range a.Records {
		if e, err := parseEntry(a.Records[i].Data); err == nil && e.advance != nil {
			s.input.advances = append(s.input.advances, *e.advance)
			s.judgeAdvance(e.advance, time.Now())
		}
	}
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
	slow := time.Duration(w.r.IntN(30)) * time.Millisecond
	w.mu.Unlock()
	time.Sleep(slow) // in the order of the link: whoever sends waits
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
	pages    []told
	asking   sync.WaitGroup

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
			l := &shardLogs{topic: topic, number: number, lasts: map[string]uint64{}, spec: &of.Spec}
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

// publish appends a record to a shard of the source.
func (w *world) publish(shard int, e event) {
	l := w.topics["in"][shard]
	data, _ := json.Marshal(map[string]any{"t": time.UnixMilli(e.At).UTC().Format(time.RFC3339Nano), "k": e.Key, "n": e.N})
	if _, err := l.data.Append(&log.Append{Epoch: 1, Records: []log.Record{{Time: time.Now().UnixNano(), Subject: []byte("in.x"), Data: data}}}); err != nil {
		w.t.Fatal(err)
	}
	l.mu.Lock()
	l.input.events, l.last = append(l.input.events, e), time.Now()
	at := l.now
	l.mu.Unlock()
	if at != nil {
		at.watchers.Call()
	}
}

// inputs returns what the shards of the source have got.
func (w *world) inputs() (all []input) {
	for _, l := range w.topics["in"] {
		l.mu.Lock()
		for _, text := range l.wrong {
			w.t.Error(text)
		}
		l.wrong = nil
		all = append(all, input{slices.Clone(l.input.events), slices.Clone(l.input.advances)})
		l.mu.Unlock()
	}
	return all
}

// ask asks the owner for the present values while others go on. Each answer goes to pages.
func (w *world) ask() {
	l := w.topics["in"][0]
	l.mu.Lock()
	at := l.now
	l.mu.Unlock()
	w.mu.Lock()
	s := w.services[at.broker]
	w.mu.Unlock()
	w.asking.Go(func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
		defer cancel()
		if page, err := s.Values(ctx, at, "means", &Ask{}); err == nil {
			results, _ := w.outputs()
			w.mu.Lock()
			w.pages = append(w.pages, told{page, results})
			w.mu.Unlock()
		}
	})
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
	w.asking.Wait()
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

// viewOf returns a view of some windows.
func viewOf(of view.Window) *Declared {
	d := &Declared{Name: "means", Made: 3, Output: "out", Alerts: map[string]string{"high": "alerts"}, Spec: view.Spec{
		By: "json.k", Window: of, Values: map[string]string{"readings": "count()", "sum": "sum(json.n)"},
		Triggers: []trigger.Spec{{Name: "high", When: "sum > 30.0", Until: "sum < 20.0"}},
	}}
	if of == (view.Window{}) {
		d.Output = ""
	}
	return d
}

// tumbling returns a view of tumbling windows of one second.
func tumbling(lateness, idle time.Duration) *Declared {
	return viewOf(view.Window{Tumbling: time.Second, Time: "json.t", Lateness: lateness, Idle: idle})
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
				From, To time.Time
				Values   map[string]float64
			}
			if err := json.Unmarshal(b, &m); err != nil {
				w.t.Fatal(err)
			}
			at := span{from: m.From.UnixMilli(), to: m.To.UnixMilli()}
			results[subject] = append(results[subject], at.line(total{int(m.Values["readings"]), int(m.Values["sum"])}))
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

// pass has time pass in the bubble, and all be done that is due then: owners and parts do much of
// their work at whole seconds.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// settle waits until the outputs are as a recount has them.
func (w *world) settle() {
	w.t.Helper()
	wantResults, wantAlerts := expected(&w.declared.Spec, w.inputs())
	for range 600 { // of the bubble's time
		pass(time.Second)
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
