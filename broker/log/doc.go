// Package log keeps one shard's log on one disk: records in batches, batches in segments, one
// committer for all logs of the disk.
//
// A Log is passive: whoever appends encodes the batch under its lock, straight into the memory that
// the disk, followers and tail readers share, and puts the log on the disk's list. The committer
// takes all logs on the list, writes what each gathered with one pwrite, syncs (file by file, or
// the file system at once when many are dirty), and completes those who wait. What is appended
// meanwhile is its next round. So an idle log has no goroutine, no timer and no buffer, and a
// busy disk has as few syncs as it can do. A goroutine per log was the simpler way, and with
// 10,000 logs on a disk neither their stacks nor their syncs are small.
//
// Layout of DATA:
//
//	shards/<topic id>-<n>[.part]/manifest        which files the log is, its epochs, its start, the
//	                                             state of the copy: see Manifest and manifestFile
//	shards/<topic id>-<n>[.part]/meta.json       which log it is, and its secret; written once
//	shards/<topic id>-<n>[.part]/<offset>.log    segments, named after their first record, and
//	shards/<topic id>-<n>[.part]/<offset>.<generation>.log  after the switch that brought the file
//	                                             (plain, or in blocks of zstd: see compressed.go)
//	set-aside/<name>.<n>/                        whole logs, damaged segments, and committed records
//	                                             that a truncation took; never deleted here
//	set-aside/<name>.torn/                       torn tails that were cut: the last few, bounded
//	clean.json                                   what an orderly end left; not while the disk is open
//	scrubbed                                     when each sealed segment was scrubbed last; a hint
//	sync-points.0, sync-points.1                 the journal of sync points: see pointJournal
//	deleted/<name>/                              logs on their way out; opening removes what is left
//
// Invariants:
//
//	L1  Offsets are dense and begin at 1; what compaction takes leaves its offset to a sparse batch.
//	    An offset that was acknowledged is never given again, but by a log that was told to give up
//	    what it holds (TruncateTo, ResetTo).
//	L2  Batches are whole or not there; their bytes never change once they are appended, and are the
//	    same in memory, on disk and on every replica. Compaction alone makes others of them: then
//	    records, their offsets and epochs are the same wherever they are still there.
//	L3  Synced means: the batch, all before it in the log, and the names of their files survive a
//	    power cut. Completions of a log come in the order of its appends.
//	L4  Room is reserved on the disk before an append is accepted, so a full disk refuses appends
//	    and breaks none. There is room again: appends go on.
//	L5  A segment is written only after all before it are complete, sealed and synced. So only the
//	    last one with anything in it can have a torn tail.
//	L6  Only a torn tail is cut, and every cut is reported. All else that can't be read is damage:
//	    never cut, never skipped in silence, and reading it is a *CorruptError that says where to go
//	    on.
//	    1. Below a sync point nothing is torn. A later marker, a later segment, the journal of sync
//	       points or Manifest.Durable prove one.
//	    2. Above it, bytes are torn only if a sector of their write is all zeros that held
//	       something, by the bitmap in the write's marker. A footer holds something in each of its
//	       sectors. The space before a write is always zeros.
//	    3. One flipped bit costs at most the batch that it hits: reading resumes behind it.
//	L7  What recovery leaves is made safe before anything is appended behind it, so that recovering
//	    twice gives the same log, and what was cut never comes back. Bytes above the last sync point
//	    are written again and then synced: after a failed sync they may be in the page cache only,
//	    where a sync finds nothing to write.
//	L8  The start is on the disk before files below it go. The start never passes a Hold.
//	L9  A sync that failed is never repeated. The disk refuses all appends from then on; reads go
//	    on. Failed write-back is never missed: the disk keeps the file system open from before its
//	    logs are opened, and each file from its first write to its sync.
//	L10 Every batch is checked by CRC when it is read from a file, whatever the form of the file.
//	L11 The manifest says which files are the log. A truncation, a reset, a merge, a compaction, a
//	    compression and a repair are one change of it, a switch:
//	    1. New files are complete and safe, under names that were never used, before the switch.
//	    2. Old files go after the switch. Until then the manifest says which go, and which are to be
//	       set aside; opening the log finishes that.
//	    3. Opening the log deletes a file with records in it only if the manifest says that it goes,
//	       or if it was made for a switch that never was. It adopts one that begins where the log
//	       ends, and sets any other aside.
//	L12 There is a mark (clean.json) only while all that was ever appended is safe: it is written
//	    last, and gone before anything else changes.
//	L13 A sealed segment that takes another form (compressed, or plain again to be cut) is byte by
//	    byte what it was to whoever reads it.
//	L14 Compaction takes a record only if there is a newer one of its subject below the watermark
//	    that it was told, safe here. A log that gives up such a newer one is emptied, unless nothing
//	    that is left went by it.
//	L15 What takes the place of a damaged or missing segment comes from another replica's batches:
//	    the same offsets, or those from the log's start on, in the same epochs. The manifest says
//	    which segments are damaged from when that was found until they are repaired.
//	L16 A change of the manifest is safe when it returns, and costs one sync. One slot of its file
//	    is always safe, so a crash leaves what the manifest said before the change or after it.
//	L17 A segment or an epoch is in the manifest before the first append to it is acknowledged as
//	    synced. So a listed segment that is missing is damage, and its epochs are known; unless it
//	    begins at Manifest.Durable or behind, and no sync point is known of it: then a crash has cut
//	    short the round that began it. Records of a segment count as durable only once it is listed,
//	    so no change of the manifest relies on a segment that a failed round never listed.
//	L18 A change of the copy's state, damage that is noted and a trim need no room on the disk.
//	L19 Records that the caller knows to be committed are never deleted by a truncation or a reset:
//	    they are set aside, or nothing happens.
//	L20 A manifest that is lost is made again from the segments, with every record. Recovery.Rebuilt
//	    says so: the state of the copy is unknown then, and what was trimmed within the first
//	    segment is back.
//
// When the process dies in it, by what was under way:
//
//   - writing sync points: they are there, or what they would prove is written again.
//   - writing a tail again: it is as it was, each sector by itself. The next opening does it again.
//   - an append: its batch is whole in the file, torn or not there. A torn one is cut (L6); a whole
//     one stays, acknowledged or not. Of several that were under way a later one may be there and
//     an earlier one not: then all from the first gap on is cut.
//   - making a segment: an empty file, or none. It goes at the next opening.
//   - sealing: the footer is there or not, and the batches say the same. The next segment has
//     nothing in it yet (L5), so this one is read from front to end and goes on being written.
//   - a change of the manifest: a slot is torn, and the other one says what was committed before.
//     Of a larger file that was to take its place nothing is left by the next opening.
//   - a round that begins a segment: the manifest lists it and there is no file, or nothing in it,
//     and it is listed no more; or there is one that isn't listed, and it is adopted.
//   - a trim: the start has moved or not. If it has, the next opening deletes what is left below.
//   - a truncation or a reset: the log is as it was, or as it is to be. What was committed is in
//     the log, or set aside, or both. The file of a segment that is cut may be longer than the
//     manifest says; the next opening shortens it.
//   - making a log: a directory without segments and without a manifest, which is no log. Moving
//     one aside is one step, and so is moving one out to be deleted; what is left there goes at the
//     next opening.
//   - a compression, a compaction, a repair: the old files are the log, or the new ones. The others
//     go at the next opening; what was set aside stays.
//   - converting the folder of an earlier version: meta.json is of version 1, and the truth, until
//     it is replaced by one step when all else is safe. So it is done again, or done.
//   - an orderly end: there is a mark and it is true, or there is none.
//   - recovery: all of the above, and nothing else; it is done again.
//
// Compressing, compacting and scrubbing are the caller's goroutines: closing a log stops them and
// waits for them.
//
// A kill without a power cut leaves more: what was written stands in the page cache.
//
// Two things are not told apart: a write of the last round that a disk lost as a whole sector
// although it was synced, and one that was under way. Both are cut and reported until the disk has
// been idle or another round of the log has followed, which prove that the round was synced.
package log
