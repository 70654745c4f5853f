package topic

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// appendMessages judges and appends some of the messages, and returns the rest. The first message
// with an id marks the log.
func (s *ShardLeader) appendMessages(in *intake, v *view,
	messages []protocol.Message) (rest []protocol.Message) {
	messages = messages[s.appendBatch(in, v, messages):]
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

// appendBatch judges messages and appends the accepted ones as one batch. It returns how many it
// dealt with. That is 0 only if the next message is the first with an id, behind a gap, or waits
// for a lookup, or if leadership ended.
func (s *ShardLeader) appendBatch(in *intake, v *view, messages []protocol.Message) (n int) {
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
	in.lookup = 0
	defer s.settleRefusals(in)
	s.ids.Lock()
	defer s.ids.Unlock()
	s.ids.Follow(s.service.config.Clock.Off())
	s.ids.Expire(mono - int64(v.window))
	known, size := s.ids.Len(), 0
	in.stored = 0
	kept := 0 // number of messages
	p := s.acks.New(in.back)
	if in.sourced == nil {
		in.origin = s.origins.Of(in.from.Source, in.from.Floor)
		in.origin.Heard = forward.Mono()
		in.origin.Arrived(in.from.Epoch, in.from.Below)
	}
	in.alone, in.append, in.extensions, in.again = false, log.Append{}, in.extensions[:0], in.again[:0]
	in.beginStamps(s.service, s.end)
	for n < len(messages) && len(in.records) < batchRecords && !in.removed.Full() && !in.alone {
		m := &messages[n]
		number := numberNew
		if in.sourced == nil {
			number = s.judgeNumber(in, p, v, m)
		}
		if in.gap = number == numberGap; in.gap || number == numberWaits {
			break
		}
		if number == numberJudged {
			n++
			in.seq++
			continue
		}
		if len(in.records) > 0 && size+len(m.Data)+len(m.Subject)+in.stampsRoom() > batchBytes {
			break
		}
		at, behind, keep := s.end+uint64(len(in.records)), messages[n:], false
		stored := in.sourced.Time(now)
		if len(m.To) > 0 {
			keep = s.judgeBatch(in, p, v, m, now, mono)
			behind = in.parts
		} else {
			keep = (in.sourced != nil || v.subjects.Keep(m.Subject)) && s.judge(in, p, v, m, stored, mono)
		}
		if in.lookup > 0 && in.lookup != awaitsMark {
			s.lookUp(v, behind)
		}
		if in.first || in.lookup > 0 || in.alone && !keep || in.sourced != nil && in.sourced.Err != nil {
			break
		}
		n++
		records := in.append.Packed.Count
		if len(m.To) > 0 {
			records = len(in.records)
		}
		in.note(keep, at, records)
		in.seq++
		if keep {
			kept++
			size += len(m.Data) + len(m.Subject)
		}
		if keep && !in.alone {
			in.records = append(in.records, in.record(m, stored))
		}
		in.stamp(s.end)
	}
	count, answers := uint64(len(in.records)+in.append.Packed.Count), p.Messages()
	if count == 0 {
		s.settleLater(p)
		return n
	}
	if in.sourced == nil {
		in.sign(in.from.Source, in.from.Floor)
	}
	size += in.addStamps()
	if s.limitedSince(v) {
		in.removed.Unlimited(&s.removing, v.durability)
	}
	var carries bool
	in.extensions, carries = in.removed.Carry(&s.removing, s.end+count, in.extensions)
	in.append.Epoch, in.append.Records, in.append.Durability, in.append.Done = s.epoch.Load(), in.records, v.durability, p
	in.append.Extensions = in.extensions
	p.Durability, p.End = v.durability, s.end+count
	if len(v.shard.Replicas) > 1 {
		p.Size, p.Records = size, int(count)
		s.ahead.Add(p.Size, p.Records)
	}
	_, err := s.data.Append(&in.append)
	in.appended(err)
	clear(in.records)
	clear(in.extensions)
	in.records, in.append = in.records[:0], log.Append{}
	in.removed.Reset()
	if err == nil { // p belongs to the committer now
		s.service.acker.Expect(answers)
		s.end += count
		s.leading.Load().Appended(replica.Data, s.end, true)
		s.lastTime = now
		s.service.counts.appended.Add(count)
		if s.removing.Appended(size); s.limitedSince(v) {
			s.removing.Raise(0, v.durability)
		}
		s.republish.Append(in.again)
		if s.subjects != nil {
			s.subjects.Appended(s.end)
		}
		s.totals.Appended()
		return n
	}
	if p.Size > 0 {
		s.ahead.Remove(p.Size, p.Records)
		p.Size, p.Records = 0, 0
	}
	if carries {
		s.removing.Forget()
	}
	s.undo(known)
	if in.sourced != nil {
		in.sourced.Taken, in.sourced.Err = in.sourced.Taken-n, err
	}
	s.notAppended(in, v, p, kept, err)
	return n
}

// settleRefusals asks for the barrier round of the refusals in in. mu is held.
func (s *ShardLeader) settleRefusals(in *intake) {
	p := in.refusals
	if p == nil {
		return
	}
	in.refusals = nil
	if len(p.Answers) > 0 {
		p.Round, p.Asked = s.leading.Load().RequestRound(), forward.Mono()
		s.confirms.Count(1)
	}
	s.settleLater(p)
}

// settleLater queues answers without a record of their own. mu is held.
func (s *ShardLeader) settleLater(p *acking.Pending) { s.acks.Wait(p, s.high.Load()) }

// notAppended refuses the messages of a batch that could not be appended. Answers that depend on
// earlier records stand. mu is held.
func (s *ShardLeader) notAppended(in *intake, v *view, p *acking.Pending, count int, err error) {
	if failed, ok := errors.AsType[*log.FailedError](err); ok {
		s.fail(failed)
	}
	refusal := &publish.StoreError{Topic: s.shard.name, Err: err}
	count -= s.dropUnkept(in, p, refusal)
	if in.refusals != nil {
		s.dropUnkept(in, in.refusals, refusal)
	}
	for range count { // messages without a reply
		s.service.counts.refused.Note(refusal)
	}
	p.End = 0
	s.settleLater(p)
}

// dropUnkept refuses the messages of p whose answers depend on records that could not be appended.
// It returns how many of those answers were acks. mu is held.
func (s *ShardLeader) dropUnkept(in *intake, p *acking.Pending, refusal error) (acks int) {
	left := p.Answers[:0]
	for i := range p.Answers {
		a := &p.Answers[i]
		if a.Offset < s.end {
			left = append(left, *a)
			continue
		}
		for seq := a.Seq; seq <= a.Seq+uint64(a.More); seq++ {
			if a.Kind == acking.Kept {
				acks++
				s.service.counts.refused.Note(refusal)
			}
			in.answers.Refused(seq, s.service.config.Codec, s.shard.name, refusal)
			in.origin.Settle(seq, forward.Outcome{Err: refusal})
		}
	}
	p.Answers = left
	return acks
}
