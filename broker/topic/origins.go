package topic

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// origins are what a shard's log says of the brokers that forwarded messages to its leaders: which of their sequence
// numbers are kept, and at which offsets. With it a leader answers what comes again as it was answered first, and keeps
// nothing twice. A leader fills it as it judges, a follower from the batches that it appends; so whoever is elected has it.
//
// It is pure: no clock, no I/O, no lock. What a source says is settled (floor) is forgotten, and so is a source that was
// silent for originTime. Times are mono's, so that no clock that jumps makes it forget.
type origins struct {
	by    map[uint64]*origin
	since int64 // it has seen all that was appended after
	noted int   // batches since the silent sources were looked for
}

// origin is one source: the life of a broker's process.
type origin struct {
	last    uint64 // up to which messages were judged
	floor   uint64 // below which the source wants to know nothing any more
	heard   int64  // when it was last heard of
	placed  bool   // some of its messages stand in what was seen of the log; so those that stand before have smaller numbers than last
	kept    []keptSpan
	settled map[uint64]outcome // what was judged and not kept, by this leader only
}

// keptSpan is messages with consecutive numbers whose records stand back to back.
type keptSpan struct {
	first, offset uint64
	count         uint32
	records       uint32 // that the one message carried; 0: each message is a record
}

func (k *keptSpan) end() uint64 { return k.first + uint64(k.count) }

// lastOffset is the offset of the last record.
func (k *keptSpan) lastOffset() uint64 { return k.offset + uint64(k.count) - 1 }

// outcome is the answer to a message that was not kept.
type outcome struct {
	offset    uint64
	duplicate bool  // of the one at offset
	err       error // else why it was refused; nil: it was not meant to be kept
}

// of is what is known of a source, which says that all below floor is settled.
func (o *origins) of(source, floor uint64) *origin {
	from := o.by[source]
	if from == nil {
		if o.by == nil {
			o.by = map[uint64]*origin{}
		}
		from = &origin{}
		o.by[source] = from
	}
	from.forget(floor)
	return from
}

// forget lets go of what is below floor.
func (o *origin) forget(floor uint64) {
	if floor <= o.floor {
		return
	}
	o.floor, o.last = floor, max(o.last, floor-1)
	n := 0
	for n < len(o.kept) && o.kept[n].end() <= floor {
		n++
	}
	if n > 0 {
		o.kept = slices.Delete(o.kept, 0, n)
	}
	if len(o.settled) > 0 {
		for seq := range o.settled {
			if seq < floor {
				delete(o.settled, seq)
			}
		}
	}
}

// find returns where a message stands, and how many records it carried.
func (o *origin) find(seq uint64) (offset uint64, records uint32, ok bool) {
	i, found := slices.BinarySearchFunc(o.kept, seq, func(k keptSpan, seq uint64) int {
		switch {
		case k.end() <= seq:
			return -1
		case k.first > seq:
			return 1
		}
		return 0
	})
	if !found {
		return 0, 0, false
	}
	k := &o.kept[i]
	if k.records > 0 {
		return k.offset + uint64(k.records) - 1, k.records, true
	}
	return k.offset + seq - k.first, 0, true
}

// keep notes that messages are kept: with their records from offset on.
func (o *origin) keep(k keptSpan, now int64) {
	o.last, o.heard, o.placed = max(o.last, k.end()-1), now, true
	if n := len(o.kept); n > 0 {
		before := &o.kept[n-1]
		if k.first < before.end() {
			return // it is known
		}
		if before.records == 0 && k.records == 0 && before.end() == k.first && before.offset+uint64(before.count) == k.offset {
			before.count += k.count
			return
		}
	}
	o.kept = append(o.kept, k)
}

// settle notes that a message was judged and is not kept.
func (o *origin) settle(seq uint64, out outcome) {
	if o.settled == nil {
		o.settled = map[uint64]outcome{}
	}
	o.settled[seq] = out
}

// truncate forgets the records from end on, which the log doesn't hold any more.
func (o *origin) truncate(end uint64) {
	for n := len(o.kept); n > 0; n-- {
		switch k := &o.kept[n-1]; {
		case k.offset >= end || k.records > 0 && k.offset+uint64(k.records) > end:
			o.kept, o.placed = o.kept[:n-1], n > 1
		case k.records == 0 && k.lastOffset() >= end:
			k.count = uint32(end - k.offset)
			return
		default:
			return
		}
	}
}

