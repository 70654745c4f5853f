package topic

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/elsewhere"
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

// Led returns the shard's leader if it is on this broker, can be read and was announced to
// Config.Leading, or nil.
func (p *Shard) Led() *ShardLeader { return p.readable() }

// WhyNot returns why the shard is not served here: nil or a *publish.NotServedError.
func (p *Shard) WhyNot() error {
	if why := p.whyNot(); why != nil {
		return why
	}
	return nil
}

// Trouble returns what is wrong with the shard's logs on this broker, for people; empty: nothing.
func (p *Shard) Trouble() string { return p.troubled() }

// readable returns the shard's leader if it is on this broker and was announced: its watermark has
// then reached the end of the log at its election.
func (p *Shard) readable() *ShardLeader {
	if s := p.leading.Load(); s != nil && s.announced.Load() {
		return s
	}
	return nil
}

// whyNot returns why the shard is not served here, or nil.
func (p *Shard) whyNot() *publish.NotServedError {
	v, s := p.view.Load(), p.topic.service
	no := func(reason publish.NotServedReason, format string, args ...any) *publish.NotServedError {
		return &publish.NotServedError{Topic: p.topic.name, Reason: reason, Leader: v.leader, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.gone:
		return no(publish.BeingDeleted, "it is being deleted")
	case v.unsupported != "":
		return no(publish.Unsupported, "%s", v.unsupported)
	case s.closing.Load():
		return no(publish.ServiceIsClosing, "broker %s is stopping; try again", s.config.Name)
	case v.lead:
		if trouble := p.trouble.Load(); trouble != nil {
			why := no(publish.Troubled, "its log on broker %s: %v", s.config.Name, trouble.err)
			why.Err = trouble.err
			return why
		}
		shard := p.leading.Load()
		if shard == nil {
			return no(publish.Opening, "broker %s is opening its log; try again", s.config.Name)
		}
		if err := shard.failure(); err != nil {
			why := no(publish.Troubled, "its log on broker %s: %v", s.config.Name, err)
			why.Err = err
			return why
		}
		if !shard.enough() {
			return no(publish.NotEnoughInSync, "%d of its replicas are in sync and %d are asked for, so nothing can be acknowledged; %s", len(v.shard.InSync), v.minInSync, elsewhere.Missing(s.State(), v.shard, s.BrokerName))
		}
		if !shard.announced.Load() {
			return no(publish.CatchingUp, "broker %s leads it now and waits for its other replicas; %s", s.config.Name, elsewhere.Missing(s.State(), v.shard, s.BrokerName))
		}
		return nil
	}
	reason, why := elsewhere.NotHere(elsewhere.Away{Self: s.config.Self, SelfName: s.config.Name, Restored: v.restored, Leader: v.leader, Shard: v.shard, State: s.State(), Name: s.BrokerName})
	return no(reason, "%s", why)
}

// refusal returns why nothing can be published now. It is never nil.
func (p *Shard) refusal() error {
	if why := p.whyNot(); why != nil {
		return why
	}
	// It became possible meanwhile.
	return &publish.NotServedError{Topic: p.topic.name, Reason: publish.Opening, Leader: p.view.Load().leader, Why: "its log is being opened; try again"}
}

// troubled returns what is wrong with the shard's logs on this broker, for people, or "".
func (p *Shard) troubled() string {
	if trouble := p.trouble.Load(); trouble != nil {
		return trouble.err.Error()
	}
	if s := p.leading.Load(); s != nil {
		if err := s.failure(); err != nil {
			return err.Error()
		}
		return s.damage
	}
	return ""
}
