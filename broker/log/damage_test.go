package log

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// sparsePayload is data with runs of zeros of every length, whole sectors of them too.
func sparsePayload(rng *rand.Rand, most int) []byte {
	out := make([]byte, rng.IntN(most+1))
	for at := 0; at < len(out); {
		n := min(1+rng.IntN(1<<rng.IntN(12)), len(out)-at)
		if rng.IntN(2) == 0 {
			for i := range n {
				out[at+i] = byte(1 + rng.IntN(255))
			}
		}
		at += n
	}
	return out
}

// written is what was appended, by offset.
type written map[uint64][]byte

// put appends a batch of records whose payloads have sectors of zeros.
func (w written) put(t testing.TB, l *Log, rng *rand.Rand, durability Durability, done Completion) {
	t.Helper()
	records := make([]Record, 1+rng.IntN(3))
	_, end, _ := l.Offsets()
	for i := range records {
		records[i] = Record{Time: int64(end), Subject: []byte("orders.eu"), Data: sparsePayload(rng, 1<<rng.IntN(14))}
		w[end+uint64(i)] = records[i].Data
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: records, Durability: durability, Done: done}); err != nil {
		t.Fatal(err)
	}
}

// check reads what a log has from its start on. What it can't read is a *CorruptError, and is
// returned.
func (w written) check(t testing.TB, l *Log) (lost []CorruptError) {
	t.Helper()
	start, end, _ := l.Offsets()
	for at := start; at < end; {
		got, err := readAll(l, at)
		for o, data := range got {
			if data != string(w[o]) {
				t.Fatalf("offset %d holds other bytes than were appended", o)
			}
		}
		at += uint64(len(got))
		if err == nil {
			if at != end {
				t.Fatalf("reading ends at %d, the log at %d", at, end)
			}
			break
		}
		corrupt, ok := errors.AsType[*CorruptError](err)
		if !ok || corrupt.From != at || corrupt.Next <= at {
			t.Fatalf("at %d: %v", at, err)
		}
		lost = append(lost, *corrupt)
		at = corrupt.Next
	}
	return lost
}

// TestATornWriteIsNeverTakenForDamage: power is cut while writes are under way, of payloads that
// have sectors of zeros, in one round or in several. What is torn is cut and reported as torn,
// never as damage; and nothing that was synced is missing.
func TestATornWriteIsNeverTakenForDamage(t *testing.T) {
	cuts := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 11))
		opts := Options{SegmentSmallest: 64 << 10, SegmentLargest: 256 << 10, TailBytes: 1, SyncAllFrom: 1 + rng.IntN(2)}
		fsys, d, l := setup(t, opts)
		w := written{}
		for range rng.IntN(4) {
			a := newAck()
			w.put(t, l, rng, Synced, a)
			if err := a.wait(t, 1); err != nil {
				t.Fatal(err)
			}
		}
		_, synced, _ := l.Offsets()
		for range 1 + rng.IntN(3) { // rounds without a sync
			a := newAck()
			n := 1 + rng.IntN(8)
			for range n {
				w.put(t, l, rng, Replicated, a)
			}
			if err := a.wait(t, n); err != nil {
				t.Fatal(err)
			}
		}
		for dice := range uint64(8) {
			after := fsys.Crash(rand.New(rand.NewPCG(seed, dice)))
			_ = d.Close()
			again := openDisk(t, after, "data", opts)
			l := openLog(t, again, orders)
			_, end, _ := l.Offsets()
			if r := l.Recovery(); len(r.Damaged) > 0 || r.Suspect != (r.Cut > 0) || end < synced {
				t.Fatalf("seed %d, %d: ends at %d of %d synced: %+v", seed, dice, end, synced, r)
			} else if r.Cut > 0 {
				cuts++
			}
			if lost := w.check(t, l); len(lost) > 0 {
				t.Fatalf("seed %d, %d: %v", seed, dice, lost)
			}
			put(t, l, 1)
			_ = again.Close()
		}
	}
	if cuts < 100 {
		t.Errorf("only %d tails were torn", cuts)
	}
}

