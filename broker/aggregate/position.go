package aggregate

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"slices"
	"strings"
)

// Position is a place in the order of windows: by their end, and then by their key.
type Position struct {
	End int64
	Key string
}

// Compare returns -1, 0 or 1: p is before q, equal, or after it.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.End, q.End), strings.Compare(p.Key, q.Key))
}

// Window is a window of a key, without its results.
type Window struct {
	Key        string
	Start, End int64
	Records    uint64
}

// Position returns the window's place.
func (w Window) Position() Position { return Position{w.End, w.Key} }

// of returns the window as one of a key.
func (w *window) of(key string) Window { return Window{key, w.start, w.end, w.count} }

// Len returns how many windows of all keys there are.
func (p *Partial) Len() int { return p.groups }

// Keys returns how many keys have a window.
func (p *Partial) Keys() int { return len(p.series) }

// Size returns the bytes of keys, windows and sketches: no less than those of the encoding without
// its head. Like the encoding it is a function of the records.
func (p *Partial) Size() int { return p.size() }

// First returns a time before which no window ends.
func (p *Partial) First() int64 { return p.first }

// Windows returns the windows. Those of a key are in order.
func (p *Partial) Windows() iter.Seq[Window] {
	return func(yield func(Window) bool) {
		for key, s := range p.series {
			for _, w := range s.windows {
				if !yield(w.of(key)) {
					return
				}
			}
		}
	}
}

// Move moves windows to another partial of the same Query, which has none of them; nil: to nowhere.
// The totals stay. It checks no bound.
func (p *Partial) Move(to *Partial, moves func(w Window) bool) {
	p.first = math.MaxInt64
	for key, s := range p.series {
		kept := s.windows[:0]
		for _, w := range s.windows {
			if !moves(w.of(key)) {
				kept = append(kept, w)
				p.first = min(p.first, w.end)
				continue
			}
			p.groups--
			p.bytes -= w.bytes()
			if to != nil {
				to.take(key, w)
			}
		}
		clear(s.windows[len(kept):])
		if s.windows = kept; len(kept) == 0 {
			delete(p.series, key)
			p.bytes -= len(key)
		}
	}
}

// take adds a window that is not there.
func (p *Partial) take(key string, w *window) {
	s := p.seriesOf([]byte(key))
	i, _ := s.at(w.start)
	s.windows = slices.Insert(s.windows, i, w)
	p.groups++
	p.bytes += w.bytes()
	p.first = min(p.first, w.end)
}

// Page returns windows from a position on, in their order: as many as have about so many bytes
// together, and at least one. next is where the following page begins; more is false if there is
// none. The page shares its windows with p, so it is encoded or merged before p changes.
func (p *Partial) Page(from Position, bytes int) (page *Partial, next Position, more bool) {
	var all places
	for key, s := range p.series {
		for _, w := range s.windows {
			if at := (Position{w.end, key}); at.Compare(from) >= 0 {
				all = append(all, place{at, w})
			}
		}
	}
	page = p.query.NewPartial()
	heap.Init(&all) // a page is a small part of many windows, which would all be sorted else
	for len(all) > 0 {
		if page.groups > 0 && page.size() >= bytes {
			return page, all[0].at, true
		}
		first := heap.Pop(&all).(place)
		page.take(first.at.Key, first.w)
	}
	return page, Position{}, false
}

// place is a window at its position; places are a heap of them.
type place struct {
	at Position
	w  *window
}

type places []place

func (p places) Len() int           { return len(p) }
func (p places) Less(i, j int) bool { return p[i].at.Compare(p[j].at) < 0 }
func (p places) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *places) Push(one any)      { *p = append(*p, one.(place)) }

func (p *places) Pop() any {
	last := len(*p) - 1
	one := (*p)[last]
	*p = (*p)[:last]
	return one
}

// Join makes one session of those of a key that are chosen. What is between them belongs to it.
func (p *Partial) Join(key string, chosen func(w Window) bool) {
	s := p.series[key]
	if s == nil {
		return
	}
	var into *window
	kept := s.windows[:0]
	for _, w := range s.windows {
		switch {
		case !chosen(w.of(key)):
			kept = append(kept, w)
		case into == nil:
			into, kept = w, append(kept, w)
		default:
			p.bytes -= w.bytes()
			p.join(into, w)
			p.groups--
		}
	}
	clear(s.windows[len(kept):])
	s.windows = kept
}
