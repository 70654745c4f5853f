package log

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// disowned is a log at rest with a damaged batch that it disowns, and a function that makes the
// batch whole again: the damage was in memory only.
func disowned(t *testing.T, n int) (fsys *crashfs.FS, d *Disk, l *Log, lost Span, restore func(*crashfs.FS)) {
	t.Helper()
	fsys, d, l = atRest(t, n)
	restore = spoilBatch(t, fsys, l, l.SegmentInfos()[2].Base, 1000)
	lost = damagesOf(t, l)[0]
	if err := l.Disown(lost); err != nil {
		t.Fatal(err)
	}
	if l.IsLost(lost) { // another replica may have it
		t.Fatalf("%v is lost", lost)
	}
	if err := l.DisownLost(lost); err != nil {
		t.Fatal(err)
	}
	return fsys, d, l, lost, restore
}

// TestDisownedRecordsAreNotReadAgain: records of a damaged batch are given up on other replicas,
// and the damage turns out to have been in memory only. They stay unreadable, in this process and
// in the next one, and the log lacks their segment, until another replica's batches replace it.
func TestDisownedRecordsAreNotReadAgain(t *testing.T) {
	fsys, d, l, lost, restore := disowned(t, 1990)
	bad, epochs := l.SegmentInfos()[2], l.Epochs()
	_, _, other := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 12 << 10, TailBytes: 1})
	r, gone, err := l.GiveUp(lost.From) // the other replica has batches without records
	if err != nil {
		t.Fatal(err)
	}
	r.Abandon()
	restore(fsys)
	for range 2 {
		fsys.DropCache()
		if got := damagesOf(t, l); !slices.Equal(got, []Span{lost}) || !slices.Equal(l.Meta().Disowned, got) || !l.IsLost(lost) {
			t.Fatalf("%v can't be read, and %v was disowned", got, lost)
		}
		if got := l.Lacks(); !slices.Equal(got, []Span{{bad.Base, bad.End}}) {
			t.Errorf("it lacks %v, and not the segment %+v", got, bad)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, d, orders)
		if r := l.Recovery(); !r.Suspect || r.Strange || len(r.Damaged) != 1 || (Span{r.Damaged[0].From, r.Damaged[0].Next}) != lost {
			t.Errorf("%+v", r)
		}
	}
	batches, err := l.Nothing(lost)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = l.Repair(); err != nil {
		t.Fatal(err)
	}
	for added := true; added; {
		if added, err = r.AddOwn(0, lost.From); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add(Batch(batches)); err != nil {
		t.Fatal(err)
	}
	for added := true; added; {
		if added, err = r.AddOwn(0, bad.End); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		hasAllBut(t, l, gone, epochs)
		if m := l.Meta(); len(m.Disowned)+len(m.Lost)+len(m.Bad)+len(l.Lacks()) > 0 || l.Recovery().Suspect && r == nil {
			t.Errorf("%+v; it lacks %v", m, l.Lacks())
		}
		copyTo(t, l, other)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, r = openLog(t, d, orders), nil
	}
}

// TestBatchesWithDisownedRecords: a part of a damaged batch is disowned, since the other replica
// has a segment that begins or ends there. When the batch can be read again, its other records can
// be read if they are behind that part, and nothing that is before the batch is affected.
func TestBatchesWithDisownedRecords(t *testing.T) {
	_, d, l := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 12 << 10, TailBytes: 1})
	for range 30 {
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Roll()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, d, orders)
	l.mu.Lock()
	l.segments[0].bad = true
	l.mu.Unlock()
	for _, at := range []struct{ disown, unreadable Span }{
		{Span{21, 31}, Span{21, 31}},
		{Span{51, 54}, Span{51, 54}},
		{Span{74, 81}, Span{71, 81}},
		{Span{104, 106}, Span{101, 106}},
	} {
		if err := l.Disown(at.disown); err != nil {
			t.Fatal(err)
		}
		var got []Span
		for _, span := range damagesOf(t, l) {
			if span.From < at.unreadable.Next && at.unreadable.From < span.Next {
				got = append(got, span)
			}
		}
		if !slices.Equal(got, []Span{at.unreadable}) {
			t.Errorf("%v is disowned, and %v can't be read", at.disown, got)
		}
	}
}

