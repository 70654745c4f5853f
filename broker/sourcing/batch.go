package sourcing

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
)

// Batch is messages of one source on their way into its shard, in the order of their stream, with
// the headers under which they are stored.
type Batch struct {
	Of        coordination.StreamSource
	Stream    string // that is copied: the one that Of names, or of one of its shards
	Streams   Streams
	Key       removal.SourceKey
	Origin    string // identity of the stream
	Messages  []protocol.Message
	Sequences []uint64                    // of Messages in their stream
	Epochs    []uint64                    // likewise; nil: they are not known
	Times     []int64                     // likewise, for a mirror
	Subjects  [][]byte                    // likewise, for other streams
	Stamps    [][]byte                    // likewise, the attributes that their records have; nil: not known
	all       []coordination.StreamSource // of the shard
	added     []int                       // by how much Messages grew: their headers say where they are from

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
	b.all = sources
	return slices.ContainsFunc(sources, func(s coordination.StreamSource) bool { return reflect.DeepEqual(s, b.Of) })
}

// Pass passes messages that the shard has: by how far its log says that the source has come, or by
// where the log of a mirror ends.
func (b *Batch) Pass(p *removal.Progress, end uint64) {
	come, _ := p.Of(b.Key)
	if b.Of.Mirrored {
		come = removal.Source{Sequence: end - 1, Origin: b.Origin}
	}
	for b.Taken < len(b.Messages) {
		if next := b.Next(); !come.Covers(&next) {
			break
		}
		b.Taken++
	}
}

// Configured reports whether a source of the shard has a key.
func (b *Batch) Configured(k removal.SourceKey) bool {
	return slices.ContainsFunc(b.Streams.of(b.all, Place{}), func(s streamOf) bool { return removal.KeyOf(s.named.Index()) == k })
}

// Passed notes how far the source has come with the messages that the shard has dealt with. It
// reports whether k did not know that: the last ones were duplicates, and no record says it.
func (b *Batch) Passed(k *removing.Keeper) bool {
	if b.Of.Mirrored || b.Taken == 0 {
		return false
	}
	s, progress := b.at(b.Taken-1), k.Progress()
	if come, ok := progress.Of(b.Key); ok && come.Covers(&s) {
		return false
	}
	k.Pass(s, b.Configured)
	return true
}

// Gap returns an offset up to the next message if b is of a mirror whose log ends before that: the
// offsets before have no record. 0: there is no gap, or b.Err says that it is too large. removed:
// they count as removed, since the log has records.
func (b *Batch) Gap(data *log.Log) (next uint64, removed bool) {
	start, end, _ := data.Offsets()
	if !b.Of.Mirrored || b.Taken == len(b.Messages) || b.Sequences[b.Taken] <= end {
		return 0, false
	}
	data.CountHoles(start)
	next, removed = b.Sequences[b.Taken], data.Holes(start) < end-start
	if next-end > maxSkipped && removed || next-end > maxStart {
		b.Err = fmt.Errorf("the next message is %d, and the last one that the mirror has is before %d: that many sequences can't be passed over (delete the mirror and make it again)", next, end)
		return 0, false
	}
	return min(next, end+log.GapSpan), removed
}

// Rest returns the messages that the shard has not dealt with: those of a mirror up to the next
// gap.
func (b *Batch) Rest() []protocol.Message {
	n := len(b.Messages)
	for i := b.Taken + 1; b.Of.Mirrored && i < n; i++ {
		if b.Sequences[i] != b.Sequences[i-1]+1 {
			n = i
		}
	}
	return b.Messages[b.Taken:n]
}

// Time returns the time of the next message's record, which is published now. b may be nil.
func (b *Batch) Time(now int64) int64 {
	if b != nil && b.Of.Mirrored {
		return b.Times[b.Taken]
	}
	return now
}

// Size returns the size of the next message, m, without what its copy has more than the message of
// the stream has: limits of size hold for that. b may be nil.
func (b *Batch) Size(m *protocol.Message) int {
	if b == nil || b.Taken >= len(b.added) {
		return len(m.Data)
	}
	return len(m.Data) - b.added[b.Taken]
}

// Most returns how large the record of the next message may be where messages of clients may have
// most bytes; 0: any size. b may be nil.
func (b *Batch) Most(most int) int {
	if b == nil || b.Taken >= len(b.added) || most == 0 {
		return most
	}
	return most + b.added[b.Taken]
}

// From returns where the next message is from, for a counter; nil if b is nil. b is not of a
// mirror.
func (b *Batch) From() *counting.Origin {
	if b == nil {
		return nil
	}
	return &counting.Origin{Stream: b.Stream, Subject: string(b.Subjects[b.Taken])}
}

// Next returns how far the source has come with the next message.
func (b *Batch) Next() removal.Source { return b.at(b.Taken) }

// at returns how far the source has come with a message.
func (b *Batch) at(n int) removal.Source {
	s := removal.Source{Key: b.Key, Sequence: b.Sequences[n], Origin: b.Origin}
	if b.Epochs != nil {
		s.Epoch = b.Epochs[n]
	}
	return s
}

// Ask returns what a message of b asks for, by what its header says: what was asked of the origin's
// leader is not asked again, and what the shard does not offer is left out, as nats-server does.
func (b *Batch) Ask(c publish.Conditions, ttl, rollups bool) publish.Conditions {
	c = publish.Conditions{ID: c.ID, TTL: c.TTL, Marks: c.Marks, Rollup: c.Rollup, Increment: c.Increment}
	if b.Of.Mirrored {
		c.ID = nil
	}
	if !ttl {
		c.TTL = 0
	}
	if !rollups {
		c.Rollup = publish.NoRollup
	}
	return c
}
