// Package crashfs is a file system in memory for crash tests. It keeps exactly what env.FS promises
// about a crash, and no more.
//
// It distinguishes what is durable from what is visible:
//
//   - A write, a truncation or a preallocation is durable after a Sync of that file. Before, a
//     crash leaves each sector of 512 bytes as it was at any moment since the last Sync,
//     independently of others, and so the file's length.
//   - A name that was created, moved or removed is durable after SyncDir of the directory (for a
//     move, of the target's). Before, a crash keeps any subset of these changes. A move is one
//     change.
//   - Syncing a file does not make its name durable.
//   - A failed sync drops what it should have written: the bytes stay visible, no later sync writes
//     them, and a crash loses them. A new length remains to be synced: file systems have it in
//     their journal, and accept no more changes when that fails.
//   - A failed write-back (FailWriteBack) has the same effect. It is reported once to each file and
//     volume that was open at that time, and to one opened later only if no other has reported it.
//   - DropCache makes what failed syncs and write-back have lost invisible.
//
// Hook is called before every operation and may make it fail. StopAfter crashes the process at a
// chosen operation. Crash cuts the power and returns the file system as found afterwards, chosen by
// a seed. Nothing here uses a real disk.
package crashfs
