package log

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// besides are the files in the log's directory that belong to segments and that others make: their
// subject indexes and statistics. A name is that of the segment and an ending:
// <base>.<generation>.<ending>. The log counts them, and deletes one with its segment, also on
// followers and after a crash. It does not know what they say.
type besides struct {
	files map[string]besideFile // by name
	bytes int64
	room  int64 // that statistics take, in blocks
	used  bool  // the index deletes its files of former versions of segments

	writing sync.Mutex // of statistics; taken before the log's mu
}

type besideFile struct {
	of    SegmentRef
	bytes int64
}

// besideOf reads the name of a file beside a segment.
func besideOf(name string) (r SegmentRef, ok bool) {
	if _, segment := segmentFile(name); segment || strings.HasSuffix(name, segmentEnd) || strings.Contains(name, segmentEnd+".") {
		return r, false
	}
	parts := strings.SplitN(name, ".", 3)
	if len(parts) < 3 || len(parts[0]) != 20 || parts[2] == "" {
		return r, false
	}
	var baseErr, err error
	r.Base, baseErr = strconv.ParseUint(parts[0], 10, 64)
	r.Generation, err = strconv.ParseUint(parts[1], 10, 64)
	return r, baseErr == nil && err == nil && r.Base > 0
}

// AddBeside counts a file beside a segment, which its owner has written. It deletes the file if the
// log has no such segment any more.
func (l *Log) AddBeside(name string, bytes int64) {
	of, ok := besideOf(name)
	if !ok {
		return
	}
	l.mu.Lock()
	l.noteBeside(name, besideFile{of, bytes})
	stays := l.keepsBeside(name, of)
	l.mu.Unlock()
	if !stays {
		_ = l.removeBeside(name) // tried again at the next change of segments
	}
}

// noteBeside counts a file. mu is held.
func (l *Log) noteBeside(name string, f besideFile) {
	b := &l.beside
	if b.files == nil {
		b.files = map[string]besideFile{}
	}
	b.drop(name)
	b.bytes += f.bytes
	b.room += statisticsRoom(name, f.bytes)
	b.files[name] = f
}

// drop no longer counts a file.
func (b *besides) drop(name string) {
	f := b.files[name]
	b.bytes -= f.bytes
	b.room -= statisticsRoom(name, f.bytes)
	delete(b.files, name)
}

// DropBeside no longer counts a file that its owner has deleted.
func (l *Log) DropBeside(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beside.drop(name)
}

// UseBeside says whether an index uses its files beside segments. Then it deletes those of segments
// that were replaced, and the log only those of segments that were dropped.
func (l *Log) UseBeside(used bool) {
	l.mu.Lock()
	l.beside.used = used
	l.mu.Unlock()
	l.sweepBeside()
}

// BesideBytes returns the size of the files beside segments.
func (l *Log) BesideBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beside.bytes
}

// interrupted reports whether a name is that of a file beside a segment that was being written when
// the process died, or of a part of an index, which serves until then only.
func interrupted(name string) bool {
	if _, ok := besideOf(name); ok {
		return strings.HasSuffix(name, ".new")
	}
	number, ok := strings.CutSuffix(strings.TrimSuffix(name, ".new"), ".part")
	_, err := strconv.ParseUint(number, 10, 64)
	return ok && err == nil
}

// readBeside counts the files beside segments when the log is opened, and deletes what was left
// unfinished. names are those of all files in the log's directory.
func (l *Log) readBeside(names []string) {
	for _, name := range names {
		if interrupted(name) {
			_ = l.disk.fs.Remove(filepath.Join(l.dir, name)) // otherwise at the next opening
			continue
		}
		of, ok := besideOf(name)
		if !ok {
			continue
		}
		info, err := l.disk.fs.Stat(filepath.Join(l.dir, name))
		if err == nil {
			l.noteBeside(name, besideFile{of, info.Size})
		}
	}
}

// keepsBeside reports whether a file beside a version of a segment stays. mu is held.
func (l *Log) keepsBeside(name string, of SegmentRef) bool {
	i, ok := slices.BinarySearchFunc(l.segments, of.Base, func(s *segment, base uint64) int { return cmp.Compare(s.base, base) })
	if ok && l.segments[i].ref() == of {
		return true
	}
	if strings.HasSuffix(name, statisticsEnd) {
		return false
	}
	return l.beside.used && len(l.segments) > 0 && of.Base >= l.segments[0].base && of.Base < l.end
}

// sweepBeside deletes the files whose segments the log does not have.
func (l *Log) sweepBeside() {
	var gone []string
	l.mu.Lock()
	for name, f := range l.beside.files {
		if !l.keepsBeside(name, f.of) {
			gone = append(gone, name)
		}
	}
	l.mu.Unlock()
	slices.Sort(gone)
	for _, name := range gone {
		_ = l.removeBeside(name) // tried again at the next change of segments
	}
}

func (l *Log) removeBeside(name string) error {
	err := l.disk.fs.Remove(filepath.Join(l.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.DropBeside(name)
	return nil
}
