package world

import (
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
)

// clockSlack is the margin for the age of a record: the times of two brokers differ by less.
const clockSlack = 2 * time.Second

// compressed is when brokers begin to compress segments. From then on, as with compaction, a log
// has fewer bytes than when retention shortened it. Besides, replicas write the same records in
// different rounds, and each round adds some bytes. So bytes are judged roughly.
const compressed = time.Minute

// begins judges the readable start of a shard, by its leader's segments: nothing is removed before
// a limit is exceeded.
func (j *judge) begins(id shardID, start uint64, segments []log.SegmentInfo) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := copied{machine: "its leader", start: start}
	for _, s := range segments {
		c.bytes += s.Bytes
		c.end = s.End // records that are not acknowledged yet count
	}
	h := j.of(id)
	h.limits(j.w, c)
	if start > 1 {
		j.w.trimmed++
	}
}

// limits judges that the records before the start of a copy exceeded a limit when they were
// removed.
func (h *history) limits(w *world, c copied) {
	r := h.topic.spec.Retention
	if c.start == 1 || h.topic.spec.Stream.MaxPerSubject > 0 || h.topic.removes() || h.topic.origin != nil { // removed records may be the first ones
		return
	}
	if h.since > 0 && r.Messages+r.Bytes > 0 {
		return // the log was longer when it was shortened, and its end was lost
	}
	switch {
	case !h.topic.retained():
		w.fail("%s: the log on %s begins at %d, and nothing is so old that it may go", h.id, c.machine, c.start)
	case r.Messages > 0 && c.start+uint64(r.Messages) > c.end:
		w.fail("%s: the log on %s goes from %d to %d, and is to keep %d messages", h.id, c.machine, c.start, c.end, r.Messages)
	case r.Bytes > 0 && c.bytes < r.Bytes/2 && !h.topic.compacted() && w.now() < compressed:
		w.fail("%s: the log on %s begins at %d and has %d bytes, and is to keep %d", h.id, c.machine, c.start, c.bytes, r.Bytes)
	case r.Age > 0 && r.Messages+r.Bytes == 0:
		for offset := c.start - 1; offset > 0 && offset+8 > c.start; offset-- {
			if value, ok := h.sure[offset]; ok && w.now()-h.made[value] < r.Age-clockSlack {
				w.fail("%s: %s at %d is gone from the log on %s after %v, and is to be kept for %v", h.id, value, offset, c.machine, w.now()-h.made[value], r.Age)
			}
		}
	}
}

// exceeded names a limit that a leader's copy exceeds after the time to enforce it, or returns an
// empty string.
func (d *declared) exceeded(start, end uint64, segments []log.SegmentInfo, now time.Time) string {
	r := d.spec.Retention
	var bytes int64
	for _, s := range segments {
		if s.End > start {
			bytes += s.Bytes
		}
	}
	switch {
	case !d.retained() || start == end || d.expires(): // removed records stay in their segments for a while
	case r.Messages > 0 && end-start > uint64(r.Messages):
		return "shows more messages than it is to keep"
	case r.Bytes > 0 && bytes > r.Bytes+2*diskOptions.SegmentLargest:
		return "has more bytes than it is to keep"
	case r.Age > 0 && r.Messages+r.Bytes == 0 && now.Sub(segments[0].First) > r.Age+r.Age/limits.SegmentsPerAge+clockSlack+time.Second:
		return "has older records than it is to keep"
	}
	return ""
}

// gaps judges which records a reader did not get from the range that it asked for. Only compaction
// and limits per subject, of old records, and a leader that gives up records of no replica leave
// gaps.
func (h *history) gaps(w *world, from, end uint64, records []record) {
	next, newer := from, newerIn(records)
	for _, r := range append(records, record{offset: end}) {
		for ; next < r.offset; next++ {
			if value, ok := h.sure[next]; ok && !h.mayBeTaken(next, value) {
				h.old(w, next, value)
				if n := newer.than(next, h.subjects[value]); n < h.topic.kept() {
					w.fail("%s: %s at %d is not in the log, and only %d newer ones of its subject are", h.id, value, next, n)
				}
			} else if !ok && !h.mayLack(next, next+1) {
				w.fail("%s: a reader of %d to %d did not get %d", h.id, from, end, next)
			}
		}
		next = r.offset + 1
	}
}

// old judges that a record that compaction removed was old enough.
func (h *history) old(w *world, offset uint64, value string) {
	w.taken++
	switch age := w.now() - h.made[value]; {
	case h.topic.kept() == 0:
		w.fail("%s: %s at %d was not there for a reader", h.id, value, offset)
	case age < compacting.Age-clockSlack:
		w.fail("%s: %s at %d was taken by compaction after %v, and is to be kept for %v", h.id, value, offset, age, compacting.Age)
	}
}
