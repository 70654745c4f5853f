package world

import (
	"fmt"
	"strings"
	"time"
)

// A schedule is a message that has another one published when it is due: once, and not before. Then
// the schedule is removed. Clients ask for times of some seconds, a few of them in the past. No
// other message is on the subject of a schedule.
//
// The word by which a broker knows its own messages of schedules is that of the process, which is
// the same for all brokers of a world, and not from the seed.

const (
	headerSchedule  = "Nats-Schedule"
	headerTarget    = "Nats-Schedule-Target"
	headerScheduler = "Nats-Scheduler" // of the message that a schedule has published
	firedTitle      = "due "           // before the value of its schedule: the value of such a message

	longestSchedule = 6 * time.Second
)

// schedules reports whether messages may be schedules.
func (d *declared) schedules() bool { return d.spec.Stream.AllowSchedules }

// schedule makes a message a schedule.
func (c *client) schedule(op *operation) {
	op.subject = fmt.Sprintf("%s.%s.at.%d", c.topic.name, c.name, c.count)
	op.target = fmt.Sprintf("%s.%s.due.%d", c.topic.name, c.name, c.rng.IntN(ownSubjects))
	op.due = max(c.w.now()-time.Second+time.Duration(c.rng.Int64N(int64(longestSchedule))), time.Nanosecond)
}

// scheduled returns the headers of a schedule.
func (op *operation) scheduled() []string {
	at := op.client.w.began.Add(op.due).UTC().Format(time.RFC3339Nano)
	return []string{headerSchedule + ": @at " + at, headerTarget + ": " + op.target}
}

// scheduled notes that a schedule is published: from now on its message may be there.
func (h *history) scheduled(op *operation) {
	h.schedules[op.value] = op
	h.made[firedTitle+op.value], h.subjects[firedTitle+op.value] = op.at, op.target
}

// mayHaveFired reports whether the message of a schedule may have been published.
func (h *history) mayHaveFired(value string) bool {
	op := h.schedules[value]
	return op != nil && h.w.now() >= op.due-clockSlack
}

// mayBeFired reports whether an unknown record at an offset may be a schedule that is gone.
func (h *history) mayBeFired(offset uint64) bool {
	for _, op := range h.schedules {
		if op.outcome != kept || op.offset == offset {
			return true
		}
	}
	return false
}

// fired judges a message of a schedule when a client, or the judge, finds it: its schedule is due,
// by the time of the record as well.
func (h *history) fired(r record) {
	value, fired := strings.CutPrefix(r.value, firedTitle)
	op := h.schedules[value]
	if !fired || op == nil {
		return
	}
	if at := time.Unix(0, r.time).Sub(h.w.began); h.w.now() < op.due-clockSlack || at < op.due-clockSlack && !h.w.jumps && !h.w.misled {
		h.w.fail("%s: %s stands at %d before its time, %v: it is of %v, and seen at %v", h.id, r.value, r.offset, op.due, at, h.w.now())
	}
}

// unfired names a schedule that a leader still shows, or returns an empty string. All are soon due.
// While the time is in doubt, none is.
func (h *history) unfired(r record) string {
	op := h.schedules[r.value]
	if op == nil || h.w.untimed() {
		return ""
	}
	return fmt.Sprintf("shows the schedule %s at %d, which was due at %v", r.value, r.offset, op.due)
}

// schedules judges that each schedule that is kept has published its message, unless something else
// has removed it, or may have removed the message. log has all records that it ever had.
func (j *judge) schedules(h *history, log copied) {
	if j.w.untimed() || len(h.gone) > 0 || h.topic.retained() || h.topic.deletes() || h.topic.acksRemove() {
		return
	}
	there, blank := map[string]bool{}, uint64(0)
	for _, r := range log.records {
		if there[r.value] = true; r.value == "" {
			blank = r.offset // it may be one of those messages
		}
	}
	for _, r := range log.records {
		if h.schedules[r.value] == nil || r.offset < blank {
			continue
		}
		if !there[firedTitle+r.value] && !h.mayBeRolledUp(r.offset, r.value) {
			j.w.fail("%s: the message of the schedule %s at %d, which was due at %v, was never published", h.id, r.value, r.offset, h.schedules[r.value].due)
			return
		}
		j.firings++
	}
}
