package removal

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// pageSize is how many offsets a page has. A page with some removed offsets takes half a KiB.
const (
	pageSize  = 1 << pageShift
	pageShift = 12
	pageMask  = pageSize - 1
)

// Set is a set of removed offsets. The zero Set is empty. Its methods may be called concurrently.
//
// It is a sorted list of pages. A page with no removed offset is not in the list, and one all of
// whose offsets are removed has no bits. So runs of removed offsets take little, and random ones at
// most a bit for each offset of the log.
type Set struct {
	mu      sync.RWMutex
	pages   []page
	count   atomic.Uint64 // changed with mu held
	version atomic.Uint64
	start   atomic.Uint64 // likewise; see Start
}

type page struct {
	number uint64
	count  uint32
	bits   *[pageSize / 64]uint64 // nil: all are removed
}

// Len returns the number of removed offsets. It takes no lock.
func (s *Set) Len() uint64 { return s.count.Load() }

// Version returns a number that rises whenever offsets are removed, and with nothing else. It takes
// no lock. An offset that is removed before Version returns is in the set.
func (s *Set) Version() uint64 { return s.version.Load() }

// Start returns the offset below which Trim has forgotten all. It takes no lock.
func (s *Set) Start() uint64 { return s.start.Load() }

// Bytes returns how much memory the set takes, about.
func (s *Set) Bytes() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	size := cap(s.pages) * 24
	for i := range s.pages {
		if s.pages[i].bits != nil {
			size += pageSize / 8
		}
	}
	return size
}

// Add removes the offsets from from up to and without next. It returns how many were not removed
// before.
func (s *Set) Add(from, next uint64) (added uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from < next {
		number := from >> pageShift
		end := min(next, endOf(number))
		added += s.page(number).add(from&pageMask, end-number<<pageShift)
		from = end
	}
	if s.count.Add(added); added > 0 {
		s.version.Add(1)
	}
	return added
}

// endOf returns the offset behind a page.
func endOf(number uint64) uint64 {
	if number == math.MaxUint64>>pageShift {
		return math.MaxUint64
	}
	return (number + 1) << pageShift
}

// search returns the index of the first page with at least this number. mu is held.
func (s *Set) search(number uint64) int {
	return sort.Search(len(s.pages), func(i int) bool { return s.pages[i].number >= number })
}

// page returns the page with this number, and makes it if necessary. mu is held.
func (s *Set) page(number uint64) *page {
	i := s.search(number)
	if i == len(s.pages) || s.pages[i].number != number {
		s.pages = slices.Insert(s.pages, i, page{number: number, bits: new([pageSize / 64]uint64)})
	}
	return &s.pages[i]
}

// add removes positions of a page.
func (p *page) add(from, next uint64) (added uint64) {
	if p.bits == nil {
		return 0
	}
	for from < next {
		word, bit := from>>6, from&63
		n := min(64-bit, next-from)
		mask := (^uint64(0) >> (64 - n)) << bit
		added += uint64(bits.OnesCount64(mask &^ p.bits[word]))
		p.bits[word] |= mask
		from += n
	}
	if p.count += uint32(added); p.count == pageSize {
		p.bits = nil
	}
	return added
}

// has reports whether a position of a page is removed.
func (p *page) has(at uint64) bool {
	return p.bits == nil || p.bits[at>>6]&(1<<(at&63)) != 0
}

// within returns the number of removed positions of a page.
func (p *page) within(from, next uint64) (n uint64) {
	switch {
	case from == 0 && next == pageSize:
		return uint64(p.count)
	case p.bits == nil:
		return next - from
	}
	for from < next {
		word, bit := from>>6, from&63
		size := min(64-bit, next-from)
		n += uint64(bits.OnesCount64(p.bits[word] >> bit << (64 - size)))
		from += size
	}
	return n
}

// run returns the next position of a page from at on that is removed or not, as asked, or pageSize.
func (p *page) run(at uint64, removed bool) uint64 {
	if p.bits == nil {
		if removed {
			return at
		}
		return pageSize
	}
	for at < pageSize {
		word := p.bits[at>>6]
		if !removed {
			word = ^word
		}
		if word >>= at & 63; word != 0 {
			return at + uint64(bits.TrailingZeros64(word))
		}
		at = at&^63 + 64
	}
	return pageSize
}

