// Package indexing makes the subject indexes of the shards that are asked about subjects, and keeps
// them up with their logs. A shard that is never asked costs nothing.
//
//	limits.go   every bound, with its reason
//	indexes.go  Indexes: of all shards of a disk; the background work
//	index.go    Index: of one shard; questions
//	follow.go   how an index follows its log
//	lasts.go    Lasts: the last records that publish conditions ask for
//	matches.go  the records of patterns that conditions and rollups ask for
//	trial.go    what of that is undone if an atomic batch is refused
//
// # How an index follows its log
//
// The first question has the index opened in the background: it uses the index files of sealed
// segments, and lacks what has none. Then each question first has the index read the records that
// the log has got since, below the end that the question is about: the high watermark for readers,
// and the log's end for conditions. What is too much to be read while a client waits, a reader
// reads in the background, and a maker makes the files that are missing. Until then the answer is
// an error, and the caller reads the log instead.
//
// Conditions are judged by goroutines that must not wait for a disk. Lasts remembers the last
// records of subjects for them, and finds the others in the background; the message waits in the
// outbox of its sender meanwhile.
//
// Rejected: having each append add to the index. It costs every shard an eighth of a microsecond
// per record, also those that are never asked, and followers have to undo it when they truncate. A
// leader's log is never truncated while it leads, and its index closes before.
//
// An index that nobody asks for closes after a while. Its files stay. They stand in the log's
// directory, so they move with the log and are deleted with it. The log also deletes each with its
// segment, and counts them (log.AddBeside).
//
// # Invariants
//
//	X1  An answer is about all records below the end that the question names, or it is an error.
//	X2  An index has only records that its log had while this broker led. It is closed before the
//	    log is truncated, reset or closed.
//	X3  An index file is used only for the segment whose base, generation, end and epoch of the last
//	    record it names. So it may outlive the index, restarts and changes of the leader: no other
//	    records can have these four. (Two leaders never share an epoch, and one leader gives an
//	    offset to one record.)
//	X4  No question waits for background work, unless its caller has patience: it waits for other
//	    questions, and for one read. Only Index.Close waits for work to end.
//	X5  The number of open indexes and their memory are bounded. Beyond the bounds a question is an
//	    error, as if the index were being made. It is not tried again: waiting makes no room.
//	X6  A failure of an index is no failure of its log.
//	X7  Only a reader opens and closes the index of a shard, one at a time, and without the lock that
//	    questions take. So what is under way in the directory has ended when the index is opened
//	    anew.
//	X8  What Lasts finds is below an offset from which on it has noted all records. So compaction,
//	    which removes records that have a newer one, makes no answer wrong.
//	X9  No answer has a record that was removed one by one before the question. What Lasts remembers
//	    is compared with the set when it is asked for. A removal of a record counts for conditions
//	    once readers see it. Questions about what a rollup of a pattern removes wait for that.
//
// # Death of the process
//
// Memory holds what is read from the log again at the first question. Files that were being written
// have no name that counts, and are deleted at the first question.
package indexing
