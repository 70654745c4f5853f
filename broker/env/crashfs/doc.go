// Package crashfs is a file system in memory that keeps the promise of env.FS to the letter and
// not one bit more, for tests that crash.
//
// It keeps what is durable apart from what is merely visible:
//
//   - A write, a truncation or a preallocation is durable after a Sync of that file. Until then a
//     crash keeps, for each sector of 512 bytes by itself, what it held at any moment since; and
//     the same for the file's length.
//   - A name made, moved or removed is durable after SyncDir of the directory (for a move, of the
//     one it went to). Until then a crash keeps any subset of these changes. A move is one step.
//   - Syncing a file does not make its name durable.
//   - A sync that failed drops what it was to write: the bytes go on being visible, no later
//     sync will save them, and a crash loses them. A new length stays to be synced: file systems
//     have it in their journal, and take no more changes when that fails.
//   - Write-back that fails on its own (FailWriteBack) does the same. It is reported once to each
//     file and volume that was open then, and to one opened later only if nobody has seen it.
//   - DropCache makes what failed syncs and write-back have lost invisible, too.
//
// Hook sees every operation before it happens and may let it fail; StopAfter crashes the process
// at a chosen operation; Crash is the power cut, and gives the file system as it is found afterwards,
// chosen by a seed. Nothing here reaches a real disk.
package crashfs
