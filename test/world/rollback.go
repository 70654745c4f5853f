package world

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// A world may have an hour in which clients are slow and little strikes, and at its end a volume is
// rolled back to before that hour: its logs and their manifests, the journal of sync points, the
// message ids and cursors in the logs, what its broker saved of its clock, and what it saw of etcd.
// All brokers, or that one, are killed then or lose power. The volume's broker starts when of each
// shard another member of the in-sync set vouches, which is when docs/architecture.md promises that
// nothing is lost. Until all replicas are in sync again its broker is killed, loses power and is
// cut off, and the others are left alone. So all of the other judgements hold, without an
// exception. Message ids of before the hour are used again after it, and are duplicates.

const (
	// hourShare is in how many of 100 worlds there is such an hour: each takes some seconds, and
	// most others a fraction of one.
	hourShare = 1
	// rolledBackBy is how old a volume is that is put back.
	rolledBackBy = time.Hour
	// quietPace is by how much longer clients pause in that hour, in which they are to do less than
	// they do in the rest of a world. quietFaults is how often something strikes.
	quietPace   = 200
	quietFaults = 4 * time.Minute
	// longWindow is the deduplication window of Topics of a world with such an hour, and longAge
	// how long they retain records.
	longWindow = 3 * time.Hour
	longAge    = 24 * time.Hour
	// pastIDs is how many messages of the past a client may publish again.
	pastIDs = 400
)

// volume is a copy of what a broker has on its volume.
type volume struct {
	fs    *crashfs.FS
	saved *clock.Saved
	seen  *coordination.Seen
}

func (m *machine) copyVolume() *volume {
	return &volume{m.fs.Snapshot(), m.saved.Load(), m.seen.Load()}
}

// putBack replaces the volume of a machine without a broker.
func (m *machine) putBack(v *volume) {
	m.plug(v.fs)
	m.saved.Store(v.saved)
	m.seen.Store(v.seen)
}

// hour has an hour pass, and rolls a volume back to its beginning.
func (w *world) hour() {
	m := w.any()
	if w.flipped { // nobody may have noticed, and others are not to lose anything
		m = w.spoilt
	}
	w.notef("the volume of %s is copied", m.id)
	old := m.copyVolume()
	w.heal()
	w.pace.Store(quietPace)
	end := w.now() + rolledBackBy
	w.trouble(end-2*time.Minute, quietFaults)
	w.run(end-time.Minute, nil)
	w.pace.Store(1)
	w.run(end, nil)
	if w.heal(); !w.allInSync("before a volume is rolled back") {
		return
	}
	w.rollBack(m, old)
	w.run(w.now()+mending, func() bool { return m.life != nil && !m.life.dead.Load() })
	if m.life == nil || m.life.dead.Load() {
		w.fail("stuck: of a shard on %s nobody else vouches %v after its volume was rolled back: %s", m.id, mending, w.aside(w.state))
		return
	}
	until := w.now() + w.between(0, 12*time.Second)
	w.harass(m, until)
	w.run(until, nil)
	if w.heal(); !w.allInSync("after a volume was rolled back") {
		return
	}
	until = w.now() + w.between(0, 8*time.Second)
	w.trouble(until, w.between(200*time.Millisecond, 3*time.Second))
	w.run(until, nil)
}

// allInSync waits until all replicas of all shards are in sync, and says whether they are.
func (w *world) allInSync(when string) bool {
	why, healed := "nobody looked", w.now()
	w.run(w.now()+mending, func() bool {
		w.giveUpEmpty(healed)
		why = ""
		for _, d := range w.topics {
			for n := range d.shards() {
				if _, missing := w.inSync(d, n); missing != "" {
					why = d.shard(n).String() + " " + missing
				}
			}
		}
		return why == "" && w.deleting == nil
	})
	if why != "" && w.broken == nil {
		w.fail("stuck: %s, %s, %v after everything is well again: %s", when, why, mending, w.aside(w.state))
	}
	return w.broken == nil
}

