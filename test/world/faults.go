package world

import (
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// fault is one kind of fault. Its function schedules its end.
type fault struct {
	name   string
	class  Class // empty: it strikes in every world
	strike func(w *world)
}

// little is by how much synchronised clocks differ: two of them by less than clock.Bound.
const little = 900 * time.Millisecond

var faults = []fault{
	{"kill", "", func(w *world) { w.crash(w.some(), false) }},
	{"kill one", "", func(w *world) { w.crash(w.some()[:1], false) }},
	{"kill all", "", func(w *world) { w.crash(w.machines, false) }},
	{"kill between two writes", "", func(w *world) {
		for _, m := range w.some() {
			if l := m.life; l != nil && !l.dead.Load() {
				l.dieAt.Store(l.operations.Load() + 1 + w.rng.Int64N(200))
				w.again(m, w.between(300*time.Millisecond, 5*time.Second))
			}
		}
	}},
	{"cut power", "", func(w *world) { w.crash(w.some(), true) }},
	{"cut power of all", "", func(w *world) { w.crash(w.machines, true) }},
	{"stop in order", "", func(w *world) {
		m := w.any()
		m.stop(func() { w.again(m, w.between(100*time.Millisecond, 3*time.Second)) })
	}},
	{"cut off one", "", func(w *world) { w.partition(w.some()[:1], true) }},
	{"cut in two", "", func(w *world) { w.partition(w.some(), false) }},
	{"cut one way", "", func(w *world) {
		a, b := w.any(), w.any()
		w.cut(a.id, b.id, w.between(300*time.Millisecond, 8*time.Second))
	}},
	{"cut off from etcd", "", func(w *world) {
		for _, m := range w.some() {
			d := w.between(500*time.Millisecond, 8*time.Second)
			w.cut(m.id, etcdName, d)
			w.cut(etcdName, m.id, d)
		}
	}},
	{"cut from etcd one way", "", func(w *world) {
		m := w.any()
		if w.chance(50) {
			w.cut(m.id, etcdName, w.between(500*time.Millisecond, 8*time.Second))
		} else {
			w.cut(etcdName, m.id, w.between(500*time.Millisecond, 8*time.Second))
		}
	}},
	{"etcd loses its quorum", "", func(w *world) {
		w.etcd.setDown(true)
		w.after(w.between(500*time.Millisecond, 8*time.Second), "etcd has a quorum", func() { w.etcd.setDown(false) })
	}},
	{"etcd loses answers", "", func(w *world) {
		w.etcd.lossRate = 30
		w.after(w.between(time.Second, 6*time.Second), "etcd answers again", func() { w.etcd.lossRate = 0 })
	}},
	{"etcd is restored", RestoredEtcd, func(w *world) {
		if w.deleting != nil {
			w.note("nothing is backed up")
			return
		}
		w.etcd.save()
		w.after(w.between(2*time.Second, 15*time.Second), "etcd is restored from a backup", w.etcd.restore)
	}},
	{"etcd forgets a shard whose brokers are away", onlyNamed, (*world).forgetAway},
	{"etcd forgets a shard whose brokers are late", onlyNamed, (*world).forgetLate},
	{"an empty Topic loses its logs beside a restore of etcd", onlyNamed, (*world).loseEmpty},
	{"a leader alone has its copy, and it is damaged", onlyNamed, (*world).loseAllButDamaged},
	{"a leader's copy is damaged while a whole one is away", onlyNamed, (*world).damageBesideAway},
	{"a whole copy must be fetched anew beside a damaged leader", onlyNamed, (*world).loseManifest},
	{"a copy that was rolled back leads", onlyNamed, (*world).leadRolledBack},
	{"copies are damaged in different places", onlyNamed, (*world).damageApart},
	{"a bit of the last round flips, and others are late", onlyNamed, (*world).flipLastRound},
	{"a sector of an older round is lost, and others are late", onlyNamed, (*world).loseOldSector},
	{"a sector is lost that was idle, and others are late", onlyNamed, (*world).loseIdleSector},
	{"a sector of the leader's last round is lost", onlyNamed, (*world).loseLeadersSector},
	{"the end of a log is lost beside a leader without etcd", onlyNamed, (*world).loseEndBesideDeaf},
	{"late watches", "", func(w *world) {
		for _, m := range w.some() {
			m.lateWatch = w.between(50*time.Millisecond, 3*time.Second)
			w.after(w.between(time.Second, 8*time.Second), m.id+" sees etcd in time", func() { m.lateWatch = 0 })
		}
	}},
	{"slow disk", "", func(w *world) {
		m := w.any()
		m.slow = w.between(2*time.Millisecond, 500*time.Millisecond)
		w.after(w.between(time.Second, 8*time.Second), m.id+" has a quick disk", func() { m.slow = 0 })
	}},
	{"disk stalls for a moment", "", func(w *world) { w.stall(w.any(), w.between(100*time.Millisecond, 1500*time.Millisecond)) }},
	{"disk hangs", HungDisks, func(w *world) {
		if !w.patient || !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.stalled }) {
			w.stall(w.any(), w.between(15*time.Second, 40*time.Second))
		}
	}},
	{"full disk", "", func(w *world) {
		m := w.any()
		m.fs.SetCapacity(m.fs.Used() + w.rng.Int64N(64<<10))
		w.after(w.between(time.Second, 8*time.Second), m.id+" has room again", func() { m.fs.SetCapacity(0) })
	}},
	{"failing syncs", FailedSyncs, func(w *world) {
		m := w.any()
		m.failing = true
		w.after(w.between(10*time.Millisecond, time.Second), m.id+" syncs again", func() { m.failing = false })
	}},
	{"syncs fail everywhere, and power fails later", onlyNamed, (*world).failSyncsThenPower},
	{"a write fails", FailedWrites, func(w *world) {
		m := w.any()
		m.failingWrites = 1 + w.rng.IntN(3)
		if m.beside = w.any(); m.beside == m || w.chance(30) {
			m.beside = nil
		}
	}},
	{"slow way", "", func(w *world) {
		one := way{w.any().id, w.any().id}
		w.network.slow[one] = w.between(2*time.Millisecond, 300*time.Millisecond)
		w.after(w.between(time.Second, 8*time.Second), one.from+" reaches "+one.to+" quickly", func() { delete(w.network.slow, one) })
	}},
	{"clock is wrong by a little", "", func(w *world) {
		m := w.any()
		m.offset.Store(int64(w.between(-little, little)))
	}},
	{"clock jumps", JumpingClocks, func(w *world) {
		m := w.any()
		year := 365 * 24 * time.Hour
		m.offset.Store(int64([]time.Duration{year, -year, 26 * time.Hour}[w.rng.IntN(3)]))
		w.after(w.between(50*time.Millisecond, 10*time.Second), m.id+" has the right time", func() { m.offset.Store(0) })
	}},
	{clocksAhead, onlyNamed, (*world).failBesideClocks},
	{clocksBack, onlyNamed, (*world).failToOldClocks},
	{"drain leadership", "", func(w *world) { w.drain(w.any(), coordination.DrainLeadership) }},
	{"drain", "", func(w *world) { w.drain(w.any(), coordination.DrainAll) }},
	{"a Topic is deleted", "", (*world).removeTopic},
	{"a copy is lost", LostCopies, func(w *world) { w.alterAny((*machine).loseCopy) }},
	{"the end of a log is lost", LostEnds, func(w *world) { w.alterAny((*machine).loseEnd) }},
	{"a joiner is cut off", "", func(w *world) { w.etcd.failNextJoin = true }},
	{"a replica comes back", onlyNamed, func(w *world) {
		w.etcd.undoNextRemoval = true
		w.drain(w.any(), coordination.DrainAll)
	}},
	{"a volume is rolled back", RolledBack, func(w *world) {
		m := w.any()
		m.snapshot = m.copyVolume()
		w.after(w.between(500*time.Millisecond, 6*time.Second), m.id+" is rolled back", func() {
			w.alter(m, func(m *machine) {
				if m.snapshot != nil {
					m.putBack(m.snapshot)
					m.snapshot = nil
				}
			})
		})
	}},
	{"bits flip", FlippedBits, func(w *world) {
		m := w.any()
		if w.flipped {
			m = w.altered // flips may stay unnoticed, so all are on one machine
		}
		if w.mayAlter(m) {
			w.flipped = true
			w.alter(m, (*machine).flip)
		}
	}},
}

