package log

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/env"
)

// opening is the state of opening a log. No other goroutine uses the log yet.
type opening struct {
	m     *Manifest     // the next manifest
	files []SegmentRef  // segment files in the directory, sorted by base and generation
	gone  []SegmentRef  // files to delete once the manifest is durable
	aside []SegmentRef  // files to set aside
	cut   uint64        // offset of an unfinished truncation of version 1; 0: none
	write bool          // the manifest file is to be created
	named bool          // the directory has meta.json
	name  bool          // meta.json is to be written
	made  bool          // the log is new
	lost  *CorruptError // why the manifest file can't be read
}

// there reports whether the directory contains the file of a segment.
func (o *opening) there(r SegmentRef) bool { return slices.Contains(o.files, r.file()) }

// open reads the log's directory, or creates it. It first judges the files, then writes the
// manifest, then removes files. After a crash at any step the next opening repeats all steps.
func (l *Log) open(start, epoch uint64, spec []byte, first FirstCopy) error {
	l.man.fsys, l.man.dir, l.man.mu = l.disk.fs, l.dir, newGate()
	o := &opening{}
	if err := l.readFiles(o); err != nil {
		return err
	}
	if err := l.readWhich(o, start, epoch, spec, first); err != nil {
		return err
	}
	if m := o.m; m.Topic != l.id.Topic || m.Shard != l.id.Shard || m.Part != l.id.Part {
		return fmt.Errorf("its directory belongs to %s-%d%s; set it aside", m.Topic, m.Shard, m.Part)
	}
	before := o.m.clone()
	l.secret, l.start, l.generation = o.m.Log, o.m.Start, o.m.Generation
	for i := range o.m.Aside {
		if err := l.finishAside(&o.m.Aside[i]); err != nil {
			return err
		}
		o.files = slices.DeleteFunc(o.files, func(r SegmentRef) bool { return slices.Contains(o.m.Aside[i].Files, r) })
		o.m.Aside[i].Files = nil
	}
	if err := l.adoptFiles(o); err != nil {
		return err
	}
	if err := l.readSegments(o); err != nil {
		return err
	}
	l.recallWatermark(o.m)
	if err := l.lookAtBad(o.m); err != nil {
		return err
	}
	if err := l.setFilesAside(o); err != nil {
		return err
	}
	if l.active == nil {
		o.m.endAt(l.lastBelow(l.start)) // dropBelowStart removes its file
	}
	o.m.tidy()
	if err := l.writeOpened(o, before); err != nil {
		return err
	}
	l.mu.Lock()
	l.generation = o.m.Generation
	l.mu.Unlock()
	for _, r := range o.gone {
		if err := l.removeFile(r); err != nil {
			return err
		}
	}
	if len(o.gone) > 0 { // a crash must not bring one back with the next generation
		if err := l.disk.fs.SyncDir(l.dir); err != nil {
			return &syncError{err}
		}
	}
	err := l.dropBelowStart()
	l.sweepBeside()
	return err
}

// writeOpened writes the manifest and meta.json if opening the log has changed them.
func (l *Log) writeOpened(o *opening, before *Manifest) error {
	if o.lost != nil {
		if err := l.disk.fs.Rename(o.lost.File, o.lost.File+".damaged"); err != nil {
			return err
		}
	}
	if o.made {
		return l.writeNew(o)
	}
	switch {
	case o.write:
		if err := l.man.create(o.m); err != nil {
			return err
		}
	case !reflect.DeepEqual(before, o.m):
		if err := l.change(func(m *Manifest) { *m = *o.m }); err != nil {
			return err
		}
	}
	if o.name {
		if err := writeIdentity(l.disk.fs, l.dir, o.m.identity()); err != nil {
			return err
		}
		if err := l.disk.fs.SyncDir(l.dir); err != nil {
			return &syncError{err}
		}
	}
	l.man.named = true
	return nil
}

