package topic

import (
	"cmp"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/republish"
)

// numberState is the state of a message's number.
type numberState uint8

const (
	numberNew    numberState = iota
	numberJudged             // judged before, and answered again
	numberGap                // messages with earlier numbers are missing
	numberWaits              // its answer is being read
)

// judgeNumber judges the number of the next message, and answers it again if it was judged before.
// mu is held.
func (s *ShardLeader) judgeNumber(in *intake, p *acking.Pending, v *view, m *protocol.Message) numberState {
	o, seq := in.origin, in.seq
	switch {
	case seq > o.Last+1:
		return numberGap
	case seq > o.Last && len(m.Subject) == 0: // void: its sender has given it up
		o.Last = seq
		return numberJudged
	case seq > o.Last && (o.Fresh(seq) || s.origins.Knows(o, o.Heard-2*int64(forward.OutboxTime))):
		if in.why == nil && !o.Refused(m.Behind) {
			return numberNew
		}
		o.Last = seq
		in.refuse(s.shard, cmp.Or[error](in.why, &publish.BatchError{Topic: s.shard.name, Fault: publish.FastBehind}))
		return numberJudged
	}
	if len(m.Subject) == 0 {
		return numberJudged
	}
	if offset, records, ok := o.Find(seq); ok {
		total, wait := s.knownTotal(in, v, offset, records)
		if wait {
			return numberWaits
		}
		s.service.counts.deduplicated.Add(1)
		if offset >= s.high.Load() {
			p.Answers = append(p.Answers, acking.Answer{Offset: offset, Records: records, Total: total, Seq: seq})
		} else if total != "" {
			in.answers.Counted(seq, offset, total)
		} else {
			in.answers.Single(seq, offset, records, false)
		}
		return numberJudged
	}
	out, ok := o.Settled[seq]
	switch {
	case ok && out.Duplicate, ok && publish.Falsifiable(out.Err):
		kind := acking.Duplicate
		if !out.Duplicate {
			kind = acking.Refusal
		}
		s.answer(in, p, v, nil, acking.Answer{Offset: out.Offset, Kind: kind, Err: out.Err})
	case ok:
		in.answers.Refused(seq, s.service.config.Codec, s.shard.name, out.Err)
	default:
		if offset, known := s.knownID(v, m); known {
			s.answer(in, p, v, nil, acking.Answer{Offset: offset, Kind: acking.Duplicate})
			break
		}
		o.Last = max(o.Last, seq)
		in.refuse(s.shard, &publish.ForgottenError{Topic: s.shard.name})
	}
	return numberJudged
}

// knownID returns the offset of the message with the id of m. mu is held.
func (s *ShardLeader) knownID(v *view, m *protocol.Message) (offset uint64, ok bool) {
	if m.Header == 0 || v.window <= 0 {
		return 0, false
	}
	c, err := s.conditions(m)
	if err != nil || len(c.ID) == 0 {
		return 0, false
	}
	return s.ids.Find(dedup.HashOf(c.ID))
}

// judge reports whether a message is to be kept, and adds its answer to p or to in. mu is held.
func (s *ShardLeader) judge(in *intake, p *acking.Pending, v *view, m *protocol.Message, now, mono int64) bool {
	if v.plain && m.Header == 0 && in.sourced == nil && (v.maxMessage <= 0 || len(m.Data) <= v.maxMessage) {
		s.keepPlain(in, p, m)
		return true
	}
	c, refusal := s.conditions(m)
	switch {
	case in.sourced != nil:
		c, refusal = in.sourced.Ask(c, v.expiry.On, v.limits.RollUps), nil
	case refusal == nil && c.Part:
		refusal = &publish.BatchError{Topic: s.shard.name}
	case refusal == nil && c.Copied:
		refusal = &publish.CopyError{Topic: s.shard.name}
	}
	if refusal != nil {
		in.refuse(s.shard, refusal)
		return false
	}
	if c.Records > 0 && !s.judgeRecords(in, v, m, &c) || !s.accept(in, p, v, m, &c, now, mono) {
		return false
	}
	if in.sourced != nil {
		return true // nobody is told
	}
	p.Kept(s.end, acking.Answer{Offset: s.end + uint64(len(in.records)) + c.Span(), Records: uint32(c.Records), Total: in.counted.Total.Value, Seq: in.seq})
	if c.Records > 0 {
		in.gatherRecords(m, &c, now)
	}
	return true
}

