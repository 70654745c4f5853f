package records

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/statistics"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// daily is a log whose records have days, and what scans of this process know of it.
type daily struct {
	*shard
	t     *testing.T
	fsys  *crashfs.FS
	disk  *log.Disk
	table *statistics.Table
	rng   *rand.Rand
	bytes int64 // of a segment, about twice
}

var dailyLog = log.Identity{Topic: "orders"}

func newDaily(t *testing.T) *daily {
	t.Helper()
	d := &daily{t: t, fsys: crashfs.New(), rng: rand.New(rand.NewPCG(5, 6)), bytes: 4 << 10}
	t.Cleanup(func() { _ = d.disk.Close() })
	d.begin(d.fsys)
	return d
}

// begin opens the log in another process.
func (d *daily) begin(fsys *crashfs.FS) {
	d.t.Helper()
	var err error
	d.fsys, d.table = fsys, &statistics.Table{}
	d.disk, err = log.OpenDisk(fsys, "data", log.Options{SegmentSmallest: d.bytes, SegmentLargest: d.bytes, TailBytes: 1})
	testutil.Must(d.t, err)
	d.open()
}

func (d *daily) open() {
	d.t.Helper()
	data, err := d.disk.Open(dailyLog, 1, 1, []byte("{}"))
	testutil.Must(d.t, err)
	d.shard = &shard{start: 1}
	_, d.high, _ = data.Offsets()
	d.Init(d.shard, "orders", data, nil)
}

func (d *daily) restart() {
	d.t.Helper()
	testutil.Must(d.t, d.disk.Close())
	d.begin(d.fsys)
}

// fill appends records in an epoch until the log has 400. Each 50 have a day. All segments but the
// last one get sealed.
func (d *daily) fill(epoch uint64, day string) {
	d.t.Helper()
	acks := make(done, 1)
	for n := int(d.high) - 1; n < 400; n++ {
		_, err := d.data.Append(&log.Append{Epoch: epoch, Done: acks, Records: []log.Record{{
			Time: int64(1_000 + n), Subject: []byte("orders"), Data: fmt.Appendf(nil, `{"n":%d,"day":"%s%d","note":"%080d"}`, n, day, n/50, n),
		}}})
		testutil.Must(d.t, err)
		testutil.Must(d.t, <-acks)
	}
	_, d.high, _ = d.data.Offsets()
	testutil.EventuallyTrue(d.t, "segments are sealed", func() bool { return len(d.sealed()) >= 6 })
}

// sealed are the sealed segments, all but the last one.
func (d *daily) sealed() []log.SegmentState {
	_, states := d.data.SegmentStates()
	for _, is := range states[:len(states)-1] {
		if !is.Sealed {
			return nil
		}
	}
	return states[:len(states)-1]
}

// scan judges all records, and compares the result with that of reading all. It returns how many
// were read.
func (d *daily) scan(where string) int {
	d.t.Helper()
	f, err := filter.CompileStored(where)
	testutil.Must(d.t, err)
	is := &counts{by: ByFilter(f)}
	of := Selection{Judge: is, Statistics: d.table, Probe: f.NewProbe()}
	got, want := judged(d.t, d.rng, d.shard, d.start, d.high, of), scanned(d.t, d.shard, d.start, d.high, nil, f)
	if !slices.Equal(got.found, want.found) || got.examined != want.examined || got.failed != want.failed || got.latest != want.latest {
		d.t.Fatalf("%s:\n%+v\nwant\n%+v", where, got, want)
	}
	return is.n
}

// passes fails unless a scan reads few records.
func (d *daily) passes(where string) {
	d.t.Helper()
	if n := d.scan(where); n > few {
		d.t.Errorf("%s: %d of 400 were judged", where, n)
	}
}

// few is more than a scan for a day reads that has statistics, and fewer than all.
const few = 200

// learn has scans make statistics.
func (d *daily) learn() {
	d.t.Helper()
	for range 2 {
		if n := d.scan("json.day == 'd3'"); n < 400 {
			d.t.Fatalf("%d of 400 were judged, and nothing was known", n)
		}
	}
}

// files are those with statistics, by the base of their segment.
func (d *daily) files() map[string][]byte {
	d.t.Helper()
	names, err := d.fsys.List(d.data.Dir())
	testutil.Must(d.t, err)
	all := map[string][]byte{}
	for _, name := range names {
		if strings.Contains(name, ".statistics") {
			f, err := d.fsys.Open(filepath.Join(d.data.Dir(), name))
			testutil.Must(d.t, err)
			size, err := f.Size()
			testutil.Must(d.t, err)
			data := make([]byte, size)
			_, _ = f.ReadAt(data, 0)
			base, _, _ := strings.Cut(name, ".")
			all[base] = data
		}
	}
	return all
}

