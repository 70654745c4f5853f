package subjectindex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// The index answers as a walk over all records does, whatever happens to the log.
func TestIndexAnswersAsTheRecordsDo(t *testing.T) {
	seeds, steps := 24, 150
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for range steps {
				w.step()
				w.check(false)
			}
			w.work(true)
			for range 20 {
				w.check(true)
			}
			if err := w.index.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Removed records are in no answer, whatever happens to the log besides.
func TestRemovedRecordsAreInNoAnswer(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 5000+seed)
			w.trims = seed%2 == 0
			for range 150 {
				w.step()
				w.check(false)
				for w.rng.IntN(3) == 0 {
					w.remove()
				}
				w.check(false)
			}
			w.work(true)
			for range 20 {
				w.check(true)
				w.remove()
			}
			w.log.removed.Add(w.log.start, w.log.high)
			w.check(true)
			if err := w.index.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Damaged files make answers missing until they are written again, and never wrong.
func TestDamagedFilesAreFoundAndWrittenAgain(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1000+seed)
			for range 80 {
				w.step()
				if w.rng.IntN(3) == 0 {
					w.flip()
					w.cacheless()
				}
				w.check(false)
			}
			w.work(true)
			for range 5 { // what isn't read yet is found
				w.check(false)
				w.work(true)
			}
		})
	}
}

// cacheless forgets all blocks, so that the files are read again.
func (w *world) cacheless() {
	for i := range w.cache.stripes {
		s := &w.cache.stripes[i]
		s.mu.Lock()
		clear(s.blocks)
		s.clock, s.used, s.hand = nil, 0, 0
		s.mu.Unlock()
	}
}

// Of a segment with damaged records, only the answers that depend on them are missing.
func TestDamagedRecordsAreMissingOnlyWhereTheyMatter(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, 1)
	w.log.segments = []SegmentState{{Segment: Segment{Base: 1}, End: 101, Sealed: true}}
	for offset := uint64(1); offset <= 100; offset++ {
		w.log.records = append(w.log.records, entryOf{offset, fmt.Sprintf("s.%d", offset%10)})
	}
	w.log.end, w.log.high, w.log.damaged = 101, 101, []Range{{40, 50}}
	w.reopen()
	w.work(true)
	if last, err := w.index.Last(context.Background(), []byte("s.3"), Range{1, 101}); err != nil || last != 93 {
		t.Errorf("the last record of s.3 is %d, %v; it is behind the damage, at 93", last, err)
	}
	if _, err := w.index.Last(context.Background(), []byte("s.none"), Range{1, 101}); !isDamaged(err) {
		t.Errorf("whether there is a record of s.none is not known, but the error is %v", err)
	}
	all, _ := NewFilter()
	if _, err := w.index.Count(ctx, all, Range{30, 60}); !isDamaged(err) {
		t.Errorf("a count over the damage is an answer: %v", err)
	}
	if n, err := w.index.Count(ctx, all, Range{50, 101}); err != nil || n != 51 {
		t.Errorf("behind the damage there are %d records, %v; want 51", n, err)
	}
	// After a restart the segment is read again: maybe its records are readable now. Here they aren't.
	w.reopen()
	if _, err := w.index.Last(context.Background(), []byte("s.none"), Range{1, 101}); err == nil || isDamaged(err) {
		t.Errorf("the damage of before the restart is believed: %v", err)
	}
	w.work(true)
	if _, err := w.index.Last(context.Background(), []byte("s.none"), Range{1, 101}); !isDamaged(err) {
		t.Errorf("after a restart: %v", err)
	}
	// Another form of the segment has the same damage.
	if err := w.index.Replace([]Segment{{Base: 1}}, Segment{Base: 1, Generation: 1}, 101, true, nil); err != nil {
		t.Fatal(err)
	}
	w.work(true)
	if _, err := w.index.Last(context.Background(), []byte("s.none"), Range{1, 101}); !isDamaged(err) {
		t.Errorf("in another form: %v", err)
	}
	// A repair replaces the segment.
	w.log.damaged = nil
	fresh := Segment{Base: 1, Generation: 2}
	if err := w.index.Replace([]Segment{{Base: 1, Generation: 1}}, fresh, 101, false, nil); err != nil {
		t.Fatal(err)
	}
	w.log.segments[0].Segment = fresh
	w.work(true)
	if last, err := w.index.Last(context.Background(), []byte("s.none"), Range{1, 101}); err != nil || last != 0 {
		t.Errorf("after the repair: %d, %v", last, err)
	}
}

func isDamaged(err error) bool {
	missing, ok := errors.AsType[*MissingError](err)
	return ok && missing.Damaged
}

