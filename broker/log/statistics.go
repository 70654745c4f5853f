package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// The statistics of a sealed segment are one file beside it: <base>.<generation>.statistics. Scans
// make them, and whoever reads them has to check that they are of the segment (package statistics).
// They are never synced: nothing relies on them, so a crash may lose or tear them.

// Bounds of statistics, each with the reason for its value.
const (
	// LargestStatistics bounds the file of a segment: what a scan reads in a millisecond, instead of
	// a segment.
	LargestStatistics = 512 << 10
	// mostStatistics bounds the files of a log, in blocks of the disk: those of 4,096 segments with a
	// few values each, or of some 60 with the most.
	mostStatistics  = 16 << 20
	statisticsBlock = 4 << 10
	// statisticsFree is the free space of the disk below which none are written: what the log needs is
	// more urgent.
	statisticsFree = 64 << 20

	statisticsEnd = ".statistics"
)

func (r SegmentRef) statisticsName() string {
	return fmt.Sprintf("%020d.%d%s", r.Base, r.Generation, statisticsEnd)
}

// Statistics returns the file with the statistics of a version of a segment, unchecked, or nil if
// there is none that can be read. It looks at the disk only if there was one.
func (l *Log) Statistics(base, generation uint64) []byte {
	name := SegmentRef{Base: base, Generation: generation}.statisticsName()
	l.mu.Lock()
	_, there := l.beside.files[name]
	l.mu.Unlock()
	if !there {
		return nil
	}
	f, err := l.disk.fs.Open(filepath.Join(l.dir, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size <= 0 || size > LargestStatistics {
		return nil
	}
	data := make([]byte, size)
	if readFull(f, data, 0) != nil {
		return nil
	}
	return data
}

// ChangeStatistics replaces the file with the statistics of a version of a segment by what change
// makes of the present one, as Statistics returns it. It writes nothing if that is nil, and syncs
// nothing. Beyond a bound of the log's statistics it deletes those of the oldest segments. The file
// is deleted again if the log has no such segment any more.
func (l *Log) ChangeStatistics(base, generation uint64, change func(now []byte) []byte) error {
	_, end, err := l.beginUpkeep(context.Background())
	if err != nil {
		return err
	}
	defer end()
	l.beside.writing.Lock()
	defer l.beside.writing.Unlock()
	r := SegmentRef{Base: base, Generation: generation}
	err = l.roomForStatistics()
	if err == nil {
		err = l.boundStatistics(r) // if a deletion failed before, the files are beyond the bound
	}
	if err != nil {
		return err
	}
	data := change(l.Statistics(base, generation))
	if data == nil {
		return nil
	}
	if len(data) > LargestStatistics {
		return fmt.Errorf("log %s: statistics of %d bytes are too large", l.name, len(data))
	}
	if err := l.placeStatistics(r.statisticsName(), data); err != nil {
		return fmt.Errorf("log %s: write statistics: %w", l.name, err)
	}
	l.AddBeside(r.statisticsName(), int64(len(data)))
	_ = l.boundStatistics(r) // the next write tries it again, and is not done before that
	return nil
}

// roomForStatistics returns an error if the disk has failed, or is too full for another file.
func (l *Log) roomForStatistics() error {
	if err := l.disk.Failed(); err != nil {
		return err
	}
	free, err := l.disk.Free()
	if err == nil && free < statisticsFree {
		err = fmt.Errorf("the disk has %d MiB of free space, which the log may need", free>>20)
	}
	return err
}

// placeStatistics atomically replaces a file, without a sync.
func (l *Log) placeStatistics(name string, data []byte) error {
	path := filepath.Join(l.dir, name)
	aside := path + ".new" // the next opening removes it
	if err := l.disk.fs.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := l.disk.fs.Create(aside)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err = errors.Join(err, f.Close()); err == nil {
		err = l.disk.fs.Rename(aside, path)
	}
	if err != nil {
		return errors.Join(err, l.disk.fs.Remove(aside))
	}
	return nil
}

// statisticsRoom is what a file takes of the bound of a log's statistics.
func statisticsRoom(name string, bytes int64) int64 {
	if !strings.HasSuffix(name, statisticsEnd) {
		return 0
	}
	return (bytes + statisticsBlock - 1) / statisticsBlock * statisticsBlock
}

// boundStatistics deletes the statistics of the oldest segments, except one, until the others fit
// into the log's bound. writing is held.
func (l *Log) boundStatistics(but SegmentRef) error {
	for {
		oldest, at := "", uint64(0)
		l.mu.Lock()
		if l.beside.room > mostStatistics {
			for name, f := range l.beside.files {
				if strings.HasSuffix(name, statisticsEnd) && f.of != but && (oldest == "" || f.of.Base < at) {
					oldest, at = name, f.of.Base
				}
			}
		}
		l.mu.Unlock()
		if oldest == "" {
			return nil
		}
		if err := l.removeBeside(oldest); err != nil {
			return fmt.Errorf("log %s: delete statistics: %w", l.name, err)
		}
	}
}
