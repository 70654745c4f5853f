package log

import (
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// segment is one file of a log, named after the offset of its first record and its generation. The
// last one of a log may be active: batches are added to it. All others are sealed, and never change
// again.
//
// A sealed segment ends with a footer, which is all that is read to open it:
//
//	12 u32 entries of the index   16 u64 log           24 u64 offset after the last record
//	32 i64 time of the first      40 i64 greatest time 48 u32 epochs   52 u32 zero
//	56 the index: u64 offset, u64 position; the epochs that begin here: u64 epoch, u64 offset
//
// In version 2, for segments with sparse batches, it ends with u64 number of offsets without a
// record, u64 judged; see Batch.judged. A trailer follows with the position of the footer: u64
// position, u32 CRC-32C of it, u32 magic. A footer only saves time: a damaged one is rebuilt from
// the batches.
type segment struct {
	base uint64
	gen  uint64 // generation of the file
	path string
	file uint32 // the file's number in its header; 0: it was not written run by run

	// Guarded by the log's mu while the segment is active, unchanging afterwards.
	end         uint64 // offset after the last record
	pos         int64  // position of the next frame
	size        int64  // length of the file
	first, last int64  // times
	index       []indexEntry
	epochs      []Epoch // that begin in it
	holes       uint64  // offsets without a record
	judged      uint64  // greatest of its batches
	closed      bool    // takes no more batches
	stored      int64   // bytes on the disk, if it is compressed; 0: it is plain
	stubborn    bool    // compressing it is not worth it
	bad         bool    // it was found damaged; guarded by the log's mu
	gap         bool    // the next batch follows damage, so it needs an index entry

	// Guarded by the log's mu.
	checked int64 // time of the last scrub, or of the writing; Unix seconds; 0: unknown
	before  holesBefore
	left    leftIn
	written int64 // all bytes before it are in the file
	synced  int64 // all bytes before it are durable

	newName bool  // the directory has to be synced; owned by the committer
	zeroed  int64 // all bytes before it were written, perhaps with zeros; owned by the committer

	lookup atomic.Pointer[lookup] // of a closed segment; loaded when it is read

	handle handle
}

// indexEntry is the position of the batch that contains an offset.
type indexEntry struct {
	offset uint64
	pos    int64
}

// lookup is what readers need of a closed segment. It is dropped with the file's handle.
type lookup struct {
	index   []indexEntry
	pos     int64 // where the batches end
	damages []damage
	whole   bool  // the whole file was read and damages is complete
	footer  error // why the footer is invalid, if it was read
}

const (
	footerMin    = 56
	footerSparse = 16 // additional bytes of version 2
	trailerSize  = 16
	trailerMagic = 0x47455343 // "CSEG"
	segmentEnd   = ".log"
)

// name returns the file's name: <offset>.log, or <offset>.<generation>.log if the generation isn't
// 0.
func (r SegmentRef) name() string {
	if r.Generation == 0 {
		return fmt.Sprintf("%020d%s", r.Base, segmentEnd)
	}
	return fmt.Sprintf("%020d.%d%s", r.Base, r.Generation, segmentEnd)
}

// segmentFile parses a segment file's name.
func segmentFile(name string) (r SegmentRef, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentEnd)
	if !ok {
		return r, false
	}
	base, generation, later := strings.Cut(digits, ".")
	var err, genErr error
	r.Base, err = strconv.ParseUint(base, 10, 64)
	if later {
		r.Generation, genErr = strconv.ParseUint(generation, 10, 64)
	}
	return r, err == nil && genErr == nil && r.Base > 0 && r.name() == name
}

func newSegment(dir string, r SegmentRef) *segment {
	return &segment{base: r.Base, gen: r.Generation, end: r.Base, path: filepath.Join(dir, r.name())}
}

// ref returns the name of the segment's file as a SegmentRef.
func (s *segment) ref() SegmentRef { return SegmentRef{Base: s.base, Generation: s.gen} }

// note updates the segment's fields for a batch at pos.
func (s *segment) note(b Batch, pos int64) {
	if n := len(s.index); n == 0 || s.gap || pos-s.index[n-1].pos >= limits.IndexInterval {
		s.index = append(s.index, indexEntry{offset: b.Base(), pos: pos})
		s.gap = false
	}
	if s.end == s.base {
		s.first, s.last = b.Time(), b.LastTime()
	}
	s.last = max(s.last, b.LastTime())
	if b.Sparse() {
		s.holes += b.Span() - uint64(b.Count())
		s.judged = max(s.judged, b.judged())
	}
	s.end = b.End()
	s.pos = pos + int64(len(b))
}

// begins adds the epoch of a batch, if the segment has no earlier batch of it.
func (s *segment) begins(b Batch) { s.beginsAt(b.Epoch(), b.Base()) }

// beginsAt adds an epoch that begins at an offset, if the segment has no earlier batch of it.
func (s *segment) beginsAt(epoch, start uint64) {
	if n := len(s.epochs); n == 0 || epoch > s.epochs[n-1].Epoch {
		s.epochs = append(s.epochs, Epoch{Epoch: epoch, Start: start})
	}
}

