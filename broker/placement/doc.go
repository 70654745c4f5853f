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
//	P1  A replica stays where it is while its broker is away: its data are there. Nobody takes its place
//	    until a person drains that broker.
//	P2  A write raises the epoch, by one, if it names a leader: another one, or the same in another life or alone, or
//	    one that resigned because its log failed in this epoch. No two leaders share an epoch. So does one that takes a replica away: its broker deletes what it has, and if
//	    it is given the replica again, its leader must not go by what it knew of it.
//	P3  A leader is named in the life that it is in, and stands in the in-sync set with it.
//	P4  A leader is a member of the set in the life that the set names: that life vouches for its copy
//	    (coordination.Client.Vouch). One that a leader has put into the set is preferred to one that
//	    returned and vouched itself, and of those the one that goes furthest: a volume may have been rolled
//	    back.
//	    Exceptions:
//	    1. A copy that lost at most a torn tail, if no member that is there vouches, or may yet.
//	    2. A broker of an earlier version vouches for nothing. It is named in a later life if it has everything by what is
//	       known: the Topic is Synced, or the broker has handed on what it wrote.
//	    3. A copy in doubt, if all of the last set are there, have said how far they go, and none vouches
//	       (LeastLoss: the one that goes furthest), or if the Topic says so (Unclean).
//	    After LeastLoss the others stay in the set as they are, to be compared again if the leader goes before they have caught
//	    up; after Unclean the leader is the whole set, since they may have what it lacks. Either stands in the shard with the
//	    epoch and the leader (coordination.Doubt): a broker leads with a copy in doubt only if it does.
//	P5  A new shard is spread over zones first, and goes to the brokers that have fewest, and among those to
//	    the ones first by shards of that Topic, by shards in common with its other replicas, by shards in the
//	    zone, by id. It leads that is meant to lead fewest. There are as many as must be in sync, or it waits.
//	P6  A plan puts nobody into the set, but for the new life of the leader. It takes somebody out only if enough
//	    stay: of those who are away when a leader is named, if the Topic is Synced; and of those who are to go when the others
//	    are there, in sync in the very lives that the set names.
//	P7  A replica is added before another goes, and its broker is not drained. The leader never goes: another leads first.
//	P8  Balance comes last and gently: no leadership is moved for it in a plan that elects, nor of a shard
//	    that is not whole; replicas only from a broker to one that has at least two less, to no fewer zones.
//	P9  The same facts give the same plan, in whatever order they come; carried out to the end, with leaders
//	    and followers doing their part, it leaves nothing to plan. What is carried out in part is no worse a beginning
//	    than any other: all that a plan knows is in the shards.
package placement
