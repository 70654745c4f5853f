package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// heldRound opens two logs on one disk and holds the committer in a round of the other log, so that
// all appends to l until release are one round.
func heldRound(t *testing.T, opts Options) (fsys *crashfs.FS, d *Disk, l *Log, release func()) {
	t.Helper()
	fsys, d, l = setup(t, opts)
	other := openLog(t, d, Identity{Topic: "other"})
	begun, gate := make(chan struct{}), make(chan struct{})
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && strings.HasSuffix(op.Path, segmentEnd) {
			close(begun)
			<-gate
		}
		return nil
	})
	if _, err := other.Append(&Append{Epoch: 1, Records: texts(1, 1)}); err != nil {
		t.Fatal(err)
	}
	<-begun
	fsys.SetHook(nil)
	return fsys, d, l, func() { close(gate) }
}

// TestATrimDoesNotRelyOnASegmentThatIsNotListed: a round seals a segment and then fails, so the
// manifest never lists that segment. A trim afterwards must not write a start that relies on it:
// the next life would take the segments for strange ones and set all records aside.
func TestATrimDoesNotRelyOnASegmentThatIsNotListed(t *testing.T) {
	fsys, d, l, release := heldRound(t, small)
	a := newAck()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 5), Durability: Memory}); err != nil {
		t.Fatal(err)
	}
	l.Roll()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(6, 1), Done: a}); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && strings.HasSuffix(op.Path, segmentName(6)) {
			return syscall.EIO
		}
		return nil
	})
	release()
	if err := a.wait(t, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal("acknowledged:", err)
	}
	fsys.SetHook(nil)
	start, err := l.Trim(3)
	if d.Failed() != nil || start != 1 || err == nil {
		t.Fatalf("trimmed to %d: %v; the disk: %v", start, err, d.Failed())
	}
	after := fsys.Kill()
	_ = d.Close()
	l = openLog(t, openDisk(t, after, "data", small), orders)
	if r := l.Recovery(); r.Strange || len(r.Damaged) > 0 {
		t.Fatalf("%+v", r)
	}
	mustRead(t, l, 1, 6)
}

// TestAChangeBehindAFailedSyncIsRefused: a change of the manifest waits while the committer syncs a
// round with new segments. The sync fails, so the manifest lacks these segments, and the change is
// refused.
func TestAChangeBehindAFailedSyncIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := small
		opts.SyncAllFrom = 1000
		fsys, d, l := setup(t, opts)
		begun, gate := make(chan struct{}), make(chan struct{})
		fsys.SetHook(func(op opKind) error {
			if op.Kind == "sync" && strings.HasSuffix(op.Path, segmentEnd) {
				close(begun)
				<-gate
				return syscall.EIO
			}
			return nil
		})
		a := newAck()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 5), Done: a}); err != nil {
			t.Fatal(err)
		}
		<-begun
		before := l.Meta()
		changed := make(chan error)
		go func() { changed <- l.SetSpec([]byte("more"), 2) }()
		synctest.Wait() // for the change to wait for the round
		fsys.SetHook(nil)
		close(gate)
		if err := <-changed; !errors.Is(err, syscall.EIO) {
			t.Errorf("changed: %v", err)
		}
		if err := a.wait(t, 1); !errors.Is(err, syscall.EIO) {
			t.Error("acknowledged:", err)
		}
		if m := l.Meta(); m.Epoch != before.Epoch {
			t.Errorf("the manifest is of epoch %d", m.Epoch)
		}
		_ = d.Close()
	})
}

// TestALostSegmentIsNoticedAfterItsFirstRound: a segment's first round is acknowledged, the power
// is cut before another sync, and the segment's file is lost. The log knows that it lacks these
// records: they are not taken for records that were never written.
func TestALostSegmentIsNoticedAfterItsFirstRound(t *testing.T) {
	for _, syncAllFrom := range []int{1, 1000} {
		for _, before := range []int{0, 5} {
			for seed := range uint64(20) {
				opts := small
				opts.SyncAllFrom = syncAllFrom
				fsys, d, l := setup(t, opts)
				put(t, l, before)
				l.Roll()
				put(t, l, 1)
				infos := l.SegmentInfos()
				lost := infos[len(infos)-1]
				if lost.Base != uint64(before+1) {
					t.Fatalf("the last segment begins at %d", lost.Base)
				}
				after := fsys.Crash(rand.New(rand.NewPCG(seed, 0)))
				_ = d.Close()
				if err := after.Remove(lost.File); err != nil {
					t.Fatal(err)
				}
				l = openLog(t, openDisk(t, after, "data", opts), orders)
				_, end, _ := l.Offsets()
				if r := l.Recovery(); end != lost.End || len(r.Damaged) != 1 || r.Damaged[0].From != lost.Base || r.Damaged[0].Next != lost.End {
					t.Fatalf("sync all from %d, seed %d: it ends at %d, and %d was acknowledged: %+v", syncAllFrom, seed, end, lost.Base, r)
				}
			}
		}
	}
}

