package checker

import (
	"fmt"
	"hash/fnv"
)

// Topic has a history for each shard, since each shard has sequences and an order of its own. A
// publisher belongs to one shard: all its messages have the same subject.
type Topic struct {
	Name   string
	Shards []*History
}

// NewTopic returns the empty histories of a Topic with so many shards. The Topic's subjects must be
// those below its name, and the whole subject must decide the shard.
func NewTopic(name string, shards int) *Topic {
	t := &Topic{Name: name}
	if shards == 1 {
		t.Shards = []*History{NewHistory(name)}
		return t
	}
	for n := range shards {
		h := NewHistory(fmt.Sprintf("%s--%d", name, n))
		h.subject = func(publisher int) string { return subjectIn(name, publisher, n, shards) }
		t.Shards = append(t.Shards, h)
	}
	return t
}

// topic returns a Topic with this shard only.
func (h *History) topic() *Topic { return &Topic{Name: h.Stream, Shards: []*History{h}} }

// shard returns the history of a stream, or nil.
func (t *Topic) shard(stream string) *History {
	for _, h := range t.Shards {
		if h.Stream == stream {
			return h
		}
	}
	return nil
}

// subjectIn returns a publisher's subject in a shard. The shard of a subject must never change, so
// it is computed independently here.
func subjectIn(topic string, publisher, shard, shards int) string {
	for i := 0; ; i++ {
		subject := fmt.Sprintf("%s.p%d.%d", topic, publisher, i)
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(subject))
		if hash.Sum64()%uint64(shards) == uint64(shard) {
			return subject
		}
	}
}
