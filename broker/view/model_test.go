package view

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/trigger"
)

// world has a view of several shards, and everything that may go wrong with it.
type world struct {
	t    *testing.T
	r    *rand.Rand
	spec Spec
	view *View

	logs    [][]event
	clock   int64     // ms
	leaders []*leader // by shard
	saved   [][]saved // checkpoints, by shard
	owners  []*actor  // the last one is the present one; the others have been replaced, and don't know
	delayed []delivery

	results map[string][]string // the output Topic: the messages of each key
	ends    map[string]int64    // of the last ones
	raised  map[string][][]byte // the Topic of alerts, by trigger and key

	crashes, repeated, refused, ahead, crowded, replaced int
}

// leader is a leader of a shard.
type leader struct {
	shard *Shard
	read  int // events
	next  uint64
}

type saved struct {
	bytes []byte
	read  int
	next  uint64
}

// actor is an owner with what it believes to be in the outputs.
type actor struct {
	owner   *Owner
	set     *trigger.Set
	results map[string]int // messages of a key
	raised  map[string]int
	queue   []func() // what it is about to do with the outputs and acknowledgements
	dead    bool
	tight   bool // its room changes
}

type delivery struct {
	to    *actor
	shard uint32
	bytes []byte
}

func (e *event) record() *filter.Record {
	n := "null"
	if e.has {
		n = fmt.Sprint(e.n)
	}
	return &filter.Record{Subject: []byte("s"), Time: e.stored * ms, Data: fmt.Appendf(nil, `{"t":"%s","k":%q,"n":%s}`, time.Unix(0, e.at*ms).UTC().Format(time.RFC3339Nano), e.key, n)}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 1)), clock: 1_000_000, results: map[string][]string{}, ends: map[string]int64{}, raised: map[string][][]byte{}}
	w.spec = Spec{
		By:     "json.k",
		Values: map[string]string{"mean": "mean(json.n)", "readings": "count()"},
		Triggers: []trigger.Spec{
			{Name: "high", When: "mean > 6.0", Until: "mean < 4.0"}, {Name: "plain", When: "mean > 6.0"},
		},
	}
	win := &w.spec.Window
	switch w.r.IntN(3) {
	case 0:
		win.Tumbling = 20 * time.Millisecond
	case 1:
		win.Sliding = &Sliding{20 * time.Millisecond, 7 * time.Millisecond}
	default:
		win.Session = 15 * time.Millisecond
	}
	if w.r.IntN(4) > 0 {
		win.Time = "json.t"
	}
	win.Lateness = time.Duration(w.r.IntN(4)*10) * time.Millisecond
	var err error
	if w.view, err = Compile(w.spec); err != nil {
		t.Fatal(err)
	}
	for range 1 + w.r.IntN(4) {
		w.logs = append(w.logs, nil)
		w.leaders = append(w.leaders, &leader{shard: w.view.NewShard()})
		w.saved = append(w.saved, []saved{w.checkpoint(w.leaders[len(w.leaders)-1])})
	}
	w.replace()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) checkpoint(l *leader) saved {
	b, err := l.shard.Encode()
	w.must(err)
	return saved{b, l.read, l.next}
}

// happens appends an event to a log.
func (w *world) happens(shard int) {
	w.clock += int64(w.r.IntN(6))
	e := event{stored: w.clock, at: w.clock - int64(w.r.ExpFloat64()*15), key: string(rune('a' + w.r.IntN(4))), n: w.r.IntN(11), has: w.r.IntN(5) > 0}
	if w.r.IntN(12) == 0 {
		e = event{advance: true, to: (w.clock - int64(w.r.IntN(60))) * ms}
	}
	w.logs[shard] = append(w.logs[shard], e)
}

// reads has a leader read so many events.
func (w *world) reads(shard, n int) {
	l := w.leaders[shard]
	for ; n > 0 && l.read < len(w.logs[shard]); n-- {
		e := &w.logs[shard][l.read]
		if l.read++; e.advance {
			w.must(l.shard.Advance(l.shard.Next(), e.to))
			continue
		}
		w.must(l.shard.Add(l.next, e.record()))
		l.next++
	}
}