// bytes returns the space that the segment's content takes on the disk. mu is held.
func (s *segment) bytes() int64 {
	if s.stored > 0 {
		return s.stored
	}
	return s.pos
}

// storedIn returns the length of a segment's file in a form other than plain, and 0 for a plain
// one.
func storedIn(f env.File) int64 {
	if c, ok := f.(sealed); ok {
		return c.stored()
	}
	return 0
}

// footerRoom returns the space that must stay free for the footer after one more batch.
func (s *segment) footerRoom() int64 {
	return int64(footerMin + 16*(len(s.index)+1) + 16*(len(s.epochs)+1) + footerSparse + trailerSize)
}

// seek returns the position from which to search for an offset.
func seek(index []indexEntry, offset uint64) int64 {
	i, found := slices.BinarySearchFunc(index, offset, func(e indexEntry, o uint64) int {
		switch {
		case e.offset < o:
			return -1
		case e.offset > o:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return index[i].pos
}

// appendFooter appends the footer and the trailer, for position s.pos of the file.
func (s *segment) appendFooter(dst []byte, log uint64) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, footerMin)...)
	for _, e := range s.index {
		dst = le.AppendUint64(dst, e.offset)
		dst = le.AppendUint64(dst, uint64(e.pos))
	}
	for _, e := range s.epochs {
		dst = le.AppendUint64(dst, e.Epoch)
		dst = le.AppendUint64(dst, e.Start)
	}
	version := byte(frameVersion)
	if s.judged > 0 {
		version = sparseVersion
		dst = le.AppendUint64(dst, s.holes)
		dst = le.AppendUint64(dst, s.judged)
	}
	f := dst[start:]
	f[8], f[9] = kindFooter, version
	le.PutUint32(f[12:], uint32(len(s.index)))
	le.PutUint64(f[16:], log)
	le.PutUint64(f[24:], s.end)
	le.PutUint64(f[32:], uint64(s.first))
	le.PutUint64(f[40:], uint64(s.last))
	le.PutUint32(f[48:], uint32(len(s.epochs)))
	seal(f)
	dst = le.AppendUint64(dst, uint64(s.pos))
	dst = le.AppendUint32(dst, crc32.Checksum(dst[len(dst)-8:], castagnoli))
	return le.AppendUint32(dst, trailerMagic)
}

// shortError is a valid footer whose segment ends before the next one begins.
type shortError struct {
	path      string
	end, next uint64
}

func (e *shortError) Error() string {
	return fmt.Sprintf("%s: the footer ends at offset %d, the next segment begins at %d", e.path, e.end, e.next)
}

// readFooter sets the segment's fields from its footer, and returns the index. An error other than
// *env.DiskError means that there is no valid footer.
func (s *segment) readFooter(f env.File, log uint64) ([]indexEntry, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	var trailer [trailerSize]byte
	if size < headerSize+footerMin+trailerSize {
		return nil, fmt.Errorf("%s has no footer", s.path)
	}
	if err := readFull(f, trailer[:], size-trailerSize); err != nil {
		return nil, err
	}
	pos := int64(le.Uint64(trailer[:]))
	if le.Uint32(trailer[12:]) != trailerMagic || le.Uint32(trailer[8:]) != crc32.Checksum(trailer[:8], castagnoli) {
		return nil, fmt.Errorf("%s has no footer", s.path)
	}
	if pos < headerSize || pos > size-footerMin-trailerSize || size-pos > largestFooter {
		return nil, fmt.Errorf("%s: the footer can't be at byte %d", s.path, pos)
	}
	buf := make([]byte, size-trailerSize-pos)
	if err := readFull(f, buf, pos); err != nil {
		return nil, err
	}
	foot, err := parseFrame(buf)
	if err != nil {
		return nil, fmt.Errorf("%s: footer: %w", s.path, err)
	}
	entries, epochs := uint64(le.Uint32(foot[12:])), uint64(le.Uint32(foot[48:]))
	more := uint64(0)
	if foot[9] == sparseVersion {
		more = footerSparse
	}
	if foot.kind() != kindFooter || foot.log() != log || uint64(len(foot)) != footerMin+16*(entries+epochs)+more {
		return nil, fmt.Errorf("%s: the footer is not this segment's", s.path)
	}
	if end := le.Uint64(foot[24:]); end != s.end {
		return nil, &shortError{path: s.path, end: end, next: s.end}
	}
	s.first, s.last = int64(le.Uint64(foot[32:])), int64(le.Uint64(foot[40:]))
	s.pos, s.size = pos, size
	rest := foot[footerMin:]
	index := make([]indexEntry, entries)
	for i := range index {
		index[i] = indexEntry{offset: le.Uint64(rest), pos: int64(le.Uint64(rest[8:]))}
		rest = rest[16:]
	}
	s.epochs = make([]Epoch, epochs)
	for i := range s.epochs {
		s.epochs[i] = Epoch{Epoch: le.Uint64(rest), Start: le.Uint64(rest[8:])}
		rest = rest[16:]
	}
	if more > 0 {
		s.holes, s.judged = le.Uint64(rest), le.Uint64(rest[8:])
	}
	return index, nil
}
