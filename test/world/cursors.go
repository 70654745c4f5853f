package world

// cursorHistory is what is known from outside of a Subscription's place in one shard.
type cursorHistory struct {
	delivered map[uint64]string // by offset: the value that came last
	acked     map[uint64]ackedAt
}

// ackedAt is an ack that was answered: by a leader of that epoch, and received with that stamp.
type ackedAt struct {
	epoch, back uint64
}

func newCursorHistory() cursorHistory {
	return cursorHistory{delivered: map[uint64]string{}, acked: map[uint64]ackedAt{}}
}

// delivered judges a delivery. A record whose ack was answered doesn't come again. A leader of an
// earlier epoch that was deposed and doesn't know it may deliver it again, since it was never told
// of the ack.
func (j *judge) delivered(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(d.shard)
	j.deliveries++
	if d.count > 1 {
		j.repeated++
	}
	h.learn(j.w, d.sent, d.record.offset, d.record.value, "delivered")
	if subject := h.subjects[d.record.value]; subject != d.record.subject {
		j.w.fail("%s: %s was delivered on %s, and published on %s", d.shard, d.record.value, d.record.subject, subject)
	}
	h.cursor.delivered[d.record.offset] = d.record.value
	if d.sent <= h.since {
		return
	}
	if a, ok := h.cursor.acked[d.record.offset]; ok && a.back < d.sent && a.epoch <= d.epoch && !j.w.flipped && !j.w.cursorsLost { // what is damaged of the cursors, and can't be had just then, is forgotten
		j.w.fail("%s: %s at %d was acknowledged in epoch %d, which was answered, and is delivered again in epoch %d (delivery %d)",
			d.shard, d.record.value, d.record.offset, a.epoch, d.epoch, d.count)
	}
}

// acked is told that an ack was answered that was sent with the stamp call.
func (j *judge) acked(d delivery, call, epoch uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h := j.of(d.shard); call > h.since {
		if _, ok := h.cursor.acked[d.record.offset]; !ok {
			h.cursor.acked[d.record.offset] = ackedAt{epoch, j.w.stamp()}
		}
	}
}

// undelivered are the offsets, between two, of the records that clients know of and that were never
// delivered.
func (j *judge) undelivered(id shardID, start, end uint64) (left []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	newest := map[string]uint64{}
	for offset, value := range h.sure {
		newest[h.subjects[value]] = max(newest[h.subjects[value]], offset)
	}
	for offset, value := range h.sure {
		gone := h.topic.compacted() && newest[h.subjects[value]] > offset
		if offset >= start && offset < end && !gone && h.cursor.delivered[offset] != value {
			left = append(left, offset)
		}
	}
	return left
}

// complete judges that all records of a log were delivered. What limits remove need not have been,
// nor what survived a loss that was allowed and that no client knows of: the world ends without
// waiting for it (undelivered).
func (c *cursorHistory) complete(w *world, h *history, log copied) {
	if h.topic.subscription == "" || h.topic.retained() {
		return
	}
	newest := map[string]uint64{}
	for _, r := range log.records {
		newest[r.subject] = r.offset
	}
	for _, r := range log.records {
		if h.topic.compacted() && newest[r.subject] > r.offset {
			continue // the next compaction may be faster
		}
		if _, known := h.sure[r.offset]; !known && h.since > 0 {
			continue
		}
		if c.delivered[r.offset] != r.value {
			w.fail("%s: %s at %d was never delivered to the Subscription", h.id, r.value, r.offset)
			return
		}
	}
}
