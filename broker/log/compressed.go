package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/carillon-mq/carillon/broker/env"
)

// sealed is the file of a sealed segment in a form other than plain. Reading it returns the bytes
// of the plain file, with header, markers and footer. So reading, recovery and scrubbing know one
// form only.
type sealed interface {
	env.File
	// stored returns the length of the file on the disk.
	stored() int64
	// end returns the offset after the last record.
	end() uint64
	// check returns damage of the form itself, for example of one of the two indexes.
	check() error
}

// compressed is a sealed segment as blocks of zstd.
//
//	header: a frame, kind 5: 12 u32 blocks       16 u64 log   24 u64 base offset   32 u64 end
//	                         40 i64 plain size   48 u32 plain size of a block      52 u32 zero
//	blocks: u32 length of the content, with bit 31 if that is not compressed,
//	        u32 CRC-32C of what follows, u32 number, content
//	index:  a frame, kind 6, that says what the header does; 56: u32 position of each block
//	trailer: u64 position of the index, u32 CRC-32C of it, u32 magic
//
// If either the header or the index is damaged, the other one suffices. A damaged block reads as
// bytes that begin no frame. So only the batches that it touches are lost: reading resumes at the
// next marker.
type compressed struct {
	f      env.File
	cache  *blockCache
	desc   description
	at     []uint32 // of each block, and where the last one ends
	length int64
	bad    error
}

// description is the common content of header and index.
type description struct {
	blocks    int
	log, base uint64
	upTo      uint64
	size      int64
	block     int
}

const (
	kindCompressed = 5
	kindBlocks     = 6

	descriptionSize = 56
	blockHeader     = 12
	blockPlain      = 1 << 31
	compressedMagic = 0x54535A43 // "CZST"

	// compressedBlock is the unit of compression. A read at a random offset decompresses one block,
	// in 0.1 ms. Larger blocks hardly save more.
	compressedBlock = 128 << 10
	largestBlock    = 1 << 20
)

// put appends the beginning of a frame of this kind to dst.
func (d *description) put(dst []byte, kind byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, descriptionSize)...)
	f := dst[start:]
	f[8], f[9] = kind, frameVersion
	le.PutUint32(f[12:], uint32(d.blocks))
	le.PutUint64(f[16:], d.log)
	le.PutUint64(f[24:], d.base)
	le.PutUint64(f[32:], d.upTo)
	le.PutUint64(f[40:], uint64(d.size))
	le.PutUint32(f[48:], uint32(d.block))
	return dst
}

// describe reads a description from the frame of this kind at the beginning of data, and returns
// the length of the frame.
func describe(data []byte, kind byte) (d description, n int, err error) {
	if len(data) < descriptionSize || data[8] != kind {
		return d, 0, errors.New("it is not there")
	}
	n = int(le.Uint32(data))
	if n < descriptionSize || n > len(data) || crc32.Checksum(data[8:n], castagnoli) != le.Uint32(data[4:]) {
		return d, 0, errors.New("the checksum is wrong")
	}
	if data[9] != frameVersion {
		return d, 0, &newerError{kind: kind, version: data[9]}
	}
	d = description{blocks: int(le.Uint32(data[12:])), log: le.Uint64(data[16:]), base: le.Uint64(data[24:]), upTo: le.Uint64(data[32:]),
		size: int64(le.Uint64(data[40:])), block: int(le.Uint32(data[48:]))}
	if d.block < 1 || d.block > largestBlock || d.size < 1 || d.upTo <= d.base || int64(d.blocks) != (d.size+int64(d.block)-1)/int64(d.block) {
		return d, 0, errors.New("it says what can't be")
	}
	return d, n, nil
}

// openSegment opens a segment's file in any form.
func openSegment(fsys env.FS, path string, cache *blockCache) (env.File, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	c, err := openCompressed(f, cache)
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	case c != nil:
		return c, nil
	}
	return f, nil
}

// openCompressed returns nil if the file is plain, or has neither header nor index.
func openCompressed(f env.File, cache *blockCache) (*compressed, error) {
	var head [descriptionSize]byte
	if err := readFull(f, head[:], 0); err != nil || head[8] == kindHeader && le.Uint32(head[:]) == headerSize {
		return nil, nil // reading it will return the error
	}
	length, err := f.Size()
	if err != nil {
		return nil, nil
	}
	c := &compressed{f: f, cache: cache, length: length}
	d, _, headErr := describe(head[:], kindCompressed)
	if headErr == nil && int64(d.blocks) > length/blockHeader {
		headErr = errors.New("it says what can't be")
	}
	index, pos, indexErr := readIndex(f, length)
	for _, err := range []error{headErr, indexErr} {
		if newer, ok := errors.AsType[*newerError](err); ok {
			return nil, newer
		}
	}
	switch {
	case indexErr == nil:
		c.desc, _, _ = describe(index, kindBlocks)
		if headErr != nil {
			c.bad = fmt.Errorf("header: %w", headErr)
		}
		c.at = make([]uint32, c.desc.blocks+1)
		for i := range c.desc.blocks {
			c.at[i] = le.Uint32(index[descriptionSize+4*i:])
		}
		c.at[c.desc.blocks] = uint32(pos)
	case headErr == nil:
		c.desc, c.bad = d, fmt.Errorf("index: %w", indexErr)
		c.walk()
	default:
		return nil, nil
	}
	return c, nil
}

