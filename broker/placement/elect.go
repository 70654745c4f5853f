package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// standing is what a member of an in-sync set can do now.
type standing int

const (
	away     standing = iota // it is not there
	doubtful                 // it is there, and may lack something that was acknowledged
	returned                 // it is there in a later life, or its log failed in this one, with everything
	present                  // it is there, in the very life that the set names
)

func (p *planner) standing(it item, m coordination.Replica) standing {
	b := p.alive[m.Broker]
	switch {
	case b == nil:
		return away
	case p.suspect(it, m.Broker):
		return doubtful
	case b.Incarnation == m.Incarnation && m.Broker == it.Leader && p.spent(it):
		return returned // others have the better disk
	case b.Incarnation == m.Incarnation:
		return present
	case synced(it.topic) || b.Holds(m.Incarnation):
		return returned
	}
	return doubtful
}

func synced(t *coordination.Topic) bool {
	return t.Spec.Durability == "" || t.Spec.Durability == coordination.Synced
}

func (p *planner) suspect(it item, broker string) bool {
	if p.facts.Reported == nil {
		return false
	}
	said, ok := p.facts.Reported(broker, it.Topic, it.Number)
	return ok && said.Spent == 0
}

// spent says that the leader needs another epoch to lead.
func (p *planner) spent(it item) bool {
	if p.facts.Reported == nil {
		return false
	}
	said, ok := p.facts.Reported(it.Leader, it.Topic, it.Number)
	return ok && said.Spent >= it.Epoch
}

// led says whether the leader is there, in the life in which it was named, and counts it. One that can't
// vouch for its data leads only if it is the best that there is.
func (p *planner) led(it item) bool {
	b := p.alive[it.Leader]
	if b == nil {
		return false
	}
	m, ok := it.Member(it.Leader)
	if !ok || m.Incarnation != b.Incarnation || p.spent(it) || len(it.InSync) > 1 && p.suspect(it, it.Leader) && p.leastLoss(it) != it.Leader {
		return false
	}
	b.leads++
	return true
}

// elect names a leader for a shard that has none.
func (p *planner) elect(it item) {
	best, most := "", doubtful
	for _, m := range it.InSync {
		s := p.standing(it, m)
		if s <= doubtful {
			continue
		}
		if best == "" || cmp.Or(cmp.Compare(most, s), p.prefer(it, m.Broker, best)) < 0 {
			best, most = m.Broker, s
		}
	}
	switch {
	case best == "":
		p.electInDoubt(it)
	case best == it.Leader:
		p.name(it, best, LeaderReturned)
	default:
		p.name(it, best, LeaderElected)
	}
}

// prefer compares two that could lead equally well.
func (p *planner) prefer(it item, a, b string) int {
	stops := func(id string) int {
		return order(p.facts.Drains[id] != "" || slices.Contains(it.Removing, id))
	}
	return cmp.Or(
		// An elected one that has to take a new life into the set is best the one that led, and knows the most.
		order(a != it.Leader)-order(b != it.Leader),
		stops(a)-stops(b),
		order(a != it.Replicas[0])-order(b != it.Replicas[0]),
		cmp.Compare(p.alive[a].leads, p.alive[b].leads),
		cmp.Compare(slices.Index(it.Replicas, a), slices.Index(it.Replicas, b)))
}

// name writes the leader. It is in the set with the life that it is in now; the others stay with the lives
// that are known to have everything, until the leader has seen them catch up. Who is away goes, if enough stay that have
// everything. Of a Topic that isn't Synced nobody goes: when all brokers lose their power at once the leases of some stand a
// little longer, and who is the first to be missed may have kept what those have lost.
func (p *planner) name(it item, leader string, reason WriteReason) {
	after := *it.Shard
	after.Epoch++
	after.Leader, after.InSync = leader, slices.Clone(it.InSync)
	there := 0
	for i, m := range after.InSync {
		if m.Broker == leader {
			after.InSync[i] = p.alive[leader].Replica()
		}
		if p.standing(it, m) > doubtful {
			there++
		}
	}
	if synced(it.topic) && there >= it.MinInSync(&it.topic.Spec) {
		after.InSync = slices.DeleteFunc(after.InSync, func(m coordination.Replica) bool { return p.alive[m.Broker] == nil })
	}
	p.named(it, after, reason)
}

// nameAlone makes a leader the whole set: what it has is what there is from now on.
func (p *planner) nameAlone(it item, leader string, reason WriteReason) {
	after := *it.Shard
	after.Epoch++
	after.Leader, after.InSync = leader, []coordination.Replica{p.alive[leader].Replica()}
	p.named(it, after, reason)
}

