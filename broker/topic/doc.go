// Package topic turns what is asked of a Topic into what brokers do: which broker serves which
// shard.
//
// PlanPlacement is pure: from what is known of brokers, Topics and shards it says what the
// controller writes next, and of what is not served, why. It remembers nothing. Whoever is
// elected controller goes on where the last one stopped; a plan that was carried out in part, or
// by a controller that was one no more, is found out by the compare-and-swap of each write.
//
// Invariants of a plan:
//
//	P1  A shard of one replica stays where it is, whatever became of its broker: its data are there.
//	P2  Every write of a shard that exists raises its epoch; no two leaders share one.
//	P3  A leader is named in the life that it is in, so one of an earlier life never leads.
//	P4  A new shard goes to the broker that has fewest, and among those to the one first by
//	    shards of that Topic, by shards in its zone, by id. So counts differ by one at most
//	    while brokers are only given shards.
//	P5  The same facts give the same plan, in whatever order they come; carried out to the end
//	    it leaves nothing to plan.
package topic
