package subjectindex

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/env"
)

// run is a file: the offsets of the subjects of consecutive records. It is immutable. In memory
// there is its footer only; all else is read through the cache.
type run struct {
	footer
	h     header
	path  string
	size  int64
	cache *Cache
	id    uint64 // in the cache
	salt  uint32

	handle handle // guarded by the cache's files

	refs   atomic.Int64
	doomed atomic.Bool // the file is to be deleted when refs is 0
	gone   func(r *run)
}

// openRun opens the file of a log's segment, or of a part. An *env.DiskError is a failure of the
// disk, a *FileError a file that can't be used. The result has one reference.
func openRun(cache *Cache, path string, kind byte, secret uint64, of Segment) (*run, error) {
	r := &run{path: path, cache: cache, id: cache.ids.Add(1)}
	r.refs.Store(1)
	f, err := cache.files.acquire(r)
	if err != nil {
		return nil, err
	}
	err = r.load(f)
	cache.files.release(r)
	if err == nil && (r.h.kind != kind || r.h.secret != secret || r.h.of != of) {
		err = r.wrong(0, "it is of another log or segment")
	}
	if err != nil {
		cache.files.forget(r)
		return nil, err
	}
	return r, nil
}

func (r *run) wrong(pos int64, format string, args ...any) error {
	return &FileError{Path: r.path, Pos: pos, Reason: fmt.Sprintf(format, args...)}
}

// load reads header and footer.
func (r *run) load(f env.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	r.size = size
	if size < headerSize+footerFixed+crcSize+trailerSize {
		return r.wrong(0, "it has %d bytes only", size)
	}
	head, trailer := make([]byte, headerSize), make([]byte, trailerSize)
	if err := readFull(f, head, 0); err != nil {
		return err
	}
	var why string
	if r.h, why = decodeHeader(head); why != "" {
		return r.wrong(0, "%s", why)
	}
	r.salt = crc32.Checksum(head, castagnoli)
	if err := readFull(f, trailer, size-trailerSize); err != nil {
		return err
	}
	pos := int64(le.Uint64(trailer))
	if le.Uint32(trailer[12:]) != trailerMagic || le.Uint32(trailer[8:]) != crc32.Checksum(trailer[:8], castagnoli) {
		return r.wrong(size-trailerSize, "it has no trailer")
	}
	length := size - trailerSize - crcSize - pos
	if pos < headerSize || length < footerFixed || length > mostFooter {
		return r.wrong(size-trailerSize, "the footer can't be at byte %d", pos)
	}
	data, err := r.readFrom(f, pos, int(length), nil)
	if err != nil {
		return err
	}
	var ok bool
	if r.footer, ok = decodeFooter(data); !ok {
		return r.wrong(pos, "the footer can't be decoded")
	}
	return r.check(pos)
}

// check checks what the footer says.
func (r *run) check(pos int64) error {
	pages := (int64(r.filterBlocks) + perPage - 1) / perPage
	switch {
	case r.h.from < r.h.of.Base || r.end < r.h.from || r.records > r.end-r.h.from || r.subjects > r.records:
		return r.wrong(pos, "it can't have %d records of %d subjects between offset %d and %d", r.records, r.subjects, r.h.from, r.end)
	case r.filterBlocks == 0 || r.filterAt < headerSize || r.filterAt+pages*filterPage > pos:
		return r.wrong(pos, "the filter can't be at byte %d", r.filterAt)
	}
	for i, b := range r.blocks {
		if b.pos < headerSize || b.pos+int64(b.size)+crcSize > pos || i > 0 && bytes.Compare(b.separator, r.blocks[i-1].separator) <= 0 {
			return r.wrong(pos, "index block %d can't be at byte %d", i, b.pos)
		}
	}
	for _, g := range r.gaps {
		if g.empty() || g.From < r.h.from || g.To > r.end {
			return r.wrong(pos, "it can't lack offset %d to %d", g.From, g.To)
		}
	}
	return nil
}

