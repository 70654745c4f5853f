package world

import (
	"bytes"
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// Faults that lose or damage several copies of a world's first shard at once. Each is directed at
// one rule about damaged records of a leader. Each strikes only where it is named, one at a time,
// while all replicas are in sync.

// loseAllButDamaged kills all replicas' brokers. Two copies are lost, and the third is damaged. It
// is elected, and must give up the damaged records, since no replica has them.
func (w *world) loseAllButDamaged() {
	d, those := w.copies()
	if d == nil {
		return
	}
	for _, m := range those {
		w.stopFor(m, w.between(50*time.Millisecond, time.Second))
	}
	w.after(time.Millisecond, d.name+" is damaged, and lost elsewhere", func() {
		those[0].decay(d)
		those[1].loseAll(d)
		those[2].loseAll(d)
		w.alteredAll(those)
	})
}

// damageBesideAway damages the leader's copy while it leads. One of the other copies is lost, and
// one is whole while its broker is away. The leader must not give up the damaged records meanwhile.
func (w *world) damageBesideAway() {
	d, those := w.copies()
	if d == nil {
		return
	}
	leader, lost, away := those[0], those[1], those[2]
	w.stopFor(lost, w.between(500*time.Millisecond, 2*time.Second))
	w.stopFor(away, w.between(8*time.Second, 12*time.Second))
	w.after(time.Millisecond, d.name+" is damaged, and whole on a machine that is away", func() {
		leader.decay(d)
		lost.loseAll(d)
		w.alteredAll(those[:2])
	})
}

// damageApart withholds a leader's answers from brokers without a replica for a moment, and then
// kills all replicas' brokers. The leader's copy loses one of its last batches, and the others lose
// an early segment. If the leader is elected, it does not know the numbers and ids of messages that
// it can't read and that the other copies have. It must not keep such a message again.
//
// It strikes only where it is named. Rarely such a shard stays stuck: if all replicas lack the same
// records, and one of them needs these for its repair (docs/progress.md).
func (w *world) damageApart() {
	d, those := w.copies()
	if d == nil {
		return
	}
	w.flipped = true
	_, others := w.holders(d)
	apart := w.between(200*time.Millisecond, time.Second)
	for _, m := range others {
		w.cut(those[0].id, m.id, apart)
	}
	w.after(apart, d.name+" is damaged in different places", func() {
		for _, m := range those {
			w.stopFor(m, w.between(50*time.Millisecond, time.Second))
		}
		w.after(time.Millisecond, d.name+" is damaged", func() {
			those[0].damageTail(d)
			those[1].decay(d)
			those[2].decay(d)
			for _, m := range those {
				m.damaged = true
			}
			w.alteredAll(those)
		})
	})
}

// loseManifest damages the leader's copy while it leads. One of the other copies is lost, and the
// third one loses its manifest, so that it must be fetched anew, though it can be read as a whole.
// The leader must take its damaged records from that copy, before the copy is set aside. The fault
// strikes once, so that what is judged afterwards is not damaged again.
func (w *world) loseManifest() {
	d, those := w.copies()
	if d == nil || d != w.kept() || w.anew {
		return
	}
	w.anew = true
	leader, lost, anew := those[0], those[1], those[2]
	kept := w.judge.acknowledged(d.shard(0))
	for _, m := range those[1:] {
		w.stopFor(m, w.between(500*time.Millisecond, 2*time.Second))
	}
	w.after(time.Millisecond, d.name+" is damaged, and its only whole copy loses its manifest", func() {
		leader.decay(d)
		lost.loseAll(d)
		path := filepath.Join(dataDir, "shards", d.id+"-0", "manifest")
		if info, err := anew.fs.Stat(path); err == nil {
			for _, slot := range []int64{0, info.Size / 2} {
				_ = anew.fs.Flip(path, 8*(slot+100))
			}
		}
		for _, m := range those {
			m.damaged = true
		}
		w.alteredAll(those)
	})
	w.judgeKept(d, kept)
}

// judgeKept waits until all replicas are in sync. Each of the kept values must then be in the copy
// that leads.
func (w *world) judgeKept(d *declared, kept []string) {
	w.after(10*time.Second, "what is kept of "+d.name+" is looked at", func() {
		if w.judge.ended {
			return
		}
		leader, why := w.inSync(d, 0)
		if why != "" {
			w.judgeKept(d, kept)
			return
		}
		all := leader.m.bytesIn(d, "shards")
		for _, value := range kept {
			if !bytes.Contains(all, []byte(value)) {
				w.fail("%s: %s was committed, one copy had it, and the copy on %s lacks it", d.shard(0), value, leader.m.id)
				return
			}
		}
	})
}

// leadRolledBack kills all replicas' brokers. One volume is rolled back by a moment, and its broker
// returns long before the others. So it leads, and the shard loses the records that its copy lacks.
// The former leader knows that those records are committed: it must set them aside when it drops
// them. The fault strikes once, and only in a world with one Topic, since it would roll back other
// Topics on that volume too.
func (w *world) leadRolledBack() {
	d, those := w.copies()
	if d == nil || w.rolled || len(w.topics) > 1 {
		return
	}
	leader, back := those[0], those[1]
	back.snapshot = back.copyVolume()
	w.after(time.Second, "what is kept of "+d.name+" is noted", func() {
		// Within half a second the journal of sync points has the present watermark, even of an
		// idle log.
		kept := w.judge.acknowledged(d.shard(0))
		w.after(500*time.Millisecond, back.id+" is rolled back", func() {
			if is, why := w.inSync(d, 0); why != "" || is.m != leader || w.rolled {
				w.note("nothing is rolled back")
				return
			}
			w.rolled = true
			w.stopFor(leader, w.between(7*time.Second, 9*time.Second))
			w.stopFor(those[2], w.between(7*time.Second, 9*time.Second))
			w.stopFor(back, w.between(50*time.Millisecond, time.Second))
			w.after(time.Millisecond, back.id+" is as it was", func() {
				back.putBack(back.snapshot)
				back.snapshot = nil
				w.alteredAll(those[1:2])
				w.judge.lost(d.shard(0), w.shard(d, 0), "a copy that was rolled back leads")
			})
			w.judgeAside(d, leader, kept)
		})
	})
}

// judgeAside waits until all replicas are in sync. Each of the kept values must then be in the
// machine's copy, or set aside there.
func (w *world) judgeAside(d *declared, m *machine, kept []string) {
	w.after(10*time.Second, "what "+m.id+" set aside is looked at", func() {
		if w.judge.ended {
			return
		}
		if _, why := w.inSync(d, 0); why != "" {
			w.judgeAside(d, m, kept)
			return
		}
		all := m.bytesOf(d)
		for _, value := range kept {
			if !bytes.Contains(all, []byte(value)) {
				w.fail("%s: %s was committed, and is neither in the copy on %s nor set aside there", d.shard(0), value, m.id)
				return
			}
		}
	})
}

// acknowledged returns the values that clients know a shard to have.
func (j *judge) acknowledged(id shardID) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Values(j.of(id).sure))
}

