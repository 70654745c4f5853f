// Package subscription serves the durable readers of the shards that this broker leads: where each
// stands, what is on its way to whom, and what is to be delivered again.
//
// A cursor is a pure state machine, changed by small ops. The ops of all Subscriptions of a shard go, in
// batches, to one log beside the shard's data; once in a while all cursors are written there as a
// whole, and what is before that goes. So a log of ops is all that a follower will need.
//
// A Subscription has no goroutine, and a timer only while something of it is due: it is woken by a
// request, an ack, a new record or its timer, and a few workers step those that are awake, each for a bounded
// while. A goroutine per Subscription was the simpler way; 10,000 of them, mostly idle, are not small.
//
// Invariants:
//
//	S1  An ack that was answered is never undone: after a crash, a restart or a purge the record is not
//	    delivered again. Under a weaker durability than Synced, that is as safe as the Topic's records are.
//	S2  What was not acknowledged is delivered again, until it was as often as its spec allows, or the
//	    log has it no more. Nothing else makes a record that matches be left out, but damage, and that is counted
//	    and said; and compaction, after which a newer record of the subject comes.
//	S3  A cursor is never ahead of its log: where a log has lost its tail, records that get those
//	    offsets anew are delivered.
//	S4  Deliveries and acks that nobody waits for reach the state log within lazyFor. So a crash repeats no
//	    more than was under way in that time; acks for deliveries of which the log knows nothing
//	    are kept all the same (cursor.ahead).
//	S5  A Subscription is served once where it starts is safe on the disk.
//	S6  One that was deleted and made again is another one, and shares nothing with the first.
//	S7  A cursor that can't be known is never guessed: that Subscription is not served, and says why. If the state log is damaged and
//	    another replica can lead, that one does, and knows all cursors.
//	S8  What a spec asks for and brokers can't do yet is refused, never left out.
//
// How many records match a filter is counted by reading ahead of what is delivered: each record
// once, when somebody is delivered to or asks. Without a filter nothing is read.
//
// When the process dies in it: what stands in the state log is applied again at the next opening. Subscriptions
// in memory only are gone, and their clients make them again. When the disk is full, deliveries go on, and acks
// that ask for an answer are refused; what was in memory is written as a whole once there is
// room. When it has failed, they are refused until the broker is started anew.
//
// Locks, in the order in which they are taken: cursorStore.stepping, Subscription.sinkMu,
// Subscription.mu, cursorStore.mu, the locks of package work. Service.mu is never held while another one is taken.
package subscription
