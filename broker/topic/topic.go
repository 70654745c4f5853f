package topic

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/publish"
)

// newTopic makes a Topic. The number of its shards never changes.
func newTopic(s *Service, desired *coordination.Topic) *Topic {
	t := &Topic{service: s, id: desired.ID, name: desired.Name, shards: make([]*Shard, max(desired.Spec.Shards, 1))}
	for n := range t.shards {
		t.shards[n] = &Shard{topic: t, number: n, name: ShardName(desired, n)}
		t.shards[n].ids.Init(&s.counts.followedIDs)
	}
	return t
}

// Name returns the Topic's name.
func (t *Topic) Name() string { return t.name }

// ID returns the Topic's id, which no other Topic ever has.
func (t *Topic) ID() string { return t.id }

// Desired returns the Topic as users want it. It must not be changed.
func (t *Topic) Desired() *coordination.Topic { return t.shards[0].Desired() }

// Shards returns its shards, by number.
func (t *Topic) Shards() []*Shard { return t.shards }

// several reports whether the Topic has more than one shard.
func (t *Topic) several() bool { return len(t.shards) > 1 }

// ShardFor returns the shard that has the records of a subject.
func (t *Topic) ShardFor(subject []byte) *Shard {
	return t.shards[publish.Partition(subject, &t.Desired().Spec)]
}

// Leader returns the id of the broker that leads the first shard, or "".
func (t *Topic) Leader() string { return t.shards[0].Leader() }

// Shard returns the leader of the first shard if it is on this broker and can be read, or nil.
func (t *Topic) Shard() *ShardLeader { return t.shards[0].readable() }

// WhyNot returns why the Topic's first shard is not served here: nil or a *publish.NotServedError.
func (t *Topic) WhyNot() error { return t.shards[0].WhyNot() }

// Trouble returns what is wrong with the Topic's logs on this broker, for people; empty: nothing.
func (t *Topic) Trouble() string {
	for _, p := range t.shards {
		if said := p.troubled(); said != "" {
			return said
		}
	}
	return ""
}

// ShardCount returns the number of shards. They count from 0.
func (t *Topic) ShardCount() int { return len(t.shards) }

// ShardAt returns the leader of a shard if it is on this broker and can be read, or nil.
func (t *Topic) ShardAt(number int) *ShardLeader {
	if number < 0 || number >= len(t.shards) {
		return nil
	}
	return t.shards[number].readable()
}

// LeaderOf returns the id of the broker that leads a shard, or "".
func (t *Topic) LeaderOf(number int) string {
	if number < 0 || number >= len(t.shards) {
		return ""
	}
	return t.shards[number].view.Load().leader
}

// WhyNotAt returns why a shard is not served here: nil or a *publish.NotServedError.
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
