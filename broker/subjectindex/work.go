package subjectindex

import (
	"context"
	"errors"
	"slices"
)

// job is what Work does next: it makes one run for consecutive layers of a segment.
type job struct {
	layers  []*layer
	covers  Range
	h       header
	rebuild bool // from the Source
	set     *layerSet
	views   map[*part]*partView
}

// Work does one piece of what is to be done, if there is any. more says that it should be called
// again. An error means that it should be called again later: the disk failed, or the Source.
// Questions are answered meanwhile.
func (s *Shard) Work(ctx context.Context) (more bool, err error) {
	s.working.Lock()
	defer s.working.Unlock()
	if err := s.removeGarbage(); err != nil {
		return false, err
	}
	s.mu.Lock()
	j := s.nextJob()
	s.mu.Unlock()
	if j == nil {
		return false, ctx.Err()
	}
	defer j.set.release()
	if s.config.Room != nil {
		if err := s.config.Room(); err != nil {
			return false, err
		}
	}
	var r *run
	if j.rebuild {
		r, err = s.rebuild(ctx, j)
	} else {
		r, err = s.mergeLayers(ctx, j)
	}
	if err != nil {
		if s.dropDamaged(err) {
			return true, nil
		}
		s.mu.Lock()
		s.failed = j.covers.From
		s.mu.Unlock()
		return false, err
	}
	s.install(j, r)
	return true, s.removeGarbage()
}

// Freeze ends the part that takes what is appended. When Work has flushed it, the shard takes no
// memory.
func (s *Shard) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeze()
}

// Flush makes the part that takes what is appended a run, and does all other work.
func (s *Shard) Flush(ctx context.Context) error {
	s.Freeze()
	for {
		if more, err := s.Work(ctx); !more || err != nil {
			return err
		}
	}
}

// removeGarbage closes runs that nobody uses, and deletes the files of those that are doomed.
func (s *Shard) removeGarbage() error {
	s.garbageMu.Lock()
	garbage := s.garbage
	s.garbage = nil
	s.garbageMu.Unlock()
	for i, r := range garbage {
		s.config.Cache.files.forget(r)
		if !r.doomed.Load() {
			continue
		}
		if err := s.remove(r.path); err != nil {
			s.garbageMu.Lock()
			s.garbage = append(s.garbage, garbage[i:]...)
			s.garbageMu.Unlock()
			return err
		}
	}
	return nil
}

// nextJob returns what is to be done next: what needs no Source, oldest first, so that memory is
// freed even if the log can't be read; then what is missing, newest first, since most questions are
// about it. A range whose rebuilding failed comes after all others. mu is held.
func (s *Shard) nextJob() *job {
	if s.closed {
		return nil
	}
	all := s.set.layers
	var newest, next *job // to rebuild; next is below the one that failed last
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n].of == all[i].of {
			n++
		}
		switch j := s.jobOf(all[i:n]); {
		case j == nil:
		case !j.rebuild:
			return s.prepare(j)
		default:
			if newest = j; j.layers[0].From < s.failed {
				next = j
			}
		}
		i = n
	}
	if next == nil {
		next = newest
	}
	if next == nil {
		return nil
	}
	return s.prepare(next)
}

// jobOf returns what is to be done for the layers of one segment. mu is held.
func (s *Shard) jobOf(layers []*layer) *job {
	g := s.segmentAt(layers[0].of)
	if g < 0 {
		return nil
	}
	state := s.segments[g]
	if state.Sealed {
		return s.jobOfSealed(state, layers)
	}
	runs, first := 0, -1
	var missing *job
	for i, l := range layers {
		switch {
		case l.part == s.part && l.part != nil:
		case l.part == nil && l.run == nil:
			missing = &job{layers: layers[i : i+1], rebuild: true, h: header{kind: kindPart}}
		case l.part != nil:
			// A part of a segment that is being sealed is merged into its index soon.
			if g == len(s.segments)-1 || s.frozen > s.config.PartBytes {
				return &job{layers: layers[i : i+1], h: header{kind: kindPart}}
			}
		default:
			if runs++; first < 0 {
				first = i
			}
		}
	}
	if runs > mostRuns {
		end := first
		for end < len(layers) && layers[end].run != nil {
			end++
		}
		if end-first > 1 {
			return &job{layers: layers[first:end], h: header{kind: kindPart}}
		}
	}
	return missing
}

