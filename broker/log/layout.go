package log

import (
	"math"
	"sort"

	"github.com/carillon-mq/carillon/broker/env"
)

// Layout changes whenever the list of a log's segments does: when the log begins elsewhere, when a
// segment begins, and with each switch. It also changes when the log disowns records.
type Layout struct {
	Start      uint64
	Segments   int
	Generation uint64
	Cuts       uint64
	Disowned   uint64 // offsets
}

// SegmentState is one version of a segment's file, and which records it holds.
type SegmentState struct {
	Base, Generation uint64
	End              uint64 // offset after the last record
	// Epoch is that of the last record. Each epoch has one leader, which gives an offset to one
	// record. So two versions that end alike, in the same epoch, were copied from one history.
	Epoch  uint64
	Holes  uint64 // offsets without a record
	Sealed bool   // complete, synced and closed to appends
	// Disowned is how many offsets can't be read any more (Log.Disown).
	Disowned uint64
	Bytes    int64 // of its file, without the footer
}

// Layout returns the layout of the log's segments at this moment.
func (l *Log) Layout() Layout {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.layout()
}

// layout is Layout with mu held.
func (l *Log) layout() Layout {
	return Layout{
		Start: l.start, Segments: len(l.segments), Generation: l.generation, Cuts: l.cuts,
		Disowned: l.man.now.Load().disowned(Span{Next: math.MaxUint64}),
	}
}

// disowned returns how many offsets of a span are disowned.
func (m *Manifest) disowned(in Span) (n uint64) {
	for _, d := range m.Disowned {
		if from, next := max(d.From, in.From), min(d.Next, in.Next); from < next {
			n += next - from
		}
	}
	return n
}

// SegmentStates returns the segments, oldest first, and the layout that they are. The last one may
// be empty.
func (l *Log) SegmentStates() (Layout, []SegmentState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SegmentState, 0, len(l.segments))
	for _, s := range l.segments {
		epoch := uint64(0)
		if i := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].Start >= s.end }); i > 0 {
			epoch = l.epochs[i-1].Epoch
		}
		out = append(out, SegmentState{
			Base: s.base, Generation: s.gen, End: s.end, Epoch: epoch, Holes: s.holes,
			Sealed:   s.closed && s.index == nil && s != l.active && s.end <= l.durable,
			Disowned: l.man.now.Load().disowned(Span{From: s.base, Next: s.end}),
			Bytes:    s.bytes(),
		})
	}
	return l.layout(), out
}

// BytesBetween estimates how many bytes the records from an offset up to, not including, another
// one take on the disk: all records of a segment count alike.
func (l *Log) BytesBetween(from, to uint64) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segments) - 1; i >= 0 && l.segments[i].end > from; i-- {
		s := l.segments[i]
		if a, b := max(from, s.base), min(to, s.end); a < b {
			sum += int64(float64(s.bytes()) * float64(b-a) / float64(s.end-s.base))
		}
	}
	return sum
}

// Dir returns the log's directory. Files of other names than the log's own may stand in it: they
// move with the log, and are deleted with it.
func (l *Log) Dir() string { return l.dir }

// Secret returns the secret number of the log, which no client knows.
func (l *Log) Secret() uint64 { return l.secret }

// FS returns the file system of the disk.
func (d *Disk) FS() env.FS { return d.fs }