// TestTheLastTornTailsAreKept: the last few torn tails are kept, with the same bytes. On a full
// disk the log opens without keeping them.
func TestTheLastTornTailsAreKept(t *testing.T) {
	fsys, d, l := setup(t, Options{SyncAllFrom: 1000})
	for n := range tornFiles + 4 {
		put(t, l, 3)
		a := newAck()
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Subject: []byte("orders.eu"), Data: bytes.Repeat([]byte("x"), 2000)}}, Durability: Replicated, Done: a}); err != nil {
			t.Fatal(err)
		}
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
		at := d.position(l)
		path := l.segments[len(l.segments)-1].path
		fsys = killed(fsys, d)
		wipe(t, fsys, path, at-1)
		f, err := fsys.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		was := make([]byte, at)
		if err := readFull(f, was, 0); err != nil {
			t.Fatal(err)
		}
		if n == tornFiles+3 {
			fsys.SetCapacity(1)
		}
		d = openDisk(t, fsys, "data", Options{SyncAllFrom: 1000})
		l = openLog(t, d, orders)
		r := l.Recovery()
		if _, now, _ := l.Offsets(); r.Cut == 0 || now != end || len(r.Damaged) > 0 {
			t.Fatalf("ends at %d of %d: %+v", now, end, r)
		}
		if n == tornFiles+3 {
			if r.Kept != "" {
				t.Errorf("kept without room: %s", r.Kept)
			}
			break
		}
		kept, err := fsys.Open(r.Kept)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, r.Cut)
		if err := readFull(kept, data, 0); err != nil || !bytes.HasSuffix(bytes.TrimRight(was, "\x00"), data) {
			t.Errorf("%s holds other bytes than were cut: %v", r.Kept, err)
		}
	}
	if names, err := fsys.List("data/set-aside/orders-0.torn"); err != nil || len(names) != tornFiles {
		t.Errorf("kept %v: %v", names, err)
	}
}

// placedBatches lists where the batches of a plain segment stand.
func placedBatches(t testing.TB, fsys *crashfs.FS, path string) (out []placed) {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newFrames(f)
	if err != nil {
		t.Fatal(err)
	}
	for pos := int64(0); ; {
		fr, err := r.next(pos)
		if err == errNothing {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if fr.kind() == kindBatch {
			out = append(out, placed{pos, pos + int64(len(fr)), Batch(fr).Base(), Batch(fr).End()})
		}
		if pos += int64(len(fr)); fr.kind() == kindFooter {
			return append(out, placed{pos, r.size, 0, 0})
		}
	}
}

type placed struct {
	pos, until int64
	base, end  uint64
}

// TestAFlippedBitCostsAtMostItsBatch: one bit flips somewhere in a log of several segments that
// lost power: in a sealed one or in the active one, in a batch, marker, header, footer or index. At
// most the batch that it hits is lost, nothing is cut, and it is reported as damage.
func TestAFlippedBitCostsAtMostItsBatch(t *testing.T) {
	opts := Options{SegmentSmallest: 16 << 10, SegmentLargest: 32 << 10, TailBytes: 1, SyncAllFrom: 1000}
	rng := rand.New(rand.NewPCG(5, 17))
	fsys, d, l := setup(t, opts)
	w := written{}
	for len(l.SegmentInfos()) < 4 {
		a := newAck()
		n := 1 + rng.IntN(6)
		for range n {
			w.put(t, l, rng, Synced, a)
		}
		if err := a.wait(t, n); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // the last round has many batches
		w.put(t, l, rng, Replicated, nil)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	_, end, _ := l.Offsets()
	base := fsys.Crash(rng) // all is synced, so this is a copy
	_ = d.Close()
	names, err := base.List("data/shards/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	type target struct {
		path    string
		batches []placed
		until   int64 // of what was written
	}
	var targets []target
	for _, name := range names {
		if !strings.HasSuffix(name, segmentEnd) {
			continue
		}
		path := filepath.Join("data/shards/orders-0", name)
		batches := placedBatches(t, base, path)
		targets = append(targets, target{path, batches, batches[len(batches)-1].until})
	}
	for n := range 3000 {
		at := targets[rng.IntN(len(targets))]
		if n%3 == 0 {
			at = targets[len(targets)-1]
		}
		bit := rng.Int64N(at.until * 8)
		what := fmt.Sprintf("bit %d of byte %d in %s", bit%8, bit/8, at.path)
		fsys := base.Crash(rng)
		if err := fsys.Flip(at.path, bit); err != nil {
			t.Fatal(err)
		}
		var hit placed
		for _, b := range at.batches {
			if bit/8 >= b.pos && bit/8 < b.until {
				hit = b
			}
		}
		d := openDisk(t, fsys, "data", opts)
		l := openLog(t, d, orders)
		rec := l.Recovery()
		if _, got, _ := l.Offsets(); got != end || rec.Cut > 0 {
			t.Fatalf("%s: the log ends at %d of %d: %+v", what, got, end, rec)
		}
		lost := w.check(t, l)
		if len(lost) > 1 || len(lost) == 1 && (lost[0].From != hit.base || lost[0].Next != hit.end) {
			t.Fatalf("%s, in the batch from %d to %d: lost %v", what, hit.base, hit.end, lost)
		}
		if at.path == targets[len(targets)-1].path && len(rec.Damaged) == 0 {
			t.Fatalf("%s is not reported: %+v", what, rec)
		}
		found, err := scrubAll(l)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 && len(rec.Damaged) == 0 {
			t.Fatalf("%s is not found", what)
		}
		_ = d.Close()
	}
}

// TestAMarkerKnowsTheSectorsOfItsRun: a marker's bitmap has a bit for every sector of its run that
// says whether the run has a nonzero byte there, at any position and length.
func TestAMarkerKnowsTheSectorsOfItsRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		size := 1 + rng.IntN(1<<rng.IntN(20))
		marker := runMarkerSize(size)
		run := append(reserveMarker(nil, marker), append(sparsePayload(rng, size-1), 1)...)
		if len(run) > runCover(marker) {
			t.Fatalf("a marker of %d bytes for %d covers %d", marker, size, runCover(marker))
		}
		at := rng.Int64N(1 << 20)
		for from := marker; from < len(run); { // batch by batch, as they are appended
			until := from + 1 + rng.IntN(len(run)-from)
			frame(run[:marker]).cover(at, at+int64(from), run[from:until])
			from = until
		}
		m := runMarker{log: 7, at: at, synced: 3, first: 5, end: 9, length: len(run)}
		sealMarker(run, m)
		f, err := parseFrame(run)
		if err != nil || len(f) != marker {
			t.Fatal(err)
		}
		if got, size, ok := readRunMarker(run, 7, at); !ok || got != m || size != marker {
			t.Fatalf("read %+v, wrote %+v", got, m)
		}
		n := 0
		for pos := at; pos < at+int64(len(run)); n++ {
			until := min(pos-pos%sectorSize+sectorSize, at+int64(len(run)))
			part := run[pos-at : until-at]
			if some := len(bytes.Trim(part, "\x00")) > 0; some != f.written(n) {
				t.Fatalf("sector %d of a run of %d bytes at %d: %t", n, len(run), at, some)
			}
			if pos < at+int64(marker) && len(bytes.Trim(part[:min(len(part), int(at)+marker-int(pos))], "\x00")) == 0 {
				t.Fatalf("a sector's part of a marker is all zeros")
			}
			pos = until
		}
	}
}

