package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRecordsGoInAndComeOut: thousands of records are published and read in order, each once, and
// are ordinary messages to other clients.
func TestRecordsGoInAndComeOut(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "ticks", nil)
	p, err := client.NewPublisher(nc, "ticks.eu", client.PublisherOptions{MaxRecords: 1000})
	testutil.Must(t, err)
	const all = 50_000
	acked := make([]uint64, 0, all)
	for i := range all {
		testutil.Must(t, p.PublishFunc(fmt.Append(nil, i), func(offset uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			acked = append(acked, offset)
		}))
	}
	testutil.Must(t, p.Flush(within(t)))
	if len(acked) != all || acked[0] != 1 || acked[all-1] != all {
		t.Fatalf("%d are acknowledged", len(acked))
	}
	testutil.Must(t, p.Close(within(t)))
	if err := p.Publish(nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}

	r, err := client.NewReader(nc, "ticks", 0, 0, client.ReaderOptions{MaxRecords: 777})
	testutil.Must(t, err)
	read := 0
	for read < all {
		if read%3 == 0 {
			record, err := r.Next(within(t))
			testutil.Must(t, err)
			if string(record.Data) != fmt.Sprint(read) || record.Offset != uint64(read+1) || record.Subject != "" {
				t.Fatalf("record %d is %d: %s", read, record.Offset, record.Data)
			}
			read++
		} else {
			b, err := r.Batch(within(t))
			testutil.Must(t, err)
			for offset, data := range b.Data() {
				if string(data) != fmt.Sprint(read) || offset != uint64(read+1) {
					t.Fatalf("record %d is %d: %s", read, offset, data)
				}
				read++
			}
		}
		if r.Offset() != uint64(read+1) {
			t.Fatalf("after %d records the offset is %d", read, r.Offset())
		}
	}
	testutil.Must(t, r.Close())
	if _, err := r.Next(within(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}

	consumer, err := js.OrderedConsumer(within(t), "ticks", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 4711})
	testutil.Must(t, err)
	m, err := consumer.Next()
	testutil.Must(t, err)
	if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != 4711 || string(m.Data()) != "4710" || m.Subject() != "ticks.eu" || len(m.Headers()) != 0 {
		t.Errorf("a consumer got %s %v", m.Data(), m.Headers())
	}
}

// TestAReaderFollows: a reader at the end waits for new records, and returns their subjects, times
// and headers.
func TestAReaderFollows(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "ticks", nil)
	r, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{Full: true, Wait: 100 * time.Millisecond})
	testutil.Must(t, err)
	defer r.Close()
	short, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	if _, err := r.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of an empty topic: %v", err)
	}
	p, err := client.NewPublisher(nc, "ticks.eu", client.PublisherOptions{})
	testutil.Must(t, err)
	for round := range 3 {
		began := time.Now()
		testutil.Must(t, p.Publish([]byte("one"))) // Linger sends it
		testutil.Must(t, p.Publish(nil))
		_, err = js.PublishMsg(within(t), &nats.Msg{Subject: "ticks.us", Header: nats.Header{"Trace": {"7"}}, Data: []byte("two")})
		testutil.Must(t, err)
		want := map[string]bool{"ticks.eu one": true, "ticks.eu ": true, "ticks.us two": true}
		for range 3 {
			record, err := r.Next(within(t))
			testutil.Must(t, err)
			what := record.Subject + " " + string(record.Data)
			if !want[what] || record.Time.Before(began.Add(-time.Second)) || (record.Subject == "ticks.us") != strings.Contains(string(record.Header), "Trace: 7") {
				t.Errorf("round %d: %q of %s with %q", round, what, record.Time, record.Header)
			}
			delete(want, what)
		}
	}
	b, err := func() (*client.Batch, error) {
		r.Seek(2)
		if _, err := r.Next(within(t)); err != nil {
			return nil, err
		}
		return r.Batch(within(t))
	}()
	testutil.Must(t, err)
	n := 0
	for record := range b.Records() {
		if record.Offset != uint64(3+n) || record.Subject == "" {
			t.Errorf("%+v", record)
		}
		n++
	}
	if n != 7 || b.High != 10 || b.First != 3 {
		t.Errorf("%d records from %d on, below %d", n, b.First, b.High)
	}
	testutil.Must(t, p.Close(within(t)))
}