// bytesOf returns the content of all segments of a Topic's first shard on a machine, from its log
// and its set-aside pieces.
func (m *machine) bytesOf(d *declared) []byte { return m.bytesIn(d, "shards", "set-aside") }

func (m *machine) bytesIn(d *declared, dirs ...string) (all []byte) {
	fs := m.fs.Clone() // reading this one takes no time of the world
	for _, dir := range dirs {
		names, _ := fs.List(filepath.Join(dataDir, dir))
		for _, name := range names {
			if name != d.id+"-0" && !strings.HasPrefix(name, d.id+"-0.") {
				continue
			}
			files, _ := fs.List(filepath.Join(dataDir, dir, name))
			for _, file := range files {
				all = append(all, content(fs, filepath.Join(dataDir, dir, name, file))...)
			}
		}
	}
	return all
}

// content returns the bytes of a file, or nil.
func content(fs *crashfs.FS, path string) []byte {
	f, err := fs.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, _ := f.Size()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil
	}
	return data
}

// copies returns the Topic of a world's first shard and the machines with its copies, the leader's
// first. It returns nil unless all replicas are in sync in their lives.
func (w *world) copies() (d *declared, those []*machine) {
	d = w.topics[0]
	leader, why := w.inSync(d, 0)
	if those, _ = w.holders(d); why != "" || len(those) != 3 {
		w.note("nothing is damaged")
		return nil, nil
	}
	at := slices.Index(those, leader.m)
	those[0], those[at] = those[at], those[0]
	return d, those
}

// stopFor kills a machine's process, and starts it again after a while.
func (w *world) stopFor(m *machine, d time.Duration) {
	if m.life != nil {
		m.life.kill()
	}
	w.again(m, d)
}

// alteredAll tells the judge that the files of machines were altered.
func (w *world) alteredAll(those []*machine) {
	w.altered, w.cursorsLost = those[0], true
	for _, m := range those {
		m.touched = true
		w.judge.altered(m)
	}
}

// loseAll removes both logs of a Topic's first shard.
func (m *machine) loseAll(d *declared) {
	m.remove(filepath.Join(dataDir, "shards", d.id+"-0"))
	m.remove(filepath.Join(dataDir, "shards", d.id+"-0.state"))
}

// damageTail flips a bit in one of the last batches of a Topic's first shard, but not in the last.
func (m *machine) damageTail(d *declared) {
	dir := filepath.Join(dataDir, "shards", d.id+"-0")
	files, _ := m.fs.List(dir)
	files = slices.DeleteFunc(files, func(file string) bool { return !strings.HasSuffix(file, ".log") })
	if len(files) == 0 {
		return
	}
	path := filepath.Join(dir, slices.Max(files))
	data := content(m.fs.Clone(), path)
	var batches []int // positions
	const batch = 1   // kind of a frame
	for at := 0; at+12 < len(data); {
		n := int(binary.LittleEndian.Uint32(data[at:]))
		if n < 12 || at+n > len(data) {
			break
		}
		if data[at+8] == batch {
			batches = append(batches, at)
		}
		at += n
	}
	if len(batches) < 8 {
		return
	}
	at := batches[len(batches)-2-m.w.rng.IntN(6)]
	n := int(binary.LittleEndian.Uint32(data[at:]))
	m.w.notef("%s has a bit flipped in a batch at %d of %s", m.id, at, path)
	_ = m.fs.Flip(path, 8*int64(at+n-1))
}
