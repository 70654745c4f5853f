package subjectindex

import (
	"bytes"
	"context"
	"io"
)

// cursor iterates over subjects of a layer, in order. One goroutine uses it.
type cursor interface {
	// next moves to the next subject, the first at the beginning.
	next() (bool, error)
	// subject is valid until next.
	subject() []byte
	// info returns what a range has of the subject.
	info(r Range) (Info, error)
	// offsets calls f with the consecutive offsets of the subject within a range, in order: those from
	// from up to, not including, to.
	offsets(r Range, f func(from, to uint64) error) error
}

// runCursor iterates over the selected subjects of a run. It reads the file in large pieces and
// leaves data blocks out of the cache, so that a scan doesn't evict what lookups need.
type runCursor struct {
	ctx   context.Context // of the scan; looked at before each data block
	run   *run
	sel   selection
	spans []span // that are left
	began bool   // the first of spans was sought

	index int    // number of the next index block
	refs  []byte // what is left of the one before
	block blockReader
	entry entry

	data, postings window
}

// scan returns a cursor that reads up to ahead bytes at once, until ctx ends.
func (r *run) scan(ctx context.Context, sel selection, ahead int) *runCursor {
	return &runCursor{ctx: ctx, run: r, sel: sel, spans: sel.spans, data: window{run: r, most: ahead}, postings: window{run: r, most: ahead}}
}

func (c *runCursor) subject() []byte { return c.entry.subject }

func (c *runCursor) info(r Range) (Info, error) {
	return c.entry.info(c.run, r, c.postings.block)
}

func (c *runCursor) offsets(r Range, f func(from, to uint64) error) error {
	return c.entry.offsets(c.run, r, c.postings.block, f)
}

func (c *runCursor) next() (bool, error) {
	for len(c.spans) > 0 {
		at := c.spans[0]
		if !c.began {
			c.began = true
			if err := c.seek(at.from); err != nil {
				return false, err
			}
		}
		ok, err := c.entryNext()
		if err != nil {
			return false, err
		}
		if !ok {
			c.spans = nil
			break
		}
		if bytes.Compare(c.entry.subject, at.from) < 0 {
			continue
		}
		if at.to != nil && bytes.Compare(c.entry.subject, at.to) >= 0 {
			c.spans, c.began = c.spans[1:], false
			continue
		}
		if c.sel.has(c.entry.subject) {
			return true, nil
		}
	}
	return false, nil
}

// entryNext reads the next entry of the run.
func (c *runCursor) entryNext() (bool, error) {
	for {
		ok, err := c.block.next(&c.entry)
		if ok || err != nil {
			return ok, err
		}
		if ok, err = c.blockNext(); !ok || err != nil {
			return false, err
		}
	}
}

// blockNext reads the next data block.
func (c *runCursor) blockNext() (bool, error) {
	if err := c.ctx.Err(); err != nil {
		return false, err
	}
	for len(c.refs) == 0 {
		if c.index == len(c.run.blocks) {
			return false, nil
		}
		at := c.run.blocks[c.index]
		c.index++
		refs, err := c.run.cache.block(c.run, at.pos, at.size, metaChances)
		if err != nil {
			return false, err
		}
		c.refs = refs
	}
	ref, more, ok := decodeBlockRef(c.refs)
	if !ok {
		return false, c.run.wrong(c.run.blocks[c.index-1].pos, "an index block can't be decoded")
	}
	c.refs = more
	return true, c.open(ref)
}

func (c *runCursor) open(ref blockRef) error {
	data, err := c.data.block(ref.pos, ref.size)
	c.block = blockReader{run: c.run, rest: data, pos: ref.pos, subject: c.block.subject[:0]}
	return err
}