// keepPlain notes a message that asks for nothing, and that the Topic has no rule for (view.plain).
// It does what judge does for such a message. mu is held.
func (s *ShardLeader) keepPlain(in *intake, p *acking.Pending, m *protocol.Message) {
	if in.noted {
		in.noted, in.displaced, in.counted, in.fired, in.previous = false, removing.Displaced{}, counting.Record{}, expiring.Fired{}, republish.Note{}
	}
	next := s.end + uint64(len(in.records))
	s.lastID, s.lastKnown = s.lastID[:0], true
	if s.subjects != nil {
		in.displaced.Note(s.subjects, m.Subject, next, next)
	}
	p.KeptOne(s.end, next, in.seq)
}

// conditions returns what a message asks for, or why it is refused.
func (s *ShardLeader) conditions(m *protocol.Message) (c publish.Conditions, refusal error) {
	if m.Header > 0 {
		c, refusal = s.service.config.Codec.Conditions(m.Data[:m.Header])
	}
	return c, refusal
}

// accept judges a message that asks for c, and notes it if it is to be kept. mu is held.
func (s *ShardLeader) accept(in *intake, p *acking.Pending, v *view, m *protocol.Message, c *publish.Conditions, now, mono int64) bool {
	in.noted = true
	if v.bound.Sealed { // whatever else the message asks for
		in.refuse(s.shard, &publish.SealedError{Topic: s.shard.name})
		return false
	}
	if c.Records == 0 && v.maxMessage > 0 && in.sourced.Size(m) > v.maxMessage {
		in.refuse(s.shard, &publish.TooLargeError{Topic: s.shard.name, Size: in.sourced.Size(m), Max: v.maxMessage})
		return false
	}
	next := s.end + uint64(len(in.records))
	last := next + c.Span()
	expires, refusal := v.expiry.Expires(s.shard.name, m.Subject, c, now, &s.removing)
	if refusal == nil {
		in.fired, refusal = expiring.Judge(s.shard.name, c, m, &s.removing, &in.removed)
	}
	if refusal != nil {
		in.refuse(s.shard, refusal)
		return false
	}
	of := c.Schedule.Ends()
	if (expires > 0 || len(of) > 0 || in.sourced != nil && !in.sourced.Of.Mirrored) && !s.removing.Marked() {
		in.lookup = awaitsMark
		return false
	}
	ok, endless := s.ends(in, m, c, of)
	if !ok || !s.count(in, v, m, c) || !s.displaces(in, v, m, c) || !s.follows(in, v, m) {
		return false
	}
	if endless != nil {
		in.displaced.Refusal = endless
	}
	switch {
	case c.Any():
		if !s.conditionsHold(in, p, v, m, c, next, mono) {
			return false
		}
	case !s.hasRoom(in, v, m, last):
		return false
	}
	s.lastID, s.lastKnown = append(s.lastID[:0], c.ID...), true
	s.displace(in, m, next, last)
	in.republish(next, last)
	s.keepFired(in, c)
	if in.counted.Data != nil {
		s.totals.Add(next, in.counted.Before, in.counted.Total)
	}
	if expires > 0 {
		in.removed.Expire(s.epoch.Load(), next, expires)
	}
	if in.sourced != nil && !in.sourced.Of.Mirrored {
		in.removed.Source(s.epoch.Load(), next, in.sourced.Next(), in.sourced.Configured)
	}
	return true
}

