package aggregate

import (
	"math"
	"math/big"
	"math/bits"
)

// magnitude is a natural number of units of 2^-1074, the smallest float64 above zero: of words of
// 64 bits, those from the word low on, the lowest first. It is the exact sum of magnitudes.
type magnitude struct {
	low   int
	words []uint64
}

// add adds the magnitude of a finite number.
func (m *magnitude) add(x float64) {
	b := math.Float64bits(x)
	fraction, exponent := b&(1<<52-1), int(b>>52)&(1<<11-1)
	if exponent > 0 {
		fraction |= 1 << 52
		exponent--
	}
	if fraction == 0 {
		return
	}
	at, shift := exponent/64, exponent%64
	high, low := fraction>>1>>(63-shift), fraction<<shift
	if high == 0 {
		m.cover(at, at)
	} else {
		m.cover(at, at+1)
	}
	carry := uint64(0)
	i := at - m.low
	m.words[i], carry = bits.Add64(m.words[i], low, 0)
	if high > 0 || carry > 0 {
		m.carry(i+1, high, carry)
	}
}

// carry adds a word and a carry at an index and above.
func (m *magnitude) carry(i int, word, carry uint64) {
	for word > 0 || carry > 0 {
		if i == len(m.words) {
			m.words = append(m.words, 0)
		}
		m.words[i], carry = bits.Add64(m.words[i], word, carry)
		word = 0
		i++
	}
}

// cover makes room for the words from first to last.
func (m *magnitude) cover(first, last int) {
	if len(m.words) == 0 {
		m.low = first
	}
	if missing := m.low - first; missing > 0 {
		m.words = append(make([]uint64, missing, missing+len(m.words)), m.words...)
		m.low = first
	}
	for m.low+len(m.words) <= last {
		m.words = append(m.words, 0)
	}
}

// merge adds another magnitude.
func (m *magnitude) merge(o *magnitude) {
	if len(o.words) == 0 {
		return
	}
	m.cover(o.low, o.low+len(o.words)-1)
	carry, i := uint64(0), o.low-m.low
	for _, w := range o.words {
		m.words[i], carry = bits.Add64(m.words[i], w, carry)
		i++
	}
	m.carry(i, 0, carry)
}

// trimmed returns the same number without words of zero at its ends.
func (m *magnitude) trimmed() magnitude {
	first, last := m.bounds()
	if first == last {
		return magnitude{}
	}
	return magnitude{m.low + first, m.words[first:last]}
}

func (m *magnitude) int() *big.Int {
	n := new(big.Int)
	for i := len(m.words) - 1; i >= 0; i-- {
		n.Lsh(n, 64)
		n.Or(n, new(big.Int).SetUint64(m.words[i]))
	}
	return n.Lsh(n, uint(64*m.low))
}

// sum is the exact sum of finite numbers: what is above zero and what is below are kept apart, so
// neither the order of the numbers nor the order of merging changes anything.
type sum struct {
	count        uint64
	above, below magnitude
}

func (s *sum) add(x float64) {
	s.count++
	if x < 0 {
		s.below.add(x)
	} else {
		s.above.add(x)
	}
}

func (s *sum) merge(o *sum) {
	s.count += o.count
	s.above.merge(&o.above)
	s.below.merge(&o.below)
}

func (s *sum) bytes() int {
	above, aboveEnd := s.above.bounds()
	below, belowEnd := s.below.bounds()
	return 8 * (aboveEnd - above + belowEnd - below)
}

// bounds returns the indexes of its words without those of zero at its ends.
func (m *magnitude) bounds() (first, last int) {
	last = len(m.words)
	for last > 0 && m.words[last-1] == 0 {
		last--
	}
	for first < last && m.words[first] == 0 {
		first++
	}
	return first, last
}

// value returns the sum, rounded once; infinite if no float64 holds it.
func (s *sum) value() float64 {
	d := s.above.int()
	if d.Sub(d, s.below.int()); d.Sign() == 0 {
		return 0
	}
	f := new(big.Float).SetInt(d)
	v, _ := f.SetMantExp(f, -1074).Float64()
	return v
}

// mean returns the mean of at least one number, rounded once.
func (s *sum) mean() float64 {
	d := s.above.int()
	units := new(big.Int).SetUint64(s.count)
	v, _ := new(big.Rat).SetFrac(d.Sub(d, s.below.int()), units.Lsh(units, 1074)).Float64()
	return v
}
