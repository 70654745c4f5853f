package work

// order is what shares are ranked by.
type order int

// The orders.
const (
	byTurn   order = iota // fewest running first, then by turn
	byNumber              // most waiting items first
	byBytes               // most waiting bytes first
	orders
)

// ranking is shares in each order: binary heaps, in which each share knows its places. Changes of
// one share take logarithmic time.
type ranking[T any] [orders][]*Share[T]

// before reports whether a share comes before another one.
func before[T any](by order, a, b *Share[T]) bool {
	switch by {
	case byNumber:
		return a.items > b.items
	case byBytes:
		return a.bytes > b.bytes
	}
	return a.running < b.running || a.running == b.running && a.turn < b.turn
}

// first returns a share before which there is none, or nil.
func (r *ranking[T]) first(by order) *Share[T] {
	if len(r[by]) == 0 {
		return nil
	}
	return r[by][0]
}

// settle moves a share that has changed to its place in an order, or removes it.
func (r *ranking[T]) settle(by order, s *Share[T], in bool) {
	at := s.at[by] - 1 // places count from 1
	if at < 0 {
		if in {
			r[by] = append(r[by], s)
			r.rise(by, len(r[by])-1, s)
		}
		return
	}
	if !in {
		s.at[by] = 0
		end := len(r[by]) - 1
		last := r[by][end]
		r[by][end] = nil
		r[by] = r[by][:end]
		if last == s {
			return
		}
		s = last
	}
	r.sink(by, r.rise(by, at, s), s)
}

// rise puts a share at a place, or before those that it comes before. It returns where it is.
func (r *ranking[T]) rise(by order, at int, s *Share[T]) int {
	all := r[by]
	for at > 0 {
		parent := (at - 1) / 2
		if !before(by, s, all[parent]) {
			break
		}
		all[at] = all[parent]
		all[at].at[by] = at + 1
		at = parent
	}
	all[at] = s
	s.at[by] = at + 1
	return at
}

// sink puts a share at a place, or behind those that come before it.
func (r *ranking[T]) sink(by order, at int, s *Share[T]) {
	all := r[by]
	for {
		child := 2*at + 1
		if child >= len(all) {
			break
		}
		if child+1 < len(all) && before(by, all[child+1], all[child]) {
			child++
		}
		if !before(by, all[child], s) {
			break
		}
		all[at] = all[child]
		all[at].at[by] = at + 1
		at = child
	}
	all[at] = s
	s.at[by] = at + 1
}
