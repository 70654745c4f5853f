package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// small makes a few records fill segments and the memory for tails.
var small = Options{SegmentSmallest: 8 << 10, SegmentLargest: 16 << 10, TailBytes: 8 << 10, SyncAllFrom: 3}

var orders = Identity{Topic: "orders"}

func openDisk(t testing.TB, fsys env.FS, dir string, opts Options) *Disk {
	t.Helper()
	d, err := OpenDisk(fsys, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func openLog(t testing.TB, d *Disk, id Identity) *Log {
	t.Helper()
	l, err := d.Open(id, 1, 1, []byte("spec"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// setup is a disk in memory with one log.
func setup(t testing.TB, opts Options) (*crashfs.FS, *Disk, *Log) {
	t.Helper()
	fsys := crashfs.New()
	d := openDisk(t, fsys, "data", opts)
	return fsys, d, openLog(t, d, orders)
}

// cutPower ends the process and the power of a disk in memory, and opens its log again. What wasn't
// synced is kept or lost as the seed and the step have it.
func cutPower(t testing.TB, fsys *crashfs.FS, d *Disk, seed uint64, step int, opts Options) (*crashfs.FS, *Disk, *Log) {
	t.Helper()
	after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(step))))
	_ = d.Close()
	d = openDisk(t, after, "data", opts)
	return after, d, openLog(t, d, orders)
}

// ofJournal reports whether an operation is on the journal of sync points. The committer writes and
// syncs the journal by the clock, at any moment of a test that runs on a busy machine. So a test
// that counts operations, or lets one of them fail or wait, passes over these.
func ofJournal(op opKind) bool {
	return strings.HasPrefix(filepath.Base(op.Path), pointsName)
}

// ack waits for completions.
type ack struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int
	errs []error
	ends []uint64
}

func newAck() *ack {
	a := &ack{}
	a.cond = sync.NewCond(&a.mu)
	return a
}

func (a *ack) Committed(_, end uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	if err != nil {
		a.errs = append(a.errs, err)
	}
	a.ends = append(a.ends, end)
	a.cond.Broadcast()
}

// wait returns the first error of n completions.
func (a *ack) wait(t testing.TB, n int) error {
	t.Helper()
	stop := time.AfterFunc(testutil.Patience, func() { panic(fmt.Sprint("no completion within ", testutil.Patience)) })
	defer stop.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.n < n {
		a.cond.Wait()
	}
	if len(a.errs) > 0 {
		return a.errs[0]
	}
	return nil
}

func record(text string) Record {
	return Record{Time: 1_000_000_000, Subject: []byte("orders.eu"), Data: []byte(text)}
}

func texts(from uint64, n int) []Record {
	out := make([]Record, n)
	for i := range out {
		out[i] = record(fmt.Sprintf("record %d", from+uint64(i)))
	}
	return out
}

// put appends records, each as a batch of its own, and waits until they are synced.
func put(t testing.TB, l *Log, n int) {
	t.Helper()
	a := newAck()
	for range n {
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal(err)
	}
}

// segmentName is a segment's file in its first generation.
func segmentName(base uint64) string { return SegmentRef{Base: base}.name() }

// fileOf is the path of the file of the segment that begins at an offset.
func fileOf(t testing.TB, l *Log, base uint64) string {
	t.Helper()
	for _, r := range l.Meta().Segments {
		if r.Base == base {
			return filepath.Join(l.dir, r.name())
		}
	}
	t.Fatalf("no segment begins at %d", base)
	return ""
}

// readAll reads what is there from offset on, until the end or an error. Each offset has to have a
// record.
func readAll(l *Log, offset uint64) (map[uint64]string, error) { return read(l, offset, false) }

// readSparse is readAll of a log that was compacted.
func readSparse(l *Log, offset uint64) (map[uint64]string, error) { return read(l, offset, true) }

func read(l *Log, offset uint64, holes bool) (map[uint64]string, error) {
	out := map[uint64]string{}
	c := l.NewCursor(offset)
	for {
		next := c.Next()
		v, err := c.Read(4 << 10)
		if err != nil {
			return out, err
		}
		if v.End == v.From {
			return out, nil
		}
		for {
			b, ok := v.Next()
			if !ok {
				break
			}
			it := b.Records()
			for r := (Record{}); it.Next(&r); {
				if r.Offset < next {
					continue
				}
				if r.Offset != next && !(holes && b.Sparse()) {
					return out, fmt.Errorf("offset %d follows %d", r.Offset, next)
				}
				out[r.Offset] = string(r.Data)
				next = r.Offset + 1
			}
			if it.Err() != nil {
				return out, it.Err()
			}
			if b.Sparse() {
				next = b.End()
			}
		}
		v.Release()
		if next != c.Next() {
			return out, fmt.Errorf("the view ends at %d, the cursor is at %d", next, c.Next())
		}
	}
}

func mustRead(t testing.TB, l *Log, from, end uint64) {
	t.Helper()
	got, err := readAll(l, from)
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(got)) != end-from {
		t.Fatalf("read %d records from %d on, want %d", len(got), from, end-from)
	}
	for o := from; o < end; o++ {
		if want := fmt.Sprintf("record %d", o); got[o] != want {
			t.Fatalf("offset %d holds %q, want %q", o, got[o], want)
		}
	}
}

// storedLogs reads what the disk says of all of its logs.
func storedLogs(d *Disk) (all []Stored, err error) {
	names, err := d.Names()
	for _, name := range names {
		if s, there := d.Stored(name); there {
			all = append(all, s)
		}
	}
	return all, err
}

// scrubAll scrubs all sealed segments, as fast as they can be read.
func scrubAll(l *Log) ([]CorruptError, error) {
	report, err := l.Scrub(context.Background(), ScrubOptions{})
	return report.Damaged, err
}
