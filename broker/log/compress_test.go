package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// squeezable makes segments of sixty records, which are large enough to be compressed.
var squeezable = Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10}

// squeeze compresses what there is, and returns what that saved.
func squeeze(t testing.TB, l *Log) int64 {
	t.Helper()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	saved, err := l.Compress(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// onDisk is how many bytes a log's segments have.
func onDisk(t *testing.T, fsys env.FS, l *Log) (n int64) {
	t.Helper()
	names, err := fsys.List(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name == metaName || name == manifestName {
			continue
		}
		if _, ok := segmentFile(name); !ok {
			t.Errorf("%s is left", name)
		}
		info, err := fsys.Stat(l.dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size
	}
	return n
}

// batchesOf is all batches from an offset on, back to back.
func batchesOf(t *testing.T, l *Log, from uint64) (all []byte) {
	t.Helper()
	for c := l.NewCursor(from); ; {
		v, err := c.Read(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if v.End == v.From {
			return all
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			all = append(all, b...)
		}
		v.Release()
	}
}

func TestCompressionIsInvisibleToReaders(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 2000)
	for infos := l.SegmentInfos(); infos[len(infos)-1].End-infos[len(infos)-1].Base < 80; infos = l.SegmentInfos() {
		put(t, l, 10) // lest the last one is so small that it isn't compressed
	}
	_, end, _ := l.Offsets()
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	before, batches, infos := l.Stats(), batchesOf(t, l, 1), l.SegmentInfos()
	saved := squeeze(t, l)
	s := l.Stats()
	if saved < before.Bytes/2 || s.Bytes != before.Bytes-saved || s.Saved != saved || s.Compressed != s.Segments || s.Segments != before.Segments {
		t.Fatalf("%d bytes were saved: %+v, before %+v", saved, s, before)
	}
	if n := onDisk(t, fsys, l); n != s.Bytes {
		t.Errorf("%d bytes on the disk, %d are told", n, s.Bytes)
	}
	if again := squeeze(t, l); again != 0 {
		t.Error("what is compressed was compressed again")
	}
	for life := range 3 {
		if !bytes.Equal(batchesOf(t, l, 1), batches) {
			t.Fatal("the batches are others")
		}
		for i, info := range l.SegmentInfos() {
			if was := infos[i]; info.Base != was.Base || info.End != was.End || info.First != was.First || info.Last != was.Last || info.Bytes >= was.Bytes {
				t.Fatalf("life %d: %+v was %+v", life, info, was)
			}
		}
		for from := uint64(1); from < end; from += 97 {
			mustRead(t, l, from, end)
		}
		if found, err := scrubAll(l); err != nil || len(found) > 0 {
			t.Error(found, err)
		}
		if got := l.Epochs(); len(got) != 1 {
			t.Error(got)
		}
		if st := l.Stats(); st.Bytes != s.Bytes || st.Saved != saved {
			t.Errorf("life %d: %+v", life, st)
		}
		_ = d.Close()
		d = openDisk(t, fsys, "data", small)
		l = openLog(t, d, orders)
		if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 {
			t.Errorf("%+v", r)
		}
	}
	put(t, l, 500)
	mustRead(t, l, 1, end+500)
	// Retention counts what the disk holds: of so small segments many are left.
	bound := l.Stats().Bytes / 2
	start, err := l.Retain(time.Unix(2, 0), Retention{Bytes: bound})
	if err != nil || start == 1 {
		t.Fatal(start, err)
	}
	if n := l.Stats().Bytes; n < bound || n > bound+4*small.SegmentLargest {
		t.Errorf("%d bytes are left of a bound of %d", n, bound)
	}
	mustRead(t, l, start, end+500)
}

// TestReadersGoOnWhileSegmentsAreCompressed: segments are compressed while they are read, with
// blocks, segments and batches of different sizes.
func TestReadersGoOnWhileSegmentsAreCompressed(t *testing.T) {
	fsys := crashfs.New()
	d := openDisk(t, fsys, "data", Options{SegmentSmallest: 400 << 10, SegmentLargest: 1 << 20, TailBytes: 1, OpenSegments: 3})
	l := openLog(t, d, orders)
	rng := rand.New(rand.NewPCG(1, 2))
	a, want := newAck(), []string{""}
	for len(want) < 3000 {
		// Half of it is noise, so that a block of 128 KiB remains one of many KiB.
		text := strings.Repeat("carillon ", rng.IntN(1<<rng.IntN(13))/9) + fmt.Sprintf("%0*x", rng.IntN(300), rng.Uint64())
		if len(want)%500 == 0 {
			text = strings.Repeat("large ", 50_000)
		}
		want = append(want, text)
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Time: int64(len(want)), Data: []byte(text)}}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, len(want)-1); err != nil {
		t.Fatal(err)
	}
	batches := batchesOf(t, l, 1)
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 3 {
		wg.Go(func() {
			for last := false; !last; {
				last = stop.Load()
				from := 1 + rand.Uint64N(uint64(len(want)-1))
				got, err := readAll(l, from)
				if err != nil {
					t.Error(err)
					return
				}
				for o := from; o < uint64(len(want)); o++ {
					if got[o] != want[o] {
						t.Errorf("offset %d holds %.30q", o, got[o])
						return
					}
				}
			}
		})
	}
	l.Roll()
	saved := squeeze(t, l)
	stop.Store(true)
	wg.Wait()
	if s := l.Stats(); saved < int64(len(batches)/2) || s.Compressed < 3 {
		t.Errorf("%d bytes of %d were saved: %+v", saved, len(batches), s)
	}
	if !bytes.Equal(batchesOf(t, l, 1), batches) {
		t.Error("the batches are others")
	}
	if n := onDisk(t, fsys, l); n != l.Stats().Bytes {
		t.Errorf("%d bytes on the disk, %d are told", n, l.Stats().Bytes)
	}
	if k := len(d.handles.cache.blocks); k > cachedBlocks {
		t.Errorf("%d blocks in memory", k)
	}
}

func TestIncompressibleSegmentsStay(t *testing.T) {
	fsys, _, l := setup(t, Options{SegmentSmallest: 3 << 20, SegmentLargest: 3 << 20})
	noise := make([]byte, 64<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	a := newAck()
	for range 40 {
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Data: noise}}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, 40); err != nil {
		t.Fatal(err)
	}
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	written := 0
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && !ofJournal(op) {
			written += op.Len
		}
		return nil
	})
	before := l.Stats()
	if saved := squeeze(t, l); saved != 0 || written > 2*(sampledBlocks+1)*compressedBlock {
		t.Errorf("%d bytes were saved and %d written of noise", saved, written)
	}
	written = 0
	if squeeze(t, l); written > 0 {
		t.Error("it was tried again")
	}
	if s := l.Stats(); s.Bytes != before.Bytes || onDisk(t, fsys, l) != before.Bytes {
		t.Errorf("%+v, before %+v", s, before)
	}
}

