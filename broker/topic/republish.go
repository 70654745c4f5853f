package topic

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/republish"
)

// follows finds the message that the next one follows on its subject, if it is to be published
// again with that. If it returns false, the message waits. What can't be known is left out. mu is
// held.
func (s *ShardLeader) follows(in *intake, v *view, m *protocol.Message) bool {
	in.previous = republish.Note{}
	if !v.republish.Takes(m.Subject) {
		return true
	}
	last, err := s.lastOf(in, m.Subject)
	in.previous = republish.Note{Rule: v.republish, Known: err == nil, Last: last}
	return in.lookup == 0
}

// republish notes the next message, since it is kept, with the offsets from next up to last. mu is
// held.
func (in *intake) republish(next, last uint64) {
	if n := &in.previous; n.Rule != nil {
		n.Offset, n.Count = next, uint32(last-next+1)
		in.again = append(in.again, *n)
	}
}
