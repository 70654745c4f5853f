package client_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestASnapshotStaysAsItWas: a snapshot keeps its records while the Topic gets new ones, retention
// deletes old ones, and its broker restarts.
func TestASnapshotStaysAsItWas(t *testing.T) {
	// It is renewed every three seconds: a busy machine may be later than a third of a second.
	const lease = 9 * time.Second
	c, data := newCluster(t), t.TempDir()
	address, stop := c.broker("main-0", testutil.FreeAddress(t), data)
	nc := connect(t, address)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	testutil.Must(t, err)
	stream(t, js, "ticks", func(c *jetstream.StreamConfig) { c.Storage, c.MaxMsgs = jetstream.FileStorage, 1000 })
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{MaxRecords: 100, AckWait: 300 * time.Millisecond})
	testutil.Must(t, err)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			testutil.Must(t, p.Publish(fmt.Append(nil, i)))
		}
		testutil.Must(t, p.Flush(within(t)))
	}
	write(0, 1000)
	s, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{Lease: lease})
	testutil.Must(t, err)
	if got := s.Shards(); len(got) != 1 || got[0] != (client.Shard{Number: 0, Start: 1, High: 1001}) {
		t.Fatalf("%+v", got)
	}
	write(1000, 5000)
	check := func(from uint64) {
		t.Helper()
		r, err := s.Reader(0, from, client.ReaderOptions{MaxRecords: 77})
		testutil.Must(t, err)
		defer r.Close()
		for want := max(from, 1); ; want++ {
			record, err := r.Next(within(t))
			if errors.Is(err, io.EOF) && want == 1001 {
				break
			}
			testutil.Must(t, err)
			if record.Offset != want || string(record.Data) != fmt.Sprint(want-1) {
				t.Fatalf("record %d is %d: %s", want, record.Offset, record.Data)
			}
		}
	}
	check(0)
	check(500)
	live, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{})
	testutil.Must(t, err)
	defer live.Close()
	if _, err := live.Next(within(t)); func() bool { e, ok := errors.AsType[*client.ReadError](err); return !ok || e.Code != client.OutOfRange }() {
		t.Errorf("what is old is still there for everybody: %v", err)
	}
	time.Sleep(lease * 3 / 2)
	check(0)

	half, err := s.Reader(0, 0, client.ReaderOptions{MaxRecords: 10, Ahead: 1})
	testutil.Must(t, err)
	defer half.Close()
	_, err = half.Next(within(t))
	testutil.Must(t, err)
	if err := s.Close(within(t)); err != nil {
		t.Error(err)
	}
	for err == nil {
		_, err = half.Next(within(t))
	}
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close a reader says %v", err)
	}
	if err := s.Close(within(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}

	// Its broker comes back, and knows nothing of it: what is still there is held again.
	s, err = client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{})
	testutil.Must(t, err)
	stop()
	_, _ = c.broker("main-0", address, data)
	first := s.Shards()[0]
	r, err := s.Reader(0, 0, client.ReaderOptions{})
	testutil.Must(t, err)
	defer r.Close()
	n := uint64(0)
	for ; ; n++ {
		record, err := r.Next(within(t))
		if errors.Is(err, io.EOF) {
			break
		}
		testutil.Must(t, err)
		if record.Offset != first.Start+n {
			t.Fatalf("record %d has offset %d", n, record.Offset)
		}
	}
	if n != first.High-first.Start {
		t.Errorf("%d records of %+v", n, first)
	}
	testutil.Must(t, s.Close(within(t)))
	testutil.Must(t, p.Close(within(t)))
}

func TestASnapshotOfNothingIsRefused(t *testing.T) {
	nc, js := oneBroker(t)
	if _, err := client.TakeSnapshot(within(t), nc, "nothing", client.SnapshotOptions{}); func() bool { e, ok := errors.AsType[*client.ReadError](err); return !ok || e.Code != client.NotFound }() {
		t.Error(err)
	}
	if _, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{Lease: time.Hour}); err == nil {
		t.Error("a lease of an hour is taken")
	}
	stream(t, js, "empty", nil)
	s, err := client.TakeSnapshot(within(t), nc, "empty", client.SnapshotOptions{})
	testutil.Must(t, err)
	r, err := s.Reader(0, 0, client.ReaderOptions{})
	testutil.Must(t, err)
	if _, err := r.Batch(within(t)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := s.Reader(1, 0, client.ReaderOptions{}); err == nil {
		t.Error("it has a second shard")
	}
	testutil.Must(t, r.Close())
	testutil.Must(t, s.Close(within(t)))
}

// TestASnapshotEndsWhereNothingIsLeft: a Reader that begins where all records were removed, up to
// the end of the snapshot, says that this is the end. So it is where the user may read none.
func TestASnapshotEndsWhereNothingIsLeft(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "orders", nil)
	for range 3 {
		_, err := js.Publish(within(t), "orders.eu", []byte("x"))
		testutil.Must(t, err)
	}
	orders, err := js.Stream(within(t), "orders")
	testutil.Must(t, err)
	testutil.Must(t, orders.DeleteMsg(within(t), 3))
	s, err := client.TakeSnapshot(within(t), nc, "orders", client.SnapshotOptions{})
	testutil.Must(t, err)
	defer func() { _ = s.Close(within(t)) }()
	for _, options := range []client.ReaderOptions{{}, {Full: true}, {MaxRecords: 1}, {Where: "true"}} {
		for from, want := range map[uint64]int{1: 2, 2: 1, 3: 0} {
			r, err := s.Reader(0, from, options)
			testutil.Must(t, err)
			got := 0
			for {
				if _, err = r.Next(within(t)); err != nil {
					break
				}
				got++
			}
			if got != want || !errors.Is(err, io.EOF) {
				t.Errorf("%+v: %d records from %d on, %v", options, got, from, err)
			}
			testutil.Must(t, r.Close())
		}
	}
}
