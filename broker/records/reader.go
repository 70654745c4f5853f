package records

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/subjectindex"
)

// Source is the shard that a Reader reads.
type Source interface {
	// Offsets are what readers may see: from start up to, not including, end, the high watermark.
	Offsets() (start, end uint64)
	// Unreadable returns the error of a reader that met err in the log. If the log is damaged, the
	// shard deals with that first.
	Unreadable(err error) error
	// Removed returns the records below the high watermark that were removed one by one.
	Removed() *removal.Set
}

// Reader reads the records of one shard that readers may see. Goroutines may share it.
type Reader struct {
	source  Source
	name    string // of the shard, for people
	data    *log.Log
	index   *indexing.Index // of the subjects of data; nil: there is none
	removed *removal.Set

	firstTime, finalTime timeOf
	firstKept            firstKept
	gaps                 gaps
}

// Init has the Reader read the log of a shard. It precedes all other calls. index may be nil; it is
// the caller's to close.
func (s *Reader) Init(source Source, name string, data *log.Log, index *indexing.Index) {
	s.source, s.name, s.data, s.index, s.removed = source, name, data, index, source.Removed()
}

// Info is what readers see of a shard.
type Info struct {
	First, Last         uint64 // offsets; Last is First-1 if there is nothing
	FirstTime, LastTime time.Time
	Messages            uint64 // fewer than offsets, if it is compacted or records were removed
	Bytes               int64  // on disk, of the files that hold them
}

// Name returns the name of the shard.
func (s *Reader) Name() string { return s.name }

// Info describes what readers see. All of it is of one moment, also while compaction goes on,
// unless records are removed all the time. It may read the disk.
func (s *Reader) Info() Info {
	start, end := s.source.Offsets()
	s.data.CountHoles(start)
	s.countGaps(start)
	for try := 1; ; try++ {
		holes, version := s.data.Holes(start), s.removed.Version()
		info := s.info(start, end, holes)
		if s.data.Holes(start) == holes && (s.removed.Version() == version || try >= infoTries) {
			return info
		}
	}
}

// info is Info for offsets with so many holes from start on.
func (s *Reader) info(start, end, holes uint64) Info {
	info := Info{First: start, Last: end - 1, Messages: s.Messages(start, end)}
	if start == end && (s.removed.Version() == 0 || end <= s.data.Start()) {
		return info
	}
	if info.First = s.firstKept.from(s, start, end, holes); info.First < end {
		info.FirstTime = s.firstTime.at(s, info.First)
		info.Bytes = max(s.Bytes(start)-removing.RemovedBytes(s.data, s.removed, start), 0)
	}
	if info.LastTime = s.finalTime.at(s, end-1); info.LastTime.IsZero() {
		info.LastTime = s.timeBefore(end) // the last record was removed
	}
	return info
}

// timeBefore returns the time of the last record in the files that have offsets below an offset.
func (s *Reader) timeBefore(end uint64) (last time.Time) {
	for _, segment := range s.data.SegmentInfos() {
		if segment.Base < end && segment.End > segment.Base {
			last = segment.Last.UTC()
		}
	}
	return last
}

// Messages is how many records there are from start up to, not including, end; fewer, if start is
// within a compacted segment in which nobody has counted them yet. It does not read the disk.
func (s *Reader) Messages(start, end uint64) uint64 {
	return end - start - min(s.missing(start, end), end-start)
}

// firstKept remembers where the first record stands that is left. Compaction that takes a record
// changes holes, so the record is looked for again then. If it is removed, the next one is looked
// for behind it.
type firstKept struct {
	mu                  sync.Mutex
	start, holes, first uint64
}

// from is the offset of the first record from start on, or end if none is left; start itself if it
// can't be read. holes are those from start on.
func (o *firstKept) from(s *Reader, start, end, holes uint64) uint64 {
	passed := s.passed()
	first := start
	if passed != nil {
		first = min(passed.Next(start), end)
	}
	if holes == 0 {
		return first
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.start == start && o.holes == holes {
		if passed == nil || !passed.Has(o.first) && o.first < end {
			return o.first
		}
		first = max(first, min(o.first, end))
	}
	found, kept := first, false
	done, err := s.Scan(first, end, ReadAtOnce, func(r *log.Record) bool {
		found, kept = r.Offset, true
		return false
	})
	switch {
	case err != nil:
		return first
	case done && !kept && passed != nil:
		found = end // none is left
	}
	if s.data.Holes(start) == holes {
		o.start, o.holes, o.first = start, holes, found
	}
	return found
}

// Bytes is how much is stored from an offset on.
func (s *Reader) Bytes(start uint64) (sum int64) {
	for _, segment := range s.data.SegmentInfos() {
		if segment.End > start {
			sum += segment.Bytes
		}
	}
	return sum
}

// timeOf remembers the time of one record, so that asking again reads nothing.
type timeOf struct {
	mu     sync.Mutex
	offset uint64
	time   time.Time
}

// at is the time of the record at an offset, or zero if that can't be read.
func (o *timeOf) at(s *Reader, offset uint64) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.offset == offset {
		return o.time
	}
	r, err := s.get(offset) // it may be removed: then its time stands until the file loses it
	if err != nil {
		return time.Time{}
	}
	o.offset, o.time = offset, time.Unix(0, r.Time).UTC()
	return o.time
}