// TestACompressionMayBeCutShortAnywhere: a crash at any step leaves each segment in one form or the
// other, and nothing beside them.
func TestACompressionMayBeCutShortAnywhere(t *testing.T) {
	for steps := 0; ; steps++ {
		var err error
		for seed := range uint64(8) {
			fsys := crashfs.New()
			d := openDisk(t, fsys, "data", squeezable)
			l := openLog(t, d, orders)
			put(t, l, 150)
			l.Roll()
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			fsys.StopAfter(steps)
			_, err = l.Compress(context.Background(), 1)
			after, d, l := cutPower(t, fsys, d, seed, steps, squeezable)
			if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 {
				t.Fatalf("%d steps, seed %d: %+v", steps, seed, r)
			}
			mustRead(t, l, 1, 151)
			onDisk(t, after, l)
			put(t, l, 3)
			squeeze(t, l)
			mustRead(t, l, 1, 154)
			_ = d.Close()
		}
		if err == nil {
			if steps < 8 {
				t.Errorf("only %d steps", steps)
			}
			return
		}
	}
}

// TestATruncationWithinACompressedSegment: a truncation within a compressed segment is interrupted
// by a crash: the log is as before, shorter by whole segments, or truncated.
func TestATruncationWithinACompressedSegment(t *testing.T) {
	for _, to := range []uint64{2, 33, 75, 199} {
		for steps := 0; ; steps++ {
			var err error
			for seed := range uint64(4) {
				fsys := crashfs.New()
				d := openDisk(t, fsys, "data", squeezable)
				l := openLog(t, d, orders)
				put(t, l, 200)
				l.Roll()
				squeeze(t, l)
				if s := l.Stats(); s.Compressed < 2 {
					t.Fatalf("%+v", s)
				}
				fsys.StopAfter(steps)
				_, _, err = l.TruncateTo(to, 0)
				after, d, l := cutPower(t, fsys, d, seed, steps, squeezable)
				_, end, _ := l.Offsets()
				if r := l.Recovery(); r.Suspect || len(r.Damaged) > 0 || end < to || end > 201 || err == nil && end != to {
					t.Fatalf("to %d, %d steps, seed %d: ends at %d (%v): %+v", to, steps, seed, end, err, r)
				}
				mustRead(t, l, 1, end)
				onDisk(t, after, l)
				put(t, l, 90)
				l.Roll()
				squeeze(t, l)
				mustRead(t, l, 1, end+90)
				_ = d.Close()
			}
			if err == nil {
				break
			}
		}
	}
}