// readFull reads exactly len(p) bytes.
func readFull(f io.ReaderAt, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// read reads and checks a block, into memory that may be nil.
func (r *run) read(pos int64, size int, memory []byte) ([]byte, error) {
	f, err := r.cache.files.acquire(r)
	if err != nil {
		return nil, err
	}
	defer r.cache.files.release(r)
	return r.readFrom(f, pos, size, memory)
}

func (r *run) readFrom(f env.File, pos int64, size int, memory []byte) ([]byte, error) {
	if cap(memory) < size+crcSize {
		memory = make([]byte, size+crcSize)
	}
	data := memory[:size+crcSize]
	if err := readFull(f, data, pos); err != nil {
		if err == io.ErrUnexpectedEOF {
			return nil, r.wrong(pos, "the file ends within a block of %d bytes", size)
		}
		return nil, err
	}
	if !r.intact(pos, data) {
		return nil, r.wrong(pos, "the checksum of a block of %d bytes is wrong", size)
	}
	return data[:size:size], nil
}

// intact reports whether the CRC behind a block is right.
func (r *run) intact(pos int64, data []byte) bool {
	n := len(data) - crcSize
	return blockSum(r.salt, pos, data[:n]) == le.Uint32(data[n:])
}

// may reports whether the filter has a hash.
func (r *run) may(h uint64) (bool, error) {
	at := bloomPlace(h, uint64(r.filterBlocks))
	page, err := r.cache.block(r, r.filterAt+int64(at/perPage)*filterPage, filterPage-crcSize, metaChances)
	if err != nil {
		return false, err
	}
	return bloomHas(page[at%perPage*bloomBlock:][:bloomBlock], h), nil
}

// find returns the entry of a subject with the hash h. Its memory never changes.
func (r *run) find(subject []byte, h uint64) (e entry, ok bool, err error) {
	if ok, err := r.may(h); !ok || err != nil {
		return e, false, err
	}
	i := r.indexOf(subject)
	if i < 0 {
		return e, false, nil
	}
	ref, ok, err := r.dataBlock(i, subject)
	if !ok || err != nil {
		return e, false, err
	}
	data, err := r.cache.block(r, ref.pos, ref.size, dataChances)
	if err != nil {
		return e, false, err
	}
	b := blockReader{run: r, rest: data, pos: ref.pos}
	for {
		if ok, err := b.next(&e); !ok || err != nil {
			return e, false, err
		}
		if c := bytes.Compare(e.subject, subject); c >= 0 {
			return e, c == 0, nil
		}
	}
}

// indexOf returns the number of the index block that has a subject, or -1.
func (r *run) indexOf(subject []byte) int {
	return sort.Search(len(r.blocks), func(i int) bool { return bytes.Compare(r.blocks[i].separator, subject) > 0 }) - 1
}

// dataBlock returns the data block that has a subject, of an index block.
func (r *run) dataBlock(index int, subject []byte) (ref blockRef, ok bool, err error) {
	at := r.blocks[index]
	rest, err := r.cache.block(r, at.pos, at.size, metaChances)
	if err != nil {
		return ref, false, err
	}
	for len(rest) > 0 {
		next, more, decoded := decodeBlockRef(rest)
		if !decoded {
			return ref, false, r.wrong(at.pos, "an index block can't be decoded")
		}
		if bytes.Compare(next.separator, subject) > 0 {
			break
		}
		ref, ok, rest = next, true, more
	}
	return ref, ok, nil
}

// retain adds a reference.
func (r *run) retain() { r.refs.Add(1) }

// release drops a reference. With the last one the file is closed, and deleted if it is doomed:
// later, by gone, since the caller may hold a lock.
func (r *run) release() {
	switch {
	case r.refs.Add(-1) > 0:
	case r.gone != nil:
		r.gone(r)
	default:
		r.cache.files.forget(r)
	}
}
