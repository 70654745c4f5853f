package topic

import (
	"errors"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"math"
	"sync"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// intake is what one call of Take works with.
type intake struct {
	records []log.Record
	append  log.Append
	first   bool // the next message is the first with an id, and the log has to say so before
	alone   bool // the next message, or the last one gathered, is a batch by itself
	gone    bool // the shard has ended

	extensions []log.Extension

	from      *sender.Arrival
	back      sender.Back
	seq       uint64 // of the next message
	why       error  // why nothing is taken, or nil
	gap       bool   // others have to come before the next message
	origin    *forward.Origin
	spans     []forward.Span  // what is kept in the batch
	answers   forward.Answers // that are due at once
	questions *pending        // refusals that wait until it is confirmed that this broker leads; nil: none
	signature []byte
	head      []byte
}

var intakes = sync.Pool{New: func() any { return &intake{} }}

// take accepts what one read of a connection brought.
func (p *Shard) take(messages []protocol.Message) (behind bool) {
	s := p.topic.service
	behind = p.sender().Publish(p.view.Load(), messages)
	if shard := p.leading.Load(); shard != nil {
		behind = behind || shard.pushesBack()
	}
	return behind || s.config.Disk.Behind() || s.acker.unanswered.Load() > maxUnanswered
}

// put takes some of the messages, and returns the rest.
func (s *ShardLeader) put(in *intake, v *view, messages []protocol.Message) (rest []protocol.Message) {
	messages = messages[s.take(in, v, messages):]
	if !in.first {
		return messages
	}
	in.first = false
	if err := s.markIDs(v); err != nil {
		in.refuseAll(s.shard, messages, &publish.StoreError{Topic: s.shard.name, Err: err})
		return nil
	}
	return messages
}

// finish sends the answers that are due at once.
func (in *intake) finish(p *Shard) {
	in.head = in.back.Carry(&in.answers, p.at(), in.head)
	in.from, in.back, in.origin, in.why, in.gap, in.gone = nil, sender.Back{}, nil, nil, false, false
	intakes.Put(in)
}

// refusal is why nothing can be published now.
func (p *Shard) refusal() error {
	if why := p.whyNot(); why != nil {
		return why
	}
	// It has become possible between two looks.
	return &publish.NotServedError{Topic: p.topic.name, Reason: publish.Opening, Leader: p.view.Load().leader, Why: "its log is being opened; try again"}
}

func (in *intake) refuseAll(p *Shard, messages []protocol.Message, err error) {
	for range messages {
		in.refuse(p, err)
		in.seq++
	}
}

// refuse answers at once that a message is not kept.
func (in *intake) refuse(p *Shard, err error) {
	p.topic.service.counts.refused.Note(err)
	in.answers.Refused(in.seq, p.topic.service.config.Codec, p.topic.name, err)
	if in.origin != nil {
		in.origin.Settle(in.seq, forward.Outcome{Err: err})
	}
}

// take judges messages and appends those that are to be kept as one batch. It returns how many it
// dealt with; none only if the next is the first with an id.
func (s *ShardLeader) take(in *intake, v *view, messages []protocol.Message) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.gone = s.closed; in.gone {
		return 0
	}
	if s.failed.Load() != nil {
		in.refuseAll(s.shard, messages, s.shard.refusal())
		return len(messages)
	}
	now, mono := s.now()
	defer s.settleQuestions(in)
	s.ids.Lock()
	defer s.ids.Unlock()
	s.ids.Follow(s.service.config.Clock.Off())
	s.ids.Expire(mono - int64(v.window))
	known, size := s.ids.Len(), 0
	kept := 0 // messages
	p := newPending(s)
	p.back = in.back
	in.origin = s.origins.Of(in.from.Source, in.from.Floor)
	in.origin.Heard = forward.Mono()
	in.alone, in.append, in.extensions = false, log.Append{}, in.extensions[:0]
	for n < len(messages) && len(in.records) < batchRecords && !in.alone {
		m := &messages[n]
		met := s.meet(in, p, v, m)
		if in.gap = met == isGap; in.gap {
			break
		}
		if met == isKnown {
			n++
			in.seq++
			continue
		}
		if len(in.records) > 0 && size+len(m.Data)+len(m.Subject) > batchBytes {
			break
		}
		keep := v.keeps(m.Subject) && s.judge(in, p, v, m, now, mono)
		if in.first || in.alone && !keep {
			break
		}
		n++
		in.note(keep, s.end+uint64(len(in.records)), in.append.Packed.Count)
		in.seq++
		if keep {
			kept++
			size += len(m.Data) + len(m.Subject)
		}
		if keep && !in.alone {
			in.records = append(in.records, log.Record{Time: now, Subject: m.Subject, Header: m.Header, Data: m.Data})
		}
	}
	count, answers := uint64(len(in.records)+in.append.Packed.Count), p.messages()
	if count == 0 {
		s.settleLater(p)
		return n
	}
	in.sign(in.from.Source, in.from.Floor)
	in.append.Epoch, in.append.Records, in.append.Durability, in.append.Done = s.epoch.Load(), in.records, v.durability, p
	in.append.Extensions = in.extensions
	p.durability, p.end = v.durability, s.end+count
	if len(v.shard.Replicas) > 1 {
		p.size, p.records = size, int(count)
		s.ahead.add(p.size, p.records)
	}
	_, err := s.data.Append(&in.append)
	in.appended(err)
	clear(in.records)
	clear(in.extensions)
	in.records, in.append = in.records[:0], log.Append{}
	if err == nil { // p is the committer's now
		s.service.acker.unanswered.Add(answers)
		s.end += count
		s.leading.Load().Grown(replica.Data, s.end, true)
		s.lastTime = now
		s.service.counts.appended.Add(count)
		return n
	}
	if p.size > 0 {
		s.ahead.take(p.size, p.records)
		p.size, p.records = 0, 0
	}
	s.ids.Undo(known)
	s.lastKnown, s.subjects = false, nil
	s.notAppended(in, v, p, kept, err)
	return n
}

