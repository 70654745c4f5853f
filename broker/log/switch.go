package log

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
)

// A switch changes which files are the log: a truncation, a reset, a compaction, a compression, a
// repair. New files are complete and safe, under their own names, before the manifest names them;
// old ones are removed, or set aside, after it names them no more. The manifest says which those
// are until they are gone. So a crash leaves the log as it was or as it is to be.

// change makes the next manifest safe, and takes it over. Neither mu nor the disk's is held.
func (l *Log) change(f func(m *Manifest)) error {
	l.man.mu.Lock()
	defer l.man.mu.Unlock()
	// Under the lock: the committer holds it while it syncs, and what it was to list is not listed
	// if that fails.
	if err := l.disk.Failed(); err != nil {
		return err
	}
	next := l.man.now.Load().clone()
	f(next)
	next.tidy()
	if err := l.sweep(next); err != nil {
		return err
	}
	if err := l.man.replace(next); err != nil {
		return fmt.Errorf("log %s: %w", l.name, l.disk.noticed(err))
	}
	return nil
}

// sweepFrom is how many files that were removed are remembered before a sync of the directory makes
// sure that they stay so.
const sweepFrom = 32

// sweep has a manifest forget the files that are gone, and will be after a crash. man.mu is held.
func (l *Log) sweep(m *Manifest) error {
	if len(m.Gone) < sweepFrom {
		return nil
	}
	l.mu.Lock()
	removed := l.removed
	l.removed = nil
	l.mu.Unlock()
	if len(removed) == 0 {
		return nil
	}
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return l.disk.noticed(&syncError{err})
	}
	m.Gone = slices.DeleteFunc(m.Gone, func(r SegmentRef) bool { return slices.Contains(removed, r) })
	return nil
}

// remove deletes the files of segments that the manifest names no more, or counts among those that
// go.
func (l *Log) remove(gone ...*segment) (err error) {
	for _, s := range gone {
		l.disk.handles.forget(s)
		err = errors.Join(err, l.removeFile(s.ref()))
	}
	return err
}

func (l *Log) removeFile(r SegmentRef) error {
	if err := l.disk.fs.Remove(filepath.Join(l.dir, r.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.mu.Lock()
	l.removed = append(l.removed, r.file())
	l.mu.Unlock()
	return nil
}

// swap gives the file at path, which is complete and safe, the name of fresh, and lets that take
// the place of some segments that stand side by side; all but the file's generation is as it is to
// be. more changes the rest of the manifest; it may be nil. Whoever reads an old file goes on doing
// so. admin is held.
func (l *Log) swap(old []*segment, fresh *segment, path string, more func(m *Manifest)) error {
	if err := l.place(fresh, path); err != nil {
		return err
	}
	err := l.change(func(m *Manifest) {
		for _, s := range old {
			if at, there := m.find(s.base); there && m.Segments[at].file() == s.ref() {
				m.Segments = slices.Delete(m.Segments, at, at+1)
			}
			m.drop(s.ref())
		}
		m.insert(fresh)
		if more != nil {
			more(m)
		}
	})
	if err != nil {
		return l.unplace(fresh, err)
	}
	l.mu.Lock()
	if i := slices.Index(l.segments, old[0]); i >= 0 {
		l.segments = slices.Replace(l.segments, i, i+len(old), fresh)
	}
	l.generation = max(l.generation, fresh.gen)
	l.mu.Unlock()
	return l.remove(old...)
}

// place gives a file the name of a segment of the next generation.
func (l *Log) place(fresh *segment, path string) error {
	fresh.gen = l.man.now.Load().Generation + 1
	fresh.checkedNow()
	fresh.path = filepath.Join(l.dir, fresh.ref().name())
	if err := l.disk.fs.Rename(path, fresh.path); err != nil {
		return err
	}
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// unplace removes a file that was placed, as the manifest couldn't be changed. It has to be gone
// before the next switch, of which it would seem to be a part.
func (l *Log) unplace(fresh *segment, why error) error {
	if l.disk.Failed() != nil {
		return why
	}
	if err := l.disk.fs.Remove(fresh.path); err != nil {
		return errors.Join(why, err)
	}
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return errors.Join(why, l.disk.noticed(&syncError{err}))
	}
	return why
}

// insert lists a segment that a switch brings.
func (m *Manifest) insert(s *segment) {
	r := s.ref()
	if r.End = s.end; !s.closed {
		r.End = 0
	}
	at, there := m.find(r.Base)
	if there {
		m.drop(m.Segments[at])
		m.Segments[at] = r
	} else {
		m.Segments = slices.Insert(m.Segments, at, r)
	}
	if at > 0 && m.Segments[at-1].End == 0 {
		m.Segments[at-1].End = r.Base
	}
	m.Generation = max(m.Generation, r.Generation)
}

// keep prepares to set aside what a truncation or reset to an offset takes of the records below
// committed: nil, if that is nothing. Files that go as a whole are in it; of the one that goes in
// part there is a copy already. admin is held, and nothing is appended.
func (l *Log) keep(from, committed uint64, reason string) (*Aside, error) {
	l.mu.Lock()
	committed, first := min(committed, l.end), max(from, l.start)
	var whole []SegmentRef
	var part *segment
	for _, s := range l.segments {
		switch {
		case s.end <= first || s.base >= committed || committed <= first:
		case s.base >= from:
			whole = append(whole, s.ref())
		default:
			part = s
		}
	}
	l.mu.Unlock()
	if len(whole) == 0 && part == nil {
		return nil, nil
	}
	dir, err := l.disk.makeAside(l.name)
	if err != nil {
		return nil, err
	}
	if part != nil {
		if err := l.copyAside(part, dir); err != nil {
			return nil, fmt.Errorf("what is to go was committed, and can't be kept: %w", err)
		}
	}
	return &Aside{Dir: filepath.Base(dir), From: first, Next: committed, Reason: brief(reason), Files: whole}, nil
}

// brief is a reason that isn't longer than a manifest has room for.
func brief(reason string) string { return reason[:min(len(reason), largestReason)] }

// copyAside copies a segment's file to a directory. What it holds below a cut is copied, too.
func (l *Log) copyAside(s *segment, dir string) error {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(s)
	return l.disk.copyFile(f, s.pos, filepath.Join(dir, s.ref().name()))
}

// copyFile makes a file of the first bytes of another one, safe but for its name.
func (d *Disk) copyFile(in env.File, size int64, path string) error {
	out, err := d.createAnew(path)
	if err != nil {
		return err
	}
	buf := make([]byte, scanWindow)
	err = out.Preallocate(size)
	for at := int64(0); at < size && err == nil; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-at)]
		if err = readFull(in, buf, at); err == nil {
			_, err = out.WriteAt(buf, at)
		}
	}
	if err == nil {
		if err = out.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = d.fs.SyncDir(filepath.Dir(path))
		if err != nil {
			err = &syncError{err}
		}
	}
	if err != nil && d.Failed() == nil {
		_ = d.fs.Remove(path) // what stays goes at the next opening, or stands beside what was set aside
	}
	return err
}

