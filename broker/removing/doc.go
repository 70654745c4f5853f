// Package removing has the removed records of one shard as the broker has them that leads it. It
// decides no removal: requests and publishes do.
//
//	batch.go     Batch: what the records of one batch remove, and when they expire
//	keeper.go    Keeper: the set, and how removals get into it and into the logs
//	expiries.go  when records expire, of a Keeper
//	progress.go  how far the sources of a shard have come, of a Keeper
//	load.go      Load: the set of a copy, from its logs
//	bytes.go     how much of the files is of removed records
//	limits.go    every bound, with its reason
//
// A removal comes in one of two ways (package removal says why):
//
//	Remove    appends an Item to the state log
//	Batch     notes what a batch of the data log removes, in an extension of the batch
//
// Both enter the set when what carries them is on all in-sync replicas, and before whoever asked
// for it hears so. From time to time what batches have removed is written to the state log as well,
// with a Mark: a new leader reads the state log, and of the data log what follows the last Mark.
//
// A record with a time to live has an expiry, which the batch of the record carries, and which gets
// into the state log as removals do. The Keeper has those of all records that are left, and removes
// nothing by them: package expiring does. A scheduled message has one, too, and a later batch may
// move it to a later time: of those of a record the latest holds, in whatever order a leader reads
// them.
//
// # Invariants
//
//	K1  No batch with a removal or an expiry is appended before a Mark is in the state log, on all
//	    in-sync replicas. So a data log whose state log has no Mark has no such batch and is not
//	    read.
//	K2  A Mark follows the Items that it speaks of, in the same log.
//	K3  Snapshot has every removal that the state log had when it was called, and a Mark if the state
//	    log had one, also one that was on its way to the replicas. Its Mark speaks of no batch whose
//	    removals it lacks.
//	K4  Rewrites of the data log lose removals that batches carry only below Taken: the Mark is on
//	    all in-sync replicas.
//	K5  A Mark counts only while the data log has the record before it, of the same epoch.
//	K6  A leader writes to the state log also what it has loaded from batches, before a Mark speaks
//	    of these.
//	K7  A limit counts as enforced only if no record beyond it was under way, or kept since. A batch
//	    with such a record says so.
//	K8  What a batch has removed enters the set after readers see the batch, so no subject is empty
//	    meanwhile. Until then nothing counts the records of the batch (Settled).
//	K9  What K2 to K6 say of removals they say of expiries, too. An expiry is forgotten once its
//	    record is removed, and not before.
//
//	K10 What K1 to K4 say of removals they say of progress, too. The data log is held from the last
//	    batch on that says how far sources have come, until the state log says it. A source may go on
//	    without a batch (Pass): then only the state log says it, with the last record of that time.
//
// If the process dies nothing is lost: both logs have all that was acknowledged.
package removing
