package subjectindex

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/carillon-mq/carillon/broker/env"
)

// input is a part of what a file is made of: a run, or a view of a part.
type input struct {
	clip Range // what counts of it
	run  *run
	view *partView
}

// cursor returns a cursor of the selected subjects. sources is how many there are, for the size of
// buffers.
func (in *input) cursor(ctx context.Context, sel selection, sources int) cursor {
	if in.view != nil {
		return in.view.sorted(sel, in.clip)
	}
	return in.run.scan(ctx, sel, min(max(scanBytes/sources/2, 2*blockBytes), windowBytes))
}

// merge returns a merger of inputs, which are in the order of their offsets.
func merge(ctx context.Context, inputs []input, sel selection) (*merger, error) {
	sources := make([]*source, len(inputs))
	for i := range inputs {
		sources[i] = &source{cursor: inputs[i].cursor(ctx, sel, len(inputs)), order: i, clip: inputs[i].clip}
	}
	return newMerger(sources)
}

// checkEvery is after how many subjects a scan looks whether it is to stop: about a tenth of a
// millisecond.
const checkEvery = 1 << 10

// write makes a file of some inputs, and opens it. An index of a segment is synced before it gets
// its name.
func (s *Shard) write(ctx context.Context, h header, end uint64, gaps []Range, inputs []input) (*run, error) {
	number := s.number.Add(1)
	name := strconv.FormatUint(number, 10) + partEnd
	if h.kind == kindSegment {
		name = segmentName(h.of, number)
	}
	h.secret = s.config.Secret
	path := filepath.Join(s.config.Dir, name)
	temporary := path + newEnd
	f, err := s.config.FS.Create(temporary)
	if err != nil {
		return nil, err
	}
	err = s.fill(ctx, f, temporary, h, end, gaps, inputs)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.config.FS.Rename(temporary, path)
	}
	if err != nil {
		// What can't be removed now is removed by Open.
		return nil, errors.Join(err, s.config.FS.Remove(temporary))
	}
	r, err := openRun(s.config.Cache, path, h.kind, h.secret, h.of)
	if err != nil {
		return nil, errors.Join(err, s.config.FS.Remove(path))
	}
	r.gone = s.discard
	if h.kind == kindSegment && s.config.Added != nil {
		s.config.Added(name, r.size)
	}
	return r, nil
}

// fill writes a file.
func (s *Shard) fill(ctx context.Context, f env.File, path string, h header, end uint64, gaps []Range, inputs []input) error {
	subjects := uint64(0)
	for _, in := range inputs {
		if in.view != nil {
			subjects += uint64(in.view.names.n)
		} else {
			subjects += in.run.subjects
		}
	}
	w := newWriter(f, path, h, subjects)
	m, err := merge(ctx, inputs, selectAll)
	for n := 0; err == nil; n++ {
		var subject []byte
		var group []*source
		if subject, group, err = m.next(); err != nil || len(group) == 0 {
			break
		}
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		began := false
		for _, source := range group {
			err = errors.Join(err, source.offsets(source.clip, func(from, to uint64) error {
				if !began { // all may be beyond the clip
					began = true
					if err := w.begin(subject, hash(s.config.Secret, subject)); err != nil {
						return err
					}
				}
				return w.add(from, to)
			}))
		}
	}
	if err != nil {
		return err
	}
	return w.finish(end, gaps)
}

// Built is the index of a segment that has no layer yet: see Builder.
type Built struct{ run *run }

// Builder makes the index of a range of records that are added in order, with the memory of a part.
// One goroutine uses it.
type Builder struct {
	shard  *Shard
	h      header
	end    uint64
	part   *part
	inputs []input // runs
	gaps   []Range
}

// NewBuilder returns a Builder for a segment whose last record is of an epoch. Records are added
// from offset from on. Finish or Abandon must follow.
func (s *Shard) NewBuilder(g Segment, from, epoch uint64) *Builder {
	return &Builder{shard: s, h: header{kind: kindSegment, of: g, from: from, epoch: epoch}, end: from}
}

// Add adds n consecutive records of a subject.
func (b *Builder) Add(ctx context.Context, offset uint64, n int, subject []byte) error {
	if offset < b.end || len(subject) > mostSubject {
		return &OrderError{"a record can't be added to a builder"}
	}
	if b.part == nil {
		b.part = newPart(b.shard.config.Secret, b.end, 0)
	}
	b.part.add(offset, n, subject, hash(b.shard.config.Secret, subject))
	b.end = offset + uint64(n)
	if b.part.bytes() > b.shard.config.PartBytes {
		return b.spill(ctx)
	}
	return nil
}

// Gap says that records are damaged.
func (b *Builder) Gap(from, to uint64) {
	if n := len(b.gaps); n > 0 && b.gaps[n-1].To == from {
		b.gaps[n-1].To = to
	} else if from < to {
		b.gaps = append(b.gaps, Range{from, to})
	}
	b.end = max(b.end, to)
}

// spill writes the part to a file.
func (b *Builder) spill(ctx context.Context) error {
	v := b.part.view()
	covers := Range{b.part.base, b.part.end}
	h := header{kind: kindPart, of: b.h.of, from: covers.From}
	r, err := b.shard.write(ctx, h, covers.To, nil, []input{{clip: covers, view: &v}})
	if err != nil {
		return err
	}
	b.inputs, b.part = append(b.inputs, input{clip: covers, run: r}), nil
	return nil
}

// Finish writes the file of an index that covers the offsets up to, not including, end.
func (b *Builder) Finish(ctx context.Context, end uint64) (*Built, error) {
	defer b.Abandon()
	inputs := b.inputs
	if b.part != nil {
		v := b.part.view()
		inputs = append(inputs[:len(inputs):len(inputs)], input{clip: Range{b.part.base, b.part.end}, view: &v})
	}
	r, err := b.shard.write(ctx, b.h, end, b.gaps, inputs)
	if err != nil {
		return nil, err
	}
	return &Built{r}, nil
}

// Abandon frees what the Builder has.
func (b *Builder) Abandon() {
	for _, in := range b.inputs {
		in.run.doomed.Store(true)
		in.run.release()
	}
	b.inputs, b.part = nil, nil
}
