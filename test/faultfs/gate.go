//go:build linux

package faultfs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

// gate is the entrance of every operation that may wait for a disk. Operations on the kernel's node
// cache, and closing files, bypass it.
type gate struct {
	fuse.RawFileSystem
	fs *FS
}

func (g *gate) enter() fuse.Status { return fuse.Status(g.fs.enter()) }

func (g *gate) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Lookup(cancel, header, name, out)
}

func (g *gate) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.GetAttr(cancel, in, out)
}

func (g *gate) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.SetAttr(cancel, in, out)
}

func (g *gate) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (g *gate) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Unlink(cancel, header, name)
}

func (g *gate) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Rmdir(cancel, header, name)
}

func (g *gate) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Rename(cancel, in, from, to)
}

func (g *gate) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Create(cancel, in, name, out)
}

func (g *gate) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Open(cancel, in, out)
}

func (g *gate) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	if s := g.enter(); s != 0 {
		return nil, s
	}
	return g.RawFileSystem.Read(cancel, in, buffer)
}

func (g *gate) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if s := g.enter(); s != 0 {
		return 0, s
	}
	return g.RawFileSystem.Write(cancel, in, data)
}

// Flush tells the kernel not to ask: to close a file does nothing to a disk.
func (g *gate) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

func (g *gate) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Fsync(cancel, in)
}

func (g *gate) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return fuse.Status(g.fs.sync())
}

func (g *gate) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.Fallocate(cancel, in)
}

func (g *gate) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.OpenDir(cancel, in, out)
}

func (g *gate) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if s := g.enter(); s != 0 {
		return s
	}
	return g.RawFileSystem.StatFs(cancel, header, out)
}
