package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Lease is how long etcd keeps what hangs on a lease that nobody renews, and patience how long whoever asks
// it waits for an answer.
const (
	lease    = 3 * time.Second
	patience = 2 * time.Second
)

// facts is what stands in etcd at one revision. It never changes.
type facts struct {
	revision   int64
	brokers    []coordination.Broker // by id
	shards     map[shardID]*coordination.Shard
	drains     map[string]coordination.DrainMode
	leased     map[string]bool // drains that hang on their broker's lease
	suspects   map[string][]coordination.Suspect
	controller coordination.Replica
	term       int64
}

func (f *facts) broker(id string) *coordination.Broker {
	for i := range f.brokers {
		if f.brokers[i].ID == id {
			return &f.brokers[i]
		}
	}
	return nil
}

// lives says whether a broker is registered in that life.
func (f *facts) lives(m coordination.Replica) bool {
	b := f.broker(m.Broker)
	return b != nil && b.Incarnation == m.Incarnation
}

// etcd is the cluster that coordinates: one history of revisions, leases that run out, and ways to it that can be cut.
type etcd struct {
	w       *world
	facts   *facts
	expires map[string]time.Duration // when a broker's lease does
	down    bool
	// mumbles is how many of a hundred answers are lost.
	mumbles int
}

func newEtcd(w *world) *etcd {
	e := &etcd{w: w, expires: map[string]time.Duration{}}
	e.facts = &facts{revision: 1, shards: map[shardID]*coordination.Shard{}, drains: map[string]coordination.DrainMode{},
		leased: map[string]bool{}, suspects: map[string][]coordination.Suspect{}}
	w.every(100*time.Millisecond, e.expire)
	return e
}

// change writes a revision and tells all who watch.
func (e *etcd) change(do func(f *facts)) int64 {
	f := *e.facts
	f.revision++
	f.brokers = slices.Clone(f.brokers)
	f.shards, f.drains, f.leased, f.suspects = maps.Clone(f.shards), maps.Clone(f.drains), maps.Clone(f.leased), maps.Clone(f.suspects)
	do(&f)
	e.facts = &f
	for _, b := range e.w.brokers {
		b.watch.changed(&f)
	}
	return f.revision
}

// setDown has etcd lose its quorum, or find it again; then every lease has its full time again.
func (e *etcd) setDown(down bool) {
	e.down = down
	if !down {
		for id := range e.expires {
			e.expires[id] = e.w.now + lease
		}
	}
}

func (e *etcd) expire() {
	if e.down {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.expires)) {
		if e.expires[id] < e.w.now {
			e.w.logf("etcd: the lease of %s ran out", id)
			e.revoke(id)
		}
	}
}

// revoke ends a broker's lease, and what hangs on it goes.
func (e *etcd) revoke(id string) {
	delete(e.expires, id)
	e.change(func(f *facts) {
		f.brokers = slices.DeleteFunc(f.brokers, func(b coordination.Broker) bool { return b.ID == id })
		if f.leased[id] {
			delete(f.drains, id)
			delete(f.leased, id)
		}
		delete(f.suspects, id)
		if f.controller.Broker == id {
			f.controller = coordination.Replica{}
		}
	})
}

// ask has etcd do something for a broker. answered is false if no answer came in time: then it may have been done, or be
// done yet, unless the asking life must still be there.
func ask[T any](b *broker, mortal bool, do func(*facts) T, done func(answer T, answered bool)) {
	w, e, life := b.w, b.w.etcd, b.life
	told := false
	tell := func(answer T, answered bool) {
		b.do(life, func() {
			if !told {
				told = true
				done(answer, answered)
			}
		})
	}
	w.after(patience, func() {
		var none T
		tell(none, false)
	})
	giveUp := w.now + patience
	if w.chance(30) { // a request on its way outlives who sent it
		giveUp += w.between(0, 6*time.Second)
	}
	var arrive func()
	arrive = func() {
		switch {
		case mortal && (b.life != life || !b.up):
			return
		case e.down || !w.network.open(b.id, "etcd"):
			if w.now < giveUp {
				w.after(30*time.Millisecond, arrive)
			}
			return
		}
		answer := do(e.facts)
		if w.chance(e.mumbles) || !w.network.open("etcd", b.id) {
			return
		}
		w.after(w.network.latency("etcd", b.id), func() { tell(answer, true) })
	}
	w.after(w.network.latency(b.id, "etcd")+w.between(200*time.Microsecond, 3*time.Millisecond), arrive)
}

