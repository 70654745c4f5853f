// Package subscription serves the durable readers of the shards that this broker leads: their
// cursors, their pending deliveries, and redelivery.
//
// A cursor is a pure state machine, changed by small ops. The ops of all Subscriptions of a shard
// are appended in batches to one state log beside the shard's data. From time to time a snapshot of
// all cursors is appended, and what precedes it is deleted. Followers replicate that log.
//
// A Subscription has no goroutine, and a timer only while something of it is due. A request, an
// ack, a new record or the timer wakes it, and a few workers step the Subscriptions that are awake,
// each for a bounded time. A goroutine per Subscription would be simpler, but 10,000 mostly idle
// ones take too much memory.
//
// The state log also has removals of single records (package removal). The shard's leader reads and
// writes them; a snapshot carries all of them over before the log is trimmed (M6).
//
// Invariants:
//
//	S1  An ack that was answered is never undone: the record is not delivered again after a crash, a
//	    restart or a purge. Under a durability weaker than Synced an ack is as durable as the
//	    Topic's records.
//	S2  A record without an ack is delivered again until its maximum of deliveries, until a client
//	    terminates it, or until it is deleted from the log. A matching record is skipped for three
//	    reasons only: damage, which is counted and reported; compaction, which leaves a newer record
//	    of the subject; and removal (Source.Removed). A pending record that is removed is
//	    acknowledged, without an advisory.
//	S3  A cursor is never ahead of its log: if a log lost its end, new records under those offsets
//	    are delivered. A cursor that was last changed in an epoch counts no record of a later one.
//	S4  Deliveries, and acks without a reply, reach the state log within lazyFor, and at once on a
//	    stopping broker (Settle). So a crash repeats at most what happened in that time. Acks of
//	    deliveries that the log lacks are kept (cursor.ahead).
//	S5  A Subscription is served once its start position is on the disk, unless it is a reader with
//	    memory storage.
//	S6  A Subscription that is deleted and created again shares nothing with the former one.
//	S7  An unknown cursor is never guessed: its Subscription is not served, with the reason. If the
//	    state log is damaged and another replica can lead, that one leads, and has all cursors.
//	S8  A setting that brokers don't support yet is refused, never ignored.
//	S9  A Subscription with a deliver subject is served as one standing request (push), by the same
//	    cursor and acks. It delivers only while somebody is subscribed there, and what flow control
//	    has not confirmed is bounded. If its Topic has several shards, a relay pulls instead
//	    (Pull.Relay).
//	S10 A record is removed for want of need only if the cursors, and the Subscriptions of the State
//	    in which this broker leads, say so (release.go). In the state log the acks come first.
//
//	S11 With a dead-letter Topic, a record that is given up stays pending until that Topic has stored
//	    it, or a client acknowledges it. It is published at least once, always with the same
//	    message id. Refused ones are tried again one at a time, after growing pauses (deadLetters).
//
// A step reads records for delivery without the Subscription's mu (readView), so acks and requests
// don't wait for the disk. What may change meanwhile is looked at again. Still under mu are the
// search for the start, counting ahead where the index can't count, and dead letters.
//
// Of a Subscription with a condition (spec.Where) records are judged ahead of delivery, each
// once, also without mu (verdicts). A record that doesn't match, or can't be judged, is skipped
// as one that the filter by subject leaves out. Each step judges for a bounded time. New records
// are judged once for all Subscriptions of a shard (tail), which wakes those that have a match.
//
// The lag of a filtered Subscription is counted by reading ahead of delivery, each record once,
// when something is delivered or the lag is requested. Without a filter nothing is read. If counted
// records are removed, they are counted again: for a request at once, for deliveries once a second.
//
// A reader is a Subscription that nobody declared: a JetStream consumer without a durable name. Its
// spec is in the state log, beside its cursor, and it is deleted when it was unused for some time.
// One with memory storage is served at once, and S1 does not hold for it. A Subscription that is
// declared with its name and its time of creation adopts its cursor (FeatureDeclaredConsumers).
//
// When the process dies, the next opening replays the state log. On a full disk deliveries go on
// and acks that request a reply are refused; once there is room, a snapshot is written. On a failed
// disk such acks are refused until the broker is restarted.
//
// Lock order: cursorStore.stepping, Subscription.sinkMu, Subscription.mu, tail.mu, cursorStore.mu,
// the locks of package work. A DeliverySink may take locks of its own under Subscription.mu, and
// call changed of Watch under them. Service.mu is never held while another lock is taken.
package subscription
