// Package removal knows which records of a shard were removed one by one: by a client that deletes
// a message, by a purge of some subjects, by limits per subject, by age, by acknowledgement. It is
// pure: it reads no log and no clock.
//
//	set.go      Set: the offsets whose records are removed
//	count.go    how many of a set are in a range, or in either of two sets
//	item.go     Item: removals as logs carry them
//	expiry.go   Expiry: when records are to be removed, as logs carry it
//	progress.go Progress: how far the sources of a shard have come, as logs carry it
//	pending.go  Pending: removals that are not on all in-sync replicas yet
//
// # How records are removed
//
// The leader of a shard decides every removal, and no replica ever decides one again:
//
//  1. A removal takes no offset. The offset of a removed record stays and has no record.
//  2. What a published record removes, such as the oldest of its subject beyond a limit, is an Item
//     in an extension of that record's batch. So both are kept or neither, with one write.
//  3. All else that is removed is an Item in the shard's state log.
//  4. Readers see a removal once it is as durable as its Topic's records, on all in-sync replicas.
//  5. From time to time the leader adds what batches have removed to the state log, and from which
//     offset on batches are still to be read. So a new leader reads the state log and the end of
//     the data log, and never the whole data log.
//  6. Files of segments lose removed records later, on each replica by itself. Until then only the
//     set says that they are removed.
//
// # Invariants
//
//	M1  An Item names a record by its offset and its epoch. So an Item never applies to a record
//	    that got the offset after the log lost its end, and truncation needs to undo nothing.
//	M2  Items may be applied more than once, and in any order.
//	M3  A set has no offset at or beyond the high watermark.
//	M4  The state log names every removed record that a replica may still have in a file.
//	M5  Memory is bounded by one bit per offset between the log's start and its end, and by the
//	    number of ranges if that is less.
//	M6  A snapshot of a state log has every Item that it replaces, also a pending one.
//
// Rejected:
//
//  1. Removals as records of the data log. Offsets are sequences of streams to clients, and a
//     removal must not take one.
//  2. A log of its own. With 10,000 shards on a disk a third file of each is not small.
//  3. Every removal in the state log. A publish to a stream with limits per subject would write and
//     sync two files, and a crash between them would leave a record without its removals.
//
// The package keeps nothing, so nothing is lost with the process.
package removal