// judge says whether a message is to be kept, and notes in p or in what is answered. mu is held.
func (s *ShardLeader) judge(in *intake, p *pending, v *view, m *protocol.Message, now, mono int64) bool {
	var c publish.Conditions
	if m.Header > 0 {
		var refusal error
		if c, refusal = s.service.config.Codec.Conditions(m.Data[:m.Header]); refusal != nil {
			in.refuse(s.shard, refusal)
			return false
		}
	}
	if c.Records > 0 && !s.judgeRecords(in, v, m, &c) {
		return false
	}
	if c.Records == 0 && v.maxMessage > 0 && len(m.Data) > v.maxMessage {
		in.refuse(s.shard, &publish.TooLargeError{Topic: s.shard.name, Size: len(m.Data), Max: v.maxMessage})
		return false
	}
	next := s.end + uint64(len(in.records))
	last := next + c.Span()
	if c.Any() && !s.holds(in, p, v, m, &c, next, mono) {
		return false
	}
	s.lastID, s.lastKnown = append(s.lastID[:0], c.ID...), true
	if s.subjects != nil {
		s.subjects.note(m.Subject, last)
	}
	p.kept(s.end, answer{offset: last, records: uint32(c.Records), seq: in.seq})
	if c.Records > 0 {
		in.gatherRecords(m, &c, now)
	}
	return true
}

// holds says whether the conditions hold for the message that is to be kept at next. mu is held.
func (s *ShardLeader) holds(in *intake, p *pending, v *view, m *protocol.Message, c *publish.Conditions, next uint64, mono int64) bool {
	t := s.topic
	switch {
	case len(c.ExpectedTopic) > 0 && string(c.ExpectedTopic) != t.name && string(c.ExpectedTopic) != s.shard.name:
		in.refuse(s.shard, &publish.WrongTopicError{Topic: s.shard.name, Expected: string(c.ExpectedTopic)})
		return false
	case t.several() && !s.shard.canJudge(c):
		in.refuse(s.shard, s.shard.cantJudge())
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
			s.answer(in, p, v, m.Reply, answer{offset: offset, kind: isDuplicate})
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
		of := c.ExpectedSubject
		if len(of) == 0 {
			of = m.Subject
		}
		last, err := s.lastOf(in, of)
		if err != nil {
			in.refuse(s.shard, err)
			return false
		}
		if last != c.ExpectedLastBySubject {
			s.answer(in, p, v, m.Reply, answer{offset: last, kind: isRefusal, err: &publish.WrongLastError{Topic: s.shard.name, Subject: string(of), Last: last}})
			return false
		}
	}
	if c.ExpectsLast && c.ExpectedLast != next-1 {
		s.answer(in, p, v, m.Reply, answer{offset: next - 1, kind: isRefusal, err: &publish.WrongLastError{Topic: s.shard.name, Last: next - 1}})
		return false
	}
	if len(c.ExpectedLastID) > 0 {
		last, err := s.lastMessageID(next)
		if err != nil {
			in.refuse(s.shard, &publish.StoreError{Topic: s.shard.name, Err: err})
			return false
		}
		if string(last) != string(c.ExpectedLastID) {
			s.answer(in, p, v, m.Reply, answer{offset: next - 1, kind: isRefusal, err: &publish.WrongLastIDError{Topic: s.shard.name, ID: string(last)}})
			return false
		}
	}
	if len(c.ID) > 0 && v.window > 0 {
		if s.ids.Full() {
			in.refuse(s.shard, &publish.WindowFullError{Topic: s.shard.name, IDs: s.ids.Len(), Window: v.window})
			return false
		}
		s.ids.Add(hash, next+c.Span(), mono)
	}
	return true
}

