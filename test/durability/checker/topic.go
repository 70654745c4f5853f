package checker

import (
	"fmt"
	"hash/fnv"
)

// Topic is what happened on one: a history of each shard, since each has sequences and an order of
// its own. A publisher belongs to one of them: all that it sends has the same subject.
type Topic struct {
	Name   string
	Shards []*History
}

// NewTopic is one with so many shards, on which nothing has happened. The subjects of the Topic are
// to be those below its name, and the whole subject is to decide the shard.
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

// topic is a Topic of that one shard.
func (h *History) topic() *Topic { return &Topic{Name: h.Stream, Shards: []*History{h}} }

// shard is the one with that stream, or nil.
func (t *Topic) shard(stream string) *History {
	for _, h := range t.Shards {
		if h.Stream == stream {
			return h
		}
	}
	return nil
}

// subjectIn is a publisher's subject that belongs to a shard: which one that is must never change,
// so it is worked out here anew.
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