// crash replaces the leader of a shard by one that has an earlier checkpoint.
func (w *world) crash(shard int) {
	from := w.saved[shard][len(w.saved[shard])-1-w.r.IntN(min(3, len(w.saved[shard])))]
	s, err := w.view.DecodeShard(from.bytes)
	w.must(err)
	w.leaders[shard] = &leader{s, from.read, from.next}
	w.crashes++
}

// replace makes a new owner.
func (w *world) replace() {
	var shards []uint32
	for i := range w.logs {
		shards = append(shards, uint32(i))
	}
	o, err := w.view.NewOwner(shards)
	w.must(err)
	tight := false
	switch w.r.IntN(3) {
	case 0:
		o.most = 5
	case 1:
		tight = true
	}
	w.owners = append(w.owners, &actor{owner: o, tight: tight, set: w.view.Triggers(), results: map[string]int{}, raised: map[string]int{}})
}

// begins has an owner that has heard all shards read the outputs.
func (w *world) begins(a *actor) {
	w.must(a.owner.Begin(w.ends))
	for key, messages := range w.results {
		a.results[key] = len(messages)
	}
	w.restores(a)
}

// restores has an owner read the last alerts.
func (w *world) restores(a *actor) {
	for k, messages := range w.raised {
		a.raised[k] = len(messages)
		last, err := trigger.DecodeState(messages[len(messages)-1])
		w.must(err)
		w.must(a.set.Restore(last))
	}
}

func (w *world) actor() *actor {
	if w.r.IntN(4) == 0 {
		alive := slices.DeleteFunc(slices.Clone(w.owners), func(a *actor) bool { return a.dead })
		if len(alive) > 0 {
			return alive[w.r.IntN(len(alive))]
		}
	}
	return w.owners[len(w.owners)-1]
}

// asks has an owner ask a shard for its windows. The answer may be lost, late, and come twice.
func (w *world) asks(a *actor, shard int) {
	from := a.owner.Wanted(uint32(shard))
	if w.r.IntN(5) == 0 { // a repeated question
		from = begin
	}
	b, err := w.leaders[shard].shard.handOver(from, w.page())
	w.must(err)
	d := delivery{a, uint32(shard), b}
	for range w.r.IntN(3) {
		if w.r.IntN(3) == 0 {
			w.delayed = append(w.delayed, d)
		} else {
			w.deliver(d)
		}
	}
}

// page returns the bytes of a page: some have a window, and others all.
func (w *world) page() int { return []int{1, 500, 2000, pageBytes}[w.r.IntN(4)] }

func (w *world) deliver(d delivery) {
	if before := d.to.owner.Wanted(d.shard); !d.to.dead {
		if d.to.tight {
			d.to.owner.Room(w.r.IntN(1500))
		}
		switch err := d.to.owner.Take(d.shard, d.bytes); err {
		case ErrAhead:
			w.ahead++
		case ErrCrowded:
			w.crowded++
		case ErrReplaced:
			d.to.dead = true
			w.replaced++
		default:
			w.must(err)
		}
		if d.to.owner.Wanted(d.shard) == before {
			w.repeated++
		}
	}
}

// closes has an owner write what is closed, and acknowledge it. It does so many of these steps, and
// may stop for good at any place. Others do theirs between.
func (w *world) closes(a *actor, steps, stops int) {
	if a.owner.Heard() && !a.owner.begun {
		w.begins(a)
		return
	}
	if len(a.queue) == 0 && !a.dead {
		w.plan(a, stops)
	}
	for ; steps > 0 && len(a.queue) > 0 && !a.dead; steps-- {
		if w.r.IntN(100) < stops {
			a.dead = true
			return
		}
		next := a.queue[0]
		a.queue = a.queue[1:]
		next()
	}
}