// Has reports whether an offset is removed.
func (s *Set) Has(offset uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.search(offset >> pageShift)
	return i < len(s.pages) && s.pages[i].number == offset>>pageShift && s.pages[i].has(offset&pageMask)
}

// Count returns the number of removed offsets from from up to and without next.
func (s *Set) Count(from, next uint64) (n uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if from >= next {
		return 0
	}
	for i := s.search(from >> pageShift); i < len(s.pages); i++ {
		p := &s.pages[i]
		base := p.number << pageShift
		if base >= next {
			break
		}
		n += p.within(max(from, base)-base, min(next-base, pageSize))
	}
	return n
}

// Next returns the first offset from offset on that is not removed.
func (s *Set) Next(offset uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := s.search(offset >> pageShift); i < len(s.pages) && s.pages[i].number == offset>>pageShift; i++ {
		at := s.pages[i].run(offset&pageMask, false)
		if at < pageSize {
			return s.pages[i].number<<pageShift + at
		}
		offset = endOf(s.pages[i].number)
	}
	return offset
}

// Previous returns the last offset up to and with offset that is not removed; 0: all are.
func (s *Set) Previous(offset uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.search(offset >> pageShift)
	for offset > 0 && i >= 0 && i < len(s.pages) && s.pages[i].number == offset>>pageShift {
		for p := &s.pages[i]; offset>>pageShift == p.number && p.has(offset&pageMask); {
			if p.bits == nil {
				offset = p.number << pageShift
			}
			if offset--; offset == 0 || offset == math.MaxUint64 {
				return 0
			}
		}
		if offset>>pageShift == s.pages[i].number {
			break
		}
		i--
	}
	return offset
}

// Ranges returns the removed offsets from from up to and without next as ranges, in order. Ranges
// that touch are one. The set may change meanwhile: each range was removed when it is returned.
func (s *Set) Ranges(from, next uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(from, next uint64) bool) {
		for from < next {
			first, end := s.run(from, next)
			if first >= next || !yield(first, end) {
				return
			}
			from = end
		}
	}
}

// run returns the first range of removed offsets within two offsets. first is next if there is
// none.
func (s *Set) run(from, next uint64) (first, end uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.search(from >> pageShift)
	for ; ; i++ {
		if i == len(s.pages) || s.pages[i].number<<pageShift >= next {
			return next, next
		}
		base := s.pages[i].number << pageShift
		if at := s.pages[i].run(max(from, base)-base, true); at < pageSize {
			first = base + at
			break
		}
	}
	if first >= next {
		return next, next
	}
	end = first
	for i < len(s.pages) && s.pages[i].number == end>>pageShift && end < next {
		at := s.pages[i].run(end&pageMask, false)
		if end = s.pages[i].number<<pageShift + at; at < pageSize {
			break
		}
		i++
	}
	return first, min(end, next)
}

// Trim forgets all offsets below an offset, because the log begins there.
func (s *Set) Trim(below uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start.Store(max(s.start.Load(), below))
	number := below >> pageShift
	i := s.search(number)
	for k := range i {
		s.count.Add(-uint64(s.pages[k].count))
	}
	s.pages = slices.Delete(s.pages, 0, i)
	if below&pageMask == 0 || len(s.pages) == 0 || s.pages[0].number != number {
		return
	}
	p := &s.pages[0]
	gone := p.within(0, below&pageMask)
	if gone == 0 {
		return
	}
	left := page{number: number, bits: new([pageSize / 64]uint64)}
	for at := below & pageMask; at < pageSize; {
		first := p.run(at, true)
		if first == pageSize {
			break
		}
		end := p.run(first, false)
		left.add(first, end)
		at = end
	}
	s.count.Add(-gone)
	if *p = left; p.count == 0 {
		s.pages = slices.Delete(s.pages, 0, 1)
	}
}