// put replaces the statistics of all sealed segments, if there are some for the base of one.
func (d *daily) put(files map[string][]byte) (n int) {
	d.t.Helper()
	for _, is := range d.sealed() {
		if file := files[fmt.Sprintf("%020d", is.Base)]; file != nil {
			testutil.Must(d.t, d.data.ChangeStatistics(is.Base, is.Generation, func([]byte) []byte { return file }))
			n++
		}
	}
	return n
}

// TestStatisticsOutliveTheProcess: the first scan after a start passes segments by what former
// scans have collected, for each path.
func TestStatisticsOutliveTheProcess(t *testing.T) {
	d := newDaily(t)
	d.fill(1, "d")
	d.learn()
	d.restart()
	reads := map[string]int{}
	d.fsys.SetHook(func(op crashfs.Op) error {
		if op.Kind == "read" {
			reads[filepath.Base(op.Path)]++
		}
		return nil
	})
	f, err := filter.CompileStored("json.day == 'nowhen'")
	testutil.Must(t, err)
	is := &counts{by: ByFilter(f)}
	judged(t, d.rng, d.shard, d.start, d.high, Selection{Judge: is, Statistics: d.table, Probe: f.NewProbe()})
	d.fsys.SetHook(nil)
	if is.n > few/2 {
		t.Errorf("%d of 400 were judged", is.n)
	}
	for _, of := range d.sealed() {
		if name := fmt.Sprintf("%020d.log", of.Base); reads[name] > 0 || reads[fmt.Sprintf("%020d.0.statistics", of.Base)] == 0 {
			t.Errorf("%s was read: %v", name, reads)
		}
	}
	d.passes("json.day == 'd3'")
	if is := d.table.Stats(); is.Loaded != uint64(len(d.sealed())) || is.Stored+is.Dropped+is.Unusable > 0 {
		t.Errorf("%+v", is)
	}
	// Another path takes two scans, and a third process knows both.
	for range 2 {
		d.scan("json.n == 7.0")
	}
	d.restart()
	d.shard.gone.Add(20, 30) // removed records make no difference
	for _, where := range []string{"json.n == 7.0", "json.day == 'd3'"} {
		d.passes(where)
	}
	// So does a process that forgot them for want of memory.
	d.table = &statistics.Table{}
	d.passes("json.day == 'd3'")
}

// TestStatisticsOfCompressedSegments: they are made for the new files, and outlive the process.
func TestStatisticsOfCompressedSegments(t *testing.T) {
	d := newDaily(t)
	testutil.Must(t, d.disk.Close())
	d.bytes = 12 << 10 // less would not be compressed
	d.begin(d.fsys)
	d.fill(1, "d")
	d.learn()
	saved, err := d.data.Compress(t.Context(), 1)
	testutil.Must(t, err)
	if saved == 0 || len(d.files()) > 0 {
		t.Fatalf("%d bytes were saved, %d files are left", saved, len(d.files()))
	}
	d.learn()
	d.restart()
	d.passes("json.day == 'd3'")
	if is := d.table.Stats(); is.Unusable > 0 {
		t.Errorf("%+v", is)
	}
}

// TestAScanThatEndsEarlyLearnsFromFiles: one that ends within a segment does not keep later ones
// from looking into its file.
func TestAScanThatEndsEarlyLearnsFromFiles(t *testing.T) {
	d := newDaily(t)
	d.fill(1, "d")
	d.learn()
	d.restart()
	of := d.sealed()[2]
	high := d.high
	d.high = of.End - 1
	d.scan("json.day == 'd3'")
	d.high = high
	if n := d.scan("json.day == 'nowhen'"); n > few/2 {
		t.Errorf("%d of 400 were judged", n)
	}
}

