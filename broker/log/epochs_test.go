package log

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestEpochsOfALostManifest: the first record of an epoch is damaged. The manifest says where the
// epoch begins. If the manifest is lost, and the segment's footer, too, the header of the damaged
// batch says it. If that is lost as well, the log takes the next record for the beginning. Without
// its manifest the log doesn't know its epochs, until it is reset.
func TestEpochsOfALostManifest(t *testing.T) {
	for name, at := range map[string]struct {
		footer, manifest bool
		bits             []int64 // of the batch
	}{
		"the record":                               {false, false, payload},
		"the record and the footer":                {true, false, payload},
		"the record and the manifest":              {false, true, payload},
		"the record, the footer and the manifest":  {true, true, payload},
		"its epoch, which seems to be that before": {true, true, []int64{16 * 8, 16*8 + 1}},
		"a bit of its epoch":                       {true, true, []int64{16*8 + 5}},
		"a bit of its offset":                      {true, true, []int64{24*8 + 2}},
		"a bit of its span":                        {true, true, []int64{12*8 + 9}},
		"a bit of its length":                      {true, true, []int64{3}},
		"a bit of its checksum":                    {true, true, []int64{4*8 + 6}},
		"its header":                               {true, true, header},
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
			flipBatch(t, fsys, info.File, begin.Start, at.bits...)
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
				if at.manifest && at.footer && len(at.bits) > 1 && !slices.Equal(at.bits, body) {
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

// TestADamagedBatchDoesNotBeginALaterEpoch: bits of the last record of an epoch are damaged, and
// the manifest and the footer are lost. Whatever its header says, the next epoch begins where it
// did.
func TestADamagedBatchDoesNotBeginALaterEpoch(t *testing.T) {
	for name, bits := range map[string][]int64{
		"its payload":               payload,
		"its epoch is that of next": {16 * 8}, // 2 becomes 3
		"its header":                header,
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l, _ := replicas(t, 600)
			want := l.Epochs()
			last := want[2].Start - 1
			infos := l.SegmentInfos()
			info := infos[slices.IndexFunc(infos, func(s SegmentInfo) bool { return s.Base <= last && last < s.End })]
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			flipBatch(t, fsys, info.File, last, bits...)
			file, err := fsys.Stat(info.File)
			if err := errors.Join(err, fsys.Flip(info.File, (file.Size-100)*8), fsys.Remove(d.logDir("orders-0")+"/"+manifestName)); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, d, orders)
			if got := l.Epochs(); !slices.Equal(got, want) || len(l.Recovery().Damaged) == 0 {
				t.Errorf("the epochs are %v, and were %v", got, want)
			}
		})
	}
}

// Bits of a batch of one record.
var (
	payload = []int64{batchHeader*8 + 60}
	body    = []int64{batchHeader*8 + 60, batchHeader*8 + 71} // two bits
	header  = []int64{12*8 + 3, 16*8 + 7, 24*8 + 1}           // span, epoch and base offset
)

// flipBatch flips bits of the batch from an offset.
func flipBatch(t *testing.T, fsys *crashfs.FS, file string, offset uint64, bits ...int64) {
	t.Helper()
	f, err := fsys.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := newFrames(f)
	if err != nil {
		t.Fatal(err)
	}
	for pos := int64(0); ; {
		found, err := r.next(pos)
		if err != nil {
			t.Fatal(err)
		}
		if found.kind() == kindBatch && Batch(found).Base() == offset {
			for _, bit := range bits {
				if err := fsys.Flip(file, pos*8+bit); err != nil {
					t.Fatal(err)
				}
			}
			return
		}
		pos += int64(len(found))
	}
}

// TestAnEpochBehindDamageThatTheManifestDoesNotList: a round without a sync lists no epochs. The
// process is killed after the first records of one, and damage hides where it begins.
func TestAnEpochBehindDamageThatTheManifestDoesNotList(t *testing.T) {
	for name, at := range map[string]struct {
		offset uint64
		bits   []int64
		knows  bool
	}{
		"the first record of the epoch":           {4, payload, true},
		"the first record and its batch's header": {4, header, false},
		"the second one":                          {5, header, true},
		"the last one before":                     {3, payload, false}, // it may be of that epoch, too
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
			flipBatch(t, after, file, at.offset, at.bits...)
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

// TestNotedEpochsStay: what another replica's log says of where an epoch begins is kept, unless
// this log has an earlier record of that epoch.
func TestNotedEpochsStay(t *testing.T) {
	_, d, l, _ := replicas(t, 600)
	begin := l.Epochs()[1]
	for _, e := range []Epoch{{begin.Epoch, begin.Start - 2}, {begin.Epoch, begin.Start + 9}} {
		if err := l.NoteEpochs([]Epoch{e}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if epoch, _ := l.EpochAt(begin.Start - 2); epoch != begin.Epoch || len(l.Epochs()) != 3 {
			t.Errorf("the epochs are %v", l.Epochs())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, d, orders)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.NoteEpochs([]Epoch{begin}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed log notes: %v", err)
	}
}

// TestADamagedBatchProvesItsEpoch: one wrong bit anywhere in a batch leaves its epoch known, and
// more wrong bits don't.
func TestADamagedBatchProvesItsEpoch(t *testing.T) {
	batch := appendBatch(make([]byte, 0, 1<<10), 7, 41, texts(41, 3), nil)
	for bit := 4 * 8; bit < len(batch)*8; bit++ {
		damaged := bytes.Clone(batch)
		damaged[bit/8] ^= 1 << (bit % 8)
		if epoch, _, proven := announcedEpoch(damaged, 41, 44); epoch != 7 || !proven {
			t.Fatalf("with bit %d wrong the epoch is %d, %v", bit, epoch, proven)
		}
		other := (bit+77)%(len(batch)*8-32) + 32
		damaged[other/8] ^= 1 << (other % 8)
		if _, _, proven := announcedEpoch(damaged, 41, 44); proven {
			t.Fatalf("with bits %d and %d wrong the epoch is proven", bit, other)
		}
	}
}
