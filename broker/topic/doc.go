// Package topic serves the shards of Topics: it opens the logs of this broker's copies, leads or
// follows them as the cluster's State says, appends what is published, and acknowledges it.
//
// A Service is a broker's part in all Topics. Follow gives it each new State; its workers then
// open, close and delete logs. The hub gives it published messages (publish.Taker). The messages of
// one read of a connection make one batch with one completion. The disk's committer calls the
// completions of a round, which raise the high watermark and do nothing else. The acker, a
// goroutine of its own, then builds all answers of the round and gives them to the hub in one call
// (package acking).
// Rejected: a goroutine per shard, which costs 10,000 stacks and wake-ups; answers sent by the
// committer, for which the disk would wait.
//
// # Invariants of a Service
//
//	T1  An ack is given when the record, and all before it in the shard, are as durable as the
//	    Topic asks. So is every answer that depends on a record, such as a duplicate.
//	T2  Readers see nothing at or beyond the high watermark, and nothing below a start that never
//	    goes back.
//	T3  Records of a publisher are in the order of its messages. Each message with a reply is
//	    answered once, unless the process dies.
//	T4  Conditions and message ids are judged at the end of the log, including uncommitted
//	    records. A message that was refused at once leaves no trace there. A message that was
//	    refused because its log failed may have been kept.
//	T5  A broker appends only under an epoch in which its current incarnation was named leader.
//	    It goes on leading while it registers anew.
//	T6  A log is deleted only if its Topic was seen being deleted, if etcd has the Topic's
//	    tombstone, or if its replica was moved away by plan. Other logs without a Topic are set
//	    aside.
//	T7  A fault of one log refuses the messages of that shard, with the reason, and affects no
//	    other. A log that failed is opened again if its disk works. If it was led and has
//	    followers, it is led again under a later epoch only, since they may have records that it
//	    lost.
//	T8  Messages for a log that is being opened wait, for a bounded time and in a bounded amount,
//	    and go before all later ones.
//	T9  An answer that a newer leader's record could falsify, such as a refusal by condition,
//	    waits until the in-sync replicas have confirmed that this broker leads (package confirm).
//	T10 What a leader appends beyond its high watermark is bounded. Beyond the bound publishers
//	    wait, and are refused when the watermark doesn't move (package ahead).
//	T11 Nothing is deleted by age, and nothing compacted, while the time is in doubt. An id is a
//	    duplicate only while its age is surely within the window (packages dedup and clock).
//
// # Neighbours
//
//	publish   conditions and refusals
//	records   reads of records
//	dedup     the window of message ids
//	removing  the removed records of a led shard: the set, and its way into the logs
//	limiting  removes what publishes could not, beyond a limit per subject
//	ahead     the bound beyond the high watermark
//	acking    the acker: answers of a round
//	confirm   readers that wait for a barrier round
//	retention deletes old records
//	expiring  removes records whose TTL has passed
//	republish publishes again what was stored
//	keptspec  a Topic as kept beside its data log
//	inventory which logs are on the disk; T6 for those of unknown Topics
//	counting  adds up counters
//	batching  stages atomic batches, on the broker of their publisher
//	sender    brings every message here, with the invariants F1 to F9 of forwarding. F3, F4 and
//	          the refusals of F5 are kept here: judge.go judges numbers, append.go signs batches
//	upkeep    scrubs, compresses and compacts segments at rest
//	copystate what this broker knows of a copy, and what follows from that
//
// These packages know a shard by interfaces of their own (publishing.go, upkeep.go,
// records.Source).
//
// # Files
//
// Each file uses only files before it in this list, which test/layout checks. There is no
// exception. Calls through interfaces and callbacks are not counted.
//
//	limits.go       every bound, with its reason
//	view.go         a shard in one State; never changes
//	types.go        all types that refer to each other, with their locks
//	shard.go        names and ids of a shard
//	lookup.go       Topics, shards, leaders and brokers by name or id
//	work.go         the work queue of shards, and retries
//	shard_leader.go a shard's leader: watermark, offsets, spec
//	topic.go        a Topic; why a shard is not served here
//	elsewhere.go    damage here that other replicas may not have
//
// The way from a publish to its ack:
//
//	confirm.go      readers and answers that wait for a barrier round
//	remove.go       removed records: requests, what the logs say
//	intake.go       messages on their way to a batch, and senders that wait
//	subjects.go     the last and the oldest records of subjects
//	displace.go     which older records a message removes
//	republish.go    which messages are published again, and behind which ones
//	count.go        increments of counters
//	judge.go        numbers, conditions and message ids
//	together.go     atomic batches
//	stamp.go        the attributes of subjects that records are stored with
//	append.go       one batch of the accepted messages
//	arrive.go       messages that senders bring to the leader, or that it copies from other streams
//	publishing.go   a shard as its sender sees it
//	acking.go       a led shard as the acker sees it
//	offer.go        a Topic as the hub sees it
//
// The copy of a shard on this broker, and its role:
//
//	copy.go         the state of the copy
//	report.go       reports of copies in doubt
//	entry.go        this broker's entry in the in-sync set
//	unreadable.go   damage that a reader met
//	dedup.go        message ids, read from the log
//	logs.go         opens and closes the logs
//	follow.go       follows another broker
//	lead.go         begins and ends leading
//	repair.go       repairs a copy from its leader
//	release.go      ends a role; sets a copy aside or deletes it
//	restored.go     holds copies still after etcd was restored
//	role.go         does what the State and the copy ask for
//
// The Service:
//
//	keep.go         what is due by time: retention, expiry; purging
//	stats.go        counters
//	upkeep.go       a shard as package upkeep sees it
//	service.go      Open, Follow, Close
//
// # Copies
//
//  1. A broker opens its copies as soon as it has registered, whoever leads them.
//  2. What it knows of a copy is a copystate.State, kept in the data log's manifest before anything
//     follows from it. Only copystate decides whether to vouch, withdraw, resign, lead, follow,
//     repair or set aside.
//  3. The broker changes its entry in the shard's key through replica.Exchange.ChangeEntry, one
//     change at a time. A change without an answer is repeated.
//  4. Copies in doubt are also reported (coordination.Suspect), for the controller to compare when
//     no member vouches. Nothing waits for that.
//
// # Death of the process
//
// Memory holds nothing that the logs don't hold. The window of message ids, which followers keep,
// too, and the id of the last message are read again from the end of the log. Deleting a log is one
// step; if only one log of a shard was deleted, the other one is set aside.
package topic
