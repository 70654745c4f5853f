package log

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestEpochsOfALostManifest: the first record of an epoch is damaged. The manifest says where the
// epoch begins. If the manifest is lost, and the segment's footer, too, the log takes the next
// record for the beginning. After that it doesn't know its epochs, until it is reset.
func TestEpochsOfALostManifest(t *testing.T) {
	for name, at := range map[string]struct{ footer, manifest bool }{
		"the record":                              {false, false},
		"the record and the footer":               {true, false},
		"the record and the manifest":             {false, true},
		"the record, the footer and the manifest": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l, _ := replicas(t, 600)
			begin := l.Epochs()[1]
			infos := l.SegmentInfos()
			has := func(s SegmentInfo) bool { return s.Base <= begin.Start && begin.Start < s.End }
			info := infos[slices.IndexFunc(infos, has)]
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			flipRecord(t, fsys, info.File, begin.Start)
			file, err := fsys.Stat(info.File)
			if err != nil {
				t.Fatal(err)
			}
			if at.footer {
				err = fsys.Flip(info.File, (file.Size-100)*8)
			}
			if at.manifest {
				err = errors.Join(err, fsys.Remove(d.logDir("orders-0")+"/"+manifestName))
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				l = openLog(t, d, orders)
				epoch, until := l.EpochAt(begin.Start)
				if l.KnowsEpochs() == at.manifest {
					t.Errorf("it knows its epochs: %v", l.KnowsEpochs())
				}
				want, next := begin.Epoch, l.Epochs()[2].Start
				if at.manifest && at.footer {
					want, next = begin.Epoch-1, begin.Start+1
				}
				if epoch != want || until != next {
					t.Errorf("the epoch is %d up to %d, and not %d up to %d", epoch, until, want, next)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			l = openLog(t, d, orders)
			if _, err := l.ResetTo(5, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(&Append{Epoch: 9, Records: texts(5, 1)}); err != nil {
				t.Fatal(err)
			}
			if epoch, until := l.EpochAt(5); !l.KnowsEpochs() || epoch != 9 || until != 6 {
				t.Errorf("after a reset the epoch is %d up to %d, %v", epoch, until, l.KnowsEpochs())
			}
			if epoch, _ := l.EpochAt(6); epoch > 0 {
				t.Errorf("a record that is not there is of epoch %d", epoch)
			}
		})
	}
}

// TestAnEpochBehindDamageThatTheManifestDoesNotList: a round without a sync lists no epochs. The
// process is killed after the first records of one, and damage hides where it begins.
func TestAnEpochBehindDamageThatTheManifestDoesNotList(t *testing.T) {
	for name, at := range map[string]struct {
		offset uint64
		knows  bool
	}{
		"the first record of the epoch": {4, false},
		"the second one":                {5, true},
		"the last one before":           {3, false}, // it may be of that epoch, too
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, small)
			put(t, l, 3)
			done := newAck()
			for offset := uint64(4); offset < 8; offset++ {
				_, err := l.Append(&Append{Epoch: 2, Records: texts(offset, 1), Durability: Replicated, Done: done})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := done.wait(t, 4); err != nil {
				t.Fatal(err)
			}
			file := l.SegmentInfos()[0].File
			after := fsys.Kill()
			_ = d.Close()
			flipRecord(t, after, file, at.offset)
			for range 2 {
				d = openDisk(t, after, "data", small)
				if l = openLog(t, d, orders); l.KnowsEpochs() != at.knows {
					t.Errorf("it knows its epochs: %v, %v", l.KnowsEpochs(), l.Epochs())
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// flipRecord flips a bit of a record that fill has made.
func flipRecord(t *testing.T, fsys *crashfs.FS, file string, offset uint64) {
	t.Helper()
	f, err := fsys.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	if err := readFull(f, data, 0); err != nil {
		t.Fatal(err)
	}
	pos := bytes.Index(data, fmt.Appendf(nil, "record %d", offset))
	if err := fsys.Flip(file, int64(pos)*8); err != nil {
		t.Fatal(err)
	}
}
