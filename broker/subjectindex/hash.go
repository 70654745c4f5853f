package subjectindex

import (
	"encoding/binary"
	"math/bits"
)

var le = binary.LittleEndian

// hash returns a hash of a subject under the log's secret. It is written to files by way of their
// filters, so it must not change. Clients don't know the secret, so they can't choose subjects that
// collide. Each step multiplies 128 bits of input and state and folds the product.
func hash(secret uint64, s []byte) uint64 {
	const a, b = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := fold(secret^a, b) ^ uint64(len(s))
	for len(s) > 16 {
		h = fold(le.Uint64(s)^a^h, le.Uint64(s[8:])^b)
		s = s[16:]
	}
	var x, y uint64
	switch n := len(s); {
	case n >= 8:
		x, y = le.Uint64(s), le.Uint64(s[n-8:])
	case n >= 4:
		x, y = uint64(le.Uint32(s)), uint64(le.Uint32(s[n-4:]))
	case n > 0:
		x = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	h = fold(x^a^h, y^b^secret)
	return fold(h^b, a)
}

func fold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}
