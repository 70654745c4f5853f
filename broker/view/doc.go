// Package view keeps aggregates of a Topic's messages up to date, by key and by window, across
// shards. It is pure: no I/O, no clock, no goroutine; the only time it sees is that of records and
// of its arguments.
//
//	spec.go     Spec, View: what is computed, compiled
//	shard.go    Shard: what is known of one shard; its leader feeds it
//	done.go     which windows are in the outputs for good
//	owner.go    Owner: merges the windows of all shards, and closes them; one broker has it
//	encode.go   checkpoints, hand-overs, acknowledgements
//	report.go   Report: what brokers say of a View
//
// # How it is wired
//
// Records below the high watermark go into Shards, whose HandOver goes to the Owner. What that
// closes goes into the output, and to triggers, and then an Ack goes back.
//
//  1. The leader of each shard adds all records below the high watermark, in order, and writes
//     checkpoints into the shard's state log. A new leader decodes the last one, and goes on with
//     the record at Next.
//  2. The owner asks each shard for its closed windows, from Wanted on, again and again. Between
//     two pages of a shard it closes what it can (Close): only that makes room.
//  3. It appends each result that is not Written to the output Topic, on the subject of its key,
//     on condition that the last message there is the one it knows of. It does the same with the
//     alerts that [trigger.Set.Judge] returns of all results.
//  4. When all of that is durable it sends an Ack to each shard. If an append is refused, or Take
//     returns ErrReplaced, there is another owner, and this one is dropped.
//  5. A new owner asks all shards first. When all were heard, and not before, it reads the end of
//     the last window of each key, and the last alert of each trigger and key, from the output
//     Topics. With these it begins.
//  6. Without windows nothing is acknowledged. So the owner also follows the Topic of alerts, and
//     restores those that it has not appended itself: else one that an earlier owner appends late
//     would stay raised.
//
// # Time
//
// The watermark of a shard is the greatest time of its records less the lateness. It closes the
// windows that end there or before, in this shard. The time of a window is [start, end). With the
// time of storing, all records count for the watermark, and with a time that records name, those
// that match, and have a key.
//
//  1. A record is late for a window that is closed in its own shard. It is counted, once for each
//     window, and is in those of its windows that are open.
//  2. A session begins anywhere, so a record before the watermark may belong to a session that is
//     closed in all shards. It is late, unless an open session of its key in its own shard holds
//     its time.
//  3. A window is in the results when all shards have closed it. Sessions of several shards that
//     touch are one, however many shards are between: a closed session waits for an open one of
//     another shard that it touches (a bar).
//  4. A time of more than an hour after the record was stored is none: it would make all others
//     late.
//  5. A shard without records keeps the windows of all open, until its leader advances it. Since
//     that depends on a clock, it is logged: see [Shard.Advance].
//
// # Invariants
//
//	V1  A Shard is a function of its log before Next, and of the logged advances. Acknowledgements
//	    decide only which closed windows it holds. So any leader hands over the same windows with the
//	    same contents.
//	V2  The results are those windows that a whole recount has: of each shard, the records that were
//	    not late there; and then all windows of these.
//	V3  A closed window does not change. Closed windows have a total order, and what is before the
//	    position of a hand-over is complete. So a position says all about what the owner has, and
//	    repeated, lost and old hand-overs do no harm.
//	V4  An acknowledged window is in the output, and its alerts are. A shard holds a window until
//	    then, so a crash of the owner, or of any leader, loses none.
//	V5  After an acknowledgement reached only some shards, the others hold a part of a window. The
//	    owner knows by what the first say (done) that such a window is complete in the output.
//	V6  Results of a key come in the order of their ends. So "the end of the last message" says which
//	    are written, and an append on condition of it is exactly once.
//	V7  Nothing here relies on epochs. What an owner acknowledged is true, if it was replaced, too.
//	    Of two owners that go on, one is refused an append, or hears of an acknowledgement that is
//	    not its own (ErrReplaced). What was acknowledged before an owner was heard is in the outputs
//	    that it reads after that. So it never judges results on an old state of triggers.
//	V8  An acknowledgement changes how sessions are held that go on: they are joined. An owner has
//	    all that is before an acknowledged position from one state of a shard, or begins anew.
//
// # Bounds
//
// Beyond the bound of open windows and keys, a shard refuses records of more, and counts them.
// Beyond the bound of windows that nobody has acknowledged, it pauses (ErrPaused), and goes on
// where it was. An owner makes shards that are ahead wait (ErrAhead). Nothing is dropped without a
// count. With less room (Owner.Room) it does so earlier. A session that has ended in one shard and
// goes on in another is held by both: beyond some 40,000 of them shards pause that wait for each
// other.
//
// The process's death loses what is not in a checkpoint. It comes again from the log.
//
// Rejected:
//
//  1. Hand-overs as differences that are added up. One that comes twice, or from a new leader that
//     has read less, would count twice.
//  2. Acknowledgements by number. Which window has which number depends on when a shard was asked.
//  3. A watermark of sessions at the earliest open one. A session that never ends would keep those
//     of all other keys.
//  4. The owner reading the log itself. It would get all records, and not a row for each window.
package view
