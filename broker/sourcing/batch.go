package sourcing

import (
	"reflect"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Batch is messages of one source on their way into its shard, in the order of their stream, with
// the headers under which they are stored.
type Batch struct {
	Of        coordination.StreamSource
	Key       removal.SourceKey
	Origin    string // identity of the stream
	Messages  []protocol.Message
	Sequences []uint64 // of Messages in their stream

	// Taken is how many of Messages the shard has dealt with: they are appended, or duplicates of
	// others.
	Taken int
	// Err is why the next one is refused. Those behind it were not looked at.
	Err error
	// Wait reports whether the next one has to wait for a moment.
	Wait bool
}

// OneOf reports whether the source of b is one of some, with the same settings.
func (b *Batch) OneOf(sources []coordination.StreamSource) bool {
	return slices.ContainsFunc(sources, func(s coordination.StreamSource) bool { return reflect.DeepEqual(s, b.Of) })
}

// Pass passes messages that the shard has, by how far its log says that the source has come.
func (b *Batch) Pass(p *removal.Progress) {
	come, _ := p.Of(b.Key)
	for come.Origin == b.Origin && b.Taken < len(b.Messages) && b.Sequences[b.Taken] <= come.Sequence {
		b.Taken++
	}
}

// Rest returns the messages that the shard has not dealt with.
func (b *Batch) Rest() []protocol.Message { return b.Messages[b.Taken:] }

// Next returns how far the source has come with the next message.
func (b *Batch) Next() removal.Source {
	return removal.Source{Key: b.Key, Sequence: b.Sequences[b.Taken], Origin: b.Origin}
}

// Ask returns what a message of b asks for, by what its header says: what was asked of the origin's
// leader is not asked again, and what the shard does not offer is left out, as nats-server does.
func Ask(c publish.Conditions, ttl, rollups bool) publish.Conditions {
	c = publish.Conditions{ID: c.ID, TTL: c.TTL, Marks: c.Marks, Rollup: c.Rollup}
	if !ttl {
		c.TTL = 0
	}
	if !rollups {
		c.Rollup = publish.NoRollup
	}
	return c
}
