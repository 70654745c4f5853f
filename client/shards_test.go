package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestASnapshotOfSeveralShards: a Topic of four shards: batches go to the shard of their subject, a
// snapshot of all shards has everything that was acknowledged before it was asked for, and nothing
// that came later.
func TestASnapshotOfSeveralShards(t *testing.T) {
	nc, _ := oneBroker(t)
	const shards, subjects, before, after = 4, 24, 50, 20
	create := fmt.Sprintf(`{"stream":{"subjects":["ticks.>"],"storage":"memory"},"shards":%d}`, shards)
	m, err := nc.Request("$CARILLON.API.TOPIC.CREATE.ticks", []byte(create), patience)
	testutil.Must(t, err)
	if strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%s", m.Data)
	}
	publish := func(from, to int) {
		t.Helper()
		for s := range subjects {
			p, err := client.NewPublisher(nc, fmt.Sprint("ticks.", s), client.PublisherOptions{MaxRecords: 7})
			testutil.Must(t, err)
			for i := from; i < to; i++ {
				testutil.Must(t, p.Publish(fmt.Append(nil, i)))
			}
			testutil.Must(t, p.Close(within(t)))
		}
	}
	publish(0, before)
	s, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{})
	testutil.Must(t, err)
	publish(before, before+after)

	seen := map[string]int{}
	read := func(r *client.Reader, shard int, end func(err error) bool) {
		t.Helper()
		for want := uint64(1); ; want++ {
			record, err := r.Next(within(t))
			if end(err) {
				return
			}
			testutil.Must(t, err)
			subject := fmt.Sprintf("%d %s", shard, record.Subject)
			if record.Offset != want || string(record.Data) != fmt.Sprint(seen[subject]) {
				t.Fatalf("record %d of shard %d is %d, %s of %s after %d", want, shard, record.Offset, record.Data, record.Subject, seen[subject])
			}
			seen[subject]++
		}
	}
	all := s.Shards()
	if len(all) != shards {
		t.Fatalf("the snapshot has %+v", all)
	}
	for _, shard := range all {
		r, err := s.Reader(shard.Number, 0, client.ReaderOptions{Full: true, MaxRecords: 33})
		testutil.Must(t, err)
		read(r, shard.Number, func(err error) bool { return errors.Is(err, io.EOF) })
		testutil.Must(t, r.Close())
	}
	if len(seen) != subjects { // a subject that stood in two shards would be seen twice
		t.Errorf("%d subjects were in the snapshot: %v", len(seen), seen)
	}
	for subject, count := range seen {
		if count != before {
			t.Errorf("%d of %s are in the snapshot, and %d were acknowledged before it", count, subject, before)
		}
	}
	testutil.Must(t, s.Close(within(t)))
	// What came after is read where it stands.
	total := 0
	for _, shard := range all {
		r, err := client.NewReader(nc, "ticks", shard.Number, shard.High, client.ReaderOptions{})
		testutil.Must(t, err)
		for end := high(t, nc, shard.Number); r.Offset() < end; total++ {
			_, err := r.Next(within(t))
			testutil.Must(t, err)
		}
		testutil.Must(t, r.Close())
	}
	if total != subjects*after {
		t.Errorf("%d came after the snapshot, want %d", total, subjects*after)
	}
}

// olderBroker knows requests for a snapshot of single shards only, of which its Topic has three.
type olderBroker struct {
	hub *session.Hub

	mu   sync.Mutex
	held map[string]bool // by number of the shard
}

func (o *olderBroker) Wait() {}

