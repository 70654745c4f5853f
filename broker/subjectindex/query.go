package subjectindex

import (
	"context"
	"errors"

	"github.com/carillon-mq/carillon/broker/removal"
)

// snapshot is what a question reads: the layers of a moment that have offsets of its range, oldest
// first. release must follow.
type snapshot struct {
	shard  *Shard
	set    *layerSet
	in     Range
	layers []*layer
	views  []*partView // by layer; nil if it is no part

	removed  *removal.Set // nil: nothing is removed
	removals uint64       // a version of removed that is no later
	version  uint64       // of the changes
}

// snapshot returns the layers for a range of offsets.
func (s *Shard) snapshot(in Range) (*snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	in = in.within(Range{s.start, s.end})
	q := &snapshot{shard: s, set: s.set, in: in, version: s.changed.version}
	if set := s.config.Removed; set != nil {
		q.removals, q.removed = set.Version(), s.removed()
	}
	s.set.refs.Add(1)
	for _, l := range s.set.layers {
		if l.within(in).empty() {
			continue
		}
		q.layers = append(q.layers, l)
		var view *partView
		if l.part != nil {
			v := l.part.view()
			view = &v
		}
		q.views = append(q.views, view)
	}
	return q, nil
}

func (q *snapshot) release() { q.set.release() }

// known returns an error if a layer lacks offsets of a range.
func (q *snapshot) known(l *layer, in Range) error {
	if l.part != nil || l.run != nil && len(l.run.gaps) == 0 {
		return nil
	}
	for _, u := range l.unknown() {
		if u = u.within(in); !u.empty() {
			return &MissingError{From: u.From, To: u.To, Damaged: l.run != nil || l.of.Generation == lost}
		}
	}
	return nil
}

// inputs returns the layers that have offsets of a range as inputs of a merge.
func (q *snapshot) inputs(in Range) (out []input) {
	for i, l := range q.layers {
		if r := l.within(in); !r.empty() {
			out = append(out, input{clip: r, run: l.run, view: q.views[i]})
		}
	}
	return out
}

// failed turns the error of a damaged file into that of what is missing by it: until it is rebuilt,
// or, if the layers have changed meanwhile, until the caller asks again.
func (q *snapshot) failed(err error) error {
	if _, damaged := errors.AsType[*FileError](err); !damaged {
		return err
	}
	q.shard.dropDamaged(err)
	return &MissingError{From: q.in.From, To: q.in.To}
}

// pointOf is what a part has of one subject: info if view is nil, and otherwise what a walk of the
// view finds.
type pointOf struct {
	layer   int
	info    Info
	tail    tail
	view    *partView
	removed *removal.Set // nil: none of the part's records of the subject
}

func (p *pointOf) find(in Range) Info {
	if p.view != nil {
		return p.view.info(p.tail, in, p.removed)
	}
	return p.info
}

func (p *pointOf) last(in Range) uint64 {
	if p.view != nil {
		return p.view.last(p.tail, in, p.removed)
	}
	return p.info.Last
}

// point returns what a part has of a subject within a range. ok is false if it has nothing. removed
// may be nil. mu is held.
func (p *part) point(subject []byte, h uint64, in Range, removed *removal.Set) (out pointOf, ok bool) {
	t, first := p.tailOf(subject, h)
	if t.count == 0 {
		return out, false
	}
	from, _ := offsetsAt(p.stretches, int(first))
	_, to := offsetsAt(p.stretches, int(t.last-1))
	out.info = Info{Count: uint64(t.count), First: from, Last: to - 1}
	if out.info.Last < in.From || out.info.First >= in.To {
		return out, false
	}
	if removed != nil && removed.Count(out.info.First, out.info.Last+1) > 0 {
		out.removed = removed
	}
	if out.removed != nil || !in.contains(Range{out.info.First, out.info.Last + 1}) {
		v := p.view()
		out.tail, out.view = t, &v
	}
	return out, true
}

// newest returns the offset of the last record of a subject, or 0 if that is not within a range,
// or is removed. A point finds those before it. removed may be nil. mu is held.
func (p *part) newest(subject []byte, h uint64, in Range, removed *removal.Set) uint64 {
	t, _ := p.tailOf(subject, h)
	if t.count == 0 {
		return 0
	}
	from, to := offsetsAt(p.stretches, int(t.last-1))
	if to > in.To || to <= in.From {
		return 0
	}
	return liveRun(removed, max(from, in.From), to).Last
}

// points is a question about one subject: the layers, and what the parts among them have of it.
type points struct {
	snapshot
	subject []byte
	h       uint64
	parts   []pointOf // newest first
}

