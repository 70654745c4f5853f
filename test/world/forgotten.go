package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Faults in which etcd is restored from a backup that lacks the shards of a Topic, as one does that
// was made between the Topic and its shards. Each is directed at one rule of such a restore, so that
// few worlds are needed to see whether it holds. They strike where they are named, alone and once.

// forget makes a backup without the shards of a Topic.
func (w *world) forget(d *declared) {
	w.etcd.save()
	for key := range w.etcd.backup.keys {
		if strings.HasPrefix(key, "/carillon/"+clusterName+"/shards/"+d.id+"/") {
			delete(w.etcd.backup.keys, key)
		}
	}
}

// holders returns the machines that have replicas of a Topic's first shard, if all of them are in
// sync, and the other machines.
func (w *world) holders(d *declared) (those, others []*machine) {
	if _, why := w.inSync(d, 0); why != "" {
		return nil, nil
	}
	shard := w.shard(d, 0)
	for _, m := range w.machines {
		if slices.Contains(shard.Replicas, m.id) {
			those = append(those, m)
		} else {
			others = append(others, m)
		}
	}
	return those, others
}

// forgetAway has etcd forget a shard while all brokers with a copy are away, for longer than
// anybody waits for them. The shard is placed anew on the others (docs/architecture.md says so),
// gets records, and then the former copies come back. They are no part of the new shard.
func (w *world) forgetAway() {
	d := w.topics[0]
	those, others := w.holders(d)
	if w.forgot || d.shards() > 1 || len(others) < d.spec.MinInSync {
		w.note("nothing is forgotten")
		return
	}
	w.forgot = true
	w.forget(d)
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

// replaced is told of a shard's key. If the shard is a new one in place of one that etcd forgot,
// what that had is lost.
func (j *judge) replaced(key string, s *coordination.Shard) {
	if d := j.forgotten; d != nil && strings.Contains(key, d.id) && s != nil && s.Generation > 0 && s.New() && s.Leader != "" {
		j.forgotten = nil
		j.lost(d.shard(0), s, fmt.Sprintf("%s is placed anew", d.name))
	}
}
