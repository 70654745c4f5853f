//go:build linux

package faultfs

import (
	"context"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or directory. The loopback handles all operations on names.
type node struct {
	*fs.LoopbackNode
	fs *FS
}

// WrapChild implements fs.NodeWrapChilder.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{ops.(*fs.LoopbackNode), n.fs}
}

func (n *node) path() string { return n.RootData.Path + "/" + n.Path(n.Root()) }

// Open implements fs.NodeOpener. The kernel caches nothing, so that a power cut needs no new mount.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	file, err := os.OpenFile(n.path(), writable(flags), 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	h := &handle{file, n.fs}
	if flags&syscall.O_TRUNC != 0 {
		if errno := h.truncate(0); errno != 0 {
			_ = file.Close()
			return nil, 0, errno
		}
	}
	return h, fuse.FOPEN_DIRECT_IO, 0
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.fs.room(); errno != 0 {
		return nil, nil, 0, errno
	}
	file, err := os.OpenFile(n.path()+"/"+name, writable(flags)|os.O_CREATE|int(flags&syscall.O_EXCL), os.FileMode(mode&0o777))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	inode, errno := n.Lookup(ctx, name, out)
	if errno != 0 {
		_ = file.Close()
		return nil, nil, 0, errno
	}
	return inode, &handle{file, n.fs}, fuse.FOPEN_DIRECT_IO, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.fs.room(); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

// Setattr implements fs.NodeSetattrer: lengths are the handle's.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		file, err := os.OpenFile(n.path(), os.O_RDWR, 0)
		if err != nil {
			return fs.ToErrno(err)
		}
		errno := (&handle{file, n.fs}).truncate(int64(size))
		if err := file.Close(); err != nil && errno == 0 {
			errno = fs.ToErrno(err)
		}
		if errno != 0 {
			return errno
		}
		in.Valid &^= fuse.FATTR_SIZE
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

// Fsync implements fs.NodeFsyncer, of directories, too.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return n.fs.sync() }

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	errno := n.LoopbackNode.Statfs(ctx, out)
	if n.fs.room() != 0 {
		out.Bavail, out.Bfree = 0, 0
	}
	return errno
}

// CopyFileRange implements fs.NodeCopyFileRanger: the kernel copies by reads and writes.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

// writable makes a file that is opened for writing readable, too: the previous content of a page is
// read first.
func writable(flags uint32) int {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return os.O_RDONLY
	}
	return os.O_RDWR
}

func fdOf(file *os.File) (text string) {
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { text = strconv.Itoa(int(fd)) })
	}
	return text
}

// handle is an open file.
type handle struct {
	file *os.File
	fs   *FS
}

// Read implements fs.FileReader.
func (h *handle) Read(_ context.Context, buffer []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.file.ReadAt(buffer, off)
	if n == 0 && err != nil && err != io.EOF {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(buffer[:n]), 0
}

// Write implements fs.FileWriter.
func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if h.fs.room() != 0 {
		st, err := stat(h.file)
		if err != nil {
			return 0, fs.ToErrno(err)
		}
		if off+int64(len(data)) > st.Size {
			return 0, syscall.ENOSPC
		}
	}
	n, err := h.fs.pages.write(h.file, data, off)
	return uint32(n), fs.ToErrno(err)
}

func (h *handle) truncate(size int64) syscall.Errno {
	return fs.ToErrno(h.fs.pages.truncate(h.file, size))
}

// Allocate implements fs.FileAllocater.
func (h *handle) Allocate(_ context.Context, off, size uint64, mode uint32) syscall.Errno {
	if mode != 0 {
		return syscall.EOPNOTSUPP
	}
	if errno := h.fs.room(); errno != 0 {
		return errno
	}
	return fs.ToErrno(reserve(h.file, mode, int64(off), int64(size)))
}

// Release implements fs.FileReleaser.
func (h *handle) Release(context.Context) syscall.Errno { return fs.ToErrno(h.file.Close()) }
