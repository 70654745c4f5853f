package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// prices appends n records, each a batch of its own, of some subjects in turn.
func prices(t testing.TB, l *Log, n, subjects int) {
	t.Helper()
	a := newAck()
	for range n {
		_, end, _ := l.Offsets()
		r := record(fmt.Sprintf("record %d", end))
		r.Subject = fmt.Appendf(nil, "price.%d", end%uint64(subjects))
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{r}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal(err)
	}
}

// compact seals what there is and compacts all of it.
func compact(t testing.TB, l *Log) Compaction {
	t.Helper()
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	out, err := l.Compact(context.Background(), CompactOptions{Below: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// offsetsOf are the offsets from one on that have a record.
func offsetsOf(t testing.TB, l *Log, from uint64) (offsets []uint64) {
	t.Helper()
	got, err := readSparse(l, from)
	if err != nil {
		t.Fatal(err)
	}
	for o, text := range got {
		if text != fmt.Sprintf("record %d", o) {
			t.Fatalf("offset %d holds %q", o, text)
		}
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	return offsets
}

func span(from, n uint64) (out []uint64) {
	for o := from; o < from+n; o++ {
		out = append(out, o)
	}
	return out
}

func TestOnlyTheNewestOfEachSubjectStays(t *testing.T) {
	fsys, d, l := setup(t, small)
	prices(t, l, 3000, 7)
	before := l.Stats()
	did := compact(t, l)
	if did.Records != 2993 || did.Clean != 3001 || did.Segments != before.Segments || did.Bytes < before.Bytes/2 {
		t.Fatalf("%+v of %+v", did, before)
	}
	for life := range 3 {
		s := l.Stats()
		if s.Segments > 1 || s.Holes != 2993 || l.Holes(1) != 2993 || s.End != 3001 || s.Start != 1 {
			t.Fatalf("life %d: %+v", life, s)
		}
		for _, from := range []uint64{1, 2, 1500, 2994, 2995, 3000, 3001} {
			if got, want := offsetsOf(t, l, from), span(max(from, 2994), 3001-max(from, 2994)); !slices.Equal(got, want) {
				t.Fatalf("life %d: from %d on there are %v", life, from, got)
			}
		}
		if e := l.Epochs(); !slices.Equal(e, []Epoch{{1, 1}}) {
			t.Error(e)
		}
		if found, err := scrubAll(l); err != nil || len(found) > 0 {
			t.Error(found, err)
		}
		if n := onDisk(t, fsys, l); n > 8<<10 {
			t.Errorf("%d bytes are left on the disk", n)
		}
		if again := compact(t, l); again.Segments > 0 || again.Read > 0 {
			t.Errorf("what is clean was compacted again: %+v", again)
		}
		_ = d.Close()
		d = openDisk(t, fsys, "data", small)
		l = openLog(t, d, orders)
		if r := l.Recovery(); r.Suspect {
			t.Fatalf("%+v", r)
		}
	}
	// What comes next takes the place of what stayed.
	prices(t, l, 7, 7)
	compact(t, l)
	if got := offsetsOf(t, l, 1); !slices.Equal(got, span(3001, 7)) {
		t.Errorf("%v", got)
	}
}

func TestCompactionKeeps(t *testing.T) {
	setting := func(t *testing.T) *Log {
		_, _, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1})
		prices(t, l, 1000, 5)
		if err := l.Flush(); err != nil { // and seal
			t.Fatal(err)
		}
		return l
	}
	run := func(t *testing.T, l *Log, o CompactOptions) Compaction {
		t.Helper()
		out, err := l.Compact(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := CompactOptions{Below: math.MaxUint64}
	t.Run("the active segment", func(t *testing.T) {
		l := setting(t)
		run(t, l, all)
		infos := l.SegmentInfos()
		active := infos[len(infos)-1]
		if !active.Active || active.End != 1001 {
			t.Fatalf("%+v", infos)
		}
		mustRead(t, l, active.Base, 1001)
		if got := offsetsOf(t, l, 1); len(got) != int(1001-active.Base)+5 {
			t.Errorf("%d records are left before offset %d", len(got), active.Base)
		}
	})
	t.Run("what stands beyond the high watermark", func(t *testing.T) {
		l := setting(t)
		o := all
		o.Below = 500
		run(t, l, o)
		clean := l.Meta().Clean
		if clean == 0 || clean > 500 {
			t.Fatalf("clean up to %d", clean)
		}
		mustRead(t, l, clean, 1001)
		if got := offsetsOf(t, l, 1); !slices.Equal(got, span(clean-5, 1006-clean)) {
			t.Errorf("%v", got[:10])
		}
	})
	t.Run("what is held", func(t *testing.T) {
		l := setting(t)
		h := l.Hold(1)
		if did := run(t, l, all); did.Segments > 0 {
			t.Fatalf("%+v", did)
		}
		mustRead(t, l, 1, 1001)
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
	t.Run("what isn't worth it", func(t *testing.T) {
		l := setting(t)
		run(t, l, all)
		prices(t, l, 100, 5)
		l.Roll()
		_ = l.Flush()
		o := all
		o.Share, o.Least = 0.5, 1<<20
		if did := run(t, l, o); did.Segments > 0 {
			t.Fatalf("%+v", did)
		}
		if o.Least = 0; run(t, l, o).Segments == 0 {
			t.Error("most of it was new")
		}
	})
	t.Run("a log that is damaged", func(t *testing.T) {
		fsys, _, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1})
		prices(t, l, 1000, 5)
		_ = l.Flush()
		path := l.segments[0].path
		l.disk.handles.forget(l.segments[0])
		flipByte(t, fsys, path, 4000)
		_, err := l.Compact(context.Background(), all)
		if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) || corrupt.File != path {
			t.Fatal(err)
		}
		mustRead(t, l, 500, 1001)
	})
}

func flipByte(t *testing.T, fsys *crashfs.FS, path string, at int64) {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if err := readFull(f, b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	_ = f.Sync()
}

// TestCompactionTakesMoreRoundsForManySubjects: a log with more subjects than the map takes needs
// several rounds, with the same result.
func TestCompactionTakesMoreRoundsForManySubjects(t *testing.T) {
	_, _, l := setup(t, small)
	prices(t, l, 4000, 400)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	did, err := l.Compact(context.Background(), CompactOptions{Below: math.MaxUint64, Subjects: 30})
	if err != nil || did.Clean != 4001 {
		t.Fatal(did, err)
	}
	if got := offsetsOf(t, l, 1); !slices.Equal(got, span(3601, 400)) {
		t.Errorf("%d are left", len(got))
	}
}

// TestATruncationOfSupersedingRecordsEmptiesTheLog: a truncation removes the newer records because
// of which compaction removed older ones. The log is emptied, and has to be copied anew.
func TestATruncationOfSupersedingRecordsEmptiesTheLog(t *testing.T) {
	_, _, l := setup(t, small)
	prices(t, l, 2000, 5)
	compact(t, l)
	prices(t, l, 10, 5)
	if empties, err := l.Empties(2005); err != nil || empties {
		t.Errorf("it is said that the log would be emptied: %v", err)
	}
	if end, _, err := l.TruncateTo(2005, 0); err != nil || end != 2005 || l.Start() != 1 {
		t.Fatal(end, err)
	}
	if got := offsetsOf(t, l, 1); !slices.Equal(got, span(1996, 9)) {
		t.Fatalf("%v", got)
	}
	if m := l.Meta(); m.Clean == 0 {
		t.Errorf("%+v", m)
	}
	// Every second record is the only one of its subject, so there are many sparse batches.
	_, _, l = setup(t, small)
	for i := range 400 {
		r := record(strings.Repeat("x", 1000))
		if i%2 == 0 {
			r.Subject = fmt.Appendf(nil, "only.%d", i)
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{r}}); err != nil {
			t.Fatal(err)
		}
	}
	if did := compact(t, l); did.Records != 199 {
		t.Fatal(did)
	}
	base, err := l.BatchBase(200)
	if err != nil || base == 1 {
		t.Fatal(base, err)
	}
	if empties, err := l.Empties(200); err != nil || !empties {
		t.Errorf("it is not said that the log would be emptied: %v", err)
	}
	end, _, err := l.TruncateTo(200, 0)
	if start, now, _ := l.Offsets(); err != nil || end != base || start != end || now != end {
		t.Fatal(start, now, end, err)
	}
	if m := l.Meta(); m.Clean != 0 {
		t.Errorf("%+v", m)
	}
}

// TestATruncationWithinASupersedingBatchEmptiesTheLog: compaction reached the middle of a batch,
// and removed records because of newer ones in it. A truncation above that point, in the same
// batch, removes the whole batch and so the newer records: the log is emptied.
func TestATruncationWithinASupersedingBatchEmptiesTheLog(t *testing.T) {
	_, _, l := setup(t, Options{})
	for n := range uint64(2) { // two batches, which stay two since they are of different epochs
		records := texts(1+10*n, 10)
		for i := range records {
			records[i].Subject = fmt.Appendf(nil, "price.%d", i)
		}
		if _, err := l.Append(&Append{Epoch: 1 + n, Records: records}); err != nil {
			t.Fatal(err)
		}
	}
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	out := Compaction{}
	for out.Clean < 16 { // five subjects at a time; a shutdown ends it here
		c, todo := l.plan(CompactOptions{Below: math.MaxUint64, Subjects: 5}, false)
		if err := c.run(context.Background(), todo, &out); err != nil {
			t.Fatal(err)
		}
	}
	if out.Clean != 16 || out.Records != 5 {
		t.Fatalf("%+v", out)
	}
	if empties, err := l.Empties(18); err != nil || !empties {
		t.Errorf("it is not said that the log would be emptied: %v", err)
	}
	end, _, err := l.TruncateTo(18, 0)
	if start, now, _ := l.Offsets(); err != nil || end != 11 || start != end || now != end {
		t.Errorf("from %d to %d, truncated to %d: %v", start, now, end, err)
	}
}

// TestATruncationCancelsACompaction: a truncation during a compaction cancels it.
func TestATruncationCancelsACompaction(t *testing.T) {
	_, _, l := setup(t, Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1})
	prices(t, l, 1000, 5)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	c, todo := l.plan(CompactOptions{Below: math.MaxUint64, Subjects: 100}, true)
	if _, _, err := l.TruncateTo(900, 0); err != nil {
		t.Fatal(err)
	}
	var out Compaction
	if err := c.run(context.Background(), todo, &out); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	c, todo = l.plan(CompactOptions{Below: 500, Subjects: 100}, true)
	if err := c.learn(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.TruncateTo(800, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.rewrite(context.Background(), todo, &out); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	mustRead(t, l, 1, 800)
	if _, err := l.disk.fs.Stat(todo[0].path + beingCompacted[len(segmentEnd):]); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the new file is left:", err)
	}
}

// TestAFollowerCopiesSparseBatches: a follower that ends within a sparse batch receives the rest of
// it, and then has the same records.
func TestAFollowerCopiesSparseBatches(t *testing.T) {
	fsys, d, leader := setup(t, small)
	_ = fsys
	prices(t, leader, 1000, 5)
	compact(t, leader)
	prices(t, leader, 500, 50)
	follower, err := d.Open(Identity{Topic: "copy"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	prices(t, follower, 333, 5)
	for {
		_, end, _ := follower.Offsets()
		v, err := leader.NewCursor(end).Read(4 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			_, end, _ := follower.Offsets()
			tail, err := b.From(end)
			if err != nil {
				t.Fatal(err)
			}
			if tail, err = ParseBatch(tail); err != nil {
				t.Fatal(err)
			}
			if err := follower.AppendBatch(tail, Memory, nil); err != nil {
				t.Fatal(err)
			}
		}
		v.Release()
	}
	want := append(span(1, 333), span(996, 505)...)
	for life := range 2 {
		if got := offsetsOf(t, follower, 1); !slices.Equal(got, want) {
			t.Fatalf("life %d: the copy has %v", life, got)
		}
		if n := follower.Holes(1); n != 1500-uint64(len(want)) {
			t.Errorf("life %d: %d holes", life, n)
		}
		if err := follower.Close(); err != nil {
			t.Fatal(err)
		}
		if follower, err = d.Open(Identity{Topic: "copy"}, 1, 1, nil); err != nil || follower.Recovery().Suspect {
			t.Fatal(err, follower.Recovery())
		}
	}
	// It may not keep what it can't know to be all there is.
	if _, _, err := follower.TruncateTo(900, 0); err != nil || follower.Stats().Holes > 0 {
		t.Error(err, follower.Stats())
	}
}

func TestSparseBatchesAreRefusedByName(t *testing.T) {
	var tn thinner
	b := appendBatch(make([]byte, 0, 1<<10), 3, 10, texts(10, 8), nil)
	if err := tn.add(b, 10, func(r *Record) bool { return r.Offset == 12 || r.Offset == 15 }); err != nil {
		t.Fatal(err)
	}
	sparse := slices.Clone(tn.take())
	if got, err := ParseBatch(sparse); err != nil || got.Base() != 10 || got.End() != 18 || got.Count() != 2 || got.Epoch() != 3 || got[9] != sparseVersion {
		t.Fatal(got, err)
	}
	// As a broker that doesn't know the version would: by its number, and not as damage.
	newer := slices.Clone(sparse)
	newer[9]++
	seal(newer)
	if _, err := ParseBatch(newer); err == nil || !strings.Contains(err.Error(), "written by a newer version") {
		t.Error(err)
	}
	for name, spoil := range map[string]func(b Batch){
		"the version alone":       func(b Batch) { le.PutUint16(b[10:], 0) },
		"the flag alone":          func(b Batch) { b[9] = batchVersion },
		"packed as well":          func(b Batch) { le.PutUint16(b[10:], flagSparse|flagPacked) },
		"more than it spans":      func(b Batch) { le.PutUint32(b[52:], 9) },
		"one too many":            func(b Batch) { le.PutUint32(b[52:], 3) },
		"one too few":             func(b Batch) { le.PutUint32(b[52:], 1) },
		"a record beyond its end": func(b Batch) { le.PutUint32(b[12:], 5) },
	} {
		bad := slices.Clone(sparse)
		spoil(bad)
		seal(bad)
		if _, err := ParseBatch(bad); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestCompactionAgainstAModel: after random appends, compactions, truncations, trims and restarts,
// every readable record was appended, the newest record of each subject exists, and below the clean
// offset no other one does.
func TestCompactionAgainstAModel(t *testing.T) {
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
		type entry struct{ subject, text, stamp string }
		stamp := func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", `{"a":1}`, `{"b":2}`, fmt.Sprintf(`{"n":%d}`, time.Now().UnixNano())}).Draw(t, "stamp")
		}
		var stamps stamping.Writer
		stamped := func() []Extension {
			if data := stamps.Data(); len(data) > 0 {
				return []Extension{{Type: stamping.ExtensionType, Data: data}}
			}
			return nil
		}
		var all = []entry{{}} // by offset
		start, high, epoch := uint64(1), uint64(1), uint64(1)
		ends := []uint64{1} // of batches
		check := func() {
			got, err := readSparse(l, start)
			if err != nil {
				t.Fatal(err)
			}
			for o, stamp := range stampsFrom(t, l, start) {
				if stamp != all[o].stamp {
					t.Fatalf("the stamp of offset %d is %q, and was %q", o, stamp, all[o].stamp)
				}
			}
			newer, clean := map[string]bool{}, l.Meta().Clean
			for o := uint64(len(all)) - 1; o >= start; o-- {
				text, there := got[o]
				switch {
				case there && text != all[o].text:
					t.Fatalf("offset %d holds %q", o, text)
				case !there && !newer[all[o].subject]:
					t.Fatalf("the newest of %s, at %d, is gone", all[o].subject, o)

				}
				newer[all[o].subject] = true
			}
			below := map[string]bool{}
			for o := min(clean, uint64(len(all))) - 1; clean > 0 && o >= start && o > 0; o-- {
				if _, there := got[o]; there && below[all[o].subject] {
					t.Fatalf("offset %d is there, and a newer one of %s below %d", o, all[o].subject, clean)
				}
				below[all[o].subject] = true
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var records []Record
				stamps.Begin(uint64(len(all)))
				for range rapid.IntRange(1, 30).Draw(t, "records") {
					e := entry{fmt.Sprint("s", rapid.IntRange(0, 12).Draw(t, "subject")), strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "size")) + fmt.Sprint(len(all)), stamp(t)}
					stamps.Add(uint64(len(all)), e.stamp)
					all = append(all, e)
					records = append(records, Record{Time: int64(len(all)), Subject: []byte(e.subject), Data: []byte(e.text)})
				}
				if _, err := l.Append(&Append{Epoch: epoch, Records: records, Extensions: stamped()}); err != nil {
					t.Fatal(err)
				}
				ends = append(ends, uint64(len(all)))
			},
			"append packed": func(t *rapid.T) {
				p := Packed{Subject: []byte("s3"), Time: int64(len(all)), Count: rapid.IntRange(1, 20).Draw(t, "records")}
				one := stamp(t)
				stamps.Begin(uint64(len(all)))
				stamps.AddRun(uint64(len(all)), uint64(len(all)+p.Count), one)
				for range p.Count {
					text := fmt.Sprint("packed ", len(all))
					all = append(all, entry{"s3", text, one})
					p.Records = append(append(p.Records, byte(len(text))), text...)
				}
				if _, err := l.Append(&Append{Epoch: epoch, Packed: p, Extensions: stamped()}); err != nil {
					t.Fatal(err)
				}
				ends = append(ends, uint64(len(all)))
			},
			"agree": func(t *rapid.T) {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
				high = max(high, rapid.SampledFrom(ends).Draw(t, "high"))
			},
			"roll": func(*rapid.T) { l.Roll() },
			"compact": func(t *rapid.T) {
				_ = l.Flush()
				if _, err := l.Compact(context.Background(), CompactOptions{Below: high, Subjects: rapid.IntRange(0, 15).Draw(t, "remembered")}); err != nil {
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
				if err != nil {
					t.Fatal(err)
				}
				if to < high && to > start {
					t.Fatalf("it was cut to %d, and %d is the high watermark", to, high)
				}
				if to <= start { // nothing was left
					start = to
				}
				ends = slices.DeleteFunc(ends, func(end uint64) bool { return end > to })
				all, high = all[:to], min(high, to)
				epoch++
			},
			"trim": func(t *rapid.T) {
				var err error
				if start, err = l.Trim(rapid.Uint64Range(start, high).Draw(t, "start")); err != nil {
					t.Fatal(err)
				}
			},
			"open again": func(t *rapid.T) {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				d, l = open()
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// TestTheNumberOfRecordsIsKnownAfterATrim: the number of records is known wherever the log begins:
// within a segment, after a restart, and while a segment is rewritten.
func TestTheNumberOfRecordsIsKnownAfterATrim(t *testing.T) {
	fsys, d, l := setup(t, Options{SegmentSmallest: 16 << 10, SegmentLargest: 16 << 10, TailBytes: 1})
	a := newAck()
	const n = 900
	for i := 1; i <= n; i++ { // every third has a subject of its own
		r := record(fmt.Sprintf("record %d", i))
		if r.Subject = []byte("shared"); i%3 == 0 {
			r.Subject = fmt.Append(nil, "own.", i)
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{r}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal(err)
	}
	check := func(when string, from uint64) {
		t.Helper()
		_, end, _ := l.Offsets()
		want := end - from - uint64(len(offsetsOf(t, l, from)))
		if bound := l.Holes(from); bound < want {
			t.Errorf("%s: from %d on there are %d holes, and before they are counted %d at most", when, from, want, bound)
		}
		l.CountHoles(from)
		if got := l.Holes(from); got != want {
			t.Errorf("%s: from %d on there are %d holes, and %d are counted", when, from, want, got)
		}
	}
	check("nothing is compacted", 1)
	if did := compact(t, l); did.Records < n/2 || l.Stats().Segments < 2 {
		t.Fatalf("%+v in %d segments", did, l.Stats().Segments)
	}
	for _, from := range []uint64{1, 2, 3, 100, 101, 350, 349, 899} {
		check("compacted", from)
	}
	for _, to := range []uint64{50, 51, 160, 161, 400} {
		if start, err := l.Trim(to); err != nil || start != to {
			t.Fatal(start, err)
		}
		check("trimmed", to)
	}
	if _, err := l.Compress(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	check("compressed", 400)
	_ = d.Close()
	d = openDisk(t, fsys, "data", small)
	l = openLog(t, d, orders)
	check("in another life", 400)
	check("in another life", 402)
	prices(t, l, 20, 1)
	compact(t, l)
	check("compacted again", 400)
}
