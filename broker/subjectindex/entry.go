package subjectindex

// entry is what a run has of one subject.
type entry struct {
	subject     []byte
	count       uint64
	first, last uint64
	tokens      []byte // of the offsets behind the first, if they are in the entry
	blocks      []byte // sizes, counts and first offsets of posting blocks, if they are not
	nblocks     uint64
	blocksAt    int64
	pos         int64 // of its block, for errors
}

// blockReader reads the entries of a data block.
type blockReader struct {
	run     *run
	rest    []byte
	pos     int64  // of the block, for errors
	subject []byte // of the entry before; its memory is used again
}

// next reads an entry. Its subject is valid until the next call, all else as long as the block.
func (b *blockReader) next(e *entry) (ok bool, err error) {
	if len(b.rest) == 0 {
		return false, nil
	}
	r, d := b.run, decoder{data: b.rest}
	common := d.uvarint()
	other := d.bytes(d.uvarint())
	if d.bad || common > uint64(len(b.subject)) {
		return false, r.wrong(b.pos, "an entry can't be decoded")
	}
	b.subject = append(b.subject[:common], other...)
	e.subject = b.subject
	e.pos = b.pos
	count := d.uvarint()
	e.count = count >> 1
	first := d.uvarint()
	e.first, e.tokens, e.blocks, e.nblocks = r.h.from+first, nil, nil, 0
	between := uint64(0)
	if e.count >= 2 {
		between = d.uvarint()
	}
	room := r.end - r.h.from
	if d.bad || e.count == 0 || first >= room || e.count > room-first || between > room-first-e.count {
		return false, r.wrong(b.pos, "an entry has offsets that the file doesn't cover")
	}
	e.last = e.first + between + e.count - 1
	switch {
	case count&1 == 1:
		e.nblocks = d.uvarint()
		at := d.uvarint()
		e.blocks, e.blocksAt = d.data, int64(at)
		for range e.nblocks {
			d.uvarint()
			d.uvarint()
			d.uvarint()
			if d.bad {
				break
			}
		}
		e.blocks = e.blocks[:max(len(e.blocks)-len(d.data), 0)]
		d.bad = d.bad || e.nblocks == 0 || at < headerSize || at > 1<<62
	case e.count >= 3:
		e.tokens = d.bytes(d.uvarint())
	}
	if d.bad {
		return false, r.wrong(b.pos, "an entry can't be decoded")
	}
	b.rest = d.data
	return true, nil
}

// readBlock reads a block of a run: through the cache, or with a buffer of a scan.
type readBlock func(pos int64, size int) ([]byte, error)

// cached reads posting blocks through the cache.
func (r *run) cached(pos int64, size int) ([]byte, error) {
	return r.cache.block(r, pos, size, dataChances)
}

// info returns what a range has of the subject.
func (e *entry) info(r *run, in Range, read readBlock) (info Info, err error) {
	if in.From <= e.first && e.last < in.To {
		return Info{Count: e.count, First: e.first, Last: e.last}, nil
	}
	if e.first >= in.To || e.last < in.From {
		return Info{}, nil
	}
	err = e.runs(r, in, read, func(from, to, count uint64) error {
		if count == to-from {
			info.addRun(from, to, in)
		} else { // a block that is wholly within
			info.add(Info{Count: count, First: from, Last: to - 1})
		}
		return nil
	}, true)
	return info, err
}

// offsets calls f with the consecutive offsets of the subject within a range, in order.
func (e *entry) offsets(r *run, in Range, read readBlock, f func(from, to uint64) error) error {
	return e.runs(r, in, read, func(from, to, _ uint64) error {
		if from, to = max(from, in.From), min(to, in.To); from >= to {
			return nil
		}
		return f(from, to)
	}, false)
}

// runs calls f with the consecutive offsets of the subject, from from up to, not including, to,
// that may be within a range. If whole is set, posting blocks that are wholly within are not read:
// f gets their count, and an upper bound for to, which is exact if the block is the last one.
func (e *entry) runs(r *run, in Range, read readBlock, f func(from, to, count uint64) error, whole bool) error {
	switch {
	case e.nblocks > 0:
		return e.external(r, in, read, f, whole)
	case e.count <= 2:
		if err := f(e.first, e.first+1, 1); err != nil || e.count == 1 {
			return err
		}
		return f(e.last, e.last+1, 1)
	}
	return e.decode(r, e.tokens, e.first, e.count, in, f)
}

// decode calls f with the runs of some tokens, behind a first offset.
func (e *entry) decode(r *run, tokens []byte, first, count uint64, in Range, f func(from, to, count uint64) error) error {
	t := tokenReader{buf: tokens, next: first + 1, end: e.last + 1}
	from, to, n := first, first+1, uint64(0)
	for {
		n += to - from
		if n > count {
			return r.wrong(e.pos, "a subject has more than its %d offsets", count)
		}
		if from >= in.To {
			return nil
		}
		if to > in.From {
			if err := f(from, to, to-from); err != nil {
				return err
			}
		}
		var ok, bad bool
		if from, to, ok, bad = t.read(); bad {
			return r.wrong(e.pos, "the offsets of a subject can't be decoded")
		} else if !ok {
			break
		}
	}
	if n != count {
		return r.wrong(e.pos, "a subject has %d of its %d offsets", n, count)
	}
	return nil
}

// external is runs for offsets in posting blocks.
func (e *entry) external(r *run, in Range, read readBlock, f func(from, to, count uint64) error, whole bool) error {
	d := decoder{data: e.blocks}
	pos, total := e.blocksAt, uint64(0)
	size, count, first := d.uvarint(), d.uvarint(), e.first+d.uvarint()
	for i := range e.nblocks {
		var nextSize, nextCount uint64
		next := e.last + 1 // what all offsets of the block are below
		if i+1 < e.nblocks {
			nextSize, nextCount = d.uvarint(), d.uvarint()
			next = first + d.uvarint()
		}
		total += count
		if d.bad || size > mostBlock || count == 0 || next <= first || next > e.last+1 || next-first < count {
			return r.wrong(e.blocksAt, "the list of posting blocks of a subject is wrong")
		}
		switch {
		case first >= in.To:
			return nil
		case next <= in.From:
		case whole && i+1 == e.nblocks && in.From <= first && next <= in.To:
			// Only the last block's last offset is known without reading it.
			if err := f(first, next, count); err != nil {
				return err
			}
		case whole && i+1 < e.nblocks && in.From <= first && next < in.To:
			// An offset of the next block is within the range, so the last of this one isn't asked for.
			if err := f(first, next, count); err != nil {
				return err
			}
		default:
			tokens, err := read(pos, int(size))
			if err != nil {
				return err
			}
			if err := e.decode(r, tokens, first, count, in, f); err != nil {
				return err
			}
		}
		pos += int64(size) + crcSize
		size, count, first = nextSize, nextCount, next
	}
	if total != e.count {
		return r.wrong(e.blocksAt, "a subject has %d of its %d offsets", total, e.count)
	}
	return nil
}