// ask begins a question about one subject. With last set, it ends when the newest part that may
// have the last record has it; then offset is not 0, and there is nothing to release.
func (s *Shard) ask(subject []byte, in Range, last bool) (q *points, offset uint64, err error) {
	h := hash(s.config.Secret, subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, ErrClosed
	}
	in = in.within(Range{s.start, s.end})
	layers, removed := s.set.layers, s.removed()
	newest := last
	for n := len(layers) - 1; n >= 0; n-- {
		l := layers[n]
		r := l.within(in)
		if r.empty() {
			continue
		}
		if l.part == nil {
			newest = false
			continue
		}
		if newest {
			if offset := l.part.newest(subject, h, r, removed); offset > 0 {
				return nil, offset, nil
			}
		}
		p, ok := l.part.point(subject, h, r, removed)
		if !ok {
			continue
		}
		if q == nil {
			q = &points{}
		}
		p.layer, newest = n, false
		q.parts = append(q.parts, p)
	}
	if q == nil {
		q = &points{}
	}
	q.snapshot = snapshot{shard: s, set: s.set, in: in, layers: layers, removed: removed}
	q.subject, q.h = subject, h
	s.set.refs.Add(1)
	return q, 0, nil
}

// find returns the entry of the subject in a run.
func (q *points) find(ctx context.Context, l *layer) (e entry, ok bool, err error) {
	if err := ctx.Err(); err != nil { // each run may take three reads
		return e, false, err
	}
	e, ok, err = l.run.find(q.subject, q.h)
	return e, ok, q.failed(err)
}

// Last returns the offset of the last record of a subject within a range; 0: there is none. It
// reads the newest layers first, and stops when it has found one.
func (s *Shard) Last(ctx context.Context, subject []byte, in Range) (uint64, error) {
	q, offset, err := s.ask(subject, in, true)
	if offset > 0 || err != nil {
		return offset, err
	}
	defer q.release()
	return q.last(ctx, q.in)
}

// last returns the last record of the subject within a range.
func (q *points) last(ctx context.Context, in Range) (offset uint64, err error) {
	parts := q.parts
	for n := len(q.layers) - 1; n >= 0 && offset == 0; n-- {
		l := q.layers[n]
		r := l.within(in)
		if r.empty() {
			continue
		}
		switch {
		case l.part != nil:
			for len(parts) > 0 && parts[0].layer > n {
				parts = parts[1:]
			}
			if len(parts) > 0 && parts[0].layer == n {
				offset = parts[0].last(r)
			}
		case l.run != nil:
			e, ok, err := q.find(ctx, l)
			if err != nil {
				return 0, err
			}
			if ok {
				info, err := q.infoOf(&e, l.run, r, l.run.cached)
				if err != nil {
					return 0, q.failed(err)
				}
				offset = info.Last
			}
		case len(l.former) > 0:
			if offset, err = q.lastFormer(ctx, l, r); err != nil {
				return 0, err
			}
			continue
		}
		if err := q.known(l, Range{max(offset+1, r.From), r.To}); err != nil {
			return 0, err
		}
	}
	return offset, nil
}

// lastFormer is last for a layer whose run is not made yet, by its former layers.
func (q *points) lastFormer(ctx context.Context, l *layer, in Range) (offset uint64, err error) {
	for n := len(l.former) - 1; n >= 0 && offset == 0; n-- {
		f := l.former[n]
		r := f.within(in)
		switch {
		case r.empty():
		case f.part != nil:
			q.shard.mu.Lock()
			p, ok := f.part.point(q.subject, q.h, r, q.removed)
			q.shard.mu.Unlock()
			if ok {
				offset = p.last(r)
			}
		default:
			e, ok, err := q.find(ctx, f)
			if err != nil {
				return 0, err
			}
			if ok {
				info, err := q.infoOf(&e, f.run, r, f.run.cached)
				if err != nil {
					return 0, q.failed(err)
				}
				offset = info.Last
			}
		}
	}
	return offset, q.has(ctx, l, offset)
}

// has returns an error unless the log still has the record that a former layer of l has, at an
// offset that is not 0. Otherwise a newer record of its subject is beyond the range of the
// question, or the record is lost.
func (q *snapshot) has(ctx context.Context, l *layer, offset uint64) error {
	if offset == 0 {
		return nil
	}
	if has := q.shard.config.Has; has != nil {
		if ok, err := has(ctx, offset); ok || err != nil {
			return err
		}
	}
	return &MissingError{From: l.From, To: l.To}
}

