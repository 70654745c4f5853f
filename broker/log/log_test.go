package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	fsys, d, l := setup(t, small)
	in := []Record{
		{Time: 100, Subject: []byte("a.b"), Data: []byte("NATS/1.0\r\nk: v\r\n\r\nbody"), Header: 18},
		{Time: 90, Subject: []byte("a.b"), Data: []byte("older, same subject")},
		{Time: 1 << 60, Subject: []byte("a.c"), Attributes: []byte{0, 1, 2}},
		{Time: -5, Subject: nil, Data: nil},
	}
	ext := []Extension{{Type: 1, Data: []byte("id-1")}, {Type: 60_000, Data: []byte("from a later version")}}
	a := newAck()
	first, err := l.Append(&Append{Epoch: 7, Records: in, Extensions: ext, Done: a})
	if err != nil || first != 1 {
		t.Fatal(first, err)
	}
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		v, err := l.NewCursor(3).Read(1)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Release()
		b, ok := v.Next()
		if !ok || b.Epoch() != 7 || b.Base() != 1 || b.End() != 5 || b.Time() != 100 || b.LastTime() != 1<<60 {
			t.Fatalf("batch %v", b)
		}
		it, i := b.Records(), 0
		for r := (Record{}); it.Next(&r); i++ {
			w := in[i]
			if r.Offset != uint64(i+1) || r.Time != w.Time || r.Header != w.Header || !bytes.Equal(r.Subject, w.Subject) ||
				!bytes.Equal(r.Data, w.Data) || !bytes.Equal(r.Attributes, w.Attributes) {
				t.Errorf("record %d is %+v, was %+v", i, r, w)
			}
		}
		if it.Err() != nil || i != len(in) {
			t.Fatal(i, it.Err())
		}
		x := b.Extensions()
		for _, w := range ext {
			if e, ok := x.Next(); !ok || e.Type != w.Type || !bytes.Equal(e.Data, w.Data) {
				t.Errorf("extension %+v, want %+v", e, w)
			}
		}
	}
	check(l)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := openLog(t, openDisk(t, fsys, "data", small), orders)
	check(again)
	if got := again.Epochs(); !slices.Equal(got, []Epoch{{Epoch: 7, Start: 1}}) {
		t.Errorf("epochs %v", got)
	}
	if m := again.Meta(); string(m.Spec) != "spec" || m.Durable != 5 || m.Topic != "orders" {
		t.Errorf("meta %+v", m)
	}
	if r := again.Recovery(); r.Suspect || r.Cut != 0 {
		t.Errorf("recovery %+v", r)
	}
}

func TestInvalidCallsAreRefused(t *testing.T) {
	_, d, l := setup(t, small)
	put(t, l, 1)
	if _, err := l.Append(&Append{Epoch: 1}); err == nil {
		t.Error("an append without records")
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Header: 1}}}); err == nil {
		t.Error("a header longer than its record")
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Data: make([]byte, 17<<20)}}}); err == nil {
		t.Error("a record larger than any batch")
	}
	if _, err := l.Append(&Append{Epoch: 0, Records: texts(2, 1)}); err == nil {
		t.Error("an epoch that is over")
	} else if _, ok := errors.AsType[*EpochError](err); !ok {
		t.Error(err)
	}
	for _, at := range []uint64{0, 3, 1 << 63} {
		if _, err := l.NewCursor(at).Read(1); err == nil {
			t.Errorf("read at %d", at)
		} else if _, ok := errors.AsType[*RangeError](err); !ok {
			t.Error(err)
		}
	}
	if v, err := l.NewCursor(2).Read(1); err != nil || v.End != 2 {
		t.Error("the end is no error", v, err)
	}
	if _, err := d.Open(orders, 1, 1, nil); err == nil {
		t.Error("opened twice")
	}
	if _, err := d.Open(Identity{Topic: "../x"}, 1, 1, nil); err == nil {
		t.Error("a name outside of the directory")
	}
	if _, err := d.SetAside(l.Name(), "why"); err == nil {
		t.Error("set aside while open")
	}
	_, end, _ := l.Offsets()
	if end != 2 {
		t.Errorf("what was refused took offsets: %d", end)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(2, 1)}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestReadingCrossesSegmentsAndMemory: many segments are read from memory, from disk, and after a
