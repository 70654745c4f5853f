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

// markName is the file that an orderly shutdown leaves: data of the disk's owner, and a line with
// its checksum. It doesn't exist while the disk is open, so it doesn't exist after a crash.
const markName = "clean.json"

// largestMark bounds the file.
const largestMark = 1 << 20

// Mark returns the content that the last CloseMarked left; nil if the last shutdown was not
// orderly.
func (d *Disk) Mark() []byte { return d.mark }

// CloseMarked closes the disk as Close does. If all appended records are durable then, it leaves
// content for the next Mark. It leaves none if a log or the disk failed since it was opened, or if
// a log could not be closed. The error says why there is no mark.
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
	// If this fails, segments are only scrubbed before they are due.
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

// markSum is the length of the checksum line behind the content.
const markSum = 10

// takeMark reads the mark and removes it durably, before anything else changes on the disk. An
// invalid mark counts as none.
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

// readSummed reads a file that ends with a line with its checksum. It returns nil for an invalid
// file.
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
		return nil, nil // an unreadable file counts as invalid
	}
	content := data[: size-markSum : size-markSum]
	if string(data[size-markSum:]) != fmt.Sprintf("\n%08x\n", crc32.Checksum(content, castagnoli)) {
		return nil, nil
	}
	return content, nil
}
