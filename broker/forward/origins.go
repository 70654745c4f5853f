package forward

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// Origins is the table of forwarded messages that a shard's log contains: by source, the sequence
// numbers and their offsets. With it a leader answers a message that is sent again as the first
// time, and keeps nothing twice. A leader fills it as it judges messages, a follower from the
// batches that it appends, so every elected leader has it.
//
// It is pure: no clock, no I/O, no lock. Times are Mono's, so that a jump of a clock deletes
// nothing. Entries are deleted by the same rules in leaders and followers:
//
//  1. Numbers below a source's floor are deleted at once. The source has settled them and never
//     sends them again.
//  2. A source that was silent for OriginTime is deleted. A sender begins no round with a message
//     older than OutboxTime, and a silent link is closed after 3 s, so none of that source's
//     messages in the log can be sent again.
//  3. It is deleted by the second Expire that finds it silent, without a sign of life in between. A
//     process that was stopped for longer than OriginTime handles what arrived meanwhile before the
//     second Expire.
//  4. Since moves to the time before which all deleted sources were silent.
type Origins struct {
	by    map[uint64]*Origin
	Since int64 // everything appended after this time was seen
	noted int   // batches since the last Expire
}

// Origin is one source: one life of a broker process.
type Origin struct {
	Last   uint64 // the highest number that was judged
	floor  uint64 // the source has settled all numbers below
	Heard  int64  // when it was last heard of
	silent int64  // Heard, when it was last found silent
	// inLog: some of its messages stand in the seen part of the log, so those before it have
	// numbers below Last, and nothing behind them was missed.
	inLog   bool
	kept    []Span
	epoch   uint64             // for which it sent last
	fresh   uint64             // it has sent numbers from here on for that epoch only
	Settled map[uint64]Outcome // judged and not kept, by this leader only
}

// Span is a range of messages with consecutive numbers and adjacent records.
type Span struct {
	First, Offset uint64
	Count         uint32
	Records       uint32 // of a single message that carried records; 0: each message is one record
}

// End returns the number behind the last message.
func (k *Span) End() uint64 { return k.First + uint64(k.Count) }

// lastOffset returns the offset of the last record.
func (k *Span) lastOffset() uint64 { return k.Offset + uint64(k.Count) - 1 }

// Outcome is the answer to a message that was not kept.
type Outcome struct {
	Offset    uint64
	Duplicate bool  // of the record at Offset
	Err       error // else why it was refused; nil: no answer is expected
}

// Of returns the entry of a source, which has settled all numbers below floor. It creates the entry
// if needed.
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

// forget deletes the numbers below floor.
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

// Find returns the offset of a message and the number of records that it carried.
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

// Keep records that messages were kept.
func (o *Origin) Keep(k Span, now int64) {
	o.Last, o.Heard, o.inLog = max(o.Last, k.End()-1), now, true
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

// Settle records the outcome of a message that was judged and not kept.
func (o *Origin) Settle(seq uint64, out Outcome) {
	if o.Settled == nil {
		o.Settled = map[uint64]Outcome{}
	}
	o.Settled[seq] = out
}

// Refused reports whether this leader has judged a message and did not keep it. It is known while
// the number is not below the source's floor.
func (o *Origin) Refused(seq uint64) bool {
	out, ok := o.Settled[seq]
	return ok && !out.Duplicate
}

// Arrived notes that messages arrived that were sent for an epoch. The source never sent numbers
// from below on before. So it has sent them to the leader of that epoch only, as long as it sends
// for that epoch: also when it sends them again because the leader was not ready to judge them.
func (o *Origin) Arrived(epoch, below uint64) {
	if o.epoch != epoch {
		o.epoch, o.fresh = epoch, below
	}
}

// Fresh reports whether no leader of another epoch got a message that arrived last.
func (o *Origin) Fresh(seq uint64) bool { return seq >= o.fresh }

// truncate deletes the records from end on, which the log lacks now.
func (o *Origin) truncate(end uint64) {
	for n := len(o.kept); n > 0; n-- {
		switch k := &o.kept[n-1]; {
		case k.Offset >= end || k.Records > 0 && k.Offset+uint64(k.Records) > end:
			o.kept, o.inLog = o.kept[:n-1], n > 1
		case k.Records == 0 && k.lastOffset() >= end:
			k.Count = uint32(end - k.Offset)
			return
		default:
			return
		}
	}
}

// Truncate follows a truncation of the log to end.
func (o *Origins) Truncate(end uint64) {
	for _, from := range o.by {
		from.truncate(end)
	}
	o.HandOver()
}

// HandOver deletes what only the leader knew, when another broker leads: messages that were judged
// and not kept.
func (o *Origins) HandOver() {
	for _, from := range o.by {
		from.Settled = nil
		from.Last = max(from.floor, 1) - 1
		if n := len(from.kept); n > 0 {
			from.Last = max(from.Last, from.kept[n-1].End()-1)
		}
	}
}

// Reset follows a reset of the log: it is empty, and may be filled with only a part of what there
// was.
func (o *Origins) Reset(now int64) { *o = Origins{Since: now} }

// Knows reports whether a message of the source with a number above Last would be known if it was
// kept. oldest is the age limit of messages that may be sent again.
func (o *Origins) Knows(from *Origin, oldest int64) bool { return from.inLog || o.Since <= oldest }

// Note adds what a batch of the log says.
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

// noteForwarded adds what an extension says of a batch's records. packed reports that one message
// carried them.
func (o *Origins) noteForwarded(data []byte, base uint64, records int, packed bool, now int64) {
	if len(data) < 8 {
		return // a later version
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
		// One number for several records: they are of one message.
		if packed || count == 1 && len(data) == 0 && offset == base && records > 1 {
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

// Expire deletes the sources that have been silent since the given time, if the last call found
// them silent, too.
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

// Sources returns the number of known sources.
func (o *Origins) Sources() int { return len(o.by) }

// ExtensionType is the type of the extension that names the source of a batch's messages: u64
// source, uvarint floor, then uvarint pairs: how many numbers are skipped, beginning at floor, and
// how many follow.
const ExtensionType = 2

// AppendExtension encodes that extension. spans are those of one batch.
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

// ReadOrigins reads the table from the end of a log, back to OriginTime before wall, and at most
// originBytes. A zero wall means that the ages of records are unknown, so what was not read may be
// as recent.
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
		missed = true // what retention deleted may be as recent
	}
	for c := l.NewCursor(from); c.Next() < end; {
		at := c.Next()
		v, err := c.Read(readAtOnce)
		if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > at {
			missed = true
			o.missMore()
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

// missMore notes that a part of the log can't be read: it may have higher numbers of all sources
// than those that were seen before it.
func (o *Origins) missMore() {
	for _, from := range o.by {
		from.inLog = false
	}
}

// born is the zero of Mono.
var born = time.Now()

// Mono returns nanoseconds that never go back, independent of the wall clock.
func Mono() int64 { return int64(time.Since(born)) }
