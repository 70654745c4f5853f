package forward

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// Origins are what a shard's log says of the brokers that forwarded messages to its leaders: which of their sequence
// numbers are kept, and at which offsets. With it a leader answers what comes again as it was answered first, and keeps
// nothing twice. A leader fills it as it judges, a follower from the batches that it appends; so whoever is elected has it.
//
// It is pure: no clock, no I/O, no lock. Times are Mono's, so that no clock that jumps makes it forget. Rules of what is
// forgotten, in leaders and followers alike:
//
//  1. What a source says is settled (its floor) is forgotten at once: it never comes again.
//  2. A source that was silent for OriginTime is forgotten. A sender begins no round with a message that is older than
//     OutboxTime, and a link that brings nothing is cut after 3 s, so nothing of that source that stands in the log can come again.
//  3. It is forgotten at the second look that finds it silent, and not heard of in between. A process that was stopped for longer than
//     OriginTime takes what had come to it meanwhile before the second look.
//  4. Since moves up to the time before which all forgotten sources were silent.
type Origins struct {
	by    map[uint64]*Origin
	Since int64 // it has seen all that was appended after
	noted int   // batches since the silent sources were looked for
}

// Origin is one source: the life of a broker's process.
type Origin struct {
	Last    uint64 // up to which messages were judged
	floor   uint64 // below which the source wants to know nothing any more
	Heard   int64  // when it was last heard of
	silent  int64  // Heard, when it was last found silent
	placed  bool   // some of its messages stand in what was seen of the log; so those that stand before have smaller numbers than last
	kept    []Span
	Settled map[uint64]Outcome // what was judged and not kept, by this leader only
}

// Span is messages with consecutive numbers whose records stand back to back.
type Span struct {
	First, Offset uint64
	Count         uint32
	Records       uint32 // that the one message carried; 0: each message is a record
}

func (k *Span) End() uint64 { return k.First + uint64(k.Count) }

// lastOffset is the offset of the last record.
func (k *Span) lastOffset() uint64 { return k.Offset + uint64(k.Count) - 1 }

// Outcome is the answer to a message that was not kept.
type Outcome struct {
	Offset    uint64
	Duplicate bool  // of the one at offset
	Err       error // else why it was refused; nil: it was not meant to be kept
}

// Of is what is known Of a source, which says that all below floor is settled.
func (o *Origins) Of(source, floor uint64) *Origin {
	from := o.by[source]
	if from == nil {
		if o.by == nil {
			o.by = map[uint64]*Origin{}
		}
		from = &Origin{}
		o.by[source] = from
	}
	from.forget(floor)
	return from
}

// forget lets go of what is below floor.
func (o *Origin) forget(floor uint64) {
	if floor <= o.floor {
		return
	}
	o.floor, o.Last = floor, max(o.Last, floor-1)
	n := 0
	for n < len(o.kept) && o.kept[n].End() <= floor {
		n++
	}
	if n > 0 {
		o.kept = slices.Delete(o.kept, 0, n)
	}
	if len(o.Settled) > 0 {
		for seq := range o.Settled {
			if seq < floor {
				delete(o.Settled, seq)
			}
		}
	}
}

// Find returns where a message stands, and how many records it carried.
func (o *Origin) Find(seq uint64) (offset uint64, records uint32, ok bool) {
	i, found := slices.BinarySearchFunc(o.kept, seq, func(k Span, seq uint64) int {
		switch {
		case k.End() <= seq:
			return -1
		case k.First > seq:
			return 1
		}
		return 0
	})
	if !found {
		return 0, 0, false
	}
	k := &o.kept[i]
	if k.Records > 0 {
		return k.Offset + uint64(k.Records) - 1, k.Records, true
	}
	return k.Offset + seq - k.First, 0, true
}

// Keep notes that messages are kept: with their records from offset on.
func (o *Origin) Keep(k Span, now int64) {
	o.Last, o.Heard, o.placed = max(o.Last, k.End()-1), now, true
	if n := len(o.kept); n > 0 {
		before := &o.kept[n-1]
		if k.First < before.End() {
			return // it is known
		}
		if before.Records == 0 && k.Records == 0 && before.End() == k.First && before.Offset+uint64(before.Count) == k.Offset {
			before.Count += k.Count
			return
		}
	}
	o.kept = append(o.kept, k)
}

// Settle notes that a message was judged and is not kept.
func (o *Origin) Settle(seq uint64, out Outcome) {
	if o.Settled == nil {
		o.Settled = map[uint64]Outcome{}
	}
	o.Settled[seq] = out
}

// truncate forgets the records from end on, which the log doesn't hold any more.
func (o *Origin) truncate(end uint64) {
	for n := len(o.kept); n > 0; n-- {
		switch k := &o.kept[n-1]; {
		case k.Offset >= end || k.Records > 0 && k.Offset+uint64(k.Records) > end:
			o.kept, o.placed = o.kept[:n-1], n > 1
		case k.Records == 0 && k.lastOffset() >= end:
			k.Count = uint32(end - k.Offset)
			return
		default:
			return
		}
	}
}

// Truncate is what happened to the log.
func (o *Origins) Truncate(end uint64) {
	for _, from := range o.by {
		from.truncate(end)
	}
	o.HandOver()
}

