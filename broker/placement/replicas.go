package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// wanted is how many replicas a shard is to have. If the Topic doesn't say, it gets more when brokers
// come, and fewer only when brokers are drained, not when they are away.
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

// asMeant says whether a shard that is led has its replicas and its leader where nothing speaks against it.
func (p *planner) asMeant(it item) bool {
	if len(it.Adding)+len(it.Removing) > 0 || p.facts.Drains[it.Leader] != "" || len(it.Replicas) != p.wanted(it) {
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

// relieve gives the shard another leader if its own is drained, or is to go and the others are ready.
func (p *planner) relieve(it item) bool {
	goes := slices.Contains(it.Removing, it.Leader) && p.staying(it.Shard) >= p.wanted(it)
	if p.facts.Drains[it.Leader] == "" && !goes {
		return false
	}
	best := ""
	for _, m := range it.InSync {
		if m.Broker == it.Leader || p.facts.Drains[m.Broker] != "" || slices.Contains(it.Removing, m.Broker) || p.standing(it, m) != present {
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
	after.Epoch++
	after.Leader, after.Replicas = to, replicas
	if !p.write(it.topic, after, LeaderMoved) {
		return false
	}
	p.alive[it.Leader].leads--
	p.alive[to].leads++
	return true
}

// staying is how many replicas have been in sync once and are to stay.
func (p *planner) staying(s *coordination.Shard) (n int) {
	for _, id := range s.Replicas {
		if p.stays(s, id) && !catchingUp(s, id) {
			n++
		}
	}
	return n
}

// catchingUp says whether the broker has been given the replica and was never seen in sync.
func catchingUp(s *coordination.Shard, id string) bool {
	_, in := s.Member(id)
	return !in && slices.Contains(s.Adding, id)
}

// change is what becomes of a shard's replicas in one write.
type change struct {
	coordination.Shard
	item item // as it was
	want int

	moved, removed, added, joined, kept bool
}

// rearrange brings the replicas of a shard that is led a step nearer to what is wanted.
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
	if p.write(it.topic, c.Shard, reason) && len(c.Removing)+len(c.Adding) > 0 && len(it.Removing)+len(it.Adding) == 0 {
		p.underWay++
	}
}

// settleAdding takes from Adding who has joined the set; gives up who is drained and has nothing yet;
// and who is away, if there is another to take its place or the one to be replaced may as well stay.
func (p *planner) settleAdding(c *change) {
	for _, id := range slices.Clone(c.Adding) {
		if _, in := c.Member(id); in {
			c.Adding, c.joined = without(c.Adding, id), true
			continue
		}
		instead := p.alive[id] == nil && (p.pick(c.Topic, p.those(&c.Shard), c.Replicas) != nil ||
			slices.ContainsFunc(c.Removing, func(r string) bool { return p.facts.Drains[r] != coordination.DrainAll }))
		if instead || p.facts.Drains[id] == coordination.DrainAll {
			p.drop(c, id)
			c.joined = true
		}
	}
}

// those are the brokers that hold it and are to stay, as far as they are there.
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

// remaining is how many replicas are to stay, in sync or not.
func (p *planner) remaining(s *coordination.Shard) (n int) {
	for _, id := range s.Replicas {
		if p.stays(s, id) {
			n++
		}
	}
	return n
}

// keepAfterAll lets replicas stay that were to go, if who was to come for them does not.
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

// remove takes out who was to go, as far as enough others have what it has.
func (p *planner) remove(c *change) {
	for _, id := range slices.Clone(c.Removing) {
		if p.staying(&c.Shard) >= c.want && p.mayGo(c, id) {
			p.drop(c, id)
			c.moved = true
		}
	}
}

// mayGo says whether the shard can do without that replica: it doesn't lead, and without it at least as
// many as must be in sync are there and in sync, in the very lives that the set names.
func (p *planner) mayGo(c *change, id string) bool {
	if id == c.Leader {
		return false
	}
	if _, in := c.Member(id); !in {
		return true
	}
	after := c.Shard
	after.Replicas, after.Adding, after.Removing = without(c.Replicas, id), without(c.Adding, id), without(c.Removing, id)
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
	// Its broker deletes what it has. What the leader knows of it must be void then, should it be given the replica again
	// before the leader has heard that it was taken.
	c.Epoch = c.item.Epoch + 1
	c.Replicas, c.Adding, c.Removing = without(c.Replicas, id), without(c.Adding, id), without(c.Removing, id)
	c.InSync = slices.DeleteFunc(c.InSync, func(m coordination.Replica) bool { return m.Broker == id })
}

func (p *planner) take(l *load, topicID string) {
	l.replicas--
	l.of[topicID]--
	p.zones[l.Zone]--
}

// without is a list without one, and nil if that leaves nothing.
func without(ids []string, id string) []string {
	var rest []string
	for _, other := range ids {
		if other != id {
			rest = append(rest, other)
		}
	}
	return rest
}

// trim takes out replicas that are more than wanted.
func (p *planner) trim(c *change) {
	for p.remaining(&c.Shard) > c.want {
		victim := ""
		for _, id := range c.Replicas {
			if !p.stays(&c.Shard, id) || !p.mayGo(c, id) {
				continue
			}
			if victim == "" || slices.Compare(p.worth(c, id), p.worth(c, victim)) <= 0 { // of equals the last
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

// worth orders replicas by how little is lost with them: who has nothing yet, is not in sync, is away or
// about to stop; who shares its zone with another; who has much to do.
func (p *planner) worth(c *change, id string) []int {
	m, in := c.Member(id)
	l := p.alive[id]
	if l == nil {
		return []int{order(!catchingUp(&c.Shard, id)), order(in), 0}
	}
	alone := !slices.ContainsFunc(p.those(&c.Shard), func(other *load) bool { return other != l && other.Zone == l.Zone })
	return []int{
		order(!catchingUp(&c.Shard, id)), order(in), 1, order(in && p.standing(c.item, m) == present),
		order(p.facts.Drains[id] == ""), order(alone), -l.replicas,
	}
}

// extend adds replicas that are missing, or that are to take the place of those on drained brokers.
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
		return // when another has ended
	}
	for ; short > 0; short-- {
		to := p.pick(c.Topic, p.those(&c.Shard), c.Replicas)
		if to == nil {
			break
		}
		p.give(to, c.Topic)
		c.Replicas, c.Adding, c.added = append(c.Replicas, to.ID), append(c.Adding, to.ID), true
	}
	// One that is drained is marked when there is a replica in its place. Until then it counts as one that stays.
	for ; len(drained) > max(short, 0); drained = drained[1:] {
		c.Removing, c.added = append(c.Removing, drained[0]), true
		if l := p.alive[drained[0]]; l != nil {
			p.take(l, c.Topic)
		}
	}
	if len(drained) > 0 {
		p.wait(c.item, DrainBlocked, fmt.Sprintf("can't leave broker %s, which is drained: no other broker can take it (start one, end another drain, or ask for fewer replicas)", strings.Join(drained, ", ")))
	}
}
