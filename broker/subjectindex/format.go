package subjectindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	headerMagic  = 0x42555343 // "CSUB"
	trailerMagic = 0x45555343 // "CSUE"
	version      = 1
	kindSegment  = 1
	kindPart     = 2
	headerSize   = 64
	footerFixed  = 48
	trailerSize  = 16
	crcSize      = 4
	filterPage   = 4096
	perPage      = (filterPage - crcSize) / bloomBlock
	indexEnd     = ".subjects"
	partEnd      = ".part"
	newEnd       = ".new"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Segment names one version of the file of a segment.
type Segment struct{ Base, Generation uint64 }

// segmentName returns the name of an index file. No number is used twice.
func segmentName(s Segment, number uint64) string {
	return fmt.Sprintf("%020d.%d.%d%s", s.Base, s.Generation, number, indexEnd)
}

// segmentOf reads the name of an index file.
func segmentOf(name string) (s Segment, number uint64, ok bool) {
	digits, _ := strings.CutSuffix(name, indexEnd)
	var values [3]uint64
	for i, text := range strings.SplitN(digits, ".", 3) {
		values[i], _ = strconv.ParseUint(text, 10, 64)
	}
	s, number = Segment{values[0], values[1]}, values[2]
	return s, number, segmentName(s, number) == name
}

// header is the beginning of a file.
type header struct {
	kind   byte
	secret uint64
	of     Segment
	from   uint64 // first offset that is covered
	number uint64 // random
	epoch  uint64 // of the last record of a sealed segment
}

func (h *header) encode() (data [headerSize]byte) {
	le.PutUint32(data[0:], headerMagic)
	data[4], data[5] = version, h.kind
	le.PutUint64(data[8:], h.secret)
	le.PutUint64(data[16:], h.of.Base)
	le.PutUint64(data[24:], h.of.Generation)
	le.PutUint64(data[32:], h.from)
	le.PutUint64(data[40:], h.number)
	le.PutUint64(data[48:], h.epoch)
	le.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
	return data
}

func decodeHeader(data []byte) (h header, why string) {
	switch {
	case le.Uint32(data) != headerMagic:
		return h, "it doesn't begin as an index does"
	case le.Uint32(data[60:]) != crc32.Checksum(data[:60], castagnoli):
		return h, "the checksum of the header is wrong"
	case data[4] != version:
		return h, fmt.Sprintf("version %d is not known", data[4])
	}
	return header{
		kind: data[5], secret: le.Uint64(data[8:]), of: Segment{le.Uint64(data[16:]), le.Uint64(data[24:])},
		from: le.Uint64(data[32:]), number: le.Uint64(data[40:]), epoch: le.Uint64(data[48:]),
	}, ""
}

// blockSum returns the CRC of a block at a position.
func blockSum(salt uint32, pos int64, data []byte) uint32 {
	var at [8]byte
	le.PutUint64(at[:], uint64(pos))
	return crc32.Update(crc32.Update(salt, castagnoli, at[:]), castagnoli, data)
}

// footer is what a run has in memory.
type footer struct {
	end               uint64 // offset after the last that is covered
	records, subjects uint64
	filterAt          int64
	filterBlocks      uint32
	gaps              []Range // damaged ranges
	blocks            []blockRef
}

// blockRef is a block, and a separator that no subject in it or behind it is less than.
type blockRef struct {
	separator []byte
	pos       int64
	size      int
}

func (f *footer) encode(dst []byte) []byte {
	dst = le.AppendUint64(dst, f.end)
	dst = le.AppendUint64(dst, f.records)
	dst = le.AppendUint64(dst, f.subjects)
	dst = le.AppendUint64(dst, uint64(f.filterAt))
	dst = le.AppendUint32(dst, f.filterBlocks)
	dst = le.AppendUint32(dst, uint32(len(f.gaps)))
	dst = le.AppendUint32(dst, uint32(len(f.blocks)))
	dst = le.AppendUint32(dst, 0)
	for _, g := range f.gaps {
		dst = le.AppendUint64(dst, g.From)
		dst = le.AppendUint64(dst, g.To)
	}
	for i := range f.blocks {
		dst = f.blocks[i].encode(dst)
	}
	return dst
}

func (b *blockRef) encode(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.separator)))
	dst = append(dst, b.separator...)
	dst = binary.AppendUvarint(dst, uint64(b.pos))
	return binary.AppendUvarint(dst, uint64(b.size))
}

// decodeBlockRef reads a blockRef, which shares memory with data, and returns the rest.
func decodeBlockRef(data []byte) (b blockRef, rest []byte, ok bool) {
	d := decoder{data: data}
	b.separator = d.bytes(d.uvarint())
	pos, size := d.uvarint(), d.uvarint()
	if d.bad || pos > 1<<62 || size > mostBlock {
		return b, nil, false
	}
	b.pos, b.size = int64(pos), int(size)
	return b, d.data, true
}

func decodeFooter(data []byte) (f footer, ok bool) {
	if len(data) < footerFixed {
		return f, false
	}
	f.end, f.records, f.subjects = le.Uint64(data), le.Uint64(data[8:]), le.Uint64(data[16:])
	f.filterAt, f.filterBlocks = int64(le.Uint64(data[24:])), le.Uint32(data[32:])
	gaps, blocks := int(le.Uint32(data[36:])), int(le.Uint32(data[40:]))
	rest := data[footerFixed:]
	if gaps > len(rest)/16 {
		return f, false
	}
	for range gaps {
		f.gaps = append(f.gaps, Range{le.Uint64(rest), le.Uint64(rest[8:])})
		rest = rest[16:]
	}
	for range blocks {
		b, more, ok := decodeBlockRef(rest)
		if !ok {
			return f, false
		}
		f.blocks, rest = append(f.blocks, b), more
	}
	return f, len(rest) == 0
}

// decoder reads what was encoded. After the first mistake it returns zeros, and bad is set.
type decoder struct {
	data []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	if len(d.data) > 0 && d.data[0] < 0x80 {
		v := d.data[0]
		d.data = d.data[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.bad, d.data = true, nil
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.data)) {
		d.bad, d.data = true, nil
		return nil
	}
	out := d.data[:n:n]
	d.data = d.data[n:]
	return out
}
