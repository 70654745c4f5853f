// Package aggregate computes counts, sums, extremes, means, quantiles and numbers of different
// values over records, by key and window of time. A Query says what; a Partial is the result of
// some records; a Merger merges partials and closes windows. It is pure: no I/O, no clock, no
// goroutine.
//
// Invariants:
//
//  1. A Partial is a function of the records that were added, whatever their order, and however
//     they were spread over partials that were merged: its encoding has the same bytes.
//  2. So merging is associative and commutative. Sums are exact until they are rounded, once.
//     Quantiles and numbers of different values come from sketches whose state has no history.
//  3. Beyond a bound Add, Merge and Decode return an error that names it, and the Partial has that
//     error from then on. It never has a part of the groups only.
//  4. Decode accepts what Encode returns for the same Query, and nothing else. It allocates no more
//     than a few times the size of its input, and the registers of its sketches.
//  5. A window that a Merger closed stays closed: what comes later for it is counted as late.
//  6. AddOpen refuses what is beyond a bound, and counts what is late, so that a Partial may stay
//     open for years. What it refuses is a function of the records before, too: sizes are those of
//     contents, and not of memory.
//
// Windows have an order, by their end and then by their key: a Position is a place in it. Closed
// windows are handed over in pages of this order (broker/view).
//
// The process's death loses what was not encoded. A Partial can be made again from the records.
//
// Rejected: DDSketch (DataDog/sketches-go) and HyperLogLog++ (axiomhq/hyperloglog). Bins of the
// first depend on how a machine rounds a logarithm. The second turns from sparse to dense at a
// moment that depends on the order, which shows in its encoding and its estimate, and its decoder
// trusts its input. What is left of both without these is shorter than what would have to be put
// around them.
package aggregate
