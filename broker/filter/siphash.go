package filter

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 of a text under a key of 128 bits. Who does not know the key can't make
// texts with equal hashes. Hashes are written to files, so they must not change.
func sipHash(k0, k1 uint64, text []byte) uint64 {
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(text)) << 56
	for len(text) >= 8 {
		s.take(binary.LittleEndian.Uint64(text))
		text = text[8:]
	}
	for n, c := range text {
		last |= uint64(c) << (8 * n)
	}
	s.take(last)
	s[2] ^= 0xff
	for range 4 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) take(word uint64) {
	s[3] ^= word
	s.round()
	s.round()
	s[0] ^= word
}

func (s *sipState) round() {
	a, b, c, d := s[0], s[1], s[2], s[3]
	a += b
	b = bits.RotateLeft64(b, 13) ^ a
	a = bits.RotateLeft64(a, 32)
	c += d
	d = bits.RotateLeft64(d, 16) ^ c
	a += d
	d = bits.RotateLeft64(d, 21) ^ a
	c += b
	b = bits.RotateLeft64(b, 17) ^ c
	c = bits.RotateLeft64(c, 32)
	s[0], s[1], s[2], s[3] = a, b, c, d
}
