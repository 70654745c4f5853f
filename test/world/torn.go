package world

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Faults in the last segment of the log of a world's first shard, on one machine, while all of the
// shard's brokers are dead. Each is directed at one rule by which opening a log tells damage from a
// write that a crash has torn, or by which a copy with a torn tail counts less. A torn tail was
// never confirmed; damage may have been. So a copy whose damage is taken for a torn tail may be
// elected alone, and what other replicas have is lost. They strike where they are named, while all
// replicas are in sync.

// loseEndBesideDeaf takes the last segment of a follower's log. The broker is back at once, and
// fetches the records that its manifest lists from a leader that can't put it into the in-sync set,
// since it does not reach etcd. That leader dies when it has sent them. Until the others are back,
// the copy is the only one, and may lack records that its manifest does not list.
func (w *world) loseEndBesideDeaf() {
	d, those := w.copies()
	if d == nil {
		return
	}
	deaf, m := those[0], those[1]
	const without = 2500 * time.Millisecond // less than leaseTime
	w.cut(deaf.id, etcdName, without)
	w.cut(etcdName, deaf.id, without)
	w.stopFor(those[2], w.between(lateBy, lateMost))
	w.stopFor(m, w.between(50*time.Millisecond, 150*time.Millisecond))
	w.after(time.Millisecond, m.id+" loses the end of "+d.name, func() {
		m.loseEndOf(d.id + "-0")
		w.alteredAll([]*machine{m})
	})
	w.onceRepaired(m, w.now()+without, func() { w.stopFor(deaf, w.between(lateBy, lateMost)) })
}

// onceRepaired calls do as soon as the present process of a machine has repaired a segment, unless
// that takes too long.
func (w *world) onceRepaired(m *machine, until time.Duration, do func()) {
	w.after(100*time.Microsecond, m.id+" is looked at", func() {
		switch l := m.life; {
		case w.now() > until:
		case l != nil && !l.dead.Load() && l.ready.Load() && l.exchange.Stats().Repaired > 0:
			do()
		default:
			w.onceRepaired(m, until, do)
		}
	})
}

// lateBy is how late other brokers are, at least and at most: their leases have ended long before.
const lateBy, lateMost = 7 * time.Second, 9 * time.Second

// idleFor is for how long no client does anything, at least, before all brokers are killed. By then
// the disks have been idle for longer than it takes until their journals are closed.
const idleFor = time.Second

// flipLastRound flips a bit of the last round, of which nothing proves that it was synced.
func (w *world) flipLastRound() { w.damageAlone(0, (*machine).flipLast) }

// loseOldSector takes a sector of which later rounds prove that it was synced.
func (w *world) loseOldSector() { w.damageAlone(0, (*machine).zeroOld) }

// loseIdleSector takes a sector of the last round of a disk that was idle for a while.
func (w *world) loseIdleSector() { w.damageAlone(idleFor, (*machine).zeroLast) }

// damageAlone damages a copy whose broker is back long before the others.
func (w *world) damageAlone(idle time.Duration, damage func(*machine, *declared)) {
	d, those := w.copies()
	if d == nil {
		return
	}
	m := those[w.rng.IntN(len(those))]
	strike := func() {
		if _, why := w.inSync(d, 0); why != "" {
			w.note("nothing is damaged")
			return
		}
		for _, other := range those {
			late := w.between(lateBy, lateMost)
			if other == m {
				late = w.between(50*time.Millisecond, time.Second)
			}
			w.stopFor(other, late)
		}
		w.damageFile(m, d, damage)
	}
	if idle == 0 {
		strike()
		return
	}
	w.still.Store(true)
	w.after(w.between(idle, 2*idle), "disks are idle", func() {
		if w.still.Swap(false) { // else all trouble has ended meanwhile
			strike()
		}
	})
}