// Info returns what a range has of a subject: from each layer, oldest first.
func (s *Shard) Info(ctx context.Context, subject []byte, in Range) (info Info, err error) {
	q, _, err := s.ask(subject, in, false)
	if err != nil {
		return info, err
	}
	defer q.release()
	for _, l := range q.layers {
		if err := q.known(l, q.in); err != nil {
			return Info{}, err
		}
		r := l.within(q.in)
		if l.run == nil || r.empty() {
			continue
		}
		e, ok, err := q.find(ctx, l)
		if err == nil && ok {
			var part Info
			part, err = q.infoOf(&e, l.run, r, l.run.cached)
			info.add(part)
		}
		if err != nil {
			return Info{}, q.failed(err)
		}
	}
	for i := range q.parts {
		p := &q.parts[i]
		info.add(p.find(q.layers[p.layer].within(q.in)))
	}
	return info, nil
}

// Count returns how many records within a range match a filter. Its time is proportional to the
// number of subjects that match, in each layer. It holds no lock.
func (s *Shard) Count(ctx context.Context, f *Filter, in Range) (n uint64, err error) {
	if subject, ok := f.literal(); ok {
		info, err := s.Info(ctx, subject, in)
		return info.Count, err
	}
	q, err := s.snapshot(in)
	if err != nil {
		return 0, err
	}
	defer q.release()
	for i := range q.layers {
		part, err := q.count(ctx, i, f, q.in)
		if err != nil {
			return 0, err
		}
		n += part
	}
	return n, nil
}

// count returns how many records of a layer within a range match a filter.
func (q *snapshot) count(ctx context.Context, i int, f *Filter, in Range) (n uint64, err error) {
	l := q.layers[i]
	if err := q.known(l, in); err != nil {
		return 0, err
	}
	if v := q.views[i]; v != nil {
		v.matching(f, l.within(in), func(from, to uint64) bool { n += liveRun(q.removed, from, to).Count; return true })
		return n, nil
	}
	if r := l.run; f.all && in.contains(l.Range) && l.contains(Range{r.h.from, r.end}) && (q.removed == nil || q.removed.Count(l.From, l.To) == 0) {
		return r.records, nil
	}
	err = q.each(ctx, l, f, in, func(info Info) { n += info.Count })
	return n, err
}

// each calls f with what a run has of each matching subject within a range.
func (q *snapshot) each(ctx context.Context, l *layer, filter *Filter, in Range, f func(Info)) error {
	c := l.run.scan(ctx, filter.behind(""), windowBytes)
	in = l.within(in)
	for {
		ok, err := c.next()
		if !ok || err != nil {
			return q.failed(err)
		}
		info, err := q.infoAt(c, in)
		if err != nil {
			return q.failed(err)
		}
		f(info)
	}
}

// matching calls f with the consecutive offsets of the matching records of a range, in order, until
// it says no.
func (v *partView) matching(filter *Filter, in Range, f func(from, to uint64) bool) {
	a, b := v.numbers(in)
	m := matched{filter: filter, view: v, records: b - a}
	for i := a; i < b; i++ {
		if m.has(v.records.at(i).subject) && !f(v.offsetsIn(i, in)) {
			return
		}
	}
}

// matched remembers which subjects of a view match.
type matched struct {
	filter  *Filter
	view    *partView
	records int    // that are asked for at most
	known   []int8 // by subject: 1 if it matches, -1 if not
}

func (m *matched) has(subject uint32) bool {
	if m.filter.all {
		return true
	}
	if m.records < m.view.names.n/4 { // the memory would cost more
		return m.filter.Match(m.view.subject(subject))
	}
	if m.known == nil {
		m.known = make([]int8, m.view.names.n)
	}
	k := &m.known[subject]
	if *k == 0 {
		*k = -1
		if m.filter.Match(m.view.subject(subject)) {
			*k = 1
		}
	}
	return *k > 0
}

// LastMatch returns the offset of the last record within a range that matches a filter; 0: there is
// none.
func (s *Shard) LastMatch(ctx context.Context, f *Filter, in Range) (offset uint64, err error) {
	if subject, ok := f.literal(); ok {
		return s.Last(ctx, subject, in)
	}
	q, err := s.snapshot(in)
	if err != nil {
		return 0, err
	}
	defer q.release()
	for i := len(q.layers) - 1; i >= 0 && offset == 0; i-- {
		l := q.layers[i]
		r := l.within(q.in)
		switch {
		case q.views[i] != nil:
			offset = q.views[i].lastMatching(f, r, q.removed)
		case l.run != nil:
			if err := q.each(ctx, l, f, q.in, func(info Info) { offset = max(offset, info.Last) }); err != nil {
				return 0, err
			}
		case len(l.former) > 0:
			if offset, err = q.lastMatchFormer(ctx, l, f, r); err != nil {
				return 0, err
			}
			continue
		}
		if err := q.known(l, Range{max(offset+1, r.From), r.To}); err != nil {
			return 0, err
		}
	}
	return offset, nil
}

