package simulation

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// copied is what a process knows of its copy of a shard, and what it last said of it in the shard's key.
type copied struct {
	state   copystate.State
	word    replica.Word
	from    int64 // the revision that it was said of
	self    coordination.Replica
	flying  bool
	settled bool
	vouched int64 // the revision of the last Vouch
}

func (b *broker) copied(id shardID) *copied {
	if b.copies[id] == nil {
		b.copies[id] = &copied{}
	}
	return b.copies[id]
}

// judged opens and judges a copy, once in a life.
func (b *broker) judged(id shardID, shard *coordination.Shard) *copied {
	c := b.copied(id)
	if c.state.Opened() {
		return c
	}
	m, in := shard.Member(b.id)
	durability := log.Synced
	if b.durability(id) == coordination.Replicated {
		durability = log.Replicated
	}
	b.happened(id, copystate.Opened{
		Kept: copystate.Decode(b.records[id]), Counted: in && m.Incarnation < b.lives[0], Durability: durability,
		Orderly: !in || b.w.mutation.TrustReturned || slices.Contains(b.lives, m.Incarnation) || m.Incarnation >= b.since,
		Short:   b.damaged[id] && !b.w.mutation.HideDamage, Epoch: uint64(shard.Epoch),
	})
	return c
}

// happened changes what is known of a copy, and keeps it on the disk.
func (b *broker) happened(id shardID, e copystate.Event) []copystate.Action {
	c := b.copied(id)
	before := c.state
	var actions []copystate.Action
	c.state, actions = copystate.Apply(c.state, e)
	if before.Doubts() != c.state.Doubts() {
		b.w.logf("%s: its copy of %s is %s", b.id, id, c.state.String())
	}
	if slices.Contains(actions, copystate.Keep) {
		b.records[id] = c.state.Encode()
	}
	if c.state.Whole() {
		delete(b.damaged, id)
	}
	return actions
}

// seen is how the shard's key stands for this broker's copy.
func (b *broker) seen(id shardID, shard *coordination.Shard, r *role) copystate.Seen {
	c := b.copied(id)
	e := copystate.Seen{
		Epoch: uint64(shard.Epoch), Leading: r != nil && r.lead != nil, Alone: len(shard.Replicas) == 1,
		Doubted: shard.Doubt.Epoch == shard.Epoch && shard.Doubt.Leader == b.id,
	}
	if m, in := shard.Member(b.id); in {
		switch {
		case m == b.self:
			e.Entry = copystate.Current
		case c.vouched == shard.Revision && c.self == b.self:
			e.Entry = copystate.Undecided
		default:
			e.Entry = copystate.Earlier
		}
	}
	leader, in := shard.Member(shard.Leader)
	switch {
	case shard.Leader == b.id && b.named(shard):
		e.Leader = copystate.Self
	case in && shard.Leader != b.id && leader.Incarnation != 0 && b.view.lives(leader):
		e.Leader = copystate.Other
	}
	for _, m := range shard.InSync {
		e.Others = e.Others || m.Broker != b.id && m.Incarnation != 0 && b.view.lives(m)
	}
	return e
}

// say changes the broker's own entry of a shard.
func (b *broker) say(id shardID, shard *coordination.Shard, word replica.Word, leads bool) {
	c := b.copied(id)
	if c.flying || c.settled && c.from == shard.Revision && c.self == b.self {
		return
	}
	c.word, c.from, c.self, c.flying, c.settled = word, shard.Revision, b.self, true, false
	if word == replica.Vouch {
		c.vouched = shard.Revision
	}
	e, self := b.w.etcd, b.self
	ask(b, false, func(*facts) swapped { return e.say(self, shard, word, leads) }, func(_ swapped, answered bool) {
		c.flying, c.settled = false, answered
		if b.view != nil {
			b.assume(id)
		}
	})
}

// say changes a broker's own entry as coordination.Client's Vouch, Withdraw and Resign do.
func (e *etcd) say(self coordination.Replica, before *coordination.Shard, word replica.Word, leads bool) swapped {
	id := shardID{before.Topic, before.Number}
	now := e.facts.shards[id]
	if now.Revision != before.Revision && !e.w.mutation.WriteBlindly || !e.facts.lives(self) {
		return swapped{}
	}
	after := *now
	after.InSync = slices.Clone(now.InSync)
	at := slices.IndexFunc(after.InSync, func(m coordination.Replica) bool { return m.Broker == self.Broker })
	if at < 0 {
		return swapped{}
	}
	switch word {
	case replica.Vouch:
		after.InSync[at] = self
	case replica.Withdraw:
		after.InSync[at].Incarnation, leads = 0, false
	case replica.Resign:
		leads = false
	}
	if !leads && after.Leader == self.Broker {
		after.Leader = ""
	}
	e.change(func(f *facts) {
		after.Revision = f.revision
		f.shards[id] = &after
	})
	e.w.logf("etcd: %s rev %d epoch %d: %s says %s: leader %q, set %s", id, after.Revision, after.Epoch, self.Broker, word, after.Leader, members(after.InSync))
	e.w.judge.setChanged(id, &after)
	return swapped{true, &after}
}
