package log

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// tiny makes a log of sixty records one of many segments.
var tiny = Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10}

// ranged says what a log says of itself, and that reading it agrees.
func ranged(t *testing.T, l *Log, start, end uint64, epochs ...Epoch) {
	t.Helper()
	s, e, durable := l.Offsets()
	if s != start || e != end || durable != end {
		t.Fatalf("offsets %d to %d, durable %d; want %d to %d", s, e, durable, start, end)
	}
	if got := l.Epochs(); !slices.Equal(got, epochs) {
		t.Fatalf("epochs %v, want %v", got, epochs)
	}
	mustRead(t, l, start, end)
}

// putEpoch appends records, each as a batch of its own, under an epoch.
func putEpoch(t *testing.T, l *Log, epoch uint64, n int) {
	t.Helper()
	a := newAck()
	for range n {
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: epoch, Records: texts(end, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal(err)
	}
}

func TestAResetLogBeginsAnew(t *testing.T) {
	for _, start := range []uint64{1, 500, 9000} {
		fsys, d, l := setup(t, small)
		putEpoch(t, l, 5, 1000)
		if _, err := l.Trim(400); err != nil {
			t.Fatal(err)
		}
		hold, cursor := l.Hold(450), l.NewCursor(600)
		if _, err := l.ResetTo(start, 0); err != nil {
			t.Fatal(err)
		}
		ranged(t, l, start, start)
		if names, err := fsys.List("data/shards/orders-0"); err != nil || !slices.Equal(names, []string{manifestName, metaName}) {
			t.Errorf("%v are left (%v)", names, err)
		}
		if _, err := cursor.Read(1); err == nil {
			t.Error("a cursor reads what is gone")
		} else if r, ok := errors.AsType[*RangeError](err); !ok || r.Start != start || r.End != start {
			t.Error(err)
		}
		// The leader's batches are of an epoch before the one that was known here.
		putEpoch(t, l, 2, 100)
		ranged(t, l, start, start+100, Epoch{2, start})
		if got, err := l.Trim(start + 50); err != nil || got != start+50 {
			t.Errorf("a hold of the log that was keeps the start at %d (%v)", got, err)
		}
		hold.Release()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, openDisk(t, fsys, "data", small), orders)
		mustRead(t, l, start+50, start+100)
		if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestAClosedLogCannotBeReset(t *testing.T) {
	_, d, l := setup(t, small)
	put(t, l, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ResetTo(10, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	l = openLog(t, d, orders)
	if _, err := l.ResetTo(0, 0); err != nil {
		t.Fatal(err)
	}
	ranged(t, l, 1, 1)
}

// TestAResetMayBeCutShortAnywhere: a reset that a crash cut short at any operation leaves the log
// as it was, or an empty one.
func TestAResetMayBeCutShortAnywhere(t *testing.T) {
	cut := 0
	for _, start := range []uint64{1, 30, 700} {
		for steps := 0; ; steps++ {
			var err error
			for seed := range uint64(20) {
				fsys := crashfs.New()
				d := openDisk(t, fsys, "data", tiny)
				l := openLog(t, d, orders)
				put(t, l, 150)
				fsys.StopAfter(steps)
				_, err = l.ResetTo(start, 0)
				rng := rand.New(rand.NewPCG(seed, uint64(steps)))
				after := fsys.Crash(rng)
				_ = d.Close()
				if seed%2 == 1 { // and the next life ends while it recovers
					after.StopAfter(rng.IntN(6))
					if d, err := OpenDisk(after, "data", tiny); err == nil {
						_, _ = d.Open(orders, 1, 1, nil)
						_ = d.Close()
					}
					after = after.Crash(rng)
				}
				d = openDisk(t, after, "data", tiny)
				l = openLog(t, d, orders)
				from, end, _ := l.Offsets()
				whole, empty := from == 1 && end == 151, from == start && end == start
				if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 || !whole && !empty || err == nil && !empty {
					t.Fatalf("%d steps, seed %d: from %d to %d (%v): %+v", steps, seed, from, end, err, r)
				}
				mustRead(t, l, from, end)
				put(t, l, 3)
				mustRead(t, l, from, end+3)
				_ = d.Close()
			}
			if err == nil {
				break
			}
			cut++
		}
	}
	if cut < 20 {
		t.Errorf("only %d crashes", cut)
	}
}

// TestATruncationForgetsTheEpochsItCuts: a truncation removes the epochs that began in the
// truncated records, so that an older epoch may continue at its end.
func TestATruncationForgetsTheEpochsItCuts(t *testing.T) {
	fsys, d, l := setup(t, tiny)
	putEpoch(t, l, 1, 100)
	putEpoch(t, l, 3, 50)
	putEpoch(t, l, 7, 50)
	ranged(t, l, 1, 201, Epoch{1, 1}, Epoch{3, 101}, Epoch{7, 151})
	b := encode(t, 2, 201, texts(201, 1), nil)
	if err := l.AppendBatch(b, Synced, nil); err == nil {
		t.Fatal("a batch of an epoch that is over was taken")
	} else if e, ok := errors.AsType[*EpochError](err); !ok || e.Last != 7 || e.Epoch != 2 {
		t.Fatal(err)
	}
	for _, cut := range []struct {
		to     uint64
		epochs []Epoch
	}{
		{180, []Epoch{{1, 1}, {3, 101}, {7, 151}}},
		{151, []Epoch{{1, 1}, {3, 101}}},
		{120, []Epoch{{1, 1}, {3, 101}}},
		{101, []Epoch{{1, 1}}},
	} {
		if end, _, err := l.TruncateTo(cut.to, 0); err != nil || end != cut.to {
			t.Fatal(end, err)
		}
		ranged(t, l, 1, cut.to, cut.epochs...)
		_ = l.Close()
		l = openLog(t, d, orders)
		ranged(t, l, 1, cut.to, cut.epochs...)
	}
	a := newAck()
	if err := l.AppendBatch(encode(t, 2, 101, texts(101, 1), nil), Synced, a); err != nil {
		t.Fatal("the older epoch may not go on:", err)
	}
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	ranged(t, l, 1, 102, Epoch{1, 1}, Epoch{2, 101})
	_ = d.Close()
	ranged(t, openLog(t, openDisk(t, fsys, "data", tiny), orders), 1, 102, Epoch{1, 1}, Epoch{2, 101})
}

// TestATruncationMayEmptyTheLog: a truncation of all records leaves neither the epoch that a trim
// had kept nor the segment.
func TestATruncationMayEmptyTheLog(t *testing.T) {
	for _, start := range []uint64{1, 37, 120} {
		fsys, d, l := setup(t, tiny)
		putEpoch(t, l, 4, 150)
		if _, err := l.Trim(start); err != nil {
			t.Fatal(err)
		}
		if end, _, err := l.TruncateTo(start, 0); err != nil || end != start {
			t.Fatal(end, err)
		}
		ranged(t, l, start, start)
		if _, _, err := l.TruncateTo(start-1, 0); start > 1 && err == nil {
			t.Error("cut below the start")
		}
		putEpoch(t, l, 2, 20)
		_ = d.Close()
		l = openLog(t, openDisk(t, fsys, "data", tiny), orders)
		ranged(t, l, start, start+20, Epoch{2, start})
		if r := l.Recovery(); r.Suspect {
			t.Errorf("%+v", r)
		}
	}
}

// TestATruncationWithinTheBatchThatHoldsTheStart: a log that was trimmed within a batch and is cut
// within the same begins where that batch does.
func TestATruncationWithinTheBatchThatHoldsTheStart(t *testing.T) {
	_, _, l := setup(t, tiny)
	a := newAck()
	for i := range uint64(3) {
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(1+10*i, 10), Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, 3); err != nil {
		t.Fatal(err)
	}
	if start, err := l.Trim(15); err != nil || start != 15 {
		t.Fatal(start, err)
	}
	for offset, want := range map[uint64]uint64{15: 11, 20: 11, 21: 21, 31: 31} {
		if base, err := l.BatchBase(offset); err != nil || base != want {
			t.Errorf("the batch of %d begins at %d, not at %d (%v)", offset, base, want, err)
		}
	}
	if end, _, err := l.TruncateTo(18, 0); err != nil || end != 11 {
		t.Fatal(end, err)
	}
	ranged(t, l, 11, 11)
	putEpoch(t, l, 1, 5)
	ranged(t, l, 11, 16, Epoch{1, 11})
}

// TestATruncationKeepsEarlierDamageKnown: damage below the truncation does not prevent it, and
// stays known, also after a restart.
func TestATruncationKeepsEarlierDamageKnown(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		fsys, d, l := setup(t, Options{})
		var at []int64
		for range 60 {
			at = append(at, l.disk.position(l))
			put(t, l, 1)
		}
		if sealed {
			l.Roll()
			put(t, l, 1)
		}
		path := l.segments[0].path
		_ = d.Close()
		if err := fsys.Flip(path, (at[5]+100)*8); err != nil {
			t.Fatal(err)
		}
		d = openDisk(t, fsys, "data", Options{})
		l = openLog(t, d, orders)
		end, _, err := l.TruncateTo(40, 0)
		if err != nil || end != 40 {
			t.Fatal(sealed, end, err)
		}
		put(t, l, 5)
		for range 3 {
			if got, err := readAll(l, 1); err == nil || len(got) != 5 {
				t.Fatalf("%d records before the damage: %v", len(got), err)
			}
			mustRead(t, l, 7, 45)
			_ = d.Close()
			d = openDisk(t, fsys, "data", Options{})
			l = openLog(t, d, orders)
		}
	}
}

// TestALogIsSetAsideAndBeginsElsewhere: a log with a diverged history is closed and set aside, and
// a new one is opened.
func TestALogIsSetAsideAndBeginsElsewhere(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 50)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	to, err := d.SetAside(l.Name(), "why")
	if err != nil {
		t.Fatal(err)
	}
	l, err = d.Open(orders, 700, 9, []byte("spec"))
	if err != nil {
		t.Fatal(err)
	}
	ranged(t, l, 700, 700)
	putEpoch(t, l, 9, 5)
	_ = d.Close()
	l = openLog(t, openDisk(t, fsys, "data", small), orders)
	ranged(t, l, 700, 705, Epoch{9, 700})
	names, err := fsys.List(to)
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	// What was set aside is a log still.
	if err := fsys.MkdirAll("other/shards"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Rename(to, "other/shards/orders-0"); err != nil {
		t.Fatal(err)
	}
	mustRead(t, openLog(t, openDisk(t, fsys, "other", small), orders), 1, 51)
}

// TestSettingAsideMayBeCutShortAnywhere: a log is set aside, created anew and written to: after a
// crash at any step the old one is complete at one of two places, and the new one is another log.
func TestSettingAsideMayBeCutShortAnywhere(t *testing.T) {
	for steps := 0; ; steps++ {
		fsys, d, l := setup(t, small)
		put(t, l, 50)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		fsys.StopAfter(steps)
		_, err := d.SetAside(l.Name(), "why")
		if err == nil {
			l, err = d.Open(orders, 700, 9, nil)
		}
		if err == nil {
			_, err = l.Append(&Append{Epoch: 9, Records: texts(700, 1)})
			err = errors.Join(err, l.Flush())
		}
		for seed := range uint64(6) {
			after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
			d := openDisk(t, after, "data", small)
			l, openErr := d.Open(orders, 700, 9, nil)
			if openErr != nil {
				t.Fatal(openErr)
			}
			aside, _ := after.List("data/" + setAsideDir)
			from, end, _ := l.Offsets()
			switch {
			case from == 1 && end == 51 && err != nil && len(aside) == 0:
			case from == 700 && len(aside) == 1 && (end == 701 || end == 700 && err != nil):
			default:
				t.Fatalf("%d steps, seed %d: from %d to %d, %v set aside, %v", steps, seed, from, end, aside, err)
			}
			mustRead(t, l, from, end)
			_ = d.Close()
		}
		_ = d.Close()
		if err == nil {
			return
		}
	}
}
