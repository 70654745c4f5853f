package filter

// Set judges records by many conditions at once. Conditions of the form x == constant, alone or
// joined with others by &&, and of the form x in [constants], are found by a hash of what the
// record has there: one that compares with something else costs nothing. x is a path of the
// payload, a header, an attribute or the subject. Others are judged one by one, and few of them
// fit.
//
// A Set is not safe for concurrent use. It never allocates when it matches.
type Set[T any] struct {
	groups []*group[T]
	paths  *paths
	state  *state
	rest   []*Member[T]
	stale  bool // paths has some that no group has
}

// Member is a condition in a Set.
type Member[T any] struct {
	Value  T
	filter *Filter
	in     *group[T] // nil: it is in rest
	whole  bool
	counts bool // what its group can't judge is a failure of it

	failed, failedAt uint64
	before           uint64 // failures of the group when it was added
}

// group is the members that compare the same thing.
type group[T any] struct {
	equality *equality
	of       node
	texts    map[string]*bucket[T]
	numbers  map[uint64]*bucket[T]
	n        int
	most     int // members that one value had judged, at most, since the group is there
	// Records without that thing, and the last one of them.
	failed, failedAt uint64
}

// bucket is the members that match, or may match, the same value.
type bucket[T any] struct {
	whole  []*Member[T]
	judged []*Member[T]
}

// Add adds a condition, unless it could slow down all others: if it can neither be found by a hash
// nor judged quickly, or if the Set has as many of its kind as may be. Then it returns nil.
// countsMissing says that records without what an equality compares are failures.
func (s *Set[T]) Add(f *Filter, value T, countsMissing bool) *Member[T] {
	if s.paths == nil {
		s.paths = newPaths()
	}
	m := &Member[T]{Value: value, filter: f}
	if !f.quick {
		return nil
	}
	if q := f.equality; q != nil {
		if g := s.group(q); g != nil && s.fits(g, q) {
			m.in, m.whole, m.counts, m.before = g, q.whole, countsMissing && !q.guarded, g.failed
			for i := range q.values {
				b := g.bucket(&q.values[i])
				b.add(m)
				g.most = max(g.most, len(b.judged))
			}
			g.n++
			return m
		} else if g != nil && g.n == 0 {
			s.drop(g)
		}
	}
	if len(s.rest) >= mostJudged {
		return nil
	}
	s.rest = append(s.rest, m)
	return m
}

// Remove removes a condition.
func (s *Set[T]) Remove(m *Member[T]) {
	g := m.in
	if g == nil {
		s.rest = without(s.rest, m)
		return
	}
	for i := range m.filter.equality.values {
		g.remove(&m.filter.equality.values[i], m)
	}
	if g.n--; g.n == 0 {
		s.drop(g)
	}
}

// Match calls found for each member that matches the record. Of a large one it calls unsure for
// those that are to be judged one by one, and does not judge them. at is what FailedAt returns.
func (s *Set[T]) Match(r *Record, at uint64, found, unsure func(T)) {
	large := len(r.Data)+len(r.Header) > judgedLarge
	if len(s.groups) > 0 {
		if s.stale {
			s.renew()
		}
		s.state.begin(r, work{})
		for _, g := range s.groups {
			v := g.of.judge(s.state)
			b := g.look(&v)
			if v.kind == isError {
				g.failed, g.failedAt = g.failed+1, at
			}
			if b == nil {
				continue
			}
			for _, m := range b.whole {
				found(m.Value)
			}
			judgeAll(b.judged, r, at, large, found, unsure)
		}
		s.state.end()
	}
	judgeAll(s.rest, r, at, large, found, unsure)
}

func judgeAll[T any](all []*Member[T], r *Record, at uint64, large bool, found, unsure func(T)) {
	for _, m := range all {
		if large {
			unsure(m.Value)
		} else {
			m.judge(r, at, found)
		}
	}
}

func (m *Member[T]) judge(r *Record, at uint64, found func(T)) {
	switch m.filter.Judge(r) {
	case Yes:
		found(m.Value)
	case Failed:
		m.failed, m.failedAt = m.failed+1, at
	}
}

