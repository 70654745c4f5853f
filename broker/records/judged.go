package records

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/statistics"
	"github.com/carillon-mq/carillon/broker/subject"
)

// Judge decides which records a judged read returns. One goroutine uses it at a time.
type Judge interface {
	// Judge returns the verdict about a record, whose slices it only reads, and does not keep.
	Judge(r *log.Record) filter.Verdict
	// Why returns why the verdict about a record was Failed.
	Why(r *log.Record) error
}

// Selection is what a judged read returns of the records that it looks at. The zero value is all.
type Selection struct {
	End      uint64   // records from here on are not looked at; 0: all below the high watermark are
	Subjects [][]byte // a record matches if its subject matches one of these patterns; none: all match
	Judge    Judge    // nil: it accepts all
	Slow     bool     // judging a small record may take more than a microsecond

	// Statistics say which segments have no record that the Judge accepts, or can't judge, since
	// these lack what Probe looks for. One of them nil: all are read.
	Statistics *statistics.Table
	Probe      *filter.Probe

	// Dense: the Range ends before an offset that would be left out, unless the Query has Gaps.
	// Otherwise gaps are always marked.
	Dense bool
}

// Judged is what was read, and what was looked at for that: all records from the offset that was
// asked for up to, not including, Next.
type Judged struct {
	Range
	Examined int   // records; removed ones, and those that Query.Sees refuses, do not count
	Failed   int   // those that could not be judged
	Why      error // of the first of these
	Latest   int64 // the greatest time of all that were examined
}

// ReadJudged is Read for the records that a Selection accepts. It looks at a bounded part of the
// log, for a bounded time, so it may return none and still have come further: then Next is behind
// the offset that was asked for.
//
// Records that Query.Sees refuses are passed as removed ones are: nothing of them is judged,
// counted or returned. Statistics know of all records, so which segments they pass may tell of
// these.
//
// A record of a subject that is asked for, and that fits into no answer, ends a read, and so does
// damage; the next one, from there, returns the error.
func (r *BulkReader) ReadJudged(s *Reader, q Query, of Selection, dst []byte) ([]byte, Judged, error) {
	start, high := s.source.Offsets()
	if q.Pin != nil {
		start, high = q.Pin.Start, q.Pin.High
	}
	if q.Offset == 0 {
		q.Offset = start
	}
	got := Judged{Range: Range{First: q.Offset, Next: q.Offset, High: high}}
	if q.Offset < start || q.Offset > high {
		return nil, got, &OffsetError{Topic: s.name, Offset: q.Offset, Start: start, High: high}
	}
	j := judging{
		Selection: of, limit: high, largest: q.Most, ends: time.Now().Add(judgeTime),
	}
	if of.End > 0 {
		j.limit = min(high, of.End)
	}
	if q.Gaps = q.Gaps || !of.Dense; q.Gaps {
		q.Most++ // the first gap takes a byte, for which a large record has room
	}
	got.Gapped = q.Gaps
	j.gathering = gathering{Query: q, Range: got.Range, passed: s.passed(), dst: dst[len(dst):], entry: r.entry[:0]}
	c := s.data.NewCursor(q.Offset)
	c.Lend(r.memory)
	if of.Statistics != nil && of.Probe != nil {
		j.segments = newSegments(s.data)
		of.Probe.SetKey(s.data.Secret())
	}
	err := j.read(c)
	j.keep()
	j.store()
	r.memory, r.entry = c.Lend(nil), j.entry[:0]
	if j.Count == 0 {
		j.First = j.Next
	}
	got.Range, got.Examined, got.Failed, got.Why, got.Latest = j.Range, j.examined, j.failed, j.why, j.latest
	if err = s.failure(err, high); j.Next > q.Offset {
		err = nil // the next read, from there, returns it
	}
	return j.dst, got, err
}

// judging is one ReadJudged under way.
type judging struct {
	gathering
	Selection
	limit   uint64 // records from here on are not looked at
	largest int    // size of a record that fits into an answer
	ends    time.Time

	examined, failed int
	why              error
	latest           int64
	unseen           int // work since the clock was looked at

	segments *segments // nil: there are no statistics
	record   log.Record
	of       []byte // the subject of the record before, in the same batch
	hidden   bool   // it must not be seen
	wanted   bool   // a pattern matches it
}

func (j *judging) read(c *log.Cursor) error {
	for !j.done && j.Next < j.limit {
		if j.passed != nil {
			if j.Next = min(j.passed.Next(j.Next), j.limit); j.Next == j.limit {
				break
			}
		}
		if j.segments != nil && j.skip() {
			j.done = time.Now().After(j.ends) // there may be many segments
			continue
		}
		if c.Next() != j.Next {
			c.Seek(j.Next)
		}
		v, err := c.Read(readBytes)
		if err != nil {
			return err
		}
		err = j.view(&v)
		v.Release()
		if err != nil {
			return err
		}
		j.done = j.done || time.Now().After(j.ends) // batches may have no records
		runtime.Gosched()                           // clients that publish and receive come first
	}
	return nil
}

