package log

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// putStatistics writes statistics of all sealed segments of a log.
func putStatistics(t *testing.T, l *Log, size int) {
	t.Helper()
	_, states := l.SegmentStates()
	for _, g := range states {
		if g.Sealed {
			put := func([]byte) []byte { return bytes.Repeat([]byte{byte(g.Base)}, size) }
			testutil.Must(t, l.ChangeStatistics(g.Base, g.Generation, put))
		}
	}
}

// described are the segments that have statistics. It compares the files with what the log counts.
func described(t *testing.T, fsys env.FS, l *Log) (all []SegmentRef) {
	t.Helper()
	names, err := fsys.List(l.Dir())
	testutil.Must(t, err)
	bytes := int64(0)
	for _, name := range names {
		if strings.HasSuffix(name, statisticsEnd+".new") {
			t.Errorf("%s is left", name)
		}
		if !strings.HasSuffix(name, statisticsEnd) {
			continue
		}
		info, err := fsys.Stat(filepath.Join(l.Dir(), name))
		testutil.Must(t, err)
		bytes += info.Size
		r, _ := besideOf(name)
		all = append(all, r)
	}
	if got := l.BesideBytes(); got != bytes {
		t.Errorf("%d files of %d bytes count %d", len(all), bytes, got)
	}
	return all
}

// sealedOf are the sealed segments of a log.
func sealedOf(l *Log) (all []SegmentRef) {
	_, states := l.SegmentStates()
	for _, g := range states {
		if g.Sealed {
			all = append(all, SegmentRef{Base: g.Base, Generation: g.Generation})
		}
	}
	return all
}

// sealAll waits until all segments of a log but the last one are sealed.
func sealAll(t *testing.T, l *Log) {
	t.Helper()
	testutil.EventuallyTrue(t, "segments are sealed", func() bool {
		_, states := l.SegmentStates()
		return len(sealedOf(l)) >= len(states)-1
	})
}

// TestStatisticsGoWithTheirSegment: with retention, compaction, truncation and a reset, which also
// sets segments aside, though an index may use its own files of segments that were replaced.
func TestStatisticsGoWithTheirSegment(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 2000)
	sealAll(t, l)
	putStatistics(t, l, 1000)
	all := sealedOf(l)
	if got := described(t, fsys, l); !slices.Equal(got, all) || len(all) < 4 {
		t.Fatalf("statistics of %v, segments %v", got, all)
	}
	l.UseBeside(true)
	check := func(what string, fewer bool) {
		t.Helper()
		got, has := described(t, fsys, l), sealedOf(l)
		for _, r := range got {
			if !slices.Contains(has, r) {
				t.Errorf("after %s: there are statistics of %v", what, r)
			}
			if is := l.Statistics(r.Base, r.Generation); len(is) != 1000 || is[0] != byte(r.Base) {
				t.Errorf("after %s: those of %v have %d bytes", what, r, len(is))
			}
		}
		if fewer == (len(got) >= len(all)) {
			t.Errorf("after %s: %d files after %d", what, len(got), len(all))
		}
		all = got
	}
	_, err := l.Trim(500)
	testutil.Must(t, err)
	check("retention", true)
	_ = d.Close()
	d = openDisk(t, fsys, "data", small)
	l = openLog(t, d, orders)
	check("a restart", false)
	l.UseBeside(true)
	_, err = l.Compact(t.Context(), CompactOptions{Below: 1000})
	testutil.Must(t, err)
	check("compaction", true)
	_, aside, err := l.TruncateTo(1500, 1900)
	testutil.Must(t, err)
	check("a truncation", true)
	if len(all) == 0 || aside == "" {
		t.Fatal("no segment is left, or nothing was set aside")
	}
	names, err := fsys.List(aside)
	testutil.Must(t, err)
	if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, statisticsEnd) }) {
		t.Errorf("set aside: %v", names)
	}
	_, err = l.ResetTo(5000, 0)
	testutil.Must(t, err)
	check("a reset", true)
	// What comes too late has no segment.
	testutil.Must(t, l.ChangeStatistics(1, 0, func([]byte) []byte { return make([]byte, 10) }))
	if got := described(t, fsys, l); len(got) > 0 {
		t.Errorf("there are %v of no segment", got)
	}
	testutil.Must(t, l.Close())
	if err := l.ChangeStatistics(5000, 0, func([]byte) []byte { return make([]byte, 10) }); !errors.Is(err, ErrClosed) {
		t.Errorf("in a closed log: %v", err)
	}
}

