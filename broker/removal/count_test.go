package removal

import (
	"math/rand/v2"
	"testing"
)

// TestSelectAndCountEitherAreThoseOfMaps compares both with maps, of sets with runs and single
// offsets.
func TestSelectAndCountEitherAreThoseOfMaps(t *testing.T) {
	const end = 5 * pageSize
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		var sets [2]Set
		var maps [2]model
		for i := range sets {
			maps[i] = model{}
			for range r.IntN(40) {
				from := r.Uint64N(end)
				next := min(from+1+r.Uint64N(1+r.Uint64N(2*pageSize)), end)
				if r.IntN(2) == 0 {
					next = from + 1
				}
				sets[i].Add(from, next)
				for o := from; o < next; o++ {
					maps[i][o] = true
				}
			}
		}
		from, next := r.Uint64N(end), r.Uint64N(end+10)
		want := uint64(0)
		for o := from; o < next; o++ {
			if maps[0][o] || maps[1][o] {
				want++
			}
		}
		if got := sets[0].CountEither(&sets[1], from, next); got != want {
			t.Fatalf("seed %d: %d of %d to %d are in one of two sets, want %d", seed, got, from, next, want)
		}
		for range 20 {
			below, n := r.Uint64N(end+10), 1+r.Uint64N(3*pageSize)
			want, left := below, n
			for want > 0 && left > 0 {
				if want--; !maps[0][want] {
					left--
				}
			}
			if left > 0 {
				want = 0
			}
			if got := sets[0].Select(below, n); got != want {
				t.Fatalf("seed %d: the %d-th last below %d is %d, want %d", seed, n, below, got, want)
			}
		}
	}
}

// TestVersionRisesWithRemovalsOnly: neither adding again nor trimming changes it.
func TestVersionRisesWithRemovalsOnly(t *testing.T) {
	var s Set
	s.Add(3, 9)
	v := s.Version()
	s.Add(4, 8)
	s.Trim(5)
	if s.Version() != v || v == 0 {
		t.Errorf("version is %d after nothing was removed, want %d", s.Version(), v)
	}
	if s.Add(20, 21); s.Version() <= v {
		t.Errorf("version is still %d after a removal", v)
	}
}
