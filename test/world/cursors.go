package world

import (
	"maps"
	"slices"
	"strings"
)

// cursorHistory is what clients know of a Subscription's position in one shard.
type cursorHistory struct {
	delivered map[uint64]string // by offset: the value that was delivered last
	acked     map[uint64]ackedAt
	tried     map[uint64]string // by offset: the value of the record for which an ack was sent last
}

// ackedAt is an answered ack: the epoch of the leader that answered, and the stamp at which the
// answer arrived.
type ackedAt struct {
	epoch, back uint64
}

// cursor returns what clients know of the position of a Subscription.
func (h *history) cursor(subscription string) *cursorHistory {
	c := h.cursors[subscription]
	if c == nil {
		c = &cursorHistory{delivered: map[uint64]string{}, acked: map[uint64]ackedAt{}, tried: map[uint64]string{}}
		h.cursors[subscription] = c
	}
	return c
}

// delivered judges a delivery. A record whose ack was answered must not be delivered again, except
// by a deposed leader of an earlier epoch, which never learns of the ack.
func (j *judge) delivered(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(d.shard)
	j.deliveries++
	if d.count > 1 {
		j.repeated++
	}
	h.meet(d.record)
	h.fired(d.record)
	h.learn(j.w, d.sent, d.record.offset, d.record.value, "delivered")
	if subject := h.subjects[d.record.value]; subject != d.record.subject {
		j.w.fail("%s: %s was delivered on %s, and published on %s", d.shard, d.record.value, d.record.subject, subject)
	}
	h.cursor(d.subscription).delivered[d.record.offset] = d.record.value
	if d.sent <= h.since {
		return
	}
	if a, ok := h.deleted[d.record.offset]; ok && a.back < d.sent && a.epoch <= d.epoch && !j.w.flipped && !j.w.cursorsLost {
		j.w.fail("%s: the deletion of %s at %d was answered in epoch %d, and it is delivered in epoch %d", d.shard, d.record.value, d.record.offset, a.epoch, d.epoch)
	}
	if a, ok := h.cursor(d.subscription).acked[d.record.offset]; ok && a.back < d.sent && a.epoch <= d.epoch && !j.w.flipped && !j.w.cursorsLost { // damaged cursors that no present replica has are forgotten
		j.w.fail("%s: %s at %d was acknowledged in epoch %d, which was answered, and is delivered again in epoch %d (delivery %d)",
			d.shard, d.record.value, d.record.offset, a.epoch, d.epoch, d.count)
	}
}

// acked records the answer to an ack that was sent with the stamp call.
func (j *judge) acked(d delivery, call, epoch uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.of(d.shard); call > h.since {
		if _, ok := h.cursor(d.subscription).acked[d.record.offset]; !ok {
			h.cursor(d.subscription).acked[d.record.offset] = ackedAt{epoch, j.w.stamp()}
		}
	}
}

// undelivered returns the offsets from start up to, not including, end of records that clients know
// of and that were never delivered, or not to all Subscriptions.
func (j *judge) undelivered(id shardID, start, end uint64) (left []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	newer := offsetsOf{}
	for _, offset := range slices.Sorted(maps.Keys(h.sure)) {
		subject := h.subjects[h.sure[offset]]
		newer[subject] = append(newer[subject], offset)
	}
	for offset, value := range h.sure {
		delivered := !slices.ContainsFunc(h.topic.subscriptions, func(name string) bool { return h.cursor(name).delivered[offset] != value })
		gone := h.topic.kept() > 0 && newer.than(offset, h.subjects[value]) >= h.topic.kept()
		if offset >= start && offset < end && !gone && !h.mayBeTaken(offset, value) && !delivered {
			left = append(left, offset)
		}
	}
	return left
}

// complete judges that all records of a log were delivered. Excepted are records of Topics with
// limits, and records that survived an allowed loss and that no client knows of: the world ends
// without waiting for those (undelivered).
func (c *cursorHistory) complete(w *world, h *history, log copied) {
	if h.topic.retained() {
		return
	}
	newer := newerIn(log.records)
	for _, r := range log.records {
		if h.topic.kept() > 0 && newer.than(r.offset, r.subject) >= h.topic.kept() {
			continue // it may be removed before it is delivered
		}
		if _, known := h.sure[r.offset]; !known && h.since > 0 {
			continue
		}
		if _, marker := markerOf(r.value); (marker || strings.HasPrefix(r.value, firedTitle)) && w.untimed() {
			continue // the world did not wait for what brokers publish
		}
		if c.delivered[r.offset] != r.value && !h.mayBeTaken(r.offset, r.value) {
			w.fail("%s: %s at %d was never delivered to the Subscription", h.id, r.value, r.offset)
			return
		}
	}
}
