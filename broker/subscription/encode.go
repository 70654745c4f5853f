package subscription

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The state log holds items. Each belongs to one Subscription, which it names by its handle, a
// number in this log:
//
//	uvarint handle, u8 kind, and by kind
//	  an op:         uvarint offset [uvarint count] [varint deadline, relative to the record's time]
//	  itemSnapshot:  uvarint length, and as many bytes: identity and cursor
//	  itemGone:      nothing
//
// The specs of readers are in the attributes of the same record, which apply after its items:
//
//	uvarint handle, uvarint length, and as many bytes: a reader in JSON
//
// Records with the subject removal.Subject are Items of removed records instead. The Source reads
// and writes them; a snapshot only carries them over.
//
// Programs without reader items ignore attributes, and drop the cursors of readers as those of
// Subscriptions that were deleted.
const (
	itemSnapshot = 64
	itemGone     = 65
)

func (k opKind) counted() bool { return k == opDeliver || k == opPass || k == opAck }
func (k opKind) timed() bool   { return k == opDeliver || k == opRetry || k == opProgress }

// appendOp encodes an op of the Subscription with that handle.
func appendOp(dst []byte, handle uint64, o op, base int64) []byte {
	dst = binary.AppendUvarint(dst, handle)
	dst = append(dst, byte(o.kind))
	dst = binary.AppendUvarint(dst, o.offset)
	if o.kind.counted() {
		dst = binary.AppendUvarint(dst, o.count)
	}
	if o.kind.timed() {
		dst = binary.AppendVarint(dst, o.deadline-base)
	}
	return dst
}

// identity identifies a Subscription. A deleted and recreated one has another identity.
type identity struct {
	name string
	made int64
}

// appendSnapshot encodes the identity and the cursor of a Subscription.
func appendSnapshot(dst []byte, handle uint64, id identity, c *cursor, base int64) []byte {
	dst = binary.AppendUvarint(dst, handle)
	dst = append(dst, itemSnapshot)
	// The length is written last, in a fixed number of bytes.
	at := len(dst)
	dst = append(dst, 0x80, 0x80, 0x80, 0x00)
	dst = binary.AppendUvarint(dst, uint64(len(id.name)))
	dst = append(dst, id.name...)
	dst = binary.AppendVarint(dst, id.made)
	dst = c.appendTo(dst, base)
	size := len(dst) - at - 4
	for i := range 4 {
		dst[at+i] |= byte(size>>(7*i)) & 0x7f
	}
	return dst
}

// appendGone encodes that a handle is free.
func appendGone(dst []byte, handle uint64) []byte {
	return append(binary.AppendUvarint(dst, handle), itemGone)
}

const (
	cursorVersion = 1
	// keptVersion is the version of a cursor with kept records, which it ends with. Only Topics that
	// need FeatureAckRemovals have any.
	keptVersion = 2
	cursorLost  = 1 << 0
)

// appendTo encodes the cursor.
func (c *cursor) appendTo(dst []byte, base int64) []byte {
	flags := byte(0)
	if c.lost {
		flags |= cursorLost
	}
	version := byte(cursorVersion)
	if len(c.kept) > 0 {
		version = keptVersion
	}
	dst = append(dst, version, flags)
	dst = binary.AppendUvarint(dst, c.sequence)
	dst = binary.AppendUvarint(dst, c.offset)
	dst = binary.AppendUvarint(dst, c.until)
	dst = binary.AppendUvarint(dst, uint64(c.pending.live))
	offset, sequence := uint64(0), uint64(0)
	for i := c.pending.head; i < len(c.pending.list); i++ {
		d := &c.pending.list[i]
		if d.removed {
			continue
		}
		dst = binary.AppendUvarint(dst, d.offset-offset)
		dst = binary.AppendUvarint(dst, d.sequence-sequence)
		dst = binary.AppendUvarint(dst, uint64(d.count))
		dst = binary.AppendVarint(dst, d.deadline-base)
		offset, sequence = d.offset, d.sequence
	}
	dst = appendOffsets(dst, c.ahead)
	if len(c.kept) > 0 {
		dst = appendOffsets(dst, c.kept)
	}
	return dst
}

