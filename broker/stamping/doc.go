// Package stamping encodes the attributes that the subjects of a batch's records had when these
// were stored: their stamps. It is pure. The leader writes them into an extension of each batch
// that it appends; package log gives them back with the records.
//
// An extension is a list of runs of offsets, in their order. All integers are uvarints:
//
//	gap    offsets without a stamp before the run: since the run before, or the batch's base
//	count  offsets of the run
//	ref    0: the text follows; or 1 + the position of an earlier one in the extension
//	text   its length and its bytes, if ref is 0: the attributes as JSON
//
// Invariants:
//
//  1. A batch says all about its own records. Nothing relies on another batch, so truncation,
//     retention, recovery and repair need no rule.
//  2. What rewrites a batch, or cuts it, writes the stamps of the records that stay (package log).
//     Those of removed records go with them.
//  3. A record without a run has no stamp: its subject had no attributes, or the batch was written
//     by an earlier version.
//  4. A batch none of whose subjects has attributes has no extension.
//
// Costs in bytes per record, with {"floor":4,"room":"410"}, which has 24:
//
//	                              1 record a batch    16    256
//	one subject                                 34   2.1    0.1
//	two subjects, in turn                        -   6.5    3.2
//	as many subjects as records                 34    28     28
//
// Compression of sealed segments takes most of what repeats. A text is there once in a batch.
//
// While some subject of the cluster has attributes, a leader looks for those of each record whose
// subject is not that of the record before: 40 ns, and 20 ns more to note them.
//
// Rejected: to write a text once in a segment, on change, and to refer to it from later batches.
// What was compacted, expunged or truncated away would have to stay for what follows, a reader that
// begins anywhere would have to look back, and a damaged batch would take the attributes of others
// with it. Rejected: a field of each record. Its bytes are written for each, and records that are
// packed have no room for it.
//
// It holds no state, so the death of the process changes nothing in it.
package stamping