// condition answers that a message's condition does not hold or can't be judged. mu is held.
func (s *ShardLeader) condition(in *intake, p *pending, v *view, to []byte, err error) {
	if publish.Falsifiable(err) {
		s.answer(in, p, v, to, answer{kind: isRefusal, err: err})
	} else {
		in.refuse(s.shard, err)
	}
}

// answer gives an answer that rests on the record at its offset: now if that record is
// as safe as the Topic asks for, and with it otherwise. A refusal also waits until the in-sync replicas have confirmed
// that this broker leads. mu is held.
func (s *ShardLeader) answer(in *intake, p *pending, v *view, to []byte, a answer) {
	if a.kind == isRefusal {
		s.service.counts.refused.Note(a.err)
	}
	a.seq = in.seq
	in.origin.Settle(a.seq, forward.Outcome{Offset: a.offset, Duplicate: a.kind == isDuplicate, Err: a.err})
	switch {
	case a.kind == isRefusal && len(v.shard.Replicas) > 1:
		a.again = a.seq < in.from.Below
		q := s.question(in)
		q.answers = append(q.answers, a)
	case a.offset >= s.high.Load():
		p.answers = append(p.answers, a)
	case a.kind == isDuplicate:
		in.answers.Single(a.seq, a.offset, 0, true)
	default:
		in.answers.Refused(a.seq, s.service.config.Codec, s.shard.name, a.err)
	}
}

// lastMessageID is the id of the message before next. mu is held.
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

// settleLater sees to answers of which none belongs to a message that is kept now. mu is held.
func (s *ShardLeader) settleLater(p *pending) {
	if len(p.answers) == 0 {
		p.free()
		return
	}
	s.service.acker.unanswered.Add(p.messages())
	s.waiting = append(s.waiting, p)
	if p.rest() < s.high.Load() { // settled meanwhile, and perhaps nothing more is to be
		s.service.acker.touch(s)
	}
}

// notAppended refuses the messages that could not be appended, at once. Answers that rest on records before them
// stand. mu is held.
func (s *ShardLeader) notAppended(in *intake, v *view, p *pending, count int, err error) {
	if failed, ok := errors.AsType[*log.FailedError](err); ok {
		s.fail(failed)
	}
	refusal := &publish.StoreError{Topic: s.shard.name, Err: err}
	count -= s.dropUnkept(in, p, refusal)
	if in.questions != nil {
		s.dropUnkept(in, in.questions, refusal)
	}
	for range count { // those that asked for no answer
		s.service.counts.refused.Note(refusal)
	}
	p.end = 0
	s.settleLater(p)
}

// dropUnkept gives a refusal instead of the answers of p that rest on messages that could not be appended, and says how many of
// those are acks. mu is held.
func (s *ShardLeader) dropUnkept(in *intake, p *pending, refusal error) (acks int) {
	left := p.answers[:0]
	for i := range p.answers {
		a := &p.answers[i]
		if a.offset < s.end {
			left = append(left, *a)
			continue
		}
		for seq := a.seq; seq <= a.seq+uint64(a.more); seq++ {
			if a.kind == isKept {
				acks++
				s.service.counts.refused.Note(refusal)
			}
			in.answers.Refused(seq, s.service.config.Codec, s.shard.name, refusal)
			in.origin.Settle(seq, forward.Outcome{Err: refusal})
		}
	}
	p.answers = left
	return acks
}
