package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// place assigns a new shard to brokers. All of its replicas start with an empty log, so all are in
// sync. After a restore of etcd its first epoch is one that no former life of the shard had
// (begins). Copies may exist only if the Topic is older than the generation.
func (p *planner) place(where place) {
	if p.facts.Generation > 0 && where.topic.Made <= p.facts.Raised && p.placeRestored(where) {
		return
	}
	t := where.topic
	want := t.Spec.ResolvedReplicas(len(p.takers))
	least := t.Spec.ResolvedMinInSync(want)
	switch {
	case len(p.takers) == 0:
		p.Waits = append(p.Waits, Wait{t, where.number, NoBroker,
			fmt.Sprintf("there is no broker to put shard %d of topic %s on (start one, or end a drain)",
				where.number, t.Name)})
		return
	case len(p.takers) < least:
		p.Waits = append(p.Waits, Wait{t, where.number, NotEnoughBrokers,
			fmt.Sprintf("shard %d of topic %s must have %d replicas in sync, and there are brokers for %d (start more, end a drain, or ask for fewer replicas)",
				where.number, t.Name, least, len(p.takers))})
		return
	case len(p.Writes) == maxPlanWrites:
		p.More = true
		return
	}
	s := coordination.Shard{Topic: t.ID, Number: where.number, Epoch: 1}
	if p.facts.Generation > 0 {
		s.Epoch = p.begins()
		s.First = s.Epoch
	}
	var chosen []*load
	for len(chosen) < want {
		to := p.pick(t.ID, chosen, nil)
		if to == nil {
			break
		}
		p.give(to, t.ID)
		chosen = append(chosen, to)
	}
	first := slices.MinFunc(chosen, func(a, b *load) int { // of equals, the first that was chosen
		return cmp.Or(cmp.Compare(a.preferred, b.preferred), cmp.Compare(a.leads, b.leads))
	})
	first.preferred++
	first.leads++
	s.Leader, s.Replicas = first.ID, []string{first.ID}
	for _, l := range chosen {
		if l != first {
			s.Replicas = append(s.Replicas, l.ID)
		}
	}
	for _, id := range s.Replicas {
		s.InSync = append(s.InSync, p.alive[id].Replica())
	}
	if p.pairs != nil {
		p.pair(s.Replicas)
	}
	p.write(t, s, Placed)
}

// pair counts the shards of which two brokers both have a replica.
func (p *planner) pair(ids []string) {
	for i, a := range ids {
		for _, b := range ids[:i] {
			p.pairs[[2]string{min(a, b), max(a, b)}]++
		}
	}
}

func (p *planner) inCommon(l *load, beside []*load) (n int) {
	if p.pairs == nil { // only placing replicas needs it
		p.pairs = make(map[[2]string]int)
		for _, among := range [][]item{p.unled, p.unsettled, p.settled} {
			for _, it := range among {
				p.pair(it.Replicas)
			}
		}
	}
	for _, other := range beside {
		n += p.pairs[[2]string{min(l.ID, other.ID), max(l.ID, other.ID)}]
	}
	return n
}

// pick returns the best broker for another replica beside the given ones, without the brokers in
// not; nil: there is none. The order is:
//
//  1. The zone with the fewest of the given brokers.
//  2. The fewest replicas, and then the fewest replicas of the Topic.
//  3. The fewest shards in common with the given brokers, so that many brokers share the load of
//     one that fails.
//  4. The zone with the fewest replicas.
func (p *planner) pick(topicID string, beside []*load, not []string) *load {
	in := func(zone string) (n int) {
		for _, l := range beside {
			if l.Zone == zone {
				n++
			}
		}
		return n
	}
	var best *load
	for _, l := range p.takers {
		if slices.Contains(beside, l) || slices.Contains(not, l.ID) {
			continue
		}
		if best == nil || cmp.Or(
			cmp.Compare(in(l.Zone), in(best.Zone)),
			cmp.Compare(l.replicas, best.replicas),
			cmp.Compare(l.of[topicID], best.of[topicID]),
			cmp.Compare(p.inCommon(l, beside), p.inCommon(best, beside)),
			cmp.Compare(p.zones[l.Zone], p.zones[best.Zone])) < 0 {
			best = l
		}
	}
	return best
}
