package aggregate

import (
	"cmp"
	"math"
	"slices"
)

// quantiles is a sketch of the distribution of numbers: a histogram with 128 bins for each doubling
// of the magnitude, of which only those with numbers are kept. A bin is the upper bits of a
// float64, so no logarithm is rounded, and all machines agree.
//
// With more than maxBins bins each pair of neighbours becomes one, of all, as often as needed:
// level counts it. Which bins there are depends on the numbers alone, not on their order: a level
// is the first one at which the bins of all numbers are few enough.
type quantiles struct {
	level    int
	bins     []bin // by key, ascending
	count    uint64
	min, max float64
}

// bin counts the numbers of a key: 0 for zero, and else 1 + the bits of the magnitude at the
// level, with the sign of the numbers.
type bin struct {
	key   int32
	count uint64
}

// fineBits are the bits of a float64 below those that a bin of level 0 has: 7 of its fraction stay.
const fineBits = 52 - 7

// lastLevel has one bin for each sign, and zero.
const lastLevel = 64 - fineBits - 1

func keyOf(x float64, level int) int32 {
	k := int32(math.Float64bits(math.Abs(x))>>fineBits) >> level
	switch {
	case x > 0:
		return k + 1
	case x < 0:
		return -k - 1
	}
	return 0
}

// up returns the key of the bin that holds a bin so many levels above it.
func up(key int32, levels int) int32 {
	switch {
	case key > 0:
		return (key-1)>>levels + 1
	case key < 0:
		return -((-key-1)>>levels + 1)
	}
	return 0
}

// value returns the number that stands for a bin: its relative error is the smallest for the
// bin's worst number.
func (b *bin) value(level int) float64 {
	if b.key == 0 {
		return 0
	}
	k := uint64(max(b.key, -b.key) - 1)
	from := math.Float64frombits(k << level << fineBits)
	to := math.Float64frombits(min((k+1)<<level<<fineBits, math.Float64bits(math.MaxFloat64)))
	middle := from + (to-from)/(1+to/max(from, math.SmallestNonzeroFloat64))
	if b.key < 0 {
		return -middle
	}
	return middle
}

func (q *quantiles) add(x float64) {
	if q.count == 0 {
		q.min, q.max = x, x
	}
	q.count++
	q.min, q.max = min(q.min, x), max(q.max, x)
	q.put(keyOf(x, q.level), 1)
	q.shrink()
}

func (q *quantiles) put(key int32, n uint64) {
	i, there := slices.BinarySearchFunc(q.bins, key, func(b bin, key int32) int { return cmp.Compare(b.key, key) })
	if !there {
		q.bins = slices.Insert(q.bins, i, bin{key: key})
	}
	q.bins[i].count += n
}

// shrink goes to the first level with few enough bins.
func (q *quantiles) shrink() {
	for len(q.bins) > maxBins && q.level < lastLevel {
		q.raise(1)
	}
}

func (q *quantiles) raise(levels int) {
	if levels == 0 {
		return
	}
	q.level += levels
	merged := q.bins[:0]
	for _, b := range q.bins {
		b.key = up(b.key, levels)
		if last := len(merged) - 1; last >= 0 && merged[last].key == b.key {
			merged[last].count += b.count
		} else {
			merged = append(merged, b)
		}
	}
	q.bins = merged
}

// merge adds the numbers of another sketch.
func (q *quantiles) merge(o *quantiles) {
	if o.count == 0 {
		return
	}
	if q.count == 0 {
		q.min, q.max = o.min, o.max
	}
	q.count += o.count
	q.min, q.max = min(q.min, o.min), max(q.max, o.max)
	q.raise(max(o.level-q.level, 0))
	for _, b := range o.bins {
		q.put(up(b.key, max(q.level-o.level, 0)), b.count)
	}
	q.shrink()
}

func (q *quantiles) bytes() int { return 16 * len(q.bins) }

// value returns the number below or at which the part p of the numbers is: of n numbers the one at
// rank ⌈p·n⌉, with the relative error of relativeError. There is at least one.
func (q *quantiles) value(p float64) float64 {
	rank := uint64(max(math.Ceil(p*float64(q.count)), 1))
	if rank >= q.count {
		return q.max
	}
	for i := range q.bins {
		if n := q.bins[i].count; rank > n {
			rank -= n
			continue
		}
		return min(max(q.bins[i].value(q.level), q.min), q.max)
	}
	return q.max
}

// relativeError returns the bound of a quantile's error, as a part of it, as long as its magnitude
// is at least 2^-1022.
func (q *quantiles) relativeError() float64 {
	width := math.Ldexp(1, q.level-7) // of a bin, in parts of its lower end
	if q.level > 7 {
		width = math.Exp2(width) - 1 // it is longer than an octave
	}
	if math.IsInf(width, 1) {
		return 1
	}
	return width / (2 + width)
}
