package stamping

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const usual = `{"floor":4,"room":"410"}`

// TestStampsAreReadAsTheyWereWritten: by every reader that begins anywhere, and passes over any
// records.
func TestStampsAreReadAsTheyWereWritten(t *testing.T) {
	var w Writer
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{1, 1 << 40}).Draw(t, "base")
		w.Begin(base)
		var want []string
		for n := rapid.IntRange(1, 60).Draw(t, "records"); len(want) < n; {
			text := rapid.SampledFrom([]string{"", `{"a":1}`, usual, `{"b":"` + strings.Repeat("x", 300) + `"}`, fmt.Sprintf(`{"n":%d}`, len(want))}).Draw(t, "text")
			if rapid.Bool().Draw(t, "packed") {
				from := len(want)
				for range rapid.IntRange(1, 300).Draw(t, "run") {
					want = append(want, text)
				}
				w.AddRun(base+uint64(from), base+uint64(len(want)), text)
				continue
			}
			w.AddBytes(base+uint64(len(want)), []byte(text))
			want = append(want, text)
		}
		most := w.Size()
		data := append([]byte(nil), w.Data()...)
		if len(data) > most {
			t.Fatalf("%d bytes, and %d were announced", len(data), most)
		}
		for i := rapid.IntRange(0, len(want)-1).Draw(t, "from"); i >= 0; i = -1 {
			r := NewReader(data, base)
			for ; i < len(want); i += rapid.IntRange(1, 3).Draw(t, "step") {
				if got, err := r.At(base + uint64(i)); err != nil || string(got) != want[i] {
					t.Fatalf("record %d has the stamp %q, want %q: %v", i, got, want[i], err)
				}
			}
			if got, err := r.At(base + uint64(len(want))); got != nil || err != nil {
				t.Fatalf("what follows has the stamp %q: %v", got, err)
			}
		}
	})
}

// TestMalformedStampsAreRefused: whatever another process sends, nothing is read beyond it.
func TestMalformedStampsAreRefused(t *testing.T) {
	for what, data := range map[string][]byte{
		"a run without records":   {0, 0, 0, 1, 'x'},
		"no text":                 {0, 1, 0},
		"an empty text":           {0, 1, 0, 0},
		"a text cut short":        {0, 1, 0, 2, 'x'},
		"a text behind its run":   {0, 1, 9, 1, 'x'},
		"a run cut short":         {0, 1},
		"a number without an end": {0x80},
	} {
		r := NewReader(data, 1)
		if got, err := r.At(math.MaxUint64); err == nil {
			t.Errorf("%s is taken: %q", what, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var w Writer
		w.Begin(1)
		for i := range uint64(10) {
			w.Add(1+i, fmt.Sprintf(`{"n":%d}`, i%4))
		}
		data := w.Data()
		for range rapid.IntRange(1, 4).Draw(t, "flips") {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		r := NewReader(data, 1)
		for offset := uint64(1); offset < 20; offset++ {
			if _, err := r.At(offset); err != nil {
				return
			}
		}
	})
}

// TestTheCostsOfStamps are those that doc.go states.
func TestTheCostsOfStamps(t *testing.T) {
	const extension = 6 // its type and its length
	text := func(n int) string { return fmt.Sprintf(`{"floor":4,"room":"%03d"}`, n) }
	for _, c := range []struct {
		records, subjects int
		most              float64
	}{{1, 1, 34}, {16, 1, 2.2}, {256, 1, 0.2}, {16, 2, 6.6}, {256, 2, 3.3}, {16, 16, 28.5}, {256, 256, 28.5}} {
		var w Writer
		w.Begin(1_000_000)
		for i := range c.records {
			w.Add(1_000_000+uint64(i), text(i%c.subjects))
		}
		each := float64(len(w.Data())+extension) / float64(c.records)
		t.Logf("%d records of %d subjects: %.2f bytes each", c.records, c.subjects, each)
		if each > c.most {
			t.Errorf("%d records of %d subjects take %.2f bytes each, want at most %v", c.records, c.subjects, each, c.most)
		}
	}
}

// TestStampsAllocateNothing: nor does a Writer grow that has seen a batch with many texts.
func TestStampsAllocateNothing(t *testing.T) {
	var w Writer
	texts := make([]string, 8)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	batch := func() {
		w.Begin(1)
		for i := range uint64(64) {
			w.Add(1+i, texts[i%8])
		}
		r := NewReader(w.Data(), 1)
		for i := range uint64(64) {
			if got, err := r.At(1 + i); err != nil || string(got) != texts[i%8] {
				t.Fatal(string(got), err)
			}
		}
	}
	batch()
	if n := testing.AllocsPerRun(100, batch); n > 0 {
		t.Errorf("%v allocations", n)
	}
	w.Begin(1)
	for i := range uint64(10 * mostPlaces) {
		w.Add(1+i, fmt.Sprintf(`{"n":%d}`, i))
	}
	w.Data()
	if w.Drop(); len(w.places) > 0 || w.text != "" || w.first != "" {
		t.Error("texts are kept")
	}
}
