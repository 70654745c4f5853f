// Package upkeep works on the segments at rest of a broker's open logs, in the background: it
// scrubs them to find damage, compresses them, compacts the data logs of Topics that keep the
// newest record of each subject, and expunges records that were removed one by one. Each replica
// does that for its own copy.
//
// Rules:
//
//  1. A log may be closed at any time, also while it is worked on. That is no error.
//  2. The package decides nothing about a copy. It reports damage to the Shard, once for each time
//     that it meets it.
//  3. At most one log is scrubbed, one compressed, one compacted and one expunged at a time, each
//     at a bounded pace, so that clients do not notice.
//  4. Nothing is compacted or expunged while the time is in doubt: what is young is left alone.
//  5. A follower's removed records are in memory only while its log is expunged. Shards without any
//     cost a look at what their state log got since the last round.
//
// When the process dies in it: a segment is its old file or its new one (package log). Progress of
// scrubbing since the last save is lost, so some segments are scrubbed again.
package upkeep