// TestAFlippedBitInACompressedSegment: a flipped bit in a compressed file costs at most a block.
// Header and index replace each other.
func TestAFlippedBitInACompressedSegment(t *testing.T) {
	build := func() (*crashfs.FS, string, uint64) {
		fsys := crashfs.New()
		d := openDisk(t, fsys, "data", Options{SegmentSmallest: 1 << 20})
		l := openLog(t, d, orders)
		a := newAck()
		rng := rand.New(rand.NewPCG(5, 5))
		for o := range uint64(300) {
			r := texts(o+1, 1)
			r[0].Attributes = fmt.Appendf(nil, "%2000x%x", rng.Uint64(), rng.Uint64())
			if _, err := l.Append(&Append{Epoch: 1, Records: r, Done: a}); err != nil {
				t.Fatal(err)
			}
			if err := a.wait(t, int(o+1)); err != nil {
				t.Fatal(err)
			}
		}
		l.Roll()
		squeeze(t, l)
		path := firstFile(t, l)
		_ = d.Close()
		return fsys, path, 301
	}
	_, path, _ := build()
	rng := rand.New(rand.NewPCG(9, 9))
	for try := range 120 {
		fsys, _, end := build()
		info, err := fsys.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		bit := rng.Int64N(info.Size * 8)
		switch try % 4 {
		case 0:
			bit = rng.Int64N(descriptionSize * 8)
		case 1:
			bit = (info.Size-1-rng.Int64N(trailerSize+descriptionSize))*8 + rng.Int64N(8)
		}
		if err := fsys.Flip(path, bit); err != nil {
			t.Fatal(err)
		}
		if try%2 == 0 { // a segment follows, or none
			d := openDisk(t, fsys, "data", small)
			l, err := d.Open(orders, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, 2)
			end += 2
			_ = d.Close()
		}
		d := openDisk(t, fsys, "data", small)
		l, err := d.Open(orders, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, _ := l.Offsets(); got != end {
			t.Fatalf("bit %d: the log ends at %d instead of %d: %+v", bit, got, end, l.Recovery())
		}
		lost, noticed := uint64(0), false
		for at := uint64(1); at < end; {
			got, err := readAll(l, at)
			for o, text := range got {
				if want := fmt.Sprintf("record %d", o); text != want {
					t.Fatalf("bit %d: offset %d holds %q", bit, o, text)
				}
			}
			at += uint64(len(got))
			if err == nil {
				break
			}
			corrupt, ok := errors.AsType[*CorruptError](err)
			if !ok || corrupt.From != at || corrupt.Next <= at {
				t.Fatalf("bit %d: at %d: %v", bit, at, err)
			}
			lost += corrupt.Next - at
			at, noticed = corrupt.Next, true
		}
		found, err := scrubAll(l)
		if err != nil || !noticed && len(found) == 0 {
			t.Fatalf("bit %d of %d: nobody noticed (%v)", bit, info.Size*8, err)
		}
		if lost > 70 || try%4 < 2 && lost > 0 { // of what describes the blocks there are two
			t.Errorf("bit %d of %d cost %d records", bit, info.Size*8, lost)
		}
		_ = d.Close()
	}
}

func TestCompressionCanBeCancelled(t *testing.T) {
	fsys, d, l := setup(t, squeezable)
	put(t, l, 300)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	compressed := 0
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "rename" && strings.HasSuffix(op.Path, beingCompressed) {
			if compressed++; compressed == 2 {
				cancel()
			}
		}
		return nil
	})
	if saved, err := l.Compress(ctx, 0); !errors.Is(err, context.Canceled) || saved == 0 || compressed != 2 {
		t.Errorf("%d bytes saved in %d segments: %v", saved, compressed, err)
	}
	// Closing the log does not wait for all the others.
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "create" && strings.HasSuffix(op.Path, beingCompressed) {
			once.Do(func() { close(begun); <-goOn })
		}
		return nil
	})
	result := make(chan error, 1)
	go func() {
		_, err := l.Compress(context.Background(), 0)
		result <- err
	}()
	select {
	case <-begun:
	case <-time.After(testutil.Patience):
		t.Fatal("nothing was compressed")
	}
	l.mu.Lock()
	working := slices.Collect(maps.Keys(l.upkeep.running))[0]
	l.mu.Unlock()
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case <-working.Done():
	case <-time.After(testutil.Patience):
		t.Error("closing the log does not stop what works on it")
	}
	close(goOn)
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := l.Compress(context.Background(), 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	fsys.SetHook(nil)
	l = openLog(t, d, orders)
	onDisk(t, fsys, l)
	mustRead(t, l, 1, 301)
}

