package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// standing is what a member of an in-sync set can do now, from the worst to the best.
type standing int

const (
	away     standing = iota // its broker is away, or cannot open the copy
	doubtful                 // it may lack acknowledged records
	opening                  // its broker has not judged the copy in its current incarnation
	cut                      // it lacks at most a torn tail, which was never synced
	returned                 // it is complete, but in a later incarnation, or its log failed
	present                  // it is complete, in the incarnation that the set names
)

// standing judges a member. The copy of a broker that vouches is complete only if the set names the
// broker's current incarnation. For a broker of an earlier version (without
// coordination.FeatureVouches), completeness is inferred from the Topic's durability and from the
// end of its last incarnation.
func (p *planner) standing(it item, m coordination.Replica) standing {
	b := p.alive[m.Broker]
	if b == nil {
		return away
	}
	said, reported := p.reported(it, m.Broker)
	vouched := it.Vouched(b.Broker)
	switch {
	case reported && said.Closed:
		return away
	case reported && said.Cut && !vouched:
		return cut
	case reported && !said.Cut:
		return doubtful
	case vouched && m.Broker == it.Leader && p.spent(it):
		return returned // a member whose log did not fail is better
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

// reported returns what a broker reports about a copy that it does not vouch for.
func (p *planner) reported(it item, broker string) (said coordination.Suspect, ok bool) {
	if p.facts.Reported == nil {
		return said, false
	}
	said, ok = p.facts.Reported(broker, it.Topic, it.Number)
	return said, ok && said.Doubted()
}

// suspect reports whether the broker reports a copy that may lack acknowledged records.
func (p *planner) suspect(it item, broker string) bool {
	said, ok := p.reported(it, broker)
	return ok && !said.Cut
}

// closed reports whether a present broker cannot open its copy.
func (p *planner) closed(it item, broker string) bool {
	said, ok := p.reported(it, broker)
	return ok && said.Closed && p.alive[broker] != nil
}

// spent reports whether the leader, of an earlier version, needs a later epoch to lead. Brokers of
// this version resign instead.
func (p *planner) spent(it item) bool {
	if p.facts.Reported == nil {
		return false
	}
	said, ok := p.facts.Reported(it.Leader, it.Topic, it.Number)
	return ok && said.Spent >= it.Epoch
}

// led reports whether the leader is present in the incarnation that the set names, and counts its
// leadership. A leader that doubts its copy withdraws in the shard. A leader of an earlier version
// only reports the doubt, and goes on leading if its copy goes furthest.
func (p *planner) led(it item) bool {
	b := p.alive[it.Leader]
	if b == nil || it.Generation < p.facts.Generation || !it.Vouched(b.Broker) || p.spent(it) {
		return false
	}
	if !b.Features.Has(coordination.FeatureVouches) && len(it.InSync) > 1 && p.suspect(it, it.Leader) && p.leastLoss(it) != it.Leader {
		return false
	}
	b.leads++
	return true
}

// elect names a leader for a shard without one, or says why the shard waits.
func (p *planner) elect(it item) {
	if it.Generation < p.facts.Generation {
		p.electRestored(it)
		return
	}
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

// trusted compares two members that vouch; negative: b is better. A member that a leader put into
// the set is better than one that returned and vouched for its copy itself. Of two that returned,
// the copy that goes further is better: a volume that was rolled back has less than its broker had
// confirmed, and the broker cannot know.
func trusted(it item, a, b string) int {
	x, returnedA := it.Return(a)
	y, returnedB := it.Return(b)
	return cmp.Or(order(returnedB)-order(returnedA), x.Compare(y))
}

// furthestCut returns the broker whose copy goes furthest among those with a torn tail cut; empty:
// there is none, or a present member may still vouch. It does not wait for members that are away: a
// torn tail was never synced, so its broker never confirmed it.
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

// prefer compares two brokers that could lead equally well; negative: a is better.
func (p *planner) prefer(it item, a, b string) int {
	stops := func(id string) int {
		return order(p.facts.Drains[id] != "" || slices.Contains(it.Removing, id))
	}
	return cmp.Or(
		// The former leader knows the most, if a new incarnation must be put into the set.
		order(a != it.Leader)-order(b != it.Leader),
		stops(a)-stops(b),
		order(a != it.Replicas[0])-order(b != it.Replicas[0]),
		cmp.Compare(p.alive[a].leads, p.alive[b].leads),
		cmp.Compare(slices.Index(it.Replicas, a), slices.Index(it.Replicas, b)))
}

// next returns the shard's next epoch.
func (p *planner) next(it item) int64 { return it.Epoch + max(p.facts.Stride, 1) }

// name writes a leader, in its current incarnation.
//
//  1. The other members keep the incarnations that are known to be complete, until the leader has
//     seen them catch up.
//  2. Members that are away leave the set if enough complete ones stay and the Topic is Synced.
//  3. If the Topic is not Synced, no member leaves. When all brokers lose power at once, some
//     leases last a little longer, and the first member to be missed may have records that the
//     others lost.
func (p *planner) name(it item, leader string, reason WriteReason) {
	after := *it.Shard
	after.Epoch = p.next(it)
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

// nameAlone makes a leader the only member of the set. From then on its copy is what the shard
// holds.
func (p *planner) nameAlone(it item, leader string, reason WriteReason) {
	after := *it.Shard
	after.Epoch = p.next(it)
	after.Leader, after.InSync = leader, []coordination.Replica{p.alive[leader].Replica()}
	p.named(it, after, reason)
}

// named writes a shard with another leader, and records the doubt if acknowledged records may be
// lost.
func (p *planner) named(it item, after coordination.Shard, reason WriteReason) {
	if mayLose(reason) {
		after.Doubt = coordination.Doubt{Epoch: after.Epoch, Leader: after.Leader, Reason: string(reason)}
	}
	if p.write(it.topic, after, reason) {
		p.alive[after.Leader].leads++
	}
}

// electInDoubt handles a shard without a present member that is known to be complete.
func (p *planner) electInDoubt(it item) {
	var gone, there, silent, open []string // silent: present, no report; open: still opening
	for _, m := range it.InSync {
		if p.closed(it, m.Broker) {
			gone = append(gone, m.Broker+" (which can't open its copy; look at its log)")
			continue
		}
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
	case len(gone) == 0 && len(there) == 1 && len(open) == 0: // nothing to compare it with
		reason := LeastLoss
		if len(silent) == 1 || !synced(it.topic) && len(it.Replicas) == 1 {
			reason = LeaderReturnedUnsynced
		}
		p.nameAlone(it, there[0], reason)
	case p.leastLoss(it) != "":
		// The others stay in the set with incarnations that do not vouch. If the new leader fails
		// before they have copied its log, or lost more than it reported, the copies are compared
		// again, and no record that one of them has is lost.
		p.name(it, p.leastLoss(it), LeastLoss)
	case len(open) > 0: // even if the election may be unclean: this takes moments
		p.wait(it, CopiesOpening, fmt.Sprintf("waits until %s has opened its copy (look at the broker's log if this lasts)", oneOf(open)))
	case it.topic.Spec.UncleanElection && (len(gone) > 0 || len(it.InSync) == 0) && p.electUnclean(it, there):
	case len(it.InSync) == 0:
		p.wait(it, NoLeaderCandidate, "has nobody in sync (allow unclean election to let one of its replicas lead)")
	case len(it.Replicas) == 1 && p.closed(it, it.Replicas[0]):
		p.wait(it, BrokerAway, fmt.Sprintf("is on broker %s alone, which can't open its copy (look at the broker's log)", it.Replicas[0]))
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

// leastLoss returns the broker whose copy goes furthest, if there are at least two members, all are
// present, none vouches, and each has reported how far its copy goes; empty otherwise.
func (p *planner) leastLoss(it item) string {
	var ids []string
	for _, m := range it.InSync {
		// A cut copy is compared, too: the others may have confirmed more than they have.
		if _, said := p.reported(it, m.Broker); !said || p.standing(it, m) > cut || p.standing(it, m) == away {
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

// furthest returns the broker whose copy goes furthest: by the latest epoch, the end of the data
// log, the fewest damaged segments, and the end of the state log.
func (p *planner) furthest(it item, ids []string) string {
	return slices.MinFunc(ids, func(a, b string) int {
		x, _ := p.facts.Reported(a, it.Topic, it.Number)
		y, _ := p.facts.Reported(b, it.Topic, it.Number)
		return cmp.Or(cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(y.End, x.End), cmp.Compare(x.Lacks, y.Lacks), cmp.Compare(y.State, x.State), p.prefer(it, a, b))
	})
}

// electUnclean names a present broker: a member of the in-sync set, or else one of the other
// replicas, and preferably a copy without a doubt. A replica that is being added was never complete
// and is not considered. It reports whether there was a candidate.
func (p *planner) electUnclean(it item, inSync []string) bool {
	among := inSync
	if len(among) == 0 {
		for _, id := range it.Replicas {
			if p.alive[id] != nil && !p.closed(it, id) && !slices.Contains(it.Adding, id) {
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
