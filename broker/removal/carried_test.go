package removal

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCarriedRemovalsAreTakenInOrder: beside a model, with batches that are not appended.
func TestCarriedRemovalsAreTakenInOrder(t *testing.T) {
	type batch struct {
		base, end uint64
		spans     []Span
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var c Carried
		var model []batch
		end, high := uint64(1), uint64(1)
		for range 200 {
			switch rng.IntN(3) {
			case 0: // a batch, which is appended or not
				b := batch{base: end, end: end + 1 + rng.Uint64N(5)}
				for range rng.IntN(4) {
					b.spans = append(b.spans, Span{1, rng.Uint64(), rng.Uint64()})
				}
				if c.Add(b.base, b.end, b.spans); rng.IntN(3) == 0 {
					c.Undo()
				} else {
					model, end = append(model, b), b.end
				}
			case 1:
				high = min(end, high+rng.Uint64N(8))
				var got, want []Span
				c.Take(high, func(s Span) { got = append(got, s) })
				for len(model) > 0 && model[0].end <= high {
					want, model = append(want, model[0].spans...), model[1:]
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: up to %d: %v, want %v", seed, high, got, want)
				}
			}
			var want batch
			if len(model) > 0 {
				want = model[0]
			}
			if base, end := c.Next(); base != want.base || end != want.end {
				t.Fatalf("seed %d: the first batch is from %d to %d, want %d to %d", seed, base, end, want.base, want.end)
			}
		}
	}
}