// writeNew writes the two files of a new log. One sync of the directory makes both names durable.
func (l *Log) writeNew(o *opening) error {
	if err := writeIdentity(l.disk.fs, l.dir, o.m.identity()); err != nil {
		return err
	}
	l.man.named = true
	if err := l.man.create(o.m); err != nil {
		return err
	}
	// Last, since a file system with a journal has nothing left to commit then.
	if err := l.disk.fs.SyncDir(l.disk.logDir("")); err != nil {
		return &syncError{err}
	}
	return nil
}

// readFiles lists the segment files, and removes unfinished ones.
func (l *Log) readFiles(o *opening) error {
	names, err := l.disk.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.readBeside(names)
	for _, name := range names {
		r, ok := segmentFile(name)
		switch {
		case ok:
			o.files = append(o.files, r)
		case name == metaName:
			o.named = true
		case strings.Contains(name, segmentEnd+"."), name == manifestNew, strings.HasPrefix(name, manifestName) && strings.HasSuffix(name, ".room"):
			if err := l.disk.fs.Remove(filepath.Join(l.dir, name)); err != nil {
				return err
			}
		case strings.HasSuffix(name, segmentEnd):
			l.recovery.suspect("%s/%s is no segment's name", l.dir, name)
			l.recovery.Strange = true
		}
	}
	slices.SortFunc(o.files, func(a, b SegmentRef) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Generation, b.Generation))
	})
	return nil
}

// readWhich reads the manifest. It first converts a meta.json of version 1, if there is one. If the
// manifest is invalid, it rebuilds it from the segments.
func (l *Log) readWhich(o *opening, start, epoch uint64, spec []byte, first FirstCopy) error {
	found, at, err := readManifest(l.disk.fs, l.dir)
	if err == nil && found.Named && o.named {
		return l.believe(o, found, at)
	}
	id, idErr := readIdentity(l.disk.fs, l.dir)
	var damagedID, damaged *CorruptError
	if idErr != nil && !errors.Is(idErr, fs.ErrNotExist) && !errors.As(idErr, &damagedID) {
		return idErr
	}
	if id != nil && id.Version == metaSole {
		return l.convert(o, id)
	}
	o.name = id == nil
	switch {
	case err == nil:
		if err := l.believe(o, found, at); err != nil {
			return err
		}
		if damagedID != nil {
			l.recovery.Reason = damagedID.Error() + "; it was made again from the manifest"
		}
		return nil
	case errors.As(err, &damaged):
	case !errors.Is(err, fs.ErrNotExist):
		return l.disk.noticed(err)
	}
	o.write = true
	// The first record is written only after the manifest and then meta.json are durable.
	if len(o.files) == 0 && (damaged == nil || errors.Is(idErr, fs.ErrNotExist)) && damagedID == nil {
		o.m, o.made = newManifest(l.id, start, epoch, spec, first.Made), true
		o.name = true // its write makes the names of both files durable
		if id != nil {
			o.m.Log = id.Log
		}
		return l.disk.fs.MkdirAll(l.dir)
	}
	switch {
	case damaged == nil && damagedID != nil:
		damaged = damagedID
		o.lost = damagedID
	case damaged == nil && id == nil:
		return fmt.Errorf("%s has segments, no %s and no %s; set it aside", l.dir, manifestName, metaName)
	case damaged == nil:
		damaged = &CorruptError{File: l.man.path(), Reason: "it is not there"}
	default:
		o.lost = damaged
	}
	return l.rebuild(o, damaged, id, newManifest(l.id, 1, epoch, spec, first.Rebuilt))
}

// believe uses a manifest that was read.
func (l *Log) believe(o *opening, found *Manifest, at slotAt) error {
	if err := l.man.adopt(found, at); err != nil {
		return l.disk.noticed(err)
	}
	o.m = l.man.now.Load().clone()
	return nil
}

