package topic

import (
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// judgeAfter says why a message can't be kept behind the one with that id, or nothing. mu is held.
func (s *ShardLeader) judgeAfter(v *view, id []byte) error {
	if v.window <= 0 {
		return &publish.UnsupportedConditionError{Topic: s.shard.name, Condition: "publishing after a message id", Why: "the topic has no deduplication window, so ids are not remembered"}
	}
	if _, ok := s.ids.Find(dedup.HashOf(id)); !ok {
		return &publish.NotAfterError{Topic: s.shard.name, ID: string(id)}
	}
	return nil
}

// judgeRecords says whether a message can be taken as the records that it announces. If others were gathered
// before it, those are to be appended first, which in.alone says. mu is held.
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

// gatherRecords adds the records of a message, which becomes a batch of its own. mu is held.
func (in *intake) gatherRecords(m *protocol.Message, c *publish.Conditions, now int64) {
	if len(c.ID) > 0 {
		in.extensions = append(in.extensions, log.Extension{Type: publish.MessageID, Data: c.ID})
	}
	in.append.Packed = log.Packed{Subject: m.Subject, Time: now, Count: c.Records, Records: m.Data[m.Header:]}
	in.alone = true
}