// TestCompressingWithoutRoom: on a full or failing disk the compression fails, without any other
// effect.
func TestCompressingWithoutRoom(t *testing.T) {
	fsys, d, l := setup(t, squeezable)
	put(t, l, 100)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	fsys.SetCapacity(1)
	if _, err := l.Compress(context.Background(), 0); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "orders-0") {
		t.Error(err)
	}
	fsys.SetCapacity(0)
	onDisk(t, fsys, l)
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "sync" && strings.HasSuffix(op.Path, beingCompressed) {
			return syscall.EIO
		}
		return nil
	})
	if _, err := l.Compress(context.Background(), 0); !errors.Is(err, syscall.EIO) || d.Failed() == nil {
		t.Error(err)
	}
	mustRead(t, l, 1, 101)
	_ = d.Close()
	fsys.SetHook(nil)
	l = openLog(t, openDisk(t, fsys, "data", squeezable), orders)
	mustRead(t, l, 1, 101)
	onDisk(t, fsys, l)
}

// TestALogMayChangeWhileItIsCompressed: logs are trimmed, truncated and reset while they are being
// compressed.
func TestALogMayChangeWhileItIsCompressed(t *testing.T) {
	for name, change := range map[string]func(*Log) error{
		"trim":     func(l *Log) error { _, err := l.Trim(90); return err },
		"truncate": func(l *Log) error { _, _, err := l.TruncateTo(5, 0); return err },
		"reset":    func(l *Log) error { _, err := l.ResetTo(50, 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, squeezable)
			put(t, l, 100)
			l.Roll()
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			fsys.SetHook(func(op opKind) (err error) {
				if op.Kind == "sync" && strings.HasSuffix(op.Path, beingCompressed) {
					once.Do(func() { err = change(l) })
				}
				return err
			})
			if _, err := l.Compress(context.Background(), 0); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				start, end, _ := l.Offsets()
				mustRead(t, l, start, end)
				onDisk(t, fsys, l)
				put(t, l, 10)
				mustRead(t, l, start, end+10)
				_ = d.Close()
				d = openDisk(t, fsys, "data", squeezable)
				l = openLog(t, d, orders)
			}
		})
	}
}

