// Package statistics remembers which values a path of the records has in the sealed segments of
// logs, so that scans skip segments in which nothing can equal what they look for. Scans make the
// statistics themselves: the first one of a segment for a path notes that it came by, the second
// one collects the values, and later ones may skip. So a scan that is made once costs nothing more,
// and nothing is declared.
//
// Invariants:
//
//	N1  A segment is skipped only if each of its records has a value of the path that can be read,
//	    and none of these equals one of the constants. So no record matches a condition that needs
//	    one of them to be equal, and none fails to be judged. Values count only if one of each
//	    offset was collected, whatever was removed or replaced meanwhile.
//	N2  Statistics are used only for the segment whose log, base, generation, end, epoch of the last
//	    record and length they name: no other records can have these (package indexing, X3). A file
//	    that is damaged, of another version or of another segment says nothing.
//	N3  Values are known by their hashes. Equal hashes of different values only make a scan read what
//	    it could have skipped.
//	N4  The memory is bounded. Beyond it the oldest statistics are forgotten. So is a file, and what
//	    the files of a log take together (package log).
//
// It is pure: no I/O, no clock. It is safe for concurrent use; a Builder is used by one goroutine.
//
// A scan that has collected the values of a segment has the log write them into a file beside it.
// A scan that knows nothing of a segment looks into that file. The file is not synced. It is bound
// to the content of the segment by N2 alone, so it may be late, lost, torn or back from the dead.
// When the process dies, what was collected in part is collected again.
//
// Rejected: to make the files when a segment is sealed. They would need paths that are declared, or
// that are collected for all.
package statistics