// At whatever operation of the disk the process dies, what it leaves is used or made again.
func TestEveryCrashLeavesAnIndexThatIsRightOrMissing(t *testing.T) {
	for n := 0; ; n++ {
		w := newWorld(t, 7)
		w.wide = true
		for range 3 {
			for range 4 {
				w.append()
			}
			w.roll()
		}
		w.log.high = w.log.end
		w.seal()
		w.work(true)
		w.seal()
		w.seal()
		w.rewrite()
		w.fs.StopAfter(n)
		over := false
		for more, err := true, error(nil); more; {
			if more, err = w.index.Work(t.Context()); err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			} else if err == nil && !more {
				over = true
			}
		}
		for seed := range uint64(4) {
			w.rng = rand.New(rand.NewPCG(seed, uint64(n)))
			fs := w.fs
			w.crash()
			for range 3 {
				w.check(false)
			}
			w.work(true)
			for range 5 {
				w.check(true)
			}
			w.fs = fs
		}
		if over {
			if n < 8 {
				t.Errorf("only %d operations were tried", n)
			}
			return
		}
	}
}

// A run has what was added, whatever the number of subjects and records: also those with posting
// blocks, and bounds of ranges within them.
func TestRunHasWhatWasAdded(t *testing.T) {
	for _, c := range []struct{ subjects, records int }{{1, 100_000}, {2, 60_000}, {7, 200_000}, {1000, 50_000}, {20_000, 30_000}} {
		t.Run(fmt.Sprintf("%d of %d", c.records, c.subjects), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.subjects), 2))
			w := newWorld(t, 1)
			m := &w.log
			for offset := uint64(1); offset <= uint64(c.records); offset++ {
				m.records = append(m.records, entryOf{offset, fmt.Sprintf("subject.%d", rng.IntN(c.subjects))})
			}
			m.end, m.high = uint64(c.records)+1, uint64(c.records)+1
			m.segments = []SegmentState{{Segment: Segment{Base: 1}, End: m.end, Sealed: true}}
			w.reopen()
			w.index.config.PartBytes = PartBytes
			w.work(true)
			of := map[string][]uint64{}
			for _, r := range m.records {
				of[r.subject] = append(of[r.subject], r.offset)
			}
			for range 300 {
				s := fmt.Sprintf("subject.%d", rng.IntN(c.subjects+1))
				a, b := uint64(rng.IntN(c.records+2)), uint64(rng.IntN(c.records+2))
				in := Range{min(a, b), max(a, b)}
				from, _ := slices.BinarySearch(of[s], in.From)
				to, _ := slices.BinarySearch(of[s], in.To)
				var want Info
				if from < to {
					want = Info{uint64(to - from), of[s][from], of[s][to-1]}
				}
				if got, err := w.index.Info(context.Background(), []byte(s), in); err != nil || got != want {
					t.Fatalf("%s in %v: %v, %v; want %v", s, in, got, err, want)
				}
				if got, err := w.index.Last(context.Background(), []byte(s), in); err != nil || got != want.Last {
					t.Fatalf("last of %s in %v: %v, %v; want %v", s, in, got, err, want.Last)
				}
			}
			w.askAtPostingBlocks(of)
			all, _ := NewFilter()
			seen := 0
			previous := []byte(nil)
			if err := w.index.Subjects(t.Context(), all, Range{1, m.end}, "", func(s []byte, info Info) bool {
				if bytes.Compare(previous, s) >= 0 || info.Count != uint64(len(of[string(s)])) {
					t.Fatalf("%s follows %s, with %v", s, previous, info)
				}
				previous = bytes.Clone(s)
				seen++
				return true
			}); err != nil || seen != len(of) {
				t.Errorf("%d subjects of %d: %v", seen, len(of), err)
			}
		})
	}
}

// askAtPostingBlocks asks for ranges that end where posting blocks begin.
func (w *world) askAtPostingBlocks(of map[string][]uint64) {
	r := w.index.set.layers[0].run
	for s, offsets := range of {
		e, ok, err := r.find([]byte(s), hash(testSecret, []byte(s)))
		if !ok || err != nil {
			w.t.Fatal(ok, err)
		}
		d := decoder{data: e.blocks}
		for first := e.first; len(d.data) > 0; {
			d.uvarint()
			d.uvarint()
			first += d.uvarint()
			for _, to := range []uint64{first, first + 1} {
				n, _ := slices.BinarySearch(offsets, to)
				if n == 0 {
					continue
				}
				want := Info{uint64(n), offsets[0], offsets[n-1]}
				if got, err := w.index.Info(context.Background(), []byte(s), Range{1, to}); err != nil || got != want {
					w.t.Fatalf("%s below %d: %v, %v; want %v", s, to, got, err, want)
				}
			}
		}
	}
}

