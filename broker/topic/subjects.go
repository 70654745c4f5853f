package topic

import (
	"errors"
	"strings"

	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/subject"
)

// lastOf returns the offset of the last message of a subject, including messages that in has
// gathered, or 0. If that is being found it sets in.lookup. The error says why that can't be
// judged. mu is held.
func (s *ShardLeader) lastOf(in *intake, of []byte) (offset uint64, err error) {
	if err := s.noteLasts(in, of); err != nil {
		return 0, err
	}
	offset, in.lookup, err = s.subjects.Last(of)
	if err != nil {
		return 0, s.unknown(err)
	}
	if start, _ := s.Offsets(); offset < start {
		return 0, nil
	}
	return offset, nil
}

// lastExpected is lastOf for conditions: a subject with wildcards is all that match it.
func (s *ShardLeader) lastExpected(in *intake, of []byte) (offset uint64, err error) {
	if !subject.HasWildcards(of) {
		return s.lastOf(in, of)
	}
	s.note(in)
	offset, in.lookup, err = s.subjects.LastMatch(of)
	if start, _ := s.Offsets(); offset < start {
		offset = 0
	}
	return offset, s.unknown(err)
}

// matchesOf returns the offsets of the records whose subjects match a pattern, or how many these
// are if they are too many for a rollup. Otherwise it is as lastOf.
func (s *ShardLeader) matchesOf(in *intake, pattern []byte) (offsets []uint64, more uint64, err error) {
	s.note(in)
	start, _ := s.Offsets()
	offsets, more, in.lookup, err = s.subjects.Matches(pattern, start)
	return offsets, more, s.unknown(err)
}

// oldestOf returns the offsets of the oldest records of a subject, including those that in has
// gathered, and how many newer ones there are. Otherwise it is as lastOf.
func (s *ShardLeader) oldestOf(in *intake, of []byte) (offsets []uint64, more uint64, err error) {
	if err := s.noteLasts(in, of); err != nil {
		return nil, 0, err
	}
	start, _ := s.Offsets()
	offsets, more, in.lookup, err = s.subjects.Firsts(of, start)
	return offsets, more, s.unknown(err)
}

// noteLasts has the records of subjects noted from now on. The error says why those of a subject
// can't be known. mu is held.
func (s *ShardLeader) noteLasts(in *intake, of []byte) error {
	if strings.ContainsAny(string(of), "*>") {
		return publish.NoLastOf(s.shard.name, "the subject has wildcards")
	}
	s.note(in)
	return nil
}

// note has the records of subjects noted from now on, including those that in has gathered. mu is
// held.
func (s *ShardLeader) note(in *intake) {
	if s.subjects == nil {
		s.subjects = s.service.indexes.NewLasts(s.Removed(), s.LastBelow, s.EachLast, s.OldestBelow, s.MatchingBelow, s.shard.announceOpen)
	}
	if s.subjects.Begin(s.end) {
		for i := range in.records { // they are not in the log yet
			s.subjects.Note(in.records[i].Subject, s.end+uint64(i))
		}
	}
}

// unknown returns the reason why records of a subject are not known, for publishers.
func (s *ShardLeader) unknown(err error) error {
	if _, damaged := errors.AsType[*publish.NotServedError](err); damaged || err == nil {
		return err
	}
	return publish.NoLastOf(s.shard.name, err.Error())
}

// lookUp has the last records found that the first of some messages depend on. mu is held.
func (s *ShardLeader) lookUp(v *view, messages []protocol.Message) {
	for i := range messages[:min(len(messages), lookupMessages)] {
		m := &messages[i]
		if len(m.To) > 0 {
			break // a batch
		}
		if v.counts {
			if last, wait, err := s.subjects.Last(m.Subject); wait == 0 && err == nil {
				s.totals.Want(last)
			}
		}
		if v.limits.PerSubject > 0 {
			s.subjects.Want(m.Subject, v.limits.PerSubject > 1)
		}
		if v.republish.Takes(m.Subject) {
			s.subjects.Want(m.Subject, false)
		}
		if m.Header == 0 {
			continue
		}
		c, err := s.service.config.Codec.Conditions(m.Data[:m.Header])
		if of := c.LastOf(m.Subject); err == nil && c.ExpectsLastBySubject && !subject.HasWildcards(of) {
			s.subjects.Want(of, false)
		}
		if of := c.Schedule.Ends(); err == nil && subject.Valid(of) {
			s.subjects.Want(of, false)
		}
		if err == nil && c.Rollup == publish.RollupSubject && !subject.HasWildcards(m.Subject) {
			s.subjects.Want(m.Subject, true)
		}
	}
}

// awaitLookup has a sender notified when the last record was found that it waits for, a total was
// read, the Mark is written, or a rollup may be on all in-sync replicas. The sender was told to
// send again before.
func (s *ShardLeader) awaitLookup(l *sender.Link, a *sender.Arrival, wait, unread uint64) {
	s.shard.waiters.Add(a.Back(l))
	switch {
	case wait == awaitsMark:
		s.removing.Mark(s.high.Load(), s.shard.view.Load().durability, s.shard.announceSoon)
	case wait == awaitsTotal:
		if !s.totals.Reading(unread) { // it is read by now, or could not be
			s.shard.announceSoon()
		}
	case wait == indexing.Rolling:
		s.shard.announceSoon()
	case s.subjects.Told(wait):
		s.shard.announceOpen()
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
