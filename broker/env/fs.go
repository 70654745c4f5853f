package env

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// FS is the one door to the disk. What it promises about a crash is what POSIX does, and no more:
// bytes are safe after File.Sync, names are safe after SyncDir of the directory they stand in,
// and anything else may survive in part, in any order. Package crashfs is that promise, kept to
// the letter; OS is the machine's.
//
// Every error is a *DiskError that names the operation and the path.
type FS interface {
	// Create makes a file that must not exist yet, for reading and writing.
	Create(path string) (File, error)
	// Open opens a file for reading and writing.
	Open(path string) (File, error)
	// MkdirAll makes a directory and those above it. Their names are safe after SyncDir of each parent.
	MkdirAll(path string) error
	// Rename moves a file or a directory, in one step, over whatever file has the new name.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory.
	Remove(path string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat says how large a file is and whether it is a directory.
	Stat(path string) (FileInfo, error)
	// SyncDir makes the names in a directory safe.
	SyncDir(dir string) error
	// OpenVolume opens the file system that holds path, so that all of it can be synced at once. It
	// returns errors.ErrUnsupported where there is no such call. The caller closes the Volume.
	OpenVolume(path string) (Volume, error)
	// Free says how many bytes may still be written to the file system that holds path.
	Free(path string) (uint64, error)
}

// File is an open file. It may be read and written by several goroutines at once.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Preallocate makes the file at least size bytes long and reserves the room, so that writing
	// below size doesn't meet a full disk. What was never written reads as zeros.
	Preallocate(size int64) error
	// Truncate makes the file exactly size bytes long.
	Truncate(size int64) error
	// Sync makes the file's bytes and length safe (fdatasync). A Sync that failed says nothing about
	// what is on the disk. Repeating it proves nothing either: the kernel marks the pages clean when
	// it has reported the error. They stay readable, the next Sync has nothing to write and
	// succeeds, and a power cut loses them. Only bytes that are written again and then synced are safe.
	Sync() error
	Size() (int64, error)
	Close() error
}

// Volume is an open file system. Open it before the first write whose durability its Sync is to
// vouch for, and keep it open.
//
// The kernel reports a failed write-back once to each descriptor that was open when it failed. A
// descriptor that is opened later learns of it only if nobody has seen it yet. So opening one for
// each sync misses an error that somebody else's sync has consumed, and takes lost bytes for safe.
type Volume interface {
	// Sync makes everything on the file system safe: one call instead of one per file when many are
	// dirty. It fails if any write-back failed since the Volume was opened or last synced. Where
	// the file system can't do it the error is errors.ErrUnsupported.
	Sync() error
	Close() error
}

// FileInfo is what Stat knows.
type FileInfo struct {
	Size int64
	Dir  bool
}

// DiskError is an operation on a path that failed.
type DiskError struct {
	Op, Path string
	Err      error
}

func (e *DiskError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap gives the system's error, so that errors.Is finds syscall.ENOSPC or fs.ErrNotExist.
func (e *DiskError) Unwrap() error { return e.Err }

// diskError wraps what the os package says, without naming the path twice.
func diskError(op, path string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return &DiskError{Op: op, Path: path, Err: err}
}
