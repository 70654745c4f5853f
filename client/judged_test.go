package client_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAReaderReadsWhatMatches: the broker judges, and says how much it looked at, also where
// nothing matches; a Limit and an End end it, however records are taken.
func TestAReaderReadsWhatMatches(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "orders", nil)
	p, err := client.NewPublisher(nc, "orders.eu", client.PublisherOptions{MaxRecords: 100})
	testutil.Must(t, err)
	for n := range 3000 {
		data := fmt.Sprintf(`{"n":%d}`, n)
		if n%100 == 50 {
			data = "no JSON"
		}
		testutil.Must(t, p.Publish([]byte(data)))
	}
	testutil.Must(t, p.Flush(within(t)))
	s, err := client.TakeSnapshot(within(t), nc, "orders", client.SnapshotOptions{})
	testutil.Must(t, err)
	defer func() { _ = s.Close(within(t)) }()

	for _, c := range []struct {
		options                      client.ReaderOptions
		matching, examined, unjudged int
		next                         uint64
	}{
		{client.ReaderOptions{Where: "json.n >= 1000.0 && json.n < 1300.0"}, 297, 3000, 30, 3001},
		{client.ReaderOptions{Where: "json.n >= 1000.0 && json.n < 1300.0", Full: true, MaxBytes: 100}, 297, 3000, 30, 3001},
		{client.ReaderOptions{Where: "json.n < 0.0"}, 0, 3000, 30, 3001},
		{client.ReaderOptions{Where: "json.n > 0.0", Subjects: []string{"orders.us", "bills.>"}}, 0, 3000, 0, 3001},
		{client.ReaderOptions{Subjects: []string{"orders.*"}, End: 2000}, 1999, 1999, 0, 2000},
		{client.ReaderOptions{Where: "json.n >= 1000.0", Limit: 10}, 10, 1010, 10, 1011},
		{client.ReaderOptions{Where: "json.n >= 1000.0", Limit: 10, MaxRecords: 3}, 10, 1010, 10, 1011},
		{client.ReaderOptions{Limit: 10, MaxRecords: 3}, 10, 0, 0, 11},
	} {
		r, err := s.Reader(0, 0, c.options)
		testutil.Must(t, err)
		matching, examined, unjudged := 0, 0, 0
		for {
			b, err := r.Batch(within(t))
			if errors.Is(err, io.EOF) {
				break
			}
			testutil.Must(t, err)
			matching, examined, unjudged = matching+b.Count, examined+b.Examined, unjudged+b.Unjudged
			if (b.Why == "the payload is no JSON") != (b.Unjudged > 0) || (b.Latest > 0) != (b.Examined > 0) || time.Since(time.Unix(0, b.Latest)) > time.Hour && b.Examined > 0 {
				t.Errorf("%+v", b)
			}
		}
		if matching != c.matching || examined != c.examined || unjudged != c.unjudged || r.Offset() != c.next {
			t.Errorf("%+v: %d match of %d, %d could not be judged, and it is at %d; want %+v", c.options, matching, examined, unjudged, r.Offset(), c)
		}
		testutil.Must(t, r.Close())

		// One record, then what is left of its batch, then single ones again.
		r, err = s.Reader(0, 0, c.options)
		testutil.Must(t, err)
		taken, last := 0, uint64(0)
		for n := 0; ; n++ {
			if n == 1 {
				b, err := r.Batch(within(t))
				if errors.Is(err, io.EOF) {
					break
				}
				testutil.Must(t, err)
				taken += b.Count
				continue
			}
			record, err := r.Next(within(t))
			if errors.Is(err, io.EOF) {
				break
			}
			testutil.Must(t, err)
			if taken++; record.Offset <= last {
				t.Fatalf("%+v: record %d follows %d", c.options, record.Offset, last)
			}
			last = record.Offset
		}
		if taken != c.matching {
			t.Errorf("%+v: %d were taken, want %d", c.options, taken, c.matching)
		}
		testutil.Must(t, r.Close())
	}

	r, err := client.NewReader(nc, "orders", 0, 0, client.ReaderOptions{Where: "json.n >"})
	testutil.Must(t, err)
	defer func() { _ = r.Close() }()
	_, err = r.Next(within(t))
	if e, ok := errors.AsType[*client.ReadError](err); !ok || e.Code != client.BadRequest || !strings.Contains(e.Text, "where") {
		t.Errorf("%v", err)
	}
	for _, wrong := range []client.ReaderOptions{{Limit: -1}, {End: 5}} {
		if _, err := client.NewReader(nc, "orders", 0, 0, wrong); err == nil {
			t.Errorf("%+v: no error", wrong)
		}
	}
}

