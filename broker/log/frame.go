package log

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/carillon-mq/carillon/broker/limits"
)

// frame is a unit of a segment: length, checksum, kind and version as in a Batch. Only batches are
// sent to other brokers; the other kinds describe their own file.
//
//	header  16 u64 log  24 u64 base offset: the first thing in every segment
//	        12 u32 number of the file, unique in this log; 0 in files of earlier versions
//	marker  16 u64 log  24 u64 own position  32 u64 position up to which the file was synced
//	        40 u64 offset of the next record: before the first batch of a write; see runmarker.go
//	footer  what segment.go says: the last thing in a sealed one
//
// Markers distinguish a torn tail from damage. Without them a bad checksum in the last segment
// could be either: a write that was never acknowledged, which has to be cut, or an acknowledged one
// that has decayed, which must not be. A later marker that proves a sync decides, and so does the
// bitmap in the marker of the write. Markers carry the log's secret number and their own position,
// so no payload can be taken for one.
type frame []byte

const (
	kindBatch  = 1
	kindMarker = 2
	kindHeader = 3
	kindFooter = 4

	frameVersion  = 1
	frameMin      = 12
	headerSize    = 32
	markerSize    = 48
	largestFooter = 16 << 20
)

// errNothing means that nothing was written at this position: zeros, or the end of the file.
var errNothing = errors.New("nothing was written here")

// errPartial means that the frame is longer than the given bytes.
var errPartial = errors.New("the frame is cut short")

// newerError is an intact frame of a later version. It is no damage, so nothing may be cut because
// of it.
type newerError struct{ kind, version byte }

func (e *newerError) Error() string {
	return fmt.Sprintf("a frame of kind %d, version %d, was written by a newer version; use that one, or newer", e.kind, e.version)
}

func (f frame) kind() byte { return f[8] }

// frameLength returns the length of the frame at the beginning of data, if it is a possible one.
// Its checksum is not verified yet.
func frameLength(data []byte) (int, error) {
	if len(data) < 4 {
		for _, c := range data {
			if c != 0 {
				return 0, errPartial
			}
		}
		return 0, errNothing
	}
	n := le.Uint32(data)
	switch {
	case n == 0:
		return 0, errNothing
	case n < frameMin || n > max(limits.BatchBytes, largestFooter):
		return 0, fmt.Errorf("a frame can't have %d bytes", n)
	}
	return int(n), nil
}

// parseFrame returns the frame at the beginning of data, and verifies its checksum.
func parseFrame(data []byte) (frame, error) {
	n, err := frameLength(data)
	if err != nil {
		return nil, err
	}
	if n > len(data) {
		return nil, errPartial
	}
	f := frame(data[:n:n])
	if sum := crc32.Checksum(f[8:], castagnoli); sum != le.Uint32(f[4:]) {
		return nil, fmt.Errorf("the checksum is %08x and should be %08x", sum, le.Uint32(f[4:]))
	}
	if k := f[8]; k == 0 || k > kindFooter || f[9] != frameVersion && !(f[9] == sparseVersion && k != kindHeader) {
		return nil, &newerError{kind: k, version: f[9]}
	}
	switch {
	case f.kind() == kindBatch:
		return f, Batch(f).check()
	case f.kind() == kindMarker && !markerLength(n, f[9]), f.kind() == kindHeader && n != headerSize, f.kind() == kindFooter && n < footerMin:
		return nil, fmt.Errorf("a frame of kind %d can't have %d bytes", f.kind(), n)
	}
	return f, nil
}

func markerLength(n int, version byte) bool {
	if version == runVersion {
		return n > runHeader && n%8 == runHeader%8 && n <= runHeader+8*largestWords
	}
	return n == markerSize
}

// seal fills in length and checksum.
func seal(f []byte) {
	le.PutUint32(f, uint32(len(f)))
	le.PutUint32(f[4:], crc32.Checksum(f[8:], castagnoli))
}

func appendHeader(dst []byte, log, base uint64, file uint32) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	f := dst[start:]
	f[8], f[9] = kindHeader, frameVersion
	le.PutUint32(f[12:], file)
	le.PutUint64(f[16:], log)
	le.PutUint64(f[24:], base)
	seal(f)
	return dst
}

func appendMarker(dst []byte, log uint64, at, synced int64, next uint64) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, markerSize)...)
	f := dst[start:]
	f[8], f[9] = kindMarker, frameVersion
	le.PutUint64(f[16:], log)
	le.PutUint64(f[24:], uint64(at))
	le.PutUint64(f[32:], uint64(synced))
	le.PutUint64(f[40:], next)
	seal(f)
	return dst
}

func (f frame) file() uint32      { return le.Uint32(f[12:]) }
func (f frame) log() uint64       { return le.Uint64(f[16:]) }
func (f frame) base() uint64      { return le.Uint64(f[24:]) }
func (f frame) position() int64   { return int64(le.Uint64(f[24:])) }
func (f frame) synced() int64     { return int64(le.Uint64(f[32:])) }
func (f frame) following() uint64 { return le.Uint64(f[40:]) }
