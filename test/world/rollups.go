package world

// rollUp has a message remove the older ones of its subject, or all of them.
func (c *client) rollUp(op *operation) {
	op.subject, op.rollup = c.sharedSubject(), rollupSubject
	if c.topic.shards() == 1 && c.rng.IntN(6) == 0 {
		op.rollup = rollupAll
	}
}

// covers reports whether a rollup removes older messages of a subject.
func (op *operation) covers(subject string) bool {
	return op.rollup == rollupAll || op.subject == subject
}

// rolledUp reports whether a rollup behind a record was acknowledged before a stamp.
func (h *history) rolledUp(offset uint64, subject string, before uint64) bool {
	for _, op := range h.rollups {
		if op.covers(subject) && op.call > h.since && (op.outcome == kept || op.outcome == duplicate) && op.back < before && op.offset > offset {
			return true
		}
	}
	return false
}

// mayBeRolledUp reports whether a rollup may stand behind a record. If the value of the record is
// not known, it is empty.
func (h *history) mayBeRolledUp(offset uint64, value string) bool {
	for _, op := range h.rollups {
		known := op.outcome == kept || op.outcome == duplicate
		if (value == "" || op.covers(h.subjects[value])) && op.value != value && (!known || op.call <= h.since || op.offset > offset) {
			return true
		}
	}
	return false
}
