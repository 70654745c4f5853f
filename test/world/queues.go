package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/topic"
)

// acking notes that an ack of a delivery is sent. From then on a work queue may remove the record,
// and other Topics whose acks remove when all Subscriptions have sent one.
func (j *judge) acking(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.of(d.shard).cursor(d.subscription).tried[d.record.offset] = d.record.value
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
		if offset >= start && offset < end && h.asked[offset] != value {
			some = append(some, offset)
		}
	}
	if len(some) == 0 {
		return 0
	}
	slices.Sort(some)
	offset := some[rng.IntN(len(some))]
	h.asked[offset] = h.sure[offset]
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

// mayBeTaken reports whether acks, a client or a rollup may have removed a record. After an allowed
// loss an ack of a record that is gone may count for the one that has its offset.
func (h *history) mayBeTaken(offset uint64, value string) bool {
	was, all := h.triedAt(offset)
	return all && (was == value || h.since > 0) || h.mayBeRolledUp(offset, value) || h.mayHaveExpired(value) || h.mayHaveFired(value)
}

// mayBeGone reports whether the record at an offset may have been removed, whatever it was.
func (h *history) mayBeGone(offset uint64) bool {
	_, all := h.triedAt(offset)
	return all || h.mayBeRolledUp(offset, "") || h.mayBeExpired(offset) || h.mayBeFired(offset)
}

// triedAt returns the value of a record whose deletion, or all acks that remove it, were sent.
func (h *history) triedAt(offset uint64) (value string, all bool) {
	if value, all = h.asked[offset]; all || !h.topic.acksRemove() {
		return value, all
	}
	for _, name := range h.topic.subscriptions {
		if value, all = h.cursor(name).tried[offset]; !all {
			break
		}
	}
	return value, all
}

// answeredAt reports whether the deletion of a record, or all acks that remove it, were answered.
func (h *history) answeredAt(offset uint64) bool {
	if _, deleted := h.deleted[offset]; deleted || !h.topic.acksRemove() {
		return deleted
	}
	return !slices.ContainsFunc(h.topic.subscriptions, func(name string) bool {
		_, acked := h.cursor(name).acked[offset]
		return !acked
	})
}

// taken judges which records a confirmed leader shows as removed: only those for which the acks
// that remove them, a deletion or a rollup was sent, and from then on always. What an acknowledged
// rollup has removed is removed at once. removed is from before the records were read.
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
			j.w.fail("%s: %s at %d is removed, and nobody acknowledged, deleted or rolled it up, nor has it expired or was it due", id, r.value, r.offset)
		case removed[r.offset] && !was:
			h.removed[r.offset] = j.w.stamp()
			if j.takings++; h.ttls[r.value] != nil {
				j.expired++
			}
		case !removed[r.offset] && was && since < call && since > h.since && !j.w.flipped && !j.w.cursorsLost: // a damaged log of cursors may lose removals
			j.w.fail("%s: %s at %d was removed, and is there again", id, r.value, r.offset)
		case !removed[r.offset] && h.rolledUp(r.offset, r.subject, call) && !j.w.flipped && !j.w.cursorsLost:
			j.w.fail("%s: %s at %d is there, and a rollup of it was acknowledged", id, r.value, r.offset)
		}
	}
}

// untaken names a record whose removal by acks, a deletion or a rollup was answered, and that the
// leader still shows, or returns an empty string.
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
		if !removed[r.offset] && (h.answeredAt(r.offset) || h.rolledUp(r.offset, r.subject, math.MaxUint64)) && h.mayBeTaken(r.offset, r.value) {
			return fmt.Sprintf("keeps %s at %d, whose ack or deletion was answered", r.value, r.offset)
		}
		if left := h.unexpired(r) + h.unfired(r); left != "" && !removed[r.offset] {
			return left
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
