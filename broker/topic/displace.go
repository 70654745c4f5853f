package topic

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/scheduling"
	"github.com/carillon-mq/carillon/broker/subject"
)

// displaces finds what the next message would remove. If it returns false, the message waits
// (in.lookup), or was refused. mu is held.
func (s *ShardLeader) displaces(in *intake, v *view, m *protocol.Message, c *publish.Conditions) bool {
	d := &in.displaced
	*d = removing.Displaced{}
	if v.limits == (publish.Limits{}) && c.Rollup == publish.NoRollup {
		return true
	}
	err, records := v.limits.MayRollUp(s.shard.name, c.Rollup), 1+c.Span()
	d.Pattern = c.Rollup == publish.RollupSubject && subject.HasWildcards(m.Subject)
	_, d.Own, d.Refusal = v.limits.Beyond(s.shard.name, 0, records)
	switch {
	case err != nil:
	case (c.Rollup == publish.RollupAll || d.Pattern) && s.topic.several():
		err = publish.NoLastOfAll(s.topic.name, len(s.topic.shards), s.shard.name)
	case c.Rollup == publish.RollupAll:
		d.All = true
	case d.Pattern:
		var more uint64
		if d.Offsets, more, err = s.matchesOf(in, m.Subject); more > 0 {
			err = &publish.RollupError{Topic: s.shard.name, Why: fmt.Sprintf("of %d messages, which is more than %d: purge the subjects first", more, indexing.MostOldest)}
		}
	case c.Rollup == publish.RollupSubject:
		var more uint64
		if d.Offsets, more, err = s.oldestOf(in, m.Subject); more > 0 {
			err = &publish.RollupError{Topic: s.shard.name, Why: fmt.Sprintf("of more than %d messages: purge the subject first", len(d.Offsets))}
		}
	case v.limits.PerSubject > 0:
		err = s.beyondLimit(in, v, m, records)
	}
	if in.lookup > 0 {
		return false
	}
	if in.sourced != nil && c.Rollup != publish.NoRollup && unremovable(err) {
		// The origin has removed what it had. A copy that was refused would hold up its source for
		// ever, so it is kept, and removes nothing.
		kept := *c
		kept.Rollup = publish.NoRollup
		return s.displaces(in, v, m, &kept)
	}
	if err != nil {
		in.refuse(s.shard, err)
		return false
	}
	if d.Any() && !s.removing.Marked() {
		in.lookup = awaitsMark
		return false
	}
	return true
}

// unremovable reports whether a rollup is refused since this shard can't remove that much.
func unremovable(err error) bool {
	rollup, unsupported := (*publish.RollupError)(nil), (*publish.UnsupportedConditionError)(nil)
	return errors.As(err, &rollup) || errors.As(err, &unsupported)
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
		d.Last[0], count = last, min(last, 1)
		d.Offsets = d.Last[:count]
	} else {
		offsets, more, err := s.oldestOf(in, m.Subject)
		if in.lookup > 0 || err != nil {
			return s.limitUnknown(in, v, err)
		}
		d.Offsets, count = offsets, uint64(len(offsets))+more
	}
	older, own, refusal := v.limits.Beyond(s.shard.name, count, records)
	d.Full, d.Own, d.Refusal = count >= v.limits.PerSubject, own, refusal
	d.Offsets = d.Offsets[:min(older, uint64(len(d.Offsets)))]
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

// limitedSince reports whether messages that v judges may be beyond the limit of their subject,
// since the Topic has a lower one by now. Package limiting may have enforced that already.
func (s *ShardLeader) limitedSince(v *view) bool {
	most, now := v.limits.PerSubject, s.shard.view.Load().limits.PerSubject
	return now > 0 && (most == 0 || most > now)
}

// keepFired notes what becomes of the schedule, if the next message is of one. mu is held.
func (s *ShardLeader) keepFired(in *intake, c *publish.Conditions) {
	if in.fired.Keep(s.data, &in.removed); in.fired.Offset > 0 && in.fired.Next == 0 && s.subjects != nil {
		of := c.ExpectedSubject
		if ended := c.Schedule.Ends(); len(ended) > 0 {
			of = ended
		}
		in.displaced.Last[0] = in.fired.Offset
		s.subjects.Removed(of, in.displaced.Last[:])
	}
}

// ends finds the schedule of a subject that the next message ends. If ok is false, the message
// waits, for messages before it to be appended, too (in.alone), or was refused. The refusal is why
// it is not kept, unless it was kept before. mu is held.
func (s *ShardLeader) ends(in *intake, m *protocol.Message, c *publish.Conditions, of []byte) (ok bool, refusal error) {
	switch {
	case len(of) == 0:
		return true, nil
	case c.Rollup == publish.RollupAll, c.Rollup == publish.RollupSubject && subject.HasWildcards(m.Subject) && subject.Matches(m.Subject, of):
		return true, nil // which removes it
	case s.topic.several() && s.topic.ShardFor(of) != s.shard:
		in.refuse(s.shard, publish.NoLastOfAll(s.topic.name, len(s.topic.shards), s.shard.name))
		return false, nil
	}
	last, err := s.lastOf(in, of)
	switch {
	case in.lookup > 0:
		return false, nil
	case err != nil:
		return true, err
	case last == 0:
		return true, nil
	case last >= s.end && len(in.records) > 0:
		in.alone = true
		return false, nil
	}
	schedules, err := s.Scheduled(s.service.config.Codec, last)
	switch {
	case err != nil:
		return true, &publish.StoreError{Topic: s.shard.name, Err: err}
	case !schedules:
		return true, &scheduling.Error{Topic: s.shard.name, Reason: scheduling.BadScheduler}
	}
	in.fired = expiring.Ending(last)
	return true, nil
}

// displace notes what the next message removes, since it is kept. Its records have the offsets from
// next up to last. mu is held.
func (s *ShardLeader) displace(in *intake, m *protocol.Message, next, last uint64) {
	start := uint64(0)
	if in.displaced.All {
		start, _ = s.Offsets()
	}
	in.displaced.Remove(&in.removed, s.data, s.epoch.Load(), start, s.end, next)
	if s.subjects != nil {
		in.displaced.Note(s.subjects, m.Subject, next, last)
	}
}
