// Package replica keeps a shard's logs equal on several brokers: a leader that appends, followers
// that copy its batches as they are, and a high watermark that says what all of them have.
//
// A shard has two logs, its parts: Data, the records, and State, the cursors. Both have one leader, one
// epoch and one in-sync set, which is in etcd. The rules are in two pure pieces, without I/O,
// goroutine or clock: Leader, which moves the high watermark and says which in-sync set it wants; and Meet,
// by which a leader tells a follower where their logs part. The Exchange brings bytes from one to the other.
//
// The set is changed by compare-and-swap only, and the answer to a swap may be lost. So between asking for
// a set and knowing what became of it, the leader counts the members of both: the one that
// etcd has, and the one that it may have by now.
//
// Invariants:
//
//	R1  An epoch has one leader, granted by compare-and-swap on the shard's key and stamped in every batch. Who
//	    is asked under an older epoch, or by an earlier life of a broker, refuses, and names the newer.
//	R2  Acknowledged means: on every member of the in-sync set, which has at least the minimum, as durable
//	    as the Topic asks. Otherwise publishing waits.
//	R3  The set grows when the swap has succeeded; while it shrinks, the high watermark still counts the larger
//	    one. It never shrinks below the minimum because a member lags or died.
//	R4  A new leader comes from the set, in the life that the set names (package placement). A member that came back in a
//	    new life counts in that life once it has caught up and the set says so, or once it has vouched for its
//	    copy while nobody led. A member that withdrew counts for nothing, whatever it confirmed before, until it
//	    has asked anew and caught up; its leader wants the set without it.
//	R5  A follower truncates to the last point that it shares with its leader, found by their epochs and never by
//	    the high watermark, and then copies. Where both retain them, logs are equal batch by batch.
//	R6  Nothing above the high watermark is read; and a new leader lets nothing be read until the watermark
//	    has reached the end that its logs had when its epoch began.
//	R7  No step of the data path asks etcd. A leader that etcd forgot needs every member of its
//	    set for an ack, and a member that knows a newer epoch gives none.
//	R9  A follower whose logs can't be vouched for is told so from outside; what doesn't match its leader's
//	    is refetched, and nothing is appended behind a gap.
//	R10 A follower whose logs lack segments has not joined, and confirms nothing, until it has fetched them. A leader sends them if
//	    by their epochs the two logs are the same up to where the segment ends; it remembers nothing of that.
//	R11 An answer that a newer leader's record could falsify waits for a barrier round: every member of the set, and of
//	    the one that was asked for, confirms after the question that it copies under the leader's epoch (barrier).
//
// A follower asks for a shard with what its logs are and how much of them is safe; it flushes them before, so that
// everything counts that it has. Only a follower that is told to copy has joined, and an ack is always true of the
// log as it is: before a log is cut, all that was appended to it is complete. What was appended is promised
// or not; cursors that nobody waits for are copied and neither synced nor acknowledged.
//
// When the process dies in it: what a follower appended is in its log, acknowledged or not, and found there by its
// epochs. The leader's knowledge of its followers is gone with its epoch: they ask again.
package replica
