package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// wanted returns the number of replicas that a shard is to have. If the Topic does not specify it,
// the number grows with the brokers, and falls only when brokers are drained, not when they are
// away.
func (p *planner) wanted(it item) int {
	if n := it.topic.Spec.Replicas; n > 0 {
		return min(n, MaxReplicas)
	}
	keep := 0
	for _, id := range it.Replicas {
		if p.facts.Drains[id] != coordination.DrainAll && !slices.Contains(it.Removing, id) {
			keep++
		}
	}
	return min(it.topic.Spec.ResolvedReplicas(max(keep, len(p.takers))), MaxReplicas)
}

// asWanted reports whether a led shard has as many replicas as wanted, none of them being moved or
// on a drained broker, and a leader that is not drained.
func (p *planner) asWanted(it item) bool {
	if len(it.Adding)+len(it.Removing) > 0 || p.facts.Drains[it.Leader] != "" ||
		len(it.Replicas) != p.wanted(it) {
		return false
	}
	if len(p.facts.Drains) > 0 {
		for _, id := range it.Replicas {
			if p.facts.Drains[id] == coordination.DrainAll {
				return false
			}
		}
	}
	return true
}

// replaceLeader moves the leadership if the leader is drained, or is to be removed and enough
// others are ready. It reports whether it did.
func (p *planner) replaceLeader(it item) bool {
	goes := slices.Contains(it.Removing, it.Leader) && p.staying(it.Shard) >= p.wanted(it)
	if p.facts.Drains[it.Leader] == "" && !goes {
		return false
	}
	best := ""
	for _, m := range it.InSync {
		if m.Broker == it.Leader || p.facts.Drains[m.Broker] != "" ||
			slices.Contains(it.Removing, m.Broker) || p.standing(it, m) != present {
			continue
		}
		if best == "" || p.prefer(it, m.Broker, best) < 0 {
			best = m.Broker
		}
	}
	return best != "" && p.moveLeader(it, best, it.Replicas)
}

func (p *planner) moveLeader(it item, to string, replicas []string) bool {
	after := *it.Shard
	after.Epoch = p.next(it)
	after.Leader, after.Replicas = to, replicas
	if !p.write(it.topic, after, LeaderMoved) {
		return false
	}
	p.alive[it.Leader].leads--
	p.alive[to].leads++
	return true
}

// staying returns the number of replicas that have been in sync and are to stay.
func (p *planner) staying(s *coordination.Shard) (n int) {
	for _, id := range s.Replicas {
		if p.stays(s, id) && !catchingUp(s, id) {
			n++
		}
	}
	return n
}

// catchingUp reports whether the replica was added and has not been in sync yet.
func catchingUp(s *coordination.Shard, id string) bool {
	_, in := s.Member(id)
	return !in && slices.Contains(s.Adding, id)
}

// change is the effect of one write on a shard's replicas.
type change struct {
	coordination.Shard
	item item // before the change
	want int

	moved, removed, added, joined, kept bool
}

// rearrange brings the replicas of a led shard one step closer to what is wanted.
func (p *planner) rearrange(it item) {
	c := &change{Shard: *it.Shard, item: it, want: p.wanted(it)}
	c.Replicas, c.InSync = slices.Clone(c.Replicas), slices.Clone(c.InSync)
	c.Adding, c.Removing = slices.Clone(c.Adding), slices.Clone(c.Removing)
	p.settleAdding(c)
	p.keepAfterAll(c)
	p.trim(c)
	p.extend(c)
	p.remove(c)
	var reason WriteReason
	switch {
	case c.moved:
		reason = ReplicaMoved
	case c.removed:
		reason = ReplicaRemoved
	case c.added:
		reason = ReplicaAdded
	case c.joined, c.kept:
		reason = ReplicaJoined
	default:
		return
	}
	if p.write(it.topic, c.Shard, reason) && len(c.Removing)+len(c.Adding) > 0 &&
		len(it.Removing)+len(it.Adding) == 0 {
		p.underWay++
	}
}

// settleAdding ends additions:
//
//  1. A replica that has joined the in-sync set is not in Adding any more.
//  2. A replica that has not joined is given up if its broker is drained.
//  3. A replica that has not joined is given up if its broker is away, and another broker can take
//     its place or the replica that it was to replace may stay.
func (p *planner) settleAdding(c *change) {
	for _, id := range slices.Clone(c.Adding) {
		if _, in := c.Member(id); in {
			c.Adding, c.joined = without(c.Adding, id), true
			continue
		}
		instead := p.alive[id] == nil && (p.pick(c.Topic, p.those(&c.Shard), c.Replicas) != nil ||
			slices.ContainsFunc(c.Removing,
				func(r string) bool { return p.facts.Drains[r] != coordination.DrainAll }))
		if instead || p.facts.Drains[id] == coordination.DrainAll {
			p.drop(c, id)
			c.joined = true
		}
	}
}

// those returns the present brokers whose replicas are to stay.
func (p *planner) those(s *coordination.Shard) (loads []*load) {
	for _, id := range s.Replicas {
		if l := p.alive[id]; l != nil && p.stays(s, id) {
			loads = append(loads, l)
		}
	}
	return loads
}

func (p *planner) stays(s *coordination.Shard, id string) bool {
	return !slices.Contains(s.Removing, id) && p.facts.Drains[id] != coordination.DrainAll
}

