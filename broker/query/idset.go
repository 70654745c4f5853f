package query

import (
	"iter"
	"math/bits"
	"slices"
)

// idSet is a set of small numbers: in order while they are few, and as bits when that takes less.
// The zero value is empty.
type idSet struct {
	few   []uint32
	bits  []uint64 // nil: few has them
	count int
}

// leastBits is how many numbers there are at least before bits are worth their second form.
const leastBits = 64

func (s *idSet) len() int { return s.count }

// bytes returns what the set takes.
func (s *idSet) bytes() int { return 4*cap(s.few) + 8*cap(s.bits) }

func (s *idSet) has(id uint32) bool {
	if s.bits != nil {
		return int(id>>6) < len(s.bits) && s.bits[id>>6]&(1<<(id&63)) != 0
	}
	_, there := slices.BinarySearch(s.few, id)
	return there
}

// add adds a number, and reports whether it was not there.
func (s *idSet) add(id uint32) bool {
	if s.bits != nil {
		if s.has(id) {
			return false
		}
		s.setBit(id)
		s.count++
		return true
	}
	at, there := slices.BinarySearch(s.few, id)
	if there {
		return false
	}
	s.few = slices.Insert(s.few, at, id)
	s.count++
	if s.count >= leastBits && s.count > 3*(int(s.few[s.count-1])>>6+1) { // 12 bytes a word of 8
		few := s.few
		s.few = nil
		for _, id := range few {
			s.setBit(id)
		}
	}
	return true
}

func (s *idSet) setBit(id uint32) {
	if need := int(id>>6) + 1; need > len(s.bits) {
		s.bits = append(s.bits, make([]uint64, need-len(s.bits))...)
	}
	s.bits[id>>6] |= 1 << (id & 63)
}

// remove removes a number, and reports whether it was there.
func (s *idSet) remove(id uint32) bool {
	if s.bits == nil {
		at, there := slices.BinarySearch(s.few, id)
		if there {
			s.few = slices.Delete(s.few, at, at+1)
			s.count--
			if s.count < cap(s.few)/4 && cap(s.few) > 16 {
				s.few = slices.Clone(s.few)
			}
		}
		return there
	}
	if !s.has(id) {
		return false
	}
	s.bits[id>>6] &^= 1 << (id & 63)
	if s.count--; s.count < len(s.bits) { // 4 bytes a word of 8
		few := slices.AppendSeq(make([]uint32, 0, s.count), s.all())
		s.few, s.bits = few, nil
	}
	return true
}

// all returns the numbers in order. The set must not be changed meanwhile.
func (s *idSet) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, id := range s.few {
			if !yield(id) {
				return
			}
		}
		for i, word := range s.bits {
			for ; word != 0; word &= word - 1 {
				if !yield(uint32(i)<<6 | uint32(bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}
