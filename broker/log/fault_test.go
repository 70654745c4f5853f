package log

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

type opKind = crashfs.Op

func TestAFullDiskRefusesAndRecovers(t *testing.T) {
	fsys, d, l := setup(t, small)
	other, err := d.Open(Identity{Topic: "other"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, other, 1)
	fsys.SetCapacity(40 << 10)
	n := 0
	a := newAck()
	for ; ; n++ {
		_, end, _ := l.Offsets()
		if _, err = l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: a}); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free space") || !strings.Contains(err.Error(), "orders-0") {
		t.Fatal(err)
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal("what was accepted before found no room:", err)
	}
	mustRead(t, l, 1, uint64(n+1))
	put(t, other, 1) // its segment has room
	if l.Stats().Refused == 0 {
		t.Error("not counted")
	}
	fsys.SetCapacity(0)
	put(t, l, 300)
	mustRead(t, l, 1, uint64(n+301))
	_ = d.Close()
	mustRead(t, openLog(t, openDisk(t, fsys, "data", small), orders), 1, uint64(n+301))
}

func TestAFailedSyncIsNotRepeated(t *testing.T) {
	for _, kind := range []string{"sync", "syncdir", "syncall", "confirm"} {
		opts := small
		if kind == "syncall" || kind == "confirm" {
			opts.SyncAllFrom = 1
		}
		if kind == "confirm" { // the file system says that all is safe, and the file that it isn't
			kind = "sync"
		}
		fsys, d, l := setup(t, opts)
		other, err := d.Open(Identity{Topic: "other"}, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, other, 1)
		var syncs, failed atomic.Int32
		fsys.SetHook(func(op opKind) error {
			if strings.HasPrefix(op.Kind, "sync") && failed.Load() > 0 {
				syncs.Add(1)
			}
			if op.Kind == kind && !ofJournal(op) && failed.CompareAndSwap(0, 1) {
				return syscall.EIO
			}
			return nil
		})
		a := newAck()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
		err = a.wait(t, 1)
		if fail := (*FailedError)(nil); !errors.As(err, &fail) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, l := range []*Log{l, other} {
			if _, err := l.Append(&Append{Epoch: 1, Records: texts(2, 1)}); !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: an append to a failed disk: %v", kind, err)
			}
		}
		if err := l.Flush(); err == nil {
			t.Errorf("%s: flushed", kind)
		}
		if _, _, durable := l.Offsets(); durable != 1 {
			t.Errorf("%s: durable up to %d", kind, durable)
		}
		mustRead(t, other, 1, 2)
		_ = d.Close()
		if n := syncs.Load(); n != 0 {
			t.Errorf("%s: %d syncs after the one that failed", kind, n)
		}
		after := fsys.Crash(rand.New(rand.NewPCG(1, 1)))
		mustRead(t, openLog(t, openDisk(t, after, "data", opts), Identity{Topic: "other"}), 1, 2)
	}
}

// TestAFailedWriteBackIsNotMissed: write-back fails between a round's writes and its sync, and
// another process's sync gets the error first. The disk has kept the file system open since before,
// so its own sync fails, too.
func TestAFailedWriteBackIsNotMissed(t *testing.T) {
	opts := small
	opts.SyncAllFrom = 2
	fsys, d, l := setup(t, opts)
	other, third := openLog(t, d, Identity{Topic: "other"}), openLog(t, d, Identity{Topic: "third"})
	for _, l := range []*Log{l, other, third} {
		put(t, l, 1)
	}
	path := firstFile(t, other)
	var syncs, writes atomic.Int32
	in, block := make(chan struct{}), make(chan struct{})
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "sync" && !ofJournal(op) && syncs.Add(1) == 1 {
			close(in)
			<-block
		}
		if op.Kind == "write" && strings.Contains(op.Path, "third-0") && writes.Add(1) == 1 {
			if err := fsys.FailWriteBack(path); err != nil {
				t.Error(err)
			}
			stranger, err := fsys.OpenVolume("data")
			if err != nil {
				t.Error(err)
			}
			if err := stranger.Sync(); !errors.Is(err, syscall.EIO) {
				t.Error("the other process heard", err)
			}
		}
		return nil
	})
	put := func(l *Log, a *ack) {
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(2, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	first, both := newAck(), newAck()
	put(l, first) // holds the committer while the next round gathers
	<-in
	put(l, both)
	put(other, both)
	put(third, both)
	close(block)
	if err := first.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	if err := both.wait(t, 3); !errors.Is(err, syscall.EIO) {
		t.Fatal("acknowledged although write-back failed:", err)
	}
}

func TestAFailedWriteEndsItsLogOnly(t *testing.T) {
	fsys, d, l := setup(t, small)
	other, err := d.Open(Identity{Topic: "other"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, 5)
	var armed atomic.Bool
	armed.Store(true)
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && strings.Contains(op.Path, "orders-0") && armed.CompareAndSwap(true, false) {
			return &crashfs.ShortWrite{N: 20, Err: syscall.EIO}
		}
		return nil
	})
	a := newAck()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(6, 1), Done: a}); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, 1); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "orders-0") {
		t.Fatal(err)
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(7, 1)}); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	put(t, other, 10)
	if d.Failed() != nil {
		t.Error("the disk is well")
	}
	_ = l.Close()
	l = openLog(t, d, orders)
	if r := l.Recovery(); r.Cut == 0 || r.Cut > 20 || !r.Suspect {
		t.Errorf("%+v", r)
	}
	mustRead(t, l, 1, 6)
	put(t, l, 5)
	mustRead(t, l, 1, 11)
}

