package log

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/carillon-mq/carillon/broker/env"
)

// recoverLast reads a segment that may be the log's last one, cuts a torn tail, and makes the rest
// durable. used is false if the segment has no records.
func (l *Log) recoverLast(s *segment, o *opening) (used bool, err error) {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return false, err
	}
	defer l.disk.handles.release(s)
	if c, ok := f.(sealed); ok {
		return l.recoverLastSealed(s, c, o)
	}
	floor := uint64(0)
	if o.m.Durable > s.base {
		floor = o.m.Durable
	}
	var found *scanned
	for tries := 0; ; tries++ {
		c := scanner{s: s, log: l.secret, last: true, floor: floor, ceiling: o.cut, points: l.disk.points}
		if found, err = c.scan(f); err != nil {
			return false, err
		}
		// Bytes behind the last sync point may be in the page cache only. A sync is not enough: if
		// an earlier one failed, their pages are clean but not on the disk.
		err = rewrite(f, s, found)
		if !errors.Is(err, errChanged) || tries == rewriteTries {
			break
		}
	}
	if err != nil {
		return false, err
	}
	for _, d := range found.damages {
		l.recovery.suspect("%s is damaged at byte %d: %s", s.path, d.pos, d.reason)
		l.damaged(s.path, d)
		s.bad = true
	}
	if found.cut && found.cutBytes > 0 {
		l.recovery.Cut += found.cutBytes
		l.recovery.Kept = l.keepTorn(s, f, found)
		l.recovery.suspect("%d bytes of a write that was under way were cut from %s at byte %d (%s)", found.cutBytes, s.path, found.cutAt, found.reason)
	}
	if !found.header && found.batches == 0 && len(found.damages) == 0 {
		return false, nil
	}
	sealed := false
	if !found.cut && !found.open && len(found.damages) == 0 {
		// The footer's frame is valid. The crash may have interrupted the rest of sealing.
		if sealed, err = l.sealedSafely(f, s, floor); err != nil {
			return false, err
		}
	}
	unsealed := !sealed && !found.open && len(found.damages) == 0
	if found.cut || unsealed {
		if err := f.Truncate(s.pos); err != nil {
			return false, err
		}
		s.size = s.pos
	}
	if s.file == 0 {
		s.size = s.pos // an earlier version wrote this file, without runs
	}
	// All recovered bytes must be durable before anything is appended. Cut bytes must not return
	// behind the bytes that replace them.
	if found.cut || unsealed || found.proven < s.pos {
		if err := f.Sync(); err != nil {
			return false, &syncError{err}
		}
		if err := l.disk.fs.SyncDir(l.dir); err != nil {
			return false, &syncError{err}
		}
	}
	s.written, s.synced = s.pos, s.pos
	if found.proven < s.pos {
		l.rewritten = true
	}
	s.closed = sealed || !found.cut && !found.open && !unsealed
	if s.closed {
		s.lookup.Store(&lookup{index: s.index, pos: s.pos, damages: found.damages, whole: true})
		s.index = nil
	}
	return true, nil
}

// sealedSafely reports whether a segment has a valid footer that is known to be synced. Any other
// footer is cut off and written again: it, or the file's length, may be in the page cache only.
func (l *Log) sealedSafely(f env.File, s *segment, floor uint64) (bool, error) {
	if s.end >= floor && l.disk.mark == nil {
		return false, nil
	}
	_, err := (&segment{base: s.base, path: s.path, end: s.end}).readFooter(f, l.secret)
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return false, err
	}
	return err == nil, nil
}

// errChanged means that two reads of a file returned different bytes: between them, the kernel
// dropped a page that a failed sync had left clean, and read it from the disk again.
var errChanged = errors.New("the file isn't read any more as it was a moment ago")

// rewriteTries bounds how often a file is read again after errChanged. Each time it is shorter,
// unless the machine is at fault.
const rewriteTries = 3

// rewrite reads, checks and writes again all frames of a scanned segment behind its last sync
// point. The caller syncs the file.
//
// They are written in place. A crash leaves each sector old or new; the sector that also has the
// last proven bytes is written as every append writes it. Rejected: copying the tail to a new file
// and switching to it. That needs space, which a full disk doesn't have, and for each log in use at
// the time of the kill a manifest, a name and two more files.
func rewrite(f env.File, s *segment, found *scanned) error {
	if found.proven >= s.pos {
		return nil
	}
	r, err := newFrames(f)
	if err != nil {
		return err
	}
	pos, damages := found.proven, found.damages
	var buf []byte
	flush := func() error {
		n, err := f.WriteAt(buf, pos-int64(len(buf)))
		if err == nil && n < len(buf) {
			err = fmt.Errorf("%s: %d of %d bytes were written again", filepath.Base(s.path), n, len(buf))
		}
		buf = buf[:0]
		return err
	}
	for pos < s.pos {
		for len(damages) > 0 && damages[0].until <= pos {
			damages = damages[1:]
		}
		if len(damages) > 0 && damages[0].pos <= pos {
			if err := flush(); err != nil {
				return err
			}
			pos = damages[0].until
			continue
		}
		fr, err := r.next(pos)
		if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
			return err
		}
		if err != nil || pos+int64(len(fr)) > s.pos {
			return fmt.Errorf("%s at byte %d: %w", s.path, pos, errChanged)
		}
		buf = append(buf, fr...)
		if pos += int64(len(fr)); len(buf) >= scanWindow {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
