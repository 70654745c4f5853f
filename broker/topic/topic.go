package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
)

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

// several says that the Topic has more than one shard.
func (t *Topic) several() bool { return len(t.shards) > 1 }

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

// ShardCount is how many shards the Topic has. They count from 0.
func (t *Topic) ShardCount() int { return len(t.shards) }

// ShardAt is the shard of that number if it is led here and can be read, or nil.
func (t *Topic) ShardAt(number int) *ShardLeader {
	if number < 0 || number >= len(t.shards) {
		return nil
	}
	return t.shards[number].readable()
}

// LeaderOf is the id of the broker that leads the shard, or empty.
func (t *Topic) LeaderOf(number int) string {
	if number < 0 || number >= len(t.shards) {
		return ""
	}
	return t.shards[number].view.Load().leader
}

// WhyNotAt says why the shard is not served here: a *publish.NotServedError. It is nil if it is.
func (t *Topic) WhyNotAt(number int) error {
	if number < 0 || number >= len(t.shards) {
		return nil
	}
	if why := t.shards[number].whyNot(); why != nil {
		return why
	}
	return nil
}

// refusal is why nothing can be published now.
func (p *Shard) refusal() error {
	if why := p.whyNot(); why != nil {
		return why
	}
	// It has become possible between two looks.
	return &publish.NotServedError{Topic: p.topic.name, Reason: publish.Opening, Leader: p.view.Load().leader, Why: "its log is being opened; try again"}
}
