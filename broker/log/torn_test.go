package log

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// sealedOnce returns a disk whose log was killed right after its only segment was sealed, and where
// the footer of that stands. The last record has n bytes. There is a record in each epoch.
func sealedOnce(t *testing.T, n int, epochs uint64) (fsys *crashfs.FS, path string, footer, size, end int64) {
	t.Helper()
	fsys, d, l := setup(t, Options{SyncAllFrom: 1000})
	a := newAck()
	for epoch := uint64(1); epoch <= epochs; epoch++ {
		data := "record"
		if epoch == epochs {
			data = string(bytes.Repeat([]byte("x"), n))
		}
		if _, err := l.Append(&Append{Epoch: epoch, Records: []Record{record(data)}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, int(epochs)); err != nil {
		t.Fatal(err)
	}
	path, footer = firstFile(t, l), d.position(l)
	sealNow(t, l)
	fsys = killed(fsys, d)
	info, err := fsys.Stat(path)
	if err != nil || info.Size <= footer {
		t.Fatalf("no footer behind byte %d of %d: %v", footer, info.Size, err)
	}
	return fsys, path, footer, info.Size, int64(epochs) + 1
}

// TestATornFooterIsNeverTakenForDamage: power is cut while a segment is sealed, and any one sector
// of the footer isn't on the disk, wherever the footer stands. No record is damaged by that: the
// footer is cut, and appends go on.
func TestATornFooterIsNeverTakenForDamage(t *testing.T) {
	for n := range sectorSize {
		epochs := uint64(1)
		if n%8 == 0 {
			epochs = 80 // a footer of more than two sectors
		}
		base, path, footer, size, end := sealedOnce(t, n, epochs)
		tearFooter(t, base, path, footer, size, uint64(end))
	}
}

// tearFooter opens the log with each sector's part of a footer missing in turn, and appends to it.
func tearFooter(t *testing.T, base *crashfs.FS, path string, footer, size int64, end uint64) {
	t.Helper()
	for from := footer; from < size; {
		until := min(from-from%sectorSize+sectorSize, size)
		fsys := base.Clone()
		clearBytes(t, fsys, path, from, until)
		d := openDisk(t, fsys, "data", Options{})
		l := openLog(t, d, orders)
		if r := l.Recovery(); len(r.Damaged) > 0 || l.end != end {
			t.Fatalf("bytes %d to %d of a footer from %d to %d were not written: ends at %d: %+v", from, until, footer, size, l.end, r)
		}
		if _, err := readAll(l, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(&Append{Epoch: 100, Records: texts(1, 1)}); err != nil {
			t.Fatal(err)
		}
		_ = d.Close()
		from = until
	}
}

// clearBytes overwrites a range of at most a sector with zeros, as if it had not been written.
func clearBytes(t *testing.T, fsys *crashfs.FS, path string, from, until int64) {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(zeros[:until-from], from); err != nil {
		t.Fatal(err)
	}
}

// TestAFooterBehindATornRunMayBeTornToo: a run of two batches is torn in the second one. That batch
// is cut, the segment is sealed there, and the footer is torn as well. The run's marker is still
// there and covers the footer's bytes: the footer must not be taken for a damaged batch because of
// it.
func TestAFooterBehindATornRunMayBeTornToo(t *testing.T) {
	for n := range sectorSize {
		fsys, path, footer, size := sealedBehindATornRun(t, n)
		if fsys != nil {
			tearFooter(t, fsys, path, footer, size, 3)
		}
	}
}

// sealedBehindATornRun returns a disk whose log was killed right after its segment was sealed, and
// the position of the segment's footer. Recovery had cut the second batch of a run there, since its
// last sector was missing. The first batch is longer by n bytes. It returns nil if the
// second batch fits into one sector.
func sealedBehindATornRun(t *testing.T, n int) (after *crashfs.FS, path string, footer, size int64) {
	t.Helper()
	fsys, d, l := setup(t, Options{SyncAllFrom: 1000})
	gate, reached := make(chan struct{}), make(chan struct{})
	var syncs atomic.Int32
	var unsynced *crashfs.FS // what a kill leaves right before the run is synced
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "sync" && strings.HasSuffix(op.Path, segmentEnd) {
			switch syncs.Add(1) {
			case 1:
				close(reached)
				<-gate
			case 2:
				unsynced = fsys.Clone()
			}
		}
		return nil
	})
	a := newAck()
	add := func(size int) {
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{record(string(bytes.Repeat([]byte("x"), size)))}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	add(1)
	<-reached // what is appended from here on is one run of the next round
	add(300 + n)
	at := d.position(l)
	add(300)
	end := d.position(l)
	close(gate)
	if err := a.wait(t, 3); err != nil {
		t.Fatal(err)
	}
	path = firstFile(t, l)
	_ = d.Close()
	fsys = unsynced
	torn := (end - 1) - (end-1)%sectorSize
	if torn <= at {
		return nil, "", 0, 0
	}
	clearBytes(t, fsys, path, torn, end)
	d = openDisk(t, fsys, "data", Options{SyncAllFrom: 1000})
	l = openLog(t, d, orders)
	if r := l.Recovery(); r.Cut == 0 || l.end != 3 || d.position(l) != at {
		t.Fatalf("ends at %d, byte %d instead of %d: %+v", l.end, d.position(l), at, r)
	}
	sealNow(t, l)
	after = killed(fsys, d)
	info, err := after.Stat(path)
	if err != nil || info.Size <= at {
		t.Fatalf("no footer behind byte %d of %d: %v", at, info.Size, err)
	}
	return after, path, at, info.Size
}

// TestADamagedFooterIsNeverTakenForTorn: a bit of a complete footer flips. That is damage: nothing
// is cut, and every record is read.
func TestADamagedFooterIsNeverTakenForTorn(t *testing.T) {
	for _, epochs := range []uint64{1, 80} {
		base, path, footer, size, end := sealedOnce(t, 300, epochs)
		step := int64(1)
		if epochs > 1 {
			step = 13 // every byte in turn, and each of its bits
		}
		for bit := footer * 8; bit < size*8; bit += step {
			fsys := base.Clone()
			if err := fsys.Flip(path, bit); err != nil {
				t.Fatal(err)
			}
			d := openDisk(t, fsys, "data", Options{})
			l := openLog(t, d, orders)
			if r := l.Recovery(); r.Cut > 0 || l.end != uint64(end) {
				t.Fatalf("bit %d of byte %d of a footer from %d to %d: ends at %d: %+v", bit%8, bit/8, footer, size, l.end, r)
			}
			if _, err := readAll(l, 1); err != nil {
				t.Fatal(err)
			}
			_ = d.Close()
		}
	}
}

// sealNow ends the segment of l, and waits until its footer is written.
func sealNow(t *testing.T, l *Log) {
	t.Helper()
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
}
