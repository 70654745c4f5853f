package subjectindex

import "context"

// facts remembers the last records of subjects in runs, for conditions that are judged while no
// disk may be read. It forgets what was not used lately: of two maps, one takes what is new until
// it is full; then the other one is dropped.
type facts struct {
	young, old map[string]fact
	bytes      int // of young, about
}

// factOverhead is about what a fact takes beside its subject.
const factOverhead = 100

// fact is the offset of the last record of a subject below an offset; 0: there is none.
type fact struct{ last, below uint64 }

func (f *facts) get(subject []byte) (fact, bool) {
	if known, ok := f.young[string(subject)]; ok {
		return known, true
	}
	known, ok := f.old[string(subject)]
	if ok {
		f.put(subject, known)
	}
	return known, ok
}

func (f *facts) put(subject []byte, known fact) {
	if f.young == nil || f.bytes >= factBytes {
		f.young, f.old, f.bytes = map[string]fact{}, f.young, 0
	}
	f.young[string(subject)] = known
	f.bytes += len(subject) + factOverhead
}

func (f *facts) forget() { *f = facts{} }

// Known returns the offset of the last record of a subject at the log's end, or 0 if there is none,
// without reading the disk. known is false if that takes reading; then the caller calls Resolve
// without its locks, and asks again.
func (s *Shard) Known(subject []byte) (offset uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known(subject, hash(s.config.Secret, subject))
}

// known is Known with mu held.
func (s *Shard) known(subject []byte, h uint64) (offset uint64, known bool) {
	below := s.end
	layers, removed := s.set.layers, s.removed()
	for n := len(layers); n > 0 && layers[n-1].part != nil; n-- {
		l := layers[n-1]
		r := l.within(Range{s.start, s.end})
		if p, ok := l.part.point(subject, h, r, removed); ok {
			if last := p.last(r); last > 0 {
				return last, true
			}
		}
		below = l.From
	}
	if below <= s.start {
		return 0, true
	}
	f, ok := s.facts.get(subject)
	switch {
	case !ok || f.below < below || removed != nil && removed.Has(f.last):
		return 0, false
	case f.last < s.start:
		return 0, true
	}
	return f.last, true
}

// Resolve finds the last record of a subject in runs, for Known. It reads the disk and holds no
// lock meanwhile. After it, Known knows the subject unless parts have become runs meanwhile, or the
// subject has not been asked for in a long time.
func (s *Shard) Resolve(ctx context.Context, subject []byte) error {
	h := hash(s.config.Secret, subject)
	s.mu.Lock()
	if _, known := s.known(subject, h); known {
		s.mu.Unlock()
		return nil
	}
	f, _ := s.facts.get(subject)
	if removed := s.removed(); removed != nil && removed.Has(f.last) {
		f = fact{}
	}
	cuts, below := s.cuts, s.end
	layers := s.set.layers
	for n := len(layers); n > 0 && layers[n-1].part != nil; n-- {
		below = layers[n-1].From
	}
	s.mu.Unlock()
	offset, err := s.Last(ctx, subject, Range{f.below, below})
	if err != nil {
		return err
	}
	if offset == 0 {
		offset = f.last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cuts == cuts {
		s.facts.put(subject, fact{last: offset, below: below})
	}
	return nil
}
