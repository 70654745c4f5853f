package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// feed gives a repair what another replica has, and returns how many bytes that were.
func feed(t testing.TB, r *Repair, from *Log) (bytes int, err error) {
	t.Helper()
	for !r.Full() {
		v, err := from.NewCursor(r.Span().From).Read(1 << 10)
		if err != nil {
			return bytes, err
		}
		for b, ok := v.Next(); ok && b.Base() < r.Span().Next; b, ok = v.Next() {
			bytes += len(b)
			if err := r.Add(b); err != nil {
				v.Release()
				return bytes, err
			}
		}
		v.Release()
	}
	return bytes, nil
}

// mend repairs a log with what another replica has, until it lacks nothing.
func mend(t testing.TB, l, from *Log) (bytes int, aside []string, err error) {
	t.Helper()
	for {
		r, err := l.Repair()
		if r == nil || err != nil {
			return bytes, aside, err
		}
		n, err := feed(t, r, from)
		bytes += n
		if err != nil {
			r.Abandon()
			return bytes, aside, err
		}
		to, err := r.Finish()
		if err != nil {
			return bytes, aside, err
		}
		if to != "" {
			aside = append(aside, to)
		}
	}
}

// replicas are two logs with the same batches, of three epochs, in many sealed segments.
func replicas(t testing.TB, n int) (fsys *crashfs.FS, d *Disk, l, other *Log) {
	t.Helper()
	fsys, d, l = setup(t, small)
	_, _, other = setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 12 << 10, TailBytes: 1})
	fill(t, l, other, n)
	return fsys, d, l, other
}

