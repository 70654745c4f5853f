package placement

import (
	"cmp"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// balance moves replicas to brokers with fewer of them, and leaderships to the preferred leaders, a
// few at a time. The preferred leader of a shard is its first replica.
func (p *planner) balance() {
	moving := p.moveReplicas()
	// Changes under way may change the preferred leaders.
	if !p.restoreLeaders(moving) && p.underWay == 0 && !p.More {
		p.spreadLeaders()
	}
}

// whole reports whether all replicas of a shard are in sync in their current incarnations.
func (p *planner) whole(it item) bool {
	return len(it.InSync) == len(it.Replicas) &&
		!slices.ContainsFunc(it.InSync,
			func(m coordination.Replica) bool { return p.standing(it, m) != present })
}

// moveReplicas starts to move replicas to brokers that have at least two fewer, while fewer than
// movesUnderWay shards are being changed. It returns the shards that it changed.
func (p *planner) moveReplicas() (moving map[*coordination.Shard]bool) {
	on := map[*load][]item{}
	for p.underWay < movesUnderWay && !p.More {
		byLoad := slices.Clone(p.takers)
		slices.SortStableFunc(byLoad, func(a, b *load) int { return cmp.Compare(b.replicas, a.replicas) })
		if len(byLoad) < 2 || byLoad[0].replicas < byLoad[len(byLoad)-1].replicas+2 {
			return moving
		}
		if moving == nil {
			moving = map[*coordination.Shard]bool{}
			for _, it := range p.settled {
				if !p.whole(it) {
					continue
				}
				for _, id := range it.Replicas {
					on[p.alive[id]] = append(on[p.alive[id]], it)
				}
			}
		}
		if !p.moveOne(byLoad, on, moving) {
			return moving
		}
	}
	return moving
}

func (p *planner) moveOne(byLoad []*load, on map[*load][]item,
	moving map[*coordination.Shard]bool) bool {
	for _, from := range byLoad {
		for _, to := range slices.Backward(byLoad) {
			if from.replicas < to.replicas+2 {
				break
			}
			it, ok := p.bestToMove(on[from], from, to, moving)
			if !ok {
				continue
			}
			after := *it.Shard
			after.Replicas = append(slices.Clone(it.Replicas), to.ID)
			after.Adding, after.Removing = []string{to.ID}, []string{from.ID}
			if !p.write(it.topic, after, ReplicaAdded) {
				return false
			}
			p.take(from, it.topic.ID)
			p.give(to, it.topic.ID)
			p.underWay++
			moving[it.Shard] = true
			return true
		}
	}
	return false
}

// bestToMove returns the best shard to move from one broker to another: by the zones gained, then
// by the difference in replicas of its Topic, then one that from does not lead. A move that loses a
// zone is not considered.
func (p *planner) bestToMove(among []item, from, to *load,
	moving map[*coordination.Shard]bool) (best item, found bool) {
	var most []int
	for _, it := range among {
		if moving[it.Shard] || slices.Contains(it.Replicas, to.ID) {
			continue
		}
		gain := p.zoneGain(it, from, to)
		if gain < 0 {
			continue
		}
		value := []int{gain, from.of[it.topic.ID] - to.of[it.topic.ID], order(it.Leader != from.ID)}
		if !found || slices.Compare(value, most) > 0 {
			best, most, found = it, value, true
		}
	}
	return best, found
}

// zoneGain returns by how many the zones of the replicas become more; negative: fewer.
func (p *planner) zoneGain(it item, from, to *load) int {
	if from.Zone == to.Zone {
		return 0
	}
	leaves, enters := 1, 1
	for _, id := range it.Replicas {
		switch zone := p.alive[id].Zone; {
		case id == from.ID:
		case zone == from.Zone:
			leaves = 0
		case zone == to.Zone:
			enters = 0
		}
	}
	return enters - leaves
}

// restoreLeaders moves leaderships to the first replica of shards with all replicas in sync. It
// reports whether there was such a shard with another leader.
func (p *planner) restoreLeaders(moving map[*coordination.Shard]bool) (any bool) {
	for _, it := range p.settled {
		first := it.Replicas[0]
		if it.Leader == first || moving[it.Shard] || p.facts.Drains[first] != "" || !p.whole(it) {
			continue
		}
		any = true
		if !p.moveForBalance(it, first, it.Replicas) {
			return true
		}
	}
	return any
}

// moveForBalance moves a leadership, unless HoldMoves is set or the plan has leaderMovesPerPlan
// moves.
func (p *planner) moveForBalance(it item, to string, replicas []string) bool {
	if p.facts.HoldMoves || p.Moves >= leaderMovesPerPlan {
		p.Held = true
		return false
	}
	if !p.moveLeader(it, to, replicas) {
		return false
	}
	p.Moves++
	return true
}

// spreadLeaders changes the first replica of shards, and with it the leader, until no broker is the
// preferred leader of two shards more than another that could take one. If no shard has replicas on
// both brokers, it moves one leadership along each step of a chain of brokers.
func (p *planner) spreadLeaders() {
	if len(p.takers) < 2 {
		return
	}
	byPreferred := func(a, b *load) int { return cmp.Compare(a.preferred, b.preferred) }
	most, fewest := slices.MaxFunc(p.takers, byPreferred), slices.MinFunc(p.takers, byPreferred)
	if most.preferred < fewest.preferred+2 {
		return
	}
	edges := p.leaderEdges()
	for {
		path := p.leaderPath(edges)
		if path == nil {
			return
		}
		if p.Moves > 0 && p.Moves+len(path)-1 > leaderMovesPerPlan {
			p.Held = true
			return
		}
		for i, to := range path[1:] {
			from := path[i]
			movable := edges[from][to]
			it := movable[0]
			edges[from][to] = movable[1:]
			replicas := append([]string{to.ID}, without(it.Replicas, to.ID)...)
			if !p.moveForBalance(it, to.ID, replicas) {
				return
			}
			p.forget(edges, from, it)
			from.preferred--
			to.preferred++
		}
	}
}

// leaderEdges returns, from each broker to each other one, shards that the first leads as preferred
// leader and the second could lead.
func (p *planner) leaderEdges() map[*load]map[*load][]item {
	edges := map[*load]map[*load][]item{}
	for _, l := range p.takers {
		edges[l] = map[*load][]item{}
	}
	for _, it := range p.settled {
		from := p.alive[it.Replicas[0]]
		if from == nil || edges[from] == nil || it.Leader != from.ID || !p.whole(it) {
			continue
		}
		for _, id := range it.Replicas[1:] {
			if to := p.alive[id]; to != nil && edges[to] != nil &&
				len(edges[from][to]) <= leaderMovesPerPlan {
				edges[from][to] = append(edges[from][to], it)
			}
		}
	}
	return edges
}

// forget removes a moved shard from the edges of its former leader.
func (p *planner) forget(edges map[*load]map[*load][]item, from *load, moved item) {
	for _, to := range p.takers {
		edges[from][to] = slices.DeleteFunc(edges[from][to],
			func(it item) bool { return it.Shard == moved.Shard })
	}
}

// leaderPath returns the shortest chain to a broker that is the preferred leader of at least two
// shards fewer. Chains are tried from the broker with the most such shards on. nil: there is none.
func (p *planner) leaderPath(edges map[*load]map[*load][]item) []*load {
	byLoad := slices.Clone(p.takers)
	slices.SortStableFunc(byLoad,
		func(a, b *load) int { return cmp.Compare(b.preferred, a.preferred) })
	for _, start := range byLoad {
		came := map[*load]*load{start: nil}
		queue := []*load{start}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			if at.preferred <= start.preferred-2 {
				path := []*load{at}
				for back := came[at]; back != nil; back = came[back] {
					path = append(path, back)
				}
				slices.Reverse(path)
				return path
			}
			for _, to := range p.takers {
				if _, seen := came[to]; !seen && len(edges[at][to]) > 0 {
					came[to] = at
					queue = append(queue, to)
				}
			}
		}
	}
	return nil
}