func (s *Shard) jobOfSealed(state SegmentState, layers []*layer) *job {
	j := &job{layers: layers, h: header{kind: kindSegment, epoch: state.Epoch}}
	r := layers[0].run
	if len(layers) == 1 && r != nil && r.h.kind == kindSegment && r.h.of == state.Segment && r.end == state.End && r.h.epoch == state.Epoch {
		return nil
	}
	next := layers[0].From
	for _, l := range layers {
		j.rebuild = j.rebuild || l.run == nil && l.part == nil || l.From != next
		next = l.To
	}
	j.rebuild = j.rebuild || next != state.End || layers[0].From > max(state.Base, s.start)
	return j
}

// prepare completes a job with what it needs to be done without the lock. mu is held.
func (s *Shard) prepare(j *job) *job {
	j.covers = Range{j.layers[0].From, j.layers[len(j.layers)-1].To}
	j.h.of, j.h.from = j.layers[0].of, j.covers.From
	if j.rebuild {
		j.h.from = max(j.h.from, s.start) // the log has nothing below
	}
	j.set = s.set
	j.set.refs.Add(1)
	j.views = map[*part]*partView{}
	for _, l := range j.layers {
		if l.part != nil && !j.rebuild {
			v := l.part.view()
			j.views[l.part] = &v
		}
	}
	return j
}

// mergeLayers makes a run of the layers of a job.
func (s *Shard) mergeLayers(ctx context.Context, j *job) (*run, error) {
	var inputs []input
	var gaps []Range
	for _, l := range j.layers {
		inputs = append(inputs, input{clip: l.Range, run: l.run, view: j.views[l.part]})
		gaps = append(gaps, l.unknown()...)
	}
	return s.write(ctx, j.h, j.covers.To, gaps, inputs)
}

// rebuild makes a run of what the Source has.
func (s *Shard) rebuild(ctx context.Context, j *job) (*run, error) {
	b := &Builder{shard: s, h: j.h, end: j.h.from}
	defer b.Abandon()
	err := s.config.Source.Subjects(j.h.from, j.covers.To, func(offset uint64, n int, subject []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return b.Add(ctx, offset, n, subject)
	}, func(from, to uint64) error {
		b.Gap(max(from, j.h.from), min(to, j.covers.To))
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	built, err := b.Finish(ctx, j.covers.To)
	if err != nil {
		return nil, err
	}
	return built.run, nil
}

// install puts a run in the place of the layers of a job. If they have changed meanwhile, the run
// is dropped and the work is done again; a single part or run that was cut only is replaced as
// well.
func (s *Shard) install(j *job, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer r.release()
	layers := slices.Clone(s.set.layers)
	at := slices.IndexFunc(layers, func(l *layer) bool { return l.of == j.h.of && s.stands(j, l) })
	n := len(j.layers)
	if at < 0 || at+n > len(layers) || n > 1 && !slices.Equal(layers[at:at+n], j.layers) || j.h.kind == kindSegment && layers[at+n-1].To != r.end {
		r.doomed.Store(true)
		return
	}
	fresh := &layer{Range: Range{layers[at].From, layers[at+n-1].To}, of: j.h.of, run: r}
	s.replace(slices.Replace(layers, at, at+n, fresh))
	switch {
	case j.rebuild:
		s.stats.Rebuilt++
	case j.h.kind == kindSegment:
		s.stats.Written++
	default:
		s.stats.Flushed++
	}
}

// stands reports whether l is the first layer of a job, or what a truncation left of it. mu is
// held.
func (s *Shard) stands(j *job, l *layer) bool {
	first := j.layers[0]
	return l == first || len(j.layers) == 1 && l.part != nil && l.part == first.part
}

// dropDamaged drops the run whose file an error is about, and reports whether there is one.
func (s *Shard) dropDamaged(err error) bool {
	failed, ok := errors.AsType[*FileError](err)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	layers := slices.Clone(s.set.layers)
	found := false
	for i, l := range layers {
		damaged := func(l *layer) bool { return l.run != nil && l.run.path == failed.Path }
		if damaged(l) || slices.ContainsFunc(l.former, damaged) {
			layers[i] = &layer{Range: l.Range, of: l.of}
			found = true
		}
	}
	if found {
		s.stats.Damaged++
		s.replace(layers)
		s.wake()
	}
	return found
}

// unknown returns the offsets of a layer of which nothing is known.
func (l *layer) unknown() (out []Range) {
	if l.run == nil && l.part == nil {
		return []Range{l.Range}
	}
	if l.run != nil {
		for _, g := range l.run.gaps {
			if g = g.within(l.Range); !g.empty() {
				out = append(out, g)
			}
		}
	}
	return out
}
