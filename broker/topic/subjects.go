package topic

import (
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// note notes the last record of a subject. If there are too many subjects it forgets all: the index
// knows what is below.
func (x *subjects) note(of []byte, offset uint64) {
	hash := dedup.HashOf(of)
	if x.last[hash] = offset; len(x.last) > maxSubjects {
		*x = subjects{last: map[dedup.Hash]uint64{hash: offset}, below: map[dedup.Hash]uint64{}, from: offset}
	}
}

// find returns the last record of a subject; ok is false if the index has to be asked.
func (x *subjects) find(of []byte) (offset uint64, ok bool) {
	hash := dedup.HashOf(of)
	if offset, ok = x.last[hash]; !ok {
		offset, ok = x.below[hash]
	}
	return offset, ok
}

// lastOf returns the offset of the last message of a subject, including messages that in has
// gathered, or 0. If the index has to be asked first, it sets in.lookup. The error says why that
// can't be judged, or not yet. mu is held.
func (s *ShardLeader) lastOf(in *intake, of []byte) (offset uint64, err error) {
	no := func(why string) error {
		return &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "expecting the last message of a subject", Why: why}
	}
	if strings.ContainsAny(string(of), "*>") {
		return 0, no("the subject has wildcards")
	}
	if s.subjects == nil {
		s.subjects = &subjects{last: map[dedup.Hash]uint64{}, below: map[dedup.Hash]uint64{}, from: s.end}
		for i := range in.records { // they are not in the log yet
			s.subjects.note(in.records[i].Subject, s.end+uint64(i))
		}
	}
	offset, ok := s.subjects.find(of)
	if !ok && in.lookupFailed != nil {
		err, in.lookupFailed = in.lookupFailed, nil
		return 0, no(err.Error())
	}
	in.lookup = !ok
	if start, _ := s.Offsets(); offset < start {
		return 0, nil
	}
	return offset, nil
}

// lookUp asks the index for the last records of the subjects that the first of some messages depend
// on. It may read the disk. mu is not held.
func (s *ShardLeader) lookUp(in *intake, messages []protocol.Message) {
	in.lookup = false
	began := time.Now()
	for i := range messages[:min(len(messages), lookupMessages)] {
		m := &messages[i]
		if i > 0 && time.Since(began) > lookupTime {
			return // the index isn't ready, or the disk is slow
		}
		if m.Header == 0 {
			continue
		}
		c, err := s.service.config.Codec.Conditions(m.Data[:m.Header])
		if err != nil || !c.ExpectsLastBySubject {
			continue
		}
		of := c.LastOf(m.Subject)
		s.mu.Lock()
		x := s.subjects
		if x == nil { // an append has failed
			s.mu.Unlock()
			return
		}
		from := x.from
		_, ok := x.find(of)
		s.mu.Unlock()
		if ok {
			continue
		}
		offset, err := s.LastBelow(string(of), from)
		if err != nil && i == 0 {
			in.lookupFailed = err
		}
		if err != nil {
			return
		}
		s.mu.Lock()
		if x.from == from { // otherwise it is asked again
			if len(x.below) >= maxSubjects {
				clear(x.below)
			}
			x.below[dedup.HashOf(of)] = offset
		}
		s.mu.Unlock()
	}
}

// lastMessageID returns the id of the message before next. mu is held.
func (s *ShardLeader) lastMessageID(next uint64) ([]byte, error) {
	if s.lastKnown {
		return s.lastID, nil
	}
	id, err := s.MessageID(s.service.config.Codec, next-1)
	s.lastID, s.lastKnown = id, err == nil
	return id, err
}
