// Package retention deletes the old records of shards that this broker leads, as the retention of
// their Topic says.
//
// Rules:
//
//  1. Nothing is deleted by age while the time is in doubt. The pause is logged when it begins and
//     ends.
//  2. Records that readers could not see because of Messages stay hidden when more is to be kept.
//  3. Messages does not count removed records. Segments at the log's beginning all of whose records
//     are removed are deleted, whatever the policy.
//  4. Bytes does not count removed records that files still have, by an estimate. Otherwise a work
//     queue would lose messages for acknowledged ones. So files may take more than Bytes until
//     package upkeep has expunged them.
//  5. An idle shard costs nothing: it is looked at again when its watermark has moved, its policy
//     has changed, or records are due by age.
//
// When the process dies: the log has deleted a segment or has not (package log), and the next
// leader looks at each shard at once.
package retention
