package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/removal"
)

// upTo is a high watermark.
func upTo(high uint64) func() uint64 { return func() uint64 { return high } }

// removedOf returns a set with some offsets.
func removedOf(offsets ...uint64) *removal.Set {
	set := &removal.Set{}
	for _, o := range offsets {
		set.Add(o, o+1)
	}
	return set
}

// expungeAll seals what there is, and expunges the removed records of all of it.
func expungeAll(t testing.TB, l *Log, removed Removed) Rewritten {
	t.Helper()
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	out, err := l.Expunge(context.Background(), ExpungeOptions{Removed: removed, High: upTo(math.MaxUint64)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// without returns the offsets from one up to and without another that are not removed.
func without(removed *removal.Set, from, next uint64) (left []uint64) {
	for o := from; o < next; o++ {
		if !removed.Has(o) {
			left = append(left, o)
		}
	}
	return left
}

// TestRemovedRecordsLeaveTheFiles: removed records go, the others stay with their offsets, in this
// process and in the next ones, and what is done is not done again.
func TestRemovedRecordsLeaveTheFiles(t *testing.T) {
	for _, largest := range []int64{8 << 10, 64 << 10} {
		opts := Options{SegmentSmallest: 8 << 10, SegmentLargest: largest, TailBytes: 1}
		fsys, d, l := setup(t, opts)
		prices(t, l, 3000, 7)
		rng := rand.New(rand.NewPCG(1, uint64(largest)))
		removed := &removal.Set{}
		for o := uint64(1); o < 3001; o++ {
			if rng.IntN(3) > 0 {
				removed.Add(o, o+1)
			}
		}
		before := onDisk(t, fsys, l)
		did := expungeAll(t, l, removed)
		if did.Records != removed.Len() || did.Bytes < int64(did.Records)*20 {
			t.Fatalf("%+v of %d removed records", did, removed.Len())
		}
		if after := onDisk(t, fsys, l); after > before/2 {
			t.Errorf("%d of %d bytes are left on the disk", after, before)
		}
		for life := range 3 {
			if got := offsetsOf(t, l, 1); !slices.Equal(got, without(removed, 1, 3001)) {
				t.Fatalf("life %d: %d records are left", life, len(got))
			}
			if s := l.Stats(); s.Holes != removed.Len() || s.Start != 1 || s.End != 3001 {
				t.Fatalf("life %d: %+v", life, s)
			}
			if found, err := scrubAll(l); err != nil || len(found) > 0 {
				t.Error(found, err)
			}
			if again := expungeAll(t, l, removed); again.Segments > 0 || life == 0 && again.Read > 0 {
				t.Errorf("life %d: expunged again: %+v", life, again)
			}
			_ = d.Close()
			d = openDisk(t, fsys, "data", opts)
			l = openLog(t, d, orders)
			if r := l.Recovery(); r.Suspect {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// TestASegmentWithNothingLeftIsAnEmptyBatch: segments all of whose records are removed become one
// batch without records, which says that nothing was lost, and keeps their epochs.
func TestASegmentWithNothingLeftIsAnEmptyBatch(t *testing.T) {
	fsys, _, l := setup(t, small)
	for epoch := uint64(1); epoch <= 3; epoch++ {
		for n := uint64(1); n <= 300; n++ {
			if _, err := l.Append(&Append{Epoch: epoch, Records: texts((epoch-1)*300+n, 1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	epochs := l.Epochs()
	removed := &removal.Set{}
	removed.Add(1, 901)
	if did := expungeAll(t, l, removed); did.Records != 900 || l.Stats().Segments != 1 {
		t.Fatalf("%+v in %d segments", did, l.Stats().Segments)
	}
	v, err := l.NewCursor(1).Read(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	batches := 0
	for b, ok := v.Next(); ok; b, ok = v.Next() {
		if batches++; b.Lost() || b.Count() > 0 || b.judged() < b.End() {
			t.Errorf("a batch from %d to %d with %d records, lost %v, judged up to %d", b.Base(), b.End(), b.Count(), b.Lost(), b.judged())
		}
	}
	v.Release()
	if batches != 3 || !slices.Equal(l.Epochs(), epochs) || onDisk(t, fsys, l) > 4<<10 {
		t.Errorf("%d batches, epochs %v, %d bytes", batches, l.Epochs(), onDisk(t, fsys, l))
	}
}

func TestExpungeKeeps(t *testing.T) {
	opts := Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1}
	setting := func(t *testing.T) *Log {
		_, _, l := setup(t, opts)
		prices(t, l, 1000, 5)
		if err := l.Flush(); err != nil { // and seal
			t.Fatal(err)
		}
		return l
	}
	even := &removal.Set{}
	for o := uint64(2); o < 1001; o += 2 {
		even.Add(o, o+1)
	}
	all := ExpungeOptions{Removed: even, High: upTo(math.MaxUint64)}
	run := func(t *testing.T, l *Log, o ExpungeOptions) Rewritten {
		t.Helper()
		out, err := l.Expunge(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Run("the active segment", func(t *testing.T) {
		l := setting(t)
		run(t, l, all)
		active := l.SegmentInfos()[len(l.SegmentInfos())-1]
		mustRead(t, l, active.Base, 1001)
		if got := offsetsOf(t, l, 1)[:3]; !slices.Equal(got, []uint64{1, 3, 5}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("what stands beyond the high watermark", func(t *testing.T) {
		l := setting(t)
		o := all
		o.High = upTo(500)
		run(t, l, o)
		_, err := readAll(l, 1)
		got := offsetsOf(t, l, 1)
		first := slices.IndexFunc(got, func(o uint64) bool { return o%2 == 0 })
		if err == nil || got[first] > 500 || got[first] < 300 {
			t.Errorf("%v, and the first removed record that is left is at %d", err, got[first])
		}
	})
	t.Run("what is held", func(t *testing.T) {
		l := setting(t)
		h := l.Hold(1)
		if did := run(t, l, all); did.Segments > 0 {
			t.Fatalf("%+v", did)
		}
		h.Release()
		if did := run(t, l, all); did.Segments == 0 {
			t.Fatalf("%+v", did)
		}
	})
	t.Run("what is young", func(t *testing.T) {
		l := setting(t)
		o := all
		o.Before = time.Unix(0, record("").Time) // as old as all of them
		if did := run(t, l, o); did.Segments > 0 {
			t.Fatalf("%+v", did)
		}
		o.Before = o.Before.Add(1)
		if did := run(t, l, o); did.Segments == 0 {
			t.Fatalf("%+v", did)
		}
	})
	t.Run("a log without removed records", func(t *testing.T) {
		l := setting(t)
		o := all
		o.Removed = &removal.Set{}
		if did := run(t, l, o); did != (Rewritten{}) {
			t.Fatalf("%+v", did)
		}
	})
	t.Run("a log that is damaged", func(t *testing.T) {
		fsys, _, l := setup(t, opts)
		prices(t, l, 1000, 5)
		_ = l.Flush()
		first := l.segments[0]
		l.disk.handles.forget(first)
		flipByte(t, fsys, first.path, 4000)
		_, err := l.Expunge(context.Background(), all)
		if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) || corrupt.File != first.path {
			t.Fatal(err)
		}
		// It is to be repaired, and the others are not kept from being rewritten.
		if did := run(t, l, all); did.Segments == 0 || !l.holdsSegment(first) {
			t.Errorf("%+v", did)
		}
	})
}

// TestExpungeIsWorthIt: a segment is rewritten when a quarter of its bytes would go, of few large
// records as of many small ones, and again only when as much of the rest would.
func TestExpungeIsWorthIt(t *testing.T) {
	build := func(t *testing.T) *Log {
		_, _, l := setup(t, Options{TailBytes: 1})
		for i := range uint64(1000) {
			r := record(fmt.Sprintf("record %d", i+1))
			if i%250 == 100 {
				r.Data = make([]byte, 64<<10)
			}
			if _, err := l.Append(&Append{Epoch: 1, Records: []Record{r}}); err != nil {
				t.Fatal(err)
			}
		}
		return l
	}
	small := removedOf(without(removedOf(101, 351, 601, 851), 1, 500)...)
	if did := expungeAll(t, build(t), small); did.Segments > 0 {
		t.Errorf("half of the records, which are a tenth of the bytes: %+v", did)
	}
	l, removed := build(t), removedOf(101, 351)
	if did := expungeAll(t, l, removed); did.Records != 2 {
		t.Errorf("few records, which are a third of the bytes: %+v", did)
	}
	for _, more := range []struct {
		from, next uint64
		read, goes bool
	}{
		{1, 2, true, false},      // too small, and a large one is near
		{1, 200, true, false},    // too small
		{1, 210, false, false},   // hardly more
		{601, 602, false, false}, // a large one, and not looked for
		{400, 620, true, true},
	} {
		removed.Add(more.from, more.next)
		if did := expungeAll(t, l, removed); did.Segments > 0 != more.goes || did.Read > 0 != more.read {
			t.Errorf("from %d up to %d were removed, too: %+v", more.from, more.next, did)
		}
	}
}

// TestATruncationBelowTheHighWatermarkUndoesAnExpunge: a truncation below the high watermark of an
// Expunge may take the removals away because of which records were removed: the log is emptied. One
// above it changes nothing else.
func TestATruncationBelowTheHighWatermarkUndoesAnExpunge(t *testing.T) {
	for _, to := range []uint64{1200, 1500, 1600} {
		_, _, l := setup(t, small)
		prices(t, l, 1000, 5)
		l.Roll()
		prices(t, l, 1000, 5)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		removed := removedOf(span(1, 700)...)
		high := uint64(1400)
		o := ExpungeOptions{Removed: removed, High: func() uint64 { defer func() { high = 1500 }(); return high }}
		if did, err := l.Expunge(t.Context(), o); err != nil || did.Records == 0 {
			t.Fatal(did, err)
		}
		left := offsetsOf(t, l, 1)
		end, _, err := l.TruncateTo(to, 0)
		if err != nil {
			t.Fatal(err)
		}
		if start := l.Start(); to < 1500 {
			if start != end {
				t.Errorf("truncated to %d, the log goes from %d to %d", to, start, end)
			}
			continue
		}
		if got := offsetsOf(t, l, 1); end != to || !slices.Equal(got, left[:slices.Index(left, to)]) {
			t.Errorf("truncated to %d, the log ends at %d", to, end)
		}
	}
}

// TestATruncationCancelsAnExpunge: a log that is truncated while it is rewritten stays as the
// truncation has left it.
func TestATruncationCancelsAnExpunge(t *testing.T) {
	_, _, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1})
	prices(t, l, 1000, 5)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	e, todo := l.expunging(&ExpungeOptions{Removed: removedOf(span(1, 500)...), High: upTo(501)})
	if _, _, err := l.TruncateTo(800, 0); err != nil {
		t.Fatal(err)
	}
	if err := e.run(t.Context(), todo, &Rewritten{}); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	mustRead(t, l, 1, 800)
}

// halfRemoved removes about half of the records of two replicas, in runs.
func halfRemoved(seed, end uint64) *removal.Set {
	rng, removed := rand.New(rand.NewPCG(seed, 9)), &removal.Set{}
	for o := uint64(1); o < end; {
		n := 1 + rng.Uint64N(60)
		if rng.IntN(2) == 0 {
			removed.Add(o, min(o+n, end))
		}
		o += n
	}
	return removed
}

// TestAFollowerCopiesAnExpungedLog: a follower that ends anywhere in a rewritten log gets the rest,
// and has the same removed records in its file as before, which its own Expunge removes.
func TestAFollowerCopiesAnExpungedLog(t *testing.T) {
	for seed := range uint64(10) {
		_, _, leader := setup(t, small)
		_, _, follower := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 32 << 10, TailBytes: 1})
		prices(t, leader, 1500, 5)
		prices(t, follower, int(seed*150), 5)
		removed := halfRemoved(seed, 1501)
		expungeAll(t, leader, removed)
		_, end, _ := follower.Offsets()
		for c := leader.NewCursor(end); ; {
			v, err := c.Read(4 << 10)
			if err != nil {
				t.Fatal(err)
			}
			if v.End == v.From {
				break
			}
			for b, ok := v.Next(); ok; b, ok = v.Next() {
				_, end, _ := follower.Offsets()
				tail, err := b.From(end)
				if err == nil {
					tail, err = ParseBatch(tail)
				}
				if err == nil {
					err = follower.AppendBatch(tail, Memory, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			v.Release()
		}
		want := append(span(1, end-1), offsetsOf(t, leader, end)...)
		if got := offsetsOf(t, follower, 1); !slices.Equal(got, want) {
			t.Fatalf("seed %d: it copied %d records", seed, len(got))
		}
		expungeAll(t, follower, removed)
		got := offsetsOf(t, follower, 1)
		if slices.ContainsFunc(without(removed, 1, 1501), func(o uint64) bool { return !slices.Contains(got, o) }) || len(got) > len(want) || seed > 3 && len(got) == len(want) {
			t.Errorf("seed %d: %d of %d records are left", seed, len(got), len(want))
		}
	}
}

// TestARepairFromAReplicaThatWasRewritten: a damaged segment is repaired from a replica that has
// removed more records than this one, or fewer. What comes back goes with the next Expunge, and
// nothing else does.
func TestARepairFromAReplicaThatWasRewritten(t *testing.T) {
	for seed := range uint64(20) {
		fsys, d, l, other := replicas(t, 1500)
		removed := halfRemoved(seed, 1400)
		for i, each := range []*Log{l, other} {
			if seed%3 == uint64(i) { // the third time both
				continue
			}
			if did, err := each.Expunge(t.Context(), ExpungeOptions{Removed: removed, High: upTo(1501)}); err != nil || did.Records == 0 {
				t.Fatal(did, err)
			}
		}
		spoil(t, fsys, d, l, int(seed)%(len(l.SegmentInfos())-1))
		if _, _, err := mend(t, l, other); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		check := func(when string, gone bool) {
			t.Helper()
			got := offsetsOf(t, l, 1)
			for _, o := range without(removed, 1, 1501) {
				if !slices.Contains(got, o) {
					t.Fatalf("seed %d, %s: offset %d is gone", seed, when, o)
				}
			}
			if gone && len(got) > len(without(removed, 1, 1501))*5/3+200 {
				t.Errorf("seed %d, %s: %d records are left", seed, when, len(got))
			}
		}
		check("repaired", false)
		if _, err := l.Expunge(t.Context(), ExpungeOptions{Removed: removed, High: upTo(1501)}); err != nil {
			t.Fatal(err)
		}
		check("expunged", true)
	}
}

// TestLostRecordsStayLost: batches that replace lost records are no removed records after their
// segment was rewritten, and batches without removed records are not lost.
func TestLostRecordsStayLost(t *testing.T) {
	fsys, d, l, _ := replicas(t, 1500)
	bad := spoil(t, fsys, d, l, 1)
	for at := int64(1100); ; at += 100 { // the first bit may be one of a marker
		if lost, err := l.Unreadable(); err != nil {
			t.Fatal(err)
		} else if len(lost) > 0 {
			break
		}
		if err := fsys.Flip(fileOf(t, l, bad.Base), at*8); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Scrub(t.Context(), ScrubOptions{From: bad.Base}); err != nil {
			t.Fatal(err)
		}
	}
	r, gone, err := l.GiveUp(bad.Base)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if r, more, err := l.GiveUp(bad.Base); r != nil || err != nil {
		t.Fatalf("after %v, %v is to be given up: %v", gone, more, err)
	}
	removed := &removal.Set{}
	removed.Add(1, 1400)
	expungeAll(t, l, removed)
	for c := l.NewCursor(1); c.Next() < 1501; {
		v, err := c.Read(16 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			within := slices.ContainsFunc(gone, func(lost Span) bool { return b.Base() >= lost.From && b.End() <= lost.Next })
			if b.Lost() != within {
				t.Errorf("the batch from %d to %d is lost: %v; %v was", b.Base(), b.End(), b.Lost(), gone)
			}
		}
		v.Release()
	}
}

// TestRemovalsStayInRewrittenBatches: batches keep the extensions that name removed records,
// through both rewrites and where a batch is divided, until another log has them.
func TestRemovalsStayInRewrittenBatches(t *testing.T) {
	items := func(l *Log) (out []string) {
		for c := l.NewFileCursor(1); c.Next() < 401; {
			v, err := c.Read(16 << 10)
			if err != nil {
				t.Fatal(err)
			}
			for b, ok := v.Next(); ok; b, ok = v.Next() {
				for it := b.Extensions(); ; {
					e, ok := it.Next()
					if !ok {
						break
					}
					if e.Type == ExtensionRemovals {
						out = append(out, string(e.Data))
					}
				}
			}
			v.Release()
		}
		return out
	}
	var all []string
	build := func() *Log {
		_, _, l := setup(t, Options{TailBytes: 1})
		all = nil
		for o := range uint64(400) {
			a := &Append{Epoch: 1, Records: texts(o+1, 1)}
			if o%2 == 1 {
				item := removal.AppendItem(nil, removal.Span{Epoch: 1, From: o, Next: o + 1})
				all = append(all, string(item))
				a.Extensions = []Extension{{Type: 2, Data: []byte("numbers")}, {Type: ExtensionRemovals, Data: item}}
			}
			if _, err := l.Append(a); err != nil {
				t.Fatal(err)
			}
		}
		l.Roll()
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		return l
	}
	odd := removedOf()
	for o := uint64(1); o < 400; o += 2 {
		odd.Add(o, o+1)
	}
	for name, rewrite := range map[string]func(l *Log, taken uint64) error{
		"Expunge": func(l *Log, taken uint64) error {
			_, err := l.Expunge(t.Context(), ExpungeOptions{Removed: odd, High: upTo(401), Taken: taken})
			return err
		},
		"Compact": func(l *Log, taken uint64) error {
			_, err := l.Compact(t.Context(), CompactOptions{Below: 401, Taken: taken})
			return err
		},
	} {
		l := build()
		if err := rewrite(l, 0); err != nil {
			t.Fatal(err)
		}
		if got := items(l); !slices.Equal(got, all) {
			t.Errorf("%s: %d of %d removals are left", name, len(got), len(all))
		}
		v, err := l.NewFileCursor(200).Read(1) // the memory of the log's end has the batches of before
		if err != nil {
			t.Fatal(err)
		}
		b, _ := v.Next()
		for half, cut := range []func(uint64) (Batch, error){b.From, b.Until} {
			part, err := cut(b.Base() + b.Span()/2)
			if err == nil {
				part, err = ParseBatch(part)
			}
			if err != nil || len(appendRemovals(nil, part)) != len(appendRemovals(nil, b)) {
				t.Errorf("%s: half %d of a batch has %d of %d bytes of removals: %v", name, half, len(appendRemovals(nil, part)), len(appendRemovals(nil, b)), err)
			}
		}
		v.Release()
		l = build()
		if err := rewrite(l, 202); err != nil {
			t.Fatal(err)
		}
		if got := items(l); !slices.Equal(got, all[100:]) {
			t.Errorf("%s: %d removals are left, and another log has 100 of %d", name, len(got), len(all))
		}
	}
}

// TestWhatCarriesARemovalIsSyncedFirst: a file without removed records replaces another one only
// when all records below the high watermark are synced, and when other logs were. So after a power
// cut a log doesn't lack records without what removed them.
func TestWhatCarriesARemovalIsSyncedFirst(t *testing.T) {
	for seed := range uint64(20) {
		fsys, d, l := setup(t, small)
		prices(t, l, 300, 5)
		l.Roll()
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		for o := uint64(301); o < 401; o++ {
			if _, err := l.Append(&Append{Epoch: 1, Records: texts(o, 1), Durability: Memory}); err != nil {
				t.Fatal(err)
			}
		}
		o := ExpungeOptions{Removed: removedOf(span(1, 200)...), High: upTo(401), Sync: func() error { return errEnough }}
		if did, err := l.Expunge(t.Context(), o); !errors.Is(err, errEnough) || did.Segments > 0 {
			t.Fatalf("another log could not be synced: %+v, %v", did, err)
		}
		o.Sync = nil
		if did, err := l.Expunge(t.Context(), o); err != nil || did.Records == 0 {
			t.Fatal(did, err)
		}
		_, _, l = cutPower(t, fsys, d, seed, 0, small)
		if _, end, _ := l.Offsets(); end < 401 {
			t.Fatalf("seed %d: the log ends at %d, and a batch up to 401 may have removed records", seed, end)
		}
	}
}

// TestACrashAtEachStepOfAnExpunge: the power is cut at every step: each segment is as it was or as
// it is to be, and the next Expunge does the rest.
func TestACrashAtEachStepOfAnExpunge(t *testing.T) {
	tiny := Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10, TailBytes: 1}
	removed, some := halfRemoved(3, 200), 0
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(3) {
			fsys, d, l := setup(t, tiny)
			prices(t, l, 300, 5)
			l.Roll()
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			o := ExpungeOptions{Removed: removed, High: upTo(301)}
			fsys.StopAfter(steps)
			did, err := l.Expunge(t.Context(), o)
			over = err == nil
			if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("step %d: %v", steps, err)
			}
			after, d, l := cutPower(t, fsys, d, seed, steps, tiny)
			left := without(removed, 1, 301)
			got := offsetsOf(t, l, 1)
			if r := l.Recovery(); r.Suspect || len(l.Lacks()) > 0 || uint64(len(got)) > 300-did.Records {
				t.Fatalf("step %d, seed %d: %d records are left after %+v: %+v", steps, seed, len(got), did, r)
			}
			if len(got) > len(left) && len(got) < 300 {
				some++
			}
			if _, err := l.Expunge(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if now := offsetsOf(t, l, 1); slices.ContainsFunc(left, func(o uint64) bool { return !slices.Contains(now, o) || !slices.Contains(got, o) }) {
				t.Fatalf("step %d, seed %d: a record is gone that was not removed", steps, seed)
			}
			names, err := after.List(d.logDir("orders-0"))
			if err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, beingExpunged) }) {
				t.Fatalf("left: %q, %v", names, err)
			}
		}
	}
	if some == 0 {
		t.Error("no crash left a part of the segments rewritten")
	}
}

// TestExpungeAgainstAModel: after random appends, removals, rewrites, truncations, trims and
// restarts, each record is there that was appended and not removed or superseded, and a log that
// was truncated above the high watermark keeps what is below it.
func TestExpungeAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := Options{SegmentSmallest: 2 << 10, SegmentLargest: int64(2<<10) << rapid.IntRange(0, 3).Draw(t, "largest"), TailBytes: 1}
		fsys := crashfs.New()
		open := func() (*Disk, *Log) {
			d, err := OpenDisk(fsys, "data", opts)
			if err != nil {
				t.Fatal(err)
			}
			l, err := d.Open(orders, 1, 1, nil)
			if err != nil || l.Recovery().Suspect {
				t.Fatal(err, l.Recovery())
			}
			return d, l
		}
		d, l := open()
		defer func() { _ = d.Close() }()
		all, start, high, epoch := []string{""}, uint64(1), uint64(1), uint64(1)
		removed := &removal.Set{}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var records []Record
				for range rapid.IntRange(1, 30).Draw(t, "records") {
					text := strings.Repeat("x", rapid.SampledFrom([]int{0, 10, 300}).Draw(t, "size")) + fmt.Sprint(len(all))
					all = append(all, text)
					records = append(records, Record{Time: int64(len(all)), Subject: []byte("s"), Data: []byte(text)})
				}
				if _, err := l.Append(&Append{Epoch: epoch, Records: records}); err != nil {
					t.Fatal(err)
				}
			},
			"agree": func(t *rapid.T) {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				high = uint64(len(all))
			},
			"remove": func(t *rapid.T) {
				from := rapid.Uint64Range(start, high).Draw(t, "from")
				removed.Add(from, min(high, from+rapid.Uint64Range(1, 60).Draw(t, "offsets")))
			},
			"roll": func(*rapid.T) { l.Roll() },
			"expunge": func(t *rapid.T) {
				_ = l.Flush()
				if _, err := l.Expunge(context.Background(), ExpungeOptions{Removed: removed, High: upTo(high)}); err != nil {
					t.Fatal(err)
				}
			},
			"compress": func(t *rapid.T) {
				if _, err := l.Compress(context.Background(), 1); err != nil {
					t.Fatal(err)
				}
			},
			"another leader": func(t *rapid.T) {
				to, _, err := l.TruncateTo(rapid.Uint64Range(high, uint64(len(all))).Draw(t, "cut"), 0)
				if err != nil || to < high && to > start {
					t.Fatalf("it was cut to %d, and %d is the high watermark: %v", to, high, err)
				}
				start = max(start, min(l.Start(), to))
				all, high = all[:to], min(high, to)
				epoch++
			},
			"trim": func(t *rapid.T) {
				var err error
				if start, err = l.Trim(rapid.Uint64Range(start, high).Draw(t, "start")); err != nil {
					t.Fatal(err)
				}
				removed.Trim(start)
			},
			"open again": func(t *rapid.T) {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				d, l = open()
			},
			"": func(t *rapid.T) {
				got, err := readSparse(l, start)
				if err != nil {
					t.Fatal(err)
				}
				for o := start; o < uint64(len(all)); o++ {
					if text, there := got[o]; there && text != all[o] || !there && !removed.Has(o) {
						t.Fatalf("offset %d holds %q, and is removed: %v", o, text, removed.Has(o))
					}
				}
			},
		})
	})
}
