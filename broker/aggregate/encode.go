package aggregate

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
)

// version is the first byte of an encoded partial.
const version = 1

var (
	errOtherQuery = errors.New("aggregate: the partial is one of another query")
	errVersion    = errors.New("aggregate: the partial has a version that is not known")
	errMalformed  = errors.New("aggregate: the partial is damaged")
	errTooLarge   = &LimitError{"bytes in an encoded partial", maxEncoded, coarser}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns a partial as bytes: the version, the query's fingerprint, the totals, each key
// with its windows, and a CRC-32C. Partials of the same records have the same bytes.
func (p *Partial) Encode() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	b := binary.BigEndian.AppendUint64([]byte{version}, p.query.fingerprint)
	t := p.totals
	for _, n := range []uint64{t.Records, t.NoTime, t.NoKey, t.NoValue} {
		b = binary.AppendUvarint(b, n)
	}
	if t.Any {
		b = binary.AppendVarint(append(b, 1), t.Greatest)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(p.series)))
	for _, key := range slices.Sorted(maps.Keys(p.series)) {
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		windows := p.series[key].windows
		b = binary.AppendUvarint(b, uint64(len(windows)))
		for _, w := range windows {
			b = binary.AppendVarint(b, w.start)
			b = binary.AppendUvarint(b, uint64(w.end-w.start))
			b = binary.AppendUvarint(b, w.count)
			for _, c := range w.cells {
				b = c.append(b)
			}
		}
		if len(b) > maxEncoded {
			return nil, errTooLarge
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// Decode returns the partial that Encode returned the bytes of.
func (q *Query) Decode(b []byte) (*Partial, error) {
	switch {
	case len(b) > maxEncoded+4:
		return nil, errTooLarge
	case len(b) < 1+8+4:
		return nil, errMalformed
	case b[0] != version:
		return nil, errVersion
	case crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]):
		return nil, errMalformed
	case binary.BigEndian.Uint64(b[1:]) != q.fingerprint:
		return nil, errOtherQuery
	}
	p, d := q.NewPartial(), &Decoder{rest: b[9 : len(b)-4]}
	d.partial(p)
	if d.Must(len(d.rest) == 0); d.failed {
		return nil, errMalformed
	}
	return p, p.bounded()
}

func (d *Decoder) partial(p *Partial) {
	t := &p.totals
	t.Records, t.NoTime, t.NoKey, t.NoValue = d.Uvarint(), d.Uvarint(), d.Uvarint(), d.Uvarint()
	switch d.Byte() {
	case 0:
	case 1:
		t.Any, t.Greatest = true, d.Varint()
	default:
		d.Must(false)
	}
	last := ""
	for n := d.Uvarint(); n > 0 && !d.failed; n-- {
		key := string(d.Take(d.Uvarint()))
		d.Must(len(key) <= maxKeyBytes && (len(p.series) == 0 || key > last) && p.query.isKey(key))
		s := p.seriesOf([]byte(key))
		windows := d.Uvarint()
		d.Must(windows > 0)
		for ; windows > 0 && !d.failed && p.bounded() == nil; windows-- {
			d.window(p, s)
		}
		if p.err != nil {
			d.failed = true
		}
		last = key
	}
}

// isKey reports whether a key has the parts of the query's.
func (q *Query) isKey(key string) bool {
	d := Decoder{rest: []byte(key)}
	for range q.keys {
		d.value()
	}
	return !d.failed && len(d.rest) == 0
}

func (d *Decoder) window(p *Partial, s *series) {
	const last = maxTime + int64(maxWindow)
	w := p.query.newWindow(d.Varint(), 0)
	length := d.Uvarint()
	w.end, w.count = w.start+int64(length), d.Uvarint()
	d.Must(-last <= w.start && w.start <= w.end && w.end <= last && length <= 2*uint64(last))
	for _, c := range w.cells {
		c.decode(d)
	}
	o := &p.query.options
	d.Must(w.count > 0)
	if n := len(s.windows); n > 0 {
		before := s.windows[n-1]
		d.Must(p.query.Windowed() && w.start > before.start && (o.Session == 0 || w.start >= before.end))
	}
	switch {
	case o.Session > 0:
		d.Must(length >= uint64(o.Session))
	case o.Window > 0:
		d.Must(length == uint64(o.Window) && floor(w.start, int64(o.Slide)) == w.start)
	}
	if d.failed {
		return
	}
	s.windows = append(s.windows, w)
	p.groups++
	p.bytes += w.bytes()
	p.first = min(p.first, w.end)
}
