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
	opening                  // it is there, and has said nothing of its copy in the life that it is in
	cut                      // it is there, and lacks at most a torn tail that nobody could count on
	returned                 // it is there in a later life, or its log failed in this one, with everything
	present                  // it is there, in the very life that the set names
)

// standing judges a member. A broker that vouches for its copies has everything if the set names the life that it
// is in, and only then. Of one of an earlier version (coordination.FeatureVouches) it is concluded from
// what the Topic promises and how its last life ended.
func (p *planner) standing(it item, m coordination.Replica) standing {
	b := p.alive[m.Broker]
	if b == nil {
		return away
	}
	said, reported := p.reported(it, m.Broker)
	vouched := it.Vouched(b.Broker)
	switch {
	case reported && said.Cut && !vouched:
		return cut
	case reported && !said.Cut:
		return doubtful
	case vouched && m.Broker == it.Leader && p.spent(it):
		return returned // others have the better disk
	case vouched:
		return present
	case b.Features.Has(coordination.FeatureVouches):
		return opening
	case synced(it.topic) || b.Holds(m.Incarnation):
		return returned
	}
	return doubtful
}

func synced(t *coordination.Topic) bool {
	return t.Spec.Durability == "" || t.Spec.Durability == coordination.Synced
}

// reported is what a broker says of its copy because it doesn't vouch for it.
func (p *planner) reported(it item, broker string) (said coordination.Suspect, ok bool) {
	if p.facts.Reported == nil {
		return said, false
	}
	said, ok = p.facts.Reported(broker, it.Topic, it.Number)
	return said, ok && said.Spent == 0
}

// suspect says that a broker reports a copy that may lack something.
func (p *planner) suspect(it item, broker string) bool {
	said, ok := p.reported(it, broker)
	return ok && !said.Cut
}

// spent says that the leader, of an earlier version, needs another epoch to lead. Others resign.
func (p *planner) spent(it item) bool {
	if p.facts.Reported == nil {
		return false
	}
	said, ok := p.facts.Reported(it.Leader, it.Topic, it.Number)
	return ok && said.Spent >= it.Epoch
}

// led says whether the leader is there, in the life in which it was named, and counts it. One that is in doubt of its
// copy says so in the shard; one of an earlier version only reports it, and leads if it is the best that there is.
func (p *planner) led(it item) bool {
	b := p.alive[it.Leader]
	if b == nil || !it.Vouched(b.Broker) || p.spent(it) {
		return false
	}
	if !b.Features.Has(coordination.FeatureVouches) && len(it.InSync) > 1 && p.suspect(it, it.Leader) && p.leastLoss(it) != it.Leader {
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
		if s < returned {
			continue
		}
		if best == "" || cmp.Or(cmp.Compare(most, s), trusted(it, best, m.Broker), p.prefer(it, m.Broker, best)) < 0 {
			best, most = m.Broker, s
		}
	}
	if best == "" {
		best = p.furthestCut(it)
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

// trusted compares members that vouch: one that a leader has put into the set comes before one that vouched for its copy
// itself, and of two such the one that goes further. A volume that was rolled back has less than its broker had confirmed,
// and the broker can't know.
func trusted(it item, a, b string) int {
	x, returnedA := it.Return(a)
	y, returnedB := it.Return(b)
	return cmp.Or(order(returnedB)-order(returnedA), x.Compare(y))
}

// furthestCut is who goes furthest of those of which a torn tail was cut, if nobody who is there may yet vouch
// for its copy; empty otherwise. Those that are away needn't be waited for: a torn tail was never synced, so it isn't
// what anybody counted on.
func (p *planner) furthestCut(it item) string {
	var ids []string
	for _, m := range it.InSync {
		switch p.standing(it, m) {
		case cut:
			ids = append(ids, m.Broker)
		case opening:
			return ""
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return p.furthest(it, ids)
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
		if p.standing(it, m) >= cut {
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
	var gone, there, silent, open []string // silent: there, but it has not said how far its data go; open: it is still looking
	for _, m := range it.InSync {
		if p.alive[m.Broker] == nil {
			gone = append(gone, m.Broker)
			continue
		}
		there = append(there, m.Broker)
		if p.standing(it, m) == opening {
			open = append(open, m.Broker)
		} else if _, said := p.reported(it, m.Broker); !said {
			silent = append(silent, m.Broker)
		}
	}
	switch {
	case len(gone) == 0 && len(there) == 1 && len(open) == 0: // there is nobody to compare it with
		reason := LeastLoss
		if len(silent) == 1 || !synced(it.topic) && len(it.Replicas) == 1 {
			reason = LeaderReturnedUnsynced
		}
		p.nameAlone(it, there[0], reason)
	case p.leastLoss(it) != "":
		// The others stay in the set with the lives that they can't vouch for: if the one that is named is gone before they have
		// copied it, or has lost more than it said, they are compared again, and nothing is lost that one of them has.
		p.name(it, p.leastLoss(it), LeastLoss)
	case len(open) > 0: // also if it may be unclean: it is a matter of moments
		p.wait(it, CopiesOpening, fmt.Sprintf("waits until %s has opened its copy (look at the broker's log if this lasts)", oneOf(open)))
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
		// One that was cut is compared with the others, which may have counted on more than they have.
		if _, said := p.reported(it, m.Broker); !said || p.standing(it, m) > cut || p.alive[m.Broker] == nil {
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
