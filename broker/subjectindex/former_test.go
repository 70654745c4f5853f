package subjectindex

import (
	"errors"
	"fmt"
	"testing"
)

// compacted returns a world with an index of three sealed segments, of which compaction has
// replaced the first two. Their new index is not made yet.
func compacted(t *testing.T, flush bool) *world {
	w := newWorld(t, 1)
	for segment := range 3 {
		w.roll()
		w.index.Begin()
		for n := range 100 {
			s := fmt.Sprintf("s.%d", n%10+segment)
			w.index.Add(w.log.end, 1, []byte(s))
			w.log.records = append(w.log.records, entryOf{w.log.end, s})
			w.log.end++
		}
		w.index.End()
		w.active().End = w.log.end
	}
	w.log.high = w.log.end
	w.seal()
	w.seal()
	if flush {
		w.work(true)
	}
	newest := infos(w.log.records)
	var left []entryOf
	for _, r := range w.log.records {
		if r.offset > 200 || newest[r.subject].Last == r.offset {
			left = append(left, r)
		}
	}
	w.log.records = left
	old := []Segment{w.log.segments[0].Segment, w.log.segments[1].Segment}
	fresh := Segment{Base: 1, Generation: 7}
	w.log.segments = append([]SegmentState{{Segment: fresh, End: 201, Sealed: true}}, w.log.segments[2:]...)
	if err := w.index.Replace(old, fresh, 201, false, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// Compaction removes no last record of a subject. So the last record of each is known beside it,
// also that there is none, whether the former index was in files or in memory. Counts are not.
func TestLastRecordsAreKnownAfterCompaction(t *testing.T) {
	for _, flush := range []bool{true, false} {
		w := compacted(t, flush)
		all := Range{1, w.log.end}
		for of, want := range map[string]uint64{"s.none": 0, "s.0": 91, "s.1": 191, "s.7": 300 - 4} {
			if got, err := w.index.Last(t.Context(), []byte(of), all); err != nil || got != want {
				t.Errorf("flushed %v: last of %s: %d, %v; want %d", flush, of, got, err, want)
			}
		}
		for pattern, want := range map[string]uint64{"none.*": 0, "s.0": 91, "*.*.*": 0} {
			f, err := NewFilter(pattern)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.index.LastMatch(t.Context(), f, all); err != nil || got != want {
				t.Errorf("flushed %v: last of %s: %d, %v; want %d", flush, pattern, got, err, want)
			}
		}
		if _, err := w.index.Info(t.Context(), []byte("s.1"), all); !isMissing(err) {
			t.Errorf("what compaction has removed is counted: %v", err)
		}
		w.work(true)
		w.check(true)
		if names, err := w.fs.List("index"); err != nil || len(names) > 3 {
			t.Errorf("the former files are left: %v, %v", names, err)
		}
	}
}

func isMissing(err error) bool {
	missing, ok := errors.AsType[*MissingError](err)
	return ok && !missing.Damaged
}

// A last record that the log has lost is not believed of a former index, and neither is one that
// compaction has removed because of a record behind the range of the question.
func TestAFormerIndexIsNotBelievedAboutLostRecords(t *testing.T) {
	w := compacted(t, true)
	w.log.records = w.log.records[1:] // s.0 at 91
	if got, err := w.index.Last(t.Context(), []byte("s.0"), Range{1, w.log.end}); !isMissing(err) {
		t.Errorf("the last of s.0 is said to be at %d, %v", got, err)
	}
	if got, err := w.index.Last(t.Context(), []byte("s.5"), Range{1, 201}); !isMissing(err) {
		t.Errorf("the last of s.5 below 201 is said to be at %d, %v", got, err)
	}
	w.work(true)
	if got, err := w.index.Last(t.Context(), []byte("s.0"), Range{1, w.log.end}); err != nil || got != 0 {
		t.Errorf("the last of s.0 is at %d, %v", got, err)
	}
}
