package crashfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
)

func write(t *testing.T, f *FS, path, text string, sync bool) {
	t.Helper()
	h, err := f.Open(path)
	if err != nil {
		if h, err = f.Create(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := h.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func content(f *FS, path string) string {
	h, err := f.Open(path)
	if err != nil {
		return "-"
	}
	n, _ := h.Size()
	data := make([]byte, n)
	_, _ = h.ReadAt(data, 0)
	return string(data)
}

// outcomes crashes f with many seeds and returns the contents found at path, and how often.
func outcomes(f *FS, path string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(200) {
		seen[content(f.Crash(rand.New(rand.NewPCG(seed, 1))), path)]++
	}
	return seen
}

func TestOnlySyncedDataIsSafe(t *testing.T) {
	f := New()
	write(t, f, "file", "one", true)
	if got := outcomes(f, "file"); got["-"] == 0 || got["one"] == 0 {
		t.Errorf("a file whose name was not synced: %v", got)
	}
	f = New()
	write(t, f, "file", "one", true)
	if err := f.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	if got := outcomes(f, "file"); got["one"] != 200 {
		t.Errorf("a file that was synced, name and all: %v", got)
	}
	f = New()
	write(t, f, "file", "one", true)
	_ = f.SyncDir(".")
	write(t, f, "file", "two", false)
	if got := outcomes(f, "file"); got["one"] == 0 || got["two"] == 0 || len(got) != 2 {
		t.Errorf("a write that was not synced: %v", got)
	}
}

func TestSectorsSurviveACrashIndependently(t *testing.T) {
	f := New()
	write(t, f, "file", string(bytes.Repeat([]byte("a"), 3*sector)), true)
	_ = f.SyncDir(".")
	write(t, f, "file", string(bytes.Repeat([]byte("b"), 3*sector)), false)
	got := outcomes(f, "file")
	torn := 0
	for text := range got {
		for i := range 3 {
			piece := text[i*sector : (i+1)*sector]
			if piece != string(bytes.Repeat(([]byte)(piece[:1]), sector)) {
				t.Fatal("a sector was torn")
			}
		}
		if text[0] == 'a' && text[sector] == 'b' {
			torn++
		}
	}
	if torn == 0 {
		t.Error("no later sector survived an earlier one")
	}
}

func TestAMoveIsOneStep(t *testing.T) {
	moved := func() *FS {
		f := New()
		write(t, f, "old", "old", true)
		write(t, f, "new", "new", true)
		_ = f.SyncDir(".")
		if err := f.Rename("new", "old"); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if got := outcomes(moved(), "old"); got["old"] == 0 || got["new"] == 0 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	f := moved()
	_ = f.SyncDir(".")
	if got := outcomes(f, "old"); got["new"] != 200 {
		t.Errorf("%v", got)
	}
}

func TestAFailedSyncLosesItsWrites(t *testing.T) {
	f := New()
	write(t, f, "file", "one", true)
	_ = f.SyncDir(".")
	f.SetHook(func(op Op) error {
		if op.Kind == "sync" {
			return syscall.EIO
		}
		return nil
	})
	h, _ := f.Open("file")
	_, _ = h.WriteAt([]byte("two"), 0)
	if err := h.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.SetHook(nil)
	if err := h.Sync(); err != nil {
		t.Fatal(err)
	}
	if content(f, "file") != "two" {
		t.Error("it is visible until the crash")
	}
	if got := outcomes(f, "file"); got["one"] != 200 {
		t.Errorf("%v", got)
	}
}

func TestAStoppedFileSystemDoesNothing(t *testing.T) {
	f := New()
	write(t, f, "file", "one", true)
	f.StopAfter(1)
	h, _ := f.Open("file")
	if _, err := h.WriteAt([]byte("two"), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.Sync(); !errors.Is(err, ErrCrashed) {
		t.Error(err)
	}
	if _, err := f.List("."); !errors.Is(err, ErrCrashed) {
		t.Error(err)
	}
}

func TestAFullDisk(t *testing.T) {
	f := New()
	f.SetCapacity(1000)
	h, err := f.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Preallocate(900); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt(make([]byte, 300), 800); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if _, err := h.WriteAt(make([]byte, 100), 800); err != nil {
		t.Error("the room was reserved:", err)
	}
	if err := h.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if free, err := f.Free("."); err != nil || free != 1000 {
		t.Error(free, err)
	}
}

// TestAFailedWriteBackIsReportedOnceToEach: the kernel reports a failed write-back once to each
// descriptor that was open then, and of later ones to the first only.
func TestAFailedWriteBackIsReportedOnceToEach(t *testing.T) {
	f := New()
	write(t, f, "file", "one", true)
	_ = f.SyncDir(".")
	volume, err := f.OpenVolume(".")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := f.Open("file")
	_, _ = h.WriteAt([]byte("two"), 0)
	if err := f.FailWriteBack("file"); err != nil {
		t.Fatal(err)
	}
	late, _ := f.OpenVolume(".")
	if err := late.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error("nobody had seen it:", err)
	}
	later, _ := f.OpenVolume(".")
	if err := later.Sync(); err != nil {
		t.Error("somebody had seen it:", err)
	}
	for _, sync := range []func() error{volume.Sync, h.Sync} {
		if err := sync(); !errors.Is(err, syscall.EIO) {
			t.Error("it was open when write-back failed:", err)
		}
		if err := sync(); err != nil {
			t.Error("it has been told:", err)
		}
	}
	if content(f, "file") != "two" {
		t.Error("the page is clean and readable")
	}
	f.DropCache()
	if content(f, "file") != "one" {
		t.Error("the page was read from the disk again")
	}
}
