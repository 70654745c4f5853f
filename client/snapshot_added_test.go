package client_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestTheDifferenceOfTwoSnapshots: is what was published between them, also after the earlier one
// was closed, and without what retention has deleted meanwhile.
func TestTheDifferenceOfTwoSnapshots(t *testing.T) {
	nc, js := oneBroker(t)
	stream(t, js, "diffs", func(c *jetstream.StreamConfig) { c.MaxMsgs = 100 })
	p, err := client.NewPublisher(nc, "diffs", client.PublisherOptions{})
	testutil.Must(t, err)
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			testutil.Must(t, p.Publish(fmt.Append(nil, published)))
			published++
		}
		testutil.Must(t, p.Flush(within(t)))
	}
	take := func() *client.Snapshot {
		t.Helper()
		s, err := client.TakeSnapshot(within(t), nc, "diffs", client.SnapshotOptions{})
		testutil.Must(t, err)
		return s
	}
	since := func(s *client.Snapshot, earlier []client.Shard, want client.Added) {
		t.Helper()
		got, err := s.Since(earlier)
		testutil.Must(t, err)
		if len(got) != 1 || got[0] != want {
			t.Fatalf("%+v were added, want %+v", got, want)
		}
		r, err := s.Reader(0, got[0].Start, client.ReaderOptions{})
		testutil.Must(t, err)
		defer func() { _ = r.Close() }()
		for offset := want.Start; ; offset++ {
			record, err := r.Next(within(t))
			if errors.Is(err, io.EOF) && offset == want.High {
				break
			}
			testutil.Must(t, err)
			if record.Offset != offset || string(record.Data) != fmt.Sprint(offset-1) {
				t.Fatalf("record %d is %d: %s", offset, record.Offset, record.Data)
			}
		}
	}
	publish(10)
	first := take()
	earlier := first.Shards()
	testutil.Must(t, first.Close(within(t)))
	same := take()
	since(same, earlier, client.Added{Start: 11, High: 11})
	publish(20)
	second := take()
	since(second, earlier, client.Added{Start: 11, High: 31})
	testutil.Must(t, same.Close(within(t)))
	later := second.Shards()
	testutil.Must(t, second.Close(within(t)))
	publish(200)
	third := take()
	start := third.Shards()[0].Start
	since(third, later, client.Added{Start: start, High: 231, Lost: start - 31})
	if start <= 31 {
		t.Errorf("retention has deleted nothing: the snapshot begins at %d", start)
	}

	for want, shards := range map[string][]client.Shard{
		"is it an earlier one":        {{Number: 0, Start: 1, High: 1000}},
		"they are of different Topic": {{Number: 0, Start: 1, High: 2}, {Number: 1, Start: 1, High: 2}},
		"shard 1":                     {{Number: 1, Start: 1, High: 2}},
		"ends at offset 0":            {{}},
	} {
		if _, err := third.Since(shards); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", shards, err)
		}
	}
	testutil.Must(t, third.Close(within(t)))
	testutil.Must(t, p.Close(within(t)))
}