// TestWhatReplacesDisownedRecordsCanBeRead: the offsets of disowned records are used again after a
// truncation or a reset, and are gone after a trim. They are not disowned any more.
func TestWhatReplacesDisownedRecordsCanBeRead(t *testing.T) {
	for name, replace := range map[string]func(l *Log, lost Span) error{
		"truncated":         func(l *Log, lost Span) error { _, _, err := l.TruncateTo(lost.From, 0); return err },
		"truncated earlier": func(l *Log, lost Span) error { _, _, err := l.TruncateTo(lost.From-100, 0); return err },
		"reset":             func(l *Log, lost Span) error { _, err := l.ResetTo(1, 0); return err },
		"given up":          func(l *Log, lost Span) error { _, _, err := giveUpIn(l, lost.From); return err },
		"trimmed":           func(l *Log, lost Span) error { _, err := l.Trim(lost.Next); return err },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l, lost, restore := disowned(t, 1990)
			restore(fsys)
			fsys.DropCache()
			if name == "truncated" { // its batch can't be read, so the log is cut before it
				lost.From--
			}
			if err := replace(l, lost); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := l.Meta().Disowned; len(got)+len(l.Meta().Lost) > 0 || len(damagesOf(t, l)) > 0 {
					t.Errorf("%v is disowned, and %v can't be read", got, damagesOf(t, l))
				}
				for _, end, _ := l.Offsets(); end <= lost.Next; end++ {
					if _, err := l.Append(&Append{Epoch: 9, Records: texts(end, 1)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = openLog(t, d, orders)
			}
		})
	}
}

// TestADisownedSegmentIsNotCompacted: a segment with disowned records can be read again, and
// compaction leaves it alone: the log lacks it until it is repaired.
func TestADisownedSegmentIsNotCompacted(t *testing.T) {
	fsys, _, l, lost, restore := disowned(t, 1990)
	restore(fsys)
	fsys.DropCache()
	lacks := l.Lacks()
	_, end, _ := l.Offsets()
	out, err := l.Compact(context.Background(), CompactOptions{Below: end})
	if err != nil || out.Records == 0 || out.Clean > lacks[0].From {
		t.Errorf("%+v, %v", out, err)
	}
	if got := damagesOf(t, l); !slices.Equal(got, []Span{lost}) || !slices.Equal(l.Lacks(), lacks) {
		t.Errorf("%v can't be read, and it lacks %v", got, l.Lacks())
	}
}

// TestWhatIsWholeIsNotDisowned: records of a segment without damage are not disowned, nor those
// behind the end of the log.
func TestWhatIsWholeIsNotDisowned(t *testing.T) {
	_, _, l, lost, _ := disowned(t, 1990)
	bad := l.SegmentInfos()[2]
	_, end, _ := l.Offsets()
	for _, whole := range []Span{{bad.Base - 1, bad.Base}, {bad.End, bad.End + 1}, {end, end + 1}} {
		if err := l.Disown(whole); err == nil {
			t.Errorf("%v is disowned", whole)
		}
	}
	if got := l.Meta().Disowned; !slices.Equal(got, []Span{lost}) {
		t.Errorf("%v is disowned", got)
	}
}

// TestACrashWhileRecordsAreDisowned: the power is cut at each step. When Disown has returned, the
// records can't be read, also if their damage is gone.
func TestACrashWhileRecordsAreDisowned(t *testing.T) {
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(4) {
			fsys, d, l := atRest(t, 600)
			restore := spoilBatch(t, fsys, l, l.SegmentInfos()[2].Base, 1000)
			lost := damagesOf(t, l)
			fsys.StopAfter(steps)
			err := l.Disown(lost[0])
			over = err == nil
			if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("step %d: %v", steps, err)
			}
			restore(fsys)
			_, _, l = cutPower(t, fsys, d, seed, steps, small)
			if got := damagesOf(t, l); over && !slices.Equal(got, lost) || len(got) > 0 && !slices.Equal(got, lost) {
				t.Fatalf("step %d, seed %d: %v can't be read, and %v was disowned", steps, seed, got, lost)
			}
			if r := l.Recovery(); over && !r.Suspect {
				t.Fatalf("step %d, seed %d: %+v", steps, seed, r)
			}
		}
	}
}

// TestSpansThatTouchBecomeOne: spans stay sorted, and touch no other one.
func TestSpansThatTouchBecomeOne(t *testing.T) {
	var spans []Span
	for _, step := range []struct {
		add  Span
		want []Span
	}{
		{Span{10, 12}, []Span{{10, 12}}},
		{Span{20, 22}, []Span{{10, 12}, {20, 22}}},
		{Span{5, 6}, []Span{{5, 6}, {10, 12}, {20, 22}}},
		{Span{14, 16}, []Span{{5, 6}, {10, 12}, {14, 16}, {20, 22}}},
		{Span{12, 14}, []Span{{5, 6}, {10, 16}, {20, 22}}},
		{Span{11, 13}, []Span{{5, 6}, {10, 16}, {20, 22}}},
		{Span{21, 30}, []Span{{5, 6}, {10, 16}, {20, 30}}},
		{Span{6, 40}, []Span{{5, 40}}},
	} {
		if spans = AddSpan(spans, step.add); !slices.Equal(spans, step.want) {
			t.Fatalf("with %v: %v, and not %v", step.add, spans, step.want)
		}
	}
}
