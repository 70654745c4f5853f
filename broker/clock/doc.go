// Package clock decides which time a broker uses. Records are stamped with it, and their age is
// judged by it. The wall clock of one machine may be wrong by a year, and may be set at any moment.
// So it is one input, and never the result.
//
// There are three notions of time:
//
//   - The wall clock of this machine. It may jump.
//   - Mono, the time since some moment before, on this machine. It counts suspension where the
//     system can, and never jumps. All deadlines, and all ages that one process can measure itself,
//     are differences of Mono.
//   - Time, the time that the broker uses. It runs as Mono does, at a distance that changes slowly.
//
// Each broker has a Vote: where its own wall clock would be if it had never jumped. Brokers that
// replicate shards to each other exchange their votes over the replication connections. Judge is
// the pure part: it holds this broker's vote and those of others, and computes Time from them.
// Clock is Judge with a lock, the machine's clocks and two atomics from which Now and Mono are
// read.
//
// Rules:
//
//	C1  A vote moves as Mono does, and towards the wall clock by at most a twentieth of the time
//	    that passes. If the wall clock is further away than Bound, the vote is Held: it goes on with
//	    Mono.
//	C2  A Held vote follows its wall clock again when that has agreed with it for Again, when it
//	    agrees with Time while Time is not in doubt, when it has run evenly for Settle, or when a
//	    person confirms it.
//	C3  Time is the median of the votes, this broker's own among them. Early and Late votes don't
//	    count while there are others: they have nothing to continue, however many they are. If the
//	    two middle votes of an even number are further apart than Bound, Time is the one of the
//	    broker that has counted longer.
//	C4  A vote that is further from Time than Bound moves to Time and is Held. So Time goes on when
//	    the brokers that decided it can't be heard any more. A Time of Early and Late votes is not
//	    worth it: it would be saved, and make wrong clocks plausible.
//	C5  Time is in doubt unless more than half of the votes agree with it and are Sure. It is also
//	    in doubt for Settle after it went forward by more than Bound within a process.
//	C6  A broker that starts continues the vote that it saved, if the machine has not restarted
//	    since. Otherwise the saved time bounds its wall clock: if that is earlier, the vote is
//	    Early, if it is later by more than Gap, Late. Such a vote follows its wall clock, and
//	    becomes Sure when another Sure vote agrees with it, when the wall clock stays within those
//	    bounds for Again, after Settle, or when a person confirms it. One that is earlier by less
//	    than Slack begins at the saved time, and is Held. Of a vote that was Early or Late, the
//	    bounds are saved, and apply to the next one: starting again makes no clock plausible.
//	C7  Records written before are not older than Time says, within Slack (Verdict.Elapsed), if more
//	    than half of the votes are within Slack of Time and not Early.
//
// Callers rely on these rules:
//
//   - Nothing is deleted by age while Time is in doubt.
//   - A message id is a duplicate by an age that Mono measured, or by its record's time if Elapsed.
//   - A record's time may be earlier than that of the record before it, after a wrong clock was put
//     right.
//
// There is one median over all brokers that exchange shards with this one, not one per in-sync set.
// Its votes include those of each set, more votes are more robust, and two shards of one broker
// never disagree about the time.
//
// Rejected: a time that is the later one of the wall clock and of the last record. One message from
// a clock a year ahead made message ids duplicates for a year.
//
// When the process dies in it, the saved file is the old or the new one, since it is replaced by a
// rename, after it was synced. After a power cut it may be the former one, so that a longer absence
// is assumed. A broker without the file has nothing to compare its wall clock with but its logs and
// other votes.
package clock
