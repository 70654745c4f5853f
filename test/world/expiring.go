package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Messages may have a TTL. What is judged: a message is removed, or has a marker in its place, only
// once its time is over, and then it stays removed. Once all is well again, all of them go, the
// markers as well. A marker names the message that it takes the place of, so none is there twice.

const (
	headerTTL       = "Nats-TTL"
	headerMarker    = "Nats-Marker-Reason"
	headerMarked    = "Nats-Expected-Last-Subject-Sequence" // of a marker: the offset of the expired message
	markerTitle     = "marker of "                          // before that offset: the value of a marker
	longestLifetime = 8 * time.Second
	// expiringRead is how many offsets a reader reads in most cases where messages expire: those of
	// some seconds.
	expiringRead = 400
)

// expires reports whether messages may have a TTL.
func (d *declared) expires() bool { return d.spec.Stream.AllowMessageTTL }

// lives gives a message a TTL.
func (c *client) lives(op *operation) {
	op.ttl = time.Second + time.Duration(c.rng.IntN(int(longestLifetime/time.Second)))*time.Second
	if c.rng.IntN(3) == 0 {
		op.subject = c.sharedSubject()
	}
}

// markerOf returns the offset of the message that a marker has taken the place of.
func markerOf(value string) (offset uint64, is bool) {
	number, is := strings.CutPrefix(value, markerTitle)
	offset, _ = strconv.ParseUint(number, 10, 64)
	return offset, is
}

// lifetime returns after what time a message expires; 0: never. A message must not expire before a
// marker that is older.
func (h *history) lifetime(value string) time.Duration {
	s := &h.topic.spec.Stream
	if !h.topic.expires() {
		return 0
	}
	if _, marker := markerOf(value); marker {
		return s.SubjectDeleteMarkerTTL
	}
	if op := h.ttls[value]; op != nil {
		return max(op.ttl, s.SubjectDeleteMarkerTTL)
	}
	return h.topic.spec.Retention.Age
}

// mayHaveExpired reports whether the time of a message may be over. A marker is not made before the
// message that it marks has expired.
func (h *history) mayHaveExpired(value string) bool {
	life := h.lifetime(value)
	if offset, marker := markerOf(value); marker {
		marked, known := h.sure[offset]
		if !known {
			return true
		}
		life, value = life+h.lifetime(marked), marked
	}
	return life > 0 && h.w.now()-h.made[value] >= life-clockSlack
}

// mayBeExpired reports whether an unknown record at an offset may have expired: a marker that
// nobody read, or a message of which no client knows where it is.
func (h *history) mayBeExpired(offset uint64) bool {
	if !h.topic.expires() {
		return false
	}
	if h.topic.spec.Stream.SubjectDeleteMarkerTTL > 0 || h.topic.retained() {
		return true
	}
	for _, op := range h.ttls {
		if op.outcome != kept || op.offset == offset {
			return true
		}
	}
	return false
}

// meet judges a marker when a client, or the judge, finds it first: it is on the subject of the
// message that it names, whose time is over.
func (h *history) meet(r record) {
	offset, marker := markerOf(r.value)
	if _, known := h.made[r.value]; !marker || known {
		return
	}
	value, known := h.sure[offset]
	switch {
	case h.topic.spec.Stream.SubjectDeleteMarkerTTL == 0:
		h.w.fail("%s: a %s stands at %d, and there are to be none", h.id, r.value, r.offset)
	case known && h.subjects[value] != r.subject:
		h.w.fail("%s: the %s, which is %s on %s, stands at %d on %s", h.id, r.value, value, h.subjects[value], r.offset, r.subject)
	case known && !h.mayHaveExpired(value):
		h.w.fail("%s: the %s, which is %s, stands at %d before its time, after %v", h.id, r.value, value, r.offset, h.w.now()-h.made[value])
	}
	h.made[r.value], h.subjects[r.value] = h.w.now(), r.subject
	h.w.judge.marked++
}

// markers judges that a marker takes the place of the last message of its subject: between them
// stand only messages that may have gone before. log has all records that it ever had, as far as
// they are known.
func (j *judge) markers(h *history, log copied) {
	subjects := bySubject(log)
	for _, r := range log.records {
		offset, marker := markerOf(r.value)
		if !marker {
			continue
		}
		for _, newer := range subjects[r.subject] {
			if newer > offset && newer < r.offset && !h.mayBeTaken(newer, log.records[newer-1].value) {
				j.w.fail("%s: the %s stands at %d, and %d is a newer message of %s", h.id, r.value, r.offset, newer, r.subject)
				return
			}
		}
	}
	j.unmarked(h, subjects, log)
}

// unmarked judges that a subject all of whose messages have expired by now has a marker in the
// place of the last one that was there, unless something else may have removed that. Only markers
// expire without.
func (j *judge) unmarked(h *history, subjects subjectIndex, log copied) {
	if h.topic.spec.Stream.SubjectDeleteMarkerTTL == 0 || j.w.untimed() || h.since > 0 || slices.ContainsFunc(log.records, func(r record) bool { return r.value == "" }) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		last := log.records[subjects[name][len(subjects[name])-1]-1]
		_, tried := h.triedAt(last.offset)
		stays := slices.ContainsFunc(subjects[name], func(offset uint64) bool {
			value := log.records[offset-1].value
			_, marker := markerOf(value)
			return !marker && h.ttls[value] == nil
		})
		if !stays && h.ttls[last.value] != nil && !tried && !h.mayBeRolledUp(last.offset, last.value) {
			j.w.fail("%s: %s at %d, the last message of %s, has expired without a marker", h.id, last.value, last.offset, name)
			return
		}
	}
}

// untimed reports whether messages of TTLs and schedules may stay for long: while the time is in
// doubt nothing expires, and damaged cursors may forget when a message does.
func (w *world) untimed() bool { return w.jumps || w.misled || w.flipped || w.cursorsLost }

// unexpired names a message of a TTL that a leader still shows, or returns an empty string. The
// time of a message is soon over. While the time is in doubt, none expires.
func (h *history) unexpired(r record) string {
	_, marker := markerOf(r.value)
	if h.w.untimed() || !marker && h.ttls[r.value] == nil {
		return ""
	}
	return fmt.Sprintf("shows %s at %d, which expires after %v, %v after it was published", r.value, r.offset, h.lifetime(r.value), h.w.now()-h.made[r.value])
}
