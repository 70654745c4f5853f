package subscription

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is the simplest possible model of a cursor, with maps and loops.
type naive struct {
	sequence, offset uint64
	pending          map[uint64]delivery
	ahead, kept      map[uint64]bool
	queue            []uint64
}

func newNaive() *naive {
	return &naive{pending: map[uint64]delivery{}, ahead: map[uint64]bool{}, kept: map[uint64]bool{}}
}

func (n *naive) pass(to uint64) {
	n.offset = max(n.offset, to)
	maps.DeleteFunc(n.ahead, func(o uint64, _ bool) bool { return o <= n.offset })
}

func (n *naive) drop(offset uint64) {
	delete(n.pending, offset)
	n.unqueue(offset)
}

func (n *naive) unqueue(offset uint64) {
	n.queue = slices.DeleteFunc(n.queue, func(o uint64) bool { return o == offset })
}

func (n *naive) apply(o op) {
	switch o.kind {
	case opDeliver:
		for i := o.offset; i < o.offset+o.count; i++ {
			n.sequence++
			d, is := n.pending[i]
			if i > n.offset {
				n.pass(i)
				n.pending[i] = delivery{offset: i, sequence: n.sequence, count: 1, deadline: o.deadline}
			} else if is {
				d.count++
				d.deadline = o.deadline
				n.pending[i] = d
				n.unqueue(i)
			}
		}
	case opPass:
		n.sequence += o.count
		n.pass(o.offset + o.count - 1)
	case opSkip:
		n.pass(o.offset)
	case opAck:
		for i := o.offset; i < o.offset+o.count; i++ {
			if i > n.offset && !n.ahead[i] {
				n.ahead[i] = true
				n.sequence++
			}
			n.drop(i)
			delete(n.kept, i)
		}
	case opAckAll, opForget:
		maps.DeleteFunc(n.kept, func(i uint64, _ bool) bool {
			return i < o.offset || i == o.offset && o.kind == opAckAll
		})
		for i := range n.pending {
			if i < o.offset || i == o.offset && o.kind == opAckAll {
				n.drop(i)
			}
		}
		if o.kind == opAckAll {
			if o.offset > n.offset {
				n.sequence++
			}
			n.pass(o.offset)
		}
	case opTerm, opExhausted:
		n.drop(o.offset)
		delete(n.kept, o.offset)
	case opKeep:
		if _, is := n.pending[o.offset]; is {
			n.drop(o.offset)
			n.kept[o.offset] = true
		}
	case opRetry, opRetryNow, opProgress:
		if d, is := n.pending[o.offset]; is {
			d.deadline = o.deadline
			if o.kind == opRetryNow {
				d.deadline = 0
				if !slices.Contains(n.queue, o.offset) {
					n.queue = append(n.queue, o.offset)
				}
			} else {
				n.unqueue(o.offset)
			}
			n.pending[o.offset] = d
		}
	case opReset:
		sequence := n.sequence
		*n = *newNaive()
		n.sequence, n.offset = sequence, max(o.offset, 1)-1
	case opTruncate:
		o.offset = max(o.offset, 1)
		maps.DeleteFunc(n.ahead, func(i uint64, _ bool) bool { return i >= o.offset })
		maps.DeleteFunc(n.kept, func(i uint64, _ bool) bool { return i >= o.offset })
		for i := range n.pending {
			if i >= o.offset {
				n.drop(i)
			}
		}
		if n.offset >= o.offset {
			n.offset = o.offset - 1
		}
	}
}

func (n *naive) expire(now int64) {
	for _, i := range slices.Sorted(maps.Keys(n.pending)) {
		if n.pending[i].deadline <= now && !slices.Contains(n.queue, i) {
			n.queue = append(n.queue, i)
		}
	}
}

func (n *naive) floor() (uint64, uint64) {
	if len(n.pending) == 0 {
		return n.sequence, n.offset
	}
	d := n.pending[slices.Min(slices.Collect(maps.Keys(n.pending)))]
	return d.sequence - 1, d.offset - 1
}

