package world

import "strconv"

// increment makes a message an increment of a counter, often of one that several clients share.
func (c *client) increment(op *operation) {
	if op.increment = c.rng.IntN(12) - 3; op.increment == 0 {
		op.increment = 100
	}
	if op.id == "" && c.rng.IntN(2) == 0 { // the judge of registers knows no message that is published again
		op.subject = c.sharedSubject()
	}
}

// totals judges the counters of a shard: each record has the total of the one before it on its
// subject, plus its increment, and answers name the totals of the records. log has all records that
// it ever had, as far as they are known; behind an unknown one no total is.
func (j *judge) totals(h *history, log copied) {
	if !h.topic.counts() {
		return
	}
	sums, complete := map[string]int{}, true
	totals := map[string]int{} // by value
	earlier := map[string]map[int]bool{}
	for _, r := range log.records {
		if r.value == "" {
			clear(sums)
			complete = false
			continue
		}
		before, known := sums[r.subject]
		sum := before + h.counted[r.value]
		switch total, err := strconv.Atoi(r.total); {
		case r.total == "" && !known && !complete:
			continue
		case r.total == "": // a client knows of it, and it is not in the log any more
		case err != nil:
			j.w.fail("%s: %s at %d has the total %q", h.id, r.value, r.offset, r.total)
			return
		case total != sum && h.topic.removes() && (total == h.counted[r.value] || earlier[r.subject][total-h.counted[r.value]]):
			sum = total // the ones behind that may be removed, and a counter without a message is zero
		case total != sum && (known || complete):
			j.w.fail("%s: %s at %d adds %d to %d, and has the total %d", h.id, r.value, r.offset, h.counted[r.value], before, total)
			return
		default:
			sum = total
		}
		sums[r.subject], totals[r.value] = sum, sum
		if earlier[r.subject] == nil {
			earlier[r.subject] = map[int]bool{}
		}
		earlier[r.subject][sum] = true
	}
	for _, op := range h.ops {
		said, err := strconv.Atoi(op.total)
		if total, ok := totals[op.value]; ok && op.total != "" && op.call > h.since && (err != nil || said != total) {
			j.w.fail("%s: %s was answered with the total %s, and has %d", h.id, op.value, op.total, total)
			return
		} else if ok && op.total != "" {
			j.totalled++
		}
	}
}