// restart, in steps of different sizes.
func TestReadingCrossesSegmentsAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := small
		opts.OpenSegments = 2
		fsys, d, l := setup(t, opts)
		put(t, l, 2000)
		// Memory is let go of after the waiters have been told, so not at once.
		synctest.Wait()
		if s := l.Stats(); s.Segments < 5 || s.MemoryBytes > 4*opts.TailBytes {
			t.Fatalf("%d segments, %d bytes in memory", s.Segments, s.MemoryBytes)
		}
		for _, from := range []uint64{1, 2, 777, 1999, 2000, 2001} {
			mustRead(t, l, from, 2001)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, openDisk(t, fsys, "data", opts), orders)
		for from := uint64(1); from <= 2001; from += 57 {
			mustRead(t, l, from, 2001)
		}
		put(t, l, 10)
		mustRead(t, l, 1990, 2011)
		if found, err := scrubAll(l); err != nil || len(found) > 0 {
			t.Error(found, err)
		}
	})
}

func TestABatchLargerThanASegmentOrAChunk(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 1)
	large := Record{Subject: []byte("s"), Data: bytes.Repeat([]byte("large "), 500_000)}
	a := newAck()
	for range 2 {
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{large}, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.wait(t, 2); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := readAll(l, 1)
		if err != nil || len(got) != 3 || got[2] != string(large.Data) || got[3] != string(large.Data) {
			t.Fatal(len(got), err)
		}
		_ = d.Close()
		d = openDisk(t, fsys, "data", small)
		l = openLog(t, d, orders)
	}
}

func TestCompletionsWaitForTheirDurability(t *testing.T) {
	fsys, d, l := setup(t, small)
	syncing, resume := make(chan struct{}, 10), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(resume) })
	t.Cleanup(letGo)
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "sync" && !ofJournal(op) {
			syncing <- struct{}{}
			<-resume
		}
		return nil
	})
	memory, replicated, synced := newAck(), newAck(), newAck()
	app := func(dur Durability, a *ack) {
		t.Helper()
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Durability: dur, Done: a}); err != nil {
			t.Fatal(err)
		}
	}
	app(Memory, memory)
	if memory.n != 1 {
		t.Error("Memory is complete at once")
	}
	app(Replicated, replicated)
	if err := replicated.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	app(Synced, synced)
	select {
	case <-syncing:
	case <-time.After(testutil.Patience):
		t.Fatal("nothing was synced")
	}
	synced.mu.Lock()
	if synced.n != 0 {
		t.Error("complete before the sync was")
	}
	synced.mu.Unlock()
	if _, _, durable := l.Offsets(); durable != 1 {
		t.Errorf("durable up to %d before the sync", durable)
	}
	// What comes while the sync is under way is one round, in order.
	for range 5 {
		app(Synced, synced)
	}
	letGo()
	if err := synced.wait(t, 6); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(synced.ends) {
		t.Error(synced.ends)
	}
	if s := d.Stats(); s.FileSyncs != 2 {
		t.Errorf("%d syncs for six appends, of which five came during the first", s.FileSyncs)
	}
}

