package subscription

import (
	"math"
	"slices"
)

// cursor is the state of one Subscription. It is pure: no clock, no I/O. Everything durable about
// it changes by ops, so two cursors that applied the same ops are equal. Times are milliseconds
// since 1970.
//
// The redelivery queue is not part of the durable state: the leader rebuilds it with expire.
type cursor struct {
	sequence uint64 // of the last delivery
	offset   uint64 // records up to here were delivered or skipped
	// until, if not 0, restricts deliveries below it to the newest record of each subject.
	until   uint64
	pending pendings
	// ahead are the acknowledged offsets beyond offset: acks of deliveries in an earlier life whose
	// deliveries did not reach the disk. Sorted.
	ahead []uint64
	// kept are the records that were given up after their maximum of deliveries, and that stay in
	// the log because nobody acknowledged them. Sorted, and at most mostKept.
	kept     []uint64
	repeated int // pending records that were delivered more than once
	// lost reports that the cursor was on a damaged part of the state log.
	lost bool

	// The rest exists on the leader only.
	maxDeliver uint32   // maximum deliveries of one record; 0: no bound
	due        int64    // no pending delivery outside the queue has an earlier deadline
	redelivery []uint64 // redelivery queue, FIFO; entries may be stale
	head       int      // index of the first entry of again
	exhausted  []uint64 // records to give up: terminated, or delivered as often as may be
}

// terminated is the deadline, in milliseconds, of a pending record that a client terminated and
// whose dead letter is not stored yet: the year 2255. No other deadline is later than
// latestDeadline, also after the clock corrections that decoding makes. In nanoseconds it is below
// 2^63, or brokers of versions without dead letters would have a timer that is always due. An op of
// its own would be unreadable for them.
//
// Before, it was terminatedBefore.
const (
	terminated       = int64(9_000_000_000_000)
	terminatedBefore = int64(1) << 60
	latestDeadline   = terminated - 2*clockCorrections
	clockCorrections = int64(500_000_000_000) // 15 years
)

func (d *delivery) isTerminated() bool {
	return d.deadline > terminated-clockCorrections && d.deadline < terminated+clockCorrections/4 || d.deadline >= terminatedBefore/2
}

// after returns the deadline that is some milliseconds after now.
func after(now, wait int64) int64 { return min(now+wait, latestDeadline) }

type opKind uint8

const (
	opDeliver   opKind = iota + 1 // Count records from Offset on, until Deadline; or again
	opPass                        // as opDeliver, without expecting acks
	opSkip                        // records up to Offset: no match, or no record
	opAck                         // Count records from Offset on
	opAckAll                      // records up to Offset
	opRetry                       // Offset, at Deadline
	opRetryNow                    // Offset
	opProgress                    // Offset; extends its ack wait to Deadline
	opTerm                        // Offset
	opExhausted                   // Offset reached its maximum of deliveries
	opForget                      // pending records below Offset, which the log lacks now
	opReset                       // Offset is the next record
	opTruncate                    // the log ends before Offset
	opKeep                        // as opExhausted, and Offset is kept
	opKinds
)

// op is one change of a cursor.
type op struct {
	kind     opKind
	offset   uint64
	count    uint64
	deadline int64
}

// apply applies an op. An op that does not fit the cursor has no effect.
func (c *cursor) apply(o op) {
	switch o.kind {
	case opDeliver:
		for i := range o.count {
			c.deliver(o.offset+i, o.deadline)
		}
	case opPass:
		c.sequence += o.count
		c.pass(o.offset + o.count - 1)
	case opSkip:
		c.pass(o.offset)
	case opAck:
		for i := range o.count {
			c.ack(o.offset + i)
		}
	case opAckAll:
		if o.offset > c.offset {
			c.sequence++ // as in ack
		}
		c.forget(o.offset + 1)
		c.pass(o.offset)
	case opTerm, opExhausted:
		if d := c.pending.find(o.offset); d != nil {
			c.drop(d)
		}
		c.release(o.offset)
	case opKeep:
		if d := c.pending.find(o.offset); d != nil {
			c.drop(d)
			c.keep(o.offset)
		}
	case opRetry, opRetryNow, opProgress:
		c.postpone(o)
	case opForget:
		c.forget(o.offset)
	case opReset:
		*c = cursor{sequence: c.sequence, offset: max(o.offset, 1) - 1, maxDeliver: c.maxDeliver, due: math.MaxInt64}
	case opTruncate:
		c.truncate(max(o.offset, 1))
	}
}

