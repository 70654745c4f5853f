package topic

import (
	"slices"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Topic is one of the cluster's, as this broker sees it.
type Topic struct {
	service  *Service
	id, name string
	offer    Offer // used by Follow and Close only, one after the other
	shards   []*Shard
}

// Topic's shards are as many as its spec says when it is made; that never changes.
func newTopic(s *Service, desired *coordination.Topic) *Topic {
	t := &Topic{service: s, id: desired.ID, name: desired.Name, shards: make([]*Shard, max(desired.Spec.Shards, 1))}
	for n := range t.shards {
		t.shards[n] = &Shard{topic: t, number: n, name: ShardName(desired, n)}
		t.shards[n].ids.Init(&s.counts.followedIDs)
	}
	return t
}

// Name is the Topic's name.
func (t *Topic) Name() string { return t.name }

// ID is the Topic's id, which is its own for ever.
func (t *Topic) ID() string { return t.id }

// Desired is what is asked for. It belongs to all its readers.
func (t *Topic) Desired() *coordination.Topic { return t.shards[0].Desired() }

// Shards are its shards, by number.
func (t *Topic) Shards() []*Shard { return t.shards }

// ShardFor is the shard that has the records of a subject.
func (t *Topic) ShardFor(subject []byte) *Shard {
	return t.shards[publish.Partition(subject, &t.Desired().Spec)]
}

// Leader is the id of the broker that leads the first shard, or empty.
func (t *Topic) Leader() string { return t.shards[0].Leader() }

// Shard is the first one, if it is led here and can be read; or nil.
func (t *Topic) Shard() *ShardLeader { return t.shards[0].readable() }

// WhyNot says why the Topic's first shard is not served here, or at all: a *publish.NotServedError. It is nil if it is served here.
func (t *Topic) WhyNot() error { return t.shards[0].WhyNot() }

// Trouble is what is wrong with the Topic's logs on this broker, for people; empty: nothing is known to be.
func (t *Topic) Trouble() string {
	for _, p := range t.shards {
		if said := p.troubled(); said != "" {
			return said
		}
	}
	return ""
}

// taker is a Topic as the hub sees it.
type taker Topic

// Take accepts messages of this broker's clients. A link brings none: senders forward with numbers (Link.Take).
func (t *taker) Take(messages []protocol.Message, _ bool) (behind bool) {
	if len(t.shards) == 1 {
		return t.shards[0].take(messages)
	}
	spec := &(*Topic)(t).Desired().Spec
	d := divisions.Get().(*division)
	d.lists = slices.Grow(d.lists[:0], len(t.shards))[:len(t.shards)]
	for i := range messages {
		n := publish.Partition(messages[i].Subject, spec)
		d.lists[n] = append(d.lists[n], messages[i])
	}
	for n, list := range d.lists {
		if len(list) > 0 {
			behind = t.shards[n].take(list) || behind
			clear(list)
			d.lists[n] = list[:0]
		}
	}
	divisions.Put(d)
	return behind
}

// division is what one read brought, by shard.
type division struct{ lists [][]protocol.Message }

var divisions = sync.Pool{New: func() any { return &division{} }}

func (t *taker) Wait() { t.service.waitRoom((*Topic)(t)) }
