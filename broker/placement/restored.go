package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// epochLeap is by how much the first election after a restore raises the epoch, beyond all that is
// known. Epochs were granted since the backup that no present broker knows, by fewer than four
// million elections. So a shard's epochs of generation G are below (G+1) * epochLeap.
const epochLeap = maxStride << 22

// begins returns an epoch that no leader of a shard had in an earlier generation of etcd, whether
// anything is known of it or not. A copy of then may come back: it must not have an epoch in common
// with a later history (replica.Compare).
func (p *planner) begins() int64 { return p.facts.Generation*epochLeap + max(p.facts.Stride, 1) }

// electRestored names a leader for a shard of an earlier generation, whose in-sync set is not
// believed, since acknowledged records may be elsewhere by now:
//
//  1. It waits until every replica is present, and until every present broker has reported its
//     copies, also those that the restored shard does not name. Brokers that are still registered
//     in an earlier generation, or had no time to register, are waited for (unregistered). A Topic
//     that allows unclean elections waits for all of these, and not for other replicas.
//  2. The copy that goes furthest leads. It holds everything that was acknowledged: each leader was
//     elected from the members that had it, and wrote its epoch behind it.
//  3. The set begins with the leader and the replicas that go equally far. Nobody else vouches.
//
// Rejected: letting a majority of the replicas decide. The replicas and the minInSync of the backup
// need not be those of now.
func (p *planner) electRestored(it item) {
	said := map[string]coordination.Suspect{}
	var away, opening []string
	known := uint64(it.Epoch)
	for _, id := range slices.Sorted(maps.Keys(p.alive)) {
		one, ok := coordination.Suspect{}, false
		if p.facts.Reported != nil {
			one, ok = p.facts.Reported(id, it.Topic, it.Number)
		}
		switch {
		case p.facts.ReportedIn == nil || p.facts.ReportedIn(id, it.Topic) != p.facts.Generation, ok && one.Opening, !ok && slices.Contains(it.Replicas, id):
			opening = append(opening, id)
		case ok && one.Closed:
			away = append(away, id+" (which can't open its copy; look at its log)")
		case ok:
			said[id] = one
			known = max(known, one.Known, one.Epoch, one.StateEpoch)
		}
	}
	for _, id := range it.Replicas {
		if p.alive[id] == nil {
			away = append(away, id)
		}
	}
	best := p.furthestRestored(it, said)
	switch unclean := it.topic.Spec.UncleanElection; {
	case p.unregistered(it):
	case len(opening) > 0:
		p.wait(it, CopiesOpening, fmt.Sprintf("waits, after etcd was restored from a backup, until %s has said how far its copy goes (look at the broker's log if this lasts)", oneOf(opening)))
	case len(away) > 0 && !unclean:
		p.wait(it, EtcdRestored, fmt.Sprintf("waits, after etcd was restored from a backup, for %s to compare its copy with the others (bring it back with its volume, or allow unclean election)", strings.Join(away, ", ")))
	case best == "":
		p.wait(it, NoLeaderCandidate, "has no replica that is there (bring one back with its volume)")
	case said[best].Epoch == 0 && said[best].StateEpoch == 0 && !said[best].Whole && !unclean:
		p.wait(it, EtcdRestored, "is of the time of the backup that etcd was restored from, and no broker that is there has a record of it: its replicas were moved, or it was deleted since (bring their brokers back, delete the topic, or allow unclean election)")
	default:
		p.nameRestored(it, best, said, known, len(away) > 0)
	}
}

