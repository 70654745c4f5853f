package removal

import (
	"math/rand/v2"
	"testing"
)

// model is a Set as a map.
type model map[uint64]bool

func (m model) check(t *testing.T, s *Set, from, next uint64) {
	t.Helper()
	if s.Len() != uint64(len(m)) {
		t.Fatalf("%d offsets are removed, want %d", s.Len(), len(m))
	}
	count := uint64(0)
	for o := from; o < next; o++ {
		if s.Has(o) != m[o] {
			t.Fatalf("offset %d: removed %v, want %v", o, s.Has(o), m[o])
		}
		if m[o] {
			count++
		}
	}
	if got := s.Count(from, next); got != count {
		t.Fatalf("%d of %d to %d are removed, want %d", got, from, next, count)
	}
	want := from
	for m[want] {
		want++
	}
	if got := s.Next(from); got != want {
		t.Fatalf("the next from %d on is %d, want %d", from, got, want)
	}
	want = next
	for want > 0 && m[want] {
		want--
	}
	if got := s.Previous(next); got != want {
		t.Fatalf("the one before %d is %d, want %d", next, got, want)
	}
	ranges, before := uint64(0), uint64(0)
	for a, b := range s.Ranges(from, next) {
		if a >= b || a < from || b > next || ranges > 0 && a <= before {
			t.Fatalf("range %d to %d after %d, of %d to %d", a, b, before, from, next)
		}
		for o := a; o < b; o++ {
			if !m[o] {
				t.Fatalf("offset %d is in the range %d to %d", o, a, b)
			}
		}
		ranges += b - a
		before = b
	}
	if ranges != count {
		t.Fatalf("ranges have %d offsets, want %d", ranges, count)
	}
}

// TestASetIsWhatWasAddedAndNotTrimmed compares a Set with a map.
func TestASetIsWhatWasAddedAndNotTrimmed(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		base := random.Uint64N(3) * 1_000_003
		m, s := model{}, &Set{}
		for range 60 {
			from := base + 1 + random.Uint64N(4*pageSize)
			next := from + random.Uint64N([]uint64{2, 100, 3 * pageSize}[random.IntN(3)])
			switch random.IntN(8) {
			case 0:
				below := base + random.Uint64N(pageSize)
				s.Trim(below)
				for o := range m {
					if o < below {
						delete(m, o)
					}
				}
			default:
				added := uint64(0)
				for o := from; o < next; o++ {
					if !m[o] {
						m[o] = true
						added++
					}
				}
				if got := s.Add(from, next); got != added {
					t.Fatalf("seed %d: %d were added, want %d", seed, got, added)
				}
			}
		}
		for range 30 {
			from := base + random.Uint64N(5*pageSize)
			m.check(t, s, from, from+random.Uint64N(2*pageSize))
		}
	}
}

// TestRunsTakeLittle: removed offsets that follow each other take no bits.
func TestRunsTakeLittle(t *testing.T) {
	var s Set
	s.Add(1, 1<<30)
	if got := s.Bytes(); got > 16<<20 {
		t.Errorf("a run of 2^30 offsets takes %d bytes", got)
	}
	if s.Next(5) != 1<<30 || s.Previous(1<<30-1) != 0 {
		t.Errorf("next %d, previous %d", s.Next(5), s.Previous(1<<30-1))
	}
	s.Trim(1 << 30)
	if s.Len() != 0 || s.Bytes() > 16<<20 {
		t.Errorf("a trimmed set has %d offsets", s.Len())
	}
}

func BenchmarkHas(b *testing.B) {
	var s Set
	random := rand.New(rand.NewPCG(1, 1))
	for range 1 << 20 {
		o := random.Uint64N(1 << 24)
		s.Add(o, o+1)
	}
	b.ReportAllocs()
	for o := uint64(0); b.Loop(); o++ {
		s.Has(o & (1<<24 - 1))
	}
}
