package topic

import (
	"errors"
	"strings"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/sender"
)

// lastOf returns the offset of the last message of a subject, including messages that in has
// gathered, or 0. If that is being found it sets in.lookup. The error says why that can't be
// judged. mu is held.
func (s *ShardLeader) lastOf(in *intake, of []byte) (offset uint64, err error) {
	no := func(why string) error {
		return &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "expecting the last message of a subject", Why: why}
	}
	if strings.ContainsAny(string(of), "*>") {
		return 0, no("the subject has wildcards")
	}
	if s.subjects == nil {
		s.subjects = s.service.indexes.NewLasts(&s.removed, s.LastBelow, s.EachLast, s.shard.announceOpen)
	}
	if s.subjects.Begin(s.end) {
		for i := range in.records { // they are not in the log yet
			s.subjects.Note(in.records[i].Subject, s.end+uint64(i))
		}
	}
	offset, in.lookup, err = s.subjects.Last(of)
	if _, damaged := errors.AsType[*publish.NotServedError](err); damaged {
		return 0, err
	}
	if err != nil {
		return 0, no(err.Error())
	}
	if start, _ := s.Offsets(); offset < start {
		return 0, nil
	}
	return offset, nil
}

// lookUp has the last records found that the first of some messages depend on. mu is held.
func (s *ShardLeader) lookUp(in *intake, messages []protocol.Message) {
	for i := range messages[:min(len(messages), lookupMessages)] {
		m := &messages[i]
		if m.Header == 0 {
			continue
		}
		if c, err := s.service.config.Codec.Conditions(m.Data[:m.Header]); err == nil && c.ExpectsLastBySubject {
			s.subjects.Want(c.LastOf(m.Subject))
		}
	}
}

// awaitLookup has a sender notified when the last record was found that it waits for. The sender
// was told to send again before.
func (s *ShardLeader) awaitLookup(l *sender.Link, a *sender.Arrival, wait uint64) {
	s.shard.awaitOpen(l, a)
	if s.subjects.Told(wait) {
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
