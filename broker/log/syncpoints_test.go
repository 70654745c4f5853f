package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// writesTo counts the writes to segment files.
func writesTo(fsys *crashfs.FS) func() int {
	var mu sync.Mutex
	n := 0
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && strings.HasSuffix(op.Path, segmentEnd) {
			mu.Lock()
			n++
			mu.Unlock()
		}
		return nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// killed is what a process finds that is started again after a kill: all that was written, synced
// or not. The old one may go on; nobody sees it.
func killed(fsys *crashfs.FS, d *Disk) *crashfs.FS {
	after := fsys.Kill()
	_ = d.Close()
	return after
}

// TestOnlyTheLastRoundIsRewrittenAfterAKill: many logs are killed. Records that the journal proves
// are not rewritten: only those of the last round, and not even these after the disk was idle.
func TestOnlyTheLastRoundIsRewrittenAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, d, _ := setup(t, Options{})
		logs := make([]*Log, 300)
		for i := range logs {
			logs[i] = openLog(t, d, Identity{Topic: "many", Shard: i})
			put(t, logs[i], 2)
		}
		time.Sleep(pointsEvery)
		put(t, logs[7], 1)
		writes := func(fsys *crashfs.FS) int {
			count := writesTo(fsys)
			d := openDisk(t, fsys, "data", Options{})
			for i := range logs {
				l := openLog(t, d, Identity{Topic: "many", Shard: i})
				if l.Recovery().Suspect {
					t.Errorf("%+v", l.Recovery())
				}
			}
			n := count()
			_ = d.Close()
			return n
		}
		if n := writes(fsys.Clone()); n != 1 {
			t.Errorf("%d segments were written again, and one was written in the last round", n)
		}
		time.Sleep(2 * closingIdle)
		synctest.Wait()
		if n := writes(fsys.Clone()); n != 0 {
			t.Errorf("%d segments were written again, and the disk was idle", n)
		}
		// The journal is synced by then, so a power cut leaves it.
		if n := writes(fsys.Crash(rand.New(rand.NewPCG(1, 1)))); n != 0 {
			t.Errorf("%d segments were written again after a power cut, and the disk was idle", n)
		}
	})
}

// TestATailIsWrittenAgainOnce: a tail that opening wrote again is proven, so it is not written
// again after a second kill.
func TestATailIsWrittenAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, d, l := setup(t, Options{})
		put(t, l, 1) // the manifest says that the round was safe that began the segment
		put(t, l, 4)
		fsys = killed(fsys, d)
		for _, want := range []int{1, 0} {
			count := writesTo(fsys)
			d := openDisk(t, fsys, "data", Options{})
			mustRead(t, openLog(t, d, orders), 1, 6)
			time.Sleep(2 * closingIdle)
			synctest.Wait()
			if n := count(); n != want {
				t.Errorf("%d writes, want %d", n, want)
			}
			fsys = killed(fsys, d)
		}
	})
}

// TestAClosedLogHasNoTornTail: a sector of the last round is lost after it was synced. It looks
// torn until the disk has been idle, or another round has followed, which proves that it is damage.
// No offset is assigned twice.
func TestAClosedLogHasNoTornTail(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fsys, d, l := setup(t, Options{})
			put(t, l, 1) // the manifest says that the round was safe that began the segment
			put(t, l, 19)
			if closed {
				time.Sleep(2 * closingIdle)
				synctest.Wait()
			}
			path, end := firstFile(t, l), d.position(l)
			fsys = fsys.Crash(rand.New(rand.NewPCG(3, 3)))
			_ = d.Close()
			wipe(t, fsys, path, end-1)
			l = openLog(t, openDisk(t, fsys, "data", Options{}), orders)
			r := l.Recovery()
			if _, end, _ := l.Offsets(); closed && (len(r.Damaged) == 0 || r.Cut > 0 || end != 21) || !closed && (len(r.Damaged) > 0 || r.Cut == 0 || end == 21) {
				t.Errorf("closed %t: ends at %d: %+v", closed, end, r)
			}
			_ = l.disk.Close()
		})
	}
}

