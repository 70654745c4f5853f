package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Topics are deleted under load, and made again under the same name. What is judged:
//
//  1. The new Topic starts empty. It has clients of its own, and no record that others published.
//  2. Soon after the last fault, no broker has a log of a deleted Topic among its shards.
//  3. This also holds for a broker that was away during the deletion: it finds the tombstone, and
//     deletes the logs instead of setting them aside as those of an unknown Topic. If etcd loses a
//     Topic, there is no tombstone: a broker that was away sets the logs aside and deletes none.
//  4. An etcd that is restored from an earlier backup contains the Topic again. A broker that still
//     has its log leads it, or it waits with the reason EtcdRestored. It is deleted by hand before
//     a Topic of its name is made.
//  5. After a restore of etcd, an empty Topic that lost all its logs looks like a Topic whose
//     replicas were moved since the backup. It waits with the reason EtcdRestored until it is
//     deleted by hand.
//
// A broker serves the former Topic until it learns of the deletion. So clients of the new Topic
// connect only to brokers that know it.

// serves returns the process's Topic with the id of d, or nil.
func (l *life) serves(d *declared) *topic.Topic {
	if t := l.service.Topic(d.name); t != nil && t.ID() == d.id {
		return t
	}
	return nil
}

// byID returns the Topic with an id, deleted or not.
func (w *world) byID(id string) *declared {
	for _, d := range slices.Concat(w.topics, w.deleted) {
		if d.id == id {
			return d
		}
	}
	return nil
}

// removeTopic deletes a Topic by hand. Its clients continue until the deletion is confirmed.
//
// No backup of etcd is made during a deletion, and no Topic is made again while a backup waits to
// be restored: the restored etcd would lack the new Topic.
func (w *world) removeTopic() {
	if w.deleting != nil || w.jumps {
		w.note("nothing is deleted")
		return
	}
	among := slices.DeleteFunc(slices.Clone(w.topics), func(d *declared) bool { return d.output })
	d := among[w.rng.IntN(len(among))]
	w.deleting = d
	if w.chance(25) && w.etcd.backup == nil {
		w.lose(d)
		return
	}
	w.notef("%s is to be deleted", d.id)
	w.askToDelete(d, w.removed)
}

// lose makes etcd lose a Topic, as an operator's mistake does. Present brokers take that for a
// deletion.
func (w *world) lose(d *declared) {
	w.notef("etcd loses %s", d.id)
	d.lost = true
	w.etcd.remove("topics/"+d.name, "shards/"+d.id+"/", "subscriptions/"+d.id+"/")
	for _, m := range w.machines {
		if m.life == nil || m.life.dead.Load() {
			for _, name := range m.logsOf(d, "shards") {
				d.away = append(d.away, leftLog{m, name})
			}
		}
	}
	w.removed(d)
}

// leftLog is a log of a Topic that etcd lost, on a machine whose broker was away.
type leftLog struct {
	m    *machine
	name string
}

// askToDelete repeats a deletion by hand until a broker confirms that the Topic is gone.
func (w *world) askToDelete(d *declared, then func(*declared)) {
	rng := rand.New(rand.NewPCG(w.seed, w.rng.Uint64()))
	w.running.Go(func() { w.askAround(d, rng, then) })
}

func (w *world) askAround(d *declared, rng *rand.Rand, then func(*declared)) {
	for !w.judge.ended {
		time.Sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
		l := w.machines[rng.IntN(len(w.machines))].life
		if l == nil || l.dead.Load() || !l.ready.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
		err := l.store.DeleteTopic(ctx, d.name, d.id, coordination.Owner{Kind: coordination.ClientOwner})
		cancel()
		if _, gone := errors.AsType[*coordination.NotFoundError](err); err == nil || gone {
			w.after(0, d.id+" is deleted", func() { then(d) })
			return
		}
	}
}

// removed stops the clients of a deleted Topic, and then makes a Topic of the same name.
func (w *world) removed(d *declared) {
	w.topics = slices.DeleteFunc(w.topics, func(o *declared) bool { return o == d })
	w.deleted = append(w.deleted, d)
	var clients []*client
	w.clients = slices.DeleteFunc(w.clients, func(c *client) bool {
		if c.topic == d {
			c.stopping.Store(true)
			clients = append(clients, c)
		}
		return c.topic == d
	})
	if v := d.viewed; v != nil {
		w.etcd.remove("views/"+v.windowed, "views/"+v.endless)
	}
	w.cameBack() // etcd may have been restored before this answer
	w.makeAgain(d, clients)
}

