package bench

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// floodHeaderBytes is the least payload of a flood, whose messages may be too small for a stamp:
//
//	0  run         4 bytes
//	4  publisher   2 bytes, the highest bit marks a probe
//	6  sequence    6 bytes
//	12 checksum    4 bytes, CRC32C of the above
//
// Numbers are little endian. What follows is the same in all messages of a run.
const floodHeaderBytes = 16

const floodProbe = 1 << 15

// A floodStamp is what identifies a message of a flood.
type floodStamp struct {
	run       uint32
	publisher uint16 // with floodProbe
	sequence  uint64 // 48 bits
}

func (s floodStamp) put(p []byte) {
	binary.LittleEndian.PutUint32(p, s.run)
	binary.LittleEndian.PutUint64(p[4:], uint64(s.publisher)|s.sequence<<16)
	binary.LittleEndian.PutUint32(p[12:], crc32.Checksum(p[:12], castagnoli))
}

// readFloodStamp returns false for a payload that is damaged, or another run's. filler is what
// follows the header.
func readFloodStamp(p []byte, run uint32, filler []byte) (floodStamp, bool) {
	if len(p) != floodHeaderBytes+len(filler) || binary.LittleEndian.Uint32(p) != run ||
		binary.LittleEndian.Uint32(p[12:]) != crc32.Checksum(p[:12], castagnoli) || !bytes.Equal(p[floodHeaderBytes:], filler) {
		return floodStamp{}, false
	}
	both := binary.LittleEndian.Uint64(p[4:])
	return floodStamp{run: run, publisher: uint16(both), sequence: both >> 16}, true
}

// floodFiller returns the bytes behind the header.
func floodFiller(run uint32, size int) []byte {
	filler := make([]byte, size-floodHeaderBytes)
	for i := range filler {
		filler[i] = byte(uint32(i)*2654435761>>13) ^ byte(run)
	}
	return filler
}