// plan closes windows, and queues what is to be done with them.
func (w *world) plan(a *actor, stops int) {
	var rows []aggregate.Row
	for _, r := range a.owner.Close() {
		rows = append(rows, r.Row)
		if !r.Written {
			a.queue = append(a.queue, func() { w.writes(a, r) })
		}
	}
	if a.tight && w.r.IntN(4) == 0 { // the alerts are read again
		a.set.Forget()
		w.restores(a)
	}
	alerts, err := a.set.Judge(rows)
	w.must(err)
	for _, alert := range alerts {
		a.queue = append(a.queue, func() { w.alerts(a, alert) })
	}
	for shard := range w.leaders {
		if w.r.IntN(100) >= stops*10 {
			a.queue = append(a.queue, func() {
				ack, ok := a.owner.Ack(uint32(shard))
				if !ok {
					w.t.Fatal("no ack")
				}
				w.must(w.leaders[shard].shard.Ack(ack))
			})
		}
	}
}

// writes appends a result on condition of the last message of its key.
func (w *world) writes(a *actor, r Result) {
	if a.results[r.Key] != len(w.results[r.Key]) {
		a.dead = true
		w.refused++
		return
	}
	a.results[r.Key]++
	w.results[r.Key] = append(w.results[r.Key], fmt.Sprintf("%s %d-%d count=%s mean=%s", r.Keys[0].Text, r.Start/ms, r.End/ms, r.Values[1], r.Values[0]))
	w.ends[r.Key] = r.End
}

// alerts appends an alert on condition of the last one of its trigger and key.
func (w *world) alerts(a *actor, alert trigger.Alert) {
	k := alert.Trigger + " " + alert.Key
	if a.raised[k] != len(w.raised[k]) {
		a.dead = true
		w.refused++
		return
	}
	b, err := alert.Encode()
	w.must(err)
	a.raised[k]++
	w.raised[k] = append(w.raised[k], b)
}

func (w *world) step() {
	shard := w.r.IntN(len(w.logs))
	switch n := w.r.IntN(100); {
	case n < 35:
		w.happens(shard)
	case n < 60:
		w.reads(shard, w.r.IntN(8))
	case n < 75:
		w.asks(w.actor(), shard)
	case n < 87:
		w.closes(w.actor(), []int{1, 3, 1000}[w.r.IntN(3)], 2)
	case n < 91:
		w.saved[shard] = append(w.saved[shard], w.checkpoint(w.leaders[shard]))
	case n < 94:
		w.crash(shard)
	case n < 96:
		w.replace()
	case len(w.delayed) > 0:
		i := w.r.IntN(len(w.delayed))
		w.deliver(w.delayed[i])
		if w.r.IntN(2) == 0 {
			w.delayed = slices.Delete(w.delayed, i, i+1)
		}
	}
}

// end has everything come to an end without further faults.
func (w *world) end() {
	w.replace()
	a := w.owners[len(w.owners)-1]
	for shard := range w.logs {
		w.logs[shard] = append(w.logs[shard], event{advance: true, to: Everything})
		w.reads(shard, len(w.logs[shard]))
	}
	for a.owner.Watermark() < Everything && !a.dead {
		for shard := range w.logs {
			b, err := w.leaders[shard].shard.HandOver(a.owner.Wanted(uint32(shard)))
			w.must(err)
			w.deliver(delivery{a, uint32(shard), b})
		}
		w.closes(a, math.MaxInt, 0)
	}
	if a.dead {
		w.t.Fatal("the last owner was refused")
	}
	for shard := range w.logs {
		b, err := w.leaders[shard].shard.HandOver(a.owner.Wanted(uint32(shard)))
		w.must(err)
		w.must(a.owner.Take(uint32(shard), b))
		if n := w.leaders[shard].shard.Held(); n != 0 {
			w.t.Errorf("shard %d holds %d windows", shard, n)
		}
		w.must(a.owner.RemoveShard(uint32(shard)))
	}
}

