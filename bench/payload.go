package bench

import (
	"encoding/binary"
	"hash/crc32"
)

// headerBytes is the least payload: what identifies a message takes this much of it.
const headerBytes = 32

// maxPayloadBytes is the payload that servers accept by default.
const maxPayloadBytes = 1 << 20

// payloadMagic starts every payload of this version of the layout:
//
//	0  magic      2 bytes, "CB"
//	2  version    1 byte
//	3  kind       1 byte
//	4  run        8 bytes
//	12 publisher  4 bytes
//	16 sequence   4 bytes
//	20 due        8 bytes, nanoseconds on the clock of the process
//	28 checksum   4 bytes, CRC32C of everything else in the payload
//
// Numbers are little endian; what follows is padding.
var payloadMagic = [3]byte{'C', 'B', 1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A kind tells what is measured from what proves that the way is open.
type kind byte

const (
	kindMessage kind = iota
	kindProbe
)

// stamp is what a payload says about its message.
type stamp struct {
	kind      kind
	run       uint64
	publisher uint32
	sequence  uint32
	due       int64
}

// put writes the stamp into p, which has at least headerBytes.
func (s stamp) put(p []byte) {
	copy(p, payloadMagic[:])
	p[3] = byte(s.kind)
	binary.LittleEndian.PutUint64(p[4:], s.run)
	binary.LittleEndian.PutUint32(p[12:], s.publisher)
	binary.LittleEndian.PutUint32(p[16:], s.sequence)
	binary.LittleEndian.PutUint64(p[20:], uint64(s.due))
	binary.LittleEndian.PutUint32(p[28:], checksum(p))
}

// readStamp returns false for a payload that is not ours or did not arrive whole.
func readStamp(p []byte) (stamp, bool) {
	if len(p) < headerBytes || [3]byte(p[:3]) != payloadMagic || p[3] > byte(kindProbe) {
		return stamp{}, false
	}
	if binary.LittleEndian.Uint32(p[28:]) != checksum(p) {
		return stamp{}, false
	}
	return stamp{
		kind:      kind(p[3]),
		run:       binary.LittleEndian.Uint64(p[4:]),
		publisher: binary.LittleEndian.Uint32(p[12:]),
		sequence:  binary.LittleEndian.Uint32(p[16:]),
		due:       int64(binary.LittleEndian.Uint64(p[20:])),
	}, true
}

func checksum(p []byte) uint32 {
	return crc32.Update(crc32.Checksum(p[:28], castagnoli), castagnoli, p[headerBytes:])
}