func TestAReadErrorIsOneRangeOnly(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1000)
	bad := segmentName(l.SegmentInfos()[1].Base)
	_ = d.Close()
	fail := func(op opKind) error {
		if op.Kind == "read" && strings.Contains(op.Path, bad) {
			return syscall.EIO
		}
		return nil
	}
	fsys.SetHook(fail)
	l = openLog(t, openDisk(t, fsys, "data", small), orders)
	if r := l.Recovery(); !r.Suspect || len(r.Damaged) != 1 {
		t.Errorf("%+v", r)
	}
	infos := l.SegmentInfos()
	if _, err := readAll(l, 1); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), bad) {
		t.Error(err)
	}
	mustRead(t, l, infos[2].Base, 1001)
	put(t, l, 1)
	fsys.SetHook(nil)
	mustRead(t, l, 1, 1002)
}

// TestAFlippedBitIsNoticed: a bit flips in some file. Every record that is read is right, every
// unreadable one is a typed error with the offset to continue at, and the damage is reported.
func TestAFlippedBitIsNoticed(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fsys := crashfs.New()
		d := openDisk(t, fsys, "data", small)
		l := openLog(t, d, orders)
		put(t, l, 100+rng.IntN(900))
		_, end, _ := l.Offsets()
		most := uint64(250)
		if rng.IntN(3) == 0 {
			l.Roll()
			if _, err := l.Compress(context.Background(), 3); err != nil {
				t.Fatal(err)
			}
			most = 400 // a block, which is all of a segment as small as these
		}
		closeFirst := rng.IntN(2) == 0
		if closeFirst {
			_ = d.Close()
		}
		names, err := fsys.List("data/shards/orders-0")
		if err != nil {
			t.Fatal(err)
		}
		path := "data/shards/orders-0/" + names[rng.IntN(len(names))]
		info, err := fsys.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := fsys.Flip(path, rng.Int64N(info.Size*8)); err != nil {
			t.Fatal(err)
		}
		if !closeFirst {
			fsys = fsys.Crash(rng)
			_ = d.Close()
		}
		d = openDisk(t, fsys, "data", small)
		l, err = d.Open(orders, 1, 1, nil)
		if err != nil {
			t.Fatalf("seed %d, %s: one bit and the log does not open: %v", seed, path, err)
		}
		rec := l.Recovery()
		// Both are stored twice, so it costs nothing.
		described := strings.HasSuffix(path, "/"+manifestName) || strings.HasSuffix(path, "/"+metaName)
		noticed := rec.Suspect || described
		_, after, _ := l.Offsets()
		if after < end && (closeFirst || rec.Cut == 0) {
			t.Fatalf("seed %d, %s: ends at %d instead of %d: %+v", seed, path, after, end, rec)
		}
		lost := uint64(0)
		for at := uint64(1); at < after; {
			got, err := readAll(l, at)
			for o, text := range got {
				if want := string(texts(o, 1)[0].Data); text != want {
					t.Fatalf("seed %d, %s: offset %d holds %q", seed, path, o, text)
				}
			}
			at += uint64(len(got))
			if err == nil {
				break
			}
			noticed = true
			corrupt, ok := errors.AsType[*CorruptError](err)
			if !ok || corrupt.From != at || corrupt.Next <= at || corrupt.File == "" {
				t.Fatalf("seed %d, %s: at %d: %v", seed, path, at, err)
			}
			lost += corrupt.Next - at
			at = corrupt.Next
		}
		found, err := scrubAll(l)
		if err != nil {
			t.Fatal(err)
		}
		if noticed = noticed || len(found) > 0; !noticed {
			t.Fatalf("seed %d: nobody noticed a bit that flipped in %s", seed, path)
		}
		if lost > most || described && lost+uint64(len(found)) > 0 {
			t.Errorf("seed %d, %s: one bit cost %d records", seed, path, lost)
		}
		if r := l.Recovery(); r.Reason == "" && !described && len(found) == 0 && lost == 0 {
			t.Errorf("seed %d: no reason", seed)
		}
		put(t, l, 3)
		_ = d.Close()
	}
}

// TestSettingALogAsideWithoutASyncFailsTheDisk: a log is set aside, and the sync that makes this
// survive a crash fails. The log may come back, or a new one of its name may be lost: the disk has
// failed.
func TestSettingALogAsideWithoutASyncFailsTheDisk(t *testing.T) {
	for _, dir := range []string{setAsideDir, shardsDir} {
		fsys, d, l := setup(t, small)
		put(t, l, 10)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		fsys.SetHook(func(op crashfs.Op) error {
			if op.Kind == "syncdir" && op.Path == filepath.Join("data", dir) {
				return syscall.EIO
			}
			return nil
		})
		to, err := d.SetAside(l.Name(), "why")
		fsys.SetHook(nil)
		if failed := (*FailedError)(nil); !errors.As(err, &failed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("without a sync of %s: %v", dir, err)
		}
		if found := pieces(t, d); len(found) != 1 || filepath.Base(to) != found[0].Name || found[0].Reason != "why" {
			t.Errorf("it was moved to %q, and there are %+v", to, found)
		}
		if err := d.Delete("another-0"); !errors.Is(err, syscall.EIO) {
			t.Errorf("the disk goes on: %v", err)
		}
	}
}
