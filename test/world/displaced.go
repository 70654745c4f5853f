package world

import (
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/removal"
)

// offsetsOf are the offsets of some records by subject, in order.
type offsetsOf map[string][]uint64

func newerIn(records []record) offsetsOf {
	of := offsetsOf{}
	for _, r := range records {
		of[r.subject] = append(of[r.subject], r.offset)
	}
	return of
}

// than returns how many records of a subject are behind an offset.
func (o offsetsOf) than(offset uint64, subject string) int {
	at, _ := slices.BinarySearch(o[subject], offset+1)
	return len(o[subject]) - at
}

// removedFrom returns the removed offsets of a set from an offset on.
func removedFrom(set *removal.Set, from uint64) map[uint64]bool {
	removed := map[uint64]bool{}
	for a, b := range set.Ranges(from, 1<<40) {
		for ; a < b; a++ {
			removed[a] = true
		}
	}
	return removed
}

// displaced judges which records a confirmed leader shows as removed: only those with as many newer
// ones as the Topic keeps, and from then on always. removed is from before the records were read,
// up to the high watermark.
func (j *judge) displaced(id shardID, call uint64, records []record, removed map[uint64]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	kept := h.topic.kept()
	if kept == 0 || h.topic.compacted() || call <= h.since {
		return
	}
	newer := newerIn(records)
	for _, r := range records {
		since, was := h.removed[r.offset]
		switch {
		case removed[r.offset] && newer.than(r.offset, r.subject) < kept:
			j.w.fail("%s: %s at %d is removed, and only %d newer ones of %s are there", id, r.value, r.offset, newer.than(r.offset, r.subject), r.subject)
		case removed[r.offset] && !was:
			h.removed[r.offset] = j.w.stamp()
			j.displacements++
		case !removed[r.offset] && was && since < call && since > h.since && !j.w.flipped && !j.w.cursorsLost: // a damaged log of cursors may lose removals
			j.w.fail("%s: %s at %d was removed, and is there again", id, r.value, r.offset)
		}
	}
}

// crowded names a subject with more records than the Topic keeps, or returns an empty string. The
// records are those that a leader shows.
func (d *declared) crowded(records []record, removed map[uint64]bool) string {
	shown := offsetsOf{}
	for _, r := range records {
		if !removed[r.offset] {
			shown[r.subject] = append(shown[r.subject], r.offset)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(shown)) {
		if offsets := shown[subject]; len(offsets) > d.kept() {
			return fmt.Sprintf("shows the messages %v of %s, and is to keep %d", offsets, subject, d.kept())
		}
	}
	return ""
}