// wipe overwrites the sector at a position with zeros, as a disk that lost a write has it.
func wipe(t testing.TB, fsys *crashfs.FS, path string, pos int64) {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(zeros[:sectorSize], pos-pos%sectorSize); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestLogsOpenWithoutTheJournal: each log opens with all its records if the journal is missing,
// damaged anywhere, of another disk, or without space.
func TestLogsOpenWithoutTheJournal(t *testing.T) {
	fsys, d, l := setup(t, small)
	other := openLog(t, d, Identity{Topic: "other"})
	for range 30 {
		put(t, l, 1)
		put(t, other, 2)
	}
	base := fsys.Kill()
	_ = d.Close()
	rng := rand.New(rand.NewPCG(2, 9))
	for n := range 300 {
		fsys := base.Clone()
		path := filepath.Join("data", pointsName+fmt.Sprint(n%2))
		switch {
		case n < 4:
			for i := range n + 1 {
				_ = fsys.Remove(filepath.Join("data", pointsName+fmt.Sprint(i%2)))
			}
			if n > 1 {
				fsys.SetCapacity(1)
			}
		case n < 250:
			if err := fsys.Flip(path, rng.Int64N(8*2000)); err != nil {
				t.Fatal(err)
			}
		default:
			f, err := fsys.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(sparsePayload(rng, 3000), rng.Int64N(3000)); err != nil {
				t.Fatal(err)
			}
		}
		d := openDisk(t, fsys, "data", small)
		l, other := openLog(t, d, orders), openLog(t, d, Identity{Topic: "other"})
		if l.Recovery().Suspect || other.Recovery().Suspect {
			t.Fatalf("%d: %+v %+v", n, l.Recovery(), other.Recovery())
		}
		mustRead(t, l, 1, 31)
		mustRead(t, other, 1, 61)
		fsys.SetCapacity(0)
		put(t, l, 3)
		_ = d.Close()
	}
}

// TestTheJournalAlternatesBetweenItsFiles: the journal alternates between two files, and grows with
// the number of logs. After a kill it knows every sync point of the existing files.
func TestTheJournalAlternatesBetweenItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, d, _ := setup(t, Options{})
		logs := make([]*Log, 400)
		for i := range logs {
			logs[i] = openLog(t, d, Identity{Topic: "many", Shard: i})
		}
		turn := d.journal.turn
		for range 18 {
			time.Sleep(pointsEvery)
			a := newAck()
			for _, l := range logs {
				_, end, _ := l.Offsets()
				if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: a}); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.wait(t, len(logs)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(pointsEvery)
		put(t, logs[0], 1)
		fsys = killed(fsys, d)
		d = openDisk(t, fsys, "data", Options{})
		if now := d.journal.turn; now < turn+2 {
			t.Errorf("turn %d after %d", now, turn)
		}
		for i := range logs[1:] {
			l := openLog(t, d, Identity{Topic: "many", Shard: i + 1})
			s := l.segments[0]
			if p := d.points.of(l.secret, s.base, s.file); p.pos != s.pos || p.end != 19 {
				t.Fatalf("log %d: %+v, and the file has %d bytes", i+1, p, s.pos)
			}
		}
		for n := range 2 {
			info, err := fsys.Stat(filepath.Join("data", pointsName+fmt.Sprint(n)))
			if err != nil || info.Size > pointsTimes*(pointsGroup+400*pointsEntry) {
				t.Errorf("journal file %d: %+v %v", n, info, err)
			}
		}
		_ = d.Close()
	})
}

// TestATruncationEndsTheSyncPointsOfItsFile: power is cut during a truncation whose segment has a
// sync point behind the cut: the disk has the new end of the file and its old beginning. In no
// later life does the sync point prove truncated records.
func TestATruncationEndsTheSyncPointsOfItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := Options{SyncAllFrom: 1000}
		fsys, d, l := setup(t, opts)
		put(t, l, 10)
		time.Sleep(2 * closingIdle) // the journal has a sync point at offset 11
		synctest.Wait()
		path := firstFile(t, l)
		header := make([]byte, headerSize)
		read, err := fsys.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := readFull(read, header, 0); err != nil {
			t.Fatal(err)
		}
		cut := beforeSync(fsys, path)
		if _, _, err := l.TruncateTo(4, 0); err != nil {
			t.Fatal(err)
		}
		_ = d.Close()
		fsys = cut()
		write, err := fsys.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write.WriteAt(header, 0); err != nil {
			t.Fatal(err)
		}
		// In the second life a segment is begun at offset 4. The manifest lists it, and its file is
		// lost.
		d = openDisk(t, fsys, "data", opts)
		l = openLog(t, d, orders)
		if _, end, _ := l.Offsets(); end != 4 || l.Recovery().Suspect {
			t.Fatalf("ends at %d: %+v", end, l.Recovery())
		}
		next := filepath.Join(l.dir, SegmentRef{Base: 4, Generation: l.Meta().Generation}.name())
		cut = beforeSync(fsys, next)
		put(t, l, 1)
		_ = d.Close()
		fsys = cut()
		if err := fsys.Remove(next); err != nil {
			t.Fatal(err)
		}
		lost := fsys.Clone()
		d = openDisk(t, fsys, "data", opts)
		l = openLog(t, d, orders)
		if _, end, _ := l.Offsets(); end != 4 || l.Recovery().Suspect {
			t.Errorf("ends at %d: %+v", end, l.Recovery())
		}
		mustRead(t, l, 1, 4)
		put(t, l, 1)
		_ = d.Close()
		// The same, and the truncated file is lost: with the records that were left in it, and no
		// others.
		if err := lost.Remove(path); err != nil {
			t.Fatal(err)
		}
		d = openDisk(t, lost, "data", opts)
		l = openLog(t, d, orders)
		if r := l.Recovery(); l.end != 4 || len(r.Damaged) != 1 || r.Damaged[0].From != 1 || r.Damaged[0].Next != 4 {
			t.Errorf("ends at %d: %+v", l.end, r)
		}
		_ = d.Close()
	})
}