// TestStatisticsTakeABoundedPartOfTheDisk: beyond it those of the oldest segments go. A file has a
// bound, too, and the log's bytes do not count them.
func TestStatisticsTakeABoundedPartOfTheDisk(t *testing.T) {
	fsys, _, l := setup(t, small)
	put(t, l, 10_000)
	sealAll(t, l)
	all, bare := sealedOf(l), l.Stats().Bytes
	const most = mostStatistics / LargestStatistics
	if len(all) <= most {
		t.Fatalf("there are %d segments", len(all))
	}
	putStatistics(t, l, LargestStatistics)
	if got := described(t, fsys, l); !slices.Equal(got, all[len(all)-most:]) {
		t.Errorf("there are %d files, of %v, beside %d segments", len(got), got, len(all))
	}
	if l.Stats().Bytes != bare {
		t.Error("they count as bytes of the log")
	}
	// The file that was written last stays, also that of the oldest segment.
	first := all[0]
	testutil.Must(t, l.ChangeStatistics(first.Base, 0, func([]byte) []byte { return []byte("first") }))
	if got := described(t, fsys, l); len(got) != most || got[0] != first {
		t.Errorf("there are %d files, of %v", len(got), got)
	}
	if l.ChangeStatistics(first.Base, 0, func([]byte) []byte { return make([]byte, LargestStatistics+1) }) == nil {
		t.Error("a file may be larger than the largest")
	}
	if got := l.Statistics(first.Base, 0); string(got) != "first" {
		t.Errorf("it has %d bytes", len(got))
	}
	// Room counts in blocks, and is given back.
	testutil.Must(t, l.ChangeStatistics(first.Base, 0, func(now []byte) []byte { return now[:1] }))
	if l.beside.room != (most-1)*LargestStatistics+statisticsBlock {
		t.Errorf("%d bytes of room are taken", l.beside.room)
	}
	_, err := l.ResetTo(20_000, 0)
	testutil.Must(t, err)
	if l.beside.room != 0 {
		t.Errorf("%d bytes of room stay taken", l.beside.room)
	}
}

// TestFilesThatCannotBeDeletedEndStatistics: they do not grow beyond the bound, but for one file.
func TestFilesThatCannotBeDeletedEndStatistics(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 10_000)
	sealAll(t, l)
	fsys.SetHook(func(op crashfs.Op) error {
		if op.Kind == "remove" && strings.HasSuffix(op.Path, statisticsEnd) {
			return syscall.EPERM
		}
		return nil
	})
	refused := 0
	change := func(r SegmentRef) {
		err := l.ChangeStatistics(r.Base, r.Generation, func([]byte) []byte { return make([]byte, LargestStatistics) })
		if errors.Is(err, syscall.EPERM) {
			refused++
		} else {
			testutil.Must(t, err)
		}
	}
	const most = mostStatistics/LargestStatistics + 1
	all := sealedOf(l)
	for _, r := range all {
		change(r)
	}
	if got := described(t, fsys, l); len(got) != most || refused != len(all)-most || d.Failed() != nil {
		t.Errorf("there are %d files, %d were refused: %v", len(got), refused, d.Failed())
	}
	fsys.SetHook(nil)
	change(all[len(all)-1])
	if got := described(t, fsys, l); len(got) != most-1 || got[len(got)-1] != all[len(all)-1] {
		t.Errorf("there are %d files, when files can be deleted again", len(got))
	}
}