// An index file of records that were truncated never serves other records that have got their
// offsets, also if a power cut brings back the name of the file.
func TestIndexOfTruncatedRecordsDoesNotComeBack(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(t, seed)
		fill := func(subject string, to uint64) {
			w.active()
			w.index.Begin()
			for ; w.log.end < to; w.log.end++ {
				w.index.Add(w.log.end, 1, []byte(subject))
				w.log.records = append(w.log.records, entryOf{w.log.end, subject})
			}
			w.index.End()
			w.active().End = w.log.end
		}
		seal := func() {
			g := w.active()
			g.Sealed = true
			w.index.Sealed(g.Segment, w.log.epochAt(g.End))
		}
		fill("old", 100)
		seal()
		w.work(true)
		// The segment is cut. The broker stops before Work, and the log appends to the segment again.
		w.cut(50)
		w.index.Truncate(50)
		w.fs = w.fs.Crash(w.rng)
		w.log.segments[0].Sealed = seed%2 == 0
		w.reopen()
		if w.index.set.layers[0].run != nil {
			t.Fatal("a file is used of a segment that ends before it")
		}
		w.log.segments[0].Sealed = false
		w.reopen()
		fill("new", 100)
		seal()
		w.fs = w.fs.Crash(w.rng)
		w.reopen()
		for range 2 {
			last, err := w.index.Last(context.Background(), []byte("old"), Range{1, 100})
			if missing := (*MissingError)(nil); err == nil && last != 49 || err != nil && !errors.As(err, &missing) {
				t.Fatalf("seed %d: the last old record is %d, %v; want 49", seed, last, err)
			}
			w.work(true)
		}
	}
}

// An index that is not open while its log is truncated and appended to does not serve the records
// of before, also if the segment has the same name and the same end again.
func TestIndexThatMissedATruncationIsMadeAnew(t *testing.T) {
	w := newWorld(t, 1)
	fill := func(subject string) {
		for ; w.log.end < 100; w.log.end++ {
			w.log.records = append(w.log.records, entryOf{w.log.end, subject})
		}
		w.log.segments = []SegmentState{{Segment: Segment{Base: 1}, End: 100, Sealed: true}}
		w.log.high = 50
	}
	fill("old")
	w.reopen()
	w.work(true)
	if err := w.index.Close(); err != nil {
		t.Fatal(err)
	}
	w.reopen()
	if w.index.set.layers[0].run == nil {
		t.Fatal("the file of an unchanged segment is not used")
	}
	if err := w.index.Close(); err != nil {
		t.Fatal(err)
	}
	w.cut(50)
	fill("new")
	w.reopen()
	w.work(true)
	if last, err := w.index.Last(context.Background(), []byte("old"), Range{1, 100}); err != nil || last != 49 {
		t.Fatalf("the last old record is %d, %v; want 49", last, err)
	}
}

// With filters and index blocks in the cache, a lookup reads one data block of the segment that has
// the subject, and nothing if that was read before.
func TestLookupReadsOneBlock(t *testing.T) {
	const segments, each = 8, 2000
	fs := crashfs.New()
	s, err := Open(context.Background(), Config{FS: fs, Dir: "index", Cache: NewCache(fs, 0), Secret: testSecret}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	subject := func(n int) []byte { return fmt.Appendf(nil, "key.%d", n*7919%(segments*each)) }
	offset := uint64(1)
	for range segments {
		g := Segment{Base: offset}
		s.Roll(g)
		s.Begin()
		for range each {
			s.Add(offset, 1, subject(int(offset)))
			offset++
		}
		s.End()
		s.Sealed(g, 0)
		if err := s.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "read" {
			reads++
		}
		return nil
	})
	lookup := func(from, to int) int {
		reads = 0
		for n := from; n < to; n++ {
			if last, err := s.Last(context.Background(), subject(n), Range{1, offset}); err != nil || last != uint64(n) {
				t.Fatalf("%s is last at %d, %v; want %d", subject(n), last, err, n)
			}
		}
		return reads
	}
	lookup(1, segments*each) // all is in the cache now
	for i := range s.config.Cache.stripes {
		stripe := &s.config.Cache.stripes[i]
		for key, b := range stripe.blocks {
			if b.most == dataChances {
				delete(stripe.blocks, key)
			}
		}
	}
	if n := lookup(10, 15); n == 0 || n > 5 {
		t.Errorf("5 lookups of subjects of one segment read %d blocks", n)
	}
	if n := lookup(10, 15); n > 0 {
		t.Errorf("when repeated, they read %d", n)
	}
}
