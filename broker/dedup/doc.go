// Package dedup has the deduplication window of a shard: the ids of recent messages. A second
// message with one of them is a duplicate.
//
//	window.go  Window: ids by hash, their offsets and ages, and the rules by which ages are known
//	read.go    ReadLog: a window from the end of a log
//	unread.go  damage behind which ids may stand
//
// Invariants:
//
//	E1  An id is known only while its age is surely within the window (Window, rules 1 to 4).
//	E2  A Window reports since when it knows all ids (Complete). An id that it had to forget
//	    moves that moment. Records that could not be read are listed (Unread).
//	E3  The ids of records that the log no longer holds are forgotten: Undo on the leader, Truncate
//	    on a follower.
//	E4  The ids of all windows together are bounded; see limits.go. A leader refuses messages of a
//	    Topic that has more than what is left for others, and of no other Topic (Admits).
//
// Nothing here outlives a process. A broker that starts reads its windows from the ends of its
// logs.
package dedup
