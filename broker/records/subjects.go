package records

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// ErrNoIndex is the error of questions that need an index of subjects, if there is none.
var ErrNoIndex = errors.New("there is no index of the subjects")

// SubjectCount is a subject, and how many records it has.
type SubjectCount struct {
	Subject string
	Records uint64
}

// NumSubjects returns how many subjects have records that readers see. It waits for an index
// that is being made for as long as the caller has patience, and then returns an error.
func (s *Reader) NumSubjects(ctx context.Context, patience time.Duration) (uint64, error) {
	start, end := s.source.Offsets()
	switch {
	case start == end:
		return 0, nil
	case s.index == nil:
		return 0, ErrNoIndex
	}
	return s.index.NumSubjects(ctx, patience, start, end)
}

// Page bounds a list of subjects.
type Page struct {
	Subjects int
	Bytes    int // as JSON, about
}

// subjectOverhead is what a subject takes in JSON beside its bytes.
const subjectOverhead = len(`"":18446744073709551615,`)

// Subjects returns the subjects that match a pattern, in the order of their bytes, with how many
// records of each readers see: those from number skip on that fit into a page, at least one. total
// is how many subjects match. It waits as NumSubjects does.
func (s *Reader) Subjects(ctx context.Context, patience time.Duration, pattern string, skip int, most Page) (page []SubjectCount, total int, err error) {
	start, end := s.source.Offsets()
	switch {
	case start == end:
		return nil, 0, nil
	case s.index == nil:
		return nil, 0, ErrNoIndex
	}
	bytes := 0
	begin := func() { page, total, bytes = nil, 0, 0 }
	err = s.index.Subjects(ctx, patience, pattern, start, end, begin, func(subject []byte, records uint64) {
		if total >= skip && total == skip+len(page) && len(page) < most.Subjects {
			if bytes += len(subject) + subjectOverhead; bytes <= most.Bytes || len(page) == 0 {
				page = append(page, SubjectCount{string(subject), records})
			}
		}
		total++
	})
	return page, total, err
}

// Crowded returns subjects with more records than a limit, at most some. It waits as NumSubjects
// does.
func (s *Reader) Crowded(ctx context.Context, patience time.Duration, limit uint64, most int) (subjects []string, err error) {
	start, end := s.source.Offsets()
	switch {
	case start == end:
		return nil, nil
	case s.index == nil:
		return nil, ErrNoIndex
	}
	err = s.index.Subjects(ctx, patience, ">", start, end, func() { subjects = nil }, func(subject []byte, records uint64) {
		if records > limit && len(subjects) < most {
			subjects = append(subjects, string(subject))
		}
	})
	return subjects, err
}

// Beyond returns the offsets of the records of a subject that are beyond a limit, the oldest first,
// at most some.
func (s *Reader) Beyond(ctx context.Context, subject string, limit uint64, most int) ([]uint64, error) {
	_, end := s.source.Offsets()
	offsets, count, err := s.OldestBelow(ctx, subject, end, most, true)
	return offsets[:min(uint64(len(offsets)), count-min(count, limit))], err
}

// EachLast calls f with each subject that has a record below an offset, which may be beyond the
// high watermark, and with the offset of the last one, until it says no. begin is called before
// each attempt. It waits for no index that is being made.
func (s *Reader) EachLast(ctx context.Context, end uint64, begin func(), f func(subject []byte, last uint64) bool) error {
	if s.index == nil {
		return ErrNoIndex
	}
	start, _ := s.source.Offsets()
	return s.index.Lasts(ctx, 0, start, end, begin, f)
}

// Count returns how many records from an offset up to, not including, end match one of some
// patterns. end is at most the high watermark. It waits as NumSubjects does.
func (s *Reader) Count(ctx context.Context, patience time.Duration, patterns []string, from, end uint64) (uint64, error) {
	start, _ := s.source.Offsets()
	from = max(from, start)
	switch {
	case from >= end:
		return 0, nil
	case s.index == nil:
		return 0, ErrNoIndex
	}
	return s.index.Count(ctx, patience, patterns, from, end)
}

// Scheduled reports whether the record at an offset, which need not be committed, is a schedule.
func (s *Reader) Scheduled(codec publish.Codec, offset uint64) (yes bool, err error) {
	_, err = ScanBatches(s.data, offset, offset+1, math.MaxInt64, func(b log.Batch, _ uint64) (more bool, err error) {
		if _, _, packed := b.Packed(); packed {
			return true, nil
		}
		it := b.Records()
		for r := (log.Record{}); it.Next(&r); {
			if r.Offset == offset && r.Header > 0 {
				c, err := codec.Conditions(r.Data[:r.Header])
				yes = err == nil && c.Schedule.Schedules()
			}
		}
		return true, it.Err()
	})
	return yes, err
}

// MessageID returns the id of the message at an offset, or nothing if it has none or is gone. It
// may read the disk. A message that was removed counts as long as a file has it: as with
// nats-server, the next message may expect its id.
func (s *Reader) MessageID(codec publish.Codec, offset uint64) (id []byte, err error) {
	if offset < s.data.Start() {
		return nil, nil
	}
	_, err = ScanBatches(s.data, offset, offset+1, math.MaxInt64, func(b log.Batch, next uint64) (more bool, err error) {
		return true, publish.EachID(codec, b, next, func(is []byte, at uint64, _ int64) {
			if at == offset {
				id = slices.Clone(is)
			}
		})
	})
	return id, err
}
