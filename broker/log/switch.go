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

// A switch changes the set of files that are the log: a truncation, a reset, a compaction, a
// compression or a repair.
//
//  1. New files are complete and durable, under their own names, before the manifest lists them.
//  2. Old files are removed, or set aside, after the manifest has dropped them. Until that is done,
//     the manifest lists them as gone or to be set aside.
//
// So a crash leaves the log from before or after the switch.

// change applies f to a copy of the manifest, and durably replaces the manifest by it. Neither mu
// nor the disk's mu is held.
func (l *Log) change(f func(m *Manifest)) error {
	l.man.mu.Lock()
	defer l.man.mu.Unlock()
	// Checked under man.mu, which the committer holds while it syncs: if that sync failed, the
	// manifest must not list its segments.
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

// sweepFrom is how many removed files the manifest lists before a sync of the directory makes their
// removal durable.
const sweepFrom = 32

// sweep removes files from Gone once their removal is durable. man.mu is held.
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

// remove deletes the files of segments that the manifest has dropped or lists as gone.
func (l *Log) remove(gone ...*segment) (err error) {
	for _, s := range gone {
		l.disk.handles.forget(s)
		err = errors.Join(err, l.removeFile(s.ref()))
	}
	return err
}

// removeFile deletes the file of a segment, if it exists.
func (l *Log) removeFile(r SegmentRef) error {
	if err := l.disk.fs.Remove(filepath.Join(l.dir, r.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.mu.Lock()
	l.removed = append(l.removed, r.file())
	l.mu.Unlock()
	return nil
}

// swap replaces neighbouring segments by fresh, whose complete and durable file is at path. It sets
// the generation and the name of the file. more changes the rest of the manifest; it may be nil.
// Readers of an old file continue to read it. admin is held.
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
	defer l.sweepBeside()
	return l.remove(old...)
}

// place renames a file to a segment of the next generation.
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

// unplace removes a placed file after the manifest could not be changed. Otherwise the file would
// have the generation of the next switch.
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

// insert adds a segment that a switch has made.
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

// keep prepares to set aside the records below committed that a truncation or reset to from
// removes. It returns nil if there are none. Files that are removed as a whole are listed in the
// result. A file that is cut is copied at once. admin is held, and nothing is appended.
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
	a, err := l.beginAside(Aside{From: first, Next: committed, Reason: brief(reason), Files: whole})
	if err != nil {
		return nil, err
	}
	if part != nil {
		if err := l.copyAside(part, l.asidePath(a)); err != nil {
			return nil, fmt.Errorf("what is to go was committed, and can't be kept: %w", err)
		}
	}
	return a, nil
}

// brief cuts a reason to largestReason bytes.
func brief(reason string) string { return reason[:min(len(reason), largestReason)] }

// copyAside copies a segment's whole file to a directory, including the part before a cut.
func (l *Log) copyAside(s *segment, dir string) error {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(s)
	return l.disk.copyFile(f, s.pos, filepath.Join(dir, s.ref().name()))
}

// copyFile copies the first bytes of a file to a new one and syncs it and its directory.
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
		_ = d.fs.Remove(path) // if this fails, the next opening removes it, or it stays set aside
	}
	return err
}

// moveAside moves the files of a to their directory, and then drops them from the manifest. admin
// is held.
func (l *Log) moveAside(a *Aside) error {
	if err := l.finishAside(a); err != nil {
		return err
	}
	if len(a.Files) == 0 {
		return nil
	}
	return l.change(func(m *Manifest) { m.forgetAside(a.Dir) })
}

// finishAside moves those files of a that are still in the log's directory. It makes the directory
// of a again if somebody deleted it: files that stayed would seem to be the log's once the manifest
// has forgotten a.
func (l *Log) finishAside(a *Aside) error {
	if len(a.Files) == 0 {
		return nil
	}
	dir := l.asidePath(a)
	if _, err := l.disk.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := l.disk.makeDirAside(dir); err != nil {
			return err
		}
	}
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

// forgetAside records that all files of a piece have been moved to the set-aside directory dir.
func (m *Manifest) forgetAside(dir string) {
	for i := range m.Aside {
		if m.Aside[i].Dir == dir {
			m.Aside[i].Files = nil
		}
	}
}

// leave lists segments as gone, except those that a sets aside.
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

// asidePath returns the directory of a, or "" if a is nil.
func (l *Log) asidePath(a *Aside) string {
	if a == nil {
		return ""
	}
	return filepath.Join(l.disk.dir, setAsideDir, a.Dir)
}

// SetCopy durably writes the state of this copy, at most 1 KiB, to the manifest.
func (l *Log) SetCopy(state []byte) error {
	if err := checkCopy(l.name, state); err != nil {
		return err
	}
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.stillOpen(); err != nil {
		return err
	}
	return l.change(func(m *Manifest) { m.Copy = bytes.Clone(state) })
}

// checkCopy returns an error if a state is too large for the manifest of the named log.
func checkCopy(log string, state []byte) error {
	if encoded, err := opaque(state).MarshalJSON(); err != nil || len(encoded) > largestCopy {
		return fmt.Errorf("log %s: a copy's state may have %d bytes once it is encoded, and has %d", log, largestCopy, len(encoded))
	}
	return nil
}

// Copy returns the state of this copy: what SetCopy wrote last, or else FirstCopy; nil: there is
// none. If the manifest was lost (Recovery.Rebuilt), what SetCopy wrote was lost, too.
func (l *Log) Copy() []byte { return bytes.Clone(l.man.now.Load().Copy) }

// stillOpen returns ErrClosed if the log is closed: its directory may then belong to another Log.
func (l *Log) stillOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	return nil
}
