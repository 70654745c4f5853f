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
//	    A log that failed is opened again if its disk works. If it was led and others follow, they may have what was under way and
//	    it has not: it is led again under a later epoch only.
//	T8  Messages for a log that is being opened wait for it, a bounded time and amount, and go before all later ones.
//	T9  An answer that a newer leader's record could falsify, such as a refusal by condition, is given when the
//	    in-sync replicas have confirmed after the message came that this broker leads (confirm.go).
//	T10 What a leader appends beyond its high watermark is bounded. Beyond the bound publishers wait, and are
//	    refused when the watermark does not move (ahead).
//	T11 Nothing is deleted by its age, and nothing compacted, while the time is in doubt. An id is a duplicate
//	    only while its age is surely within the window (packages dedup and clock).
//
// What needs little of a Service is beside it: package publish has conditions and refusals, records
// reads, dedup remembers message ids, and sender brings every message here, with the invariants F1 to
// F7 of forwarding. Of these, F3, F4 and the refusals of F5 are kept here: arrive.go judges numbers, and
// take.go signs batches with them. These packages know a shard by their own interfaces only
// (publishing.go, records.Source).
//
// When the process dies in it: nothing is kept in memory that the logs don't hold. The ids of the
// deduplication window, which followers keep as well, and the last message's are read again from the end of the log. Deleting a log is
// one step; logs of which the first was deleted and the second not are set aside.
//
// A broker opens the copies of which it has a replica as soon as it has registered, whoever leads. What it knows of each
// is a copystate.State, and what follows from that, and from the shard's key, is decided there alone: to vouch for the copy, to
// withdraw it, to resign, to lead, to follow, to repair it or to set it aside. The state stands in the data log's
// manifest before anything else follows from it. What the broker says in the key goes through replica.Exchange.Say; one
// word at a time, and again if its answer was lost. Copies in doubt are also reported (coordination.Suspect), for the
// controller to compare when nobody vouches; nothing waits for that.
package topic
