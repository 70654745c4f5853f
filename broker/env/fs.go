package env

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// FS is the only interface to the disk. It promises what POSIX does about a crash, and no more:
// bytes are durable after File.Sync, names are durable after SyncDir of their directory, and
// everything else may survive in part, in any order. Package crashfs implements exactly this
// promise; OS is the machine's file system.
//
// Every error is a *DiskError with the operation and the path.
type FS interface {
	// Create creates a file, which must not exist, for reading and writing.
	Create(path string) (File, error)
	// Open opens a file for reading and writing.
	Open(path string) (File, error)
	// MkdirAll creates a directory and its parents. Their names are durable after SyncDir of each
	// parent.
	MkdirAll(path string) error
	// Rename moves a file or a directory atomically. It replaces an existing file.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory.
	Remove(path string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or a directory.
	Stat(path string) (FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// OpenVolume opens the file system that contains path, so that all of it can be synced at once.
	// It returns errors.ErrUnsupported on systems without such a call. The caller closes the
	// Volume.
	OpenVolume(path string) (Volume, error)
	// Free returns the bytes that can still be written to the file system that contains path.
	Free(path string) (uint64, error)
}

// File is an open file. It is safe for concurrent use.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Preallocate makes the file at least size bytes long and reserves the space, so that writing
	// below size does not fail for lack of space. Bytes that were never written read as zeros.
	Preallocate(size int64) error
	// Truncate makes the file exactly size bytes long.
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable (fdatasync). After a failed Sync the content
	// of the disk is unknown. Repeating it proves nothing: the kernel marks the pages clean when it
	// has reported the error. They stay readable, the next Sync has nothing to write and succeeds,
	// and a power cut loses them. Only bytes that are written again and then synced are durable.
	Sync() error
	Size() (int64, error)
	Close() error
}

// Volume is an open file system. Open it before the first write whose durability depends on its
// Sync, and keep it open.
//
// The kernel reports a failed write-back once to each descriptor that was open when it failed. A
// descriptor that is opened later learns of it only if no other has reported it. So a descriptor
// per sync would miss an error that another sync has reported, and take lost bytes for durable.
type Volume interface {
	// Sync makes everything on the file system durable: one call instead of one per file when many
	// are dirty. It fails if any write-back failed since the Volume was opened or last synced. If
	// the file system does not support it, the error is errors.ErrUnsupported.
	Sync() error
	Close() error
}

// FileInfo is the result of Stat.
type FileInfo struct {
	Size int64
	Dir  bool
	// Modified is when the content, or a name in the directory, was changed last, by the machine's
	// clock. Zero: it is unknown.
	Modified time.Time
}

// DiskError is a failed operation on a path.
type DiskError struct {
	Op, Path string
	Err      error
}

func (e *DiskError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the system's error, so that errors.Is finds syscall.ENOSPC or fs.ErrNotExist.
func (e *DiskError) Unwrap() error { return e.Err }

// diskError wraps an error of package os without repeating the path.
func diskError(op, path string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return &DiskError{Op: op, Path: path, Err: err}
}
