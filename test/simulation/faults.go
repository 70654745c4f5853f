package simulation

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// fault is one kind of trouble. It says itself when it ends.
type fault struct {
	name   string
	strike func(w *world)
}

// faults are all kinds.
var faults = []fault{
	{"kill", func(w *world) { w.fell(w.some(), false) }},
	{"kill one", func(w *world) { w.fell(w.some()[:1], false) }},
	{"kill all", func(w *world) { w.fell(w.brokers, false) }},
	{"cut power", func(w *world) { w.fell(w.some(), true) }},
	{"cut power of all", func(w *world) { w.fell(w.brokers, true) }},
	{"damage", func(w *world) {
		b := w.any()
		if b.up && !slices.ContainsFunc(w.brokers, func(b *broker) bool { return len(b.damaged) > 0 }) { // of a minority
			b.kill(false)
			b.damage()
			w.after(w.between(50*time.Millisecond, 3*time.Second), b.start)
		}
	}},
	{"stop in order", func(w *world) {
		b := w.any()
		b.stop()
		w.after(w.between(200*time.Millisecond, 3*time.Second), b.start)
	}},
	{"pause", func(w *world) {
		for _, b := range w.some() {
			b.pause()
			w.after(w.between(300*time.Millisecond, 8*time.Second), b.resume)
		}
	}},
	{"cut off one", func(w *world) { w.part(w.some()[:1], true) }},
	{"cut in two", func(w *world) { w.part(w.some(), false) }},
	{"cut one way", func(w *world) {
		a, b := w.any(), w.any()
		w.cut(a.id, b.id, w.between(300*time.Millisecond, 6*time.Second))
	}},
	{"cut off from etcd", func(w *world) {
		for _, b := range w.some() {
			d := w.between(500*time.Millisecond, 8*time.Second)
			w.cut(b.id, "etcd", d)
			w.cut("etcd", b.id, d)
		}
	}},
	{"cut from etcd one way", func(w *world) {
		b := w.any()
		if w.chance(50) {
			w.cut(b.id, "etcd", w.between(500*time.Millisecond, 8*time.Second))
		} else {
			w.cut("etcd", b.id, w.between(500*time.Millisecond, 8*time.Second))
		}
	}},
	{"etcd is down", func(w *world) {
		w.etcd.setDown(true)
		w.after(w.between(500*time.Millisecond, 8*time.Second), func() { w.etcd.setDown(false) })
	}},
	{"etcd mumbles", func(w *world) {
		w.etcd.mumbles = 50
		w.after(w.between(time.Second, 6*time.Second), func() { w.etcd.mumbles = 0 })
	}},
	{"late watches", func(w *world) {
		for _, b := range w.some() {
			b.lateWatch = w.between(100*time.Millisecond, 4*time.Second)
			w.after(w.between(time.Second, 8*time.Second), func() { b.lateWatch = 0 })
		}
	}},
	{"slow disk", func(w *world) {
		b := w.any()
		b.disk.slow = w.between(20*time.Millisecond, 2*time.Second)
		w.after(w.between(time.Second, 15*time.Second), func() { b.disk.slow = 0 })
	}},
	{"slow way", func(w *world) {
		way := [2]string{w.any().id, w.any().id}
		w.network.slow[way] = w.between(5*time.Millisecond, 400*time.Millisecond)
		w.after(w.between(time.Second, 10*time.Second), func() { delete(w.network.slow, way) })
	}},
	{"clock jumps", func(w *world) { w.any().skew += w.between(time.Second, time.Minute) }},
	{"drain leadership", func(w *world) { w.drain(w.any(), coordination.DrainLeadership) }},
	{"drain", func(w *world) { w.drain(w.any(), coordination.DrainAll) }},
	{"trim", func(w *world) {
		for _, id := range w.ids {
			if b := w.leader(id); b != nil && b.up && !b.paused {
				if r := b.roles[id]; r != nil && r.lead != nil {
					high := r.lead.high[0]
					b.trim(id, high-min(high, w.rng.Uint64N(60)))
				}
			}
		}
	}},
}

func (w *world) any() *broker { return w.brokers[w.rng.IntN(len(w.brokers))] }

// some is a set of brokers that isn't empty, in a random order.
func (w *world) some() []*broker {
	all := slices.Clone(w.brokers)
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+w.rng.IntN(len(all))]
}

// fell kills brokers, at once or nearly so, and starts each again after a while.
func (w *world) fell(who []*broker, power bool) {
	spread := time.Duration(0)
	if w.chance(40) {
		spread = 20 * time.Millisecond
	}
	for _, b := range who {
		w.after(w.between(0, spread), func() {
			if b.up {
				b.kill(power)
				w.after(w.between(50*time.Millisecond, 6*time.Second), b.start)
			}
		})
	}
}

// part cuts brokers off from the others, perhaps from etcd, too.
func (w *world) part(who []*broker, alone bool) {
	d := w.between(300*time.Millisecond, 8*time.Second)
	etcd := w.chance(50)
	for _, a := range who {
		for _, b := range w.brokers {
			if a != b && (alone || !slices.Contains(who, b)) {
				w.cut(a.id, b.id, d)
				w.cut(b.id, a.id, d)
			}
		}
		if etcd {
			w.cut(a.id, "etcd", d)
			w.cut("etcd", a.id, d)
		}
	}
}

func (w *world) cut(from, to string, d time.Duration) {
	way := [2]string{from, to}
	if from == to || w.network.cut[way] {
		return
	}
	w.network.cut[way] = true
	w.after(d, func() { delete(w.network.cut, way) })
}

func (w *world) drain(b *broker, mode coordination.DrainMode) {
	if len(w.etcd.facts.drains) > 1 {
		return
	}
	longest := 10 * time.Second
	if w.chance(40) {
		longest = time.Second // somebody changes their mind
	}
	w.etcd.change(func(f *facts) { f.drains[b.id] = mode })
	w.after(w.between(0, longest), func() {
		w.etcd.change(func(f *facts) { delete(f.drains, b.id) })
	})
}

// trouble has faults strike until their time is over.
func (w *world) trouble(until time.Duration) {
	among := faults
	if len(w.only) > 0 {
		among = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !slices.Contains(w.only, f.name) })
	}
	w.after(w.between(w.shape.every/4, w.shape.every*2), func() {
		if w.now >= until {
			return
		}
		f := among[w.rng.IntN(len(among))]
		w.logf("FAULT %s", f.name)
		f.strike(w)
		w.trouble(until)
	})
}

// heal ends all trouble at once.
func (w *world) heal() {
	w.logf("HEAL")
	clear(w.network.cut)
	clear(w.network.slow)
	w.etcd.setDown(false)
	w.etcd.mumbles = 0
	if len(w.etcd.facts.drains) > 0 {
		w.etcd.change(func(f *facts) { clear(f.drains) })
	}
	for _, b := range w.brokers {
		b.lateWatch, b.disk.slow = 0, 0
		b.resume()
		b.start()
	}
}
