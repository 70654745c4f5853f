package world

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// A world may have an hour in which clients are slow and few faults strike. At its end one volume
// is rolled back to the beginning of that hour: logs, manifests, the journal of sync points, the
// message ids and cursors in the logs, the broker's saved clock, and the last state of etcd that it
// saw. All brokers, or that one, are killed or lose power. The volume's broker starts when another
// in-sync member of each of its shards vouches: docs/architecture.md promises that nothing is lost
// then. Until all replicas are in sync again, that broker is killed, loses power and is cut off,
// and the others run undisturbed. So all other judgements hold without an exception. Message ids
// from before the hour are used again after it, and are duplicates.

const (
	// hourShare is the percentage of worlds with such an hour. Each takes some seconds, and most
	// others a fraction of one.
	hourShare = 1
	// rolledBackBy is the age of the restored volume.
	rolledBackBy = time.Hour
	// quietPace is the factor by which clients' pauses are longer in that hour, so that they do
	// less than in the rest of a world. quietFaults is the interval of faults.
	quietPace   = 200
	quietFaults = 4 * time.Minute
	// longWindow is the deduplication window of Topics of a world with such an hour, and longAge
	// the age to which they retain records.
	longWindow = 3 * time.Hour
	longAge    = 24 * time.Hour
	// pastIDs bounds the old messages that a client may publish again.
	pastIDs = 400
)

// volume is a copy of a broker's volume.
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

// hour lets an hour pass, and rolls a volume back to its beginning.
func (w *world) hour() {
	m := w.any()
	if w.flipped { // flips may be unnoticed, so no other machine may lose data
		m = w.altered
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
	w.run(w.now()+convergeTime, func() bool { return m.life != nil && !m.life.dead.Load() })
	if m.life == nil || m.life.dead.Load() {
		w.fail("stuck: of a shard on %s nobody else vouches %v after its volume was rolled back: %s", m.id, convergeTime, w.await(w.state))
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

// allInSync waits until all replicas of all shards are in sync, and reports whether they are.
func (w *world) allInSync(when string) bool {
	why, healed := "nobody looked", w.now()
	w.run(w.now()+convergeTime, func() bool {
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
		w.fail("stuck: %s, %s, %v after everything is well again: %s", when, why, convergeTime, w.await(w.state))
	}
	return w.broken == nil
}

// rollBack restores an old volume. The other brokers run on, or die with that one. If they die and
// a Topic is Replicated, all machines lose power, so that this Topic may lose its records: after a
// kill of all brokers no broker vouches for such a Topic, and nothing would be promised.
func (w *world) rollBack(m *machine, old *volume) {
	power, all := w.chance(50), w.chance(60)
	if all {
		power = power || slices.ContainsFunc(w.topics, func(d *declared) bool { return d.spec.Durability == coordination.Replicated })
		w.crash(slices.DeleteFunc(slices.Clone(w.machines), func(o *machine) bool { return o == m }), power)
	}
	if power {
		m.unplug()
	} else if m.life != nil {
		m.life.kill()
	}
	m.on, m.wanted, m.touched, w.altered = false, false, true, m
	restored := w.chance(25) && w.deleting == nil
	if restored {
		w.etcd.save()
	}
	w.after(time.Millisecond, m.id+" is rolled back by an hour", func() {
		m.putBack(old)
		w.judge.altered(m)
		w.rolledBack++
		w.startCovered(m)
		if restored {
			w.after(w.between(0, 8*time.Second), "etcd is restored from a backup", w.etcd.restore)
		}
	})
}

// startCovered starts a machine's broker as soon as other brokers can lead its shards.
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

// covered reports whether each shard with a replica on the machine is safe without it: another
// member of the in-sync set vouches, or the shard may lose everything, or all copies are compared
// since a restore of etcd.
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

// lostAll reports whether all entries of a shard's in-sync set are void.
func (j *judge) lostAll(d *declared, s *coordination.Shard) bool {
	return !slices.ContainsFunc(s.InSync, func(m coordination.Replica) bool { return !j.void(d, m) })
}

// harass causes faults on one machine until a moment.
func (w *world) harass(m *machine, until time.Duration) {
	w.after(w.between(10*time.Millisecond, 3*time.Second), "trouble for "+m.id, func() {
		if w.now() >= until {
			return
		}
		switch w.rng.IntN(5) {
		case 0:
			w.crash([]*machine{m}, false)
		case 1:
			w.crash([]*machine{m}, true)
		case 2:
			if l := m.life; l != nil && !l.dead.Load() {
				l.dieAt.Store(l.operations.Load() + 1 + w.rng.Int64N(200))
				w.again(m, w.between(300*time.Millisecond, 3*time.Second))
			}
		case 3:
			w.partition([]*machine{m}, true)
		case 4:
			m.slow = w.between(2*time.Millisecond, 200*time.Millisecond)
			w.after(w.between(time.Second, 4*time.Second), m.id+" has a quick disk", func() { m.slow = 0 })
		}
		w.harass(m, until)
	})
}

// past republishes a message whose id the client used some time ago, in a world with an hour. It
// reports whether it did.
func (c *client) past() bool {
	if len(c.sent) == 0 || c.rng.IntN(8) > 0 {
		return false
	}
	op := c.sent[c.rng.IntN(len(c.sent))].again()
	c.send([]*operation{op})
	c.w.judge.usedAgain(op)
	return true
}

// usedAgain counts duplicates of message ids that are more than an hour old.
func (j *judge) usedAgain(op *operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if op.outcome == duplicate && j.w.now()-j.of(op.shard).made[op.value] > rolledBackBy {
		j.oldIDs++
	}
}

// remember keeps messages that may be published again later.
func (c *client) remember(ops []*operation) {
	if !c.w.old || c.topic.retained() {
		return
	}
	for _, op := range ops {
		switch {
		case op.outcome != kept:
		case len(c.sent) < pastIDs:
			c.sent = append(c.sent, op)
		default: // the first half are from before the hour
			c.sent[pastIDs/2+c.rng.IntN(pastIDs/2)] = op
		}
	}
}