// lastMatching returns the offset of the last matching record of a range; 0: there is none.
func (v *partView) lastMatching(f *Filter, in Range, removed *removal.Set) (offset uint64) {
	a, b := v.numbers(in)
	m := matched{filter: f, view: v, records: b - a}
	for n := b - 1; n >= a && offset == 0; n-- {
		if m.has(v.records.at(n).subject) {
			from, to := v.offsetsIn(n, in)
			offset = liveRun(removed, from, to).Last
		}
	}
	return offset
}

// lastMatchFormer is LastMatch for a layer whose run is not made yet, by its former layers.
func (q *snapshot) lastMatchFormer(ctx context.Context, l *layer, filter *Filter, in Range) (offset uint64, err error) {
	for n := len(l.former) - 1; n >= 0 && offset == 0; n-- {
		f := l.former[n]
		r := f.within(in)
		switch {
		case r.empty():
		case f.part != nil:
			q.shard.mu.Lock()
			v := f.part.view()
			q.shard.mu.Unlock()
			offset = v.lastMatching(filter, r, q.removed)
		default:
			if err := q.each(ctx, f, filter, r, func(info Info) { offset = max(offset, info.Last) }); err != nil {
				return 0, err
			}
		}
	}
	return offset, q.has(ctx, l, offset)
}

// NextMatch returns the offset of the first record within a range that matches a filter; 0: there
// is none.
func (s *Shard) NextMatch(ctx context.Context, f *Filter, in Range) (offset uint64, err error) {
	q, err := s.snapshot(in)
	if err != nil {
		return 0, err
	}
	defer q.release()
	for i := 0; i < len(q.layers) && offset == 0; i++ {
		l := q.layers[i]
		r := l.within(q.in)
		switch {
		case q.views[i] != nil:
			q.views[i].matching(f, r, func(from, to uint64) bool {
				offset = liveRun(q.removed, from, to).First
				return offset == 0
			})
		case l.run != nil:
			if err := q.each(ctx, l, f, q.in, func(info Info) {
				if info.Count > 0 && (offset == 0 || info.First < offset) {
					offset = info.First
				}
			}); err != nil {
				return 0, err
			}
		}
		end := r.To
		if offset > 0 {
			end = offset
		}
		if err := q.known(l, Range{r.From, end}); err != nil {
			return 0, err
		}
	}
	return offset, nil
}

// Subjects calls f with each subject that matches a filter and has records within a range, in the
// order of their bytes, beginning behind after, until f says no. f must not keep the subject.
func (s *Shard) Subjects(ctx context.Context, filter *Filter, in Range, after string, f func(subject []byte, info Info) bool) error {
	q, err := s.snapshot(in)
	if err != nil {
		return err
	}
	defer q.release()
	return q.subjects(ctx, q.in, filter.behind(after), f)
}

// subjects calls f with each selected subject that has records within a range.
func (q *snapshot) subjects(ctx context.Context, in Range, sel selection, f func(subject []byte, info Info) bool) error {
	for _, l := range q.layers {
		if err := q.known(l, in); err != nil {
			return err
		}
	}
	m, err := merge(ctx, q.inputs(in), sel)
	if err != nil {
		return q.failed(err)
	}
	for n := 0; ; n++ {
		subject, group, err := m.next()
		if err == nil && n%checkEvery == 0 {
			err = ctx.Err()
		}
		if err != nil || len(group) == 0 {
			return q.failed(err)
		}
		var info Info
		for _, source := range group {
			part, err := q.infoAt(source, source.clip)
			if err != nil {
				return q.failed(err)
			}
			info.add(part)
		}
		if info.Count > 0 && !f(subject, info) {
			return nil
		}
	}
}

// Offsets calls f with each record within a range that matches a filter. They come layer by layer,
// oldest first; within one by subject; and of a subject in order. So of each subject they are in
// order, and a purge meets them in few passes over the log. f must not keep the subject.
func (s *Shard) Offsets(ctx context.Context, filter *Filter, in Range, f func(subject []byte, offset uint64) error) error {
	q, err := s.snapshot(in)
	if err != nil {
		return err
	}
	defer q.release()
	for i, input := range q.inputs(q.in) {
		if err := q.known(q.layers[i], q.in); err != nil {
			return err
		}
		c := input.cursor(ctx, filter.behind(""), 1)
		for n := 0; ; n++ {
			ok, err := c.next()
			if err == nil && n%checkEvery == 0 {
				err = ctx.Err()
			}
			if err != nil {
				return q.failed(err)
			}
			if !ok {
				break
			}
			if err := c.offsets(input.clip, func(from, to uint64) error {
				for offset := from; offset < to; offset++ {
					if q.removed != nil && q.removed.Has(offset) {
						continue
					}
					if err := f(c.subject(), offset); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return q.failed(err)
			}
		}
	}
	return nil
}