// readIndex returns the frame at the end of the file, and its position.
func readIndex(f env.File, length int64) (index []byte, pos int64, err error) {
	var trailer [trailerSize]byte
	if length < 2*descriptionSize+trailerSize || length > math.MaxUint32 {
		return nil, 0, errors.New("it is not there")
	}
	if err := readFull(f, trailer[:], length-trailerSize); err != nil {
		return nil, 0, err
	}
	pos = int64(le.Uint64(trailer[:]))
	if le.Uint32(trailer[12:]) != compressedMagic || le.Uint32(trailer[8:]) != crc32.Checksum(trailer[:8], castagnoli) ||
		pos < descriptionSize || pos > length-descriptionSize-trailerSize || length-pos > largestFooter {
		return nil, 0, errors.New("it is not there")
	}
	index = make([]byte, length-trailerSize-pos)
	if err := readFull(f, index, pos); err != nil {
		return nil, 0, err
	}
	d, n, err := describe(index, kindBlocks)
	if err != nil {
		return nil, 0, err
	}
	if n != len(index) || n != descriptionSize+4*d.blocks {
		return nil, 0, errors.New("it has the wrong length")
	}
	before := int64(descriptionSize)
	for i := range d.blocks {
		at := int64(le.Uint32(index[descriptionSize+4*i:]))
		if i == 0 && at != before || i > 0 && at <= before || at > pos {
			return nil, 0, errors.New("it says what can't be")
		}
		before = at
	}
	return index, pos, nil
}

// walk finds the blocks without an index. It finds none behind a block with a damaged length.
func (c *compressed) walk() {
	c.at = make([]uint32, c.desc.blocks+1)
	pos := int64(descriptionSize)
	var head [blockHeader]byte
	for i := range c.at {
		c.at[i] = uint32(pos)
		if i == c.desc.blocks || readFull(c.f, head[:], pos) != nil {
			continue
		}
		if n := int64(le.Uint32(head[:]) &^ blockPlain); le.Uint32(head[8:]) == uint32(i) && pos+blockHeader+n <= c.length {
			pos += blockHeader + n
		}
	}
}

func (c *compressed) stored() int64 { return c.length }

func (c *compressed) end() uint64 { return c.desc.upTo }

func (c *compressed) check() error { return c.bad }

// Size returns the size of the plain file.
func (c *compressed) Size() (int64, error) { return c.desc.size, nil }

// ReadAt reads as from the plain file.
func (c *compressed) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off < c.desc.size {
		at := int(off / int64(c.desc.block))
		copied, err := c.cache.read(c, at, p[n:], int(off-int64(at)*int64(c.desc.block)))
		if err != nil {
			return n, err
		}
		n += copied
		off += int64(copied)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// load decompresses a block into dst. It returns errors of the disk only: a damaged block reads as
// 0xff.
func (c *compressed) load(n int, dst []byte) ([]byte, error) {
	want := int(min(int64(c.desc.block), c.desc.size-int64(n)*int64(c.desc.block)))
	if cap(dst) < want {
		dst = make([]byte, 0, c.desc.block)
	}
	buf, _ := stored.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer stored.Put(buf)
	size := int(c.at[n+1] - c.at[n])
	if size > blockHeader && size <= blockHeader+2*largestBlock {
		if cap(*buf) < size {
			*buf = make([]byte, size)
		}
		raw := (*buf)[:size]
		if err := readFull(c.f, raw, int64(c.at[n])); err != nil {
			if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
				return dst[:0], err
			}
		} else if out, ok := unblock(raw, n, dst[:0]); ok && len(out) == want {
			return out, nil
		}
	}
	dst = dst[:want]
	for i := range dst {
		dst[i] = 0xff // the length of no frame
	}
	return dst, nil
}

// unblock appends the content of block n to dst, which has the capacity. It returns false if the
// block is damaged.
func unblock(raw []byte, n int, dst []byte) ([]byte, bool) {
	length := le.Uint32(raw)
	if int(length&^blockPlain) != len(raw)-blockHeader || le.Uint32(raw[8:]) != uint32(n) || crc32.Checksum(raw[8:], castagnoli) != le.Uint32(raw[4:]) {
		return dst, false
	}
	if length&blockPlain != 0 {
		return append(dst, raw[blockHeader:]...), true
	}
	out, err := decoder().DecodeAll(raw[blockHeader:], dst)
	return out, err == nil
}

// stored has buffers for compressed blocks.
var stored sync.Pool

// decoder returns the decoder that all files share. It keeps memory for the blocks that are
// decompressed concurrently, and has no goroutine.
var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(largestBlock))
	if err != nil {
		panic("zstd refuses options that don't depend on anything: " + err.Error())
	}
	return d
})

// Close closes the file and drops its blocks from the cache.
func (c *compressed) Close() error {
	c.cache.drop(c)
	return c.f.Close()
}

// WriteAt, Preallocate and Truncate return errors, since a sealed segment never changes.
func (c *compressed) WriteAt([]byte, int64) (int, error) { return 0, c.refuse("write") }
func (c *compressed) Preallocate(int64) error            { return c.refuse("preallocate") }
func (c *compressed) Truncate(int64) error               { return c.refuse("truncate") }
func (c *compressed) Sync() error                        { return c.f.Sync() }

func (c *compressed) refuse(op string) error {
	return &env.DiskError{Op: op, Path: SegmentRef{Base: c.desc.base}.name(), Err: fmt.Errorf("a compressed segment doesn't change: %w", syscall.EROFS)}
}