func (w *world) any() *machine { return w.machines[w.rng.IntN(len(w.machines))] }

// some returns at least one machine, in random order.
func (w *world) some() []*machine {
	all := slices.Clone(w.machines)
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+w.rng.IntN(len(all))]
}

// again starts a machine's process after a pause.
func (w *world) again(m *machine, d time.Duration) {
	w.after(d, m.id+" is to start", func() {
		m.on = true
		m.start()
	})
}

// crash kills processes, or cuts the power of their machines, at once or within some milliseconds.
// It starts each again after a pause.
func (w *world) crash(which []*machine, power bool) {
	spread := time.Duration(0)
	if w.chance(40) {
		spread = 20 * time.Millisecond
	}
	for _, m := range slices.Clone(which) {
		w.after(w.between(0, spread), m.id+" crashes", func() {
			if power {
				m.unplug()
			} else if m.life != nil {
				w.notef("%s is killed", m.id)
				m.life.kill()
			}
			w.again(m, w.between(50*time.Millisecond, 5*time.Second))
		})
	}
}

// partition cuts machines off from the others, and perhaps from etcd.
func (w *world) partition(which []*machine, alone bool) {
	d := w.between(300*time.Millisecond, 8*time.Second)
	etcd := w.chance(50)
	for _, a := range which {
		for _, b := range w.machines {
			if a != b && (alone || !slices.Contains(which, b)) {
				w.cut(a.id, b.id, d)
				w.cut(b.id, a.id, d)
			}
		}
		if etcd {
			w.cut(a.id, etcdName, d)
			w.cut(etcdName, a.id, d)
		}
	}
}

