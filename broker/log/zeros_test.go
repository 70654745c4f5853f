package log

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// blocks follows which blocks of segments are written for the first time between two syncs: each
// of these has the file system commit its journal.
type blocks struct {
	mu            sync.Mutex
	known         map[string]map[int64]bool
	fresh         bool
	syncs, costly int
	bytes         int
}

func (b *blocks) see(op crashfs.Op) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.HasSuffix(op.Path, segmentEnd) {
		return nil
	}
	switch op.Kind {
	case "write":
		b.bytes += op.Len
		if b.known[op.Path] == nil {
			b.known[op.Path] = map[int64]bool{}
		}
		for at := op.Off / 4096; at <= (op.Off+int64(op.Len)-1)/4096; at++ {
			b.fresh = b.fresh || !b.known[op.Path][at]
			b.known[op.Path][at] = true
		}
	case "sync":
		b.syncs++
		if b.fresh {
			b.costly++
		}
		b.fresh = false
	}
	return nil
}

// TestSmallBatchesAreWrittenWhereBlocksAreKnown: small batches are synced where blocks were written
// before, and so without the journal; and what this writes too much is no more than the batches
// themselves, and a little.
func TestSmallBatchesAreWrittenWhereBlocksAreKnown(t *testing.T) {
	fsys, d, l := setup(t, Options{})
	seen := &blocks{known: map[string]map[int64]bool{}}
	fsys.SetHook(seen.see)
	data := bytes.Repeat([]byte("x"), 3000)
	written := 0
	for range 400 {
		a := newAck()
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Time: 1, Subject: []byte("orders.eu"), Data: data}}, Done: a}); err != nil {
			t.Fatal(err)
		}
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
		written += len(data)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if seen.syncs < 400 || seen.costly > 30 {
		t.Errorf("%d of %d syncs wait for the journal", seen.costly, seen.syncs)
	}
	if most := 2*written + 3*len(zeros); seen.bytes > most {
		t.Errorf("%d bytes were written for %d, more than %d", seen.bytes, written, most)
	}
}

func TestLargeBatchesAreNotWrittenTwice(t *testing.T) {
	fsys, _, l := setup(t, Options{})
	seen := &blocks{known: map[string]map[int64]bool{}}
	fsys.SetHook(seen.see)
	data := bytes.Repeat([]byte("x"), 2*largestZeroed)
	for range 20 {
		a := newAck()
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Time: 1, Subject: []byte("orders.eu"), Data: data}}, Done: a}); err != nil {
			t.Fatal(err)
		}
		if err := a.wait(t, 1); err != nil {
			t.Fatal(err)
		}
	}
	if most := 20*len(data) + 100_000; seen.bytes > most {
		t.Errorf("%d bytes were written for %d", seen.bytes, 20*len(data))
	}
}