// Get reads the record at an offset. A *NoRecordError says that there is none. It may read the
// disk.
func (s *Reader) Get(offset uint64) (log.Record, error) {
	if start, end := s.source.Offsets(); offset < start || offset >= end || s.removed.Len() > 0 && s.removed.Has(offset) {
		return log.Record{}, &NoRecordError{Topic: s.name, Offset: offset}
	}
	return s.get(offset)
}

// get is Get for an offset that may be beyond the high watermark, or removed.
func (s *Reader) get(offset uint64) (log.Record, error) {
	c := s.data.NewCursor(offset)
	v, err := c.Read(1)
	if err != nil {
		return log.Record{}, s.unreadable(offset, err)
	}
	defer v.Release()
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); {
			if r.Offset == offset {
				return own(&r), nil
			}
		}
		if it.Err() != nil {
			return log.Record{}, it.Err()
		}
	}
	return log.Record{}, &NoRecordError{Topic: s.name, Offset: offset}
}

// unreadable is the error for an offset that was there a moment ago.
func (s *Reader) unreadable(offset uint64, err error) error {
	if _, ok := errors.AsType[*log.RangeError](err); ok {
		return &NoRecordError{Topic: s.name, Offset: offset}
	}
	return s.source.Unreadable(err)
}

// own is a copy that outlives the batch.
func own(r *log.Record) log.Record {
	c := *r
	c.Subject, c.Data, c.Attributes, c.Stamp = slices.Clone(r.Subject), slices.Clone(r.Data), slices.Clone(r.Attributes), slices.Clone(r.Stamp)
	return c
}

// matcher matches subjects by a pattern; most patterns are subjects.
func matcher(pattern string) func(s []byte) bool {
	p := []byte(pattern)
	if strings.ContainsAny(pattern, "*>") {
		return func(s []byte) bool { return subject.Matches(p, s) }
	}
	return func(s []byte) bool { return bytes.Equal(p, s) }
}

// NextFor reads the first record from an offset on whose subject matches a pattern. It reads a
// bounded part of the log and says so with a *ScanError if that wasn't enough.
func (s *Reader) NextFor(pattern string, from uint64) (log.Record, error) {
	start, end := s.source.Offsets()
	matches := matcher(pattern)
	var found log.Record
	done, err := s.Scan(max(from, start), end, scanBytes, func(r *log.Record) bool {
		if !matches(r.Subject) {
			return true
		}
		found = own(r)
		return false
	})
	switch {
	case err != nil:
		return log.Record{}, err
	case found.Offset > 0:
		return found, nil
	case !done:
		return log.Record{}, &ScanError{Topic: s.name, Subject: pattern, Bytes: scanBytes}
	}
	return log.Record{}, &NoRecordError{Topic: s.name, Offset: from, Subject: pattern}
}

// LastFor reads the last record whose subject matches a pattern. It asks the index, and reads the
// log backwards if the index is not ready.
func (s *Reader) LastFor(pattern string) (log.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	for try := 1; ; try++ {
		layout, version := s.data.Layout(), s.removed.Version()
		start, end := s.source.Offsets()
		r, err := s.lastWithin(ctx, pattern, start, end)
		if _, none := errors.AsType[*NoRecordError](err); !none || try == lastTries || ctx.Err() != nil || layout == s.data.Layout() && version == s.removed.Version() {
			return r, err
		}
		// Compaction may have removed the last record below end because of a newer one, or it was
		// removed while it was read.
	}
}

// lastWithin returns the last record within a range whose subject matches a pattern.
func (s *Reader) lastWithin(ctx context.Context, pattern string, start, end uint64) (log.Record, error) {
	if s.index != nil && start < end {
		offset, err := s.index.Last(ctx, 0, pattern, start, end)
		if err == nil && offset == 0 {
			return log.Record{}, &NoRecordError{Topic: s.name, Offset: start, Subject: pattern}
		}
		if err == nil {
			return s.Get(offset)
		}
	}
	return s.searchLast(pattern, start, end)
}

// LastBelow returns the offset of the last record of a subject below an offset, which may be beyond
// the high watermark; 0: there is none. If the index is not ready, which it waits for a moment if
// it is patient, it reads a short log. It is exact if the log has no record of the subject from end
// on.
func (s *Reader) LastBelow(ctx context.Context, subject string, end uint64, patient bool) (uint64, error) {
	start, _ := s.source.Offsets()
	if s.index != nil {
		patience := time.Duration(0)
		if patient {
			patience = lastPatience
		}
		offset, err := s.index.LastOf(ctx, patience, subject, start, end)
		if err == nil || s.Bytes(start) > ReadAtOnce {
			return offset, s.damaged(err)
		}
	}
	r, err := s.searchLast(subject, start, end)
	if _, none := errors.AsType[*NoRecordError](err); none {
		return 0, nil
	}
	return r.Offset, err
}

