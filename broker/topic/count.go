package topic

import (
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// count finds what the next message is stored as, if it increments a counter. If it returns false,
// the message waits (in.lookup), or was refused. mu is held.
func (s *ShardLeader) count(in *intake, v *view, m *protocol.Message, c *publish.Conditions) bool {
	in.counted = counting.Record{}
	if in.sourced != nil && in.sourced.Of.Mirrored {
		return true // a mirror keeps the totals of its origin
	}
	err := counting.Refusal(s.shard.name, v.counts, in.sourced != nil, m, c)
	if err == nil && !v.counts {
		return true
	}
	if err == nil {
		var last uint64
		if last, err = s.lastOf(in, m.Subject); in.lookup > 0 {
			return false
		}
		wait := false
		if err == nil {
			in.counted, wait, err = s.totals.Count(s.shard.name, m, c.Increment, in.sourced.From(), last, in.sourced.Most(v.maxMessage))
		}
		if wait {
			in.lookup, in.unread = awaitsTotal, last
			return false
		}
	}
	if err != nil {
		in.refuse(s.shard, err)
		return false
	}
	return true
}

// knownTotal returns the total for the answer to a message that is kept at an offset; empty: none,
// or it can't be read. The message may have to wait. mu is held.
func (s *ShardLeader) knownTotal(in *intake, v *view, offset uint64, records uint32) (total string, wait bool) {
	if !v.counts || records > 0 {
		return "", false
	}
	known, wait, _ := s.totals.At(offset)
	if wait {
		in.lookup, in.unread = awaitsTotal, offset
	}
	return known.Value, wait
}
