package log

import (
	"bytes"
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
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.settle()
	l.mu.Unlock()
	fsys = killed(fsys, d)
	info, err := fsys.Stat(path)
	if err != nil || info.Size <= footer {
		t.Fatalf("no footer behind byte %d of %d: %v", footer, info.Size, err)
	}
	return fsys, path, footer, info.Size, int64(epochs) + 1
}

// Power is cut while a segment is sealed, and any one sector of the footer isn't on the disk,
// wherever the footer stands. No record is damaged by that: the footer is cut, and appends go on.
func TestATornFooterIsNeverTakenForDamage(t *testing.T) {
	for n := range sectorSize {
		epochs := uint64(1)
		if n%8 == 0 {
			epochs = 80 // a footer of more than two sectors
		}
		base, path, footer, size, end := sealedOnce(t, n, epochs)
		for from := footer; from < size; {
			until := min(from-from%sectorSize+sectorSize, size)
			fsys := base.Clone()
			f, err := fsys.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(zeros[:until-from], from); err != nil {
				t.Fatal(err)
			}
			d := openDisk(t, fsys, "data", Options{})
			l := openLog(t, d, orders)
			if r := l.Recovery(); len(r.Damaged) > 0 || l.end != uint64(end) {
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
}

// A bit of a footer is flipped after it was written as a whole. That is damage: nothing is cut, and
// every record is read.
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
