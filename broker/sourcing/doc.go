// Package sourcing copies records of streams into others that name them as their sources, or mirror
// them.
//
//	limits.go   every bound, with its reason
//	batch.go    Batch: messages of one source on their way into a shard
//	header.go   the header of a copy
//	wire.go     questions and answers between brokers
//	share.go    which records of a source one of several shards copies: pure
//	fetcher.go  what is asked of an origin, and what becomes of the answers: pure
//	budget.go   budget: bytes of large records under way
//	serve.go    answers questions, where the origin is led
//	streams.go  the streams that sources copy: shards of Topics, too
//	run.go      Sourcing: a goroutine for each source of the shards that are led here
//	stats.go    counters, and the lag of all sources
//	info.go     how far sources have come, for clients
//
// The leader of the shard that has a source asks the leader of the origin for records, on whatever
// broker that is, and appends what is answered as if it were published, but without a sender: it is
// the leader itself that appends. A question waits at the origin for records.
//
// # Invariants
//
//	Y1  A batch of the shard's log says with its records how far all sources have come
//	    (removal.Progress). So both are kept or neither, and a new leader, which reads that from the
//	    end of its log and from its state log, copies no record of an origin twice and passes over
//	    none.
//	Y2  Only the leader appends what it fetched, by calls to the ShardLeader for which it was
//	    fetched. One that is not leading any more takes nothing, so no former leader's records come
//	    between those of the next one.
//	Y3  The records of a source are appended in the order of their stream. When one is refused, none
//	    behind it is appended, and it is tried again.
//	Y4  Only records below the origin's high watermark are copied. An origin may lose some
//	    nevertheless, for example from memory. While it ends before what was seen of it, and has
//	    nothing new there, that is reported and nothing is copied. Once a record of a later epoch is
//	    at or before the last copied one, the source goes on from the first such record on, and
//	    reports what was lost. Progress has the epoch of the last copied record for that. A mirror
//	    does not move back (Y7).
//	Y5  A stream that is made anew under the name of an origin is another stream: it is copied from
//	    its start on. What was copied from the former one stays.
//	Y6  What is deleted at the origin is not deleted in copies.
//	Y7  A mirror has the records of its stream at their offsets and with their times. Its log ends
//	    where it has come to, so it needs no progress. Offsets that its stream has no record for are
//	    batches without records (log.Gap).
//	Y8  Bytes, goroutines and questions are bounded per broker, on both sides: no answer has more
//	    bytes than it was asked for, and it is read when there is room for it and sent when the links
//	    have room, so that none is closed for it.
//	Y9  No stream copies from one that gets its messages.
//	Y10 Copies of counters are added up as they are appended (package counting, C4). The total and
//	    the progress are in one batch (Y1), so no leader adds a copy again.
//	Y11 A record that is passed as a duplicate counts as copied as soon as the record is on all
//	    in-sync replicas that it is a duplicate of, and not before.
//	Y12 Each shard of a Topic with several is a stream of its own for a source that names the Topic,
//	    and has a progress of its own. A stream has at most maxStreams of them, so that progress
//	    forgets none.
//	Y13 Of the shards of a Topic with sources, each copies the records that are its own by share.has,
//	    and no others, whatever the origin answers: publish.Partition, of the subject that the source
//	    gives the copy. That is a function of the record and of settings that never change while the
//	    key of the source is the same, so all leaders of all shards agree.
//	Y14 Of the shards of a mirror, each mirrors the origin's shard of its number. While the two have
//	    other numbers of shards, or other tokens count, nothing is copied and that is reported.
//
// Rejected:
//
//  1. To publish through a sender, with a message id. Ids are remembered for a window only, and a
//     sender would send again what a former leader has fetched.
//  2. A consumer at the origin, as nats-server has. It is state at the origin that has to end with
//     the source, and its cursor says less than the shard's own log does.
//  3. How far sources have come in the state log only. A crash between the two logs would copy
//     records again, or pass over them.
//
// If the process dies, the next leader of the shard goes on (Y1). Nothing is kept here.
package sourcing
