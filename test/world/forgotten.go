package world

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Faults that restore etcd from a backup of a world's only Topic that was made before its shard was
// placed. Each is directed at one rule of such a restore, so that few worlds show whether the rule
// holds. Each strikes once and alone, and only where it is named.

// forget makes a backup of the time just before the first controller was elected, which then placed
// the shard. So the restored etcd has no controller. The keys of that time are still known, since
// the model compacts nothing. It returns false if the shard is not whole, or not the only one.
func (w *world) forget(d *declared) bool {
	if _, why := w.inSync(d, 0); why != "" || w.forgot || len(w.topics) > 1 || d.shards() > 1 {
		return false
	}
	w.forgot = true
	w.etcd.saveAt(w.etcd.keys[keyOf("controller")][0].revision - 1)
	return true
}

// holders returns the machines with a replica of a Topic's first shard, and the other machines.
func (w *world) holders(d *declared) (those, others []*machine) {
	shard := w.shard(d, 0)
	if shard == nil {
		return nil, nil
	}
	for _, m := range w.machines {
		if slices.Contains(shard.Replicas, m.id) {
			those = append(those, m)
		} else {
			others = append(others, m)
		}
	}
	return those, others
}

// forgetAway makes etcd forget a shard while all brokers with a copy are away, for longer than the
// controller waits for them. The shard is placed anew on the others, as docs/architecture.md says,
// and gets records. Then the former copies return. They are no part of the new shard.
func (w *world) forgetAway() {
	d := w.topics[0]
	those, others := w.holders(d)
	if len(others) < d.spec.MinInSync || !w.forget(d) {
		w.note("nothing is forgotten")
		return
	}
	w.judge.forgotten = d
	for _, m := range those {
		m.on = false
		if m.life != nil {
			m.life.kill()
		}
		w.again(m, w.between(10*time.Second, 14*time.Second))
	}
	w.after(w.between(0, time.Second), "etcd is restored without "+d.name, w.etcd.restore)
}

// forgetLate makes etcd forget a shard while one of its brokers, cut off from the others, lacks
// their latest confirmed records. After the restore that broker reaches etcd at once, and the
// others within the time of a lease. No broker may lead before all have reported their copies. Some
// had registered after the backup, so the restored etcd does not know them.
func (w *world) forgetLate() {
	d := w.topics[0]
	those, _ := w.holders(d)
	if len(those) < 3 || !w.forget(d) {
		w.note("nothing is forgotten")
		return
	}
	late, behind := those[1:], those[0]
	apart := w.between(5*time.Second, 9*time.Second)
	for _, m := range w.machines {
		w.cut(behind.id, m.id, apart)
		w.cut(m.id, behind.id, apart)
	}
	w.after(apart, "etcd is restored without "+d.name, func() {
		w.etcd.restore()
		for _, m := range late {
			until := w.between(0, leaseTime*2/3)
			w.cut(m.id, etcdName, until)
			w.cut(etcdName, m.id, until)
		}
	})
}

// loseEmpty makes a Topic without clients. When it is whole, etcd is backed up, all brokers are
// killed, and its logs are lost on all machines. Then etcd is restored.
func (w *world) loseEmpty() {
	if w.forgot || w.deleting != nil || w.jumps {
		w.note("no Topic loses its logs")
		return
	}
	w.forgot = true
	n := len(w.topics)
	d := &declared{name: fmt.Sprintf("t%d", n), number: n}
	w.makeUnused(d, 1)
	w.loseWhole(d)
}

func (w *world) loseWhole(d *declared) {
	w.after(time.Second, d.name+" is looked at", func() {
		if _, why := w.inSync(d, 0); why != "" {
			w.loseWhole(d)
			return
		}
		w.etcd.save()
		w.etcd.write(keyOf("later"), "than the backup")
		w.after(time.Second, d.name+" loses its logs", func() { // by then brokers have seen a later revision
			for _, m := range w.machines {
				if m.life != nil {
					m.life.kill()
				}
				w.again(m, w.between(50*time.Millisecond, 3*time.Second))
			}
			for _, m := range w.machines {
				m.touched = true
				dir := filepath.Join(dataDir, "shards")
				names, _ := m.fs.List(dir)
				for _, name := range names {
					if strings.HasPrefix(name, d.id) {
						m.remove(filepath.Join(dir, name))
					}
				}
			}
			w.etcd.restore()
		})
	})
}

// emptyAfter is the time after the last fault at which an empty Topic that waits for its logs is
// deleted by hand. By then all brokers have registered and reported.
const emptyAfter = 20 * time.Second

// giveUpEmpty deletes by hand a Topic that waits for its logs, if none of its messages was ever
// acknowledged.
func (w *world) giveUpEmpty(healed time.Duration) {
	if w.deleting != nil || w.now() < healed+emptyAfter {
		return
	}
	for _, d := range w.topics {
		if w.waitsEmpty(d) {
			w.emptied++
			w.deleting = d
			w.notef("%s is empty, and is given up", d.id)
			w.askToDelete(d, w.removed)
			return
		}
	}
}

// empty reports whether a Topic waits for its logs.
func (w *world) empty() bool { return slices.ContainsFunc(w.topics, w.waitsEmpty) }

// waitsEmpty reports whether a Topic waits since etcd was restored, and no client knows of a record
// of it.
func (w *world) waitsEmpty(d *declared) bool {
	waits := false
	for n := range d.shards() {
		if w.judge.knows(d.shard(n)) {
			return false
		}
		s := w.shard(d, n)
		waits = waits || s != nil && s.Generation < w.generation()
	}
	return waits && w.compared(d)
}

// knows reports whether any client knows of a record of a shard.
func (j *judge) knows(id shardID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	return h.ever || len(h.sure) > 0
}

// generation returns etcd's generation.
func (w *world) generation() int64 {
	var value struct{ Generation int64 }
	w.etcd.read("generation", &value)
	return value.Generation
}

// replaced handles a change of a shard's key. If it is a new shard in place of one that etcd
// forgot, the records of the former shard are lost.
func (j *judge) replaced(key string, s *coordination.Shard) {
	if d := j.forgotten; d != nil && strings.Contains(key, d.id) && s != nil && s.Generation > 0 && s.New() && s.Leader != "" {
		j.forgotten = nil
		j.lost(d.shard(0), s, fmt.Sprintf("%s is placed anew", d.name))
	}
}
