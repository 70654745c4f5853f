package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Faults in which etcd is restored from a backup of a world's only Topic that was made before its
// shard was placed. Each is directed at one rule of such a restore, so that few worlds are
// needed to see whether it holds. They strike where they are named, alone and once.

// forget makes a backup of the time just before the first controller was elected, which then placed
// the shard. So nobody holds the office when the backup is restored. What etcd had then is known,
// since nothing is compacted. It reports false if the shard is not whole, or not the only one.
func (w *world) forget(d *declared) bool {
	if _, why := w.inSync(d, 0); why != "" || w.forgot || len(w.topics) > 1 || d.shards() > 1 {
		return false
	}
	w.forgot = true
	w.etcd.saveAt(w.etcd.keys["/carillon/"+clusterName+"/controller"][0].revision - 1)
	return true
}

// holders returns the machines that have replicas of a Topic's first shard, and the other machines.
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

// forgetAway has etcd forget a shard while all brokers with a copy are away, for longer than
// anybody waits for them. The shard is placed anew on the others (docs/architecture.md says so),
// gets records, and then the former copies come back. They are no part of the new shard.
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

// forgetLate has etcd forget a shard while one of its brokers, which was cut off from the others,
// lacks what those have confirmed since. After the restore that one reaches etcd at once, and the
// others within the time of a lease. Nobody leads before they have said what they have. Some had
// registered after the backup was made, so that the restored etcd doesn't know of them.
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

// replaced is told of a shard's key. If the shard is a new one in place of one that etcd forgot,
// what that had is lost.
func (j *judge) replaced(key string, s *coordination.Shard) {
	if d := j.forgotten; d != nil && strings.Contains(key, d.id) && s != nil && s.Generation > 0 && s.New() && s.Leader != "" {
		j.forgotten = nil
		j.lost(d.shard(0), s, fmt.Sprintf("%s is placed anew", d.name))
	}
}
