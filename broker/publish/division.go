package publish

import (
	"slices"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Division has messages by the shards that store them. It is reused: Free ends its life.
type Division struct{ lists [][]protocol.Message }

var divisions = sync.Pool{New: func() any { return &Division{} }}

// Divide divides messages among the shards of a Topic. Those of a shard keep their order.
func Divide(messages []protocol.Message, spec *coordination.TopicSpec, shards int) *Division {
	d := divisions.Get().(*Division)
	d.lists = slices.Grow(d.lists[:0], shards)[:shards]
	for i := range messages {
		n := Partition(messages[i].Subject, spec)
		d.lists[n] = append(d.lists[n], messages[i])
	}
	return d
}

// Of returns the messages of a shard.
func (d *Division) Of(shard int) []protocol.Message { return d.lists[shard] }

// Free forgets the messages.
func (d *Division) Free() {
	for n, list := range d.lists {
		clear(list)
		d.lists[n] = list[:0]
	}
	divisions.Put(d)
}
