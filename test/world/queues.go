package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/topic"
)

// acking notes that an ack of a delivery is sent. From then on a work queue may remove the record.
func (j *judge) acking(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.of(d.shard); h.topic.queue() {
		h.cursor.tried[d.record.offset] = d.record.value
	}
}

// toDelete returns the offset of a record that a client may delete, and notes that it may be gone
// from now on; 0: there is none. The leader shows the records from start up to, not including, end:
// a deposed one removes nothing of the others, and says that it is done.
func (j *judge) toDelete(id shardID, start, end uint64, rng *rand.Rand) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	var some []uint64
	for offset, value := range h.sure {
		if offset >= start && offset < end && h.cursor.tried[offset] != value {
			some = append(some, offset)
		}
	}
	if len(some) == 0 {
		return 0
	}
	slices.Sort(some)
	offset := some[rng.IntN(len(some))]
	h.cursor.tried[offset] = h.sure[offset]
	return offset
}

// deleted records that the deletion of a record was answered in an epoch.
func (j *judge) deleted(id shardID, call, offset, epoch uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.of(id); call > h.since {
		h.deleted[offset] = ackedAt{epoch, j.w.stamp()}
	}
}

// remove deletes a message that is known to be there.
func (c *client) remove() {
	w := c.w
	shard := c.rng.IntN(c.topic.shards())
	id := c.topic.shard(shard)
	l, s := c.leader(shard)
	if s == nil {
		return
	}
	call := w.stamp()
	w.io(w.delay(wireMin, wireMax), c.name+" deletes")
	start, end := s.Offsets()
	offset := w.judge.toDelete(id, start, end, c.rng)
	if offset == 0 {
		c.progressed()
		return
	}
	done := make(chan error, 1)
	if s.Remove(s.Spans([]uint64{offset}), func(err error) { done <- err }) != nil {
		return
	}
	late := time.NewTimer(2 * pullTime)
	defer late.Stop()
	select {
	case err := <-done:
		if err == nil && !l.dead.Load() {
			w.judge.deleted(id, call, offset, s.Epoch())
			c.progressed()
		}
	case <-l.gone:
	case <-late.C:
	}
}

// mayBeTaken reports whether an ack or a client may have removed a record. After an allowed loss an
// ack of a record that is gone may count for the one that has its offset.
func (h *history) mayBeTaken(offset uint64, value string) bool {
	tried, ok := h.cursor.tried[offset]
	return h.topic.removes() && ok && (tried == value || h.since > 0)
}

// taken judges which records a confirmed leader shows as removed: only those for which an ack to a
// work queue, or a deletion, was sent, and from then on always. removed is from before the records
// were read.
func (j *judge) taken(id shardID, call uint64, records []record, removed map[uint64]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	if !h.topic.removes() || call <= h.since {
		return
	}
	for _, r := range records {
		since, was := h.removed[r.offset]
		switch {
		case removed[r.offset] && !h.mayBeTaken(r.offset, r.value):
			j.w.fail("%s: %s at %d is removed, and nobody acknowledged it or deleted it", id, r.value, r.offset)
		case removed[r.offset] && !was:
			h.removed[r.offset] = j.w.stamp()
			j.takings++
		case !removed[r.offset] && was && since < call && since > h.since && !j.w.flipped && !j.w.cursorsLost: // a damaged log of cursors may lose removals
			j.w.fail("%s: %s at %d was removed, and is there again", id, r.value, r.offset)
		}
	}
}

// untaken names a record whose ack in a work queue, or deletion, was answered, and that the leader
// still shows, or returns an empty string.
func (j *judge) untaken(id shardID, start, end uint64, removed map[uint64]bool, s *topic.ShardLeader) string {
	records, err := readRecords(s.NewCursor(start), start, end)
	if err != nil {
		return "can't be read: " + err.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w.flipped || j.w.cursorsLost {
		return ""
	}
	h := j.of(id)
	for _, r := range records {
		_, acked := h.cursor.acked[r.offset]
		if h.topic.deletes() {
			_, acked = h.deleted[r.offset]
		}
		if acked && !removed[r.offset] && h.mayBeTaken(r.offset, r.value) {
			return fmt.Sprintf("keeps %s at %d, whose ack or deletion was answered", r.value, r.offset)
		}
	}
	return ""
}

// inBoth leaves out the records that one copy lacks because they were removed: replicas lose them
// from their files at different times.
func (h *history) inBoth(x, y []record) (_, _ []record) {
	in := func(all []record) map[uint64]bool {
		there := map[uint64]bool{}
		for _, r := range all {
			there[r.offset] = true
		}
		return there
	}
	inX, inY := in(x), in(y)
	keep := func(all []record, other map[uint64]bool) (left []record) {
		for _, r := range all {
			if other[r.offset] || !h.mayBeTaken(r.offset, r.value) {
				left = append(left, r)
			}
		}
		return left
	}
	return keep(x, inY), keep(y, inX)
}