// conditionsHold reports whether the conditions hold for a message at offset next. If not, it
// answers the message. mu is held.
func (s *ShardLeader) conditionsHold(in *intake, p *acking.Pending, v *view, m *protocol.Message, c *publish.Conditions, next uint64, mono int64) bool {
	t := s.topic
	switch {
	case len(c.ExpectedTopic) > 0 && string(c.ExpectedTopic) != t.name && string(c.ExpectedTopic) != s.shard.name:
		in.refuse(s.shard, &publish.WrongTopicError{Topic: s.shard.name, Expected: string(c.ExpectedTopic)})
		return false
	case t.several() && !c.OneShard(s.shard.name, m.Subject, func(subject []byte) bool { return t.ShardFor(subject) == s.shard }):
		in.refuse(s.shard, publish.NoLastOfAll(t.name, len(t.shards), s.shard.name))
		return false
	case len(c.ID) > maxID:
		in.refuse(s.shard, &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "a message id of more than 1 KiB", Why: "each is kept in memory"})
		return false
	}
	var hash dedup.Hash
	if len(c.ID) > 0 && v.window > 0 {
		if in.first = !s.marked; in.first {
			return false
		}
		hash = dedup.HashOf(c.ID)
		if offset, ok := s.ids.Find(hash); ok {
			s.service.counts.duplicates.Add(1)
			s.answer(in, p, v, m.Reply, acking.Answer{Offset: offset, Kind: acking.Duplicate})
			return false
		}
		if refusal := s.idHidden(v); refusal != nil {
			in.refuse(s.shard, refusal)
			return false
		}
	}
	if len(c.After) > 0 {
		if refusal := s.judgeAfter(v, c.After); refusal != nil {
			s.condition(in, p, v, m.Reply, refusal)
			return false
		}
	}
	if c.ExpectsLastBySubject {
		if !s.lastIs(in, p, v, c.LastOf(m.Subject), c.ExpectedLastBySubject) {
			return false
		}
	}
	if c.ExpectsLast && c.ExpectedLast != next-1 {
		s.answer(in, p, v, m.Reply, acking.Answer{Offset: next - 1, Kind: acking.Refusal, Err: &publish.WrongLastError{Topic: s.shard.name, Last: next - 1}})
		return false
	}
	if len(c.ExpectedLastID) > 0 {
		last, err := s.lastMessageID(next)
		if err != nil {
			in.refuse(s.shard, &publish.StoreError{Topic: s.shard.name, Err: err})
			return false
		}
		if string(last) != string(c.ExpectedLastID) {
			s.answer(in, p, v, m.Reply, acking.Answer{Offset: next - 1, Kind: acking.Refusal, Err: &publish.WrongLastIDError{Topic: s.shard.name, ID: string(last)}})
			return false
		}
	}
	if !s.hasRoom(in, v, m, next+c.Span()) {
		return false
	}
	if len(c.ID) > 0 && v.window > 0 {
		if !s.ids.Admits() {
			in.refuse(s.shard, &publish.WindowFullError{Topic: s.shard.name, IDs: s.ids.Len(), Window: v.window})
			return false
		}
		s.ids.Add(hash, next+c.Span(), mono)
	}
	return true
}

// lastIs reports whether the last message of a subject, or of those that match it, has an offset.
// If not, it answers the next message, or that message waits. mu is held.
func (s *ShardLeader) lastIs(in *intake, p *acking.Pending, v *view, of []byte, offset uint64) bool {
	last, err := s.lastExpected(in, of)
	switch {
	case in.lookup > 0:
		return false
	case err != nil:
		in.refuse(s.shard, err)
		return false
	case last != offset:
		s.answer(in, p, v, nil, acking.Answer{Offset: last, Kind: acking.Refusal, Err: &publish.WrongLastError{Topic: s.shard.name, Subject: string(of), Last: last}})
		return false
	}
	return true
}