func (w *world) cut(from, to string, d time.Duration) {
	if from == to {
		return
	}
	one := way{from, to}
	w.notef("%s doesn't reach %s", from, to)
	w.network.cuts[one]++
	w.after(d, from+" reaches "+to, func() {
		if w.network.cuts[one] > 0 {
			w.network.cuts[one]--
		}
	})
}

func (w *world) stall(m *machine, d time.Duration) {
	m.stalled = true
	w.after(d, m.id+" has a disk that works", func() { m.stalled = false })
}

// alterAny kills one process and alters its disk before it starts again.
func (w *world) alterAny(what func(*machine)) { w.alter(w.any(), what) }

// mayAlter reports whether a machine's disk may lose data: no other machine's may have lost any
// until all replicas are in sync again, since nothing recovers records that two of three replicas
// lost.
func (w *world) mayAlter(m *machine) bool {
	if w.altered == nil || w.altered == m {
		return true
	}
	for _, d := range w.topics {
		for n := range d.shards() {
			if _, why := w.inSync(d, n); why != "" || w.flipped {
				return false
			}
		}
	}
	return true
}

func (w *world) alter(m *machine, what func(*machine)) {
	if !w.mayAlter(m) {
		w.note("no disk is altered: another one is")
		return
	}
	w.altered = m
	if m.life != nil {
		m.life.kill()
	}
	m.touched = true
	w.after(time.Millisecond, m.id+" has its disk altered", func() {
		what(m)
		w.judge.altered(m)
		w.again(m, w.between(50*time.Millisecond, 3*time.Second))
	})
}

// joined sees each transaction after it was carried out. If the fault is armed and the transaction
// adds a member to an in-sync set, the leader does not learn of it: it loses the answer, etcd and
// the new member. It then dies, and the new member may be elected. The new member must have
// everything that the leader acknowledged meanwhile.
func (e *etcd) joined(c *commit) {
	if !e.failNextJoin || c.by == nil {
		return
	}
	w, leader := e.w, c.by.m
	for _, event := range c.events {
		key := string(event.GetKv().GetKey())
		if !strings.HasPrefix(key, keyOf("shards/")) {
			continue
		}
		before, after := decodeShard(e.get(key, e.revision-1)), decodeShard(event.GetKv())
		if before == nil || after == nil || before.Epoch != after.Epoch || after.Leader != leader.id {
			continue
		}
		for _, m := range after.InSync {
			if _, in := before.Member(m.Broker); in || m.Broker == leader.id {
				continue
			}
			e.failNextJoin, e.loseAnswer = false, true
			d := w.between(500*time.Millisecond, leaseTime-200*time.Millisecond)
			w.notef("%s isn't told that %s joined", leader.id, m.Broker)
			w.cut(leader.id, etcdName, d)
			w.cut(etcdName, leader.id, d)
			w.cut(leader.id, m.Broker, d)
			w.after(d, "the leader that wasn't told", func() { w.crash([]*machine{leader}, false) })
			return
		}
	}
}

