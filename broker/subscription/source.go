package subscription

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Source is the part of a shard that Subscriptions use. *topic.ShardLeader implements it.
type Source interface {
	// Offsets returns the readable range: from start up to, not including, end.
	Offsets() (start, end uint64)
	NewCursor(from uint64) *log.Cursor
	// Unreadable judges why records cannot be read. If it returns a *log.CorruptError, no replica
	// has them. After any other error reading is to be tried again, here or on the next leader.
	Unreadable(err error) error
	// Removed returns the records below the end that were removed one by one. They are not delivered.
	Removed() *removal.Set
	// Watch calls changed after the end moved or records were removed, until stop. changed must not
	// block.
	Watch(changed func()) (stop func())
	// State returns the state log. Only AppendState appends to it.
	State() *log.Log
	// AppendState appends to the state log under the shard's epoch. a.Done is called when the
	// append is as durable, on all in-sync replicas, as its durability requires.
	AppendState(a *log.Append) (first uint64, err error)
	// RemovalItems yields records with all removals that the state log has when it is called. A
	// snapshot has them, too. Each is valid until the next one.
	RemovalItems(yield func(log.Record) bool)
	// Remove removes records one by one, at most removal.ItemSpans spans. done is called, perhaps
	// before Remove returns, when that is durable, or with an error when that is unknown. If Remove
	// returns an error, nothing was removed, and done is not called.
	Remove(spans []removal.Span, done func(error)) error
	// RemovalBytes returns the size of the removals that the Source itself appended to the state
	// log. changed of Watch is called after it grew.
	RemovalBytes() uint64
	// Inherited returns where the data log ended when this broker began to lead. An earlier leader
	// may have delivered what is below, and none has delivered the rest.
	Inherited() uint64
	// Count returns how many records from an offset up to, not including, end match one of some
	// patterns, by the index of the shard's subjects. end is at most that of Offsets. An error says
	// that the index is not ready or was not within patience.
	Count(ctx context.Context, patience time.Duration, patterns []string, from, end uint64) (uint64, error)
	// Data returns the data log, for the times of its segments and for its epochs.
	Data() *log.Log
}

var _ Source = (*topic.ShardLeader)(nil)

// servedShard is the shard that a cursorStore serves.
type servedShard struct {
	Source
	topic   *topic.Shard // nil in tests
	topicID string
	key     string         // of the shard
	name    string         // of the stream
	weaker  log.Durability // set in tests to a durability below Synced
}

// ackDurability returns the durability of an answered ack.
func (p *servedShard) ackDurability() log.Durability {
	if p.topic == nil {
		return p.weaker
	}
	return replica.DurabilityOf(p.topic.Desired().Spec.Durability)
}

// endReason returns the End of requests when this broker leads the shard no longer.
func (p *servedShard) endReason() End {
	if p.topic != nil && p.topic.Desired().Deleting {
		return Deleted
	}
	return LeaderGone
}
