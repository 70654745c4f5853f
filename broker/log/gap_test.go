package log

import (
	"slices"
	"testing"
)

// TestATruncationOfAGapKeepsWhatIsBefore: offsets that never had records are no reason to copy a
// log anew, whether the truncation removes them or they are below it, and wherever the log was
// opened.
func TestATruncationOfAGapKeepsWhatIsBefore(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		fsys, d, l := setup(t, tiny)
		putEpoch(t, l, 1, 20)
		for n := range uint64(10) { // records at 25, 30, …, and gaps between
			_, end, _ := l.Offsets()
			a := newAck()
			if err := l.AppendBatch(Gap(1, end, 25+5*n, 7, nil), Synced, nil); err != nil {
				t.Fatal(err)
			}
			if err := l.AppendBatch(encode(t, 1, 25+5*n, texts(25+5*n, 1), nil), Synced, a); err != nil {
				t.Fatal(err)
			}
			if err := a.wait(t, 1); err != nil {
				t.Fatal(err)
			}
		}
		if reopened {
			_ = d.Close()
			l = openLog(t, openDisk(t, fsys, "data", tiny), orders)
		}
		want := append(span(1, 20), 25, 30, 35, 40, 45)
		for _, to := range []uint64{61, 56, 46} { // behind a record, behind a gap, behind a record
			if empties, err := l.Empties(to); err != nil || empties {
				t.Errorf("truncating to %d is said to empty the log: %v", to, err)
			}
			if end, _, err := l.TruncateTo(to, 0); err != nil || end > to || to-end > 4 {
				t.Fatal(end, err)
			}
			if l.Start() != 1 {
				t.Fatalf("truncated to %d, it starts at %d", to, l.Start())
			}
		}
		if got := offsetsOf(t, l, 1); !slices.Equal(got, want) {
			t.Errorf("it has %v, want %v", got, want)
		}
	}
}

// TestAPartOfAGapIsNoLoss: what a rewrite, or a follower, has of a gap isn't taken for records that
// nobody has.
func TestAPartOfAGapIsNoLoss(t *testing.T) {
	gap := Gap(3, 10, 20, 7, nil)
	behind, err := gap.From(15)
	if err != nil {
		t.Fatal(err)
	}
	before, err := gap.Until(15)
	if err != nil {
		t.Fatal(err)
	}
	var merged thinner
	for _, b := range []Batch{gap, Gap(3, 20, 30, 7, nil)} {
		if err := merged.add(b, b.Base(), func(*Record) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []Batch{gap, behind, before, merged.take()} {
		if b.judged() != 0 {
			t.Errorf("the batch from %d to %d must not be truncated below %d", b.Base(), b.End(), b.judged())
		}
		if b.Lost() || b.Count() > 0 || !b.Sparse() {
			t.Errorf("the batch from %d to %d: lost %v, %d records", b.Base(), b.End(), b.Lost(), b.Count())
		}
	}
}
