package log

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

func TestAMarkIsWrittenOnceAndReadOnce(t *testing.T) {
	fsys, d, l := setup(t, small)
	if d.Mark() != nil {
		t.Errorf("a new disk has the mark %q", d.Mark())
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 1), Durability: Memory}); err != nil {
		t.Fatal(err)
	}
	content := []byte("{\"since\": 7}\n\nand what else its owner likes")
	if err := d.CloseMarked(content); err != nil {
		t.Fatal(err)
	}
	if err := d.CloseMarked([]byte("again")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// An orderly end syncs everything that it leaves.
	fsys = fsys.Crash(rand.New(rand.NewPCG(1, 1)))
	d = openDisk(t, fsys, "data", small)
	if !bytes.Equal(d.Mark(), content) {
		t.Errorf("the mark is %q", d.Mark())
	}
	mustRead(t, openLog(t, d, orders), 1, 2)
	after := fsys.Crash(rand.New(rand.NewPCG(2, 1)))
	_ = d.Close()
	d = openDisk(t, after, "data", small)
	if d.Mark() != nil {
		t.Errorf("after a crash there is the mark %q", d.Mark())
	}
	if err := d.CloseMarked(nil); err != nil {
		t.Fatal(err)
	}
	if d = openDisk(t, after, "data", small); d.Mark() == nil || len(d.Mark()) != 0 {
		t.Errorf("an empty mark is %q", d.Mark())
	}
	if names, err := after.List("data"); err != nil || slices.Contains(names, markName) {
		t.Error(names, err)
	}
}

func TestADamagedMarkIsIgnored(t *testing.T) {
	const bits = 8 * (len("content") + markSum)
	for bit := range int64(bits) {
		fsys := crashfs.New()
		d := openDisk(t, fsys, "data", small)
		if err := d.CloseMarked([]byte("content")); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Flip("data/"+markName, bit); err != nil {
			t.Fatal(err)
		}
		if d = openDisk(t, fsys, "data", small); d.Mark() != nil {
			t.Fatalf("bit %d: %q", bit, d.Mark())
		}
		_ = d.Close()
	}
}

// TestNoMarkIsWrittenAfterAFailure: after any failure while the disk was open there is no mark,
// even if later operations succeed.
func TestNoMarkIsWrittenAfterAFailure(t *testing.T) {
	for name, fault := range map[string]struct {
		kind, path string
		reopen     bool
	}{
		"a write":                           {kind: "write", path: segmentEnd},
		"a write, and the log opened again": {kind: "write", path: segmentEnd, reopen: true},
		"a sync":                            {kind: "sync", path: segmentEnd},
		"closing a log":                     {kind: "open", path: manifestName},
		"writing the mark":                  {kind: "create", path: markName},
		"making the mark safe":              {kind: "sync", path: markName},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, small)
			put(t, l, 5)
			done := false
			fsys.SetHook(func(op opKind) error {
				if !done && op.Kind == fault.kind && strings.Contains(op.Path, fault.path) {
					done = true
					return syscall.EIO
				}
				return nil
			})
			if _, err := l.Append(&Append{Epoch: 1, Records: texts(6, 1)}); err != nil {
				t.Fatal(err)
			}
			if fault.reopen {
				_ = l.Close()
				l = openLog(t, d, orders)
				put(t, l, 1)
			}
			if err := d.CloseMarked([]byte("content")); err == nil || !done {
				t.Errorf("closed in order (%v)", done)
			}
			fsys.SetHook(nil)
			if d = openDisk(t, fsys, "data", small); d.Mark() != nil {
				t.Errorf("the mark is %q", d.Mark())
			}
		})
	}
}

// TestAMarkIsTrueAfterAnyCrash: after a crash at any moment, from the last append of one process to
// the first one of the next but one, a mark exists only if all appended records exist and none was
// appended after the mark.
func TestAMarkIsTrueAfterAnyCrash(t *testing.T) {
	marked := 0
	for steps := range 60 {
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, uint64(steps)))
			fsys := crashfs.New()
			d := openDisk(t, fsys, "data", small)
			l := openLog(t, d, orders)
			put(t, l, 3)
			appended := uint64(4)
			fsys.StopAfter(steps)
			for life := range 2 {
				if _, err := l.Append(&Append{Epoch: 1, Records: texts(appended, 1), Durability: Memory}); err != nil {
					break
				}
				appended++
				if err := d.CloseMarked([]byte{byte(life)}); err != nil {
					break
				}
				var err error
				if d, err = OpenDisk(fsys, "data", small); err != nil {
					break
				}
				if l, err = d.Open(orders, 1, 1, nil); err != nil {
					break
				}
			}
			after := fsys.Crash(rng)
			if d != nil {
				_ = d.Close()
			}
			d = openDisk(t, after, "data", small)
			_, end, _ := openLog(t, d, orders).Offsets()
			if mark := d.Mark(); mark != nil {
				marked++
				if end != appended || uint64(mark[0]) != appended-5 {
					t.Fatalf("%d steps, seed %d: the mark of life %d, %d of %d offsets", steps, seed, mark[0], end, appended)
				}
			}
			_ = d.Close()
		}
	}
	if marked < 20 {
		t.Errorf("only %d marks in all", marked)
	}
}
