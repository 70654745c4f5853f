package log

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Stats are counters and gauges of one log.
type Stats struct {
	Start, End, Durable     uint64
	Segments                int
	Bytes                   int64  // on the disk, in segments
	Compressed              int    // segments
	Saved                   int64  // bytes saved by compression
	Holes                   uint64 // offsets without a record, left by compaction
	MemoryBytes             int64  // in the tail
	Appended, AppendedBytes uint64
	Refused                 uint64 // appends refused for lack of space
	Deleted                 uint64 // segments
	Corrupt                 uint64 // reads that met damage
	Failed                  error
}

// Stats returns the log's counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Start, s.End, s.Durable, s.Segments, s.Failed = l.start, l.end, l.durable, len(l.segments), l.failed
	for _, seg := range l.segments {
		s.Holes += seg.holes
		s.Bytes += cmp.Or(seg.stored, seg.size)
		if seg.stored > 0 {
			s.Compressed++
			s.Saved += seg.size - seg.stored
		}
	}
	for _, c := range l.tail {
		s.MemoryBytes += int64(cap(c.buf))
	}
	return s
}

// diskStats are counted by the committer.
type diskStats struct {
	rounds, files, syncAlls atomic.Uint64
	nanoseconds             atomic.Int64
}

func (d *diskStats) synced(all bool, files int, took time.Duration) {
	d.rounds.Add(1)
	d.nanoseconds.Add(int64(took))
	if all {
		d.syncAlls.Add(1)
	} else {
		d.files.Add(uint64(files))
	}
}

// DiskStats are counters and gauges of one disk.
type DiskStats struct {
	Logs        int
	Backlog     int64 // bytes that wait to be written
	Rounds      uint64
	FileSyncs   uint64
	SyncAlls    uint64
	SyncSeconds float64
	Failed      error
}

// Stats returns the disk's counters.
func (d *Disk) Stats() DiskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return DiskStats{Logs: len(d.logs), Backlog: d.backlog.Load(), Rounds: d.stats.rounds.Load(), FileSyncs: d.stats.files.Load(),
		SyncAlls: d.stats.syncAlls.Load(), SyncSeconds: time.Duration(d.stats.nanoseconds.Load()).Seconds(), Failed: d.failed}
}
