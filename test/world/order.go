package world

import "math"

// A log is appended to and nothing else, and at the end its order is known. So whether its clients' answers have an order that explains
// them needs no search, as it would for a register: for each record there is a moment at which it was appended, later than that of the
// record before. Whoever published it asked before that moment, and was answered after it. Who was told that it was the last message
// was answered after it, too, and asked before the next record's moment. Such moments exist exactly if, for each record, nothing that
// comes before it or with it was asked later than the first answer that rests on it or on a later one.

// moment is when a record can have been appended, in stamps.
type moment struct {
	after, before uint64
	asked, relied string // whose stamps these are, for people
}

// answers checks that there is such an order.
func (j *judge) answers(h *history, log copied, where map[string]uint64) {
	moments := make([]moment, len(log.records)+1) // by index; the last one stands for what is beyond the end
	for i := range moments {
		moments[i].before = math.MaxUint64
	}
	index := func(offset uint64) int { return int(offset) - int(log.start) }
	inside := func(i int) bool { return i >= 0 && i < len(log.records) }
	since := func(i int, stamp uint64, who string) {
		if i >= 0 && i < len(moments) && stamp > moments[i].after {
			moments[i].after, moments[i].asked = stamp, who
		}
	}
	until := func(i int, stamp uint64, who string) {
		if inside(i) && stamp < moments[i].before {
			moments[i].before, moments[i].relied = stamp, who
		}
	}
	first := map[string]uint64{} // when a value was published first
	for _, op := range h.ops {
		if was, ok := first[op.value]; !ok || op.call < was {
			first[op.value] = op.call
		}
	}
	for i, r := range log.records {
		since(i, first[r.value], "the publisher of "+r.value)
	}
	subjects := bySubject(log)
	for _, op := range h.ops {
		offset, stands := where[op.value]
		switch op.outcome {
		case kept, duplicate:
			// A message with an id stands twice if its id was forgotten while the time was in doubt.
			if i := index(op.offset); inside(i) && log.records[i].value == op.value {
				offset = op.offset
			}
			if stands {
				until(index(offset), op.back, "the ack of "+op.value)
			}
			if op.outcome == kept && op.expects == swapping && stands {
				if before := subjects.before(op.subject, offset); before != op.expected && (before >= log.start || op.expected >= log.start) {
					j.w.fail("%s: %s is kept at %d, and expected %d to be the last of %s, which is %d", h.topic, op.value, offset, op.expected, op.subject, before)
				}
			}
		case wrongLast:
			if stands {
				j.w.fail("%s: %s was refused, and stands at %d", h.topic, op.value, offset)
			}
			if j.w.options.leaveOut(StaleAnswers) {
				continue
			}
			who := "the refusal of " + op.value
			if op.expects == expecting {
				j.look(h, log, op.offset, who)
				until(index(op.offset), op.back, who)
				since(index(op.offset)+1, op.call, who)
				continue
			}
			if op.offset >= log.start && !subjects.has(op.subject, op.offset) {
				j.w.fail("%s: %s was refused, since %d is the last of %s, which is none of its messages", h.topic, op.value, op.offset, op.subject)
			}
			until(index(op.offset), op.back, who)
			if next := subjects.after(op.subject, op.offset); next != 0 {
				since(index(next), op.call, who)
			}
		}
	}
	if !j.w.options.leaveOut(StaleAnswers) {
		for _, l := range h.looks {
			j.look(h, log, l.last, l.what)
			until(index(l.last), l.back, l.what)
			since(index(l.last)+1, l.call, l.what)
		}
	}
	var floor moment
	for i := range log.records {
		m := moments[i]
		if m.after > floor.after {
			floor = m
		}
		if floor.after > m.before {
			j.w.fail("%s: no order explains the answers: %s rests on record %d (%s), and came before (%d) %s was asked (%d), which comes no later in the log",
				h.topic, m.relied, log.records[i].offset, log.records[i].value, m.before, floor.asked, floor.after)
			return
		}
	}
}

// look checks that an answer names a record that there is.
func (j *judge) look(h *history, log copied, last uint64, what string) {
	if last >= log.end {
		j.w.fail("%s: %s: %d was said to be the last message, and the log ends at %d", h.topic, what, last, log.end)
	}
}

// subjectIndex are the offsets of each subject, in order.
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
