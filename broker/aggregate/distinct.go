package aggregate

import (
	"math"
	"math/bits"
	"slices"
)

// distinct is a sketch of a set of values, as their hashes: all of them as long as they are few,
// and then HyperLogLog: of each group of hashes with the same upper bits, the greatest number of
// leading zeros behind these. Which of both depends on the set alone.
type distinct struct {
	hashes    []uint64 // ascending
	registers []uint8  // not nil: instead of hashes
}

// registerBits give 2^14 registers of a byte: an error of 1.04/√2^14 = 0.81 % (standard deviation).
const (
	registerBits = 14
	registers    = 1 << registerBits
	rankBits     = 64 - registerBits
)

func (d *distinct) add(hash uint64) {
	if d.registers != nil {
		d.note(hash)
		return
	}
	i, there := slices.BinarySearch(d.hashes, hash)
	if there {
		return
	}
	if len(d.hashes) == maxHashes {
		d.dense()
		d.note(hash)
		return
	}
	d.hashes = slices.Insert(d.hashes, i, hash)
}

// dense goes over to registers.
func (d *distinct) dense() {
	d.registers = make([]uint8, registers)
	for _, h := range d.hashes {
		d.note(h)
	}
	d.hashes = nil
}

func (d *distinct) note(hash uint64) {
	rank := uint8(bits.LeadingZeros64(hash<<registerBits|1<<(registerBits-1))) + 1
	if r := &d.registers[hash>>rankBits]; *r < rank {
		*r = rank
	}
}

// merge adds the values of another sketch.
func (d *distinct) merge(o *distinct) {
	if o.registers == nil {
		for _, h := range o.hashes {
			d.add(h)
		}
		return
	}
	if d.registers == nil {
		d.dense()
	}
	for i, r := range o.registers {
		d.registers[i] = max(d.registers[i], r)
	}
}

func (d *distinct) bytes() int { return 8*len(d.hashes) + len(d.registers) }

// value returns an estimate of the number of values, by the estimator of Ertl (2017), which needs
// no table and no correction of bias. While all hashes are kept, it is their number.
func (d *distinct) value() uint64 {
	if d.registers == nil {
		return uint64(len(d.hashes))
	}
	var counts [rankBits + 2]float64
	for _, r := range d.registers {
		counts[r]++
	}
	const m = float64(registers)
	z := m * tau(1-counts[rankBits+1]/m)
	for k := rankBits; k >= 1; k-- {
		z = 0.5 * (z + counts[k])
	}
	z += m * sigma(counts[0]/m)
	return uint64(math.Round(m * m / (2 * math.Ln2 * z)))
}

func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for {
		x *= x
		before := z
		z += x * y
		y += y
		if z == before {
			return z
		}
	}
}

func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		before := z
		y *= 0.5
		z -= (1 - x) * (1 - x) * y
		if z == before {
			return z / 3
		}
	}
}
