package records

import (
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/statistics"
)

// segments are those of a log, as far as a judged read makes and uses statistics of them.
type segments struct {
	data    *log.Log
	all     []log.SegmentState
	at      int                  // the one that is read, or before it
	builder *statistics.Builder  // nil: nothing is collected
	known   []statistics.Segment // whose values were collected by this read
	probed  filter.Record
	stamp   filter.Stamp // of probed
}

func newSegments(data *log.Log) *segments {
	_, all := data.SegmentStates()
	return &segments{data: data, all: all}
}

func (s *segments) version(is *log.SegmentState) statistics.Segment {
	return statistics.Segment{
		Log: s.data.Dir(), Secret: s.data.Secret(),
		Base: is.Base, Generation: is.Generation, End: is.End, Epoch: is.Epoch, Bytes: uint64(is.Bytes),
	}
}

// of returns the segment that has an offset, if statistics may be about it: if nothing in it
// changes any more, and it has a record for each offset. Others are read, as segments are that were
// replaced meanwhile.
func (s *segments) of(offset uint64) (*log.SegmentState, bool) {
	for s.at < len(s.all) && s.all[s.at].End <= offset {
		s.at++
	}
	if s.at == len(s.all) {
		return nil, false
	}
	is := &s.all[s.at]
	return is, is.Base <= offset && is.Sealed && is.Holes == 0 && is.Disowned == 0
}

// skip goes behind the next segment if that can't have what is looked for. Otherwise values are
// collected of it, if it is time for that.
func (j *judging) skip() bool {
	s := j.segments
	is, ok := s.of(j.Next)
	if !ok {
		return false
	}
	segment := s.version(is)
	if j.Next > is.Base {
		if s.builder == nil && j.collects() {
			s.builder = j.Statistics.Resume(segment, j.Probe.Path(), j.Next)
		}
		return false
	}
	j.load(segment)
	if is.End <= j.limit {
		if latest, ok := j.Statistics.Excludes(segment, j.Probe.Path(), j.Probe.Hashes()); ok {
			j.examined += int(is.End - is.Base)
			if j.passed != nil {
				j.examined -= int(j.passed.Count(is.Base, is.End))
			}
			j.Next, j.latest = is.End, max(j.latest, latest)
			return true
		}
	}
	// All records are looked at, and one that fits into no answer ends that.
	if j.collects() && (j.passed == nil || j.passed.Count(is.Base, is.End) == 0) {
		s.builder = j.Statistics.Begin(segment, j.Probe.Path())
	}
	return false
}

// load has what the file beside a segment says taken into memory, if nothing is there. A file that
// can't be used is none.
func (j *judging) load(of statistics.Segment) {
	if j.Statistics.Has(of, j.Probe.Path()) {
		return
	}
	if file := j.segments.data.Statistics(of.Base, of.Generation); file != nil {
		_ = j.Statistics.Load(of, j.Probe.Path(), file) // it is counted
	}
}

// store writes what was collected of segments to files beside them. Nothing waits for the disk but
// this read, and a failure costs later scans some time, after a restart.
func (j *judging) store() {
	if j.segments == nil {
		return
	}
	path := j.Probe.Path()
	for _, of := range j.segments.known {
		wrote := false
		err := j.segments.data.ChangeStatistics(of.Base, of.Generation, func(now []byte) []byte {
			file := j.Statistics.File(of, path, now)
			wrote = file != nil
			return file
		})
		if wrote || err != nil {
			j.Statistics.Stored(err == nil)
		}
	}
}

// collects reports whether values may be collected. A read in the plain form gets larger records
// than others do, and one of some subjects would hash more records than it judges.
func (j *judging) collects() bool { return len(j.Subjects) == 0 && j.Full }

// collect collects the value of the record before Next.
func (j *judging) collect(r *log.Record) {
	b := j.segments.builder
	switch {
	case b == nil:
		return
	case r.Offset < b.End():
		setJudged(&j.segments.probed, &j.segments.stamp, r)
		hash, ok := j.Probe.Hash(&j.segments.probed)
		b.Add(hash, ok, r.Time)
	}
	if j.Next >= b.End() || !b.Collects() {
		j.keep()
	}
}

// keep keeps what was collected, for the next read.
func (j *judging) keep() {
	if s := j.segments; s != nil && s.builder != nil {
		if j.Statistics.Keep(s.builder, j.Next) {
			s.known = append(s.known, s.builder.Segment())
		}
		s.builder = nil
	}
}