func (w *world) makeAgain(d *declared, former []*client) {
	w.after(w.between(50*time.Millisecond, 3*time.Second), d.name+" is made again", func() {
		if !over(former) || d.back || w.etcd.backup != nil {
			w.makeAgain(d, former)
			return
		}
		w.make(&declared{name: d.name, number: d.number, again: d.again + 1}, false)
		w.deleting = nil
	})
}

// cameBack deletes by hand a Topic that a restored etcd contains again: at once, or after the
// brokers have compared its copies.
func (w *world) cameBack() {
	d := w.deleting
	if d == nil || d.back || !slices.Contains(w.deleted, d) {
		return
	}
	var topic struct{ ID string }
	if w.etcd.read("topics/"+d.name, &topic); topic.ID != d.id {
		return
	}
	d.back, d.returned = true, true
	w.notef("%s is back", d.id)
	w.deleteAgain(d, w.chance(30))
}

func (w *world) deleteAgain(d *declared, atOnce bool) {
	w.after(w.between(50*time.Millisecond, 500*time.Millisecond), d.id+" is looked at", func() {
		if !atOnce && !w.compared(d) {
			w.deleteAgain(d, false)
			return
		}
		w.notef("%s is to be deleted again", d.id)
		w.askToDelete(d, func(d *declared) { d.back = false })
	})
}

// compared reports whether a returned Topic is led, or waits because no broker has its records.
func (w *world) compared(d *declared) bool {
	led := map[int]bool{} // its shards may have several leaders
	for _, m := range w.machines {
		l := m.life
		if l == nil || l.dead.Load() || !l.ready.Load() {
			continue
		}
		for n := range d.shards() {
			if t := l.serves(d); t != nil && t.ShardAt(n) != nil {
				led[n] = true
			}
		}
		if len(led) == d.shards() {
			return true
		}
		if c := l.controller.Load(); c != nil {
			if s := c.Stats(); s.Leads && s.Waits[placement.CopiesOpening] == 0 && s.Waits[placement.EtcdRestored] > 0 {
				return true
			}
		}
	}
	return false
}

// logsOf returns the names of a Topic's logs of records on a machine's disk, below dir. A folder
// without segments is a log whose creation a crash or a full disk interrupted.
func (m *machine) logsOf(d *declared, dir string) []string {
	names, err := m.fs.List(filepath.Join(dataDir, dir))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(name string) bool {
		files, _ := m.fs.List(filepath.Join(dataDir, dir, name))
		return !strings.HasPrefix(name, d.id) || !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, ".log") })
	})
}

// left names a log of a deleted Topic that is still among a broker's shards, or returns an empty
// string.
func (w *world) left() string {
	for _, d := range w.deleted {
		for _, m := range w.machines {
			if names := m.logsOf(d, "shards"); len(names) > 0 {
				return fmt.Sprintf("%s still has %s, of a deleted Topic", m.id, names[0])
			}
		}
	}
	return ""
}

// setAside judges that no log of a deleted Topic was set aside as one of an unknown Topic, and that
// logs of lost Topics were. If a restored etcd contained the Topic again, a broker may have found
// neither the Topic nor a tombstone in between.
func (w *world) setAside() {
	for _, d := range w.deleted {
		if d.returned {
			continue
		}
		for _, at := range d.away {
			aside := at.m.logsOf(d, "set-aside")
			if !at.m.touched && !slices.ContainsFunc(aside, func(name string) bool { return strings.HasPrefix(name, at.name+".") }) {
				w.fail("%s: %s was left when etcd lost its Topic, and isn't set aside", at.m.id, at.name)
			}
		}
		for _, m := range w.machines {
			for _, name := range m.logsOf(d, "set-aside") {
				if !d.lost && m.unknown(name) {
					w.fail("%s: %s was set aside, of a deleted Topic", m.id, name)
				}
			}
		}
	}
}

// unknown reports whether a log was set aside because its Topic was unknown.
func (m *machine) unknown(piece string) bool {
	f, err := m.fs.Open(filepath.Join(dataDir, "set-aside", piece, "set-aside.json"))
	if err != nil {
		return false // on a full disk, the reason is missing
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, 1<<10)
	n, _ := f.ReadAt(data, 0)
	return strings.Contains(string(data[:n]), "of a Topic that does not exist")
}