// TestStatisticsWrittenWhileSegmentsChange: whatever happens to the segments meanwhile, until the
// log is closed, the files that stay are of segments of the log, and are counted.
func TestStatisticsWrittenWhileSegmentsChange(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 2000)
	sealAll(t, l)
	all := sealedOf(l)
	var writers sync.WaitGroup
	wrote := make(chan struct{}, 1)
	for n := range 3 {
		writers.Go(func() {
			for round := n; ; round++ {
				// Those of former segments, too: a scan may have begun before.
				for _, r := range append(sealedOf(l), all...) {
					err := l.ChangeStatistics(r.Base, r.Generation, func(now []byte) []byte {
						if round%3 == 0 {
							return nil
						}
						return make([]byte, 1+(len(now)+round)%10_000)
					})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					select {
					case wrote <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	done := func(err error) {
		t.Helper()
		<-wrote
		<-wrote
		testutil.Must(t, err)
	}
	_, err := l.Trim(300)
	done(err)
	_, err = l.Compact(t.Context(), CompactOptions{Below: 1000})
	done(err)
	_, _, err = l.TruncateTo(1500, 0)
	done(err)
	put(t, l, 300)
	done(nil)
	_, err = l.ResetTo(1, 0)
	done(err)
	put(t, l, 600)
	sealAll(t, l)
	putStatistics(t, l, 100)
	testutil.Must(t, l.Close())
	writers.Wait()
	before := described(t, fsys, l)
	if all = sealedOf(l); slices.ContainsFunc(before, func(r SegmentRef) bool { return !slices.Contains(all, r) }) {
		t.Errorf("there are %v, segments %v", before, all)
	}
	_ = d.Close()
	l = openLog(t, openDisk(t, fsys, "data", small), orders)
	if after := described(t, fsys, l); !slices.Equal(after, before) || len(after) == 0 {
		t.Errorf("there are %v, were %v", after, before)
	}
}

// TestAFullDiskHasNoStatistics: they are not written, leave nothing behind, and fail nothing.
func TestAFullDiskHasNoStatistics(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	sealAll(t, l)
	first := sealedOf(l)[0]
	change := func() error {
		return l.ChangeStatistics(first.Base, 0, func([]byte) []byte { return make([]byte, 5000) })
	}
	fsys.SetHook(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Path, statisticsEnd) {
			return &crashfs.ShortWrite{N: 100, Err: syscall.ENOSPC}
		}
		return nil
	})
	if err := change(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	fsys.SetHook(nil)
	fsys.SetCapacity(fsys.Used() + statisticsFree - 1)
	if err := change(); err == nil {
		t.Error("they are written though the log may need the room")
	}
	if got := described(t, fsys, l); len(got) > 0 || d.Failed() != nil {
		t.Errorf("there are %v: %v", got, d.Failed())
	}
	fsys.SetCapacity(0)
	put(t, l, 10)
	testutil.Must(t, change())
	if got := described(t, fsys, l); len(got) != 1 {
		t.Errorf("there are %v", got)
	}
}

// TestStatisticsSyncNothing: publishers wait for syncs of the disk.
func TestStatisticsSyncNothing(t *testing.T) {
	fsys, _, l := setup(t, small)
	put(t, l, 1000)
	sealAll(t, l)
	var others []string
	fsys.SetHook(func(op crashfs.Op) error {
		if !strings.Contains(op.Path, statisticsEnd) || strings.Contains(op.Kind, "sync") {
			if !ofJournal(op) && op.Changes() {
				others = append(others, op.Kind+" "+op.Path)
			}
		}
		return nil
	})
	for range 2 {
		putStatistics(t, l, 100)
	}
	fsys.SetHook(nil)
	if len(others) > 0 {
		t.Errorf("writing statistics did %v", others)
	}
}

// TestACrashDuringStatistics: at any step, the file is that from before or after, torn or gone. The
// log is as it was, and nothing else is left.
func TestACrashDuringStatistics(t *testing.T) {
	torn, seen := 0, map[string]int{}
	for step := range 14 {
		for seed := range uint64(6) {
			fsys, d, l := setup(t, small)
			put(t, l, 600)
			sealAll(t, l)
			first := sealedOf(l)[0]
			write := func(c byte) {
				_ = l.ChangeStatistics(first.Base, 0, func([]byte) []byte { return bytes.Repeat([]byte{c}, 3000) })
			}
			fsys.StopAfter(step)
			write('a')
			write('b')
			fsys, _, l = cutPower(t, fsys, d, seed, step, small)
			mustRead(t, l, 1, 601)
			switch is := l.Statistics(first.Base, 0); {
			case is == nil:
				seen["none"]++
			case bytes.Equal(is, bytes.Repeat([]byte{is[0]}, 3000)) && is[0] != 0:
				seen[string(is[:1])]++
			default:
				torn++
			}
			described(t, fsys, l)
			sealAll(t, l)
			write('c')
			if is := l.Statistics(first.Base, 0); len(is) != 3000 || is[0] != 'c' {
				t.Fatalf("step %d, seed %d: they can't be written again: %d bytes", step, seed, len(is))
			}
		}
	}
	if seen["none"] == 0 || seen["b"] == 0 || torn == 0 {
		t.Errorf("%v, %d torn", seen, torn)
	}
}

// TestHeldSegmentsKeepTheirStatistics: as long as a snapshot holds the segment.
func TestHeldSegmentsKeepTheirStatistics(t *testing.T) {
	fsys, _, l := setup(t, small)
	put(t, l, 1000)
	sealAll(t, l)
	putStatistics(t, l, 100)
	all := described(t, fsys, l)
	hold := l.Hold(1)
	_, err := l.Retain(time.Now(), Retention{Messages: 1})
	testutil.Must(t, err)
	if got := described(t, fsys, l); !slices.Equal(got, all) {
		t.Errorf("there are %v, were %v", got, all)
	}
	hold.Release()
	_, err = l.Retain(time.Now(), Retention{Messages: 1})
	testutil.Must(t, err)
	if got := described(t, fsys, l); len(got) > 0 {
		t.Errorf("there are %v of segments that were deleted", got)
	}
}