func TestReadAndPublishErrorsAreReported(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "ticks", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 })
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{})
	testutil.Must(t, err)
	for i := range 100 {
		testutil.Must(t, p.Publish(fmt.Append(nil, i)))
	}
	testutil.Must(t, p.Flush(within(t)))
	r, err := client.NewReader(nc, "ticks", 0, 50, client.ReaderOptions{})
	testutil.Must(t, err)
	_, err = r.Next(within(t))
	e, ok := errors.AsType[*client.ReadError](err)
	if !ok || e.Code != client.OutOfRange || e.Start != 91 || e.High != 101 {
		t.Fatalf("of what is gone: %v", err)
	}
	r.Seek(e.Start)
	if record, err := r.Next(within(t)); err != nil || string(record.Data) != "90" {
		t.Errorf("after Seek: %s, %v", record.Data, err)
	}
	r.Seek(0)
	if record, err := r.Next(within(t)); err != nil || record.Offset != 91 {
		t.Errorf("from the first: %d, %v", record.Offset, err)
	}
	testutil.Must(t, r.Close())
	for shard, name := range map[int]string{7: "ticks", 0: "nothing"} {
		r, err := client.NewReader(nc, name, shard, 1, client.ReaderOptions{})
		testutil.Must(t, err)
		if _, err := r.Batch(within(t)); func() bool { e, ok := errors.AsType[*client.ReadError](err); return !ok || e.Code != client.NotFound }() {
			t.Errorf("%s %d: %v", name, shard, err)
		}
		testutil.Must(t, r.Close())
	}
	if _, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{MaxBytes: 8 << 20}); err == nil || !strings.Contains(err.Error(), "8384512") {
		t.Errorf("too much at once: %v", err)
	}

	if _, ok := errors.AsType[*client.RecordTooLargeError](p.Publish(make([]byte, 3<<20))); !ok {
		t.Error("a record that fits no message is taken")
	}
	testutil.Must(t, p.Publish([]byte("it goes on")))
	testutil.Must(t, p.Close(within(t)))

	stream(t, js, "small", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 })
	p, err = client.NewPublisher(nc, "small", client.PublisherOptions{})
	testutil.Must(t, err)
	var told error
	testutil.Must(t, p.PublishFunc([]byte("more than ten bytes"), func(_ uint64, err error) { told = err }))
	refused, ok := errors.AsType[*client.RefusedError](p.Flush(within(t)))
	if !ok || refused.ErrCode != 40001 || !strings.Contains(refused.Text, "has 19 bytes; the topic takes 10") {
		t.Errorf("too large for its topic: %v", refused)
	}
	if err := p.Publish(nil); !errors.Is(err, error(refused)) {
		t.Errorf("after that: %v", err)
	}
	if err := p.Close(within(t)); !errors.Is(err, error(refused)) {
		t.Errorf("after that: %v", err)
	}
	if !errors.Is(told, error(refused)) {
		t.Errorf("who published was told %v", told)
	}

	p, err = client.NewPublisher(nc, "nobody.keeps.this", client.PublisherOptions{GiveUp: 3 * time.Second})
	testutil.Must(t, err)
	testutil.Must(t, p.Publish(nil))
	if err := p.Close(within(t)); err == nil || !strings.Contains(err.Error(), "no topic keeps this subject") {
		t.Errorf("of a subject that is not kept: %v", err)
	}
}

// TestAPublisherOutlivesItsBroker: the broker restarts while records are published: each is stored
// once and in order.
func TestAPublisherOutlivesItsBroker(t *testing.T) {
	c, data := newCluster(t), t.TempDir()
	address, stop := c.broker("main-0", testutil.FreeAddress(t), data)
	nc := connect(t, address)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	testutil.Must(t, err)
	stream(t, js, "ticks", func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{MaxRecords: 10, AckWait: 300 * time.Millisecond})
	testutil.Must(t, err)
	const all = 20_000
	published := make(chan error, 1)
	half := make(chan struct{})
	go func() {
		for i := range all {
			if i == all/2 {
				close(half)
			}
			if err := p.Publish(fmt.Append(nil, i)); err != nil {
				published <- err
				return
			}
		}
		published <- p.Flush(within(t))
	}()
	<-half
	stop()
	_, _ = c.broker("main-0", address, data)
	testutil.Must(t, <-published)
	testutil.Must(t, p.Close(within(t)))
	r, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{})
	testutil.Must(t, err)
	defer r.Close()
	for i := range all {
		record, err := r.Next(within(t))
		testutil.Must(t, err)
		if string(record.Data) != fmt.Sprint(i) {
			t.Fatalf("record %d is %s", i, record.Data)
		}
	}
}