// named writes a shard with another leader, and whether that one may lack something.
func (p *planner) named(it item, after coordination.Shard, reason WriteReason) {
	if mayLose(reason) {
		after.Doubt = coordination.Doubt{Epoch: after.Epoch, Leader: after.Leader, Reason: string(reason)}
	}
	if p.write(it.topic, after, reason) {
		p.alive[after.Leader].leads++
	}
}

// electInDoubt sees to a shard of which nobody who is there is known to have everything.
func (p *planner) electInDoubt(it item) {
	var gone, there, silent []string // silent: there, but it has not said how far its data go
	for _, m := range it.InSync {
		if p.alive[m.Broker] == nil {
			gone = append(gone, m.Broker)
			continue
		}
		there = append(there, m.Broker)
		if !p.suspect(it, m.Broker) {
			silent = append(silent, m.Broker)
		}
	}
	switch {
	case len(gone) == 0 && len(there) == 1: // there is nobody to compare it with
		reason := LeastLoss
		if len(silent) == 1 {
			reason = LeaderReturnedUnsynced
		}
		p.nameAlone(it, there[0], reason)
	case p.leastLoss(it) != "":
		// The others stay in the set with the lives that they can't vouch for: if the one that is named is gone before they have
		// copied it, or has lost more than it said, they are compared again, and nothing is lost that one of them has.
		p.name(it, p.leastLoss(it), LeastLoss)
	case it.topic.Spec.UncleanElection && (len(gone) > 0 || len(it.InSync) == 0) && p.electUnclean(it, there):
	case len(it.InSync) == 0:
		p.wait(it, NoLeaderCandidate, "has nobody in sync (allow unclean election to let one of its replicas lead)")
	case len(it.Replicas) == 1:
		p.wait(it, BrokerAway, fmt.Sprintf("is on broker %s alone, which is away (bring that broker back with its volume)", it.Replicas[0]))
	case len(there) == 0:
		p.wait(it, NoLeaderCandidate, fmt.Sprintf("can be led by %s only, which had everything when last seen, and is away (bring one back with its volume, or allow unclean election and lose what only they have)",
			oneOf(gone)))
	case len(gone) > 0:
		p.wait(it, AllSuspect, fmt.Sprintf("is there on %s, which can't vouch for its data, and waits for %s to compare them with (bring them back with their volumes, or allow unclean election)",
			oneOf(there), strings.Join(gone, ", ")))
	default:
		p.wait(it, AllSuspect, fmt.Sprintf("waits until %s has said how far its data go (look at the broker's log if this lasts)", strings.Join(silent, ", ")))
	}
}

// leastLoss is who goes furthest, if all members of the set are there, none can vouch for its data, and each has said how
// far they go; empty otherwise.
func (p *planner) leastLoss(it item) string {
	var ids []string
	for _, m := range it.InSync {
		if p.standing(it, m) != doubtful || !p.suspect(it, m.Broker) {
			return ""
		}
		ids = append(ids, m.Broker)
	}
	if len(ids) < 2 {
		return ""
	}
	return p.furthest(it, ids)
}

func oneOf(ids []string) string {
	if len(ids) == 1 {
		return "broker " + ids[0]
	}
	return "one of the brokers " + strings.Join(ids, ", ")
}

// furthest is who of them has most: the latest epoch, of that the greatest end, of those the fewest segments that are damaged, and
// then the most cursors.
func (p *planner) furthest(it item, ids []string) string {
	return slices.MinFunc(ids, func(a, b string) int {
		x, _ := p.facts.Reported(a, it.Topic, it.Number)
		y, _ := p.facts.Reported(b, it.Topic, it.Number)
		return cmp.Or(cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(y.End, x.End), cmp.Compare(x.Lacks, y.Lacks), cmp.Compare(y.State, x.State), p.prefer(it, a, b))
	})
}

// electUnclean names whoever is there: best one that was in sync, then one that is not known to lack
// anything. One that is only being added never had it all, and is no choice.
func (p *planner) electUnclean(it item, inSync []string) bool {
	among := inSync
	if len(among) == 0 {
		for _, id := range it.Replicas {
			if p.alive[id] != nil && !slices.Contains(it.Adding, id) {
				among = append(among, id)
			}
		}
	}
	if len(among) == 0 {
		return false
	}
	reported := func(id string) (s coordination.Suspect) {
		if p.facts.Reported != nil {
			s, _ = p.facts.Reported(id, it.Topic, it.Number)
		}
		return s
	}
	best := slices.MinFunc(among, func(a, b string) int {
		x, y := reported(a), reported(b)
		return cmp.Or(order(p.suspect(it, a))-order(p.suspect(it, b)), cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(y.End, x.End), cmp.Compare(x.Lacks, y.Lacks), p.prefer(it, a, b))
	})
	p.nameAlone(it, best, Unclean)
	return true
}