// remaining returns the number of replicas that are to stay, in sync or not.
func (p *planner) remaining(s *coordination.Shard) (n int) {
	for _, id := range s.Replicas {
		if p.stays(s, id) {
			n++
		}
	}
	return n
}

// keepAfterAll cancels the removal of replicas whose replacements were given up.
func (p *planner) keepAfterAll(c *change) {
	for _, id := range slices.Clone(c.Removing) {
		if p.facts.Drains[id] != coordination.DrainAll && p.remaining(&c.Shard) < c.want {
			c.Removing, c.kept = without(c.Removing, id), true
			if l := p.alive[id]; l != nil {
				p.give(l, c.Topic)
			}
		}
	}
}

// remove removes the replicas in Removing as soon as enough others are complete.
func (p *planner) remove(c *change) {
	for _, id := range slices.Clone(c.Removing) {
		if p.staying(&c.Shard) >= c.want && p.mayGo(c, id) {
			p.drop(c, id)
			c.moved = true
		}
	}
}

// mayGo reports whether a replica can be removed: it does not lead, and it is not in the in-sync
// set, or enough other members are in sync in the incarnations that the set names.
func (p *planner) mayGo(c *change, id string) bool {
	if id == c.Leader {
		return false
	}
	if _, in := c.Member(id); !in {
		return true
	}
	after := c.Shard
	after.Replicas = without(c.Replicas, id)
	after.Adding, after.Removing = without(c.Adding, id), without(c.Removing, id)
	others := 0
	for _, m := range c.InSync {
		if m.Broker != id && p.standing(c.item, m) == present {
			others++
		}
	}
	return others >= after.MinInSync(&c.item.topic.Spec)
}

func (p *planner) drop(c *change, id string) {
	if l := p.alive[id]; l != nil && !slices.Contains(c.Removing, id) {
		p.take(l, c.Topic)
	}
	// The broker deletes its copy. A later epoch makes void what the leader knows of that copy, in
	// case the broker gets the replica again before the leader has learned of the removal.
	c.Epoch = p.next(c.item)
	c.Replicas = without(c.Replicas, id)
	c.Adding, c.Removing = without(c.Adding, id), without(c.Removing, id)
	c.InSync = slices.DeleteFunc(c.InSync, func(m coordination.Replica) bool { return m.Broker == id })
}

func (p *planner) take(l *load, topicID string) {
	l.replicas--
	l.of[topicID]--
	p.zones[l.Zone]--
}

// without returns a list without one element; nil if nothing is left.
func without(ids []string, id string) []string {
	var rest []string
	for _, other := range ids {
		if other != id {
			rest = append(rest, other)
		}
	}
	return rest
}

// trim removes surplus replicas.
func (p *planner) trim(c *change) {
	for p.remaining(&c.Shard) > c.want {
		victim := ""
		for _, id := range c.Replicas {
			if !p.stays(&c.Shard, id) || !p.mayGo(c, id) {
				continue
			}
			// Of equals, the last.
			if victim == "" || slices.Compare(p.worth(c, id), p.worth(c, victim)) <= 0 {
				victim = id
			}
		}
		if victim == "" {
			return
		}
		p.drop(c, victim)
		c.removed = true
	}
}

// worth orders replicas by the loss that their removal means, the least first: still catching up,
// not in sync, away, not in the incarnation that the set names, drained, in a zone with another
// replica, on a broker with more replicas.
func (p *planner) worth(c *change, id string) []int {
	m, in := c.Member(id)
	l := p.alive[id]
	if l == nil {
		return []int{order(!catchingUp(&c.Shard, id)), order(in), 0}
	}
	alone := !slices.ContainsFunc(p.those(&c.Shard),
		func(other *load) bool { return other != l && other.Zone == l.Zone })
	return []int{
		order(!catchingUp(&c.Shard, id)), order(in), 1, order(in && p.standing(c.item, m) == present),
		order(p.facts.Drains[id] == ""), order(alone), -l.replicas,
	}
}

// extend adds missing replicas, and replacements of replicas on drained brokers.
func (p *planner) extend(c *change) {
	var drained []string
	for _, id := range c.Replicas {
		if p.facts.Drains[id] == coordination.DrainAll && !slices.Contains(c.Removing, id) {
			drained = append(drained, id)
		}
	}
	short := c.want - p.remaining(&c.Shard)
	if short <= 0 && len(drained) == 0 {
		return
	}
	if len(c.item.Adding)+len(c.item.Removing) == 0 && p.underWay >= repairsUnderWay {
		return // continues when another change has ended
	}
	for ; short > 0; short-- {
		to := p.pick(c.Topic, p.those(&c.Shard), c.Replicas)
		if to == nil {
			break
		}
		p.give(to, c.Topic)
		c.Replicas, c.Adding, c.added = append(c.Replicas, to.ID), append(c.Adding, to.ID), true
	}
	// A replica on a drained broker is marked for removal when it has a replacement. Until then it
	// counts in the broker's load.
	for ; len(drained) > max(short, 0); drained = drained[1:] {
		c.Removing, c.added = append(c.Removing, drained[0]), true
		if l := p.alive[drained[0]]; l != nil {
			p.take(l, c.Topic)
		}
	}
	if len(drained) > 0 {
		p.wait(c.item, DrainBlocked,
			fmt.Sprintf("can't leave broker %s, which is drained: no other broker can take it (start one, end another drain, or ask for fewer replicas)", strings.Join(drained, ", ")))
	}
}
