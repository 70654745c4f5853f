package subjectindex

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/carillon-mq/carillon/broker/env"
)

// writer writes a file from front to end: for each subject, in order, begin and its offsets. Its
// memory is the filter, one list of posting blocks and some buffers.
type writer struct {
	f    env.File
	path string
	h    header
	salt uint32
	foot footer

	buf     []byte // not written yet
	written int64

	block         []byte // data block
	separator     []byte // of block
	index         []byte // index block
	first         []byte // separator of index
	bloom         *bloom
	entries, refs int // of block and index

	// The subject whose offsets are being added.
	subject  []byte
	previous []byte // subject of the entry before
	in       bool
	count    uint64
	from, to uint64 // first and last offset
	tokens   tokenWriter
	postings []posting
}

// posting is one posting block of a subject.
type posting struct {
	pos          int64
	size         int
	count, first uint64
}

// newWriter begins a file with up to so many subjects. f is empty, and stays the caller's.
func newWriter(f env.File, path string, h header, subjects uint64) *writer {
	h.number = rand.Uint64()
	w := &writer{f: f, path: path, h: h, bloom: newBloom(subjects)}
	data := h.encode()
	w.salt = crc32.Checksum(data[:], castagnoli)
	w.buf = append(make([]byte, 0, writeBytes+mostBlock/8), data[:]...)
	return w
}

func (w *writer) pos() int64 { return w.written + int64(len(w.buf)) }

// put writes a block and returns where it stands.
func (w *writer) put(block []byte) (pos int64, err error) {
	pos = w.pos()
	w.buf = append(w.buf, block...)
	w.buf = le.AppendUint32(w.buf, blockSum(w.salt, pos, block))
	if len(w.buf) >= writeBytes {
		err = w.flush()
	}
	return pos, err
}

func (w *writer) flush() error {
	_, err := w.f.WriteAt(w.buf, w.written)
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	return err
}

// begin begins the next subject, which is greater than the one before and has the hash h.
func (w *writer) begin(subject []byte, h uint64) error {
	if err := w.endSubject(); err != nil {
		return err
	}
	if w.foot.subjects > 0 && bytes.Compare(subject, w.previous) <= 0 {
		return &OrderError{"subject " + string(subject) + " does not follow " + string(w.previous)}
	}
	w.subject = append(w.subject[:0], subject...)
	w.in, w.count, w.postings = true, 0, w.postings[:0]
	w.bloom.add(h)
	return nil
}

// add adds the next consecutive offsets of the subject: from from up to, not including, to.
func (w *writer) add(from, to uint64) error {
	next := from // that a token has
	switch {
	case from < w.h.from || from >= to:
		return &OrderError{"an offset is below what the file covers"}
	case w.count == 0:
		w.from = from
		w.tokens.begin(from)
		next++
	case from <= w.to:
		return &OrderError{"offsets of subject " + string(w.subject) + " are not in order"}
	case len(w.tokens.buf) >= postingBytes:
		if err := w.endPosting(); err != nil {
			return err
		}
		w.startPosting(from)
		next++
	}
	w.tokens.add(next, to)
	w.count += to - from
	w.to = to - 1
	return nil
}

// startPosting begins another posting block.
func (w *writer) startPosting(first uint64) {
	w.postings = append(w.postings, posting{first: first, count: w.count})
	w.tokens.begin(first)
}

// endPosting writes the posting block that was begun.
func (w *writer) endPosting() error {
	if len(w.postings) == 0 {
		w.postings = append(w.postings, posting{first: w.from})
	}
	if len(w.postings) == 1 {
		if err := w.endData(); err != nil { // posting blocks are back to back, also in what follows
			return err
		}
	}
	w.tokens.flush()
	pos, err := w.put(w.tokens.buf)
	p := &w.postings[len(w.postings)-1]
	p.pos, p.size, p.count = pos, len(w.tokens.buf), w.count-p.count
	return err
}