// TestALostAdoptedSegmentIsNoticed: a crash falls between the sync of a segment's first records and
// its listing. The next process adopts the file, and vouches for its records. From then on the loss
// of the file is noticed, too.
func TestALostAdoptedSegmentIsNoticed(t *testing.T) {
	fsys, d, l := setup(t, small)
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && strings.HasSuffix(op.Path, manifestName) {
			return syscall.EIO
		}
		return nil
	})
	a := newAck()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 5), Done: a}); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal("acknowledged:", err)
	}
	fsys.SetHook(nil)
	after := fsys.Kill()
	_ = d.Close()
	d = openDisk(t, after, "data", small)
	l = openLog(t, d, orders)
	mustRead(t, l, 1, 6)
	file := fileOf(t, l, 1)
	after = after.Crash(rand.New(rand.NewPCG(1, 0)))
	_ = d.Close()
	if err := after.Remove(file); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDisk(t, after, "data", small), orders)
	if r := l.Recovery(); len(r.Damaged) != 1 || r.Damaged[0].From != 1 || r.Damaged[0].Next != 6 {
		t.Fatalf("%+v", r)
	}
}

// TestManyFirstRecordsAfterAStartShareTheirSyncs: a broker starts, and many of its logs get their
// first record at once. Their manifests are synced with the file system, not one by one.
func TestManyFirstRecordsAfterAStartShareTheirSyncs(t *testing.T) {
	for _, before := range []int{0, 3} { // records from before the start: a new segment, or only a new epoch is listed
		opts := small
		fsys, d, first := setup(t, opts)
		name := func(n int) Identity { return Identity{Topic: fmt.Sprint("topic-", n)} }
		const many = 40
		for n := range many {
			put(t, openLog(t, d, name(n)), before)
		}
		put(t, first, before)
		after := fsys.Kill()
		_ = d.Close()
		d = openDisk(t, after, "data", opts)
		first = openLog(t, d, orders)
		logs := make([]*Log, many)
		for n := range logs {
			logs[n] = openLog(t, d, name(n))
		}
		var syncs atomic.Int32
		begun, gate := make(chan struct{}), make(chan struct{})
		hold := sync.OnceFunc(func() { close(begun); <-gate })
		after.SetHook(func(op opKind) error {
			if op.Kind == "sync" && strings.HasSuffix(op.Path, segmentEnd) {
				hold() // while the next round gathers
			}
			if op.Kind == "sync" && strings.HasSuffix(op.Path, "/"+manifestName) {
				syncs.Add(1)
			}
			return nil
		})
		a := newAck()
		add := func(l *Log) {
			if _, err := l.Append(&Append{Epoch: 2, Records: texts(uint64(before)+1, 1), Done: a}); err != nil {
				t.Fatal(err)
			}
		}
		add(first)
		<-begun
		for _, l := range logs {
			add(l)
		}
		close(gate)
		if err := a.wait(t, many+1); err != nil {
			t.Fatal(err)
		}
		if n := syncs.Load(); n > 4 { // two of the first log, and one that confirms the sync of all
			t.Errorf("%d records before: %d syncs of %d manifests", before, n, many)
		}
		// What was acknowledged is listed, and the manifests are durable.
		cut := after.Crash(rand.New(rand.NewPCG(1, uint64(before))))
		_ = d.Close()
		d = openDisk(t, cut, "data", opts)
		for n := range many {
			l := openLog(t, d, name(n))
			mustRead(t, l, 1, uint64(before)+2)
			if r := l.Recovery(); r.Strange || len(r.Damaged) > 0 {
				t.Errorf("%+v", r)
			}
			if e := l.Epochs(); len(e) == 0 || e[len(e)-1].Epoch != 2 {
				t.Errorf("epochs %v after the crash", e)
			}
		}
	}
}