// same returns the first difference, or "".
func (n *naive) same(c *cursor) string {
	live := map[uint64]delivery{}
	repeated := 0
	for i := c.pending.head; i < len(c.pending.list); i++ {
		d := c.pending.list[i]
		if !d.removed {
			d.queued = false
			live[d.offset] = d
			if d.count > 1 {
				repeated++
			}
		}
	}
	fs, fo := c.floor()
	ns, no := n.floor()
	switch {
	case c.sequence != n.sequence || c.offset != n.offset:
		return fmt.Sprintf("it is at %d (%d), not %d (%d)", c.offset, c.sequence, n.offset, n.sequence)
	case !reflect.DeepEqual(live, n.pending) || c.pending.live != len(live):
		return fmt.Sprintf("on their way are %v, not %v", live, n.pending)
	case repeated != c.repeated:
		return fmt.Sprintf("%d are counted as redelivered, not %d", c.repeated, repeated)
	case fs != ns || fo != no:
		return fmt.Sprintf("the floor is %d (%d), not %d (%d)", fo, fs, no, ns)
	case !slices.Equal(c.ahead, slices.Sorted(maps.Keys(n.ahead))):
		return fmt.Sprintf("ahead are %v, not %v", c.ahead, n.ahead)
	case !slices.Equal(c.kept, slices.Sorted(maps.Keys(n.kept))):
		return fmt.Sprintf("kept are %v, not %v", c.kept, n.kept)
	}
	return n.sameNeeds(c)
}

// sameNeeds compares what the cursor still needs of the first offsets, in two ways: of all, and of
// every second pair of them.
func (n *naive) sameNeeds(c *cursor) string {
	end := n.offset + 20
	var pairs spans
	for at := uint64(0); at < end; at += 4 {
		pairs = append(pairs, span{at, at + 2})
	}
	for _, of := range []spans{{{0, end}}, pairs} {
		left := of.without(c.needs(of))
		for _, s := range of {
			for o := s.from; o < s.next; o++ {
				_, pending := n.pending[o]
				needed := pending || n.kept[o] || o > n.offset && !n.ahead[o]
				if left.has(o) == needed {
					return fmt.Sprintf("that offset %d of %v is needed is said to be %t", o, of, !left.has(o))
				}
			}
		}
	}
	return ""
}

// queue returns the redelivery queue, in order.
func (c *cursor) queue() []uint64 {
	var out []uint64
	seen := map[uint64]bool{}
	for _, o := range c.redelivery[c.head:] {
		if d := c.pending.find(o); d != nil && d.queued && !seen[o] {
			out = append(out, o)
			seen[o] = true
		}
	}
	return out
}

func drawOp(t *rapid.T, c *cursor, now int64) op {
	o := op{kind: opKind(rapid.IntRange(1, int(opKinds)-1).Draw(t, "kind")), count: 1}
	known := rapid.Uint64Range(0, c.offset+8).Draw(t, "offset")
	switch o.kind {
	case opDeliver, opPass:
		o.offset = c.offset + 1 + rapid.Uint64Range(0, 2).Draw(t, "gap")
		if o.kind == opDeliver && rapid.Bool().Draw(t, "again") {
			o.offset = known
		}
		o.count = rapid.Uint64Range(1, 12).Draw(t, "count")
	case opAck:
		o.offset, o.count = known, rapid.Uint64Range(1, 5).Draw(t, "count")
	case opReset, opTruncate, opForget, opAckAll:
		o.offset = known
		if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
			o = op{kind: opAck, offset: known, count: 1}
		}
	default:
		o.offset = known
	}
	if o.kind.timed() {
		o.deadline = now + rapid.Int64Range(1, 50).Draw(t, "wait")
	}
	return o
}

