package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// failingSync lets the next sync of that kind fail that isn't of the journal of sync points. Its
// pages are clean afterwards.
func failingSync(fsys *crashfs.FS, kind string) *atomic.Bool {
	failed := &atomic.Bool{}
	fsys.SetHook(func(op opKind) error {
		if op.Kind == kind && !ofJournal(op) && failed.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
	return failed
}

// refused appends one record whose sync fails.
func refused(t testing.TB, l *Log) {
	t.Helper()
	a := newAck()
	_, end, _ := l.Offsets()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: a}); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal("acknowledged:", err)
	}
}

// TestNothingIsVouchedForAfterAFailedSync: a sync fails, and the restarted process finds records in
// the page cache that the disk lacks. All records that it vouches for from then on, and all that it
// acknowledges after them, survive a power cut.
func TestNothingIsVouchedForAfterAFailedSync(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		opts := small
		kind := "sync"
		if opts.SyncAllFrom = 1000; seed%2 == 0 {
			opts.SyncAllFrom, kind = 1, "syncall"
		}
		fsys, d, l := setup(t, opts)
		put(t, l, int(seed%4))
		failingSync(fsys, kind)
		refused(t, l)
		_ = d.Close()
		if seed%5 == 0 {
			fsys.DropCache()
		}
		d = openDisk(t, fsys, "data", opts)
		l = openLog(t, d, orders)
		_, end, vouched := l.Offsets()
		if vouched != end {
			t.Fatalf("seed %d: vouches for %d of %d", seed, vouched, end)
		}
		if seed%3 > 0 {
			put(t, l, int(seed%3))
			_, _, vouched = l.Offsets()
		}
		_, _, l = cutPower(t, fsys, d, rng.Uint64(), int(seed), opts)
		_, end, _ = l.Offsets()
		if end < vouched || len(l.Recovery().Damaged) > 0 {
			t.Fatalf("seed %d: it vouched for all up to %d; after a power cut it ends at %d: %+v", seed, vouched, end, l.Recovery())
		}
		mustRead(t, l, 1, end)
	}
}

// TestNothingIsVouchedForAfterAFailedSyncOfASealedSegment: the same for the sync of a segment's
// footer.
func TestNothingIsVouchedForAfterAFailedSyncOfASealedSegment(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 20)
	failingSync(fsys, "sync")
	l.Roll()
	_ = l.Flush()
	_ = d.Close()
	d = openDisk(t, fsys, "data", small)
	l = openLog(t, d, orders)
	put(t, l, 300)
	_, end, _ := l.Offsets()
	for seed := range uint64(20) {
		_, again, l := cutPower(t, fsys, d, seed, 1, small)
		if r := l.Recovery(); r.Suspect {
			t.Fatalf("seed %d: %+v", seed, r)
		}
		mustRead(t, l, 1, end)
		_ = again.Close()
	}
}

// TestACrashWhileATailIsWrittenAgain: power is cut at each step of opening a log whose last sync
// had failed: what was acknowledged before that sync is there, and what isn't there was never
// vouched for.
func TestACrashWhileATailIsWrittenAgain(t *testing.T) {
	for steps, over := 0, false; !over; steps++ {
		for seed := range uint64(10) {
			opts := small
			opts.SyncAllFrom = 1000
			fsys, d, l := setup(t, opts)
			put(t, l, 5)
			failingSync(fsys, "sync")
			refused(t, l)
			_ = d.Close()
			fsys.StopAfter(steps)
			vouched := uint64(6)
			d2, err := OpenDisk(fsys, "data", opts)
			if err == nil {
				l, err = d2.Open(orders, 1, 1, nil)
			}
			if err == nil {
				_, _, vouched = l.Offsets()
				over = vouched == 7
			} else if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatal(err)
			}
			after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(steps))))
			if d2 != nil {
				_ = d2.Close()
			}
			d = openDisk(t, after, "data", opts)
			l = openLog(t, d, orders)
			_, end, _ := l.Offsets()
			if end < vouched || len(l.Recovery().Damaged) > 0 {
				t.Fatalf("step %d, seed %d: ends at %d, vouched for %d: %+v", steps, seed, end, vouched, l.Recovery())
			}
			mustRead(t, l, 1, end)
			_ = d.Close()
		}
	}
}

// TestNothingVouchedForIsLost: syncs fail, processes are killed and restarted with their page cache
// or without its clean pages, and the power is cut, in any order and repeatedly. No record is lost
// that was acknowledged or that an opened log vouched for, and no torn record is taken for damage.
func TestNothingVouchedForIsLost(t *testing.T) {
	for seed := range uint64(300) {
		if err := syncStory(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func syncStory(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 23))
	fsys := crashfs.New()
	opts := Options{SegmentSmallest: 4 << 10, SegmentLargest: int64(4<<10) << rng.IntN(3), TailBytes: 1 + rng.Int64N(16<<10), SyncAllFrom: 1 + rng.IntN(3)}
	ids := []Identity{{Topic: "a"}, {Topic: "b", Shard: 3, Part: "state"}}
	models := []*model{newModel(), newModel()}
	for life := range uint64(6) {
		d, err := OpenDisk(fsys, "data", opts)
		if err != nil {
			return err
		}
		logs := make([]*Log, len(ids))
		for i, id := range ids {
			if logs[i], err = d.Open(id, 1, 1, nil); err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
			if err := models[i].check(logs[i]); err != nil {
				return fmt.Errorf("life %d, log %s: %w", life, id.Name(), err)
			}
		}
		var left atomic.Int32
		left.Store(int32(rng.IntN(40)))
		kind := []string{"sync", "syncall", "syncdir"}[rng.IntN(3)]
		fsys.SetHook(func(op opKind) error {
			if op.Kind == kind && left.Add(-1) == 0 {
				return syscall.EIO
			}
			return nil
		})
		if rng.IntN(3) == 0 {
			fsys.StopAfter(rng.IntN(120))
		}
		for range 100 {
			i := rng.IntN(len(logs))
			if err := models[i].step(t, logs[i], rng, life+1); err != nil {
				if !errors.Is(err, crashfs.ErrCrashed) && !errors.Is(err, syscall.EIO) {
					return fmt.Errorf("life %d, log %s: %w", life, ids[i].Name(), err)
				}
				break
			}
		}
		var after *crashfs.FS
		if rng.IntN(3) == 0 {
			after = fsys.Crash(rng)
		} else if after = fsys.Kill(); rng.IntN(2) == 0 {
			after.DropCache()
		}
		_ = d.Close()
		fsys = after
	}
	return nil
}
