package aggregate

import "encoding/binary"

// Decoder takes bytes apart that come from a disk or another broker. Once something was missing or
// wrong it has failed, and returns zeros. It allocates nothing.
type Decoder struct {
	rest   []byte
	failed bool
}

// NewDecoder returns a Decoder of bytes, which it only reads.
func NewDecoder(b []byte) *Decoder { return &Decoder{rest: b} }

// OK reports whether nothing was missing or wrong so far.
func (d *Decoder) OK() bool { return !d.failed }

// Whole reports whether nothing was missing or wrong, and nothing is left.
func (d *Decoder) Whole() bool { return !d.failed && len(d.rest) == 0 }

// Must makes it fail unless something holds.
func (d *Decoder) Must(holds bool) {
	if !holds {
		d.failed, d.rest = true, nil
	}
}

// Take takes n bytes, which are a part of the input.
func (d *Decoder) Take(n uint64) []byte {
	if d.Must(n <= uint64(len(d.rest))); d.failed {
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

// Byte takes a byte.
func (d *Decoder) Byte() byte {
	if b := d.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Word takes 64 bits, the highest first.
func (d *Decoder) Word() uint64 {
	if b := d.Take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Uvarint takes a number in the shortest form of a varint.
func (d *Decoder) Uvarint() uint64 {
	n, width := binary.Uvarint(d.rest)
	if d.Must(width > 0 && (width == 1 || d.rest[width-1] != 0)); d.failed {
		return 0
	}
	d.rest = d.rest[width:]
	return n
}

// Varint takes a number with a sign in the shortest form of a varint.
func (d *Decoder) Varint() int64 {
	n := d.Uvarint()
	return int64(n>>1) ^ -int64(n&1)
}
