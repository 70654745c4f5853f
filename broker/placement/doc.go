// Package placement decides which brokers hold and lead each shard, and has the elected controller
// broker write it.
//
// Decide is pure: it takes what is known of brokers, Topics and shards and returns the next writes
// and, for each shard that is not served, the reason. It keeps no memory. A newly elected
// controller continues where the last one stopped. The compare-and-swap of each write detects a
// plan that was carried out in part, or by a controller that had lost its office.
//
// Controller runs Decide while its broker holds the office, and writes up to 100 shards in one
// transaction. ahead shows the next plan the writes that the watch has not shown yet.
//
// Invariants of a plan:
//
//	P1  A replica that has been in sync is not replaced because its broker is away: its data are
//	    there. It is replaced when the broker is drained.
//	P2  A write raises the epoch, by Facts.Stride, if it names a leader: another broker, the same one
//	    in another incarnation or as the only member, or one that resigned because its log failed in
//	    this epoch. No two leaders share an epoch. A write that removes a replica raises the epoch,
//	    too: the broker deletes its copy, and if it gets the replica again, the leader must not use
//	    what it knew of the former copy.
//	P3  A leader is named in its current incarnation, and is in the in-sync set with it.
//	P4  A leader is a member of the set in the incarnation that the set names: that incarnation
//	    vouches for its copy (coordination.Client.Vouch). A member that a leader put into the set is
//	    preferred to one that returned and vouched for its copy itself. Of those that returned, the
//	    copy that goes furthest is preferred, since a volume may have been rolled back. Exceptions:
//	    1. A copy that lost at most a torn tail, if no present member vouches or may still vouch.
//	    2. A broker of an earlier version does not vouch. It is named in a later incarnation if its
//	       copy is known to be complete: the Topic is Synced, or the broker's volume still holds
//	       everything that it wrote (coordination.Broker.Holds).
//	    3. A copy in doubt, if all members of the last set are present, have reported how far their
//	       copies go, and none vouches (LeastLoss: the copy that goes furthest), or if the Topic
//	       allows it (Unclean). A single member leads without a comparison.
//	    After LeastLoss the others stay in the set unchanged, to be compared again if the leader
//	    fails before they have caught up. After Unclean the leader is the only member, since the
//	    others may have records that it lacks. The shard records either doubt with its epoch and
//	    leader (coordination.Doubt). A broker leads with a copy in doubt only if it is recorded.
//	P5  A new shard is spread over zones first. Then it goes to the brokers with the fewest
//	    replicas, the fewest replicas of that Topic, the fewest shards in common with its other
//	    replicas, the fewest replicas in the zone, and by id. Of its replicas, the broker with the
//	    fewest planned leaderships leads. It waits until there are as many brokers as replicas must
//	    be in sync.
//	P6  A plan adds nothing to the set but the new incarnation of a leader. It removes a member only
//	    if enough others stay: a member that is away, when it names a leader of a Synced Topic; and
//	    a replica to be removed, when enough others are in sync in the incarnations that the set
//	    names.
//	P7  A replica is added before the one that it replaces is removed, and not on a drained broker.
//	    The leader's replica is never removed: the leadership moves first.
//	P8  Balance comes last and is gradual. A plan that elects moves nothing for balance. A
//	    leadership moves only if all replicas of the shard are in sync. A replica moves only to a
//	    broker with at least two fewer, and loses no zone.
//	P9  The same facts give the same plan, in any order. When plans are carried out, and leaders and
//	    followers have done their part, nothing is left to plan. A plan that was carried out in part
//	    is no worse a start than any other state: everything that a plan knows is in the shards.
//	P10 A shard of an earlier generation of etcd, which was restored from a backup, has no leader,
//	    and its set says nothing: P1, P4 and P6 do not hold for it. When all of its replicas are
//	    present, and all brokers have reported their copies, the copy that goes furthest leads, and
//	    the set is that one and the replicas that go equally far (electRestored). A shard without a
//	    key may be younger than the backup: its copies are compared in the same way (placeRestored).
//
// Rejected, to notice a volume that was rolled back when no other member of the set is present:
//
//   - A write to etcd per commit round. etcd is on no message's path.
//   - A leader that gives way to a returning member with more committed records, unless something
//     was confirmed in its epoch. Of 300 worlds of test/world, 6 lose something, and this would
//     save 2. In two others the member had left the set before all brokers died, and in the last
//     two clients had read from the leader before the member returned.
//
// When the controller's process dies, some transactions of its plan are written. The next
// controller plans from the shards as they are (P9).
package placement
