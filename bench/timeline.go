package bench

import (
	"math/bits"
	"sync/atomic"
)

// timelineSlots is into how many parts the measured time is divided.
const timelineSlots = 60

// The buckets of a slot: 16 to each power of two, so a percentile is right to 6 %, which is less
// than a pixel of a picture; up to 73 minutes.
const (
	slotBits    = 4
	slotBuckets = 43 << slotBits
)

// A timeline has latencies by the time at which they began. Any goroutine may record; a nil one
// records nothing. It takes 160 KiB, however many are recorded.
type timeline struct {
	from  atomic.Int64 // 0: nothing counts yet
	span  int64
	slots []timelineSlot
}

type timelineSlot struct {
	counts [slotBuckets]atomic.Uint32
	max    atomic.Int64
}

// newTimeline returns one for so many nanoseconds; begin says from when on.
func newTimeline(span int64) *timeline {
	return &timeline{span: max(span, timelineSlots), slots: make([]timelineSlot, timelineSlots)}
}

func (t *timeline) begin(from int64) *timeline {
	t.from.Store(from)
	return t
}

// record enters what began at a time and took so long.
func (t *timeline) record(began, took int64) {
	if t == nil {
		return
	}
	from := t.from.Load()
	if from == 0 || began < from || began >= from+t.span {
		return
	}
	s := &t.slots[int(float64(began-from)/float64(t.span)*float64(len(t.slots)))]
	took = max(took, 0)
	s.counts[slotBucket(took)].Add(1)
	for old := s.max.Load(); took > old && !s.max.CompareAndSwap(old, took); old = s.max.Load() {
	}
}

func slotBucket(ns int64) int {
	v := uint64(ns)
	if v < 1<<slotBits {
		return int(v)
	}
	shift := bits.Len64(v) - slotBits - 1
	return min((shift+1)<<slotBits+int(v>>shift)&(1<<slotBits-1), slotBuckets-1)
}

// slotValue returns the middle of a bucket.
func slotValue(bucket int) int64 {
	if bucket < 1<<slotBits {
		return int64(bucket)
	}
	shift := bucket>>slotBits - 1
	low := int64(1<<slotBits+bucket&(1<<slotBits-1)) << shift
	return low + int64(1)<<shift/2
}

// A LatencyPoint is the latencies that began in one part of the measured time.
type LatencyPoint struct {
	At    int64 `json:"at_ns"` // the middle of the part, since the measurement began
	Count int64 `json:"count"`
	P50   int64 `json:"p50_ns"`
	P99   int64 `json:"p99_ns"`
	Max   int64 `json:"max_ns"`
}

// points leaves out parts in which nothing began.
func (t *timeline) points() (list []LatencyPoint) {
	if t == nil {
		return nil
	}
	for i := range t.slots {
		s := &t.slots[i]
		p := LatencyPoint{At: int64((float64(i) + 0.5) / float64(len(t.slots)) * float64(t.span)), Max: s.max.Load()}
		for b := range s.counts {
			p.Count += int64(s.counts[b].Load())
		}
		if p.Count == 0 {
			continue
		}
		at := func(q float64) int64 {
			rank, seen := int64(q*float64(p.Count-1)), int64(0)
			for b := range s.counts {
				if seen += int64(s.counts[b].Load()); seen > rank {
					return min(slotValue(b), p.Max)
				}
			}
			return p.Max
		}
		p.P50, p.P99 = at(0.50), at(0.99)
		list = append(list, p)
	}
	return list
}