// moveAside moves the files of a piece to where it is set aside, and has the manifest forget that
// they were to be. admin is held.
func (l *Log) moveAside(a *Aside) error {
	if err := l.finishAside(a); err != nil {
		return err
	}
	if len(a.Files) == 0 {
		return nil
	}
	return l.change(func(m *Manifest) { m.forgetAside(a.Dir) })
}

// finishAside moves the files of a piece that are still in the log's directory.
func (l *Log) finishAside(a *Aside) error {
	dir := filepath.Join(l.disk.dir, setAsideDir, a.Dir)
	moved := false
	for _, r := range a.Files {
		err := l.disk.fs.Rename(filepath.Join(l.dir, r.name()), filepath.Join(dir, r.name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		moved = moved || err == nil
	}
	if !moved {
		return nil
	}
	for _, d := range []string{dir, l.dir} {
		if err := l.disk.fs.SyncDir(d); err != nil {
			return &syncError{err}
		}
	}
	return nil
}

func (m *Manifest) forgetAside(dir string) {
	for i := range m.Aside {
		if m.Aside[i].Dir == dir {
			m.Aside[i].Files = nil
		}
	}
}

// leave is a manifest's way to have what goes deleted, but for what is set aside.
func (m *Manifest) leave(gone []SegmentRef, a *Aside) {
	for _, r := range gone {
		if a == nil || !slices.Contains(a.Files, r.file()) {
			m.drop(r)
		}
	}
	if a != nil {
		m.Aside = append(m.Aside, *a)
	}
}

// path is where a piece is set aside, or "" if there is none.
func (l *Log) asidePath(a *Aside) string {
	if a == nil {
		return ""
	}
	return filepath.Join(l.disk.dir, setAsideDir, a.Dir)
}

// SetCopy keeps the state of this copy in the manifest, safely. It may have at most 1 KiB.
func (l *Log) SetCopy(state []byte) error {
	if encoded, err := opaque(state).MarshalJSON(); err != nil || len(encoded) > largestCopy {
		return fmt.Errorf("log %s: a copy's state may have %d bytes once it is encoded, and has %d", l.name, largestCopy, len(encoded))
	}
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.stillOpen(); err != nil {
		return err
	}
	return l.change(func(m *Manifest) { m.Copy = bytes.Clone(state) })
}

// Copy is what SetCopy has kept; nil if nothing was, or if it was lost (see Recovery.Rebuilt).
func (l *Log) Copy() []byte { return bytes.Clone(l.man.now.Load().Copy) }

// stillOpen says whether the log is still this one's to change: once it is closed, its directory
// may be another's.
func (l *Log) stillOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	return nil
}
