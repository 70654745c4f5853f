package client_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// capricious is a topic that loses, refuses and answers as it likes, but keeps what the protocol
// says: ids once, and nothing before what it is to be behind.
type capricious struct {
	rng  *rand.Rand
	kept []string
	ids  map[string]int // offsets of last records
	seen map[string]int // what became of messages
}

func (c *capricious) take(nc *nats.Conn, m *nats.Msg) {
	answer := func(format string, args ...any) {
		if c.rng.IntN(10) == 0 {
			c.seen["ack lost"]++
			return
		}
		if text := fmt.Appendf(nil, format, args...); c.rng.IntN(10) == 0 {
			c.seen["ack late"]++
			time.AfterFunc(time.Duration(c.rng.IntN(30))*time.Millisecond, func() { _ = nc.Publish(m.Reply, text) })
		} else {
			_ = nc.Publish(m.Reply, text)
		}
	}
	id, after := m.Header.Get("Nats-Msg-Id"), m.Header.Get("Carillon-After")
	if c.rng.IntN(10) == 0 {
		c.seen["lost"]++
		return
	}
	if c.rng.IntN(10) == 0 {
		c.seen["refused"]++
		answer(`{"error":{"code":503,"err_code":10077,"description":"the disk is behind"}}`)
		return
	}
	if at, ok := c.ids[id]; ok {
		c.seen["again"]++
		answer(`{"stream":"s","seq":%d,"duplicate":true}`, at)
		return
	}
	if _, ok := c.ids[after]; after != "" && !ok {
		c.seen["not after"]++
		answer(`{"error":{"code":400,"err_code":40002,"description":"no message with id %s"}}`, after)
		return
	}
	n := 0
	for rest := m.Data; len(rest) > 0; n++ {
		size, k := binary.Uvarint(rest)
		c.kept = append(c.kept, string(rest[k:k+int(size)]))
		rest = rest[k+int(size):]
	}
	c.ids[id] = len(c.kept)
	answer(`{"stream":"s","seq":%d,"count":%d}`, len(c.kept), n)
}