// appendOffsets encodes the number of some sorted offsets, and their differences.
func appendOffsets(dst []byte, offsets []uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(offsets)))
	before := uint64(0)
	for _, o := range offsets {
		dst = binary.AppendUvarint(dst, o-before)
		before = o
	}
	return dst
}

// decoder decodes values from the front of data. bad is set if one is missing or invalid.
type decoder struct {
	data []byte
	bad  bool
}

func (r *decoder) uint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *decoder) int() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *decoder) byte() byte { return r.bytes(1)[0] }

func (r *decoder) bytes(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return make([]byte, min(n, 1))
	}
	b := r.data[:n:n]
	r.data = r.data[n:]
	return b
}

// item is one decoded item of a state log.
type item struct {
	handle   uint64
	op       op
	snapshot bool
	gone     bool
	id       identity
	cursor   cursor
}

var errMalformed = fmt.Errorf("an entry of the state log is malformed")

// next decodes the next item.
func (r *decoder) next(it *item, base int64) error {
	*it = item{handle: r.uint()}
	switch kind := r.byte(); {
	case r.bad:
	case kind == itemGone:
		it.gone = true
	case kind == itemSnapshot:
		it.snapshot = true
		inner := decoder{data: r.bytes(r.uint())}
		it.id.name = string(inner.bytes(inner.uint()))
		it.id.made = inner.int()
		if r.bad = r.bad || inner.bad; r.bad {
			break
		}
		return it.cursor.restore(inner.data, base)
	case kind > 0 && kind < byte(opKinds):
		o := op{kind: opKind(kind), offset: r.uint(), count: 1}
		if o.kind.counted() {
			o.count = r.uint()
		}
		if o.kind.timed() {
			o.deadline = base + r.int()
		}
		if o.count == 0 || o.count > mostPending || o.offset > math.MaxUint64-mostPending {
			return errMalformed
		}
		it.op = o
	default:
		return fmt.Errorf("an entry of the state log is of a kind (%d) that this version doesn't know", kind)
	}
	if r.bad {
		return errMalformed
	}
	return nil
}

// restore decodes a cursor encoded by appendTo.
func (c *cursor) restore(data []byte, base int64) error {
	r := decoder{data: data}
	version := r.byte()
	if version != cursorVersion && version != keptVersion {
		return fmt.Errorf("a cursor of version %d; this program knows %d and %d", version, cursorVersion, keptVersion)
	}
	*c = cursor{lost: r.byte()&cursorLost != 0, sequence: r.uint(), offset: r.uint(), until: r.uint()}
	n := r.uint()
	if n > mostPending {
		return errMalformed
	}
	offset, sequence := uint64(0), uint64(0)
	for range n {
		d := delivery{}
		step := r.uint()
		offset += step
		sequence += r.uint()
		d.offset, d.sequence, d.count, d.deadline = offset, sequence, uint32(r.uint()), base+r.int()
		if r.bad || step == 0 || offset > c.offset {
			return errMalformed
		}
		if d.count > 1 {
			c.repeated++
		}
		c.pending.push(d)
	}
	c.ahead = r.offsets(mostAhead)
	if len(c.ahead) > 0 && c.ahead[0] <= c.offset {
		return errMalformed
	}
	if version == keptVersion {
		c.kept = r.offsets(mostKept)
		if last := len(c.kept) - 1; last >= 0 && c.kept[last] > c.offset {
			return errMalformed
		}
	}
	if r.bad || len(r.data) > 0 {
		return errMalformed
	}
	return nil
}

// offsets decodes what appendOffsets encoded: at most so many offsets, sorted and not 0.
func (r *decoder) offsets(most uint64) (all []uint64) {
	n := r.uint()
	r.bad = r.bad || n > most
	for at := uint64(0); n > 0 && !r.bad; n-- {
		step := r.uint()
		if at += step; step == 0 || at < step {
			r.bad = true
		}
		all = append(all, at)
	}
	return all
}