func (c *cursor) deliver(offset uint64, deadline int64) {
	c.sequence++
	if offset > c.offset {
		c.pass(offset)
		c.pending.push(delivery{offset: offset, sequence: c.sequence, deadline: deadline, count: 1})
	} else if d := c.pending.find(offset); d != nil {
		if !d.isUntried() {
			if d.count == 1 {
				c.repeated++
			}
			d.count++
		}
		d.deadline, d.queued = deadline, false
	} else {
		return
	}
	c.due = min(c.due, deadline)
}

// pass moves the cursor to offset.
func (c *cursor) pass(offset uint64) {
	c.offset = max(c.offset, offset)
	if c.until <= c.offset+1 {
		c.until = 0
	}
	n := 0
	for n < len(c.ahead) && c.ahead[n] <= c.offset {
		n++
	}
	if n > 0 {
		c.ahead = slices.Delete(c.ahead, 0, n)
	}
}

func (c *cursor) ack(offset uint64) {
	if d := c.pending.find(offset); d != nil {
		c.drop(d)
	} else if offset <= c.offset {
		c.release(offset)
	} else if len(c.ahead) < mostAhead {
		if i, found := slices.BinarySearch(c.ahead, offset); !found {
			c.sequence++ // its delivery, which did not reach the disk
			c.ahead = slices.Insert(c.ahead, i, offset)
		}
	}
}

func (c *cursor) drop(d *delivery) {
	if d.count > 1 {
		c.repeated--
	}
	c.pending.remove(d)
}

// keep adds a record to those that were given up.
func (c *cursor) keep(offset uint64) {
	if i, found := slices.BinarySearch(c.kept, offset); !found && len(c.kept) < mostKept {
		c.kept = slices.Insert(c.kept, i, offset)
	}
}

// isKept reports whether a record was given up, and nobody has acknowledged it since.
func (c *cursor) isKept(offset uint64) bool {
	_, found := slices.BinarySearch(c.kept, offset)
	return found
}

// givenUp returns the records below next that are kept, or that were delivered as often as may be,
// or that a client terminated: at most mostKept.
func (c *cursor) givenUp(next uint64) (all []uint64) {
	i, _ := slices.BinarySearch(c.kept, next)
	all = slices.Clone(c.kept[:i])
	for i := range c.pending.list[c.pending.head:] {
		if d := &c.pending.list[c.pending.head+i]; d.offset < next && !d.removed && (d.isTerminated() || c.isExhausted(d)) {
			all = append(all, d.offset)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), mostKept)]
}

// release undoes keep.
func (c *cursor) release(offset uint64) {
	if i, found := slices.BinarySearch(c.kept, offset); found {
		c.kept = slices.Delete(c.kept, i, i+1)
	}
}

// forget drops pending and kept records below offset.
func (c *cursor) forget(offset uint64) {
	for d := c.pending.first(); d != nil && d.offset < offset; d = c.pending.first() {
		c.drop(d)
	}
	if i, _ := slices.BinarySearch(c.kept, offset); i > 0 {
		c.kept = slices.Delete(c.kept, 0, i)
	}
}

func (c *cursor) postpone(o op) {
	d := c.pending.find(o.offset)
	if d == nil {
		return
	}
	if o.deadline < tried/2 {
		c.unmark(d)
	}
	d.deadline = o.deadline
	switch {
	case o.kind == opRetryNow:
		d.deadline = 0
		c.enqueue(d)
	case d.isTerminated():
		d.queued = false
	default:
		d.queued = false
		c.due = min(c.due, o.deadline)
	}
}

// unmark takes the attempt to come off the count of a record that an Endpoint has not sent. Its
// deadline is set then.
func (c *cursor) unmark(d *delivery) {
	if !d.isUntried() || d.count == 0 {
		return
	}
	if d.count == 2 {
		c.repeated--
	}
	d.count--
}

// isBeyond reports whether the cursor says something of records at end or beyond.
func (c *cursor) isBeyond(end uint64) bool {
	n := len(c.ahead)
	return c.offset >= end || n > 0 && c.ahead[n-1] >= end
}