// newManifest returns the manifest of a new log.
func newManifest(id Identity, start, epoch uint64, spec, state []byte) *Manifest {
	return &Manifest{Topic: id.Topic, Shard: id.Shard, Part: id.Part, Spec: spec, Copy: state, Epoch: epoch, Start: start, Durable: start, Log: newSecret()}
}

// convert reads a log of a broker of version 018b7c1 or earlier. Until meta.json is replaced by
// version 2, the old one has precedence: a crash repeats the conversion, and a manifest that exists
// is of an unfinished conversion.
func (l *Log) convert(o *opening, old *identityFile) error {
	o.m, o.write, o.name = old.manifest(), true, true
	m := o.m
	for _, r := range o.files {
		if r.Generation > 0 {
			o.gone = append(o.gone, r)
			continue
		}
		m.Segments = append(m.Segments, r)
	}
	o.files = slices.Clone(m.Segments)
	gone := func(r SegmentRef) {
		m.drop(r)
		m.Generation = 1 // so that no name is used twice
	}
	switch {
	case old.Reset > 0:
		for _, r := range m.Segments {
			gone(r)
		}
		m.Start, m.Durable, m.Clean, m.Segments, m.Bad = old.Reset, old.Reset, 0, nil, nil
	case old.Cut > 0:
		for n := len(m.Segments); n > 0 && m.Segments[n-1].Base >= old.Cut; n-- {
			gone(m.Segments[n-1])
			m.Segments = m.Segments[:n-1]
		}
		o.cut = old.Cut
	case old.Merge > 0:
		end, err := l.footerEnd(m.Log, SegmentRef{Base: old.Merge})
		if err != nil {
			return err
		}
		if end != old.MergeEnd {
			break // the merge was not finished
		}
		m.Segments = slices.DeleteFunc(m.Segments, func(r SegmentRef) bool {
			merged := r.Base > old.Merge && r.Base < old.MergeEnd
			if merged {
				gone(r)
			}
			return merged
		})
	}
	o.gone = append(o.gone, m.Gone...)
	return nil
}

// footerEnd returns the end of a segment that its footer says, or 0 if it has no valid footer or no
// file.
func (l *Log) footerEnd(log uint64, r SegmentRef) (uint64, error) {
	s := newSegment(l.dir, r)
	f, err := openSegment(l.disk.fs, s.path, &l.disk.handles.cache)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s.end = 0 // no footer has this end, so reading a valid one returns a *shortError
	_, err = s.readFooter(f, log)
	err = errors.Join(err, f.Close())
	if short, ok := errors.AsType[*shortError](err); ok {
		return short.end, nil
	}
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return 0, err
	}
	return 0, nil
}

// rebuild completes m, the manifest of a log without segments, from the segments, and keeps the
// damaged one beside it. The former state of the copy is lost, and records that were trimmed within
// the first segment are back, so the log is suspect.
func (l *Log) rebuild(o *opening, damaged *CorruptError, id *identityFile, m *Manifest) error {
	known := id != nil
	if known {
		m.Topic, m.Shard, m.Part, m.Log = id.Topic, id.Shard, id.Part, id.Log
	}
	for i := 0; i < len(o.files) && !known; i++ {
		log, err := l.headerLog(o.files[i])
		if err != nil {
			return err
		}
		if known = log != 0; known {
			m.Log = log
		}
	}
	if !known && len(o.files) > 0 {
		return fmt.Errorf("%w, and no segment says which log it is; set it aside", damaged)
	}
	end := uint64(0)
	for i, r := range o.files {
		switch {
		case i+1 < len(o.files) && o.files[i+1].Base == r.Base, r.Base < end:
			o.aside = append(o.aside, r) // a later generation has its records
			continue
		}
		var err error
		if end, err = l.footerEnd(m.Log, r); err != nil {
			return err
		}
		m.Segments = append(m.Segments, r)
		m.Generation = max(m.Generation, r.Generation)
	}
	if len(m.Segments) > 0 {
		m.Start = m.Segments[0].Base
		m.Durable = m.Start
	}
	m.Rebuilt = true
	o.m = m
	l.recovery.suspect("%s was damaged (%s) and made again from the segments", damaged.File, damaged.Reason)
	l.recovery.Rebuilt, l.recovery.Strange = true, true
	return nil
}

