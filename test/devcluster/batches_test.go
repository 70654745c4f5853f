//go:build linux

package devcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// batches are the atomic batches of some publishers.
type batches struct {
	mu      sync.Mutex
	kept    map[string]uint64 // the last sequence of each acknowledged batch, by id
	unknown int               // batches without an answer
}

// publish publishes batches until ctx ends. Each message says of which batch it is, its place, and
// how many there are.
func (b *batches) publish(ctx context.Context, js jetstream.JetStream, of string) {
	nc := js.Conn()
	for i := 0; ctx.Err() == nil; i++ {
		id, size := fmt.Sprint(of, "-", i), 1+i%20
		message := func(n int) *nats.Msg {
			m := nats.NewMsg(fmt.Sprint("batches.", n%3))
			m.Header.Set("Nats-Batch-Id", id)
			m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(n))
			m.Data = fmt.Append(nil, id, " ", n, " ", size)
			return m
		}
		for n := 1; n < size; n++ {
			_ = nc.PublishMsg(message(n))
		}
		last := message(size)
		last.Header.Set("Nats-Batch-Commit", "1")
		r, err := nc.RequestMsg(last, 2*time.Second) // it is lost with its broker
		var ack struct {
			Error *jetstream.APIError
			Seq   uint64
			Count int
			Batch string
		}
		if err == nil {
			err = json.Unmarshal(r.Data, &ack)
		}
		b.mu.Lock()
		if err == nil && ack.Error == nil && ack.Count == size && ack.Batch == id {
			b.kept[id] = ack.Seq
		} else {
			b.unknown++
		}
		b.mu.Unlock()
	}
}

func (b *batches) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.kept)
}

// whole reads messages in their order and says whether they are whole batches.
type whole struct {
	ends map[string]uint64 // the last sequence of each batch
	id   string            // of the batch that has begun
	next int               // its next message
	last uint64
}

func (w *whole) take(data string, seq uint64) error {
	var id string
	var n, size int
	if _, err := fmt.Sscan(data, &id, &n, &size); err != nil {
		return fmt.Errorf("message %d is %q", seq, data)
	}
	if n != w.next || n > 1 && id != w.id || seq != w.last+1 {
		return fmt.Errorf("message %d is %q, behind %d, message %d of batch %s", seq, data, w.last, w.next-1, w.id)
	}
	w.id, w.next, w.last = id, n+1, seq
	if n == size {
		if _, twice := w.ends[id]; twice {
			return fmt.Errorf("batch %s is there twice", id)
		}
		w.ends[id], w.next = seq, 1
	}
	return nil
}

// TestBatchesStayWholeWhileTheirLeadersDie: clients of all brokers publish atomic batches while the
// leader is killed again and again, and a reader follows. Each acknowledged batch is where its ack
// says, and no batch is there in part, or twice.
func TestBatchesStayWholeWhileTheirLeadersDie(t *testing.T) {
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "batches", Subjects: []string{"batches.*"}, Replicas: 3, AllowAtomicPublish: true})
	testutil.Must(t, err)
	c.whole(js, "batches")
	b := &batches{kept: map[string]uint64{}}
	publishing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for broker := range c.urls {
		for i := range 2 {
			js := c.connectTo(broker)
			running.Go(func() { b.publish(publishing, js, fmt.Sprint(broker, "-", i)) })
		}
	}
	// What this reader gets, in order, ends within no batch for long.
	reader, err := js.OrderedConsumer(ctx, "batches", jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	follows := whole{ends: map[string]uint64{}, next: 1}
	var followed error
	var mu sync.Mutex
	consuming, err := reader.Consume(func(m jetstream.Msg) {
		is, err := m.Metadata()
		mu.Lock()
		defer mu.Unlock()
		if err == nil && followed == nil && is.Sequence.Stream > follows.last {
			followed = follows.take(string(m.Data()), is.Sequence.Stream)
		}
	}, jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {}))
	testutil.Must(t, err)
	defer consuming.Stop()
	c.killLeaders(js, "batches", "batches are acknowledged", 100, b.count)
	stop()
	running.Wait()

	is, err := stream.Info(ctx)
	testutil.Must(t, err)
	testutil.Eventually(t, "the reader has all", func() error {
		mu.Lock()
		defer mu.Unlock()
		if followed != nil {
			t.Fatal(followed)
		}
		if follows.last < is.State.LastSeq || follows.next != 1 {
			return fmt.Errorf("it has %d of %d, and message %d of batch %s", follows.last, is.State.LastSeq, follows.next-1, follows.id)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for id, seq := range b.kept {
		if follows.ends[id] != seq {
			t.Errorf("batch %s was acknowledged at %d, and ends at %d", id, seq, follows.ends[id])
		}
	}
	t.Logf("%d batches were acknowledged, %d are there, and %d had no answer", len(b.kept), len(follows.ends), b.unknown)
	if extra := len(follows.ends) - len(b.kept); extra > b.unknown {
		t.Errorf("%d batches are there without an ack", extra)
	}
}