// TestAFollowerCopiesTheBatches: a follower's log is that of its leader, byte by byte.
func TestAFollowerCopiesTheBatches(t *testing.T) {
	_, d, leader := setup(t, small)
	put(t, leader, 300)
	follower, err := d.Open(Identity{Topic: "orders", Shard: 1}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, n := newAck(), 0
	for c := leader.NewCursor(1); c.Next() < 301; {
		v, err := c.Read(1 << 10)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			b, err := ParseBatch(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := follower.AppendBatch(b, Synced, a); err != nil {
				t.Fatal(err)
			}
			n++
			if err := follower.AppendBatch(b, Synced, a); err == nil {
				t.Fatal("the same batch twice")
			} else if _, ok := errors.AsType[*OffsetError](err); !ok {
				t.Fatal(err)
			}
		}
		v.Release()
	}
	if err := a.wait(t, n); err != nil {
		t.Fatal(err)
	}
	mustRead(t, follower, 1, 301)
	if end, _, err := follower.TruncateTo(100, 0); err != nil || end != 100 {
		t.Fatal(end, err)
	}
	mustRead(t, follower, 1, 100)
	put(t, follower, 50)
	mustRead(t, follower, 1, 150)
}

// TestViewsHaveAllBatchesAndNothingElse: a follower that is given the batches of views, from memory
// and from files, has the same log. Markers between writes are left out.
func TestViewsHaveAllBatchesAndNothingElse(t *testing.T) {
	_, d, l := setup(t, small)
	put(t, l, 700)
	together := newAck()
	_, end, _ := l.Offsets()
	for range 60 { // many of them are written at once
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: together}); err != nil {
			t.Fatal(err)
		}
		end++
	}
	if err := together.wait(t, 60); err != nil {
		t.Fatal(err)
	}
	for shard, bytes := range []int{1, 4 << 10, 1 << 20} {
		follower, err := d.Open(Identity{Topic: "copy", Shard: shard}, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		batches := 0
		for c := l.NewCursor(1); c.Next() < end; {
			v, err := c.Read(bytes)
			if err != nil {
				t.Fatal(err)
			}
			for b, ok := v.Next(); ok; b, ok = v.Next() {
				batches++
				if _, err := ParseBatch(b); err != nil {
					t.Fatal(err)
				}
				if err := follower.AppendBatch(b, Memory, nil); err != nil {
					t.Fatal(err)
				}
			}
			v.Release()
		}
		if batches != 760 {
			t.Errorf("%d bytes at a time: %d batches", bytes, batches)
		}
		mustRead(t, follower, 1, end)
	}
}

// TestNamesOfLogs: a log's name says which one it is. Names that no log has still say the Topic,
// for what can't be read.
func TestNamesOfLogs(t *testing.T) {
	for _, id := range []Identity{orders, {Topic: "orders", Shard: 12, Part: "state"}, {Topic: "a-b", Shard: 3}, {Topic: "a.b-1.c", Shard: 0, Part: "state"}} {
		if got, ok := ParseName(id.Name()); !ok || got != id {
			t.Errorf("%s is %+v, %v", id.Name(), got, ok)
		}
	}
	for name, topic := range map[string]string{"": "", "orders": "orders", "-1": "", "orders-": "orders", "orders-x": "orders", "orders-01": "orders", "orders-1.": "orders"} {
		if got, ok := ParseName(name); ok || got.Topic != topic {
			t.Errorf("%q is %+v, %v", name, got, ok)
		}
	}
}

// TestNamesLeaveOutUnfinishedLogs: the directory of an interrupted creation is no log; an
// unreadable one may be a log.
func TestNamesLeaveOutUnfinishedLogs(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 3)
	for _, dir := range []string{"empty-0", "damaged-0", "segment-0"} {
		testutil.Must(t, fsys.MkdirAll("data/shards/"+dir))
	}
	for _, file := range []string{"damaged-0/" + manifestName, "segment-0/" + segmentName(1)} {
		f, err := fsys.Create("data/shards/" + file)
		testutil.Must(t, err)
		testutil.Must(t, f.Close())
	}
	names, err := d.Names()
	testutil.Must(t, err)
	slices.Sort(names)
	if want := []string{"damaged-0", "orders-0", "segment-0"}; !slices.Equal(names, want) {
		t.Errorf("the logs are %q, want %q", names, want)
	}
}

