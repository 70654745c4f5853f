package subjectindex

import "context"

// distinct is the number of subjects within a range, and the layers of that moment, so that
// subjects can be looked up in records that retention has taken since. The shard's lock guards it;
// counting takes turns and holds no lock.
type distinct struct {
	turn  chan struct{} // of capacity 1; made with the first count
	at    *snapshot     // nil: nothing was counted
	n     uint64
	stale int // how often the layers have changed since
}

// drop forgets the count. The shard's lock is held.
func (d *distinct) drop() {
	if d.at != nil {
		d.at.release()
	}
	d.at = nil
}

// NumSubjects returns how many subjects have records within a range. The first call reads all index
// files. After that a subject is looked up when it has a record in what the range has gained at its
// end, and when it has one in what the range has lost at its beginning. If that costs more than
// counting all, all are counted. A range that moves backwards is counted anew, and so is one with
// removed records when it begins elsewhere, or more were removed. One call at a time counts; the
// others wait.
func (s *Shard) NumSubjects(ctx context.Context, in Range) (uint64, error) {
	s.mu.Lock()
	if s.distinct.turn == nil {
		s.distinct.turn = make(chan struct{}, 1)
	}
	turn := s.distinct.turn
	s.mu.Unlock()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-turn }()
	q, err := s.snapshot(in)
	if err != nil {
		return 0, err
	}
	defer q.release()
	before, n := s.takeDistinct()
	if before != nil {
		defer before.release()
	}
	counted := false
	if before != nil && s.follows(before, q) {
		n, err = s.distinctAfter(ctx, before, q, n)
		counted = err == nil // a file of former layers may be damaged
	}
	if !counted {
		n, err = q.distinct(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !s.closed {
		s.distinct.at, s.distinct.n, s.distinct.stale = q.runs(), n, 0
	}
	return n, err
}

// runs returns what a snapshot has without its parts, so that keeping it keeps no memory in use.
func (q *snapshot) runs() *snapshot {
	var layers []*layer
	for _, l := range q.layers {
		if l.run != nil {
			layers = append(layers, l)
		}
	}
	set := newLayerSet(layers)
	return &snapshot{shard: q.shard, set: set, in: q.in, layers: layers, views: make([]*partView, len(layers)), removals: q.removals, version: q.version}
}

// covers reports whether the layers have all offsets of a range.
func (q *snapshot) covers(in Range) bool {
	for _, l := range q.layers {
		if l.From <= in.From {
			in.From = max(in.From, l.To)
		}
	}
	return in.empty()
}

// takeDistinct returns the last count, and forgets it.
func (s *Shard) takeDistinct() (*snapshot, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.distinct.at
	s.distinct.at = nil
	return at, s.distinct.n
}

// follows reports whether the range of q is that of before, moved forwards, over records that have
// not changed otherwise, and whether counting the difference costs less than counting all.
func (s *Shard) follows(before, q *snapshot) bool {
	if q.in.From < before.in.From || q.in.To < before.in.To || q.in.From > before.in.To {
		return false
	}
	if before.removals != q.removals || q.removals > 0 && q.in.From != before.in.From {
		return false
	}
	if !before.covers(Range{before.in.From, q.in.From}) {
		return false // it was in a part
	}
	s.mu.Lock()
	ranges, ok := s.changed.since(before.version)
	s.mu.Unlock()
	for _, r := range ranges {
		ok = ok && r.within(before.in).empty()
	}
	lookups := before.subjectsIn(Range{before.in.From, q.in.From}) + q.subjectsIn(Range{before.in.To, q.in.To})
	return ok && lookups*lookupCost <= q.subjectsIn(q.in)+lookupCost*chunkSize
}

// subjectsIn returns an upper bound for the number of subjects within a range.
func (q *snapshot) subjectsIn(in Range) (n uint64) {
	for i, l := range q.layers {
		r := l.within(in)
		switch {
		case r.empty():
		case q.views[i] != nil:
			n += min(uint64(q.views[i].names.n), r.To-r.From)
		case l.run != nil:
			n += min(l.run.subjects, r.To-r.From)
		}
	}
	return n
}

// distinct counts the subjects of a range.
func (q *snapshot) distinct(ctx context.Context) (n uint64, err error) {
	err = q.subjects(ctx, q.in, selectAll, func([]byte, Info) bool { n++; return true })
	return n, err
}

// distinctAfter counts the subjects of the range of q, which follows that of before with n
// subjects.
func (s *Shard) distinctAfter(ctx context.Context, before, q *snapshot, n uint64) (uint64, error) {
	both := q.lookup(ctx, Range{q.in.From, before.in.To})
	// change adds delta for each subject of one range that has no record in both.
	change := func(of *snapshot, in Range, delta uint64) error {
		if in.empty() {
			return nil
		}
		var failed error
		err := of.subjects(ctx, in, selectAll, func(subject []byte, _ Info) bool {
			var ok bool
			if ok, failed = both.has(subject, hash(s.config.Secret, subject)); !ok {
				n += delta
			}
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		return err
	}
	if err := change(before, Range{before.in.From, q.in.From}, ^uint64(0)); err != nil {
		return 0, err
	}
	err := change(q, Range{before.in.To, q.in.To}, 1)
	return n, err
}

// lookup looks up many subjects in a range of a snapshot.
type lookup struct {
	ctx   context.Context
	of    *snapshot
	in    Range
	parts []*partCursor // by layer
}

func (q *snapshot) lookup(ctx context.Context, in Range) *lookup {
	return &lookup{ctx: ctx, of: q, in: in, parts: make([]*partCursor, len(q.layers))}
}

// has reports whether the range has a record of a subject with the hash h.
func (x *lookup) has(subject []byte, h uint64) (bool, error) {
	for i := len(x.of.layers) - 1; i >= 0; i-- {
		l := x.of.layers[i]
		r := l.within(x.in)
		if r.empty() {
			continue
		}
		if v := x.of.views[i]; v != nil {
			if x.parts[i] == nil {
				x.parts[i] = v.sorted(selectAll, r)
			}
			if x.parts[i].has(subject, r, x.of.removed) {
				return true, nil
			}
			continue
		}
		err := x.ctx.Err()
		if err == nil {
			err = x.of.known(l, x.in)
		}
		if err != nil {
			return false, err
		}
		e, ok, err := l.run.find(subject, h)
		if err == nil && ok {
			var info Info
			info, err = x.of.infoOf(&e, l.run, r, l.run.cached)
			ok = info.Count > 0
		}
		if ok || err != nil {
			return ok, x.of.failed(err)
		}
	}
	return false, nil
}
