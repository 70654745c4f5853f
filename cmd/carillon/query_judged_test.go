package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// olderBroker is the address of a proxy of a broker that makes it seem one of a version that knows
// no conditions in requests for records: they come to it with fields that it does not know. Some of
// these requests are let through at first. refused counts the others.
func olderBroker(t *testing.T, url string, let int64) (address string, refused *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	refused = new(atomic.Int64)
	var letThrough atomic.Int64
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				_ = near.Close()
				return
			}
			var once sync.Once
			end := func() {
				once.Do(func() {
					_ = near.Close()
					_ = far.Close()
				})
			}
			go func() {
				defer end()
				_, _ = io.Copy(near, far)
			}()
			go func() {
				defer end()
				for lines := bufio.NewReader(near); ; {
					line, err := lines.ReadBytes('\n')
					older := bytes.ReplaceAll(line, []byte(`"where":`), []byte(`"whatt":`))
					older = bytes.ReplaceAll(older, []byte(`"subjects":`), []byte(`"sobjects":`))
					if !bytes.Equal(older, line) && letThrough.Add(1) > let {
						refused.Add(1)
						line = older
					}
					if _, failed := far.Write(line); failed != nil || err != nil {
						return
					}
				}
			}()
		}
	}()
	return "nats://" + listener.Addr().String(), refused
}

// TestBrokersAndTheCommandJudgeAlike: a query prints the same lines, counts and reasons, whether
// the brokers judge, or know no conditions, or some of them that lead later know none.
func TestBrokersAndTheCommandJudgeAlike(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create one")
	s.does("topic create orders --shards 3")
	js, err := jetstream.New(connect(t, dev.url), jetstream.WithDefaultTimeout(testutil.Patience))
	testutil.Must(t, err)
	for _, topic := range []string{"one", "orders"} {
		for n := range 600 {
			data := fmt.Sprintf(`{"id": %d, "region": %q, "total": %d.5}`, n, []string{"eu", "us", "asia"}[n%3], n)
			switch n % 20 {
			case 3:
				data = "no JSON"
			case 7:
				data = `{"region": "eu"}`
			case 11:
				data = ""
			}
			_, err := js.Publish(t.Context(), fmt.Sprintf("%s.%d", topic, n%7), []byte(data))
			testutil.Must(t, err)
		}
	}
	stream, err := js.Stream(t.Context(), "one")
	testutil.Must(t, err)
	for _, removed := range []uint64{1, 4, 310, 311, 312, 450} {
		testutil.Must(t, stream.DeleteMsg(t.Context(), removed))
	}
	s.does(`pub --ack one.header --header Priority:1`, `{"id": 1000, "region": "eu", "total": 1000}`)
	between := time.Now().UTC().Format(time.RFC3339Nano)
	s.does(`pub --ack one.last`, `{"id": 1001, "region": "eu", "total": 2000}`)

	for _, c := range []struct {
		topic string
		args  []string
	}{
		{"one", []string{"--where", `json.total > 300.0 && json.region == "eu"`}},
		{"one", []string{"--where", `json.total > 300.0 && json.region == "eu"`, "--output", "table"}},
		{"one", []string{"--where", `json.total > 1e9`}},
		{"one", []string{"--where", `json.total > 100.0`, "--count", "5"}},
		{"one", []string{"--where", `json.total > 100.0`, "--count", "5", "--follow"}},
		{"one", []string{"--where", `headers.Priority == "1"`}},
		{"one", []string{"--where", `json.items.exists(i, i == 3)`}},
		{"one", []string{"--where", `json.total > 100.0`, "--from", "400"}},
		{"one", []string{"--where", `json.total > 100.0`, "--to", between}},
		{"one", []string{"--where", `json.total > 100.0`, "--from", between}},
		{"one", []string{"--filter", "one.1,one.header"}},
		{"one", []string{"--filter", "nobody.>", "--where", "json.id > 0"}},
		{"one", []string{"--filter", "one.*", "--where", "json.id > 0", "--aggregate", "count(), sum(json.total), max(json.id)", "--by", "json.region"}},
		{"orders", []string{"--where", `json.total > 300.0 && json.region == "eu"`}},
		{"orders", []string{"--filter", "orders.3", "--where", "has(json.id)"}},
	} {
		run := func(url string) (lines []string, said string) {
			out, said, code := shell{t, url}.types("", "query "+c.topic, c.args...)
			if code != 0 {
				t.Fatalf("%s: exit code %d: %s", c.args, code, said)
			}
			lines = strings.Split(out, "\n")
			if c.topic == "orders" { // shards come as they are read
				slices.Sort(lines)
				said, _, _ = strings.Cut(said, "; of the first one")
			}
			return lines, said
		}
		lines, said := run(dev.url)
		if !strings.Contains(said, " messages match\n") {
			t.Errorf("%s: %s", c.args, said)
		}
		for _, let := range []int64{0, 1} {
			older, refused := olderBroker(t, dev.url, let)
			otherLines, otherSaid := run(older)
			if !slices.Equal(lines, otherLines) || said != otherSaid {
				t.Errorf("%s: the broker judges:\n%s%s\nthe command judges:\n%s%s", c.args, strings.Join(lines, "\n"), said, strings.Join(otherLines, "\n"), otherSaid)
			}
			if let == 0 && refused.Load() == 0 {
				t.Errorf("%s: the command did not ask the broker to judge", c.args)
			}
		}
	}
}

// TestTheCommandGoesOnWhereABrokerJudgedTo: once an answer says that a shard is led by a version
// that knows no conditions, the rest is judged here, and nothing twice.
func TestTheCommandGoesOnWhereABrokerJudgedTo(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders")
	p, err := client.NewPublisher(connect(t, dev.url), "orders", client.PublisherOptions{MaxRecords: 1000})
	testutil.Must(t, err)
	for n := range 20_000 { // the broker takes several answers of 1 MiB for them
		testutil.Must(t, p.Publish(fmt.Appendf(nil, `{"n":%d,"note":%q}`, n, strings.Repeat("x", 200))))
	}
	testutil.Must(t, p.Flush(context.Background()))
	older, refused := olderBroker(t, dev.url, 2)
	out, said, code := shell{t, older}.types("", "query orders", "--where", "json.n >= 0.0", "--output", "raw")
	if code != 0 || !strings.Contains(said, "20000 of 20000 messages match") || refused.Load() == 0 {
		t.Fatalf("exit code %d, %d requests were refused: %s", code, refused.Load(), said)
	}
	n := 0
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, fmt.Sprintf(`{"n":%d,`, n)) {
			t.Fatalf("line %d is %.40s", n, line)
		}
		n++
	}
	if n != 20_000 {
		t.Errorf("%d lines", n)
	}
}