// view looks at what one look at the log brings.
func (j *judging) view(v *log.View) (err error) {
	for b, ok := v.Next(); ok && !j.done && b.Base() < j.limit; b, ok = v.Next() {
		j.of = nil
		if subject, lengths, ok := b.Packed(); ok {
			err = j.packed(b, subject, lengths)
		} else {
			err = j.each(b)
		}
		if err != nil {
			return err
		}
		if !j.done {
			j.Next = max(j.Next, min(b.End(), j.limit)) // compaction left a gap
		}
	}
	return nil
}

// each looks at the records of a batch.
func (j *judging) each(b log.Batch) error {
	it := b.Records()
	for r := &j.record; !j.done && it.Next(r); {
		if r.Offset < j.Next || j.passed != nil && j.passed.Has(r.Offset) {
			continue
		}
		if r.Offset >= j.limit {
			j.Next, j.done = j.limit, true
			break
		}
		if err := j.look(r); err != nil {
			return err
		}
	}
	return it.Err()
}

// packed is each for records that have the subject and the time of their batch. They were checked
// when they were appended, and their checksum since.
func (j *judging) packed(b log.Batch, subject, lengths []byte) error {
	r := &j.record
	*r = log.Record{Offset: b.Base(), Time: b.Time(), Subject: subject}
	stamps := b.Stamps()
	for end := min(b.End(), j.limit); r.Offset < end && !j.done; r.Offset++ {
		size, n := binary.Uvarint(lengths)
		data := lengths[n : n+int(size) : n+int(size)]
		lengths = lengths[n+int(size):]
		if r.Offset < j.Next || j.passed != nil && j.passed.Has(r.Offset) {
			continue
		}
		r.Data = data
		if stamps.Any() {
			var err error
			if r.Stamp, err = stamps.At(r.Offset); err != nil {
				return err
			}
		}
		if err := j.look(r); err != nil {
			return err
		}
	}
	return nil
}

// look looks at the next record.
func (j *judging) look(r *log.Record) error {
	asked := true
	if len(j.Subjects) > 0 || j.Sees != nil {
		if asked = j.selects(r.Subject); j.hidden {
			j.Next = r.Offset + 1
			j.spend(lookCost)
			return nil
		}
	}
	if asked && len(r.Data) >= j.largest/2 { // else it fits, with the largest subject
		if size := wholeSize(r, j.Full, j.Attributes); size > j.largest {
			return &SizeError{Offset: r.Offset, Size: size, Most: j.largest}
		}
	}
	verdict := filter.No
	switch {
	case !asked:
	case j.Judge == nil:
		verdict = filter.Yes
	default:
		verdict = j.Judge.Judge(r)
	}
	switch verdict {
	case filter.Yes:
		if j.after(r.Offset) {
			return nil
		}
		if err := j.take(r); err != nil || j.done {
			return err
		}
		j.done = j.Count == j.Query.Records
	case filter.Failed:
		if j.failed++; j.why == nil {
			j.why = j.Judge.Why(r)
		}
	}
	j.Next = r.Offset + 1
	j.examined++
	j.latest = max(j.latest, r.Time)
	if j.segments != nil {
		j.collect(r)
	}
	j.spend(lookCost + len(r.Data))
	return nil
}

// spend ends the read if it has taken its time. It looks at the clock now and then.
func (j *judging) spend(work int) {
	if j.unseen += work; j.Slow || j.unseen >= lookAfter {
		j.unseen = 0
		j.done = j.done || time.Now().After(j.ends)
	}
}

// selects reports whether a subject may be seen and is asked for. Neighbouring records often have
// the same one.
func (j *judging) selects(name []byte) bool {
	if j.of == nil || !bytes.Equal(j.of, name) {
		j.of = name
		j.hidden = j.Sees != nil && !j.Sees(name)
		j.wanted = !j.hidden && (len(j.Subjects) == 0 ||
			slices.ContainsFunc(j.Subjects, func(p []byte) bool { return subject.Matches(p, name) }))
	}
	return j.wanted
}

// wholeSize is the size of an answer that has a record alone.
func wholeSize(r *log.Record, full, attributes bool) int {
	size := len(r.Data) - r.Header
	if full {
		size = 1 + uvarintSize(len(r.Subject)) + len(r.Subject) + uvarintSize(r.Header) + len(r.Data)
	}
	if attributes {
		size += uvarintSize(len(r.Stamp)) + len(r.Stamp)
	}
	return uvarintSize(size) + size
}

// condition judges records by a Filter.
type condition struct {
	filter *filter.Filter
	judge  *filter.Judge
	record filter.Record
	stamp  filter.Stamp // of record
}

// ByFilter returns a Judge for a Filter.
func ByFilter(f *filter.Filter) Judge { return &condition{filter: f, judge: f.NewJudge()} }

func (c *condition) Judge(r *log.Record) filter.Verdict {
	setJudged(&c.record, &c.stamp, r)
	return c.judge.Judge(&c.record)
}

func (c *condition) Why(r *log.Record) error {
	setJudged(&c.record, &c.stamp, r)
	return c.filter.Why(&c.record)
}

// setJudged sets what is judged to a record of a log. stamp is for its attributes.
func setJudged(to *filter.Record, stamp *filter.Stamp, r *log.Record) {
	to.SetAttributes(stamp, r.Stamp)
	to.Subject, to.Time = r.Subject, r.Time
	to.Header, to.Data = r.Data[:r.Header], r.Data[r.Header:]
}