// judge compares the outputs with a recount.
func (w *world) judge() {
	windows, late := recount(&w.spec, w.logs)
	want := map[string]string{}
	for key, all := range windows {
		var text []string
		for _, c := range all {
			text = append(text, key+" "+c.String())
		}
		want[key] = strings.Join(text, "\n")
	}
	got := map[string]string{}
	for _, messages := range w.results {
		got[messages[0][:1]] = strings.Join(messages, "\n")
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("%+v wrote\n%v\nwant\n%v", w.spec.Window, got, want)
	}
	count := uint64(0)
	for _, l := range w.leaders {
		count += l.shard.Counts().Late
	}
	if count != late {
		w.t.Errorf("%d late, want %d", count, late)
	}
	wrong := map[string][]string{}
	for key, all := range windows {
		for name, until := range map[string]bool{"high": true, "plain": false} {
			if all := alerts(all, until); all != nil {
				wrong[name+" "+key] = all
			}
		}
	}
	for _, messages := range w.raised {
		var text []string
		name := ""
		for _, b := range messages {
			s, err := trigger.DecodeState(b)
			w.must(err)
			text = append(text, fmt.Sprintf("%d %v %d", s.Serial, s.Raised, s.End/ms))
			name = s.Trigger + " " + s.Key[len(s.Key)-1:]
		}
		if !slices.Equal(text, wrong[name]) {
			w.t.Errorf("alerts of %s\n%v\nwant\n%v", name, text, wrong[name])
		}
		delete(wrong, name)
	}
	if len(wrong) > 0 {
		w.t.Errorf("missing alerts: %v", wrong)
	}
}

// TestAShardGoesOnFromItsCheckpoint: as if it had never stopped, wherever it is decoded.
func TestAShardGoesOnFromItsCheckpoint(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		stops := w.view.NewShard()
		for range 300 {
			w.happens(0)
			e := &w.logs[0][len(w.logs[0])-1]
			w.reads(0, 1)
			if e.advance {
				w.must(stops.Advance(stops.Next(), e.to))
			} else {
				w.must(stops.Add(stops.Next(), e.record()))
			}
			if w.r.IntN(4) > 0 {
				continue
			}
			b, err := stops.Encode()
			w.must(err)
			stops, err = w.view.DecodeShard(b)
			w.must(err)
			if whole := w.checkpoint(w.leaders[0]); !bytes.Equal(whole.bytes, b) {
				t.Fatalf("seed %d: after %d events the checkpoints differ", seed, len(w.logs[0]))
			}
			if stops.Counts() != w.leaders[0].shard.Counts() || stops.Held() != w.leaders[0].shard.Held() {
				t.Fatalf("seed %d: %+v, want %+v", seed, stops.Counts(), w.leaders[0].shard.Counts())
			}
		}
	}
}

// TestResultsAndAlertsAgreeWithARecount: whichever leaders and owners are replaced, whichever
// hand-overs and acknowledgements are lost, late or repeated, and also if owners that were replaced
// go on: each window is in the output once, each alert too, and late records are counted.
func TestResultsAndAlertsAgreeWithARecount(t *testing.T) {
	crashes, repeated, refused, ahead, crowded, replaced, results, raised := 0, 0, 0, 0, 0, 0, 0, 0
	for seed := range uint64(150) {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
		}
		w.end()
		w.judge()
		crashes, repeated, refused = crashes+w.crashes, repeated+w.repeated, refused+w.refused
		ahead, crowded, replaced = ahead+w.ahead, crowded+w.crowded, replaced+w.replaced
		for _, messages := range w.results {
			results += len(messages)
		}
		for _, messages := range w.raised {
			raised += len(messages)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d results, %d alerts, %d crashes, %d repeated hand-overs, %d refused writes, %d waits of shards ahead, %d for room, %d owners replaced", results, raised, crashes, repeated, refused, ahead, crowded, replaced)
	for _, n := range []int{crashes, repeated, refused, ahead, crowded, replaced, results, raised} {
		if n < 100 {
			t.Error("the worlds are too quiet")
		}
	}
}
