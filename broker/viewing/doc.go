// Package viewing keeps the views of the shards that this broker leads, and owns those whose
// Topic's first shard is led here. Package view computes, and package trigger judges; here are the
// logs, the links and the outputs.
//
//	limits.go    every bound, with its reason
//	budget.go    budget: the memory that all parts and owners share
//	declared.go  Declared: a view as it is declared
//	token.go     the subjects of results and alerts: keys as tokens; pure
//	journal.go   what the state log has of views: checkpoints in pieces, advances
//	wire.go      questions and answers between brokers
//	part.go      a view of one led shard: reads the log, writes checkpoints
//	outputs.go   messages of results, and how they and alerts are appended and read
//	owner.go     the owner of a view: hears the shards, writes, acknowledges
//	get.go       present values for clients
//	link.go      asks other brokers, and answers them
//	service.go   Service: which parts and owners there are
//	stats.go     counters, what is reported of views, and why their results are not up to date
//
// # Invariants
//
//	W1  A part adds the records below the high watermark, in order. What the state log has of it
//	    is a checkpoint, and the advances since. An advance is on all in-sync replicas before it
//	    is made, and is made again at the same place by each later leader.
//	W2  The state log is held from the beginning of the last whole checkpoint on; from when this
//	    broker leads until the parts have found theirs, all of it is (waitingBytes, if there is
//	    no room for them). So trimming loses none. If a piece
//	    of a checkpoint is missing, the checkpoint before it counts.
//	W3  Each result and alert is appended on condition that the last message of its subject is
//	    the one that was read, or appended before. The read is as new as its question
//	    (Shard.Confirm), and comes after all shards were heard. So each is there once, also with
//	    two owners.
//	W4  Shards are told what is done only when the leaders of the output Topics have
//	    acknowledged all results and alerts of it. After any failure the owner drops all that it
//	    knows, and begins anew.
//	W5  Nothing that was computed for another spec, or for a view of the same name that was made
//	    before, is used (key).
//	W6  Each part reads for a bounded time, and waits for its turn behind all others. A part
//	    that is paused, fails or waits holds up no other one, and no client.
//	W7  Goroutines and questions are bounded per broker, and what all parts and owners have in
//	    memory is, in sum (budget). At that bound a part adds no record, or waits to be restored
//	    and copies its checkpoint meanwhile; an owner takes less at a time, and forgets what it can
//	    read again; present values wait for each other. No result changes by that. All go on by
//	    themselves when memory is given back, and until then a view may stand still. A message
//	    between brokers that is lost is asked for again, and there is room for all of a large
//	    answer, or it waits.
//	W8  Retention waits for no part. What it has removed before a part has read it is counted,
//	    as far as the part had begun. Records that were removed one by one, or by compaction,
//	    are no part of a view that had not read them, nor of what a later leader reads again.
//
// The last messages of a key are read when it has its first result, and not all before the first
// one: there may be many keys without results. That changes nothing for W3, as what is done was
// heard before. Package view calls a result Written that is in the output; here the owner finds
// that out.
//
// # Subjects
//
// A result is on TOPIC.VIEW.KEY…, and an alert on TOPIC.VIEW.TRIGGER.KEY…, of the Topic that it is
// appended to, with a token for each value of the key (keyTokens). So several views share a Topic.
//
// # Rejected
//
//  1. A checkpoint as a part of the snapshot of cursors: it has tens of MB, and the snapshot is
//     written for each few MB of acks.
//  2. A goroutine for all views of a shard: one that pauses would hold up the others.
//
// If the process dies, the next leader decodes the last checkpoint, and reads again what followed.
// An owner has nothing that is not in the shards and the outputs.
package viewing