// TestEachRecordOnceAndInOrder: with lost, refused and late messages and acks, each record is
// stored once and in order, and its offset is reported.
func TestEachRecordOnceAndInOrder(t *testing.T) {
	nc, _ := oneBroker(t)
	seen := map[string]int{}
	for seed := range uint64(4) {
		c := &capricious{rng: rand.New(rand.NewPCG(seed, 0)), ids: map[string]int{}, seen: seen}
		sub, err := nc.Subscribe(fmt.Sprint("plain.", seed), func(m *nats.Msg) { c.take(nc, m) })
		testutil.Must(t, err)
		p, err := client.NewPublisher(nc, fmt.Sprint("plain.", seed), client.PublisherOptions{MaxRecords: 5, Window: 6, AckWait: 10 * time.Millisecond})
		testutil.Must(t, err)
		const all = 1000
		next := 0
		for i := range all {
			testutil.Must(t, p.PublishFunc(fmt.Append(nil, i), func(offset uint64, err error) {
				if err != nil || int(offset) != i+1 || i != next {
					t.Errorf("seed %d: record %d, after %d, is told %d, %v", seed, i, next, offset, err)
				}
				next++
			}))
		}
		testutil.Must(t, p.Close(within(t)))
		testutil.Must(t, sub.Unsubscribe())
		if next != all || len(c.kept) != all {
			t.Fatalf("seed %d: %d records are told, and %d kept", seed, next, len(c.kept))
		}
		for i, record := range c.kept {
			if record != fmt.Sprint(i) {
				t.Fatalf("seed %d: record %d is %s", seed, i, record)
			}
		}
	}
	for _, what := range []string{"lost", "refused", "again", "not after", "ack lost", "ack late"} {
		if seen[what] == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
}

// TestTheFateOfAnUnansweredPublishIsUnknown: a publisher without an answer ends with an
// UnknownError.
func TestTheFateOfAnUnansweredPublishIsUnknown(t *testing.T) {
	nc, _ := oneBroker(t)
	_, err := nc.Subscribe("deaf", func(*nats.Msg) {})
	testutil.Must(t, err)
	p, err := client.NewPublisher(nc, "deaf", client.PublisherOptions{MaxRecords: 2, Window: 2, AckWait: 10 * time.Millisecond, GiveUp: 2 * time.Second})
	testutil.Must(t, err)
	told := 0
	for i := 0; ; i++ {
		if err = p.PublishFunc(nil, func(_ uint64, err error) {
			if err == nil {
				t.Error("one is acknowledged")
			}
			told++
		}); err != nil {
			if i < 4 || i > 7 { // four under way and two that wait for room
				t.Errorf("%d records were taken", i)
			}
			break
		}
	}
	unknown, ok := errors.AsType[*client.UnknownError](err)
	if !ok || unknown.Records != 4 || unknown.Subject != "deaf" || unknown.After < 2*time.Second || !strings.Contains(err.Error(), "may or may not be kept") {
		t.Errorf("%v", err)
	}
	if err := p.Close(within(t)); err != error(unknown) || told < 6 || p.Err() != err {
		t.Errorf("%d are told; %v", told, err)
	}

	// A server that knows nothing of records keeps a message as it is, and must not be taken for
	// one that does.
	_, err = nc.Subscribe("plain", func(m *nats.Msg) { _ = m.Respond([]byte(`{"stream":"s","seq":7}`)) })
	testutil.Must(t, err)
	p, err = client.NewPublisher(nc, "plain", client.PublisherOptions{})
	testutil.Must(t, err)
	testutil.Must(t, p.Publish(nil))
	if err := p.Close(within(t)); err == nil || !strings.Contains(err.Error(), "doesn't know of batches of records") {
		t.Errorf("%v", err)
	}
}

// TestAFewRecordsDoNotWait: a record waits for others at most for Linger.
func TestAFewRecordsDoNotWait(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "ticks", nil)
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{Linger: 20 * time.Millisecond})
	testutil.Must(t, err)
	defer p.Close(within(t))
	done := make(chan uint64, 1)
	began := time.Now()
	testutil.Must(t, p.PublishFunc([]byte("one"), func(offset uint64, _ error) { done <- offset }))
	select {
	case <-done:
		if took := time.Since(began); took < 20*time.Millisecond {
			t.Errorf("it was sent after %s", took)
		}
	case <-time.After(patience):
		t.Error("it was never sent")
	}
}

func BenchmarkPublish(b *testing.B) {
	nc, js := oneBroker(b)
	stream(b, js, "ticks", nil)
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{})
	testutil.Must(b, err)
	record := make([]byte, 64)
	b.SetBytes(64)
	for b.Loop() {
		testutil.Must(b, p.Publish(record))
	}
	testutil.Must(b, p.Close(within(b)))
}

func BenchmarkRead(b *testing.B) {
	nc, js := oneBroker(b)
	stream(b, js, "ticks", nil)
	p, err := client.NewPublisher(nc, "ticks", client.PublisherOptions{})
	testutil.Must(b, err)
	record := make([]byte, 64)
	const all = 1 << 20
	for range all {
		testutil.Must(b, p.Publish(record))
	}
	testutil.Must(b, p.Close(within(b)))
	r, err := client.NewReader(nc, "ticks", 0, 1, client.ReaderOptions{})
	testutil.Must(b, err)
	defer r.Close()
	b.SetBytes(64)
	ctx := within(b)
	left := 0
	for b.Loop() {
		if left == 0 {
			if r.Offset() > all {
				r.Seek(1)
			}
			batch, err := r.Batch(ctx)
			testutil.Must(b, err)
			for _, data := range batch.Data() {
				left += len(data)
			}
			left /= 64
		}
		left--
	}
}
