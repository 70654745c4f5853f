package subscription

import (
	"slices"
	"sort"
)

// span is a range of offsets: from from up to and without next.
type span struct{ from, next uint64 }

// spans are ranges of offsets, sorted. None is empty, and none overlap.
type spans []span

// has reports whether an offset is in one of them.
func (all spans) has(offset uint64) bool {
	i := sort.Search(len(all), func(i int) bool { return all[i].next > offset })
	return i < len(all) && all[i].from <= offset
}

// merge returns spans in any order, which may overlap, as sorted ones. It changes all.
func merge(all []span) spans {
	slices.SortFunc(all, func(a, b span) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
	n := 0
	for _, s := range all {
		switch {
		case s.from >= s.next:
		case n > 0 && s.from <= all[n-1].next:
			all[n-1].next = max(all[n-1].next, s.next)
		default:
			all[n] = s
			n++
		}
	}
	return all[:n]
}

// without returns the offsets that are not in others.
func (all spans) without(others spans) (left spans) {
	if len(others) == 0 {
		return all
	}
	i := 0
	for _, s := range all {
		for i > 0 && others[i-1].next > s.from {
			i-- // the one before may reach into this one
		}
		for ; i < len(others) && others[i].from < s.next; i++ {
			if others[i].next <= s.from {
				continue
			}
			if others[i].from > s.from {
				left = append(left, span{s.from, others[i].from})
			}
			s.from = others[i].next
			if s.from >= s.next {
				i++
				break
			}
		}
		if s.from < s.next {
			left = append(left, s)
		}
	}
	return left
}

// take returns the first spans with at most so many offsets, and the rest.
func (all spans) take(offsets uint64) (some, rest spans) {
	for i, s := range all {
		if n := s.next - s.from; n < offsets {
			offsets -= n
			continue
		}
		at := s.from + offsets
		some = append(slices.Clip(all[:i]), span{s.from, at})
		if at < s.next {
			rest = spans{{at, s.next}}
		}
		return some, append(rest, all[i+1:]...)
	}
	return all, nil
}

// needs returns the offsets of spans whose records the Subscription is still to deliver, or whose
// ack it waits for, or that it has given up without an ack. It does not look at filters.
func (c *cursor) needs(of spans) (needed spans) {
	add := func(offset uint64) {
		if last := len(needed) - 1; last >= 0 && needed[last].next == offset {
			needed[last].next++
		} else {
			needed = append(needed, span{offset, offset + 1})
		}
	}
	for _, s := range of {
		seen := min(s.next, c.offset+1)
		i, _ := c.pending.search(s.from)
		k, _ := slices.BinarySearch(c.kept, s.from)
		for {
			for i < len(c.pending.list) && c.pending.list[i].removed {
				i++
			}
			pending := i < len(c.pending.list) && c.pending.list[i].offset < seen
			kept := k < len(c.kept) && c.kept[k] < seen
			switch {
			case pending && (!kept || c.pending.list[i].offset < c.kept[k]):
				add(c.pending.list[i].offset)
				i++
				continue
			case kept:
				add(c.kept[k])
				k++
				continue
			}
			break
		}
		at := max(s.from, c.offset+1)
		a, _ := slices.BinarySearch(c.ahead, at)
		for ; at < s.next; at++ {
			until := s.next
			if a < len(c.ahead) && c.ahead[a] < s.next {
				until = c.ahead[a]
				a++
			}
			if at < until {
				needed = append(needed, span{at, until})
			}
			at = until
		}
	}
	return needed
}
