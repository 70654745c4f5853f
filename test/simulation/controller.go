package simulation

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
)

// govern is what a broker does as controller, or to become it.
func (b *broker) govern() {
	if b.view.controller.Broker == "" {
		b.campaign()
		return
	}
	b.plan()
}

// campaign has the broker elected if nobody is.
func (b *broker) campaign() {
	if b.campaigning {
		return
	}
	b.campaigning = true
	e, self := b.w.etcd, b.self
	b.later(b.w.between(0, 50_000_000), func() {
		ask(b, true, func(f *facts) bool {
			if f.controller.Broker != "" || !f.lives(self) {
				return false
			}
			e.change(func(f *facts) { f.controller, f.term = self, f.revision })
			b.w.logf("etcd: %s is elected controller at %d", b.id, e.facts.term)
			return true
		}, func(bool, bool) {
			b.campaigning = false
			if b.view != nil && b.view.controller.Broker == "" {
				b.campaign()
			}
		})
	})
}

// plan writes what the controller is to write next.
func (b *broker) plan() {
	b.again = false
	if b.view == nil || b.view.controller != b.self || b.view.revision < b.view.term {
		return
	}
	if b.planning {
		b.again = true
		return
	}
	view := b.view
	writes, more := b.planned(view)
	b.again = more
	if len(writes) == 0 {
		return
	}
	for i := range writes {
		s := &writes[i]
		b.w.logf("%s: plans %s/%d: epoch %d, leader %s, set %s, replicas %v, adding %v, removing %v", b.id, s.Topic, s.Number, s.Epoch, s.Leader, members(s.InSync), s.Replicas, s.Adding, s.Removing)
	}
	b.planning = true
	e := b.w.etcd
	ask(b, false, func(*facts) bool { return e.write(view.term, writes) }, func(done, answered bool) {
		b.planning = false
		if !done {
			b.again = true // what it planned from is old, or soon will be
		}
	})
}

// planned is what the real planner would have written, from what this broker has heard.
func (b *broker) planned(view *facts) (writes []coordination.Shard, more bool) {
	w := b.w
	given := placement.Facts{
		Brokers: view.brokers, Drains: view.drains, Topics: w.topics, MaxShards: placement.MaxShards,
		HoldMoves: b.now() < b.moveAfter,
		Shards: func(id string) []*coordination.Shard {
			if s := view.shards[shardID{id, 0}]; s != nil {
				return []*coordination.Shard{s}
			}
			return nil
		},
		Reported: func(broker, id string, shard int) (coordination.Suspect, bool) {
			for _, s := range view.suspects[broker] {
				if s.Topic == id && s.Shard == shard {
					return s, true
				}
			}
			return coordination.Suspect{}, false
		},
	}
	p := placement.Decide(given)
	for _, write := range p.Writes {
		w.logf("%s: plans %s: %s", b.id, write.Shard.String(), write.Reason)
		if write.Reason == placement.LeastLoss {
			w.judge.leastLoss(shardID{write.Shard.Topic, write.Shard.Number}, write.Shard.Leader)
		}
		if was := view.shards[shardID{write.Shard.Topic, write.Shard.Number}]; w.mutation.KeepEpoch && write.Reason == placement.ReplicaMoved {
			write.Shard.Epoch = was.Epoch
		}
		writes = append(writes, write.Shard)
	}
	if p.Moves > 0 {
		b.moveAfter = b.now() + movesPause
	}
	if w.mutation.ElectAnyone {
		writes = anyone(w, view, writes)
	}
	return writes, p.More || p.Held
}

// movesPause is how long a controller waits between moves for balance.
const movesPause = time.Second

// anyone elects the last of a shard's replicas that is there, in sync or not.
func anyone(w *world, view *facts, writes []coordination.Shard) []coordination.Shard {
	for _, id := range w.ids {
		shard := view.shards[id]
		if shard == nil {
			continue
		}
		if m, ok := shard.Member(shard.Leader); ok && view.lives(m) {
			continue
		}
		writes = slices.DeleteFunc(writes, func(s coordination.Shard) bool { return s.Topic == id.topic })
		for _, other := range slices.Backward(shard.Replicas) {
			if m := view.broker(other); m != nil {
				after := *shard
				after.Epoch++
				after.Leader, after.InSync = other, []coordination.Replica{m.Replica()}
				writes = append(writes, after)
				break
			}
		}
	}
	return writes
}
