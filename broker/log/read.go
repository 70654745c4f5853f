package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// Cursor reads a log in order. It needs no resources while it isn't used. One goroutine uses it at
// a time.
type Cursor struct {
	log  *Log
	next uint64
	file bool // it reads files only

	// Hints, which hold while that chunk or segment exists.
	chunkID  uint64
	chunkPos int
	seg      *segment
	segPos   int64

	buf []byte
}

// NewCursor returns a cursor that begins at offset.
func (l *Log) NewCursor(offset uint64) *Cursor { return &Cursor{log: l, next: offset} }

// NewFileCursor returns a cursor of sealed segments that reads their files, and not what memory
// still has of them. So it doesn't see records that compaction has removed.
func (l *Log) NewFileCursor(offset uint64) *Cursor {
	return &Cursor{log: l, next: offset, file: true}
}

// Seek moves the cursor to an offset.
func (c *Cursor) Seek(offset uint64) {
	c.next, c.chunkID, c.seg = offset, 0, nil
}

// Next returns the offset at which the next Read begins.
func (c *Cursor) Next() uint64 { return c.next }

// Lend gives the cursor memory to read files into and returns the memory that it had. So cursors
// that are used one after the other can share one buffer. Views of the cursor must have been
// released.
func (c *Cursor) Lend(memory []byte) []byte {
	had := c.buf
	c.buf = memory
	return had
}

// View contains the batches of one Read. The first batch may begin before From. The bytes are valid
// until Release or the next Read of the same cursor.
//
// Bytes of the log's tail are not copied: they are in the memory that the committer writes. Until
// Release they pin one chunk of that memory (1 MiB, or one large batch), so a slow reader should
// hold at most one view. Bytes of a file are in the cursor's own memory.
type View struct {
	From, End uint64
	data      []byte
	chunk     *chunk
	at        int // of data in the cursor's memory
}

// Next returns the next batch.
func (v *View) Next() (Batch, bool) {
	for len(v.data) > 0 {
		f := frame(v.data[:le.Uint32(v.data)])
		v.data = v.data[len(f):]
		v.at += len(f)
		if f.kind() == kindBatch {
			return Batch(f), true
		}
	}
	return nil, false
}

// Position returns where the last batch of Next ends in the memory that was lent to the cursor. ok
// is false if the batch is not in that memory. The lender may change the memory up to there.
func (v *View) Position(c *Cursor, lent []byte) (end int, ok bool) {
	return v.at, v.chunk == nil && cap(c.buf) > 0 && cap(lent) > 0 && &c.buf[:1][0] == &lent[:1][0]
}

// Release releases the bytes.
func (v *View) Release() {
	if v.chunk != nil {
		v.chunk.release()
	}
	v.chunk, v.data = nil, nil
}

// Read returns batches from the cursor's offset on, about max bytes and at least one batch, and
// moves behind them. At the end of the log the view is empty. A *RangeError means that the log
// doesn't have the offset. A *CorruptError has the damaged offsets, and where to continue.
func (c *Cursor) Read(max int) (View, error) {
	l := c.log
	for range 3 {
		l.mu.Lock()
		if c.next < l.start || c.next > l.end {
			defer l.mu.Unlock()
			return View{}, &RangeError{Log: l.name, Asked: c.next, Start: l.start, End: l.end}
		}
		if c.next == l.end {
			l.mu.Unlock()
			return View{From: c.next, End: c.next}, nil
		}
		gone, ok := l.man.now.Load().disownedFrom(c.next)
		if ok && gone.From <= c.next {
			l.mu.Unlock()
			return View{}, c.disowned(gone)
		}
		if !c.file && len(l.tail) > 0 && c.next >= l.tail[0].first {
			return c.fromMemory(max)
		}
		s, limit, index := l.segmentOf(c.next)
		l.mu.Unlock()
		if s == nil {
			return View{}, l.missing(c.next)
		}
		v, err := c.fromDisk(s, limit, index, max, gone)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the segment was removed; the log may begin later now
		}
		return v, err
	}
	return View{}, l.missing(c.next)
}

