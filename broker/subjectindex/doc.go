// Package subjectindex answers questions about the subjects of a shard: the last record of a
// subject, how many records match a filter, how many subjects there are, and which offsets a
// subject has. It knows offsets and subjects only. It does not read the log, and nothing of it is
// replicated: every replica makes its own index from its own segments.
//
// # Structure
//
// The index of a shard is a list of layers, which cover consecutive ranges of offsets, oldest
// first. A layer is one of:
//
//	run      an immutable file that maps subjects, sorted, to their offsets
//	part     the same for the newest records, in memory
//	missing  a range that has no index yet
//
// A sealed segment is one run: its index file. The active segment is a part, and before it the runs
// to which earlier parts of it were flushed. When the segment is sealed, its layers are merged into
// its index file.
//
// A run has the offsets of each subject and not only their number, so every question is answered
// for any range of offsets. There is no state per view: conditions ask up to the end of the log,
// readers up to the high watermark, and both from the start that retention has reached. Truncation
// shortens the range of the layers that it cuts, removes the newest records from the part, and
// changes no file.
//
// When compaction replaces segments, their former layers still say which record of a subject is the
// last one, until the new index file is made: compaction removes no last record. An offset that
// they name is looked up in the log, which may have lost it.
//
// Rejected:
//
//  1. One tree of all subjects of a shard: an LSM of its own, or a table as nats-server has. It has
//     to be undone by truncation and cleaned after retention, and can't be rebuilt from a segment.
//     10 M subjects in a table in memory take 800 MiB.
//  2. A chain from each record to the one before of its subject, as offsets in the records. It
//     costs 8 bytes per record in the log, and each step is a random read of the log. A count needs
//     the whole walk. (In a part, where a step is a memory access, there is such a chain.)
//  3. Count, first and last offset per subject without the others. A range that ends within a
//     segment (the watermark, the start, a consumer's position) then needs the segment itself.
//
// # Files
//
// DIR is the directory of the shard's index.
//
//	DIR/<base>.<generation>.<number>.subjects  the index of one version of a sealed segment's file
//	DIR/<number>.part                          a run of the active segment
//	DIR/<name>.new                             a file that is being written
//
// No number is used twice, so a name never means two files. A file is written once, from front to
// end. All numbers are little endian, and uvarints are those of encoding/binary. Each block is
// followed by the CRC-32C of its position and its bytes, seeded with the CRC of the header, so that
// a block of another file or another place is not taken for it.
//
//	header, 64 bytes
//	  0 u32 magic "CSUB"  4 u8 version  5 u8 kind: 1 index of a segment, 2 part  6 u16 zero
//	  8 u64 secret of the log  16 u64 base  24 u64 generation  32 u64 first offset that is covered
//	  40 u64 random number of this file  48 u64 epoch of the segment's last record  56 u32 zero
//	  60 u32 CRC-32C of bytes 0 to 59
//	data blocks, about 4 KiB, of entries in the order of the bytes of their subjects:
//	  uvarint bytes that the subject shares with the one before in the block
//	  uvarint other bytes of it, and these bytes
//	  uvarint records * 2, + 1 if the offsets are in posting blocks
//	  uvarint first offset - first offset that is covered
//	  uvarint last offset - first offset - (records - 1), if there are 2 or more records
//	  offsets behind the first, if there are 3 or more: uvarint bytes, tokens
//	  or, if they are in posting blocks: uvarint number of blocks, uvarint position of the first
//	    (they are back to back), and of each block:
//	    uvarint bytes, uvarint records, uvarint its first offset - that of the block before
//	posting blocks, about 16 KiB, before the data block that names them: tokens of the offsets behind
//	  the block's first
//	index blocks, about 4 KiB, of each data block:
//	  uvarint bytes of a separator, the separator, uvarint position, uvarint bytes
//	  A separator is not greater than the first subject of its block, and greater than all before.
//	filter pages, 4096 bytes: 127 blocks of a split block Bloom filter, 32 bytes each, 28 zeros, CRC
//	footer
//	  u64 offset after the last that is covered, u64 records, u64 subjects
//	  u64 position of the filter, u32 blocks of the filter, u32 gaps, u32 index blocks, u32 zero
//	  gaps: u64 from, u64 to: damaged ranges of the segment, of which nothing is known; Open has such
//	    a file made again
//	  of each index block, as of data blocks there: the separator, position and bytes
//	trailer, 16 bytes: u64 position of the footer, u32 CRC-32C of that, u32 magic "CSUE"
//
// A token is uvarint n: n/2 offsets are skipped, and the next one is the subject's. If n is odd,
// uvarint r follows, and the next r + 2 offsets are the subject's.
//
// # Invariants
//
//	I1  An answer is exact, or an error. A *MissingError names offsets of which nothing is known. An
//	    answer that does not depend on them is given.
//	I2  An answer is about the range of offsets that was asked for, as the log was at one moment of
//	    the call.
//	I3  Layers are in order, do not overlap, and cover all offsets from the start to the end. Offsets
//	    of a segment that the log lacks are missing until Insert.
//	I4  A file never changes. Questions that read a file finish before it is deleted, unless
//	    the log deletes it with its segment. Then its range is missing, as if it were damaged.
//	I5  Every byte of a file that an answer depends on was checked by CRC when it was read from the
//	    disk. The run of a damaged file is dropped: its range is missing, and is rebuilt.
//	I6  An index file is of one version of one segment's file: log, base, generation, end and the
//	    epoch of the last record are the segment's.
//	I7  An index file is made only of a segment that is sealed and synced. Its records can still be
//	    truncated, and others appended to the segment: also while the index is not open, and up to
//	    the same end. Then the last record has another epoch, since an epoch has one leader, which
//	    gives an offset to one record. So Open does not use the file.
//	I8  Files of parts have records of any epoch and say nothing after a restart. Open deletes them.
//	I9  An index file is complete and synced before it gets its name. If a crash loses the name, the
//	    file is made again.
//	I10 The methods that change the index, and Known, do no I/O. Adding a record of a known subject
//	    allocates nothing. No lock of the shard is held over a read or a write.
//	I11 Memory is bounded by limits.go, whatever the number of subjects and the size of segments. An
//	    index that can't keep up forgets a part and rebuilds it later. It never delays an append.
//
// # Ownership
//
//  1. The owner of the log owns the Shard. It calls the methods that change it in the order of the
//     changes of the log: Roll, Begin, Add, Skip, End, Truncate, Reset, Trim, Sealed, Replace,
//     Insert.
//  2. One goroutine of the owner's calls Work after Open, and when Wake was called. Work flushes
//     parts, writes index files, rebuilds what is missing from the Source, and deletes files. It
//     ends with its context. Its errors concern the index alone: the log goes on.
//  3. Any goroutines ask questions. A question holds a reference to the layers of its moment.
//  4. A Cache, with the open files, is shared by all shards of a disk.
//
// When the process dies:
//
//   - flushing a part: Open deletes the file.
//   - writing an index file: it is complete and has its name, or Open deletes it.
//   - between the seal of a segment and its index file: the index is missing, and is rebuilt.
//   - between the removal, the cut or the replacement of a segment and that of its index file: no
//     sealed segment has that base, generation, end and epoch, so Open deletes the file.
//   - between the rename and the removal of a file that it replaces: Open uses one and deletes the
//     other; both are of the same segment, so both are right.
//   - the name of a removed file came back: the same.
//
// # Reading
//
// A question about one subject looks at the layers from the newest to the oldest, and Last ends
// with the first one that has the subject. In a run it reads a filter page, an index block and a
// data block, each through the cache. With filters and index blocks in the cache, a lookup costs
// one read per segment that may have the subject, and otherwise up to three. The filter passes a
// subject that its segment lacks in one of 160 cases.
//
// A question about a filter scans the subjects that begin with the bytes before its first wildcard,
// in each layer: about 50 ns for each of them. It reads 128 KiB at once, and leaves data blocks out
// of the cache.
//
// What is asked again and again is kept: a Counter has the records that match a filter, and
// NumSubjects the subjects. Both read only what is new.
//
// # Memory
//
//	Cache                           64 MiB per disk, over all shards     CacheBytes
//	the part that is appended to    16 MiB, 48 MiB with those that wait to be flushed   PartBytes
//	sorting a part                  32 bytes per subject, 4 per record, while it is written
//	writing a file                  1.5 bytes per subject for the filter, 16 MiB for buffers at most
//	an open run                     1 KiB: its footer
//	last records for conditions     8 MiB, in shards that use them       factBytes
//
// A part takes 8 bytes per record, or 32 per batch of 8 or more records of one subject, and 40
// bytes and its bytes per subject. 10 M subjects of 24
// bytes in 16 segments take 16 MiB of filters and 1 MiB of index blocks, which stay in the cache.
//
// An active segment with any number of subjects is a part of at most 16 MiB and at most 16 runs,
// with the footers and cached blocks that any runs have.
//
// # Removals
//
// Config.Removed is a set of offsets whose records were removed one by one, though files have them.
// It has none beyond the watermark, so truncation does not concern it. Files and parts keep removed
// records: a question takes them away.
//
//  1. An entry without removed offsets between its first and its last one is answered as it stands.
//     Otherwise each of its offsets in the range is tested. Last goes on with older layers if all
//     are removed.
//  2. A shard without removals pays one load per question.
//  3. A Counter remembers how many offsets of each range were removed when it was counted, and
//     counts a range anew that has lost more. The set never gives an offset back, so equal numbers
//     are equal offsets.
//  4. NumSubjects counts all again when something was removed. So it costs as much as the first
//     count in a shard that always removes: 50 ns per subject, and as much per run of a subject's
//     offsets.
//  5. A segment that is rewritten without the records gets another generation and another index.
//     The set may still have them.
package subjectindex
