package client_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRecordsOutliveTheirLeader: the leader goes while records are published and read through the
// other brokers: each is kept once and in order, and a snapshot that was taken before is read from
// the new leader.
func TestRecordsOutliveTheirLeader(t *testing.T) {
	c := newCluster(t)
	stops, addresses := map[string]func(){}, map[string]string{}
	for i := range 3 {
		name := fmt.Sprint("main-", i)
		addresses[name], stops[name] = c.broker(name, "127.0.0.1:0", t.TempDir())
	}
	js, err := jetstream.New(connect(t, addresses["main-0"]))
	testutil.Must(t, err)
	var info *jetstream.StreamInfo
	// The brokers have to know each other.
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		stream, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "ticks", Subjects: []string{"ticks"}, Replicas: 3})
		if err == nil {
			info, err = stream.Info(within(t))
		}
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2 && info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stream is not whole: %v", err)
		}
	}
	leader := info.Cluster.Leader
	var nc *nats.Conn
	for name, address := range addresses {
		if name != leader {
			nc = connect(t, address)
		}
	}
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{MaxRecords: 10, AckWait: 500 * time.Millisecond})
	testutil.Must(t, err)
	const all = 10_000
	reached := make(chan struct{})
	published := make(chan error, 1)
	go func() {
		for i := range all {
			if i == all/2 {
				if err := p.Flush(within(t)); err != nil {
					published <- err
					return
				}
				close(reached)
			}
			if err := p.Publish(fmt.Append(nil, i)); err != nil {
				published <- err
				return
			}
		}
		published <- p.Close(within(t))
	}()
	select {
	case <-reached:
	case err := <-published:
		t.Fatal(err)
	}
	s, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{})
	testutil.Must(t, err)
	live, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{MaxRecords: 100})
	testutil.Must(t, err)
	defer live.Close()
	read := func(r *client.Reader, from, to int) error {
		for i := from; i < to; i++ {
			record, err := r.Next(within(t))
			if err != nil {
				return err
			}
			if string(record.Data) != fmt.Sprint(i) || record.Offset != uint64(i+1) {
				return fmt.Errorf("record %d is %d: %s", i, record.Offset, record.Data)
			}
		}
		return nil
	}
	testutil.Must(t, read(live, 0, all/4))
	stops[leader]()
	testutil.Must(t, <-published)
	testutil.Must(t, read(live, all/4, all))

	part := s.Shards()[0]
	if part.Start != 1 || part.High < all/2+1 {
		t.Errorf("the snapshot is %+v", part)
	}
	r, err := s.Reader(0, 0, client.ReaderOptions{})
	testutil.Must(t, err)
	defer r.Close()
	testutil.Must(t, read(r, 0, int(part.High)-1))
	if _, err := r.Next(within(t)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the snapshot: %v", err)
	}
	testutil.Must(t, s.Close(within(t)))
}
