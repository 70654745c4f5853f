package world

import "math"

// A log is append-only, and its order is known at the end. So whether an order explains all answers
// needs no search, unlike for a register. Each record has a moment at which it was appended, and
// these moments ascend with the offsets:
//
//  1. The publisher's call is before the moment of its record, and its ack after it.
//  2. An answer that names a record as the last message comes after that record's moment, and its
//     call is before the next record's moment.
//
// Such moments exist if and only if, for each record, no call that must precede it or an earlier
// record is later than the first answer that rests on it or on a later record.

// moment is the interval of stamps in which a record can have been appended.
type moment struct {
	after, before uint64
	asked, relied string // the client operations with these stamps, for messages
}

// answers checks that such moments exist. log has all records that it ever had, as far as they are
// known.
func (j *judge) answers(h *history, log copied) {
	o := &order{j: j, h: h, log: log, moments: make([]moment, len(log.records)+1), where: map[string]uint64{}, subjects: bySubject(log)}
	for i := range o.moments {
		o.moments[i].before = math.MaxUint64
	}
	for _, r := range log.records {
		if r.value != "" {
			o.where[r.value] = r.offset
		}
	}
	first := map[string]uint64{} // when a value was published first
	for _, op := range h.ops {
		if was, ok := first[op.value]; !ok || op.call < was {
			first[op.value] = op.call
		}
	}
	for _, r := range log.records {
		o.since(r.offset, first[r.value], "the publisher of "+r.value)
	}
	for _, op := range h.ops {
		if op.call > h.since {
			o.operation(op)
		}
	}
	if !j.w.options.leaveOut(StaleAnswers) {
		for _, l := range h.looks {
			o.look(l.last, l.what)
			o.until(l.last, l.back, l.what)
			o.since(l.last+1, l.call, l.what)
		}
	}
	var floor moment
	for i, m := range o.moments[:len(log.records)] {
		if m.after > floor.after {
			floor = m
		}
		if floor.after > m.before {
			j.w.fail("%s: no order explains the answers: %s rests on record %d (%s), and came before (%d) %s was asked (%d), which comes no later in the log",
				h.id, m.relied, log.records[i].offset, log.records[i].value, m.before, floor.asked, floor.after)
			return
		}
	}
}

// order collects what is known of when the records of a log were appended.
type order struct {
	j        *judge
	h        *history
	log      copied
	moments  []moment // by offset, from 1 on; the last one is for records beyond the end
	where    map[string]uint64
	subjects subjectIndex
}

// since notes that a record was appended after a stamp.
func (o *order) since(offset, stamp uint64, source string) {
	if offset > 0 && offset <= uint64(len(o.moments)) && stamp > o.moments[offset-1].after {
		o.moments[offset-1].after, o.moments[offset-1].asked = stamp, source
	}
}

// until notes that a record was appended before a stamp.
func (o *order) until(offset, stamp uint64, source string) {
	if offset > 0 && offset < uint64(len(o.moments)) && stamp < o.moments[offset-1].before {
		o.moments[offset-1].before, o.moments[offset-1].relied = stamp, source
	}
}

// value returns the value at an offset, or an empty string if it is not known.
func (o *order) value(offset uint64) string {
	if offset == 0 || offset > uint64(len(o.log.records)) {
		return ""
	}
	return o.log.records[offset-1].value
}

// operation adds what the answer to a message implies.
func (o *order) operation(op *operation) {
	w, h := o.j.w, o.h
	offset, stands := o.where[op.value]
	if b := op.before; b != nil && b.shard == op.shard && stands {
		if before, kept := o.where[b.value]; kept && before > offset {
			w.fail("%s: %s is kept at %d, and stands before %s of the same connection, at %d", h.id, op.value, offset, b.value, before)
		}
	}
	switch op.outcome {
	case kept, duplicate:
		// A message with an id may stand twice if its id was forgotten while the time was in doubt.
		if o.value(op.offset) == op.value {
			offset = op.offset
		}
		if stands {
			o.until(offset, op.back, "the ack of "+op.value)
		}
		if op.outcome == kept && op.expects == swapping && stands && (op.expected == 0 || o.value(op.expected) != "") {
			if before := o.subjects.before(op.subject, offset); before != op.expected && (before >= o.log.start || op.expected >= o.log.start) {
				w.fail("%s: %s is kept at %d, and expected %d to be the last of %s, which is %d", h.id, op.value, offset, op.expected, op.subject, before)
			}
		}
	case wrongLast:
		if stands {
			w.fail("%s: %s was refused, and stands at %d", h.id, op.value, offset)
		}
		if w.options.leaveOut(StaleAnswers) {
			return
		}
		refusal := "the refusal of " + op.value
		o.until(op.offset, op.back, refusal)
		if op.expects == expecting {
			o.look(op.offset, refusal)
			o.since(op.offset+1, op.call, refusal)
			return
		}
		if o.value(op.offset) != "" && !o.subjects.has(op.subject, op.offset) {
			w.fail("%s: %s was refused, since %d is the last of %s, which is none of its messages", h.id, op.value, op.offset, op.subject)
		}
		if op.offset == 0 && h.topic.retained() {
			return // limits may have removed all its messages
		}
		if next := o.subjects.after(op.subject, op.offset); next != 0 {
			o.since(next, op.call, refusal)
		}
	}
}

// look checks that an answer names an existing record.
func (o *order) look(last uint64, what string) {
	if last >= o.log.end {
		o.j.w.fail("%s: %s: %d was said to be the last message, and the log ends at %d", o.h.id, what, last, o.log.end)
	}
}

// subjectIndex maps each subject to its offsets, in order.
type subjectIndex map[string][]uint64

func bySubject(log copied) subjectIndex {
	x := subjectIndex{}
	for _, r := range log.records {
		x[r.subject] = append(x[r.subject], r.offset)
	}
	return x
}

func (x subjectIndex) before(subject string, offset uint64) (last uint64) {
	for _, o := range x[subject] {
		if o >= offset {
			break
		}
		last = o
	}
	return last
}

func (x subjectIndex) after(subject string, offset uint64) uint64 {
	for _, o := range x[subject] {
		if o > offset {
			return o
		}
	}
	return 0
}

func (x subjectIndex) has(subject string, offset uint64) bool {
	for _, o := range x[subject] {
		if o == offset {
			return true
		}
	}
	return offset == 0
}