func TestLogsAreListedAndSetAside(t *testing.T) {
	fsys, d, l := setup(t, small)
	put(t, l, 3)
	if err := l.SetSpec([]byte("newer"), 9); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	list, err := storedLogs(d)
	if err != nil || len(list) != 1 || string(list[0].Meta.Spec) != "newer" || list[0].Meta.Epoch != 9 {
		t.Fatal(list, err)
	}
	for i := range 2 {
		to, err := d.SetAside("orders-0", "why")
		if err != nil || to != fmt.Sprintf("data/set-aside/orders-0.%d", i+1) {
			t.Fatal(to, err)
		}
		if names, err := fsys.List(to); err != nil || len(names) < 2-i {
			t.Error("what was set aside is there", names, err)
		}
		fresh := openLog(t, d, orders)
		if _, end, _ := fresh.Offsets(); end != 1 {
			t.Error("a new log has the old one's records")
		}
		_ = fresh.Close()
	}
}

func TestAPublisherWaitsForADiskThatIsBehind(t *testing.T) {
	opts := small
	opts.Backlog = 1 << 10
	fsys, _, l := setup(t, opts)
	resume := make(chan struct{})
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "write" && !ofJournal(op) {
			<-resume
		}
		return nil
	})
	var err error
	for range 1000 {
		_, end, _ := l.Offsets()
		if _, err = l.Append(&Append{Epoch: 1, Records: texts(end, 1), Durability: Memory}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrOverloaded) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := l.WaitRoom(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(resume)
	if err := l.WaitRoom(context.Background()); err != nil {
		t.Fatal(err)
	}
	put(t, l, 1)
}

// TestUnsyncedFilesAreSyncedBeforeTheyAreClosed: the number of open files with unsynced records is
// bounded, and none is closed before it is synced.
func TestUnsyncedFilesAreSyncedBeforeTheyAreClosed(t *testing.T) {
	opts := small
	opts.OpenSegments = 3
	fsys, d, _ := setup(t, opts)
	logs := make([]*Log, 20)
	for i := range logs {
		var err error
		if logs[i], err = d.Open(Identity{Topic: "t", Shard: i}, 1, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(3) {
		for _, l := range logs {
			a := newAck()
			if _, err := l.Append(&Append{Epoch: 1, Records: texts(round+1, 1), Durability: Replicated, Done: a}); err != nil {
				t.Fatal(err)
			}
			if err := a.wait(t, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, logs[0], 1) // ends the round that closes files
	d.handles.mu.Lock()
	open := d.handles.open.Len()
	d.handles.mu.Unlock()
	if open > 5 {
		t.Errorf("%d files are open", open)
	}
	after := fsys.Crash(rand.New(rand.NewPCG(1, 1)))
	d2 := openDisk(t, after, "data", opts)
	whole := 0
	for i := range logs {
		l := openLog(t, d2, Identity{Topic: "t", Shard: i})
		if _, end, _ := l.Offsets(); end >= 4 {
			whole++
		}
	}
	if whole < 15 {
		t.Errorf("only %d logs of 20 are whole: files were closed and not synced", whole)
	}
}

// TestARoundReportsWhetherAppendsWait: after each round the disk reports whether appends that
// arrived during the round wait.
func TestARoundReportsWhetherAppendsWait(t *testing.T) {
	rounds := make(chan bool, 10)
	during := make(chan struct{})
	opts := small
	opts.Committed = func(idle bool) { rounds <- idle }
	fsys, _, l := setup(t, opts)
	put(t, l, 1)
	if idle := <-rounds; !idle {
		t.Error("busy with nothing to do")
	}
	var once atomic.Bool
	fsys.SetHook(func(op opKind) error {
		if op.Kind == "sync" && !ofJournal(op) && once.CompareAndSwap(false, true) {
			<-during
		}
		return nil
	})
	a := newAck()
	for i := range 2 {
		_, end, _ := l.Offsets()
		if _, err := l.Append(&Append{Epoch: 1, Records: texts(end, 1), Done: a}); err != nil {
			t.Fatal(err)
		}
		for i == 0 && !once.Load() { // until the round of the first is at its sync
			runtime.Gosched()
		}
	}
	close(during)
	if err := a.wait(t, 2); err != nil {
		t.Fatal(err)
	}
	if first, second := <-rounds, <-rounds; first || !second {
		t.Errorf("idle after the round during which something came: %v; and after the next: %v", first, second)
	}
}