// beforeSync returns what a process finds that is started after a kill right before the next sync
// of a file.
func beforeSync(fsys *crashfs.FS, path string) func() *crashfs.FS {
	var mu sync.Mutex
	var at *crashfs.FS
	fsys.SetHook(func(op opKind) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == "sync" && op.Path == path && at == nil {
			at = fsys.Clone()
		}
		return nil
	})
	return func() *crashfs.FS {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

// TestTheJournalKnowsTheWatermark: the watermark that is noted while a log is written, or soon
// after, is known after a kill, and after a power cut once the disk was idle. It is never above the
// noted one, and never covers records that replaced committed ones.
func TestTheJournalKnowsTheWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, d, l := setup(t, Options{SegmentSmallest: 4 << 10, SegmentLargest: 4 << 10})
		if w := l.Watermark(); w != 0 {
			t.Errorf("%d, and nothing was noted", w)
		}
		again := func(of *crashfs.FS) uint64 {
			t.Helper()
			d := openDisk(t, of, "data", Options{})
			defer d.Close()
			return openLog(t, d, orders).Watermark()
		}
		put(t, l, 10)
		l.NoteWatermark(8)
		if w := again(fsys.Clone()); w > 8 {
			t.Errorf("%d, and 8 was noted after the last round", w)
		}
		time.Sleep(pointsEvery)
		put(t, l, 1)
		if w := again(fsys.Clone()); w != 8 {
			t.Errorf("%d, and 8 was noted before the last round began", w)
		}
		l.NoteWatermark(100) // more than there is
		if w := l.Watermark(); w != 12 {
			t.Errorf("%d of a log that ends at 12", w)
		}
		l.NoteWatermark(12)
		time.Sleep(2 * closingIdle)
		synctest.Wait()
		if w := again(fsys.Clone().Crash(rand.New(rand.NewPCG(1, 1)))); w != 12 {
			t.Errorf("%d after a power cut, and 12 was noted before the disk was idle", w)
		}

		// The watermark moves while the disk is idle.
		put(t, l, 1)
		time.Sleep(2 * closingIdle)
		l.NoteWatermark(13)
		time.Sleep(2 * closingIdle)
		synctest.Wait()
		if w := again(fsys.Clone().Crash(rand.New(rand.NewPCG(2, 1)))); w != 13 {
			t.Errorf("%d after a power cut, and 13 was noted while the disk was idle", w)
		}

		// Other records take the place of those from 6 on.
		if _, _, err := l.TruncateTo(6, 13); err != nil {
			t.Fatal(err)
		}
		if w := l.Watermark(); w != 6 {
			t.Errorf("%d of a log that was truncated to 6", w)
		}
		if w := again(fsys.Clone().Crash(rand.New(rand.NewPCG(3, 1)))); w != 6 {
			t.Errorf("%d of a log that was truncated to 6, after a power cut", w)
		}
		put(t, l, 10)
		if w := l.Watermark(); w != 6 {
			t.Errorf("%d after a truncation to 6", w)
		}
		for _, idle := range []time.Duration{0, pointsEvery, 2 * closingIdle} {
			time.Sleep(idle)
			synctest.Wait()
			put(t, l, 1)
			if w := again(fsys.Clone()); w != 6 {
				t.Errorf("%d, and the records below 6 are still those that were committed", w)
			}
		}

		// A new segment has sync points of its own. What was known before counts.
		_, end, _ := l.Offsets()
		l.NoteWatermark(end)
		time.Sleep(pointsEvery)
		put(t, l, 1)
		for n := len(l.segments); len(l.segments) < n+2; {
			put(t, l, 1)
		}
		if w := again(fsys.Clone()); w != end {
			t.Errorf("%d, and %d was noted in an earlier segment", w, end)
		}
		if _, err := l.ResetTo(end, 0); err != nil {
			t.Fatal(err)
		}
		put(t, l, 10)
		time.Sleep(2 * closingIdle)
		synctest.Wait()
		if w := again(fsys.Clone()); w != 0 || l.Watermark() != 0 {
			t.Errorf("%d and %d of a log that began anew", w, l.Watermark())
		}
		_ = d.Close()
	})
}

// TestAFailedSyncIsNoSyncPoint: a failed sync is no sync point, for any log of the round.
func TestAFailedSyncIsNoSyncPoint(t *testing.T) {
	for seed := range uint64(20) {
		fsys, d, l := setup(t, Options{SyncAllFrom: 1 + int(seed%2)})
		put(t, l, 3)
		kind := []string{"syncall", "sync"}[seed%2]
		failingSync(fsys, kind)
		refused(t, l)
		if err := l.Flush(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		s := l.segments[0]
		fsys = killed(fsys, d)
		d = openDisk(t, fsys, "data", Options{})
		if p := d.points.of(l.secret, s.base, s.file); p.end > 4 {
			t.Errorf("%+v", p)
		}
		_ = d.Close()
	}
}