// headerLog returns the secret of the log in the header of a segment file; 0: it has no header.
func (l *Log) headerLog(r SegmentRef) (uint64, error) {
	f, err := openSegment(l.disk.fs, filepath.Join(l.dir, r.name()), &l.disk.handles.cache)
	if err != nil {
		return 0, err
	}
	head := make([]byte, headerSize)
	if err := errors.Join(readFull(f, head, 0), f.Close()); err != nil {
		return 0, nil
	}
	h, err := parseFrame(head)
	if err != nil || h.kind() != kindHeader {
		return 0, nil
	}
	return h.log(), nil
}

// adoptFiles judges the files that the manifest doesn't list as segments.
//
//  1. A file that the manifest lists as gone is deleted.
//  2. A file of a later generation than the manifest's was made for a switch that never happened:
//     it is deleted.
//  3. A file that begins where the log's last segment ends was written by a round that the manifest
//     doesn't list: it becomes a segment.
//  4. Any other file is deleted if it is empty, and otherwise set aside and reported.
func (l *Log) adoptFiles(o *opening) error {
	m := o.m
	known := func(r SegmentRef) bool {
		return slices.ContainsFunc(m.Segments, func(s SegmentRef) bool { return s.file() == r }) || slices.Contains(o.aside, r) || slices.Contains(o.gone, r)
	}
	for i, r := range o.files {
		switch {
		case known(r):
		case slices.Contains(m.Gone, r), r.Generation > m.Generation:
			o.gone = append(o.gone, r)
		case i+1 < len(o.files) && o.files[i+1].Base == r.Base && o.files[i+1].Generation <= m.Generation && !known(o.files[i+1]) && !slices.Contains(m.Gone, o.files[i+1]):
			o.aside = append(o.aside, r) // the later generation is judged
		default:
			follows, err := l.follows(o, r)
			if err != nil {
				return err
			}
			if follows {
				m.Segments = append(m.Segments, r)
				continue
			}
			log, err := l.headerLog(r)
			if err != nil {
				return err
			}
			if log != m.Log {
				o.gone = append(o.gone, r)
				continue
			}
			o.aside = append(o.aside, r)
			l.recovery.suspect("%s is a segment that the manifest doesn't name", filepath.Join(l.dir, r.name()))
			l.recovery.Strange = true
		}
	}
	return nil
}

// follows reports whether a file begins where the last listed segment ends.
func (l *Log) follows(o *opening, r SegmentRef) (bool, error) {
	n := len(o.m.Segments)
	if n == 0 {
		return r.Base == o.m.Durable, nil
	}
	last := o.m.Segments[n-1]
	if r.Base <= last.Base {
		return false, nil
	}
	if last.End > 0 {
		return r.Base == last.End, nil
	}
	if !o.there(last) {
		return r.Base == max(o.m.Durable, last.Base), nil
	}
	end, err := l.footerEnd(o.m.Log, last)
	// Without a footer the segment isn't sealed, and r is empty, or the footer is damaged.
	return end == 0 || r.Base == end, err
}

// setFilesAside moves the files in o.aside to the set-aside directory, and records that in the
// manifest.
func (l *Log) setFilesAside(o *opening) error {
	if len(o.aside) == 0 {
		return nil
	}
	a, err := l.beginAside(Aside{From: o.aside[0].Base, Reason: "not named by the manifest", Files: o.aside})
	if err != nil {
		return err
	}
	if err := l.finishAside(a); err != nil {
		return err
	}
	a.Files = nil
	o.m.Aside = append(o.m.Aside, *a)
	return nil
}