// removed sees each transaction before it is visible. If the fault is armed and the transaction
// removes a replica from a shard, the controller is made to restore that replica at once. The
// leader sees both changes late, and gets nothing from the replica meanwhile. It then dies. What it
// knew of that copy is void, since the copy was deleted in between.
func (e *etcd) removed(c *commit) {
	if !e.undoNextRemoval {
		return
	}
	w := e.w
	for _, event := range c.events {
		key := string(event.GetKv().GetKey())
		if !strings.HasPrefix(key, keyOf("shards/")) {
			continue
		}
		before, after := decodeShard(e.get(key, e.revision)), decodeShard(event.GetKv())
		if before == nil || after == nil || w.machine(after.Leader) == nil {
			continue
		}
		leader, last := w.machine(after.Leader), after.Replicas[len(after.Replicas)-1]
		for _, id := range before.Replicas {
			if _, in := before.Member(id); !in || slices.Contains(after.Replicas, id) || last == leader.id {
				continue
			}
			e.undoNextRemoval = false
			w.notef("%s, which leads, hears late that %s has no replica, and has one again", leader.id, id)
			leader.lateWatch = w.between(500*time.Millisecond, time.Second)
			w.cut(id, leader.id, 1500*time.Millisecond)
			w.after(0, id+" is to have it again", func() {
				w.etcd.write(keyOf("drains/"+id), "")
				w.drain(w.machine(last), coordination.DrainAll)
			})
			w.after(w.between(1100*time.Millisecond, 1500*time.Millisecond), "the leader that heard late", func() {
				leader.lateWatch = 0
				w.crash([]*machine{leader}, false)
			})
			return
		}
	}
}

// leaseTime is the least time for which a broker stays registered after it is cut off from etcd.
const leaseTime = 3 * time.Second

// drain requests to drain a machine, as an operator of a cluster does, and withdraws the request
// after a while.
func (w *world) drain(m *machine, mode coordination.DrainMode) {
	key := keyOf("drains/" + m.id)
	w.etcd.write(key, `{"v":1,"mode":"`+string(mode)+`"}`)
	w.after(w.between(500*time.Millisecond, 8*time.Second), m.id+" is drained no more", func() { w.etcd.write(key, "") })
}

// trouble causes faults at intervals until a moment.
func (w *world) trouble(until, every time.Duration) {
	var among []fault
	for _, f := range faults {
		if len(w.options.Faults) > 0 && slices.Contains(w.options.Faults, f.name) || len(w.options.Faults) == 0 && !w.options.leaveOut(f.class) && (f.class != JumpingClocks || w.jumps) {
			among = append(among, f)
		}
	}
	if len(among) == 0 {
		return
	}
	w.after(w.between(every/4, every*2), "trouble", func() {
		if w.now() >= until {
			return
		}
		f := among[w.rng.IntN(len(among))]
		w.notef("FAULT %s", f.name)
		w.struck = append(w.struck, f.name)
		f.strike(w)
		w.trouble(until, every)
	})
}

// heal ends all faults at once.
func (w *world) heal() {
	w.note("HEAL")
	w.still.Store(false)
	clear(w.network.cuts)
	clear(w.network.slow)
	w.etcd.setDown(false)
	w.etcd.lossRate, w.etcd.failNextJoin, w.etcd.undoNextRemoval, w.etcd.backup = 0, false, false, nil
	for _, m := range w.machines {
		w.etcd.write(keyOf("drains/"+m.id), "")
		m.stalled, m.failing, m.slow, m.lateWatch = false, false, 0, 0
		m.failingWrites, m.beside = 0, nil
		m.offset.Store(0)
		m.fs.SetCapacity(0)
		m.on, m.wanted = true, true
		if l := m.life; l != nil {
			l.dieAt.Store(0)
		}
		m.start()
	}
}

// supervise regularly restarts processes that report that they need it.
func (w *world) supervise() {
	w.after(3*time.Second, "failed processes are restarted", func() {
		for _, m := range w.machines {
			m.restartFailed()
		}
		w.supervise()
	})
}

// restartFailed kills a process whose disk has failed, and starts it again, as the error advises.
func (m *machine) restartFailed() {
	l := m.life
	if !m.wanted || l == nil || l.dead.Load() || l.disk == nil {
		return
	}
	go func() { // it may wait for the disk
		if l.disk.Failed() == nil || l.dead.Load() {
			return
		}
		m.w.after(0, m.id+" is started again, since its disk failed", func() {
			l.kill()
			m.w.again(m, 100*time.Millisecond)
		})
	}()
}