// lateBroker answers each request for records when it is asked for the second time, by the reply
// subject of the first one; and ignores conditions.
type lateBroker struct {
	hub   *session.Hub
	mu    sync.Mutex
	first []byte
}

func (b *lateBroker) Wait() {}

func (b *lateBroker) Take(messages []protocol.Message, _ protocol.Memory, _ bool) bool {
	for _, m := range messages {
		b.mu.Lock()
		if b.first == nil {
			b.first = append(b.first, m.Reply...)
			b.mu.Unlock()
			continue
		}
		header := "NATS/1.0\r\nCarillon-Records: 1\r\nCarillon-Offset: 1\r\nCarillon-Next: 2\r\nCarillon-High: 2\r\n\r\n"
		_ = b.hub.Send([]protocol.Message{{Subject: b.first, Header: len(header), Data: []byte(header + "\x01a")}})
		b.mu.Unlock()
	}
	return false
}

func startLate(t *testing.T) *nats.Conn {
	return startTaker(t, func(hub *session.Hub) session.Taker { return &lateBroker{hub: hub} })
}

// startTaker is a broker whose answers are a Taker's.
func startTaker(t *testing.T, taker func(*session.Hub) session.Taker) *nats.Conn {
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{ServerName: "late", Profile: profile})
	t.Cleanup(hub.Close)
	hub.Offer(taker(hub)).Set([]string{"$CARILLON.API.>"})
	go func() { _ = hub.Serve(listener) }()
	return connect(t, listener.Addr().String())
}

// TestALateAnswerCounts: a broker that takes longer for each answer than a Reader waits is read
// from all the same.
func TestALateAnswerCounts(t *testing.T) {
	r, err := client.NewReader(startLate(t), "orders", 0, 1, client.ReaderOptions{Wait: time.Millisecond})
	testutil.Must(t, err)
	defer func() { _ = r.Close() }()
	if record, err := r.Next(within(t)); err != nil || string(record.Data) != "a" {
		t.Errorf("%+v, %v", record, err)
	}
}

// TestAnswersToConditionsSayWhatWasExamined: records that nobody judged are not taken for matching
// ones.
func TestAnswersToConditionsSayWhatWasExamined(t *testing.T) {
	r, err := client.NewReader(startLate(t), "orders", 0, 1, client.ReaderOptions{Wait: time.Millisecond, Where: "json.n > 1"})
	testutil.Must(t, err)
	defer func() { _ = r.Close() }()
	_, err = r.Next(within(t))
	if e, ok := errors.AsType[*client.ReadError](err); !ok || e.Code != client.Malformed {
		t.Errorf("%v", err)
	}
}

// hidingBroker answers the first request only. Its answer says that there are records up to 9, and
// that the user may read none of them.
type hidingBroker struct {
	hub      *session.Hub
	answered atomic.Bool
}

func (b *hidingBroker) Wait() {}

func (b *hidingBroker) Take(messages []protocol.Message, _ protocol.Memory, _ bool) bool {
	for _, m := range messages {
		if !b.answered.Swap(true) {
			header := "NATS/1.0\r\nCarillon-Records: 0\r\nCarillon-Offset: 9\r\nCarillon-Next: 9\r\nCarillon-High: 9\r\nCarillon-Gaps: 1\r\nCarillon-Examined: 0\r\nCarillon-Unjudged: 0\r\n\r\n"
			_ = b.hub.Send([]protocol.Message{{Subject: m.Reply, Header: len(header), Data: []byte(header)}})
		}
	}
	return false
}

// TestAReaderCatchesUpBehindHiddenRecords: where others publish what a user may not read, the user
// still learns that there is nothing for it.
func TestAReaderCatchesUpBehindHiddenRecords(t *testing.T) {
	nc := startTaker(t, func(hub *session.Hub) session.Taker { return &hidingBroker{hub: hub} })
	r, err := client.NewReader(nc, "orders", 0, 1, client.ReaderOptions{Where: "true"})
	testutil.Must(t, err)
	defer func() { _ = r.Close() }()
	b, err := r.Batch(within(t))
	if err != nil || b.Count != 0 || r.Offset() != 9 {
		t.Fatalf("%+v, %v", b, err)
	}
	if at, ok := r.CaughtUp(); !ok || at.IsZero() {
		t.Error("it has not caught up")
	}
}
