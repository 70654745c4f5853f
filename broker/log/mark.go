package log

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/env"
)

// markName is the file that says that the disk was closed in order: what its owner wrote, and a
// line with the checksum of that. While the disk is open there is none, so there is none after a
// crash either.
const markName = "clean.json"

// largestMark bounds what is read of it.
const largestMark = 1 << 20

// Mark is what was given to CloseMarked when the disk was last closed; nil if that was not in
// order.
func (d *Disk) Mark() []byte { return d.mark }

// CloseMarked closes as Close does and, only if all that was ever appended is safe by then, leaves
// content for the next Mark. That is not so if a log or the disk failed since it was opened, or if
// a log couldn't be closed. The error says why there is no mark.
func (d *Disk) CloseMarked(content []byte) error {
	if len(content) > largestMark-markSum {
		return errors.Join(fmt.Errorf("disk %s: a mark of %d bytes is too long", d.dir, len(content)), d.Close())
	}
	d.mu.Lock()
	closed := d.closing
	d.mu.Unlock()
	if closed {
		return errors.Join(ErrClosed, d.Close())
	}
	// If it fails and the disk hasn't, segments are scrubbed earlier than they are due, and no
	// more.
	_ = d.SaveChecks()
	if err := d.Close(); err != nil {
		return err
	}
	if err := d.Failed(); err != nil {
		return err
	}
	d.mu.Lock()
	err := d.unclean
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("disk %s: no mark is left, since %w", d.dir, err)
	}
	data := fmt.Appendf(bytes.Clone(content), "\n%08x\n", crc32.Checksum(content, castagnoli))
	return d.noticed(replaceFile(d.fs, d.dir, markName, data))
}

// markSum is the length of what stands behind the content.
const markSum = 10

// takeMark reads the mark and removes it, safely, before anything else changes on the disk. One
// that can't be believed is none.
func takeMark(fsys env.FS, dir string) ([]byte, error) {
	path := filepath.Join(dir, markName)
	info, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mark, err := readSummed(fsys, path, info.Size, largestMark)
	if err != nil {
		return nil, err
	}
	if err := fsys.Remove(path); err != nil {
		return nil, err
	}
	return mark, fsys.SyncDir(dir)
}

// readSummed reads a file that ends with a line with the checksum of what is before. It returns nil
// for a file that can't be believed.
func readSummed(fsys env.FS, path string, size, largest int64) ([]byte, error) {
	if size < markSum || size > largest {
		return nil, nil
	}
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	err = readFull(f, data, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil // it can't be read, so nothing is known
	}
	content := data[: size-markSum : size-markSum]
	if string(data[size-markSum:]) != fmt.Sprintf("\n%08x\n", crc32.Checksum(content, castagnoli)) {
		return nil, nil
	}
	return content, nil
}