// TestAFileOfAnEarlierVersionIsJudgedWithoutBitmaps: a file of an earlier version has markers
// without bitmaps. It is judged as that version did: everything after the last marker is torn. No
// record is appended to it.
func TestAFileOfAnEarlierVersionIsJudgedWithoutBitmaps(t *testing.T) {
	for name, flip := range map[string]int{"whole": -1, "in the middle": 3, "in the last batch": 9} {
		t.Run(name, func(t *testing.T) {
			fsys, d, l := setup(t, Options{})
			data := appendHeader(nil, l.secret, 1, 0)
			var at []int
			for o := uint64(1); o <= 10; o++ {
				data = appendMarker(data, l.secret, int64(len(data)), int64(len(data)), o)
				at = append(at, len(data))
				data = append(data, encode(t, 1, o, texts(o, 1), nil)...)
			}
			path := newSegment(l.dir, SegmentRef{Base: 1}).path
			_ = d.Close()
			f, err := fsys.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Preallocate(8 << 10); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			if flip >= 0 {
				if err := fsys.Flip(path, int64(at[flip]+70)*8); err != nil {
					t.Fatal(err)
				}
			}
			l = openLog(t, openDisk(t, fsys, "data", Options{}), orders)
			r := l.Recovery()
			_, end, _ := l.Offsets()
			var want, lost uint64 = 11, 0
			switch flip {
			case 3:
				lost = 1
			case 9:
				want = 10
			}
			if end != want || len(r.Damaged) != int(lost) || (r.Cut > 0) != (flip == 9) {
				t.Fatalf("ends at %d of %d: %+v", end, want, r)
			}
			put(t, l, 5)
			if got, _ := readAll(l, want); len(got) != 5 || len(l.segments) != 2 {
				t.Errorf("%d records in %d segments", len(got), len(l.segments))
			}
		})
	}
}
