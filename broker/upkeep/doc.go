// Package upkeep works on the segments at rest of a broker's open logs, in the background: it
// scrubs them to find damage, compresses them, and compacts the data logs of Topics that keep the
// newest record of each subject. Each replica does that for its own copy.
//
// Rules:
//
//  1. A log may be closed at any time, also while it is worked on. That is no error.
//  2. The package decides nothing about a copy. It reports damage to the Shard, once for each time
//     that it meets it.
//  3. At most one log is scrubbed, one compressed and one compacted at a time, each at a bounded
//     pace, so that clients do not notice.
//  4. Nothing is compacted while the time is in doubt: records are removed by their age.
//
// When the process dies in it: a segment is its old file or its new one (package log). Progress of
// scrubbing since the last save is lost, so some segments are scrubbed again.
package upkeep
