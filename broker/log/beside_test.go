package log

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// writeBeside writes a file beside each segment, as an index does, and tells the log.
func writeBeside(t *testing.T, fsys *crashfs.FS, l *Log) {
	t.Helper()
	_, states := l.SegmentStates()
	for _, g := range states {
		name := fmt.Sprintf("%020d.%d.1.subjects", g.Base, g.Generation)
		f, err := fsys.Create(filepath.Join(l.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 1000), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		l.AddBeside(name, 1000)
	}
	if err := fsys.SyncDir(l.Dir()); err != nil {
		t.Fatal(err)
	}
}

// besideFiles are the files beside segments. It compares their bytes with what the log counts.
func besideFiles(t *testing.T, fsys *crashfs.FS, l *Log) []string {
	t.Helper()
	names, err := fsys.List(l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".subjects") })
	if got := l.BesideBytes(); got != int64(1000*len(names)) {
		t.Errorf("%d files count %d bytes", len(names), got)
	}
	return names
}

// A file beside a segment is counted apart from the log's bytes, and goes with its segment: with
// retention, compaction, truncation and a reset.
func TestFilesBesideSegmentsGoWithThem(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	bare := l.Stats().Bytes
	writeBeside(t, fsys, l)
	all := l.Stats().Segments
	if got := len(besideFiles(t, fsys, l)); got != all || l.Stats().Bytes != bare {
		t.Fatalf("%d files beside %d segments, %d bytes after %d", got, all, l.Stats().Bytes, bare)
	}
	if _, err := l.Trim(500); err != nil {
		t.Fatal(err)
	}
	left := l.Stats().Segments
	if got := len(besideFiles(t, fsys, l)); got != left || left >= all {
		t.Fatalf("after retention: %d files beside %d segments", got, left)
	}
	_ = d.Close()
	d = openDisk(t, fsys, "data", small)
	l = openLog(t, d, orders)
	if got := len(besideFiles(t, fsys, l)); got != left {
		t.Fatalf("after a restart: %d files beside %d segments", got, left)
	}
	if _, err := l.Compact(t.Context(), CompactOptions{Below: 1001}); err != nil {
		t.Fatal(err)
	}
	compacted := len(besideFiles(t, fsys, l))
	if compacted >= left {
		t.Fatalf("after compaction: %d files are left of %d", compacted, left)
	}
	if _, err := l.ResetTo(2000, 0); err != nil {
		t.Fatal(err)
	}
	if got := besideFiles(t, fsys, l); len(got) > 0 {
		t.Fatalf("after a reset: %v", got)
	}
}

// While an index is open it needs the files of segments that were replaced, and deletes them
// itself. Those of segments that were dropped go all the same.
func TestFilesInUseStayWhenTheirSegmentIsReplaced(t *testing.T) {
	fsys, _, l := setup(t, small)
	put(t, l, 1000)
	writeBeside(t, fsys, l)
	all := len(besideFiles(t, fsys, l))
	l.UseBeside(true)
	if _, err := l.Trim(500); err != nil {
		t.Fatal(err)
	}
	trimmed := len(besideFiles(t, fsys, l))
	if trimmed >= all {
		t.Fatalf("after retention: %d files of %d", trimmed, all)
	}
	if _, err := l.Compact(t.Context(), CompactOptions{Below: 1001}); err != nil {
		t.Fatal(err)
	}
	if got := len(besideFiles(t, fsys, l)); got != trimmed {
		t.Fatalf("after compaction: %d files of %d", got, trimmed)
	}
	l.UseBeside(false)
	if got := len(besideFiles(t, fsys, l)); got >= trimmed {
		t.Errorf("when they aren't used any more: %d files of %d", got, trimmed)
	}
}

// A crash may bring back a file that was deleted, or keep one whose segment is gone. Opening the
// log deletes it. A file that comes too late is deleted at once.
func TestFilesBesideNoSegmentAreDeleted(t *testing.T) {
	for seed := range uint64(10) {
		fsys, d, l := setup(t, small)
		put(t, l, 1000)
		writeBeside(t, fsys, l)
		if _, err := l.Trim(500); err != nil {
			t.Fatal(err)
		}
		fsys, _, l = cutPower(t, fsys, d, seed, 0, small)
		if got := len(besideFiles(t, fsys, l)); got > l.Stats().Segments {
			t.Fatalf("seed %d: %d files beside %d segments", seed, got, l.Stats().Segments)
		}
		late := fmt.Sprintf("%020d.0.7.subjects", 1)
		f, err := fsys.Create(filepath.Join(l.Dir(), late))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		l.AddBeside(late, 1000)
		if slices.Contains(besideFiles(t, fsys, l), late) {
			t.Fatal("the file of a segment that is gone stays")
		}
	}
}

// What an index left unfinished when the process died is deleted when the log is opened, whoever
// leads.
func TestUnfinishedFilesBesideSegmentsAreDeleted(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	writeBeside(t, fsys, l)
	kept := besideFiles(t, fsys, l)
	for _, name := range []string{"00000000000000000001.0.9.subjects.new", "7.part", "8.part.new", "mine.part"} {
		f, err := fsys.Create(filepath.Join(l.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	_ = d.Close()
	d = openDisk(t, fsys, "data", small)
	l = openLog(t, d, orders)
	names, err := fsys.List(l.Dir())
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".new") && !strings.HasSuffix(name, ".part") })
	if got := besideFiles(t, fsys, l); !slices.Equal(got, kept) || !slices.Equal(left, []string{"mine.part"}) {
		t.Errorf("%v and %v are left, of %v", got, left, kept)
	}
}

// Only names of files beside segments are taken for such.
func TestNamesBesideSegments(t *testing.T) {
	for name, want := range map[string]bool{
		"00000000000000000001.0.3.subjects": true, "00000000000000000001.0.3.subjects.new": true,
		"00000000000000000001.log": false, "00000000000000000001.5.log": false, "00000000000000000001.5.log.new": false,
		"manifest": false, "7.part": false, "meta.json": false, "1.0.3.subjects": false, "00000000000000000001.x.3.subjects": false,
	} {
		if _, ok := besideOf(name); ok != want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}