// HandOver forgets what only who led knew, since others lead now: what was judged and not kept.
func (o *Origins) HandOver() {
	for _, from := range o.by {
		from.Settled = nil
		from.Last = max(from.floor, 1) - 1
		if n := len(from.kept); n > 0 {
			from.Last = max(from.Last, from.kept[n-1].End()-1)
		}
	}
}

// Reset is what happened to the log: it is empty, and what comes is perhaps not all that there was.
func (o *Origins) Reset(now int64) { *o = Origins{Since: now} }

// Knows says whether it would know of a message with a number beyond a source's last, if it was kept: messages of a source stand in
// the order of their numbers, and those that may come again are no older than a time.
func (o *Origins) Knows(from *Origin, oldest int64) bool { return from.placed || o.Since <= oldest }

// Note takes over what a batch of the log says.
func (o *Origins) Note(b log.Batch, now int64) {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return
		}
		if e.Type == ExtensionType {
			_, _, packed := b.Packed()
			o.noteForwarded(e.Data, b.Base(), b.Count(), packed, now)
			return
		}
	}
}

// noteForwarded takes over what an extension says of a batch's records. packed says that they are of one message.
func (o *Origins) noteForwarded(data []byte, base uint64, records int, packed bool, now int64) {
	if len(data) < 8 {
		return // of a version to come
	}
	source := binary.BigEndian.Uint64(data)
	floor, n := binary.Uvarint(data[8:])
	if n <= 0 {
		return
	}
	data = data[8+n:]
	from := o.Of(source, floor)
	offset, seq := base, floor
	for len(data) > 0 && offset < base+uint64(records) {
		skip, n := binary.Uvarint(data)
		if n <= 0 {
			return
		}
		count, m := binary.Uvarint(data[n:])
		if m <= 0 || count == 0 || count > uint64(records) {
			return
		}
		data = data[n+m:]
		seq += skip
		k := Span{First: seq, Offset: offset, Count: uint32(count)}
		if packed {
			k.Count, k.Records = 1, uint32(records)
		}
		from.Keep(k, now)
		seq += count
		offset += count
	}
	if o.noted++; o.noted >= 1024 {
		o.Expire(now - int64(OriginTime))
	}
}

// Expire forgets the sources that have been silent since before a time, if the last call found them silent, too.
func (o *Origins) Expire(before int64) {
	o.noted = 0
	for source, from := range o.by {
		switch {
		case from.Heard >= before:
		case from.silent != from.Heard:
			from.silent = from.Heard
		default:
			delete(o.by, source)
			o.Since = max(o.Since, before)
		}
	}
}

// Sources is how many sources are known.
func (o *Origins) Sources() int { return len(o.by) }

// ExtensionType is the type of the extension that says where a batch's messages were forwarded from: u64 source, uvarint
// floor, and then uvarint pairs, of how many sequence numbers were skipped, the first time from floor on, and how many then follow.
const ExtensionType = 2

// AppendExtension encodes that extension; spans are of one batch.
func AppendExtension(dst []byte, source, floor uint64, spans []Span) []byte {
	dst = binary.BigEndian.AppendUint64(dst, source)
	dst = binary.AppendUvarint(dst, floor)
	at := floor
	for i := range spans {
		dst = binary.AppendUvarint(dst, spans[i].First-at)
		dst = binary.AppendUvarint(dst, uint64(spans[i].Count))
		at = spans[i].End()
	}
	return dst
}

// ReadOrigins reads them from the end of a log, back to OriginTime before a time, but no more than originBytes. Without a
// time the records' ages are not known: what is not read may be as young as what is.
func ReadOrigins(l *log.Log, wall time.Time, now int64) (*Origins, error) {
	o := &Origins{Since: math.MinInt64}
	start, end, _ := l.Offsets()
	from, since, budget, missed := end, wall.Add(-OriginTime), int64(originBytes), false
	infos := l.SegmentInfos()
	for i := len(infos) - 1; i >= 0; i-- {
		info := &infos[i]
		if info.End == info.Base {
			continue
		}
		if !wall.IsZero() && info.Last.Before(since) {
			o.Since = now - int64(OriginTime)
			break
		}
		if from = info.Base; info.Bytes > budget {
			from = max(from, info.End-uint64(float64(info.End-info.Base)*float64(budget)/float64(info.Bytes)))
			missed = true
			break
		}
		budget -= info.Bytes
	}
	if from = max(from, start); from == start && start > 1 {
		missed = true // what was let go of may be no older
	}
	for c := l.NewCursor(from); c.Next() < end; {
		at := c.Next()
		v, err := c.Read(readAtOnce)
		if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > at {
			missed = true
			c.Seek(damage.Next)
			continue
		}
		if err != nil {
			return nil, err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if missed {
				if o.Since, missed = now, false; !wall.IsZero() {
					o.Since = now - wall.UnixNano() + b.Time()
				}
			}
			o.Note(b, now)
		}
		v.Release()
	}
	if missed {
		o.Since = now
	}
	return o, nil
}

// born is when mono's time begins.
var born = time.Now()

// Mono is a time that only goes forward, whatever becomes of the wall's.
func Mono() int64 { return int64(time.Since(born)) }
