// Package log keeps one shard's log on one disk: records in batches, batches in segments, one
// committer for all logs of the disk.
//
// A Log is passive. An append encodes its batch under the log's lock, into the memory that the
// disk, followers and tail readers share, and puts the log on the disk's list. The committer takes
// all logs on the list, writes what each has gathered with one pwrite, syncs (file by file, or the
// whole file system when many files are dirty), and completes the waiting appends. What is appended
// meanwhile is its next round. So an idle log has no goroutine, no timer and no buffer, and a busy
// disk has few syncs. Rejected: a goroutine per log. With 10,000 logs on a disk, neither their
// stacks nor their syncs are small.
//
// Layout of DATA:
//
//	shards/<topic id>-<n>[.part]/manifest        which files the log is, its epochs, its start, the
//	                                             state of the copy: see Manifest and manifestFile
//	shards/<topic id>-<n>[.part]/meta.json       which log it is, and its secret; written once,
//	                                             and read until the manifest says that it is safe
//	shards/<topic id>-<n>[.part]/<offset>.log    segments, named after their first record, and
//	shards/<topic id>-<n>[.part]/<offset>.<generation>.log  after the switch that brought the file
//	                                             (plain, or in blocks of zstd: see compressed.go)
//	shards/<topic id>-<n>[.part]/<offset>.<generation>.*  files beside segments, which others wrote:
//	                                             indexes of their subjects (beside.go)
//	set-aside/<name>.<n>/                        whole logs, damaged segments, and committed records
//	                                             that a truncation took; only DeleteAside deletes
//	                                             them
//	set-aside/<name>.<n>/set-aside.json          why that was set aside; a hint
//	set-aside/<name>.torn/                       torn tails that were cut: the last few, bounded
//	clean.json                                   what an orderly end left; not while the disk is open
//	scrubbed                                     when each sealed segment was scrubbed last; a hint
//	sync-points.0, sync-points.1                 the journal of sync points: see pointJournal
//	deleted/<name>/                              logs, and what was set aside, on their way out;
//	                                             opening removes what is left
//
// Invariants:
//
//	L1  Offsets are dense and begin at 1. The offsets of compacted and of removed records stay, in a
//	    sparse batch.
//	    An acknowledged offset is never given again, except after TruncateTo or ResetTo.
//	L2  A batch is present as a whole or not at all. Its bytes never change after the append, and
//	    are the same in memory, on disk and on every replica. Only Compact and Expunge rewrite
//	    batches; the remaining records keep their offsets and epochs.
//	L3  Synced means: the batch, all before it in the log, and the names of their files survive a
//	    power cut. Completions of a log come in the order of its appends.
//	L4  Space is reserved on the disk before an append is accepted. So a full disk refuses appends
//	    and breaks none. When there is space again, appends succeed.
//	L5  A segment is written only after all before it are complete, sealed and synced. So only the
//	    last non-empty segment can have a torn tail.
//	L6  Only a torn tail is cut, and every cut is reported. All else that can't be read is damage:
//	    it is never cut and never skipped silently. Reading it returns a *CorruptError with the
//	    offset to continue at.
//	    1. Below a sync point nothing is torn. A later marker, a later segment, the journal of sync
//	       points or Manifest.Durable prove a sync point.
//	    2. Above it, bytes are torn only if a sector of their write is all zeros although the bitmap
//	       in the write's marker says that it was not. Each sector of a footer has a byte that is
//	       not zero. The space before a write is always zeros.
//	    3. One flipped bit costs at most the batch that it hits: reading resumes after it. In a
//	       compressed segment it costs a block, up to the next marker behind it (compressed.go).
//	L7  What recovery keeps is synced before anything is appended after it. So recovering twice
//	    gives the same log, and what was cut never returns. Bytes above the last sync point are
//	    written again and then synced: after a failed sync they may be in the page cache only, where
//	    a sync finds nothing to write.
//	L8  A new start is on the disk before files below it are deleted. The start never passes a Hold.
//	L9  A failed sync is never repeated. From then on the disk refuses all appends; reads succeed.
//	    Failed write-back is never missed: the disk keeps the file system open from before its logs
//	    are opened, and each file from its first write to its sync.
//	L10 Every batch is checked by CRC when it is read from a file, whatever the form of the file.
//	L11 The manifest names the files of the log. A truncation, a reset, a merge, a compaction, an
//	    Expunge of a segment, a compression and a repair are one change of it each, a switch:
//	    1. New files are complete and synced, under names that were never used, before the switch.
//	    2. Old files are removed after the switch. Until then the manifest names those to delete and
//	       those to set aside; opening the log finishes that.
//	    3. Opening the log deletes a file with records only if the manifest names it for deletion,
//	       or if it was made for a switch that never happened. It adopts a file that begins where
//	       the log ends, and sets any other file aside.
//	L12 There is a mark (clean.json) only while everything that was appended is synced: it is
//	    written last, and removed before anything else changes.
//	L13 A sealed segment may change its form (compressed, or plain again to be cut). Its readers see
//	    the same bytes.
//	L14 Compaction removes a record only if a newer one of its subject is synced here and below the
//	    watermark that compaction was given. A log that has to drop such a newer record is reset,
//	    unless no remaining batch was compacted by it.
//	L15 A damaged or missing segment is replaced by batches of another replica: the same offsets, or
//	    those from the log's start on, in the same epochs. The manifest names damaged segments from
//	    the time when the damage is found until they are repaired.
//	    Batches without records replace it if the caller knows that no replica has them.
//	L16 A change of the manifest is synced when it returns, and costs one sync. One slot of its file
//	    is always intact, so after a crash the manifest is that from before or after the change.
//	L17 A segment is listed in the manifest when its first records are synced, and before they are
//	    acknowledged as synced. So is an epoch, which may be listed earlier.
//	    1. A listed segment that is missing is damage. Manifest.Durable is behind its first records.
//	       A trim takes a segment off the list before it deletes the file (Manifest.Drops).
//	    2. Records of a segment count as durable only once it is listed, so no change of the
//	       manifest relies on a segment that a failed round never listed.
//	L18 A change of the copy's state, a record of damage and a trim need no space on the disk.
//	    Disowning many ranges of records may.
//	L19 A truncation or a reset never deletes records that the caller knows to be committed: it sets
//	    them aside, or does nothing.
//	L20 A lost manifest is rebuilt from the segments, with every record, and Recovery.Rebuilt is
//	    set. The former state of the copy is unknown then, and records that were trimmed within the
//	    first segment are back.
//	L21 The first manifest of a log, made or rebuilt, has the state of the copy that the caller
//	    gave for that case (FirstCopy). So a crash after it leaves no log that passes for whole.
//	L22 Offsets that the log disowns can't be read until their segment is replaced, in no process,
//	    whatever its file has. Their segment counts as damaged.
//	L23 Expunge removes only records that the caller knows to be removed, by a removal that is
//	    committed.
//	    1. A batch of this log may carry the removal. So the rewritten batch has the high watermark
//	       of that time in the extension in which compaction has the end of what it looked at, and a
//	       log that is truncated below it is reset, as in L14.
//	    2. What may carry the removal is synced here before the rewritten file is the log's.
//	    3. The rewritten batch is never taken for lost records (Batch.Lost).
//	    4. A repair may bring a removed record back. It stays removed, and goes again later.
//	    5. Extensions that name removed records (ExtensionRemovals) stay in a rewritten batch, until
//	       the caller says that another log has them.
//	L24 The stamps of records (package stamping) are in an extension of their own batch. What
//	    rewrites or cuts a batch writes those of the records that stay, so they are the same in every
//	    copy and for ever.
//
// When the process dies, by what was under way:
//
//   - writing sync points: they are on the disk, or what they would prove is written again.
//   - writing a tail again: each sector is as it was. The next opening repeats it.
//   - an append: its batch is whole in the file, torn or absent. A torn one is cut (L6); a whole
//     one stays, acknowledged or not. Of several appends a later one may be present and an earlier
//     one absent: everything after the first gap is cut.
//   - making a segment: there is an empty file, or none. The next opening removes it.
//   - sealing: the footer is present or not, and the batches are the same. The next segment is
//     empty (L5), so this one is read from front to end and appended to.
//   - a change of the manifest: one slot is torn, and the other one has the manifest before. A
//     larger file that was to replace it is removed by the next opening.
//   - a round that begins a segment: if the manifest lists the segment, its file has the records of
//     that round. If it doesn't, the file is adopted, or removed if it is empty.
//   - a trim: the start has moved or not. If it has, the next opening deletes the files below.
//   - a truncation or a reset: the log is as before or as after it. Committed records are in the
//     log, or set aside, or both. The file of a cut segment may be longer than the manifest says;
//     the next opening shortens it.
//   - making a log: a directory without segments and without a manifest is no log. Moving a log
//     aside, or out to be deleted, is one step; the next opening removes what is left there. The
//     same holds for the deletion of what was set aside.
//   - a compression, a compaction, an Expunge, a repair: the log has the old files or the new ones.
//     The next opening removes the others; what was set aside stays.
//   - converting the directory of an earlier version: meta.json is of version 1 and counts, until
//     one step replaces it when all else is synced. So the conversion is repeated, or complete.
//   - an orderly end: there is a true mark, or none.
//   - recovery: any of the above. It is repeated.
//
// Compressing, compacting, expunging and scrubbing run on the caller's goroutines: closing a log
// stops them and waits for them.
//
// A kill without a power cut loses less: written bytes are in the page cache.
//
// Two cases look the same: a write of the last round that a disk lost as a whole sector although it
// was synced, and a write that was under way. Both are cut and reported, until the disk has been
// idle or another round of the log has followed, which prove that the round was synced.
package log
