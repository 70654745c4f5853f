package attribute

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTheCompactFormIsTheSameSet: whatever a set has, also what JSON could not say. It takes no
// memory of its own, and three times the room of the JSON at most.
func TestTheCompactFormIsTheSameSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	scalars := []Value{
		String(""), String("x\"\\\n\x00"), String("\xff\xc0"), String(strings.Repeat("é", 150)), Bool(true), Bool(false), {},
		Number(0), Number(math.Copysign(0, -1)), Number(1), Number(-1), Number(0.5), Number(-1e-9), Number(1e9), Number(math.MaxFloat64),
		Number(math.SmallestNonzeroFloat64), Number(1 << 53), Number(1<<53 - 1), Number(-1 << 53), Number(1 << 63), Number(math.Inf(-1)),
	}
	text := []byte("before")
	var sets []Set
	var ends []int
	for range 300 {
		s := Set{}
		for n := range r.IntN(12) {
			v := scalars[r.IntN(len(scalars))]
			if r.IntN(4) == 0 {
				var list []Value
				for range r.IntN(5) {
					list = append(list, scalars[r.IntN(len(scalars))])
				}
				v = List(list...)
			}
			s[fmt.Sprint("name.", n)] = v
		}
		from := len(text)
		text = s.AppendCompact(text)
		if size := len(text) - from; size > 3*s.Size() {
			t.Errorf("%v takes %d bytes, and %d as JSON", s, size, s.Size())
		}
		sets, ends = append(sets, s), append(ends, len(text))
	}
	from := len("before")
	for i, want := range sets {
		if got := FromCompact(text[from:ends[i]]); !got.Equal(want) {
			t.Errorf("%v is read as %v", want, got)
		}
		from = ends[i]
	}
	if got := FromCompact(Set{"a": Number(math.NaN())}.AppendCompact(nil))["a"]; !math.IsNaN(got.Number()) {
		t.Errorf("NaN is read as %v", got)
	}
	if got := FromCompact(Set{}.AppendCompact(nil)); got == nil || len(got) > 0 {
		t.Errorf("an empty set is read as %v", got)
	}
	b := make([]byte, 0, len(text))
	if n := testing.AllocsPerRun(100, func() { b = sets[0].AppendCompact(b[:0]) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
