package topic

import (
	"math"
	"strings"

	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
)

// note notes the last record of a subject. If there are too many subjects it forgets all.
func (x *subjects) note(of []byte, offset uint64) {
	if x.failure != "" {
		return
	}
	x.last[dedup.HashOf(of)] = offset
	if len(x.last) > maxSubjects {
		x.last, x.failure = nil, "it has too many subjects for brokers to remember the last message of each"
	}
}

// lastOf returns the offset of the last message of a subject, including messages that in has
// gathered, or 0. The error says why that can't be judged, or not yet. mu is held.
func (s *ShardLeader) lastOf(in *intake, of []byte) (offset uint64, err error) {
	no := func(why string) error {
		return &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "expecting the last message of a subject", Why: why}
	}
	if strings.ContainsAny(string(of), "*>") {
		return 0, no("the subject has wildcards")
	}
	if s.subjects == nil {
		s.readSubjects()
		for i := range in.records { // they are not in the log yet
			s.subjects.note(in.records[i].Subject, s.end+uint64(i))
		}
	}
	x := s.subjects
	if x.failure != "" {
		return 0, no(x.failure)
	}
	start, _ := s.Offsets()
	offset, ok := x.last[dedup.HashOf(of)]
	switch {
	case ok && offset >= start:
		return offset, nil
	case ok || x.complete:
		return 0, nil
	}
	return 0, no("its log is being read for that; try again in a moment")
}

// readSubjects reads the last records from the log: at once if it is short, otherwise in the
// background, while new records are noted. mu is held.
func (s *ShardLeader) readSubjects() {
	x := &subjects{last: map[dedup.Hash]uint64{}, from: s.end}
	s.subjects = x
	start, _ := s.Offsets()
	if s.Bytes(start) <= records.ReadAtOnce {
		x.complete = true
		if _, err := s.Scan(start, s.end, math.MaxInt64, func(r *log.Record) bool {
			x.note(r.Subject, r.Offset)
			return true
		}); err != nil {
			x.failure = err.Error()
		}
		return
	}
	s.reading.Go(func() {
		older := &subjects{last: map[dedup.Hash]uint64{}}
		_, err := s.Scan(start, x.from, math.MaxInt64, func(r *log.Record) bool {
			older.note(r.Subject, r.Offset)
			return older.failure == "" && !s.ending.Load()
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
			x.failure = err.Error()
		case older.failure != "":
			x.failure = older.failure
		}
		for hash, offset := range older.last {
			if _, ok := x.last[hash]; !ok && x.failure == "" {
				x.last[hash] = offset
			}
		}
		x.complete = true
	})
}

// lastMessageID returns the id of the message before next. mu is held.
func (s *ShardLeader) lastMessageID(next uint64) ([]byte, error) {
	if s.lastKnown {
		return s.lastID, nil
	}
	s.lastID = s.lastID[:0]
	if next > s.data.Start() {
		_, err := records.ScanBatches(s.data, next-1, next, math.MaxInt64, func(b log.Batch, next uint64) (more bool, err error) {
			return true, publish.EachID(s.service.config.Codec, b, next, func(id []byte, offset uint64, _ int64) {
				if offset == next {
					s.lastID = append(s.lastID[:0], id...)
				}
			})
		})
		if err != nil {
			return nil, err
		}
	}
	s.lastKnown = true
	return s.lastID, nil
}
