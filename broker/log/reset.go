package log

import (
	"fmt"
	"slices"
)

// ResetTo empties the log and begins it at start, which may be anywhere. A follower resets a log
// that has nothing in common with its leader's.
//
//  1. It voids holds, epochs and what recovery found.
//  2. Segments with records below committed are set aside, to the returned path. All others are
//     deleted. With committed 0, all are.
//  3. Readers get a *RangeError, or the records that are appended next.
//  4. The leader's first batch may begin before its start (see BatchBase). Then start is the
//     beginning of that batch.
//
// A crash leaves the log as it was, or empty and beginning at start. The caller appends nothing
// during the call.
func (l *Log) ResetTo(start, committed uint64) (aside string, err error) {
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	l.settle()
	if err := l.writable(); err != nil {
		l.mu.Unlock()
		return "", err
	}
	l.cutting = true
	l.mu.Unlock()
	defer l.endCutting()
	start = max(start, 1)
	aside, err = l.reset(start, committed, fmt.Sprintf("reset to %d; records below %d were committed", start, committed))
	if err != nil {
		return aside, fmt.Errorf("log %s: reset to %d: %w", l.name, start, l.disk.noticed(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.holds)
	l.recovery = Recovery{}
	return aside, nil
}

// reset empties the log, for ResetTo and for a truncation to the log's start. admin is held, and
// nothing is appended.
func (l *Log) reset(start, committed uint64, reason string) (aside string, err error) {
	if committed > l.Start() {
		if err := l.flush(); err != nil { // records that are set aside must be durable
			return "", err
		}
	}
	kept, err := l.keep(0, committed, reason)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	gone := slices.Clone(l.segments)
	l.mu.Unlock()
	err = l.change(func(m *Manifest) {
		files := m.Segments
		for _, s := range gone { // including segments that aren't listed yet
			files = append(files, s.ref())
		}
		m.leave(files, kept)
		m.Segments, m.Epochs, m.Bad, m.Disowned, m.Lost, m.Rebuilt = nil, nil, nil, nil, nil, false
		m.Start, m.Durable, m.Clean, m.Committed = start, start, 0, 0
		m.Generation++
	})
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	l.cuts++
	l.dropTail()
	l.chunkSize = smallestChunk
	l.stats.Deleted += uint64(len(gone))
	l.segments, l.active, l.epochs, l.segsNew, l.epochsNew = nil, nil, nil, nil, nil
	l.start, l.end, l.durable = start, start, start
	l.watermark.Store(0)
	l.generation = l.man.now.Load().Generation
	l.mu.Unlock()
	if err := l.leave(gone, kept); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.asidePath(kept), l.broken(err)
	}
	return l.asidePath(kept), nil
}