// truncate moves the cursor back to the end of a log that lost its tail: new records will get the
// offsets from there on.
func (c *cursor) truncate(end uint64) {
	if i, _ := slices.BinarySearch(c.ahead, end); i < len(c.ahead) {
		c.ahead = c.ahead[:i]
	}
	if c.offset < end {
		return
	}
	if i, _ := slices.BinarySearch(c.kept, end); i < len(c.kept) {
		c.kept = c.kept[:i]
	}
	i, _ := c.pending.search(end)
	for ; i < len(c.pending.list); i++ {
		if d := &c.pending.list[i]; !d.removed {
			d.removed = true
			c.pending.live--
			if d.count > 1 {
				c.repeated--
			}
		}
	}
	c.pending.compact()
	c.offset = end - 1
	c.until = min(c.until, end)
	if c.until <= c.offset+1 {
		c.until = 0
	}
}

// floor returns the last delivery and the last offset up to which nothing is pending.
func (c *cursor) floor() (sequence, offset uint64) {
	if d := c.pending.first(); d != nil {
		return d.sequence - 1, d.offset - 1
	}
	return c.sequence, c.offset
}

// lowest returns the first offset whose record may be needed.
func (c *cursor) lowest() uint64 {
	_, floor := c.floor()
	if len(c.kept) > 0 {
		return min(c.kept[0], floor+1)
	}
	return floor + 1
}

// isAhead reports whether an undelivered record is acknowledged already.
func (c *cursor) isAhead(offset uint64) bool {
	if len(c.ahead) == 0 {
		return false
	}
	_, found := slices.BinarySearch(c.ahead, offset)
	return found
}

// expire queues pending records whose deadline has passed.
func (c *cursor) expire(now int64) {
	if now < c.due {
		return
	}
	c.due = math.MaxInt64
	for i := c.pending.head; i < len(c.pending.list); i++ {
		switch d := &c.pending.list[i]; {
		case d.removed || d.queued:
		case d.isTerminated():
			d.queued = true
			c.exhausted = append(c.exhausted, d.offset)
		case d.deadline <= now:
			c.enqueue(d)
		default:
			c.due = min(c.due, d.deadline)
		}
	}
}

func (c *cursor) enqueue(d *delivery) {
	if d.queued {
		return
	}
	d.queued = true
	if c.isExhausted(d) {
		c.exhausted = append(c.exhausted, d.offset)
		return
	}
	if len(c.redelivery) == cap(c.redelivery) && c.head > len(c.redelivery)/2 {
		c.redelivery = c.redelivery[:copy(c.redelivery, c.redelivery[c.head:])]
		c.head = 0
	}
	c.redelivery = append(c.redelivery, d.offset)
}

// isExhausted reports whether a record was delivered as often as may be.
func (c *cursor) isExhausted(d *delivery) bool {
	return c.maxDeliver > 0 && d.attempts() >= c.maxDeliver
}

// next returns the first record of the redelivery queue, or nil.
func (c *cursor) next() *delivery {
	for c.head < len(c.redelivery) {
		if d := c.pending.find(c.redelivery[c.head]); d != nil && d.queued {
			return d
		}
		c.head++
	}
	c.redelivery, c.head = c.redelivery[:0], 0
	return nil
}

// setMaxDeliver sets the maximum of deliveries.
func (c *cursor) setMaxDeliver(most uint32) {
	c.maxDeliver = most
	c.requeue()
}

// requeue rebuilds the redelivery queue.
func (c *cursor) requeue() {
	c.redelivery, c.head, c.exhausted, c.due = c.redelivery[:0], 0, c.exhausted[:0], 0
	for i := c.pending.head; i < len(c.pending.list); i++ {
		d := &c.pending.list[i]
		if d.queued {
			d.queued = false
			if !d.isTerminated() {
				c.unmark(d)
				d.deadline = 0
			}
		}
	}
}

// shrink frees memory that an idle Subscription does not need.
func (c *cursor) shrink() {
	const kept = 256
	if c.pending.live > 0 {
		return
	}
	if cap(c.pending.list) > kept {
		c.pending.list, c.pending.head = nil, 0
	}
	if cap(c.redelivery)+cap(c.exhausted) > kept {
		c.redelivery, c.head, c.exhausted = nil, 0, nil
	}
}
