package log

import "fmt"

// ResetTo empties the log and lets it begin at start, which may be before or behind where it was:
// what a follower does that has nothing in common with what its leader retains. Holds, epochs and
// what recovery found are void by it, and what was there is deleted; to keep it, close the log and
// set it aside. Readers find a *RangeError, or what is appended next. The leader's first batch may begin
// before its start (see BatchBase), and then that is where a copy has to begin.
//
// What is to happen stands in meta.json before the first file goes. So a crash leaves the log as it
// was or, once it is opened again, an empty one that begins at start.
func (l *Log) ResetTo(start uint64) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	l.settle()
	if err := l.writable(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.mu.Unlock()
	if err := l.reset(max(start, 1)); err != nil {
		return fmt.Errorf("log %s: reset to %d: %w", l.name, start, l.disk.noticed(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.holds)
	l.recovery = Recovery{}
	return nil
}

// reset is ResetTo without what is the caller's: what truncating to the log's start does as well. admin is held.
func (l *Log) reset(start uint64) error {
	m := l.meta
	m.Reset, m.Cut, m.Clean = start, 0, 0
	if err := l.saveMeta(m); err != nil {
		return err
	}
	l.mu.Lock()
	l.settle()
	l.cuts++
	l.dropTail()
	l.chunkSize = smallestChunk
	for _, s := range l.segments {
		l.disk.handles.forget(s)
	}
	l.stats.Deleted += uint64(len(l.segments))
	l.segments, l.active, l.epochs = nil, nil, nil
	l.start, l.end, l.durable = start, start, start
	l.mu.Unlock()
	if err := l.finishReset(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.broken(err)
	}
	return nil
}

// finishReset deletes what a reset is to delete and, when that is safe, forgets that there is one
// under way. admin is held, or nobody knows the log yet.
func (l *Log) finishReset() error {
	bases, err := l.bases()
	if err != nil {
		return err
	}
	for _, base := range bases {
		if err := l.disk.fs.Remove(newSegment(l.dir, base).path); err != nil {
			return err
		}
	}
	// A file that came back would stand where the new ones are to be.
	if err := l.disk.fs.SyncDir(l.dir); err != nil {
		return &syncError{err}
	}
	m := l.meta
	m.Start, m.Durable, m.Reset, m.Merge, m.MergeEnd, m.Bad = m.Reset, m.Reset, 0, 0, 0, nil
	return l.saveMeta(m)
}