// loseLeadersSector takes a sector of the leader's last round, so that it counts as torn. All
// brokers are back soon, the others first; their disks are slow, so that the leader would be the
// first to vouch.
func (w *world) loseLeadersSector() {
	d, those := w.copies()
	if d == nil {
		return
	}
	w.stopFor(those[0], w.between(120*time.Millisecond, 250*time.Millisecond))
	for _, m := range those[1:] {
		w.stopFor(m, w.between(10*time.Millisecond, 30*time.Millisecond))
		m.slow = w.between(5*time.Millisecond, 30*time.Millisecond)
		w.after(3*time.Second, m.id+" has a quick disk", func() { m.slow = 0 })
	}
	w.damageFile(those[0], d, (*machine).zeroLast)
}

func (w *world) damageFile(m *machine, d *declared, damage func(*machine, *declared)) {
	w.after(time.Millisecond, m.id+"'s last segment of "+d.name+" is damaged", func() {
		damage(m, d)
		w.alteredAll([]*machine{m})
	})
}

// diskSector is what a disk writes as a whole or not at all.
const diskSector = 512

// round is a run of an active segment: a marker and what was written with it.
type round struct{ at, until int64 }

// lastRounds returns the last segment of a Topic's first log, if it is not sealed, and its rounds.
func (m *machine) lastRounds(d *declared) (path string, rounds []round) {
	dir := filepath.Join(dataDir, "shards", d.id+"-0")
	files, _ := m.fs.List(dir)
	files = slices.DeleteFunc(files, func(file string) bool { return !strings.HasSuffix(file, ".log") })
	if len(files) == 0 {
		return "", nil
	}
	path = filepath.Join(dir, slices.Max(files)) // their names begin with their first offsets
	data := content(m.fs.Clone(), path)
	const batch, marker, footer = 1, 2, 4 // kinds of frames
	for at := 0; at+12 <= len(data); {
		n := int(binary.LittleEndian.Uint32(data[at:]))
		if n < 12 || at+n > len(data) {
			break
		}
		switch kind := data[at+8]; {
		case kind == footer:
			return path, nil
		case kind == marker:
			rounds = append(rounds, round{int64(at), int64(at + n)})
		case kind == batch && len(rounds) > 0:
			rounds[len(rounds)-1].until = int64(at + n)
		}
		at += n
	}
	return path, rounds
}

// flipLast flips a bit of the last batch of the last round.
func (m *machine) flipLast(d *declared) {
	path, rounds := m.lastRounds(d)
	if len(rounds) == 0 {
		m.w.notef("%s has no round in %s", m.id, path)
		return
	}
	at := rounds[len(rounds)-1].until - 1
	m.w.notef("%s has a bit flipped at %d of %s", m.id, at, path)
	_ = m.fs.Flip(path, 8*at)
}

// zeroOld makes zeros of a sector between the first round and the last one.
func (m *machine) zeroOld(d *declared) {
	path, rounds := m.lastRounds(d)
	if len(rounds) == 0 {
		m.w.notef("%s has no round in %s", m.id, path)
		return
	}
	from, until := (rounds[0].until+diskSector-1)/diskSector, rounds[len(rounds)-1].at/diskSector
	if from >= until {
		m.w.notef("%s has no whole sector between the rounds of %s", m.id, path)
		return
	}
	at := (from + m.w.rng.Int64N(until-from)) * diskSector
	m.zero(path, at, at+diskSector)
}

// zeroLast makes zeros of what the last round has in its last sector, if it has another one.
func (m *machine) zeroLast(d *declared) {
	path, rounds := m.lastRounds(d)
	if len(rounds) == 0 {
		m.w.notef("%s has no round in %s", m.id, path)
		return
	}
	last := rounds[len(rounds)-1]
	at := (last.until - 1) / diskSector * diskSector
	if at <= last.at {
		m.w.notef("%s has its last round in one sector of %s", m.id, path)
		return
	}
	m.zero(path, at, last.until)
}

// zero makes zeros of a range of a file.
func (m *machine) zero(path string, from, until int64) {
	f, err := m.fs.Open(path)
	if err != nil {
		m.w.fail("%s: %w", path, err)
		return
	}
	defer f.Close()
	m.w.notef("%s has zeros from %d to %d of %s", m.id, from, until, path)
	if _, err := f.WriteAt(make([]byte, until-from), from); err != nil {
		m.w.fail("%s: %w", path, err)
	} else if err := f.Sync(); err != nil {
		m.w.fail("%s: %w", path, err)
	}
}
