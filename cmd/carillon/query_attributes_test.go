package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestQueriesKnowTheAttributesOfStoredMessages: those of the time when each was stored, whether the
// brokers judge or the command does, in conditions, keys and functions.
func TestQueriesKnowTheAttributesOfStoredMessages(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 2")
	publish := func(subject string, n int) {
		t.Helper()
		s.does("pub --ack "+subject, fmt.Sprintf(`{"n": %d}`, n))
	}
	publish("orders.7", 0)
	s.does("attributes set orders.7 room=410 floor:=4")
	publish("orders.7", 1)
	s.does("attributes set orders.7 room=411")
	publish("orders.7", 2)
	s.does("attributes set orders.8 room=410")
	publish("orders.8", 3)
	publish("orders.8", 4)
	s.does("attributes delete orders.7")
	publish("orders.7", 5)

	older, refused := olderBroker(t, dev.url, 0)
	for _, url := range []string{dev.url, older} {
		s := shell{t, url}
		for _, c := range []struct{ where, want, said string }{
			{`attributes.room == "410"`, "1 3 4", "3 of 6 messages match\n2 could not be judged"},
			{`has(attributes.floor) && json.n > 1`, "2", "1 of 6 messages match"},
			{`!("room" in attributes)`, "0 5", "2 of 6 messages match"},
			{`attributes.exists(k, attributes[k] == 4.0)`, "1 2", "2 of 6 messages match"},
		} {
			got, said := s.query("orders", c.where)
			var found []string
			for _, q := range got {
				found = append(found, strings.Trim(string(q.JSON), `{"n: }`))
			}
			if slices.Sort(found); strings.Join(found, " ") != c.want || !strings.Contains(said, c.said) {
				t.Errorf("%s: %q, want %s: %s", c.where, found, c.want, said)
			}
		}
		out, said, code := s.types("", "query orders", "--where", "has(attributes.room)", "--aggregate", "count(), max(json.n) as last, count(attributes.floor) as floors", "--by", "attributes.room", "--output", "json")
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		if want := []string{`{"attributes.room":"410","count()":3,"last":4,"floors":1}`, `{"attributes.room":"411","count()":1,"last":2,"floors":1}`}; !slices.Equal(lines, want) {
			t.Errorf("the results are %q, want %q", lines, want)
		}
	}
	if refused.Load() == 0 {
		t.Error("the command did not judge")
	}
	s.fails(2, "undeclared reference to 'attribute'", "query orders --where attribute.room>1")

	nc := connect(t, dev.url)
	want := map[string]string{`{"n": 1}`: `{"floor":4,"room":"410"}`, `{"n": 2}`: `{"floor":4,"room":"411"}`, `{"n": 3}`: `{"room":"410"}`, `{"n": 4}`: `{"room":"410"}`}
	seen := 0
	for shard := range 2 {
		for _, where := range []string{"", "json.n >= 0.0"} {
			read, err := client.NewReader(nc, "orders", shard, 0, client.ReaderOptions{Full: true, Attributes: true, Where: where})
			testutil.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
			b, err := read.Batch(ctx)
			cancel()
			testutil.Must(t, err)
			var payloads []string
			for v := range b.Views() {
				if string(v.Attributes) != want[string(v.Data)] {
					t.Errorf("%s has the attributes %s", v.Data, v.Attributes)
				}
				payloads = append(payloads, string(v.Data))
			}
			for r := range b.Records() {
				if string(r.Attributes) != want[string(r.Data)] {
					t.Errorf("%s has the attributes %s", r.Data, r.Attributes)
				}
			}
			n := 0
			for _, data := range b.Data() {
				if string(data) != payloads[n] {
					t.Errorf("record %d is %q", n, data)
				}
				n++
			}
			seen += n
			read.Close()
		}
	}
	if seen != 12 {
		t.Errorf("%d records were read, want 12", seen)
	}
}