// Failed returns how many records the condition could not judge since it was added.
func (m *Member[T]) Failed() uint64 {
	if m.in != nil && m.counts {
		return m.failed + m.in.failed - m.before
	}
	return m.failed
}

// FailedAt returns one of the last records that it could not judge.
func (m *Member[T]) FailedAt() uint64 {
	if m.in != nil && m.counts {
		return max(m.failedAt, m.in.failedAt)
	}
	return m.failedAt
}

// group returns the group of an equality, or nil if there are too many.
func (s *Set[T]) group(q *equality) *group[T] {
	for _, g := range s.groups {
		if g.equality.same(q) {
			return g
		}
	}
	if len(s.groups) >= mostGroups {
		return nil
	}
	if s.stale {
		s.renew()
	}
	g := &group[T]{equality: q, texts: map[string]*bucket[T]{}, numbers: map[uint64]*bucket[T]{}}
	if !g.place(s.paths) {
		return nil
	}
	s.groups = append(s.groups, g)
	s.state = newState(s.paths)
	return g
}

// place sets the node of what a group compares.
func (g *group[T]) place(p *paths) bool {
	switch g.equality.root {
	case subjectName:
		g.of = subjectOf{}
	case headersName:
		g.of = headerOf{g.equality.names[0]}
	case attributesName:
		g.of = attributeOf{g.equality.names[0]}
	default:
		slot, ok := p.add(g.equality.names)
		if !ok {
			return false
		}
		g.of = jsonOf{slot}
	}
	return true
}

// drop removes an empty group.
func (s *Set[T]) drop(g *group[T]) {
	for i := range s.groups {
		if s.groups[i] == g {
			s.groups = append(s.groups[:i], s.groups[i+1:]...)
			break
		}
	}
	s.stale = true
}

// renew makes the paths anew, without those of former groups.
func (s *Set[T]) renew() {
	s.stale, s.paths = false, newPaths()
	for _, g := range s.groups {
		g.place(s.paths) // as many fit as before
	}
	s.state = newState(s.paths)
}

// fits reports whether there is room in a group for another member with that equality. One record
// may have a value of each group.
func (s *Set[T]) fits(g *group[T], q *equality) bool {
	if q.whole {
		return true
	}
	most := max(g.most, 1)
	for i := range q.values {
		if b := g.look(&q.values[i]); b != nil {
			most = max(most, len(b.judged)+1)
		}
	}
	for _, other := range s.groups {
		if other != g {
			most += other.most
		}
	}
	return most <= mostJudged
}

// look returns the members that may match a value, or nil.
func (g *group[T]) look(v *value) *bucket[T] {
	switch v.kind {
	case isText:
		return g.texts[string(v.text)]
	case isNumber:
		return g.numbers[hashed(v.number)]
	}
	return nil
}

func (g *group[T]) bucket(v *value) *bucket[T] {
	if b := g.look(v); b != nil {
		return b
	}
	b := &bucket[T]{}
	if v.kind == isText {
		g.texts[string(v.text)] = b
	} else {
		g.numbers[hashed(v.number)] = b
	}
	return b
}

// add adds a member, once.
func (b *bucket[T]) add(m *Member[T]) {
	to := &b.judged
	if m.whole {
		to = &b.whole
	}
	if n := len(*to); n == 0 || (*to)[n-1] != m { // else the list has a value twice
		*to = append(*to, m)
	}
}

func (g *group[T]) remove(v *value, m *Member[T]) {
	b := g.look(v)
	if b == nil {
		return
	}
	b.whole, b.judged = without(b.whole, m), without(b.judged, m)
	if len(b.whole)+len(b.judged) > 0 {
		return
	}
	if v.kind == isText {
		delete(g.texts, string(v.text))
	} else {
		delete(g.numbers, hashed(v.number))
	}
}

// without removes m from some members.
func without[T any](some []*Member[T], m *Member[T]) []*Member[T] {
	for i := range some {
		if some[i] == m {
			last := len(some) - 1
			some[i], some[last] = some[last], nil
			return some[:last]
		}
	}
	return some
}