// TestSegmentsChangeTheirFormOnRealFiles: on real files a segment is compressed, truncated, read
// through the old file, reset, and closed in order.
func TestSegmentsChangeTheirFormOnRealFiles(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, env.OS, dir, small)
	l := openLog(t, d, orders)
	put(t, l, 1000)
	l.Roll()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	reading := l.NewCursor(1)
	if v, err := reading.Read(1); err != nil || v.End == v.From {
		t.Fatal(err)
	}
	before := l.Stats().Bytes
	if saved := squeeze(t, l); saved < before/2 || onDisk(t, env.OS, l) != before-saved {
		t.Errorf("%d of %d bytes were saved, %d are left", saved, before, onDisk(t, env.OS, l))
	}
	if v, err := reading.Read(1); err != nil || v.End == v.From {
		t.Fatal(err)
	}
	mustRead(t, l, 1, 1001)
	if end, _, err := l.TruncateTo(505, 0); err != nil || end != 505 {
		t.Fatal(end, err)
	}
	if err := d.CloseMarked([]byte("in order")); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, env.OS, dir, small)
	if string(d.Mark()) != "in order" {
		t.Errorf("%q", d.Mark())
	}
	l = openLog(t, d, orders)
	mustRead(t, l, 1, 505)
	if _, err := l.ResetTo(2000, 0); err != nil {
		t.Fatal(err)
	}
	putEpoch(t, l, 1, 10)
	ranged(t, l, 2000, 2010, Epoch{1, 2000})
	_ = d.Close()
	ranged(t, openLog(t, openDisk(t, env.OS, dir, small), orders), 2000, 2010, Epoch{1, 2000})
}

// FuzzCompressedFile: any file in place of a segment causes no panic and bounded memory use, and if
// it can be opened it can be read.
func FuzzCompressedFile(f *testing.F) {
	fsys := crashfs.New()
	d, err := OpenDisk(fsys, "data", squeezable)
	if err != nil {
		f.Fatal(err)
	}
	l := openLog(f, d, orders)
	put(f, l, 60)
	l.Roll()
	squeeze(f, l)
	_ = d.Close()
	path := l.segments[0].path
	info, err := fsys.Stat(path)
	if err != nil {
		f.Fatal(err)
	}
	good := make([]byte, info.Size)
	file, err := fsys.Open(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := readFull(file, good, 0); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-trailerSize-descriptionSize-4])
	f.Add(good[descriptionSize:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > descriptionSize {
			// With its checksum made right, what the header says has to be looked at.
			le.PutUint32(data, descriptionSize)
			data[8], data[9] = kindCompressed, frameVersion
			seal(data[:descriptionSize])
		}
		fsys := crashfs.New()
		file, err := fsys.Create("file")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		c, err := openCompressed(file, &blockCache{})
		if err != nil || c == nil {
			return
		}
		size, _ := c.Size()
		buf := make([]byte, 64<<10)
		for at := int64(0); at < min(size, 4<<20); at += int64(len(buf)) {
			if _, err := c.ReadAt(buf, at); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		}
	})
}