// placeRestored handles a shard that etcd lacks, since it may be younger than the backup that etcd
// was restored from. It returns false if the shard is new:
//
//  1. It waits until every present broker has reported its copies, and for brokers that may be
//     alive (unregistered).
//  2. If some have a copy, these are the replicas, and the one that goes furthest leads.
//  3. If none has one, the shard is placed anew. Copies of brokers that are away are not known.
func (p *planner) placeRestored(where place) bool {
	s := &coordination.Shard{Topic: where.topic.ID, Number: where.number}
	it := item{where.topic, s}
	var silent []string
	for _, id := range slices.Sorted(maps.Keys(p.alive)) {
		if p.facts.ReportedIn == nil || p.facts.ReportedIn(id, s.Topic) != p.facts.Generation {
			silent = append(silent, id)
			continue
		}
		if p.facts.Reported != nil {
			if _, ok := p.facts.Reported(id, s.Topic, s.Number); ok {
				s.Replicas = append(s.Replicas, id)
			}
		}
	}
	switch {
	case p.unregistered(it):
	case len(silent) > 0:
		p.wait(it, CopiesOpening, fmt.Sprintf("waits, since etcd was restored from a backup, until %s has said which copies it has (look at the broker's log if this lasts)", oneOf(silent)))
	case len(s.Replicas) > 0:
		p.electRestored(it)
	default:
		return false
	}
	return true
}

// unregistered has a shard wait for brokers that may be alive, and have a copy, but are not
// registered in this generation yet: those that still are in an earlier one, until their leases
// end; and others, for as long as the generation settles. It reports whether there may be any.
func (p *planner) unregistered(it item) bool {
	var ids []string
	for _, b := range p.facts.Former {
		ids = append(ids, b.ID)
	}
	slices.Sort(ids)
	switch {
	case len(ids) > 0:
		p.wait(it, CopiesOpening, fmt.Sprintf("waits, since etcd was restored from a backup, until %s has registered again, or its lease ends", oneOf(ids)))
	case p.facts.Settling:
		p.wait(it, CopiesOpening, "waits, since etcd was restored from a backup, until all brokers have had the time to register again, which takes seconds")
	default:
		return false
	}
	return true
}

// furthestRestored returns the broker whose copy goes furthest: by the last epoch of both logs,
// since a leader may have acknowledged cursors only; then by the last epoch and the end of the data
// log, the fewest damaged segments, and the same of the state log. Of equal ones a replica that the
// shard names is preferred, and one without a doubt.
func (p *planner) furthestRestored(it item, said map[string]coordination.Suspect) string {
	if len(said) == 0 {
		return ""
	}
	return slices.MinFunc(slices.Sorted(maps.Keys(said)), func(a, b string) int {
		x, y := said[a], said[b]
		return cmp.Or(cmp.Compare(max(y.Epoch, y.StateEpoch), max(x.Epoch, x.StateEpoch)),
			cmp.Compare(y.Epoch, x.Epoch), cmp.Compare(y.End, x.End), cmp.Compare(x.Lacks, y.Lacks),
			cmp.Compare(y.StateEpoch, x.StateEpoch), cmp.Compare(y.State, x.State),
			order(!slices.Contains(it.Replicas, a))-order(!slices.Contains(it.Replicas, b)), order(!x.Whole)-order(!y.Whole), p.prefer(it, a, b))
	})
}

// nameRestored writes the leader. unclean says that replicas were away.
func (p *planner) nameRestored(it item, leader string, said map[string]coordination.Suspect, known uint64, unclean bool) {
	after := *it.Shard
	after.Epoch = max(int64(known)+epochLeap, p.begins())
	after.Leader, after.InSync, after.Returned = leader, []coordination.Replica{p.alive[leader].Replica()}, nil
	if !slices.Contains(it.Replicas, leader) {
		after.Replicas = append(slices.Clone(it.Replicas), leader)
	}
	for _, id := range it.Replicas {
		if one, ok := said[id]; ok && id != leader && one.Whole && one.SameReach(said[leader]) {
			after.InSync = append(after.InSync, p.alive[id].Replica())
		}
	}
	after.Adding = slices.DeleteFunc(slices.Clone(it.Adding), func(id string) bool {
		_, in := after.Member(id)
		return in
	})
	reason := Restored
	switch {
	case unclean:
		reason = Unclean
	case !said[leader].Whole:
		reason = LeastLoss
	}
	p.named(it, after, reason)
}