// seek moves to the data block that has a subject.
func (c *runCursor) seek(subject []byte) error {
	c.index, c.refs, c.block = 0, nil, blockReader{run: c.run}
	i := c.run.indexOf(subject)
	if i < 0 {
		return nil
	}
	at := c.run.blocks[i]
	rest, err := c.run.cache.block(c.run, at.pos, at.size, metaChances)
	if err != nil {
		return err
	}
	c.index, c.refs = i+1, rest
	for len(rest) > 0 {
		ref, more, ok := decodeBlockRef(rest)
		if !ok {
			return c.run.wrong(at.pos, "an index block can't be decoded")
		}
		if bytes.Compare(ref.separator, subject) > 0 {
			break
		}
		c.refs, rest = rest, more
	}
	return nil
}

// window reads blocks in the order of their positions, many at once.
type window struct {
	run   *run
	data  []byte
	pos   int64
	ahead int // how much is read next
	most  int
}

// block returns a block, which is valid until the next call.
func (w *window) block(pos int64, size int) ([]byte, error) {
	need := size + crcSize
	if pos < w.pos || pos+int64(need) > w.pos+int64(len(w.data)) {
		if pos >= w.pos && pos <= w.pos+int64(len(w.data)) {
			w.ahead = min(max(2*w.ahead, 2*blockBytes), w.most)
		} else {
			w.ahead = need // a seek may be for one subject only
		}
		if err := w.fill(pos, max(need, w.ahead)); err != nil {
			return nil, err
		}
		if len(w.data) < need {
			return nil, w.run.wrong(pos, "the file ends within a block of %d bytes", size)
		}
	}
	data := w.data[pos-w.pos:][:need]
	if !w.run.intact(pos, data) {
		return nil, w.run.wrong(pos, "the checksum of a block of %d bytes is wrong", size)
	}
	return data[:size:size], nil
}

func (w *window) fill(pos int64, size int) error {
	f, err := w.run.cache.files.acquire(w.run)
	if err != nil {
		return err
	}
	defer w.run.cache.files.release(w.run)
	if cap(w.data) < size {
		w.data = make([]byte, size)
	}
	n, err := f.ReadAt(w.data[:size], pos)
	w.data, w.pos = w.data[:n], pos
	if err == io.EOF {
		err = nil
	}
	return err
}

// source is a cursor of a merge. Its order is that of its layer.
type source struct {
	cursor
	order int
	clip  Range // offsets of the layer
}

// merger merges cursors.
type merger struct {
	heap  []*source // by subject, and then by order
	group []*source // that have the present subject, oldest first
}

func newMerger(sources []*source) (*merger, error) {
	m := &merger{}
	return m, m.advance(sources)
}

// advance moves sources to their next subjects, and adds those to the heap that have one.
func (m *merger) advance(sources []*source) error {
	for _, s := range sources {
		ok, err := s.next()
		if err != nil {
			return err
		}
		if ok {
			m.push(s)
		}
	}
	return nil
}

// next moves to the next subject, and returns it with the sources that have it, oldest first. They
// are valid until the next call. Without a subject left group is empty.
func (m *merger) next() (subject []byte, group []*source, err error) {
	if err := m.advance(m.group); err != nil {
		return nil, nil, err
	}
	m.group = m.group[:0]
	for len(m.heap) > 0 && (len(m.group) == 0 || bytes.Equal(m.heap[0].subject(), subject)) {
		s := m.pop()
		subject = s.subject()
		m.group = append(m.group, s)
	}
	return subject, m.group, nil
}

func (m *merger) less(a, b *source) bool {
	if c := bytes.Compare(a.subject(), b.subject()); c != 0 {
		return c < 0
	}
	return a.order < b.order
}

func (m *merger) push(s *source) {
	m.heap = append(m.heap, s)
	h := m.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !m.less(h[i], h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (m *merger) pop() *source {
	h := m.heap
	top, n := h[0], len(h)-1
	h[0], h[n] = h[n], nil
	h = h[:n]
	m.heap = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && m.less(h[down], h[least]) {
				least = down
			}
		}
		if least == i {
			return top
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
