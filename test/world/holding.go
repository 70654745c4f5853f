package world

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// What an acknowledged message of a Topic survives:
//
//	Synced      whatever strikes but the loss of files
//	Replicated  whatever doesn't take the power of all machines of brokers in the in-sync set
//	Memory      whatever doesn't end all processes that stand there
//
// An entry of the in-sync set is a broker in one life. It holds all acknowledged records until it
// becomes void: when that life ends (Memory), when its machine loses power (Replicated), or when
// files of its machine are altered. A later life has an entry of its own. When all entries of a set
// are void, the shard may lose everything. Records that are acknowledged afterwards are kept as
// before.

// committed handles each change in etcd.
func (j *judge) committed(c *commit) {
	for _, event := range c.events {
		key, kv := string(event.GetKv().GetKey()), event.GetKv()
		if id, ok := strings.CutPrefix(key, keyOf("brokers/")); ok && c.by != nil && event.GetType() == mvccpb.Event_PUT && kv.GetVersion() == 1 {
			j.lives[coordination.Replica{Broker: id, Incarnation: incarnationOf(kv)}] = c.by
		}
		if strings.HasPrefix(key, keyOf("shards/")) {
			j.exposed()
			j.replaced(key, decodeShard(kv))
		}
	}
}

// incarnationOf returns the incarnation of a registration: its generation and its create revision.
func incarnationOf(kv *mvccpb.KeyValue) int64 {
	var value struct {
		Generation int64 `json:"generation"`
	}
	_ = json.Unmarshal(kv.GetValue(), &value) // a broker wrote it
	return value.Generation<<44 | kv.GetCreateRevision()
}

// exposed finds the shards whose in-sync set has no entry left that holds the acknowledged records.
// It is called on the world's goroutine whenever a life ends, a machine loses power, or a set
// changes.
func (j *judge) exposed() {
	if j.ended {
		return
	}
	for _, d := range j.w.topics {
		for n := range d.shards() {
			if s := j.w.shard(d, n); s != nil && len(s.InSync) > 0 && !slices.ContainsFunc(s.InSync, func(m coordination.Replica) bool { return !j.void(d, m) }) {
				j.lost(d.shard(n), s, "of its in-sync set nobody is left")
			}
		}
	}
}

// void reports whether an entry of an in-sync set may hold nothing any more.
func (j *judge) void(d *declared, m coordination.Replica) bool {
	l := j.lives[m]
	switch {
	case l == nil && d.spec.Durability == coordination.Synced:
		return m.Incarnation == 0 && j.w.altered != nil && m.Broker == j.w.altered.id // other machines' files are unaltered
	case l == nil:
		return m.Incarnation == 0 // it withdrew
	case l.altered:
		return true
	case d.spec.Durability == coordination.Synced:
		return false
	case d.spec.Durability == coordination.Memory:
		return l.dead.Load()
	}
	return l.boot != l.m.boots
}

// altered is called when a machine's files were altered: records that its broker had confirmed may
// be gone. The set may shrink to such an entry later, as long as the death of that broker is not
// noticed.
func (j *judge) altered(m *machine) {
	for _, l := range j.lives {
		l.altered = l.altered || l.m == m
	}
	j.exposed()
}

// lost drops what clients were told of a shard, since it may be lost.
func (j *judge) lost(id shardID, s *coordination.Shard, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	if len(h.sure) == 0 && len(h.looks) == 0 {
		return
	}
	h.since = j.w.stamp()
	j.w.notef("%s may lose what it has: %s; in sync: %v", id, why, s.InSync)
	clear(h.sure)
	h.looks, h.lasts = nil, nil
	for _, c := range h.cursors {
		clear(c.acked)
	}
	clear(h.deleted)
	j.losses++
}

// shard returns a Topic's shard as etcd has it, or nil.
func (w *world) shard(d *declared, n int) *coordination.Shard {
	return decodeShard(w.etcd.get(keyOf(fmt.Sprintf("shards/%s/%d", d.id, n)), w.etcd.revision))
}

// decodeShard returns the shard of a key, or nil.
func decodeShard(kv *mvccpb.KeyValue) *coordination.Shard {
	if kv == nil {
		return nil
	}
	var s coordination.Shard
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(kv.GetValue()), `"inSync"`, `"InSync"`)), &s); err != nil {
		return nil
	}
	return &s
}
