package filter

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 of a text under a key of 128 bits. Who does not know the key can't make
// texts with equal hashes. Hashes are written to files, so they must not change. The state is four
// variables, and not an array, so that it stays in registers.
func sipHash(k0, k1 uint64, text []byte) uint64 {
	a, b, c, d := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(text)) << 56
	for len(text) >= 8 {
		word := binary.LittleEndian.Uint64(text)
		text = text[8:]
		d ^= word
		a, b, c, d = sipRound(a, b, c, d)
		a, b, c, d = sipRound(a, b, c, d)
		a ^= word
	}
	for n, char := range text {
		last |= uint64(char) << (8 * n)
	}
	d ^= last
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	a, c = a^last, c^0xff
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	return a ^ b ^ c ^ d
}

func sipRound(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a, c = a+b, c+d
	b, d = bits.RotateLeft64(b, 13)^a, bits.RotateLeft64(d, 16)^c
	a = bits.RotateLeft64(a, 32) + d
	c += b
	d, b = bits.RotateLeft64(d, 21)^a, bits.RotateLeft64(b, 17)^c
	return a, b, bits.RotateLeft64(c, 32), d
}