// TestACursorEqualsItsReplayedOps: after any ops a cursor equals the naive model, and equals a
// cursor restored from a log of its ops and snapshots.
func TestACursorEqualsItsReplayedOps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base = 1_700_000_000_000
		c, n := &cursor{}, newNaive()
		var journal []byte
		now := int64(base)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 20).Draw(t, "time")
			if rapid.IntRange(0, 4).Draw(t, "expire") == 0 {
				c.expire(now)
				n.expire(now)
			}
			if rapid.IntRange(0, 20).Draw(t, "snapshot") == 0 {
				journal = appendSnapshot(nil, 7, identity{"billing", -3}, c, base)
			}
			o := drawOp(t, c, now)
			c.apply(o)
			n.apply(o)
			journal = appendOp(journal, 7, o, base)
			if why := n.same(c); why != "" {
				t.Fatalf("after %+v: %s", o, why)
			}
			// A record that left the queue and returned may have its former place.
			if c.next(); !slices.Equal(slices.Sorted(slices.Values(c.queue())), slices.Sorted(slices.Values(n.queue))) {
				t.Fatalf("after %+v the queue is %v, not %v", o, c.queue(), n.queue)
			}
		}
		again := &cursor{}
		for r := (decoder{data: journal}); len(r.data) > 0; {
			var it item
			if err := r.next(&it, base); err != nil || it.handle != 7 {
				t.Fatalf("handle %d: %v", it.handle, err)
			}
			if it.snapshot {
				if it.id != (identity{"billing", -3}) {
					t.Fatalf("it became %+v", it.id)
				}
				again = &it.cursor
			} else {
				again.apply(it.op)
			}
		}
		if why := n.same(again); why != "" {
			t.Fatalf("what the log gives: %s", why)
		}
	})
}

// TestRecordsWithTheMaximumOfDeliveriesAreNotQueued: a record with its maximum of deliveries is not
// queued; a higher maximum queues it again.
func TestRecordsWithTheMaximumOfDeliveriesAreNotQueued(t *testing.T) {
	c := &cursor{}
	c.setMaxDeliver(2)
	c.apply(op{kind: opDeliver, offset: 1, count: 2, deadline: 10})
	c.apply(op{kind: opDeliver, offset: 1, count: 1, deadline: 20})
	c.expire(20)
	if got := c.queue(); !slices.Equal(got, []uint64{2}) || !slices.Equal(c.exhausted, []uint64{1}) {
		t.Fatalf("queued %v, spent %v", got, c.exhausted)
	}
	c.setMaxDeliver(0)
	c.expire(20)
	if got := c.queue(); !slices.Equal(got, []uint64{1, 2}) || len(c.exhausted) > 0 {
		t.Fatalf("without a bound queued are %v, spent %v", got, c.exhausted)
	}
}

func TestThePendingListIsCompacted(t *testing.T) {
	c := &cursor{}
	c.apply(op{kind: opDeliver, offset: 1, count: 1, deadline: 10})
	for o := uint64(2); o < 100_000; o++ {
		c.apply(op{kind: opDeliver, offset: o, count: 1, deadline: 10})
		c.apply(op{kind: opAck, offset: o, count: 1})
	}
	if n := cap(c.pending.list); n > 1000 || c.pending.live != 1 {
		t.Errorf("%d records on their way take room for %d", c.pending.live, n)
	}
	if _, floor := c.floor(); floor != 0 {
		t.Errorf("the floor is %d, and the first record was not acknowledged", floor)
	}
}

func FuzzItemsAreReadOrRefused(f *testing.F) {
	c := &cursor{}
	c.apply(op{kind: opDeliver, offset: 1, count: 3, deadline: 10})
	c.apply(op{kind: opAck, offset: 9, count: 1})
	c.apply(op{kind: opKeep, offset: 2})
	f.Add(appendOp(appendSnapshot(nil, 1, identity{"a", 1}, c, 0), 1, op{kind: opAck, offset: 2, count: 1}, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &cursor{}
		for r := (decoder{data: data}); len(r.data) > 0; {
			var it item
			if r.next(&it, 0) != nil {
				return
			}
			if it.snapshot {
				c = &it.cursor
			} else if !it.gone {
				c.apply(it.op)
			}
		}
	})
}
