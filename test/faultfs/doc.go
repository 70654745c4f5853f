// Package faultfs mounts a directory a second time, through FUSE, as a disk whose faults a test
// controls while processes use it: syncs that fail and lose their writes, hangs, delays, no space,
// and power cuts. It takes root and /dev/fuse on Linux.
//
// The underlying directory has what readers see, as a page cache does. For every page of 4 KiB that
// differs from the disk, the file system also keeps the disk's content. Invariants:
//
//  1. A write makes its pages dirty.
//  2. A sync of any file makes all dirty pages of all files safe. It is that coarse because the
//     kernel doesn't tell a FUSE file system of syncfs(2). What a forgotten sync of a single file
//     loses is for package crashfs and for ext4 (test/disk) to find.
//  3. A sync that fails makes all dirty pages lost: they are clean, so that no later sync writes
//     them, and readers see the new content, as with ext4 after a failed write-back. To write a
//     lost page again makes it dirty.
//  4. CutPower puts back the disk's content of every page that is dirty or lost.
//  5. Names, lengths and reservations are safe at once, as in a file system with a journal that is
//     quick. What is in a file but was never made safe reads as it was before, or as zeros.
//
// While the disk hangs, every operation on it waits, and a process in such an operation can't be
// killed: its thread waits uninterruptibly in the kernel. Closing a file doesn't wait.
//
// If the process that called Mount dies, the kernel ends the mount's operations with an error. The
// mount point itself goes with its mount namespace.
package faultfs
