// Package topic turns what is asked of a Topic into what brokers do: which broker serves which
// shard, and how that broker keeps and acknowledges what is published.
//
// A Service is a broker's part. Follow tells it what coordination says; its workers open, close and
// delete logs accordingly; the hub hands it what is published (Take). What one read of a
// connection brought is one batch and one completion. The disk's committer calls the completions of a round, which
// move the high watermark and nothing more; the acker, a goroutine of its own, then makes all
// answers of the round and hands them to the hub in one call. A goroutine per shard, or an answer sent by
// the committer itself, were the simpler ways: the one costs 10,000 stacks and wake-ups, the other keeps the disk waiting.
//
// Invariants of a Service:
//
//	T1  An ack is given when the record, and all before it in the shard, are as safe as the Topic asks.
//	    So is every answer that rests on a record: that a message is a duplicate, that another was
//	    expected before it.
//	T2  Readers see nothing at or beyond the high watermark, and nothing below a start that never goes back.
//	T3  Records of a publisher stand in the order in which they were taken. Each message with a
//	    reply is answered once, unless the process dies.
//	T4  Conditions and message ids are judged at the end of the log, records under way included. A message
//	    that was refused at once has left no trace there. One refused because its log failed may have been kept.
//	T5  A broker appends under the epoch that it was named leader in, in that life; what it led then
//	    it goes on leading while it registers anew.
//	T6  Logs are deleted if the Topic was seen being deleted, or deleted. What else is found without a
//	    Topic is set aside.
//	T7  What is wrong with one log refuses that Topic's messages, with the reason, and touches nothing else.
//	    A log that failed is opened again if its disk works.
//	T8  Messages for a log that is being opened wait for it, a bounded time and amount, and go before all later ones.
//
// When the process dies in it: nothing is kept in memory that the logs don't hold. The ids of the
// deduplication window and the last message's are read again from the end of the log. Deleting a log is
// one step; logs of which the first was deleted and the second not are set aside.
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
