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
//	N2  Statistics are used only for the segment whose base, generation, end and epoch of the last
//	    record they name: no other records can have these four (package indexing, X3).
//	N3  Values are known by their hashes. Equal hashes of different values only make a scan read what
//	    it could have skipped.
//	N4  The memory is bounded. Beyond it the oldest statistics are forgotten.
//
// It is pure: no I/O, no clock. It is safe for concurrent use; a Builder is used by one goroutine.
// When the process dies, scans make the statistics again.
//
// Rejected: files beside the segments. They would outlive the process, and need paths that
// are declared, or that are collected for all.
package statistics