func fill(t testing.TB, l, other *Log, n int) {
	t.Helper()
	for i := range n {
		_, end, _ := l.Offsets()
		r := Record{Time: int64(end), Subject: fmt.Appendf(nil, "s.%d", end%7), Data: fmt.Appendf(nil, "record %d", end)}
		if end < 700 && end%7 == 0 {
			r.Subject = []byte("early") // of which nothing newer comes
		}
		epoch := 1 + uint64(3*i/n)
		if known := l.Epochs(); len(known) > 0 {
			epoch = max(epoch, known[len(known)-1].Epoch)
		}
		if _, err := l.Append(&Append{Epoch: epoch, Records: []Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	copyTo(t, l, other)
	for _, each := range []*Log{l, other} {
		if err := each.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// appendUnshared appends 60 records of epoch 3 that the other replica never gets, and seals the
// segment. It returns the offset of the first one.
func appendUnshared(t testing.TB, l *Log) (first uint64) {
	t.Helper()
	_, first, _ = l.Offsets()
	for i := range uint64(60) {
		if _, err := l.Append(&Append{Epoch: 3, Records: texts(first+i, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	return first
}

// copyTo appends the records to a log that only the other one has.
func copyTo(t testing.TB, from, to *Log) {
	t.Helper()
	_, at, _ := to.Offsets()
	c := from.NewCursor(at)
	for {
		v, err := c.Read(16 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if v.End == v.From {
			return
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if err := to.AppendBatch(b, Replicated, nil); err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
	}
}

// everything is what a log holds, batch by batch, and where its epochs begin.
func everything(t testing.TB, l *Log) (all []string) {
	t.Helper()
	c := l.NewCursor(l.Start())
	for {
		v, err := c.Read(16 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if v.End == v.From {
			return append(all, fmt.Sprint(l.Epochs()))
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			all = append(all, fmt.Sprintf("%d@%d %08x", b.Base(), b.Epoch(), le.Uint32(b[4:])))
		}
		v.Release()
	}
}

// spoil flips a bit in the n-th segment from the start, and has it found.
func spoil(t testing.TB, fsys *crashfs.FS, d *Disk, l *Log, n int) SegmentInfo {
	t.Helper()
	info := l.SegmentInfos()[n]
	at := int64(1000)
	if info.Bytes <= at { // nearly all of its records were removed: the first batch's header
		at = headerSize + markerSize + 20
	}
	if err := fsys.Flip(fileOf(t, l, info.Base), at*8); err != nil {
		t.Fatal(err)
	}
	report, err := l.Scrub(context.Background(), ScrubOptions{From: info.Base})
	if err != nil || len(report.Damaged) == 0 {
		t.Fatalf("not found: %+v, %v", report, err)
	}
	return info
}

// TestOneSegmentIsRepaired: a bit flips in a log of many segments: one segment is fetched, the
// damaged file is set aside, and all records are as before, also after a restart.
func TestOneSegmentIsRepaired(t *testing.T) {
	for _, form := range []string{"plain", "compressed"} {
		t.Run(form, func(t *testing.T) {
			fsys, d, l, other := replicas(t, 2000)
			if form == "compressed" {
				for _, each := range []*Log{l, other} {
					if saved, err := each.Compress(context.Background(), 1); err != nil || saved == 0 {
						t.Fatal(saved, err)
					}
				}
			}
			want := everything(t, other)
			bad := spoil(t, fsys, d, l, 3)
			file := fileOf(t, l, bad.Base)
			if got := l.Lacks(); !slices.Equal(got, []Span{{bad.Base, bad.End}}) {
				t.Fatalf("it lacks %v", got)
			}
			if err := l.Close(); err != nil { // what a scrub has found is known in the next life
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			if r := l.Recovery(); !r.Suspect || r.Strange || !slices.Equal(l.Lacks(), []Span{{bad.Base, bad.End}}) {
				t.Fatalf("%+v; it lacks %v", r, l.Lacks())
			}
			bytes, aside, err := mend(t, l, other)
			if err != nil {
				t.Fatal(err)
			}
			if int64(bytes) > bad.Bytes && form == "plain" || len(l.SegmentInfos()) < 10 {
				t.Errorf("%d bytes were fetched for a segment of %d, of %d segments", bytes, bad.Bytes, len(l.SegmentInfos()))
			}
			if want := filepath.Join("data", setAsideDir, "orders-0.1", filepath.Base(file)); !slices.Equal(aside, []string{want}) {
				t.Errorf("set aside: %q", aside)
			} else if _, err := fsys.Stat(want); err != nil {
				t.Error(err)
			}
			for range 2 {
				if got := everything(t, l); !slices.Equal(got, want) {
					t.Fatalf("it holds %d batches of %d, or others", len(got), len(want))
				}
				if found, err := scrubAll(l); err != nil || len(found) > 0 || len(l.Lacks()) > 0 {
					t.Errorf("%v, %v; it lacks %v", found, err, l.Lacks())
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l = openLog(t, d, orders); l.Recovery().Suspect {
					t.Errorf("%+v", l.Recovery())
				}
			}
		})
	}
}

// remove deletes segments' files while the log is closed.
func remove(t testing.TB, fsys *crashfs.FS, d *Disk, name string, bases ...uint64) {
	t.Helper()
	for _, base := range bases {
		if err := fsys.Remove(filepath.Join(d.logDir(name), segmentName(base))); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.SyncDir(d.logDir(name)); err != nil {
		t.Fatal(err)
	}
}

// TestMissingSegmentsAreRepaired: opening a log finds missing files at any place, and only these
// are fetched.
func TestMissingSegmentsAreRepaired(t *testing.T) {
	for name, which := range map[string][]int{"the first": {0}, "one": {4}, "two that stood side by side": {4, 5}, "several": {1, 4, 7}} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l, other := replicas(t, 2000)
			want := everything(t, other)
			infos := l.SegmentInfos()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			gone, most := map[uint64]bool{}, 0
			for _, n := range which {
				remove(t, fsys, d, "orders-0", infos[n].Base)
				most += int(infos[n].Bytes)
				for o := infos[n].Base; o < infos[n].End; o++ {
					gone[o] = true
				}
			}
			l = openLog(t, d, orders)
			if r := l.Recovery(); !r.Suspect || r.Strange || !strings.Contains(r.Reason, "are gone") {
				t.Fatalf("%+v", r)
			}
			for o := uint64(1); o <= 2000; o++ {
				v, err := l.NewCursor(o).Read(1)
				v.Release()
				if corrupt, is := errors.AsType[*CorruptError](err); gone[o] != is || is && gone[corrupt.Next] {
					t.Fatalf("offset %d: %v", o, err)
				}
			}
			bytes, aside, err := mend(t, l, other)
			if err != nil || bytes > most || len(aside) > 0 {
				t.Errorf("%d bytes of at most %d; set aside %q: %v", bytes, most, aside, err)
			}
			if got := everything(t, l); !slices.Equal(got, want) {
				t.Errorf("it holds other things: %d and %d", len(got), len(want))
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l = openLog(t, d, orders); l.Recovery().Suspect || !slices.Equal(everything(t, l), want) {
				t.Errorf("opened again: %+v", l.Recovery())
			}
		})
	}
}

// TestADamagedTailIsRepaired: damage or loss of the active segment costs that segment: it is
// sealed, and its records are fetched.
func TestADamagedTailIsRepaired(t *testing.T) {
	for what, flip := range map[string]int64{"in the middle": 1000, "up to the end": 3000, "all of it is lost": 0} {
		t.Run(what, func(t *testing.T) {
			fsys, d, l, other := replicas(t, 1990)
			written := func() uint64 { // how many records the segment has that is being written
				infos := l.SegmentInfos()
				tail := infos[len(infos)-1]
				if !tail.Active {
					return 0
				}
				return tail.End - tail.Base
			}
			// When a segment ends depends on the committer's rounds.
			for n := written(); n < 40 || n > 60; n = written() {
				fill(t, l, other, 1)
			}
			if infos := l.SegmentInfos(); flip == 3000 {
				flip = infos[len(infos)-1].Bytes - 100
			} else { // behind what is damaged a marker says that it was safe
				fill(t, l, other, 5)
			}
			_, end, _ := l.Offsets()
			want := everything(t, other)
			infos := l.SegmentInfos()
			tail := infos[len(infos)-1]
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if flip == 0 {
				remove(t, fsys, d, "orders-0", tail.Base)
			} else if err := fsys.Flip(fileOf(t, l, tail.Base), flip*8); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			if r := l.Recovery(); !r.Suspect || r.Strange || r.EndLost != (flip == 0) {
				t.Fatalf("%+v", r)
			}
			sealed, err := l.SealDamagedTail()
			if err != nil || sealed != (flip > 0) {
				t.Fatalf("sealed: %v, %v", sealed, err)
			}
			lacks := []Span{{tail.Base, end}}
			if got := l.Lacks(); !slices.Equal(got, lacks) {
				t.Fatalf("it lacks %v", got)
			}
			if err := l.Close(); err != nil { // and if it ends here, that is found again
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			if got := l.Lacks(); !slices.Equal(got, lacks) || !l.Recovery().Suspect {
				t.Fatalf("it lacks %v: %+v", got, l.Recovery())
			}
			if bytes, _, err := mend(t, l, other); err != nil || int64(bytes) > tail.Bytes {
				t.Errorf("%d bytes of %d: %v", bytes, tail.Bytes, err)
			}
			if got := everything(t, l); !slices.Equal(got, want) {
				t.Errorf("it holds other things: %d and %d", len(got), len(want))
			}
			if _, err := l.Append(&Append{Epoch: 3, Records: texts(end, 1)}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestALostEndBehindATrimIsNoticed: the last segment is lost, with a record that neither the
// manifest nor the journal knows, because it is the only one behind the log's start. If all records
// of that segment were trimmed, its file is missing for that, and nothing is lost.
func TestALostEndBehindATrimIsNoticed(t *testing.T) {
	for _, lost := range []bool{true, false} {
		fsys, d, l := setup(t, small)
		put(t, l, 10)
		put(t, l, 1) // a round that lists nothing
		_, end, _ := l.Offsets()
		to := end
		if lost {
			to = end - 1
		}
		if start, err := l.Trim(to); err != nil || start != to {
			t.Fatalf("trimmed to %d: %v", start, err)
		}
		after := fsys.Kill()
		_ = d.Close()
		if lost {
			remove(t, after, d, "orders-0", 1)
		}
		if r := openLog(t, openDisk(t, after, "data", small), orders).Recovery(); r.EndLost != lost || !lost && r.Suspect {
			t.Errorf("lost %v: %+v", lost, r)
		}
	}
}

// TestADamagedTailOfOtherEpochsIsRepaired: an epoch begins in the damaged active segment that the
// other replica does not have. The segment is replaced by what that has.
func TestADamagedTailOfOtherEpochsIsRepaired(t *testing.T) {
	fsys, d, l, other := replicas(t, 590)
	for _, each := range []struct {
		l     *Log
		epoch uint64
		n     int
	}{{l, 4, 3}, {other, 5, 40}} {
		_, end, _ := each.l.Offsets()
		if _, err := each.l.Append(&Append{Epoch: each.epoch, Records: texts(end, each.n)}); err != nil {
			t.Fatal(err)
		}
		if err := each.l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	infos := l.SegmentInfos()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Flip(fileOf(t, l, infos[len(infos)-1].Base), 1000*8); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, d, orders)
	if sealed, err := l.SealDamagedTail(); !sealed || err != nil {
		t.Fatalf("sealed: %v, %v", sealed, err)
	}
	if _, _, err := mend(t, l, other); err != nil || !slices.Equal(everything(t, l), everything(t, other)) || !slices.Equal(l.Epochs(), other.Epochs()) {
		t.Errorf("epochs %v and %v: %v", l.Epochs(), other.Epochs(), err)
	}
}

// TestDamageFoundByAReaderIsKnownAfterARestart: damage that a read finds before a scrub is known
// after a restart. A damaged batch is an error for the reader. A damaged run marker destroys no
// record, so the reader gets all of them.
func TestDamageFoundByAReaderIsKnownAfterARestart(t *testing.T) {
	for _, kind := range []frameKind{{"batch", kindBatch}, {"marker", kindMarker}} {
		t.Run(kind.name, func(t *testing.T) {
			fsys, d, l := setup(t, small)
			_, _, other := setup(t, small)
			for range 40 { // rounds, so that each segment has several markers
				put(t, l, 50)
			}
			copyTo(t, l, other)
			if err := other.Flush(); err != nil {
				t.Fatal(err)
			}
			bad := l.SegmentInfos()[3]
			if err := l.Close(); err != nil { // or the reader would find the records in memory
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			pos := laterFrame(t, fsys, fileOf(t, l, bad.Base), kind.kind)
			if err := fsys.Flip(fileOf(t, l, bad.Base), (pos+20)*8); err != nil {
				t.Fatal(err)
			}
			var met *CorruptError
			for c := l.NewCursor(bad.Base); met == nil && c.Next() < bad.End; {
				v, err := c.Read(1 << 10)
				v.Release()
				if err != nil && !errors.As(err, &met) {
					t.Fatal(err)
				}
			}
			if (met != nil) != (kind.kind == kindBatch) || l.Stats().Corrupt == 0 {
				t.Fatalf("met %v; %d reads ran into damage", met, l.Stats().Corrupt)
			}
			if err := l.NoteDamage(); err != nil {
				t.Fatal(err)
			}
			after := fsys.Crash(rand.New(rand.NewPCG(1, 1)))
			l = openLog(t, openDisk(t, after, "data", small), orders)
			if r := l.Recovery(); !r.Suspect || !slices.Equal(l.Lacks(), []Span{{bad.Base, bad.End}}) {
				t.Fatalf("%+v; it lacks %v", r, l.Lacks())
			}
			if _, _, err := mend(t, l, other); err != nil || !slices.Equal(everything(t, l), everything(t, other)) {
				t.Error(err)
			}
		})
	}
}

type frameKind struct {
	name string
	kind byte
}

// laterFrame is where the second frame of a kind stands in a segment's file.
func laterFrame(t *testing.T, fsys *crashfs.FS, path string, kind byte) int64 {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := newFrames(f)
	if err != nil {
		t.Fatal(err)
	}
	for pos, seen := int64(0), 0; ; {
		fr, err := r.next(pos)
		if err != nil {
			t.Fatalf("%s at byte %d: %v", path, pos, err)
		}
		if fr.kind() == kind {
			seen++
		}
		if seen == 2 {
			return pos
		}
		pos += int64(len(fr))
	}
}

// TestRetentionDuringARepair: the log's start moves into the damaged segment, or past it, before or
// during its repair; the other replica has no records below.
func TestRetentionDuringARepair(t *testing.T) {
	for _, begun := range []bool{false, true} {
		fsys, d, l, other := replicas(t, 2000)
		bad := spoil(t, fsys, d, l, 3)
		middle := (bad.Base + bad.End) / 2
		r, err := l.Repair()
		if err != nil {
			t.Fatal(err)
		}
		if begun {
			v, err := other.NewCursor(bad.Base).Read(1)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := v.Next()
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
		for _, each := range []*Log{l, other} {
			if _, err := each.Trim(middle); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := feed(t, r, other); err == nil {
			t.Fatal("where did that come from?")
		}
		r.Abandon()
		if r, err = l.Repair(); err != nil || r.Span() != (Span{middle, bad.End}) {
			t.Fatalf("%+v, %v", r.Span(), err)
		}
		if _, err := feed(t, r, other); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		want := everything(t, other)
		for range 2 {
			if got := everything(t, l); !slices.Equal(got[:len(got)-1], want[:len(want)-1]) || len(l.Lacks()) > 0 {
				t.Fatalf("it holds other things: %d and %d; it lacks %v", len(got), len(want), l.Lacks())
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l = openLog(t, d, orders); l.Recovery().Suspect {
				t.Errorf("%+v", l.Recovery())
			}
		}
		// Past it: nothing is lacking any more, and what had come for it is let go of.
		bad = spoil(t, fsys, d, l, 2)
		if r, err = l.Repair(); err != nil {
			t.Fatal(err)
		}
		if _, err := feed(t, r, other); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(bad.End); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Finish(); !errors.Is(err, errMeanwhile) {
			t.Error(err)
		}
		if r, err = l.Repair(); r != nil || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestARepairRefusesRecordsOfAnotherHistory: records that can't be this log's are refused, and the
// damaged segment stays in its place.
func TestARepairRefusesRecordsOfAnotherHistory(t *testing.T) {
	fsys, d, l, other := replicas(t, 2000)
	bad := spoil(t, fsys, d, l, 3)
	_, _, strange := setup(t, small)
	for range 2000 {
		_, end, _ := strange.Offsets()
		if _, err := strange.Append(&Append{Epoch: 2, Records: texts(end, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := mend(t, l, strange)
	if unfit, is := errors.AsType[*UnfitError](err); !is || !strings.Contains(unfit.Why, "epoch") {
		t.Errorf("of another epoch: %v", err)
	}
	r, err := l.Repair()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{bad.Base + 1, bad.End, bad.Base - 1} {
		v, err := other.NewCursor(at).Read(1)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := v.Next()
		if _, is := errors.AsType[*UnfitError](r.Add(b)); !is {
			t.Errorf("a batch at %d was taken for one at %d", at, bad.Base)
		}
		v.Release()
	}
	// Where a segment is missing, only those around it tell which epochs it can have had.
	gap := l.SegmentInfos()[len(l.SegmentInfos())-3]
	r.Abandon()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	remove(t, fsys, d, "orders-0", gap.Base)
	l = openLog(t, d, orders)
	if r, err = l.Repair(); err != nil || r.Span() != (Span{bad.Base, bad.End}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := feed(t, r, other); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mend(t, l, strange); err == nil || !strings.Contains(err.Error(), "epoch 2 comes after 3") {
		t.Errorf("of another epoch: %v", err)
	}
	if _, _, err := mend(t, l, other); err != nil {
		t.Fatal(err)
	}
	bad = spoil(t, fsys, d, l, 3)
	if r, err = l.Repair(); err != nil {
		t.Fatal(err)
	}
	// The log is cut while it is repaired.
	if _, err := feed(t, r, other); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.TruncateTo(1990, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(); !errors.Is(err, errMeanwhile) {
		t.Error(err)
	}
	names, err := fsys.List(d.logDir("orders-0"))
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, beingRepaired) }) {
		t.Errorf("left: %q, %v", names, err)
	}
	if got := l.Lacks(); !slices.Equal(got, []Span{{bad.Base, bad.End}}) {
		t.Errorf("it lacks %v", got)
	}
	if _, err := fsys.Stat(fileOf(t, l, bad.Base)); err != nil {
		t.Error(err)
	}
}

// TestABatchAcrossTheEndOfARepairedLogIsNotCut: the other replica's history differs within the
// damaged last segment, and one of its batches begins before the end of this log and ends behind
// it. The batch is kept as it is, with its extensions, and this log ends with it, also when it is
// opened again.
func TestABatchAcrossTheEndOfARepairedLogIsNotCut(t *testing.T) {
	fsys, d, l, other := replicas(t, 1990)
	for _, each := range []*Log{l, other} {
		each.Roll()
		if err := each.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, l, other, 5)
	shared := appendUnshared(t, l)
	for _, n := range []int{50, 30} {
		_, at, _ := other.Offsets()
		if _, err := other.Append(&Append{Epoch: 4, Records: texts(at, n), Extensions: []Extension{{Type: 77, Data: []byte("of all its records")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	want := everything(t, other)
	spoil(t, fsys, d, l, len(l.SegmentInfos())-1)
	if got, lacks := l.Lacks(), []Span{{shared - 5, shared + 60}}; !slices.Equal(got, lacks) {
		t.Fatalf("it lacks %v", got)
	}
	if _, _, err := mend(t, l, other); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"repaired", "opened again"} {
		if start, end, durable := l.Offsets(); start != 1 || end != shared+80 || durable != end {
			t.Errorf("%s, it has %d to %d, durable up to %d", when, start, end, durable)
		}
		if got := everything(t, l); !slices.Equal(got, want) {
			t.Errorf("%s, it has other batches: %v, want %v", when, got[len(got)-4:], want[len(want)-4:])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, d, orders)
	}
	if r := l.Recovery(); r.Suspect || len(l.Lacks()) > 0 {
		t.Errorf("after the repair: %+v", r)
	}
	if _, err := l.Append(&Append{Epoch: 5, Records: texts(shared+80, 1)}); err != nil {
		t.Fatal(err)
	}
}
