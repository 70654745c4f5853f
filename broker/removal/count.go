package removal

import "math/bits"

// Select returns the n-th last offset below end that is not removed: as many are left from there up
// to, not including, end. It returns 0 if fewer are.
func (s *Set) Select(end, n uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n == 0 {
		return end
	}
	i := s.search(end >> pageShift)
	if i < len(s.pages) && s.pages[i].number<<pageShift < end {
		i++
	}
	for i--; i >= 0; i-- {
		p := &s.pages[i]
		base := p.number << pageShift
		behind := min(endOf(p.number), end)
		if end-behind >= n {
			break // before the page, none is removed
		}
		n -= end - behind
		if left := behind - base - p.within(0, behind-base); left < n {
			n -= left
			end = base
			continue
		}
		return base + p.selectLast(behind-base, n)
	}
	if end < n {
		return 0
	}
	return end - n
}

// selectLast returns the n-th last position below end that is not removed. There is one.
func (p *page) selectLast(end, n uint64) uint64 {
	if p.bits == nil {
		return end // not reached: no position is left
	}
	for end > 0 {
		word := (end - 1) >> 6
		size := end - word<<6
		left := ^p.bits[word] << (64 - size) >> (64 - size)
		count := uint64(bits.OnesCount64(left))
		if count < n {
			n -= count
			end = word << 6
			continue
		}
		for ; n > 1; n-- {
			left &^= 1 << (63 - bits.LeadingZeros64(left))
		}
		return word<<6 + 63 - uint64(bits.LeadingZeros64(left))
	}
	return 0
}

// CountEither returns the number of offsets from from up to, not including, next that are in s or
// in other.
func (s *Set) CountEither(other *Set, from, next uint64) (n uint64) {
	if from >= next {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	other.mu.RLock()
	defer other.mu.RUnlock()
	own := s.from(from >> pageShift)
	others := other.from(from >> pageShift)
	for len(own) > 0 || len(others) > 0 {
		var a, b page
		switch {
		case len(others) == 0 || len(own) > 0 && own[0].number < others[0].number:
			a, own = own[0], own[1:]
		case len(own) == 0 || others[0].number < own[0].number:
			a, others = others[0], others[1:]
		default:
			a, b, own, others = own[0], others[0], own[1:], others[1:]
		}
		base := a.number << pageShift
		if base >= next {
			break
		}
		at, end := max(from, base)-base, min(next-base, pageSize)
		switch {
		case a.bits != nil && b.count > 0 && b.bits == nil:
			n += b.within(at, end)
		case a.bits == nil || b.bits == nil:
			n += a.within(at, end)
		default:
			n += a.with(&b).within(at, end)
		}
	}
	return n
}

// from returns the pages from a number on. mu is held.
func (s *Set) from(number uint64) []page { return s.pages[s.search(number):] }

// with returns a page with the positions of two, both of which have bits.
func (p *page) with(other *page) *page {
	sum := page{bits: new([pageSize / 64]uint64)}
	for i := range sum.bits {
		sum.bits[i] = p.bits[i] | other.bits[i]
		sum.count += uint32(bits.OnesCount64(sum.bits[i]))
	}
	return &sum
}
