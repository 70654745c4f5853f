package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// displaces finds what the next message would remove. If it returns false, the message waits
// (in.lookup), or was refused. mu is held.
func (s *ShardLeader) displaces(in *intake, v *view, m *protocol.Message, c *publish.Conditions) bool {
	d := &in.displaced
	*d = displaced{}
	if v.limits == (publish.Limits{}) && c.Rollup == publish.NoRollup {
		return true
	}
	err, records := v.limits.MayRollUp(s.shard.name, c.Rollup), 1+c.Span()
	_, d.own, d.refusal = v.limits.Beyond(s.shard.name, 0, records)
	switch {
	case err != nil:
	case c.Rollup == publish.RollupAll && s.topic.several():
		err = publish.NoLastOfAll(s.topic.name, len(s.topic.shards), s.shard.name)
	case c.Rollup == publish.RollupAll:
		d.all = true
	case c.Rollup == publish.RollupSubject:
		var more uint64
		if d.offsets, more, err = s.oldestOf(in, m.Subject); more > 0 {
			err = &publish.RollupError{Topic: s.shard.name, Why: fmt.Sprintf("of more than %d messages: purge the subject first", len(d.offsets))}
		}
	case v.limits.PerSubject > 0:
		err = s.beyondLimit(in, v, m, records)
	}
	if in.lookup > 0 {
		return false
	}
	if err != nil {
		in.refuse(s.shard, err)
		return false
	}
	if (d.all || d.own > 0 || len(d.offsets) > 0) && !s.removing.Marked() {
		in.lookup = awaitsMark
		return false
	}
	return true
}

// beyondLimit finds the records of a message's subject that are beyond its limit with a number of
// new ones. Where that can't be known now they stay, and package limiting removes them. mu is held.
func (s *ShardLeader) beyondLimit(in *intake, v *view, m *protocol.Message, records uint64) error {
	d := &in.displaced
	var count uint64
	if v.limits.PerSubject == 1 {
		last, err := s.lastOf(in, m.Subject)
		if in.lookup > 0 || err != nil {
			return s.limitUnknown(in, v, err)
		}
		in.last[0], count = last, min(last, 1)
		d.offsets = in.last[:count]
	} else {
		offsets, more, err := s.oldestOf(in, m.Subject)
		if in.lookup > 0 || err != nil {
			return s.limitUnknown(in, v, err)
		}
		d.offsets, count = offsets, uint64(len(offsets))+more
	}
	older, own, refusal := v.limits.Beyond(s.shard.name, count, records)
	d.full, d.own, d.refusal = count >= v.limits.PerSubject, own, refusal
	d.offsets = d.offsets[:min(older, uint64(len(d.offsets)))]
	return nil
}

// limitUnknown judges a message whose subject's records are not known: it is kept, unless it could
// be beyond a limit that refuses. It returns nil as well if the message waits.
func (s *ShardLeader) limitUnknown(in *intake, v *view, err error) error {
	if err == nil || v.limits.DiscardNew {
		return err
	}
	in.removed.Unlimited(&s.removing, v.durability)
	return nil
}

// keepFired notes what becomes of the schedule, if the next message is of one. mu is held.
func (s *ShardLeader) keepFired(in *intake, c *publish.Conditions) {
	if in.fired.Keep(s.data, &in.removed); in.fired.Offset > 0 && in.fired.Next == 0 && s.subjects != nil {
		in.last[0] = in.fired.Offset
		s.subjects.Removed(c.ExpectedSubject, in.last[:])
	}
}

// displace notes what the next message removes, since it is kept. Its records have the offsets from
// next up to last. mu is held.
func (s *ShardLeader) displace(in *intake, m *protocol.Message, next, last uint64) {
	d, epoch := &in.displaced, s.epoch.Load()
	if d.all {
		start, _ := s.Offsets()
		in.removed.AddFrom(s.data, start, s.end)
		in.removed.Add(epoch, s.end, next)
	}
	for _, offset := range d.offsets {
		if offset < s.end {
			in.removed.AddFrom(s.data, offset, offset+1)
		} else {
			in.removed.Add(epoch, offset, offset+1)
		}
	}
	in.removed.Add(epoch, next, next+d.own)
	if s.subjects == nil {
		return
	}
	if d.all {
		s.subjects.RemovedAll(next)
	}
	s.subjects.Removed(m.Subject, d.offsets)
	s.subjects.NoteRun(m.Subject, next, last)
	for offset := next; offset < next+d.own; offset++ {
		in.last[0] = offset
		s.subjects.Removed(m.Subject, in.last[:])
	}
}