// rollBack puts an old volume back. The other brokers are left alone, or die with that one. If there
// is a Topic that is Replicated they lose power, after which it may lose what it had: of such a
// Topic nobody vouches when all brokers were killed, so nothing is promised.
func (w *world) rollBack(m *machine, old *volume) {
	power, all := w.chance(50), w.chance(60)
	if all {
		power = power || slices.ContainsFunc(w.topics, func(d *declared) bool { return d.spec.Durability == coordination.Replicated })
		w.fell(slices.DeleteFunc(slices.Clone(w.machines), func(o *machine) bool { return o == m }), power)
	}
	if power {
		m.unplug()
	} else if m.life != nil {
		m.life.kill()
	}
	m.on, m.wanted, m.touched, w.spoilt = false, false, true, m
	restored := w.chance(25) && w.deleting == nil
	if restored {
		w.etcd.save()
	}
	w.after(time.Millisecond, m.id+" is rolled back by an hour", func() {
		m.putBack(old)
		w.judge.spoilt(m)
		w.rolledBack++
		w.startCovered(m)
		if restored {
			w.after(w.between(0, 8*time.Second), "etcd is restored from a backup", w.etcd.restore)
		}
	})
}

// startCovered starts a machine's broker as soon as it need not lead.
func (w *world) startCovered(m *machine) {
	w.after(w.between(20*time.Millisecond, 500*time.Millisecond), m.id+" may start", func() {
		if !w.covered(m) {
			w.startCovered(m)
			return
		}
		m.on, m.wanted = true, true
		m.start()
	})
}

// covered says whether of each shard that a machine has a replica of another member of the in-sync
// set vouches, or everything may be lost, or all copies are compared since etcd was restored.
func (w *world) covered(m *machine) bool {
	for _, d := range w.topics {
		for n := range d.shards() {
			s := w.shard(d, n)
			if s == nil || !slices.Contains(s.Replicas, m.id) || w.judge.lostAll(d, s) || s.Generation < w.generation() {
				continue
			}
			if !slices.ContainsFunc(s.InSync, func(r coordination.Replica) bool {
				o := w.machine(r.Broker)
				return o != m && o.life != nil && !o.life.dead.Load() && o.life.member.Incarnation() == r.Incarnation
			}) {
				return false
			}
		}
	}
	return true
}

// lostAll says whether of a shard's in-sync set nobody is left.
func (j *judge) lostAll(d *declared, s *coordination.Shard) bool {
	return !slices.ContainsFunc(s.InSync, func(m coordination.Replica) bool { return !j.void(d, m) })
}

// harass has faults strike one machine, until a moment.
func (w *world) harass(m *machine, until time.Duration) {
	w.after(w.between(10*time.Millisecond, 3*time.Second), "trouble for "+m.id, func() {
		if w.now() >= until {
			return
		}
		switch w.rng.IntN(5) {
		case 0:
			w.fell([]*machine{m}, false)
		case 1:
			w.fell([]*machine{m}, true)
		case 2:
			if l := m.life; l != nil && !l.dead.Load() {
				l.dieAt.Store(l.operations.Load() + 1 + w.rng.Int64N(200))
				w.again(m, w.between(300*time.Millisecond, 3*time.Second))
			}
		case 3:
			w.part([]*machine{m}, true)
		case 4:
			m.slow = w.between(2*time.Millisecond, 200*time.Millisecond)
			w.after(w.between(time.Second, 4*time.Second), m.id+" has a quick disk", func() { m.slow = 0 })
		}
		w.harass(m, until)
	})
}

// past has a client publish a message again whose id it used some time ago, in a world with an hour.
// It reports whether it did.
func (c *client) past() bool {
	if len(c.sent) == 0 || c.rng.IntN(8) > 0 {
		return false
	}
	op := c.sent[c.rng.IntN(len(c.sent))].again()
	c.send([]*operation{op})
	c.w.judge.usedAgain(op)
	return true
}

// usedAgain counts message ids of more than an hour ago that are duplicates.
func (j *judge) usedAgain(op *operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if op.outcome == duplicate && j.w.now()-j.of(op.shard).made[op.value] > rolledBackBy {
		j.oldIDs++
	}
}

// remember notes messages that may be published again later.
func (c *client) remember(ops []*operation) {
	if !c.w.old || c.topic.retained() {
		return
	}
	for _, op := range ops {
		switch {
		case op.outcome != kept:
		case len(c.sent) < pastIDs:
			c.sent = append(c.sent, op)
		default: // the first half are of before the hour
			c.sent[pastIDs/2+c.rng.IntN(pastIDs/2)] = op
		}
	}
}
