package subscription

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Source is what Subscriptions need of a shard; *topic.Shard is one.
type Source interface {
	// Offsets are what may be read: from start up to, not including, end.
	Offsets() (start, end uint64)
	NewCursor(from uint64) *log.Cursor
	// Unreadable judges why records can't be read. A *log.CorruptError that it returns means that nobody has them; with any other error
	// they are to be tried again, here or where the shard is led next.
	Unreadable(err error) error
	// Watch calls changed after the end moved. changed doesn't block.
	Watch(changed func()) (stop func())
	// State is the log of cursors. Only AppendState appends to it.
	State() *log.Log
	// AppendState appends to it under the shard's epoch. With a Done, that hears when what was appended is as
	// safe, wherever the shard is kept, as its durability says.
	AppendState(a *log.Append) (first uint64, err error)
	// Data is the log of records, for when its segments were written.
	Data() *log.Log
}

var _ Source = (*topic.ShardLeader)(nil)

// shardPlace is the shard that a cursorStore serves.
type shardPlace struct {
	Source
	topic   *topic.Shard // nil in tests
	topicID string
	key     string         // of the shard
	name    string         // of the stream
	weaker  log.Durability // in tests: than Synced
}

// promise is what an ack means that is answered.
func (p *shardPlace) promise() log.Durability {
	if p.topic == nil {
		return p.weaker
	}
	return durability(p.topic.Desired().Spec.Durability)
}

// why is what ends the requests when the shard isn't led here any more.
func (p *shardPlace) why() End {
	if p.topic != nil && p.topic.Desired().Deleting {
		return Deleted
	}
	return LeaderGone
}

// durability is what acks that somebody waits for are promised.
func durability(d coordination.Durability) log.Durability {
	switch d {
	case coordination.Replicated:
		return log.Replicated
	case coordination.Memory:
		return log.Memory
	}
	return log.Synced
}
