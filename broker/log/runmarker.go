package log

import (
	"bytes"
	"hash/crc32"
)

// A run marker is the frame that begins each write to an active segment. It describes the write,
// which distinguishes a write that a power cut has torn from damaged bytes:
//
//	 0 u32 length             32 i64 position up to which the file was synced
//	 4 u32 CRC-32C            40 u64 offset of the run's first record
//	 8 u8  kind: 2            48 u64 offset after the run's last record
//	 9 u8  version: 2         56 u32 bytes of the run, from the marker's first byte on
//	10 u16 zero               60 u32 zero
//	12 u32 length, again      64 u32 CRC-32C of bytes 8 to 64
//	16 u64 log                68 u64 words of the bitmap
//	24 i64 own position
//
// The bitmap has a bit for each sector of 512 bytes of the file that the run touches, in order, 63
// to a word: whether the run's part of that sector holds a nonzero byte. The 64th bit of each word
// is set, and the length is 4 modulo 8. So no part of a marker that a sector holds is all zeros.
//
// The space before a write is zeros, and a disk writes a sector as a whole or not at all. So a
// sector that is all zeros although its bit is set was not written: the run is torn. Without such a
// sector, everything was written, and any error is damage. Payloads may hold sectors of
// zeros, which is what the bitmap is for.
//
// Version 1, of files written by earlier versions, ends at byte 48 and begins a write only if the
// synced position has changed.
const (
	runVersion   = 2
	runHeader    = 68
	sectorSize   = 512
	sectorsAWord = 63

	// smallestWords are 16 bytes and enough for 62 KiB, which is more than most writes have.
	smallestWords = 2
	largestWords  = 1 << 10 // a bitmap for 31 MiB: the largest batch, and a chunk
)

// runMarkerSize returns the length of a marker that can cover this many bytes of batches.
func runMarkerSize(batches int) int {
	const word = sectorsAWord*sectorSize - 8 // what one more word covers, less its own bytes
	words := (batches + runHeader + 2*sectorSize + word - 1) / word
	return runHeader + 8*max(words, smallestWords)
}

// runCover returns how many bytes a marker of this length can cover at any position, its own
// included: the first and the last sector may contain one byte of the run each.
func runCover(size int) int { return ((size-runHeader)/8*sectorsAWord - 2) * sectorSize }

// reserveMarker appends a run marker of size bytes that covers nothing yet. It has length, kind and
// version, which are all that readers of the chunk use, and an empty bitmap. cover fills in the
// bitmap, and sealMarker the rest, while readers may hold the chunk.
func reserveMarker(dst []byte, size int) []byte {
	start := len(dst)
	dst = append(dst, zeros[:size]...)
	f := dst[start:]
	le.PutUint32(f, uint32(size))
	f[8], f[9] = kindMarker, runVersion
	for words := f[runHeader:]; len(words) > 0; words = words[8:] {
		le.PutUint64(words, 1<<sectorsAWord)
	}
	return dst
}

// cover adds a batch to the bitmap of its run. at and pos are the positions of the marker f and of
// the batch in the file. Append calls it, while the batch is in the processor's cache. The
// committer runs on another core and would wait for memory at each sector.
func (f frame) cover(at, pos int64, batch []byte) {
	words := f[runHeader:]
	n := int(pos/sectorSize - at/sectorSize)
	until := sectorSize - int(pos%sectorSize)
	for ; len(batch) > 0; n++ {
		part := batch[:min(until, len(batch))]
		word, bit := words[n/sectorsAWord*8:], uint64(1)<<(n%sectorsAWord)
		if had := le.Uint64(word); had&bit == 0 && !allZero(part) {
			le.PutUint64(word, had|bit)
		}
		batch, until = batch[len(part):], sectorSize
	}
}

// runMarker has the fields of a run marker other than the bitmap.
type runMarker struct {
	log        uint64
	at         int64 // its position
	synced     int64
	first, end uint64 // offsets
	length     int    // of the run, from the marker on
}

// sealMarker completes the marker at the beginning of a run whose batches it covers already.
func sealMarker(run []byte, m runMarker) {
	size := int(le.Uint32(run))
	f := frame(run[:size])
	le.PutUint32(f[12:], uint32(size))
	le.PutUint64(f[16:], m.log)
	le.PutUint64(f[24:], uint64(m.at))
	le.PutUint64(f[32:], uint64(m.synced))
	le.PutUint64(f[40:], m.first)
	le.PutUint64(f[48:], m.end)
	le.PutUint32(f[56:], uint32(len(run)))
	le.PutUint32(f[64:], crc32.Checksum(f[8:64], castagnoli))
	f.cover(m.at, m.at, f)
	le.PutUint32(f[4:], crc32.Checksum(f[8:], castagnoli))
}

// allZero reports whether b, of at most sectorSize bytes, has only zeros. It checks the first cache
// line separately, because most sectors with data have a nonzero byte there.
func allZero(b []byte) bool {
	if len(b) >= 64 {
		l := b[:64]
		if le.Uint64(l)|le.Uint64(l[8:])|le.Uint64(l[16:])|le.Uint64(l[24:])|le.Uint64(l[32:])|le.Uint64(l[40:])|le.Uint64(l[48:])|le.Uint64(l[56:]) != 0 {
			return false
		}
	}
	return bytes.Equal(b, zeros[:len(b)])
}

// readRunMarker reads a run marker's header. The header has a checksum of its own, so it is valid
// even if the bitmap behind it is damaged. ok is false unless data begins with the header of a
// marker of that log at that position.
func readRunMarker(data []byte, log uint64, at int64) (m runMarker, size int, ok bool) {
	if len(data) < runHeader || data[8] != kindMarker || data[9] != runVersion || le.Uint32(data[64:]) != crc32.Checksum(data[8:64], castagnoli) {
		return m, 0, false
	}
	m = runMarker{log: le.Uint64(data[16:]), at: int64(le.Uint64(data[24:])), synced: int64(le.Uint64(data[32:])),
		first: le.Uint64(data[40:]), end: le.Uint64(data[48:]), length: int(le.Uint32(data[56:]))}
	size = int(le.Uint32(data[12:]))
	return m, size, m.log == log && m.at == at && size > runHeader && size <= runHeader+8*largestWords && m.length > size
}

// written reports whether, by the bitmap, the run's n-th sector has a nonzero byte.
func (f frame) written(n int) bool {
	words := f[runHeader:]
	if n/sectorsAWord*8 >= len(words) {
		return false
	}
	return le.Uint64(words[n/sectorsAWord*8:])>>(n%sectorsAWord)&1 != 0
}