// fromMemory reads from the log's tail. l.mu is held, and released.
func (c *Cursor) fromMemory(max int) (View, error) {
	l := c.log
	i := len(l.tail) - 1
	for l.tail[i].first > c.next {
		i--
	}
	ch := l.tail[i]
	ch.retain()
	id, data, index := ch.id, ch.buf, ch.index
	l.mu.Unlock()
	pos := c.chunkPos
	if c.chunkID != id {
		pos = int(seek(index, c.next))
	}
	v := View{From: c.next, End: c.next, chunk: ch}
	from := -1
	for pos < len(data) {
		f := frame(data[pos : pos+int(le.Uint32(data[pos:]))])
		if from >= 0 && pos+len(f)-from > max {
			break
		}
		if f.kind() == kindBatch && Batch(f).End() > c.next {
			if from < 0 {
				from = pos
			}
			v.End = Batch(f).End()
		}
		pos += len(f)
	}
	if from < 0 {
		v.Release()
		return v, fmt.Errorf("log %s: offset %d is not where it was", l.name, c.next)
	}
	v.data = data[from:pos:pos]
	c.next, c.chunkID, c.chunkPos, c.seg = v.End, id, pos, nil
	return v, nil
}

// segmentOf returns the segment that contains an offset, the position up to which it may be read,
// and the position to begin at, or -1 if that is unknown. mu is held.
func (l *Log) segmentOf(offset uint64) (s *segment, limit int64, from int64) {
	i, found := slices.BinarySearchFunc(l.segments, offset, func(s *segment, o uint64) int {
		switch {
		case s.base < o:
			return -1
		case s.base > o:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 || offset >= l.segments[i].end {
		return nil, 0, 0
	}
	s = l.segments[i]
	if s.index != nil {
		return s, s.written, seek(s.index, offset)
	}
	return s, s.written, -1
}

// missing returns the error for an offset of the log that no segment contains.
func (l *Log) missing(offset uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.end
	for _, s := range l.segments {
		if s.base > offset {
			next = s.base
			break
		}
	}
	return &CorruptError{File: l.dir, From: offset, Next: next, Reason: "the segment is not there"}
}

// disowned returns the error for offsets that the log disowns, and for those before them in a batch
// that has some of them.
func (c *Cursor) disowned(gone Span) error {
	return &CorruptError{File: c.log.dir, From: c.next, Next: gone.Next, Reason: reasonDisowned}
}

// fromDisk reads from a segment's file. gone is the next disowned range, or empty.
func (c *Cursor) fromDisk(s *segment, limit, pos int64, max int, gone Span) (View, error) {
	l := c.log
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return View{}, err
	}
	defer l.disk.handles.release(s)
	if pos < 0 {
		known, err := l.look(s, f)
		if err != nil {
			return View{}, err
		}
		for _, d := range known.damages {
			if c.next >= d.from && c.next < d.next {
				return View{}, d.at(s, c.next)
			}
		}
		pos, limit = seek(known.index, c.next), known.pos
	}
	if c.seg == s && c.segPos >= pos {
		pos = c.segPos
	}
	v, err := c.parse(f, s, pos, limit, max, gone)
	for again := true; err != nil; again = false {
		if err == errDisowned {
			return View{}, c.disowned(gone)
		}
		if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
			return View{}, fmt.Errorf("log %s: offset %d: %w", l.name, c.next, err)
		}
		met := err
		if pos, err = l.diagnose(s, f, c.next, met); err != nil {
			return View{}, err
		}
		if !again {
			return View{}, &CorruptError{File: s.path, From: c.next, Next: c.next, Reason: met.Error() + ", but not when it was looked at again"}
		}
		v, err = c.parse(f, s, pos, limit, max, gone) // the damage is before the offset, so begin behind it
	}
	return v, nil
}

// errDisowned means that the first batch has disowned offsets.
var errDisowned = errors.New(reasonDisowned)

// parse collects batches between the positions pos and limit, without disowned offsets.
func (c *Cursor) parse(f env.File, s *segment, pos, limit int64, max int, gone Span) (View, error) {
	v := View{From: c.next, End: c.next}
	size := min(max, limits.BatchBytes) + limits.IndexInterval
	from := -1
	begin := pos
	at := 0
	fill := func(n int) error {
		n = int(min(int64(n), limit-begin))
		if n <= 0 {
			return errNothing
		}
		c.buf = slices.Grow(c.buf[:0], n)[:n]
		return readFull(f, c.buf, begin)
	}
	if err := fill(size); err != nil {
		return v, err
	}
	for {
		fr, err := parseFrame(c.buf[at:])
		if err == errPartial || err == errNothing && at == len(c.buf) {
			if from >= 0 || begin+int64(len(c.buf)) >= limit {
				break
			}
			// No batch fits yet: begin again at this frame, with memory for all of it.
			n := size
			if want, lenErr := frameLength(c.buf[at:]); lenErr == nil {
				n += want
			}
			begin, at = begin+int64(at), 0
			if err := fill(n); err != nil {
				return v, err
			}
			continue
		}
		if err == nil && fr.kind() == kindBatch && Batch(fr).End() > c.next {
			b := Batch(fr)
			switch {
			case from < 0 && b.Base() > c.next || from >= 0 && b.Base() != v.End:
				err = fmt.Errorf("a batch from offset %d stands where %d is due", b.Base(), v.End)
			case from >= 0 && at+len(fr)-from > max:
				err = errPartial
			case gone.Next > 0 && b.End() > gone.From:
				err = errDisowned
			default:
				if from < 0 {
					from = at
				}
				v.End = b.End()
			}
		}
		if err != nil {
			if from >= 0 {
				break
			}
			return v, err
		}
		at += len(fr)
	}
	if from < 0 {
		return v, fmt.Errorf("the segment ends before offset %d", c.next)
	}
	v.data, v.at = c.buf[from:at:at], from
	c.next, c.chunkID, c.seg, c.segPos = v.End, 0, s, begin+int64(at)
	return v, nil
}

// at returns the damage as an error for a reader at offset.
func (d *damage) at(s *segment, offset uint64) error {
	return &CorruptError{File: s.path, Pos: d.pos, From: offset, Next: d.next, Epoch: d.epoch, Reason: d.reason}
}

// diagnose scans the segment for the extent of damage that a reader has met. If the damage ends
// before offset, it returns the position to begin at instead.
func (l *Log) diagnose(s *segment, f env.File, offset uint64, met error) (pos int64, err error) {
	l.mu.Lock()
	l.stats.Corrupt++
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	l.mu.Unlock()
	found, err := fresh.scan(f, l.secret, false, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("log %s: offset %d: %w (%w)", l.name, offset, met, err)
	}
	l.mu.Lock()
	s.bad = s.bad || len(found.damages) > 0
	if s.closed && s.index == nil {
		s.lookup.Store(&lookup{index: fresh.index, pos: fresh.pos, damages: found.damages, whole: true})
	} else if !s.closed {
		s.learnDamage(found.damages)
	}
	l.mu.Unlock()
	for _, d := range found.damages {
		if offset >= d.from && offset < d.next {
			return 0, d.at(s, offset)
		}
	}
	return seek(fresh.index, offset), nil
}

// learnDamage adds an entry behind each damage to the index of an active segment, so that reads
// behind damage don't begin before it. Bytes that were not written yet are no damage. mu is held.
func (s *segment) learnDamage(damages []damage) {
	for _, d := range damages {
		i := sort.Search(len(s.index), func(i int) bool { return s.index[i].offset >= d.next })
		if d.until < s.written && (i == len(s.index) || s.index[i].offset > d.next) {
			s.index = slices.Insert(s.index, i, indexEntry{offset: d.next, pos: d.until})
		}
	}
}
