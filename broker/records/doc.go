// Package records reads the records of a shard that is led on this broker: one by its offset, the
// next or the last of a subject, or many at once. It needs the shard's log and, of the shard, its
// Source only.
//
//	reader.go  Reader: Info, Get, NextFor, LastFor
//	subjects.go  counts per subject, and of a filter
//	bulk.go    BulkReader: many records in one answer, copied at most once
//	judged.go  ReadJudged: those of many records that a Judge accepts
//	segments.go  which segments a judged read passes, by statistics that it makes itself
//	pin.go     Pin: a range of offsets that retention leaves alone
//	scan.go    ScanBatches: a log from one offset to another
//	removed.go  offsets without a record: those of removed records and those that files lack
//
// Invariants:
//
//	D1  Nothing is returned at or beyond the high watermark, and nothing below the start of what
//	    readers see (Source.Offsets).
//	D2  A search that meets damaged records fails. It never returns a later record instead.
//	D3  Each call reads a bounded part of the log, and says so if that was not enough.
//	D4  Offsets of a Range are dense. Where compaction removed records, or they were removed one by
//	    one, the Range ends, or names the gaps if it was asked to.
//	D5  Nothing is returned that Source.Removed had when the call began, whether files still have it
//	    or not. Only ScanBatches and MessageID read such records.
//	D6  An offset without a record counts once, whether a file lacks it, the set has it, or both.
//	    Until Info has read a segment that has both, the fewer ones count as some of the others.
//	D7  A judged read looks at each record between its offsets once, in order, and for a bounded
//	    time. Judging a record allocates nothing, unless the Judge does. Records of a segment that
//	    is passed by its statistics count as looked at: none of them matches, or can't be judged.
//	D8  Records of a subject that Query.Sees refuses are in no answer of a BulkReader. Nothing of
//	    them is judged or counted, and one that fits into no answer ends no read.
//
// A Reader caches the offset of the first record, the times of the first and the last, and the
// holes of segments that also have removed offsets. Nothing here is written, so nothing is lost
// with the process.
package records
