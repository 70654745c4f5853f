package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
)

// A Topic of four shards: batches go to the shard of their subject, a snapshot of all shards has everything that was acknowledged
// before it was asked for, and nothing that came later.
func TestASnapshotOfSeveralShards(t *testing.T) {
	nc, _ := oneBroker(t)
	const shards, subjects, before, after = 4, 24, 50, 20
	create := fmt.Sprintf(`{"stream":{"subjects":["ticks.>"],"storage":"memory"},"shards":%d}`, shards)
	m, err := nc.Request("$CARILLON.API.TOPIC.CREATE.ticks", []byte(create), patience)
	must(t, err)
	if strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%s", m.Data)
	}
	publish := func(from, to int) {
		t.Helper()
		for s := range subjects {
			p, err := client.NewPublisher(nc, fmt.Sprint("ticks.", s), client.PublisherOptions{MaxRecords: 7})
			must(t, err)
			for i := from; i < to; i++ {
				must(t, p.Publish(fmt.Append(nil, i)))
			}
			must(t, p.Close(within(t)))
		}
	}
	publish(0, before)
	s, err := client.TakeSnapshot(within(t), nc, "ticks", client.SnapshotOptions{})
	must(t, err)
	publish(before, before+after)

	seen := map[string]int{}
	read := func(r *client.Reader, shard int, end func(err error) bool) {
		t.Helper()
		for want := uint64(1); ; want++ {
			record, err := r.Next(within(t))
			if end(err) {
				return
			}
			must(t, err)
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
		must(t, err)
		read(r, shard.Number, func(err error) bool { return errors.Is(err, io.EOF) })
		must(t, r.Close())
	}
	if len(seen) != subjects { // a subject that stood in two shards would be seen twice
		t.Errorf("%d subjects were in the snapshot: %v", len(seen), seen)
	}
	for subject, count := range seen {
		if count != before {
			t.Errorf("%d of %s are in the snapshot, and %d were acknowledged before it", count, subject, before)
		}
	}
	must(t, s.Close(within(t)))
	// What came after is read where it stands.
	total := 0
	for _, shard := range all {
		r, err := client.NewReader(nc, "ticks", shard.Number, shard.High, client.ReaderOptions{})
		must(t, err)
		for end := high(t, nc, shard.Number); r.Offset() < end; total++ {
			_, err := r.Next(within(t))
			must(t, err)
		}
		must(t, r.Close())
	}
	if total != subjects*after {
		t.Errorf("%d came after the snapshot, want %d", total, subjects*after)
	}
}

// high is the offset behind a shard's last record.
func high(t *testing.T, nc *nats.Conn, shard int) uint64 {
	t.Helper()
	m, err := nc.Request(fmt.Sprintf("$CARILLON.API.SNAPSHOT.ticks.%d", shard), []byte(`{"id":"only to look"}`), patience)
	must(t, err)
	var answer struct {
		High uint64 `json:"high"`
	}
	must(t, json.Unmarshal(m.Data, &answer))
	return answer.High
}