// watch brings a broker what changes, late.
type watch struct {
	b      *broker
	coming []*facts
	moving bool
}

func (t *watch) changed(f *facts) {
	if t.b.up {
		t.coming = append(t.coming, f)
		t.move()
	}
}

func (t *watch) move() {
	if t.moving || len(t.coming) == 0 {
		return
	}
	t.moving = true
	w := t.b.w
	w.after(w.network.latency("etcd", t.b.id)+t.b.lateWatch, func() {
		t.moving = false
		if len(t.coming) > 0 && !w.etcd.down && w.network.open("etcd", t.b.id) {
			n := 1 + w.rng.IntN(len(t.coming))
			f := t.coming[n-1]
			t.coming = t.coming[n:]
			t.b.do(t.b.life, func() { t.b.learn(f) })
		} else if len(t.coming) > 0 {
			w.after(30*time.Millisecond, t.move)
			return
		}
		t.move()
	})
}

// register makes a broker's key anew, and says under which incarnation. Its report comes with it, lest it is elected first.
func (e *etcd) register(self coordination.Broker, suspects []coordination.Suspect) int64 {
	if e.facts.broker(self.ID) != nil {
		e.revoke(self.ID)
	}
	e.expires[self.ID] = e.w.now + lease
	return e.change(func(f *facts) {
		self.Incarnation = f.revision
		at, _ := slices.BinarySearchFunc(f.brokers, self.ID, func(b coordination.Broker, id string) int { return strings.Compare(b.ID, id) })
		f.brokers = slices.Insert(f.brokers, at, self)
		if len(suspects) > 0 {
			f.suspects[self.ID] = suspects
		}
	})
}

// swapped is what became of a compare-and-swap.
type swapped struct {
	done  bool
	shard *coordination.Shard
}

// swap changes the in-sync set as coordination.Client.SwapInSync does.
func (e *etcd) swap(self coordination.Replica, before *coordination.Shard, inSync []coordination.Replica) swapped {
	id := shardID{before.Topic, before.Number}
	f := e.facts
	now := f.shards[id]
	ok := (now.Revision == before.Revision || e.w.mutation.WriteBlindly) && f.lives(self)
	for _, m := range inSync {
		if m != self && !slices.Contains(before.InSync, m) {
			ok = ok && f.lives(m)
		}
	}
	if !ok {
		return swapped{}
	}
	after := *now
	after.InSync = slices.Clone(inSync)
	e.change(func(f *facts) {
		after.Revision = f.revision
		f.shards[id] = &after
	})
	e.w.logf("etcd: %s rev %d epoch %d: %s swaps %s -> %s", id, after.Revision, after.Epoch, self.Broker, members(before.InSync), members(inSync))
	e.w.judge.setChanged(id, &after)
	return swapped{true, &after}
}

// write is one transaction of the controller's, as coordination.Office.WriteShards does.
func (e *etcd) write(term int64, shards []coordination.Shard) bool {
	f := e.facts
	if f.term != term || f.controller.Broker == "" {
		return false
	}
	for i := range shards {
		s := &shards[i]
		id := shardID{s.Topic, s.Number}
		var revision int64
		if now := f.shards[id]; now != nil {
			revision = now.Revision
		}
		if revision != s.Revision && !e.w.mutation.WriteBlindly {
			return false
		}
		for _, m := range s.InSync {
			if m.Broker == s.Leader && !f.lives(m) {
				return false
			}
		}
	}
	e.change(func(f *facts) {
		for i := range shards {
			s := shards[i]
			s.Revision = f.revision
			f.shards[shardID{s.Topic, s.Number}] = &s
		}
	})
	for i := range shards {
		id := shardID{shards[i].Topic, shards[i].Number}
		e.w.judge.setChanged(id, e.facts.shards[id])
	}
	return true
}

func members(set []coordination.Replica) string {
	names := make([]string, len(set))
	for i, m := range set {
		names[i] = fmt.Sprintf("%s@%d", m.Broker, m.Incarnation)
	}
	return "{" + strings.Join(names, " ") + "}"
}
