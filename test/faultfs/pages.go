//go:build linux

package faultfs

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// pageSize is the unit that a disk writes or loses.
const pageSize = 4096

// pages holds the disk's content of all pages that readers see otherwise. Operations on data
// exclude each other, so that a power cut falls between two of them.
type pages struct {
	mu    sync.Mutex
	off   bool
	files map[uint64]*filePages // by inode, which is not reused while the file is open
}

// filePages are the pages of one file, by number, that may differ from the disk.
type filePages struct {
	file *os.File
	disk map[int64][]byte // content on the disk
	lost map[int64]bool   // pages that no sync writes any more
}

func newPages() pages { return pages{files: map[uint64]*filePages{}} }

// of returns the pages of a file. The caller holds mu.
func (p *pages) of(file *os.File) (*filePages, error) {
	st, err := stat(file)
	if err != nil {
		return nil, err
	}
	if known := p.files[st.Ino]; known != nil {
		return known, nil
	}
	own, err := os.OpenFile("/proc/self/fd/"+fdOf(file), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	f := &filePages{own, map[int64][]byte{}, map[int64]bool{}}
	p.files[st.Ino] = f
	return f, nil
}

// write writes, and keeps the disk's content of pages that become dirty.
func (p *pages) write(file *os.File, data []byte, off int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return 0, syscall.EIO
	}
	f, err := p.of(file)
	if err != nil {
		return 0, err
	}
	for n := off / pageSize; n*pageSize < off+int64(len(data)); n++ {
		delete(f.lost, n)
		if f.disk[n] != nil {
			continue
		}
		page := make([]byte, pageSize)
		if _, err := f.file.ReadAt(page, n*pageSize); err != nil && err != io.EOF {
			return 0, err
		}
		f.disk[n] = page
	}
	return f.file.WriteAt(data, off)
}

// truncate sets the length of a file, which is safe at once.
func (p *pages) truncate(file *os.File, size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return syscall.EIO
	}
	f, err := p.of(file)
	if err != nil {
		return err
	}
	for n, page := range f.disk {
		switch from := size - n*pageSize; {
		case from <= 0:
			delete(f.disk, n)
			delete(f.lost, n)
		case from < pageSize:
			clear(page[from:])
		}
	}
	return f.file.Truncate(size)
}

// sync makes dirty pages safe.
func (p *pages) sync() syscall.Errno {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return syscall.EIO
	}
	for inode, f := range p.files {
		for n := range f.disk {
			if !f.lost[n] {
				delete(f.disk, n)
			}
		}
		if len(f.disk) == 0 {
			_ = f.file.Close()
			delete(p.files, inode)
		}
	}
	return 0
}

// lose marks dirty pages as lost: no later sync writes them.
func (p *pages) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.files {
		for n := range f.disk {
			f.lost[n] = true
		}
	}
}

// revert restores the disk's content. No write may follow before PowerOn.
func (p *pages) revert() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = true
	var errs []error
	for inode, f := range p.files {
		info, err := f.file.Stat()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for n, page := range f.disk {
			if left := info.Size() - n*pageSize; left > 0 {
				_, err := f.file.WriteAt(page[:min(left, pageSize)], n*pageSize)
				errs = append(errs, err)
			}
		}
		errs = append(errs, f.file.Close())
		delete(p.files, inode)
	}
	return errors.Join(errs...)
}

func (p *pages) on() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = false
}

// close closes all files.
func (p *pages) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for inode, f := range p.files {
		errs = append(errs, f.file.Close())
		delete(p.files, inode)
	}
	return errors.Join(errs...)
}
