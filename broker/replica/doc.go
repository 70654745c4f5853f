// Package replica replicates a shard's logs: a leader that appends, followers that copy its batches
// unchanged, and a high watermark of what all in-sync members have.
//
// A shard has two logs, its parts: Data, the records, and State, the cursors. Both have one leader,
// one epoch and one in-sync set, which is in etcd. Two pure pieces, without I/O, goroutine or
// clock, make the decisions: Leader advances the high watermark and proposes in-sync sets; Compare
// finds where a follower's log diverges from its leader's. Exchange connects them over the network.
//
// Records are safe on a replica when they are as durable there as the Topic requires, and committed
// when they are safe on all members of the in-sync set. The high watermark is the end of the
// committed records.
//
// The set is changed by compare-and-swap only, and the answer to a swap may be lost. So while the
// result of a swap is unknown, the leader counts the members of both sets.
//
// Invariants:
//
//	R1  An epoch has one leader, granted by compare-and-swap on the shard's key and stamped in every
//	    batch. A request under an older epoch, or by an earlier incarnation of a broker, is refused
//	    with the newer one.
//	R2  Acknowledged means: on every member of the in-sync set, which has at least the minimum size,
//	    as durable as the Topic requires. Otherwise publishing waits.
//	R3  The set grows when the swap has succeeded. While it shrinks, the high watermark counts the
//	    larger set. It never shrinks below the minimum because a member lags or died.
//	R4  A new leader is a member of the set, in the incarnation that the set names (package
//	    placement). A member that returned in a new incarnation counts in it once it has caught up
//	    and the set names it, or once it has vouched for its copy while the shard had no leader. A
//	    member that withdrew does not count, whatever it confirmed before, until it has asked again
//	    and caught up; its leader wants the set without it.
//	R5  A follower truncates to the last point that it shares with its leader, found by epochs and
//	    never by the high watermark, and then copies. Where both retain them, logs are equal batch
//	    by batch.
//	R6  Nothing above the high watermark is read. A new leader lets nothing be read until the
//	    watermark has reached the end that its logs had when its epoch began.
//	R7  No step of the data path needs etcd. A leader that etcd does not name any more needs every
//	    member of its set for an ack, and a member that knows a newer epoch gives none.
//	R8  This number is not in use.
//	R9  The caller reports whether a follower's copy is in doubt (FollowConfig.InDoubt). Records
//	    that differ from the leader's log are fetched again, and nothing is appended after a gap.
//	R10 A follower whose logs lack segments has not joined and confirms nothing until it has fetched
//	    them. A leader sends them if, by their epochs, the two logs are equal up to the segment's
//	    end. Of a repair it keeps which records it could not read (Leading.Stalled), and what the
//	    follower said last that it lacks (extent). Records are given up only if each other replica
//	    has said in this epoch that it lacks them, or has come to its log's end before them.
//	R11 An answer that a newer leader's record could falsify waits for a barrier round: after the
//	    question, every member of the set, and of the set of an unanswered swap, confirms that it
//	    copies under the leader's epoch (barrier).
//
// docs/architecture.md lists the tests that prove them.
//
// A follower's ask describes its logs and how much of them is safe. It flushes them first, so that
// all of their records count. A follower has joined when the leader's verdict is to copy. An ack
// always holds for the current log: before a log is truncated, all its appends have completed. A
// batch is promised or not: cursor changes without a waiting client are copied, and neither synced
// nor acknowledged.
//
// When the process dies, what a follower appended is in its log, acknowledged or not, and is
// matched by its epochs. The leader's knowledge of its followers ends with its epoch: they ask
// again.
package replica
