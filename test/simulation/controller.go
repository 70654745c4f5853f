package simulation

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
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
	if b.view == nil || b.view.controller != b.self {
		return
	}
	if b.planning {
		b.again = true
		return
	}
	view := b.view
	writes, more := plan(b.w, view)
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

// plan is a small planner: it places what isn't placed, and elects from the set.
func plan(w *world, view *facts) (writes []coordination.Shard, more bool) {
	for _, id := range w.ids {
		shard, t := view.shards[id], w.topic(id)
		if shard == nil {
			if len(view.brokers) < t.Spec.Replicas {
				continue
			}
			s := coordination.Shard{Topic: id.topic, Number: id.number, Epoch: 1}
			for i := range t.Spec.Replicas {
				m := view.brokers[(i+len(writes))%len(view.brokers)].Replica()
				s.Replicas = append(s.Replicas, m.Broker)
				s.InSync = append(s.InSync, m)
			}
			s.Leader = s.Replicas[0]
			writes = append(writes, s)
			continue
		}
		at := slices.IndexFunc(shard.InSync, func(m coordination.Replica) bool { return m.Broker == shard.Leader })
		if at >= 0 && view.lives(shard.InSync[at]) && view.drains[shard.Leader] == "" {
			continue
		}
		after := *shard
		after.Epoch++
		after.InSync = slices.Clone(shard.InSync)
		elected := slices.IndexFunc(shard.InSync, func(m coordination.Replica) bool { return view.lives(m) && view.drains[m.Broker] == "" })
		if elected < 0 {
			if at >= 0 && view.lives(shard.InSync[at]) {
				continue
			}
			elected = slices.IndexFunc(shard.InSync, func(m coordination.Replica) bool { return view.lives(m) })
		}
		if elected < 0 && (t.Spec.Durability == coordination.Synced || w.mutation.TrustReturned) {
			elected = slices.IndexFunc(shard.InSync, func(m coordination.Replica) bool { return view.broker(m.Broker) != nil })
		} else if elected < 0 {
			elected = greatest(view, shard)
		}
		if elected < 0 {
			continue
		}
		m := view.broker(shard.InSync[elected].Broker).Replica()
		after.InSync[elected], after.Leader = m, m.Broker
		writes = append(writes, after)
	}
	return writes, false
}

// greatest is which member of the last set goes furthest, when all of it are there and have said so.
func greatest(view *facts, shard *coordination.Shard) int {
	best, found := coordination.Suspect{}, -1
	for i, m := range shard.InSync {
		b := view.broker(m.Broker)
		if b == nil {
			return -1
		}
		if b.Holds(m.Incarnation) {
			return i
		}
		at := slices.IndexFunc(view.suspects[m.Broker], func(s coordination.Suspect) bool { return s.Topic == shard.Topic && s.Shard == shard.Number })
		if at < 0 {
			return -1
		}
		if s := view.suspects[m.Broker][at]; found < 0 || s.Epoch > best.Epoch || s.Epoch == best.Epoch && s.End > best.End {
			best, found = s, i
		}
	}
	return found
}
