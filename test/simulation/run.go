package simulation

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// mending is how long a healed world may take until it is whole.
const mending = 2 * time.Minute

// Options are what isn't decided by the seed.
type Options struct {
	Trace    io.Writer // nil: none
	Mutation Mutation
	// Outside has only promises to clients looked at, not what brokers have on their disks on the way.
	Outside bool
	// Faults are the names of those that strike; none: all do.
	Faults []string
	// Harsh has them strike in quick succession.
	Harsh bool
}

// Result is what came of a run.
type Result struct {
	Violation *Violation // nil: nothing broke
	Events    int
	Acks      int
	Virtual   time.Duration
	Mended    time.Duration // after the last fault
	Epochs    int64
}

// Run runs the world of a seed to its end.
func Run(seed uint64, o Options) (r Result) {
	w := newWorld(seed, o)
	w.trouble(w.shape.faults)
	w.run(w.shape.faults, nil)
	if w.broken == nil {
		w.heal()
		w.mend()
	}
	if w.broken == nil {
		w.judge.final()
	}
	r = Result{Violation: w.broken, Events: w.count, Virtual: w.now, Mended: w.now - w.shape.faults}
	for _, p := range w.clients {
		r.Acks += p.acks
	}
	for _, s := range w.etcd.facts.shards {
		r.Epochs += s.Epoch
	}
	return r
}

func newWorld(seed uint64, o Options) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, seed)), trace: o.Trace, mutation: o.Mutation, only: o.Faults}
	w.shape = shape{brokers: 3 + w.rng.IntN(3), shards: 1 + w.rng.IntN(3), faults: w.between(8*time.Second, 25*time.Second), every: w.between(200*time.Millisecond, 3*time.Second)}
	if o.Harsh {
		w.shape.every = w.between(150*time.Millisecond, 800*time.Millisecond)
	}
	w.network, w.etcd, w.judge = newNetwork(w), newEtcd(w), newJudge(w, !o.Outside)
	for i := range w.shape.shards {
		t := &coordination.Topic{Name: fmt.Sprintf("t%d", i), ID: fmt.Sprintf("t%d", i), Created: time.Unix(int64(i), 0), Revision: 1,
			Spec: coordination.TopicSpec{Shards: 1, Replicas: 3, MinInSync: 2, Durability: coordination.Synced}}
		if w.chance(30) {
			t.Spec.Durability = coordination.Replicated
		}
		w.topics = append(w.topics, t)
		w.ids = append(w.ids, shardID{t.ID, 0})
	}
	for i := range w.shape.brokers {
		w.brokers = append(w.brokers, newBroker(w, fmt.Sprintf("b%d", i), fmt.Sprintf("z%d", i%3)))
	}
	for _, b := range w.brokers {
		w.after(w.between(0, 300*time.Millisecond), b.start)
	}
	for _, id := range w.ids {
		for i := range 3 {
			w.client(id, replica.Data, i == 0, w.between(15*time.Millisecond, 80*time.Millisecond))
		}
		w.client(id, replica.State, false, w.between(60*time.Millisecond, 200*time.Millisecond))
		for p := range replica.Parts {
			r := &reader{w: w, shard: id, part: p, next: 1}
			w.readers = append(w.readers, r)
			r.run()
		}
	}
	return w
}

func (w *world) client(id shardID, p replica.Part, conditional bool, every time.Duration) {
	c := &publisher{w: w, n: len(w.clients) + 1, shard: id, part: p, conditional: conditional, every: every}
	w.clients = append(w.clients, c)
	c.run()
}

func (w *world) topic(id shardID) *coordination.Topic {
	for _, t := range w.topics {
		if t.ID == id.topic {
			return t
		}
	}
	return nil
}

func (w *world) broker(id string) *broker {
	for _, b := range w.brokers {
		if b.id == id {
			return b
		}
	}
	return nil
}

// mend runs a healed world until it is whole: every publisher is answered again, then all are silent, and all replicas are in
// sync and equal.
func (w *world) mend() {
	until := w.now + mending
	before := make([]int, len(w.clients))
	for i, p := range w.clients {
		before[i] = p.answers
	}
	w.run(until, func() bool {
		for i, p := range w.clients {
			if p.answers == before[i] {
				return false
			}
		}
		return true
	})
	for i, p := range w.clients {
		if w.broken == nil && p.answers == before[i] {
			w.fail(Stuck, "publisher %d of %s %s is not answered %v after everything is well again: %s", p.n, p.shard, p.part, mending, w.state(p.shard))
		}
		p.stopped = true
	}
	w.run(until, func() bool {
		for _, id := range w.ids {
			if w.unwhole(id) != "" {
				return false
			}
		}
		return true
	})
	for _, id := range w.ids {
		if why := w.unwhole(id); w.broken == nil && why != "" {
			w.fail(Stuck, "%s of %s %v after everything is well again: %s", why, id, mending, w.state(id))
		}
	}
}

// unwhole says what is missing until a shard is whole, or nothing.
func (w *world) unwhole(id shardID) string {
	shard := w.etcd.facts.shards[id]
	switch {
	case shard == nil || shard.Leader == "":
		return "there is no leader"
	case len(shard.Replicas) != w.topic(id).Spec.Replicas || len(shard.Adding)+len(shard.Removing) > 0:
		return "a move goes on"
	case len(shard.InSync) != len(shard.Replicas):
		return "not all replicas are in sync"
	}
	for _, m := range shard.InSync {
		if !w.etcd.facts.lives(m) {
			return "a member of the set is of an earlier life"
		}
	}
	r := w.broker(shard.Leader).roles[id]
	if r == nil || r.lead == nil || r.epoch != shard.Epoch {
		return "the leader doesn't lead"
	}
	for p, log := range r.lead.logs {
		if r.lead.high[p] != log.end {
			return "not everything is safe"
		}
		for _, m := range shard.InSync {
			if other := w.broker(m.Broker).disk.open(id)[p]; other.end != log.end {
				return "not everything is copied"
			}
		}
	}
	return ""
}

// state describes a shard for people.
func (w *world) state(id shardID) string {
	shard := w.etcd.facts.shards[id]
	if shard == nil {
		return "not placed"
	}
	text := fmt.Sprintf("epoch %d, leader %s, replicas %v, set %s, adding %v, removing %v", shard.Epoch, shard.Leader, shard.Replicas, members(shard.InSync), shard.Adding, shard.Removing)
	for _, b := range w.brokers {
		logs := b.disk.open(id)
		text += fmt.Sprintf("; %s@%d up %t ends %d %d", b.id, b.self.Incarnation, b.up, logs[0].end, logs[1].end)
		if r := b.roles[id]; r != nil {
			text += fmt.Sprintf(" epoch %d leads %t", r.epoch, r.lead != nil)
			if r.lead != nil {
				text += fmt.Sprintf(" high %v of %v", r.lead.high, r.lead.core.Shard().InSync)
			}
		}
	}
	return text
}

func (w *world) minimum(shard *coordination.Shard) int {
	return shard.MinInSync(&w.topic(shardID{shard.Topic, shard.Number}).Spec)
}