func (o *olderBroker) Take(messages []session.Message, _ protocol.Memory, _ bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range messages {
		subject := strings.TrimPrefix(string(messages[i].Subject), "$CARILLON.API.")
		shard, ofShard := strings.CutPrefix(subject, "SNAPSHOT.ticks.")
		answer := `{"error":{"code":"BadRequest","text":"there is no such request"}}`
		header := ""
		switch {
		case subject == "RECORDS.ticks.0" && !strings.Contains(string(messages[i].Data), `"gaps"`):
			header, answer = "NATS/1.0\r\nCarillon-Records: 2\r\nCarillon-Offset: 4\r\nCarillon-Next: 9\r\nCarillon-High: 12\r\n\r\n", "\x01a\x00"
		case subject == "RECORDS.ticks.1" && strings.Contains(string(messages[i].Data), `"offset":6,`):
			// What is left of the other one.
			header, answer = "NATS/1.0\r\nCarillon-Records: 1\r\nCarillon-Offset: 12\r\nCarillon-Next: 13\r\nCarillon-High: 13\r\nCarillon-Gaps: 1\r\n\r\n", "\x00\x01c"
		case subject == "RECORDS.ticks.1" && strings.Contains(string(messages[i].Data), `"gaps":true`):
			header, answer = "NATS/1.0\r\nCarillon-Records: 3\r\nCarillon-Offset: 4\r\nCarillon-Next: 13\r\nCarillon-High: 13\r\nCarillon-Gaps: 1\r\n\r\n", "\x00\x01a\x00\x01b\x06\x01c"
		case subject == "TOPIC.INFO.ticks":
			answer = `{"topic":{"spec":{"shards":3}}}`
		case ofShard && strings.Contains(string(messages[i].Data), `"release"`):
			delete(o.held, shard)
			answer = `{}`
		case ofShard:
			o.held[shard] = true
			answer = `{"start":1,"high":1` + shard + `}`
		}
		o.hub.Send([]session.Message{{Subject: messages[i].Reply, Header: len(header), Data: []byte(header + answer)}})
	}
	return false
}

// startOlder runs one, and connects to it.
func startOlder(t *testing.T) (*olderBroker, *nats.Conn) {
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{ServerName: "older", Profile: profile})
	t.Cleanup(hub.Close)
	older := &olderBroker{hub: hub, held: map[string]bool{}}
	hub.Offer(older).Set([]string{"$CARILLON.API.>"})
	go func() { _ = hub.Serve(listener) }()
	return older, connect(t, listener.Addr().String())
}

// TestReadersStepOverGaps: a broker without support for gaps gets the request again without that
// field; one with support returns many runs in one answer.
func TestReadersStepOverGaps(t *testing.T) {
	_, nc := startOlder(t)
	for shard, want := range []string{"4:a 5: ", "4:a 5:b 12:c "} {
		r, err := client.NewReader(nc, "ticks", shard, 0, client.ReaderOptions{Ahead: 1})
		testutil.Must(t, err)
		got := ""
		for range strings.Count(want, ":") {
			record, err := r.Next(within(t))
			testutil.Must(t, err)
			got += fmt.Sprintf("%d:%s ", record.Offset, record.Data)
		}
		if got != want {
			t.Errorf("shard %d: %s, want %s", shard, got, want)
		}
		testutil.Must(t, r.Close())
	}
	// A batch behind single records is what is left.
	r, err := client.NewReader(nc, "ticks", 1, 0, client.ReaderOptions{Ahead: 1})
	testutil.Must(t, err)
	for range 2 {
		_, err = r.Next(within(t))
		testutil.Must(t, err)
	}
	b, err := r.Batch(within(t))
	testutil.Must(t, err)
	if b.First != 12 || b.Count != 1 || b.Next() != 13 || r.Offset() != 13 {
		t.Errorf("left is %+v, then %d", b, r.Offset())
	}
	testutil.Must(t, r.Close())
}

// TestASnapshotOfAnOlderBroker: a broker of an earlier version gets one request per shard.
func TestASnapshotOfAnOlderBroker(t *testing.T) {
	older, nc := startOlder(t)
	s, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{})
	testutil.Must(t, err)
	if got := s.Shards(); !slices.Equal(got, []client.Shard{{Number: 0, Start: 1, High: 10}, {Number: 1, Start: 1, High: 11}, {Number: 2, Start: 1, High: 12}}) {
		t.Errorf("%+v", got)
	}
	older.mu.Lock()
	held := len(older.held)
	older.mu.Unlock()
	testutil.Must(t, s.Close(within(t)))
	if held != 3 || len(older.held) != 0 {
		t.Errorf("%d shards were held, and %d after it was closed", held, len(older.held))
	}
}

// high is the offset behind a shard's last record.
func high(t *testing.T, nc *nats.Conn, shard int) uint64 {
	t.Helper()
	m, err := nc.Request(fmt.Sprintf("$CARILLON.API.SNAPSHOT.ticks.%d", shard), []byte(`{"id":"only to look"}`), patience)
	testutil.Must(t, err)
	var answer struct {
		High uint64 `json:"high"`
	}
	testutil.Must(t, json.Unmarshal(m.Data, &answer))
	return answer.High
}