// OldestBelow returns the offsets of the oldest records of a subject below an offset, in order, at
// most some, and how many it has. Otherwise it is as LastBelow.
func (s *Reader) OldestBelow(ctx context.Context, subject string, end uint64, most int, patient bool) (offsets []uint64, count uint64, err error) {
	start, _ := s.source.Offsets()
	if s.index != nil {
		patience := time.Duration(0)
		if patient {
			patience = lastPatience
		}
		offsets, count, err = s.index.OffsetsOf(ctx, patience, subject, start, end, most)
		if err == nil || s.Bytes(start) > ReadAtOnce {
			return offsets, count, s.damaged(err)
		}
	}
	offsets, count = nil, 0
	done, err := s.Scan(start, end, scanBytes, func(r *log.Record) bool {
		if string(r.Subject) == subject {
			if count++; len(offsets) < most {
				offsets = append(offsets, r.Offset)
			}
		}
		return true
	})
	if err == nil && !done {
		err = &ScanError{Topic: s.name, Subject: subject, Bytes: scanBytes}
	}
	return offsets, count, err
}

// MatchingBelow returns the records below an offset whose subjects match a pattern. Offsets are
// returned only if they are at most most, and with 0 neither is Count. Otherwise it is as
// LastBelow.
func (s *Reader) MatchingBelow(ctx context.Context, pattern string, end uint64, most int, patient bool) (m indexing.Matches, err error) {
	start, _ := s.source.Offsets()
	if s.index != nil {
		patience := time.Duration(0)
		if patient {
			patience = lastPatience
		}
		m, err = s.index.Matching(ctx, patience, pattern, start, end, most)
		if err == nil || s.Bytes(start) > ReadAtOnce {
			return m, s.damaged(err)
		}
	}
	m = indexing.Matches{}
	matches := matcher(pattern)
	done, err := s.Scan(start, end, scanBytes, func(r *log.Record) bool {
		if !matches(r.Subject) {
			return true
		}
		if m.Last = r.Offset; most == 0 {
			return true
		}
		if m.Count++; m.Count <= uint64(most) {
			m.Offsets = append(m.Offsets, r.Offset)
		} else {
			m.Offsets = nil
		}
		return true
	})
	if err == nil && !done {
		err = &ScanError{Topic: s.name, Subject: pattern, Bytes: scanBytes}
	}
	return m, err
}

// damaged returns the error of reading the records that the index lacks because they are damaged,
// or err if it is another one.
func (s *Reader) damaged(err error) error {
	missing, ok := errors.AsType[*subjectindex.MissingError](err)
	if !ok || !missing.Damaged {
		return err
	}
	v, reading := s.data.NewFileCursor(missing.From).Read(1)
	if reading == nil {
		v.Release()
		return err
	}
	return s.source.Unreadable(reading)
}

// searchLast is LastFor without the index: it reads from the end backwards, in ever larger steps,
// and bounded as NextFor is.
func (s *Reader) searchLast(pattern string, start, end uint64) (log.Record, error) {
	matches := matcher(pattern)
	budget := int64(scanBytes)
	for to, step := end, uint64(256); to > start; step *= 2 {
		from := start
		if to-start > step {
			from = to - step
		}
		last, read := uint64(0), int64(0)
		see := func(r *log.Record) bool {
			if matches(r.Subject) {
				last = r.Offset
			}
			read += int64(len(r.Data) + len(r.Subject))
			return true
		}
		var damage error // what is behind it may still be the last
		done, err := s.Scan(from, to, budget, see)
		for at := from; err != nil; {
			corrupt, ok := errors.AsType[*log.CorruptError](err)
			if !ok || corrupt.Next <= at {
				return log.Record{}, err
			}
			damage, at, last = err, corrupt.Next, 0
			done, err = s.Scan(at, to, budget, see)
		}
		if damage != nil && last == 0 {
			return log.Record{}, damage
		}
		if budget -= read; !done || budget <= 0 && last == 0 {
			return log.Record{}, &ScanError{Topic: s.name, Subject: pattern, Bytes: scanBytes}
		}
		if last > 0 {
			return s.get(last)
		}
		to = from
	}
	return log.Record{}, &NoRecordError{Topic: s.name, Offset: start, Subject: pattern}
}

// Scan calls f with the records from from up to, not including, end, until it says no. done says
// that the budget of bytes was enough. It ends with the *log.CorruptError if there are damaged
// records on its way: what looks for a record must not take another one for it. Removed records are
// passed.
func (s *Reader) Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error) {
	passed := s.passed()
	done, err = scanBatches(s.data, passed, from, end, budget, func(b log.Batch, next uint64) (more bool, err error) {
		it := b.Records()
		more = true
		for r := (log.Record{}); more && it.Next(&r); {
			if r.Offset >= next && r.Offset < end && (passed == nil || !passed.Has(r.Offset)) {
				more = f(&r)
			}
		}
		return more, it.Err()
	})
	return done, s.source.Unreadable(err)
}