// endSubject adds the entry of the subject to the data block.
func (w *writer) endSubject() error {
	if !w.in {
		return nil
	}
	w.in = false
	if w.count == 0 {
		return &OrderError{"subject " + string(w.subject) + " has no offset"}
	}
	w.tokens.flush()
	if len(w.postings) > 0 || len(w.tokens.buf) > inlineBytes {
		if err := w.endPosting(); err != nil {
			return err
		}
	}
	if len(w.block) >= blockBytes && w.entries >= leastEntries {
		if err := w.endData(); err != nil {
			return err
		}
	}
	common := 0
	if len(w.block) == 0 {
		w.separator = append(w.separator[:0], w.subject...)
		if w.foot.subjects > 0 { // the shortest that is greater than the subject before
			w.separator = w.separator[:min(shared(w.previous, w.subject)+1, len(w.subject))]
		}
	} else {
		common = shared(w.previous, w.subject)
	}
	b := binary.AppendUvarint(w.block, uint64(common))
	b = binary.AppendUvarint(b, uint64(len(w.subject)-common))
	b = append(b, w.subject[common:]...)
	external := uint64(min(len(w.postings), 1))
	b = binary.AppendUvarint(b, w.count<<1|external)
	b = binary.AppendUvarint(b, w.from-w.h.from)
	if w.count >= 2 {
		b = binary.AppendUvarint(b, w.to-w.from-(w.count-1))
	}
	switch {
	case external == 1:
		b = binary.AppendUvarint(b, uint64(len(w.postings)))
		b = binary.AppendUvarint(b, uint64(w.postings[0].pos))
		before := w.from
		for _, p := range w.postings {
			b = binary.AppendUvarint(b, uint64(p.size))
			b = binary.AppendUvarint(b, p.count)
			b = binary.AppendUvarint(b, p.first-before)
			before = p.first
		}
	case w.count >= 3:
		b = binary.AppendUvarint(b, uint64(len(w.tokens.buf)))
		b = append(b, w.tokens.buf...)
	}
	w.block = b
	w.entries++
	w.previous = append(w.previous[:0], w.subject...)
	w.foot.subjects++
	w.foot.records += w.count
	return nil
}

// endData writes the data block.
func (w *writer) endData() error {
	if len(w.block) == 0 {
		return nil
	}
	pos, err := w.put(w.block)
	if err != nil {
		return err
	}
	if len(w.index) == 0 {
		w.first = append(w.first[:0], w.separator...)
	}
	ref := blockRef{separator: w.separator, pos: pos, size: len(w.block)}
	w.index = ref.encode(w.index)
	w.block, w.entries = w.block[:0], 0
	if w.refs++; len(w.index) >= blockBytes && w.refs >= leastEntries {
		return w.endIndex()
	}
	return nil
}

// endIndex writes the index block.
func (w *writer) endIndex() error {
	if len(w.index) == 0 {
		return nil
	}
	pos, err := w.put(w.index)
	w.foot.blocks = append(w.foot.blocks, blockRef{separator: slices.Clone(w.first), pos: pos, size: len(w.index)})
	w.index, w.refs = w.index[:0], 0
	return err
}

// finish writes the rest of a file that covers all offsets up to, not including, end, except for
// the gaps. It syncs the index of a segment.
func (w *writer) finish(end uint64, gaps []Range) error {
	if err := w.endSubject(); err != nil {
		return err
	}
	if err := w.endData(); err != nil {
		return err
	}
	if err := w.endIndex(); err != nil {
		return err
	}
	w.bloom.fold(w.foot.subjects)
	w.foot.end, w.foot.gaps = end, gaps
	w.foot.filterAt, w.foot.filterBlocks = w.pos(), uint32(w.bloom.blocks())
	page := make([]byte, filterPage-crcSize)
	for bits := w.bloom.bits; len(bits) > 0; {
		n := copy(page, bits[:min(len(bits), perPage*bloomBlock)])
		clear(page[n:])
		bits = bits[n:]
		if _, err := w.put(page); err != nil {
			return err
		}
	}
	foot := w.foot.encode(nil)
	pos, err := w.put(foot)
	if err != nil {
		return err
	}
	w.buf = le.AppendUint64(w.buf, uint64(pos))
	w.buf = le.AppendUint32(w.buf, crc32.Checksum(w.buf[len(w.buf)-8:], castagnoli))
	w.buf = le.AppendUint32(w.buf, trailerMagic)
	if err := w.flush(); err != nil || w.h.kind != kindSegment {
		return err // a part needn't survive a crash
	}
	return w.f.Sync()
}