// hasRoom reports whether the Topic takes another message, whose last record has offset last. If
// not, it refuses the message. Records under way count, and bytes of this batch. A message that
// takes the place of an older one has room. mu is held.
func (s *ShardLeader) hasRoom(in *intake, v *view, m *protocol.Message, last uint64) bool {
	if refusal := in.displaced.Refusal; refusal != nil {
		in.refuse(s.shard, refusal)
		return false
	}
	if v.bound == (publish.Bound{}) || in.displaced.Full && !v.bound.Sealed {
		return true
	}
	start, _ := s.Offsets()
	if in.stored == 0 {
		in.stored = max(s.Bytes(start)-removing.RemovedBytes(s.data, s.Removed(), start), 1)
	}
	size := int64(len(m.Subject) + len(m.Data))
	if refusal := v.bound.Check(s.shard.name, s.Messages(start, last+1), in.stored+size); refusal != nil {
		in.refuse(s.shard, refusal)
		return false
	}
	in.stored += size
	return true
}

// condition refuses a message whose condition fails or can't be judged. mu is held.
func (s *ShardLeader) condition(in *intake, p *acking.Pending, v *view, to []byte, err error) {
	if publish.Falsifiable(err) {
		s.answer(in, p, v, to, acking.Answer{Kind: acking.Refusal, Err: err})
	} else {
		in.refuse(s.shard, err)
	}
}

// answer gives an answer that depends on the record at its offset: at once if that record is below
// the high watermark, and with p otherwise. With more than one replica a refusal waits for a
// barrier round as well. mu is held.
func (s *ShardLeader) answer(in *intake, p *acking.Pending, v *view, to []byte, a acking.Answer) {
	if in.sourced != nil {
		in.sourced.Err = a.Err
		return
	}
	if a.Kind == acking.Refusal {
		s.service.counts.refused.Note(a.Err)
	}
	a.Seq = in.seq
	in.origin.Settle(a.Seq, forward.Outcome{Offset: a.Offset, Duplicate: a.Kind == acking.Duplicate, Err: a.Err})
	switch {
	case a.Kind == acking.Refusal && len(v.shard.Replicas) > 1:
		a.Again = !in.origin.Fresh(a.Seq)
		q := s.pendingRefusals(in)
		q.Answers = append(q.Answers, a)
	case a.Offset >= s.high.Load():
		p.Answers = append(p.Answers, a)
	case a.Kind == acking.Duplicate:
		in.answers.Single(a.Seq, a.Offset, 0, true)
	default:
		in.answers.Refused(a.Seq, s.service.config.Codec, s.shard.name, a.Err)
	}
}

// pendingRefusals returns the pending for refusals that wait for a barrier round.
func (s *ShardLeader) pendingRefusals(in *intake) *acking.Pending {
	if in.refusals == nil {
		in.refusals = s.acks.New(in.back)
	}
	return in.refusals
}

// judgeAfter returns why a message can't be kept behind the message with an id, or nil. mu is held.
func (s *ShardLeader) judgeAfter(v *view, id []byte) error {
	if v.window <= 0 {
		return &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "publishing after a message id", Why: "the topic has no deduplication window, so ids are not remembered"}
	}
	if _, ok := s.ids.Find(dedup.HashOf(id)); ok {
		return nil
	}
	if refusal := s.idHidden(v); refusal != nil {
		return refusal
	}
	return &publish.NotAfterError{Topic: s.shard.name, ID: string(id)}
}

// judgeRecords reports whether the records that a message carries are valid. If records of other
// messages were gathered, in.alone is set, and they are appended first. mu is held.
func (s *ShardLeader) judgeRecords(in *intake, v *view, m *protocol.Message, c *publish.Conditions) bool {
	if in.alone = len(in.records) > 0; in.alone {
		return false
	}
	if why := publish.CheckRecords(m.Data[m.Header:], c.Records, v.maxMessage); why != "" {
		in.refuse(s.shard, &publish.RecordsError{Topic: s.shard.name, Why: why})
		return false
	}
	return true
}

// undo forgets what was noted of messages that are not appended, with known ids before them. mu is
// held.
func (s *ShardLeader) undo(known int) {
	s.ids.Undo(known)
	if s.lastKnown = false; s.subjects != nil {
		s.subjects.Undo(s.end)
	}
	s.totals.Undo()
}