// TestStatisticsOfFormerContentAreNotUsed: though their files have the names that those of the
// present segments have.
func TestStatisticsOfFormerContentAreNotUsed(t *testing.T) {
	// same reports whether segments differ in nothing but what is named.
	same := func(a, b log.SegmentState, but string) bool {
		switch but {
		case "epoch":
			a.Epoch = b.Epoch
		case "end":
			a.End, a.Bytes = b.End, b.Bytes
		}
		return a == b
	}
	for name, test := range map[string]struct {
		but    string
		change func(d *daily)
	}{
		"the log was made again": {"", func(d *daily) {
			testutil.Must(t, d.data.Close())
			testutil.Must(t, d.disk.Delete(dailyLog.Name()))
			d.open()
			d.fill(1, "e")
		}},
		"it was truncated": {"epoch", func(d *daily) {
			end, _, err := d.data.TruncateTo(d.sealed()[2].Base, 0)
			testutil.Must(t, err)
			d.high = end
			d.fill(2, "e")
		}},
		"it was truncated, and a segment ended earlier": {"end", func(d *daily) {
			end, _, err := d.data.TruncateTo(3, 0)
			testutil.Must(t, err)
			d.high = end
			d.fill(1, "e-longer-")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaily(t)
			d.fill(1, "d")
			d.learn()
			before, files := d.sealed(), d.files()
			if len(files) != len(before) {
				t.Fatalf("%d files beside %d segments", len(files), len(before))
			}
			test.change(d)
			alike := 0
			for i, is := range d.sealed() {
				if i < len(before) && same(is, before[i], test.but) {
					alike++
				}
			}
			if alike == 0 {
				t.Fatalf("no segment differs in the %s alone: %+v, was %+v", test.but, d.sealed()[2], before[2])
			}
			put := d.put(files)
			d.restart()
			d.scan("json.day == 'e3'") // it compares the result
			if is := d.table.Stats(); put < alike || is.Unusable < uint64(alike) {
				t.Errorf("%d of %d files were refused, %d had to be: %+v", is.Unusable, put, alike, is)
			}
			// They are made anew.
			d.scan("json.day == 'e3'")
			d.restart()
			d.passes("json.day == 'e3'")
			if is := d.table.Stats(); is.Unusable > 0 {
				t.Errorf("%+v", is)
			}
		})
	}
}

// TestDamagedStatisticsAreMadeAgain: they are as good as none.
func TestDamagedStatisticsAreMadeAgain(t *testing.T) {
	d := newDaily(t)
	d.fill(1, "d")
	d.learn()
	files := d.files()
	for base, file := range files {
		file = slices.Clone(file)
		file[d.rng.IntN(len(file))] ^= 1 << d.rng.IntN(8)
		files[base] = file
	}
	d.put(files)
	d.restart()
	d.learn()
	if is := d.table.Stats(); is.Loaded > 0 || is.Unusable != uint64(len(files)) || is.Stored != uint64(len(files)) {
		t.Errorf("of %d files: %+v", len(files), is)
	}
	d.restart()
	d.passes("json.day == 'd3'")
}

// TestScansAfterACrashAreRight: whatever was left of the statistics, and of the records.
func TestScansAfterACrashAreRight(t *testing.T) {
	passed := 0
	for seed := range uint64(12) {
		d := newDaily(t)
		d.fill(1, "d")
		d.learn()
		after := d.fsys.Crash(rand.New(rand.NewPCG(seed, 1)))
		_ = d.disk.Close()
		d.begin(after)
		d.fill(2, "e")
		if n := d.scan("json.day == 'd3'"); n < 400 {
			passed++
		}
		d.scan("json.day == 'e3'")
		d.scan("json.day == 'e7'")
	}
	if passed == 0 {
		t.Error("no file survived")
	}
}

// TestAFullDiskCostsStatisticsOnly: they are counted, and made by the scans after the next start.
func TestAFullDiskCostsStatisticsOnly(t *testing.T) {
	d := newDaily(t)
	d.fill(1, "d")
	d.fsys.SetHook(func(op crashfs.Op) error {
		if op.Kind == "write" && strings.Contains(op.Path, ".statistics") {
			return syscall.ENOSPC
		}
		return nil
	})
	d.learn()
	if is := d.table.Stats(); is.Dropped != uint64(len(d.sealed())) || is.Stored > 0 || len(d.files()) > 0 {
		t.Errorf("%+v, %d files", is, len(d.files()))
	}
	if n := d.scan("json.day == 'd3'"); n > few {
		t.Errorf("%d of 400 were judged, though memory has statistics", n)
	}
	d.fsys.SetHook(nil)
	d.restart()
	d.learn()
	if is := d.table.Stats(); is.Stored != uint64(len(d.sealed())) {
		t.Errorf("%+v", is)
	}
}

// TestTheLargestStatisticsFit: the log takes what the format can make.
func TestTheLargestStatisticsFit(t *testing.T) {
	if statistics.MaxFileBytes > log.LargestStatistics {
		t.Errorf("%d bytes, and the log takes %d", statistics.MaxFileBytes, log.LargestStatistics)
	}
}
