// Package counting adds up the counters of a shard: the last record of each subject has its total,
// and the leader computes the next one as it judges an increment.
//
//	limits.go   every bound, with its reason
//	sum.go      what an increment makes of a total; pure
//	totals.go   Totals: the totals of a shard that are known, and what is read of the others
//
// Invariants:
//
//	C1  A total is computed once, by the leader that appends it, and stored. Nothing is computed
//	    again from increments: replicas and later leaders read the total.
//	C2  A total is that of the record at an offset. Who asks says which offset is the last one of the
//	    subject, so a total of a record that was never appended, or is not the last, is never used.
//	C3  No caller waits for a disk. What is not known is read in the background, and the message that
//	    needs it is judged again.
//	C4  What a copy of another stream's counter adds is the difference of two totals: its own, and
//	    that of the last copy from there, which the record before has. So a record of an origin
//	    counts once, with its own copy or with the next one.
//	C5  Totals, increments and what is remembered are bounded.
//
// Rejected: the total of each subject in memory, which every broker keeps up as it appends. It
// costs memory for counters that nobody increments, and has to be undone when a log is truncated.
//
// Nothing here outlives a leadership. When the process dies, the totals are in the records, and the
// next leader reads them as they are needed.
package counting
