package records

import (
	"math"
	"sync"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// passed returns the set of records that a read passes, or nil if none is removed.
func (s *Reader) passed() *removal.Set {
	if s.removed.Len() == 0 {
		return nil
	}
	return s.removed
}

// gaps are the holes of segments that also have removed offsets. Files lose the records that were
// removed, and the set may still name them: such an offset is missing once.
type gaps struct {
	counting sync.Mutex // held over reading; before mu

	mu       sync.Mutex
	segments map[uint64]segmentGaps // by base
}

// segmentGaps are the holes of one version of a segment.
type segmentGaps struct {
	generation, holes uint64
	set               *removal.Set
}

// of returns the holes of a segment, or nil if they are not known.
func (g *gaps) of(segment *log.SegmentState) *removal.Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.segments[segment.Base]
	if !ok || known.generation != segment.Generation || known.holes != segment.Holes {
		return nil
	}
	return known.set
}

// keep notes the holes of a segment, and forgets those of segments that are not in the log.
func (g *gaps) keep(segment *log.SegmentState, set *removal.Set, all []log.SegmentState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	segments := map[uint64]segmentGaps{segment.Base: {segment.Generation, segment.Holes, set}}
	for i := range all {
		if known, ok := g.segments[all[i].Base]; ok && all[i].Base != segment.Base {
			segments[all[i].Base] = known
		}
	}
	g.segments = segments
}

// missing returns the number of offsets from start up to, not including, end that have no record:
// holes and removed ones. Where a segment has both and its holes are not known yet, those that are
// fewer are taken for some of the others: files mostly lose what was removed. It does not read the
// disk.
func (s *Reader) missing(start, end uint64) (n uint64) {
	holes := s.data.Holes(start)
	if s.removed.Len() == 0 {
		return holes
	}
	removed := s.removed.Count(start, end)
	if removed == 0 || holes == 0 {
		return holes + removed
	}
	_, segments := s.data.SegmentStates()
	for i := range segments {
		if segments[i].Base > start {
			holes -= min(segments[i].Holes, holes) // what is left are those of the segment of start
		}
	}
	for i := range segments {
		g := &segments[i]
		from, to := max(g.Base, start), min(g.End, end)
		if from >= to {
			continue
		}
		removed, own := s.removed.Count(from, to), g.Holes
		if g.Base <= start {
			own = holes
		}
		own = min(own, to-from)
		known := s.gaps.of(g)
		switch {
		case own == 0 || removed == 0:
			n += own + removed
		case known != nil:
			n += s.removed.CountEither(known, from, to)
		default:
			n += max(own, removed)
		}
	}
	return n
}

// countGaps learns the holes of segments from start on that have both holes and removed offsets, of
// some segments at each call. It may read the disk. After an error they are not known.
func (s *Reader) countGaps(start uint64) {
	if s.removed.Len() == 0 || s.data.Holes(start) == 0 {
		return
	}
	s.gaps.counting.Lock()
	defer s.gaps.counting.Unlock()
	_, segments := s.data.SegmentStates()
	budget := int64(ReadAtOnce)
	for i := range segments {
		g := &segments[i]
		if g.End <= start || g.Holes == 0 || s.removed.Count(g.Base, g.End) == 0 || s.gaps.of(g) != nil {
			continue
		}
		if budget <= 0 {
			return
		}
		budget -= s.learnGaps(g, segments)
	}
}

// learnGaps reads the holes of a segment, and returns how many bytes it read. gaps.counting is
// held.
func (s *Reader) learnGaps(g *log.SegmentState, all []log.SegmentState) (bytes int64) {
	set, next := new(removal.Set), max(g.Base, s.data.Start())
	_, err := ScanBatches(s.data, next, g.End, math.MaxInt64, func(b log.Batch, _ uint64) (bool, error) {
		bytes += int64(len(b))
		it := b.Records()
		for r := (log.Record{}); it.Next(&r) && r.Offset < g.End; next = max(next, r.Offset+1) {
			set.Add(min(next, r.Offset), r.Offset)
		}
		return true, it.Err()
	})
	if err == nil {
		set.Add(next, g.End)
		s.gaps.keep(g, set, all)
	}
	return bytes
}

// Deleted returns offsets below the end of what readers see that have no record, in order, behind
// the first one that has one: at most some. It may read the disk. Of segments that are damaged, or
// too many to be read at once, only the removed ones are known.
func (s *Reader) Deleted(most int) (offsets []uint64) {
	info := s.Info()
	next, budget := info.First, int64(ReadAtOnce)
	s.gaps.counting.Lock()
	defer s.gaps.counting.Unlock()
	_, segments := s.data.SegmentStates()
	add := func(from, to uint64) bool {
		for from = max(from, next); from < to && len(offsets) < most; from++ {
			offsets = append(offsets, from)
		}
		next = max(next, to)
		return len(offsets) < most
	}
	for i := range segments {
		g := &segments[i]
		from, to := max(g.Base, info.First), min(g.End, info.Last+1)
		if from >= to || g.Holes == 0 && s.removed.Count(from, to) == 0 {
			continue
		}
		either := new(removal.Set)
		for a, b := range s.removed.Ranges(from, to) {
			either.Add(a, b)
		}
		if g.Holes > 0 && s.gaps.of(g) == nil && budget > 0 {
			budget -= s.learnGaps(g, segments)
		}
		if known := s.gaps.of(g); known != nil {
			for a, b := range known.Ranges(from, to) {
				either.Add(a, b)
			}
		}
		for a, b := range either.Ranges(from, to) {
			if !add(a, b) {
				return offsets
			}
		}
	}
	return offsets
}
