package aggregate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// sealed returns bytes with their CRC-32C.
func sealed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, castagnoli))
}

// TestADamagedPartialIsRefused: each flipped bit and each missing byte is found, and so are another
// version and the partial of another query.
func TestADamagedPartialIsRefused(t *testing.T) {
	q := shape(t, 1)
	b := encoded(t, added(t, q, at(0, `{"n": 1.5, "user": "u", "region": "eu"}`), at(20, `{"n": -2, "user": "v", "region": null}`)))
	if _, err := q.Decode(b); err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(b) {
		damaged := bytes.Clone(b)
		damaged[i/8] ^= 1 << (i % 8)
		if _, err := q.Decode(damaged); err == nil {
			t.Fatalf("bit %d is flipped", i)
		}
	}
	for n := range b {
		if _, err := q.Decode(b[:n]); err == nil {
			t.Fatalf("cut to %d bytes", n)
		}
	}
	for i := range len(b) - 4 - 9 { // and with a right checksum
		if _, err := q.Decode(sealed(b[:9+i])); err != errMalformed {
			t.Fatalf("cut to %d bytes: %v", 9+i, err)
		}
	}
	if _, err := q.Decode(sealed(append(b[:len(b)-4:len(b)-4], 0))); err != errMalformed {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := shape(t, 2).Decode(b); err != errOtherQuery {
		t.Error(err)
	}
	newer := bytes.Clone(b[:len(b)-4])
	newer[0] = version + 1
	if _, err := q.Decode(sealed(newer)); err != errVersion {
		t.Error(err)
	}
	if _, err := q.Decode(make([]byte, maxEncoded+5)); err != errTooLarge {
		t.Error(err)
	}
}

// FuzzDecode: whatever the bytes, Decode returns a partial that encodes to the same, or an error.
// The partial can be merged.
func FuzzDecode(f *testing.F) {
	var queries []*Query
	for n := range shapes {
		q := shape(f, n)
		queries = append(queries, q)
		for _, p := range []*Partial{q.NewPartial(), added(f, q, at(0, `{"t": 7, "n": 1.5, "user": "u", "region": "eu"}`)), added(f, q,
			at(0, `{"t": 7, "n": 1e300, "user": "u", "region": "eu"}`), at(50, `{"t": -7, "n": -3e-300, "user": 1, "region": null}`), at(51, `{"t": -7, "n": 0, "region": 1}`))} {
			b := encoded(f, p)
			f.Add(n, b[9:len(b)-4])
		}
		many := q.NewPartial()
		for i := range 3 * maxHashes {
			if err := many.Add(at(0, `{"t": 7, "n": %d, "user": %d, "region": "eu"}`, i*i*i*i*i, i)); err != nil {
				f.Fatal(err)
			}
		}
		b := encoded(f, many)
		f.Add(n, b[9:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, n int, body []byte) {
		q := queries[uint(n)%uint(len(shapes))]
		b := sealed(append(encoded(t, q.NewPartial())[:9:9], body...))
		p, err := q.Decode(b)
		if err != nil {
			return
		}
		if again := encoded(t, p); !bytes.Equal(again, b) {
			t.Fatalf("decoded  %x\nencoded %x", b, again)
		}
		printed(p.Rows())
		if err := p.Merge(added(t, q, at(3, `{"t": 9, "n": 1, "user": "w", "region": "eu"}`))); err != nil {
			t.Fatal(err)
		}
		if b, err := p.Encode(); err != nil {
			t.Fatal(err)
		} else if _, err := q.Decode(b); err != nil {
			t.Fatalf("after merging: %v", err)
		}
	})
}
