package records

import (
	"encoding/binary"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Query selects records of a shard.
type Query struct {
	Offset  uint64 // of the first; 0: the first that is kept
	Records int    // how many at most
	// Bytes is about how many bytes of records are read, lengths included; at least one record, if
	// it fits into Most.
	Bytes int
	Most  int
	Full  bool // with subjects, times and headers
	// Attributes: with those of its subject that a record was stored with. Only with Full.
	Attributes bool
	Gaps       bool // offsets may be left out in between, see Range
	Pin        *Pin // nil: what can be read now; otherwise what is pinned
	// Sees reports whether records of a subject may be returned. It keeps no subject. nil: all may.
	Sees func(subject []byte) bool
}

// Range is what was read: records from First on, densely, each behind its length. Where compaction
// has left out some, or some were removed, an answer ends, and the next one begins behind them; or,
// if it was asked for Gaps and began where some are left out, it is Gapped and goes on, and before
// the length of each stands how many offsets are left out before it: none, of the first.
type Range struct {
	Gapped            bool
	Hidden            bool   // it ends before a record that Query.Sees refuses; of Read
	First, Next, High uint64 // Next is where to go on
	Count             int
	Time              int64 // to which the times in the full form are added
}

// BulkReader reads many records at once. One goroutine uses it at a time.
type BulkReader struct {
	memory []byte // of files, where the answer's can't be used
	entry  []byte // the fields before a record in the full form
}

// ReadRoom is how much more than a query's Bytes the memory for many records should have. Then a
// file is read right into it, and records that stand in the log as they do in an answer are not
// copied.
const ReadRoom = limits.IndexInterval + 4<<10

// readInPlace is from how many bytes on that is worth it.
const readInPlace = 64 << 10

// Read reads records into the memory behind dst, at its end or later, and returns them alone. There
// may be none. It may read the disk.
//
// It ends before a record that the query does not see. ReadJudged goes past such records.
//
// A *OffsetError and a *SizeError are this package's; a *publish.NotServedError says why the shard
// is not served; a *log.CorruptError says where to go on.
func (r *BulkReader) Read(s *Reader, q Query, dst []byte) ([]byte, Range, error) {
	start, high := s.source.Offsets()
	if q.Pin != nil {
		start, high = q.Pin.Start, q.Pin.High
	}
	if q.Offset == 0 {
		q.Offset = start
	}
	got := Range{First: q.Offset, Next: q.Offset, High: high}
	if q.Offset < start || q.Offset > high {
		return nil, got, &OffsetError{Topic: s.name, Offset: q.Offset, Start: start, High: high}
	}
	g := gathering{Query: q, Range: got, passed: s.passed(), dst: dst[len(dst):], entry: r.entry[:0]}
	err := g.gather(s.data.NewCursor(q.Offset), r)
	r.entry = g.entry[:0]
	if g.Count == 0 {
		g.First = g.Next
	}
	err = s.failure(err, high)
	if g.Count > 0 { // the next read, from there, returns the error
		return g.dst, g.Range, nil
	}
	return nil, g.Range, err
}

// failure is the error of a read that ended with err.
func (s *Reader) failure(err error, high uint64) error {
	switch e := err.(type) {
	case nil:
	case *log.RangeError: // retention was faster
		return &OffsetError{Topic: s.name, Offset: e.Asked, Start: e.Start, High: high}
	case *SizeError:
		e.Topic = s.name
	default:
		return s.source.Unreadable(err)
	}
	return err
}

// gathering is one Read under way.
type gathering struct {
	Query
	Range
	passed  *removal.Set // records that are left out; nil: none
	dst     []byte       // the records; the answer's memory goes on behind them
	entry   []byte
	subject []byte // of the record before, in the full form
	stamp   []byte // attributes of the last record with some
	behind  uint64 // the record before
	done    bool
}

func (g *gathering) gather(c *log.Cursor, r *BulkReader) error {
	for !g.done && g.Next < g.High && g.Count < g.Query.Records && g.room() > 0 {
		if g.passed != nil {
			if g.Next = min(g.passed.Next(g.Next), g.High); g.Next == g.High || g.after(g.Next) {
				break
			}
		}
		c.Seek(g.Next)
		// A file is read into what follows the records. Taking records from there, in order, never
		// overtakes what is still to be taken: in the plain form a record is no longer than it is
		// in the log. With gaps named it may be longer than in a batch that is not sparse.
		spare := g.dst[len(g.dst):cap(g.dst)]
		if g.Full || g.Gaps && g.passed != nil || g.room() < readInPlace || len(spare) < g.room()+ReadRoom {
			spare = nil
			c.Lend(r.memory)
		} else {
			c.Lend(spare)
		}
		err := g.view(c, spare)
		if spare == nil {
			r.memory = c.Lend(nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// view takes what one look at the log brings. What stands in spare is overwritten as far as it was
// taken.
func (g *gathering) view(c *log.Cursor, spare []byte) error {
	v, err := c.Read(max(g.room(), 1))
	if err != nil {
		return err
	}
	defer v.Release()
	for b, ok := v.Next(); ok && !g.done && err == nil; b, ok = v.Next() {
		if b.Base() >= g.High {
			break
		}
		subject, lengths, packed := b.Packed()
		if packed && g.hides(subject) {
			break
		}
		some := g.passed != nil && g.passed.Count(max(g.Next, b.Base()), b.End()) > 0
		packed = packed && !some
		if g.Count == 0 {
			g.Gapped = g.Gaps && (b.Sparse() || some)
		} else if packed && g.Gapped {
			// They can stay as they are, in an answer of their own: without the others they would be
			// longer.
			g.done = true
			break
		}
		if packed && !g.Full {
			if end, ok := v.Position(c, spare); ok && len(g.dst) == 0 {
				g.dst = spare[end-len(lengths) : end-len(lengths)] // they can stay where they are
			}
			err = g.cut(b, lengths)
		} else {
			err = g.walk(b)
		}
	}
	return err
}

// after reports whether something is left out before an offset that is next, which ends an answer
// whose offsets are dense.
func (g *gathering) after(offset uint64) bool {
	g.done = g.done || !g.Gapped && g.Count > 0 && offset > g.First+uint64(g.Count)
	return g.done
}

// hides reports whether records of the subject must not be returned, which ends an answer.
func (g *gathering) hides(subject []byte) bool {
	if g.Sees == nil || g.Sees(subject) {
		return false
	}
	g.Hidden, g.done = true, true
	return true
}

// room is how many bytes are still wanted.
func (g *gathering) room() int { return g.Bytes - len(g.dst) }

// fits reports whether a record of that size, its length included, can be added.
func (g *gathering) fits(size int) bool {
	if size <= g.room() || g.Count == 0 && size <= g.Most {
		return true
	}
	g.done = true
	return false
}

// cut takes over records that stand in the log as they do in an answer. Where all of a batch is
// wanted, nothing is looked at.
func (g *gathering) cut(b log.Batch, lengths []byte) error {
	if g.Next = max(g.Next, b.Base()); g.after(g.Next) {
		return nil
	}
	from, end := g.Next-b.Base(), min(b.End(), g.High)
	whole := from == 0 && end == b.End()
	if g.Count == 0 {
		g.First = g.Next
	}
	if whole && len(lengths) <= g.room() && b.Count() <= g.Query.Records-g.Count {
		g.Count += b.Count()
		g.add(lengths)
		g.Next = end
		return nil
	}
	at, begin := 0, 0
	for range from {
		begin += prefixedSize(lengths[begin:])
	}
	lengths = lengths[begin:]
	for ; g.Next < end; g.Next++ {
		size := prefixedSize(lengths[at:])
		if g.Count == g.Query.Records {
			g.done = true
			break
		}
		if at+size > g.room() && !(g.Count == 0 && size <= g.Most) {
			g.done = true
			if g.Count == 0 {
				return &SizeError{Offset: g.Next, Size: size, Most: g.Most}
			}
			break
		}
		at += size
		g.Count++
	}
	g.add(lengths[:at])
	return nil
}

// add appends records, which may stand there already.
func (g *gathering) add(lengths []byte) {
	if n := len(g.dst); n == 0 && cap(g.dst) >= len(lengths) && len(lengths) > 0 && &g.dst[:1][0] == &lengths[0] {
		g.dst = g.dst[:len(lengths)]
		return
	}
	g.dst = append(g.dst, lengths...)
}

// prefixedSize is the size of the first record with its length. It was checked when it was
// appended, and its checksum since.
func prefixedSize(lengths []byte) int {
	if size := lengths[0]; size < 0x80 {
		return 1 + int(size)
	}
	size, n := binary.Uvarint(lengths)
	return n + int(size)
}

// walk takes over records one by one.
func (g *gathering) walk(b log.Batch) error {
	it, all := b.Records(), min(b.End(), g.High) // b may be overwritten
	var seen []byte                              // the last subject that may be seen
	for r := (log.Record{}); it.Next(&r); {
		switch {
		case r.Offset < g.Next || g.passed != nil && g.passed.Has(r.Offset):
			continue
		case r.Offset >= g.High, g.Count == g.Query.Records, g.after(r.Offset):
			g.done = true
			return nil
		case !shared(seen, r.Subject) && g.hides(r.Subject):
			return nil
		}
		seen = r.Subject
		if err := g.take(&r); err != nil || g.done {
			return err
		}
	}
	if it.Err() != nil {
		return it.Err()
	}
	g.Next = max(g.Next, all)
	return nil
}

// shared reports whether two records of a batch share a subject, in memory. It does not look at
// what stands there: records that were taken since may have overwritten it.
func shared(a, b []byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// take adds a record. If it does not fit, the next answer begins with it.
func (g *gathering) take(r *log.Record) error {
	if g.Count == 0 {
		g.First, g.behind = r.Offset, r.Offset
		g.Time = r.Time
	}
	g.Next = r.Offset
	header, data := protocol.SplitData(r.Data, r.Header)
	entry := g.entry[:0]
	if g.Full {
		entry = binary.AppendVarint(entry, r.Time-g.Time)
		if string(g.subject) == string(r.Subject) {
			entry = append(entry, 0)
		} else {
			entry = append(binary.AppendUvarint(entry, uint64(len(r.Subject))), r.Subject...)
			g.subject = append(g.subject[:0], r.Subject...)
		}
		entry = append(binary.AppendUvarint(entry, uint64(len(header))), header...)
		if g.Attributes {
			entry = g.appendStamp(entry, r.Stamp)
		}
		g.entry = entry
	}
	size := len(entry) + len(data)
	whole := uvarintSize(size) + size
	if g.Gapped {
		whole += uvarintSize(int(r.Offset - g.behind))
	}
	if !g.fits(whole) {
		if g.Count == 0 {
			return &SizeError{Offset: r.Offset, Size: whole, Most: g.Most}
		}
		return nil
	}
	if g.Gapped {
		g.dst = binary.AppendUvarint(g.dst, r.Offset-g.behind)
	}
	g.dst = binary.AppendUvarint(g.dst, uint64(size))
	g.dst = append(append(g.dst, entry...), data...)
	g.Count++
	g.Next++
	g.behind = g.Next
	return nil
}

// appendStamp appends the attributes of a record: 0 for none, 1 for those of the last record that
// had some, or their length and their bytes. JSON of an object has 2 or more.
func (g *gathering) appendStamp(entry, stamp []byte) []byte {
	switch {
	case len(stamp) < 2:
		return append(entry, 0)
	case string(g.stamp) == string(stamp):
		return append(entry, 1)
	}
	g.stamp = append(g.stamp[:0], stamp...)
	return append(binary.AppendUvarint(entry, uint64(len(stamp))), stamp...)
}

func uvarintSize(x int) (n int) {
	for n = 1; x >= 0x80; x >>= 7 {
		n++
	}
	return n
}