// truncate is what happened to the log.
func (o *origins) truncate(end uint64) {
	for _, from := range o.by {
		from.truncate(end)
	}
	o.handOver()
}

// handOver forgets what only who led knew, since others lead now: what was judged and not kept.
func (o *origins) handOver() {
	for _, from := range o.by {
		from.settled = nil
		from.last = max(from.floor, 1) - 1
		if n := len(from.kept); n > 0 {
			from.last = max(from.last, from.kept[n-1].end()-1)
		}
	}
}

// reset is what happened to the log: it is empty, and what comes is perhaps not all that there was.
func (o *origins) reset(now int64) { *o = origins{since: now} }

// knows says whether it would know of a message with a number beyond a source's last, if it was kept: messages of a source stand in
// the order of their numbers, and those that may come again are no older than a time.
func (o *origins) knows(from *origin, oldest int64) bool { return from.placed || o.since <= oldest }

// note takes over what a batch of the log says.
func (o *origins) note(b log.Batch, now int64) {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return
		}
		if e.Type == forwardedFrom {
			_, _, packed := b.Packed()
			o.noteForwarded(e.Data, b.Base(), b.Count(), packed, now)
			return
		}
	}
}

// noteForwarded takes over what an extension says of a batch's records. packed says that they are of one message.
func (o *origins) noteForwarded(data []byte, base uint64, records int, packed bool, now int64) {
	if len(data) < 8 {
		return // of a version to come
	}
	source := binary.BigEndian.Uint64(data)
	floor, n := binary.Uvarint(data[8:])
	if n <= 0 {
		return
	}
	data = data[8+n:]
	from := o.of(source, floor)
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
		k := keptSpan{first: seq, offset: offset, count: uint32(count)}
		if packed {
			k.count, k.records = 1, uint32(records)
		}
		from.keep(k, now)
		seq += count
		offset += count
	}
	if o.noted++; o.noted >= 1024 {
		o.expire(now - int64(originTime))
	}
}

// expire forgets the sources that were silent since before a time.
func (o *origins) expire(before int64) {
	o.noted = 0
	for source, from := range o.by {
		if from.heard < before {
			delete(o.by, source)
		}
	}
}

// forwardedFrom is the type of the extension that says where a batch's messages were forwarded from: u64 source, uvarint
// floor, and then uvarint pairs, of how many sequence numbers were skipped, the first time from floor on, and how many then follow.
const forwardedFrom = 2

// appendForwardedFrom encodes that extension; spans are of one batch.
func appendForwardedFrom(dst []byte, source, floor uint64, spans []keptSpan) []byte {
	dst = binary.BigEndian.AppendUint64(dst, source)
	dst = binary.AppendUvarint(dst, floor)
	at := floor
	for i := range spans {
		dst = binary.AppendUvarint(dst, spans[i].first-at)
		dst = binary.AppendUvarint(dst, uint64(spans[i].count))
		at = spans[i].end()
	}
	return dst
}

// readOrigins reads them from the end of a log, back to originTime ago, but no more than originBytes.
func readOrigins(l *log.Log, wall time.Time, now int64) (*origins, error) {
	o := &origins{since: math.MinInt64}
	start, end, _ := l.Offsets()
	from, since, budget, missed := end, wall.Add(-originTime), int64(originBytes), false
	infos := l.SegmentInfos()
	for i := len(infos) - 1; i >= 0; i-- {
		info := &infos[i]
		if info.End == info.Base {
			continue
		}
		if info.Last.Before(since) {
			o.since = now - int64(originTime)
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
		v, err := c.Read(readBytes)
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
				o.since, missed = now-wall.UnixNano()+b.Time(), false
			}
			o.note(b, now)
		}
		v.Release()
	}
	if missed {
		o.since = now
	}
	return o, nil
}

// born is when mono's time begins.
var born = time.Now()

// mono is a time that only goes forward, whatever becomes of the wall's.
func mono() int64 { return int64(time.Since(born)) }
