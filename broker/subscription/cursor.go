package subscription

import (
	"math"
	"slices"
)

// cursor is where one Subscription stands. It is pure: no clock, no I/O; whatever changes it for
// good is an op, so that what applied the same ops is the same. Times are milliseconds since 1970.
//
// The queue of what is to be delivered again is not part of that: whoever leads makes it, by Expire.
type cursor struct {
	sequence uint64 // of the last delivery
	offset   uint64 // all records up to there were delivered, or passed over
	// until, if not 0, says that of the records below it only those are delivered that are the newest
	// of their subject among them.
	until   uint64
	pending pendings
	// ahead are the offsets beyond offset that were acknowledged: delivered in a life of which that was
	// all that reached the disk. Sorted.
	ahead []uint64
	// lost says that where it stood was on a part of the disk that is damaged.
	lost bool

	repeated int // of pending, those that were delivered more than once

	// What follows is of the leader alone.
	most  uint32   // deliveries of one record; 0: no bound
	due   int64    // no deadline of what is not queued is before that
	again []uint64 // to be delivered again, some of them perhaps no more; first in, first out
	head  int      // of again
	spent []uint64 // those that were delivered as often as may be
}

type opKind uint8

const (
	opDeliver   opKind = iota + 1 // records from Offset on, Count of them, until Deadline; again, if they were before
	opPass                        // as opDeliver, and no ack is expected
	opSkip                        // all up to Offset: they don't match, or are not there
	opAck                         // records from Offset on, Count of them
	opAckAll                      // all up to Offset
	opRetry                       // Offset, at Deadline
	opRetryNow                    // Offset
	opProgress                    // Offset has until Deadline
	opTerm                        // Offset
	opExhausted                   // Offset, after its last attempt
	opForget                      // all that are on their way below Offset: the log has them no more
	opReset                       // Offset is the next
	opTruncate                    // the log ends before Offset
	opKinds
)

// op is one change of a cursor.
type op struct {
	kind     opKind
	offset   uint64
	count    uint64
	deadline int64
}

// apply makes the change. What doesn't fit changes nothing.
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
		c.forget(o.offset + 1)
		c.pass(o.offset)
	case opTerm, opExhausted:
		if d := c.pending.find(o.offset); d != nil {
			c.drop(d)
		}
	case opRetry, opRetryNow, opProgress:
		c.postpone(o)
	case opForget:
		c.forget(o.offset)
	case opReset:
		*c = cursor{sequence: c.sequence, offset: max(o.offset, 1) - 1, most: c.most, due: math.MaxInt64}
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
		if d.count == 1 {
			c.repeated++
		}
		d.count++
		d.deadline, d.queued = deadline, false
	} else {
		return
	}
	c.due = min(c.due, deadline)
}

// pass goes on behind offset.
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
	} else if offset > c.offset && len(c.ahead) < mostAhead {
		if i, found := slices.BinarySearch(c.ahead, offset); !found {
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

// forget drops what is on its way below offset.
func (c *cursor) forget(offset uint64) {
	for d := c.pending.first(); d != nil && d.offset < offset; d = c.pending.first() {
		c.drop(d)
	}
}

func (c *cursor) postpone(o op) {
	d := c.pending.find(o.offset)
	if d == nil {
		return
	}
	d.deadline = o.deadline
	switch {
	case o.kind == opRetryNow:
		d.deadline = 0
		c.enqueue(d)
	default:
		d.queued = false
		c.due = min(c.due, o.deadline)
	}
}

// truncate goes back to the end of a log that has lost its tail: offsets from there on will be
// given to other records.
func (c *cursor) truncate(end uint64) {
	if i, _ := slices.BinarySearch(c.ahead, end); i < len(c.ahead) {
		c.ahead = c.ahead[:i]
	}
	if c.offset < end {
		return
	}
	i, _ := c.pending.search(end)
	for ; i < len(c.pending.list); i++ {
		if d := &c.pending.list[i]; !d.gone {
			d.gone = true
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

// floor is the delivery and the offset up to which all is dealt with.
func (c *cursor) floor() (sequence, offset uint64) {
	if d := c.pending.first(); d != nil {
		return d.sequence - 1, d.offset - 1
	}
	return c.sequence, c.offset
}

// isAhead says whether a record that was not delivered yet needs no delivery.
func (c *cursor) isAhead(offset uint64) bool {
	if len(c.ahead) == 0 {
		return false
	}
	_, found := slices.BinarySearch(c.ahead, offset)
	return found
}

// expire queues what is due.
func (c *cursor) expire(now int64) {
	if now < c.due {
		return
	}
	c.due = math.MaxInt64
	for i := c.pending.head; i < len(c.pending.list); i++ {
		switch d := &c.pending.list[i]; {
		case d.gone || d.queued:
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
	if c.most > 0 && d.count >= c.most {
		c.spent = append(c.spent, d.offset)
		return
	}
	if len(c.again) == cap(c.again) && c.head > len(c.again)/2 {
		c.again = c.again[:copy(c.again, c.again[c.head:])]
		c.head = 0
	}
	c.again = append(c.again, d.offset)
}

// next is the record that is first to be delivered again, or nil.
func (c *cursor) next() *delivery {
	for c.head < len(c.again) {
		if d := c.pending.find(c.again[c.head]); d != nil && d.queued {
			return d
		}
		c.head++
	}
	c.again, c.head = c.again[:0], 0
	return nil
}

// setMost changes how often one record is delivered.
func (c *cursor) setMost(most uint32) {
	c.most = most
	c.requeue()
}

// requeue makes the queue anew.
func (c *cursor) requeue() {
	c.again, c.head, c.spent, c.due = c.again[:0], 0, c.spent[:0], 0
	for i := c.pending.head; i < len(c.pending.list); i++ {
		d := &c.pending.list[i]
		if d.queued {
			d.queued = false
			d.deadline = 0
		}
	}
}

// rest gives back memory that an idle Subscription has no use for.
func (c *cursor) rest() {
	const kept = 256
	if c.pending.live > 0 {
		return
	}
	if cap(c.pending.list) > kept {
		c.pending.list, c.pending.head = nil, 0
	}
	if cap(c.again)+cap(c.spent) > kept {
		c.again, c.head, c.spent = nil, 0, nil
	}
}
