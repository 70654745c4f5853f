package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/carillon-mq/carillon/broker/filter"
)

// cell is what one window of one key knows of an expression's values.
type cell interface {
	// add adds a value. ok is false if it is none that the cell takes.
	add(v *filter.Value) (ok bool)
	// merge adds what another cell of the same type knows, and leaves that unchanged.
	merge(o cell)
	// bytes is what the cell takes beside its own size: a function of the values that were added, as
	// the encoding is, and not less than the bytes of that.
	bytes() int
	append(b []byte) []byte
	decode(d *Decoder)
}

// cellKind is the type of a cell.
type cellKind uint8

const (
	countCell cellKind = iota
	extremesCell
	sumCell
	quantilesCell
	distinctCell
)

func (k cellKind) new() cell {
	switch k {
	case countCell:
		return new(counter)
	case extremesCell:
		return new(extremes)
	case sumCell:
		return new(sum64)
	case quantilesCell:
		return new(quantileCell)
	}
	return new(distinctValues)
}

// counter counts values.
type counter uint64

func (c *counter) add(*filter.Value) bool { *c++; return true }
func (c *counter) merge(o cell)           { *c += *o.(*counter) }
func (c *counter) bytes() int             { return 0 }
func (c *counter) append(b []byte) []byte { return binary.AppendUvarint(b, uint64(*c)) }
func (c *counter) decode(d *Decoder)      { *c = counter(d.Uvarint()) }

// extremes are the least and the greatest value; None: there is none.
type extremes struct{ least, greatest Value }

func (e *extremes) add(v *filter.Value) bool {
	if v.Kind == filter.Number && e.least.Kind == Number && e.greatest.Kind == Number && e.least.Number <= v.Number && v.Number <= e.greatest.Number {
		return true // most of them
	}
	w, ok := valueOf(v)
	if ok {
		e.take(&w)
	}
	return ok
}

func (e *extremes) take(v *Value) {
	if e.least.Kind == None {
		e.least, e.greatest = *v, *v
	}
	if v.compare(&e.least) < 0 {
		e.least = *v
	}
	if v.compare(&e.greatest) > 0 {
		e.greatest = *v
	}
}

func (e *extremes) merge(o cell) {
	if o := o.(*extremes); o.least.Kind != None {
		e.take(&o.least)
		e.take(&o.greatest)
	}
}

func (e *extremes) bytes() int             { return len(e.least.Text) + len(e.greatest.Text) }
func (e *extremes) append(b []byte) []byte { return e.greatest.append(e.least.append(b)) }

func (e *extremes) decode(d *Decoder) {
	e.least, e.greatest = d.value(), d.value()
	d.Must((e.least.Kind == None) == (e.greatest.Kind == None) && e.least.compare(&e.greatest) <= 0)
	d.Must(len(e.least.Text) <= maxExtreme && len(e.greatest.Text) <= maxExtreme)
}

// sum64 is a sum of numbers.
type sum64 struct{ sum }

func (s *sum64) add(v *filter.Value) bool {
	n, ok := number(v)
	if ok {
		s.sum.add(n)
	}
	return ok
}

func (s *sum64) merge(o cell) { s.sum.merge(&o.(*sum64).sum) }

func (s *sum64) append(b []byte) []byte {
	return s.below.append(s.above.append(binary.AppendUvarint(b, s.count)))
}

func (s *sum64) decode(d *Decoder) {
	s.count = d.Uvarint()
	s.above.decode(d)
	s.below.decode(d)
}

func (m *magnitude) append(b []byte) []byte {
	t := m.trimmed()
	b = append(b, byte(t.low), byte(len(t.words)))
	for _, w := range t.words {
		b = binary.BigEndian.AppendUint64(b, w)
	}
	return b
}

// mostWords are the words of the greatest magnitude: 2^64 times the greatest float64.
const mostWords = (2098+64)/64 + 1

func (m *magnitude) decode(d *Decoder) {
	m.low = int(d.Byte())
	n := int(d.Byte())
	d.Must(m.low+n <= mostWords && (n > 0 || m.low == 0))
	for range n {
		if d.failed {
			return
		}
		m.words = append(m.words, d.Word())
	}
	d.Must(n == 0 || !d.failed && m.words[0] > 0 && m.words[n-1] > 0)
}

// quantileCell is a distribution of numbers.
type quantileCell struct{ quantiles }

func (c *quantileCell) add(v *filter.Value) bool {
	n, ok := number(v)
	if ok {
		c.quantiles.add(n)
	}
	return ok
}

func (c *quantileCell) merge(o cell) { c.quantiles.merge(&o.(*quantileCell).quantiles) }

func (c *quantileCell) append(b []byte) []byte {
	b = append(b, byte(c.level))
	b = binary.AppendUvarint(b, uint64(len(c.bins)))
	last := int32(0)
	for _, bin := range c.bins {
		b = binary.AppendVarint(b, int64(bin.key-last))
		b = binary.AppendUvarint(b, bin.count)
		last = bin.key
	}
	if c.count > 0 {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(c.min))
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(c.max))
	}
	return b
}

func (c *quantileCell) decode(d *Decoder) {
	c.level = int(d.Byte())
	n := d.Uvarint()
	d.Must(c.level <= lastLevel && n <= maxBins && (n > 0 || c.level == 0))
	for last := int64(0); n > 0 && !d.failed; n-- {
		key := last + d.Varint()
		one := bin{int32(key), d.Uvarint()}
		greatest := int64(keyOf(math.MaxFloat64, c.level))
		d.Must(one.count > 0 && c.count+one.count > c.count && (key > last || len(c.bins) == 0) && -greatest <= key && key <= greatest)
		c.bins, c.count, last = append(c.bins, one), c.count+one.count, key
	}
	if c.count == 0 || d.failed {
		return
	}
	c.min, c.max = math.Float64frombits(d.Word()), math.Float64frombits(d.Word())
	for _, x := range []float64{c.min, c.max} {
		d.Must(!math.IsInf(x, 0) && x == x && (x != 0 || !math.Signbit(x)))
	}
	d.Must(c.min <= c.max && keyOf(c.min, c.level) == c.bins[0].key && keyOf(c.max, c.level) == c.bins[len(c.bins)-1].key)
}

// distinctValues is a set of values of any kind.
type distinctValues struct{ distinct }

func (c *distinctValues) add(v *filter.Value) bool {
	var room [64]byte
	b, ok := appendValue(room[:0], v)
	if ok {
		c.distinct.add(xxhash.Sum64(b))
	}
	return ok
}

func (c *distinctValues) merge(o cell) { c.distinct.merge(&o.(*distinctValues).distinct) }

func (c *distinctValues) append(b []byte) []byte {
	if c.registers != nil {
		return append(append(b, 1), c.registers...)
	}
	b = binary.AppendUvarint(append(b, 0), uint64(len(c.hashes)))
	for _, h := range c.hashes {
		b = binary.BigEndian.AppendUint64(b, h)
	}
	return b
}

func (c *distinctValues) decode(d *Decoder) {
	switch d.Byte() {
	case 0:
		n := d.Uvarint()
		d.Must(n <= maxHashes)
		for ; n > 0 && !d.failed; n-- {
			h := d.Word()
			d.Must(len(c.hashes) == 0 || h > c.hashes[len(c.hashes)-1])
			c.hashes = append(c.hashes, h)
		}
	case 1:
		c.registers = append([]uint8(nil), d.Take(registers)...)
		for _, r := range c.registers {
			d.Must(r <= rankBits+1)
		}
	default:
		d.Must(false)
	}
}
