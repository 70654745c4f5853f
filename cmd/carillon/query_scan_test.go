package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// cannedShard answers a client's requests for records without a broker or a network: each answer
// has the same records, at the offsets that were asked for. It is a nats.CustomDialer.
type cannedShard struct {
	records []byte // in the full form
	count   int
}

// newCannedShard returns a shard of orders in JSON of about 200 bytes. A tenth of them has a total
// above 100 and the region eu.
func newCannedShard(count int) *cannedShard {
	s := &cannedShard{count: count}
	for n := range count {
		subject, data := "", order(n)
		if n%100 == 0 {
			subject = fmt.Sprintf("orders.%d", n/100%7)
		}
		entry := binary.AppendVarint(nil, int64(n)*1000)
		entry = append(binary.AppendUvarint(entry, uint64(len(subject))), subject...)
		entry = append(binary.AppendUvarint(entry, 0), data...)
		s.records = append(binary.AppendUvarint(s.records, uint64(len(entry))), entry...)
	}
	return s
}

func order(n int) string {
	region := []string{"eu", "us", "asia", "africa", "eu"}[n%5]
	return fmt.Sprintf(`{"id":"%030d","shop":"paris-%d","region":%q,"customer":{"id":%d,"vip":%v},`+
		`"total":%d.%d,"currency":"EUR","lines":%d,"note":%q}`,
		n, n%17, region, 1_000_000+n*7919%1_000_000, n%3 == 0,
		n*31%400/3, n%10, n%9, strings.Repeat("x", 40+n%20))
}

// Dial implements nats.CustomDialer.
func (s *cannedShard) Dial(string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go s.serve(far)
	return near, nil
}

func (s *cannedShard) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, `INFO {"max_payload":8388608,"headers":true}`+"\r\n"); err != nil {
		return
	}
	sid := ""
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch words := strings.Fields(line); words[0] {
		case "SUB":
			sid = words[len(words)-1]
		case "PING":
			_, err = io.WriteString(conn, "PONG\r\n")
		case "PUB":
			if line, err = r.ReadString('\n'); err == nil {
				err = s.answer(conn, words[2], sid, line)
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *cannedShard) answer(conn net.Conn, to, sid, request string) error {
	var is struct{ Offset uint64 }
	if err := json.Unmarshal([]byte(request), &is); err != nil {
		return err
	}
	header := fmt.Sprintf("NATS/1.0\r\nCarillon-Records: %d\r\nCarillon-Offset: %d\r\n"+
		"Carillon-Next: %d\r\nCarillon-High: %d\r\nCarillon-Time: 1800000000000000000\r\n\r\n",
		s.count, is.Offset, is.Offset+uint64(s.count), uint64(1)<<60)
	size := len(header) + len(s.records)
	_, err := fmt.Fprintf(conn, "HMSG %s %s %d %d\r\n%s", to, sid, len(header), size, header)
	if err == nil {
		_, err = conn.Write(s.records)
	}
	if err == nil {
		_, err = io.WriteString(conn, "\r\n")
	}
	return err
}

// reader returns a reader of the shard.
func (s *cannedShard) reader(t testing.TB) *client.Reader {
	t.Helper()
	nc, err := nats.Connect("nats://canned", nats.SetCustomDialer(s), nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	t.Cleanup(nc.Close)
	r, err := client.NewReader(nc, "orders", 0, 1, client.ReaderOptions{Full: true})
	testutil.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// scan runs a query over so many answers of a shard, and returns what it printed.
func (s *cannedShard) scan(t *testing.T, where string, answers int, change func(*query)) (string, *query, error) {
	t.Helper()
	var out bytes.Buffer
	q := &query{out: bufio.NewWriter(&out), print: foundPrinters["raw"], enough: func() {}}
	if where != "" {
		var err error
		q.filter, err = filter.Compile(where)
		testutil.Must(t, err)
	}
	change(q)
	q.prepare()
	err := q.records(t.Context(), s.reader(t), part{end: 1 + uint64(answers*s.count), unjudged: true})
	if len(q.free) != cap(q.free) {
		t.Errorf("%d of %d batches are still judged", cap(q.free)-len(q.free), cap(q.free))
	}
	return out.String(), q, err
}

// TestAScanKeepsTheOrderOfAShard: batches are judged at once, and what matches is printed in order.
func TestAScanKeepsTheOrderOfAShard(t *testing.T) {
	t.Parallel()
	const count, answers = 500, 20
	shard, want := newCannedShard(count), ""
	for n := range count {
		if n%5 == 0 || n%5 == 4 {
			want += order(n) + "\n"
		}
	}
	for name, change := range map[string]func(*query){
		"printed while it is judged": func(*query) {},
		"kept until its turn":        func(q *query) { q.count = count * answers },
	} {
		got, q, err := shard.scan(t, `json.region == "eu"`, answers, change)
		if err != nil || got != strings.Repeat(want, answers) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want)*answers, err)
		}
		if q.read != count*answers || q.matched != count*answers*2/5 || q.failed > 0 {
			t.Errorf("%s: %d of %d match, %d failed", name, q.matched, q.read, q.failed)
		}
	}
	offsets := 0
	got, _, err := shard.scan(t, "", answers, func(q *query) { q.print = foundPrinters["json"] })
	testutil.Must(t, err)
	for line := range strings.Lines(got) {
		var is queried
		testutil.Must(t, json.Unmarshal([]byte(line), &is))
		subject := fmt.Sprintf("orders.%d", offsets%count/100%7)
		if offsets++; is.Offset != uint64(offsets) || is.Subject != subject {
			t.Fatalf("line %d is %+v", offsets, is)
		}
	}
	if offsets != count*answers {
		t.Errorf("%d lines", offsets)
	}
}

// TestAMessageIsPrintedAsALineOfJSON: whatever its payload, its header and its subject are.
func TestAMessageIsPrintedAsALineOfJSON(t *testing.T) {
	for _, c := range []struct{ subject, header, data, want string }{
		{"a.b", "", "{\n \"x\": [1, \"<&\u2028\"]}\n", `"subject":"a.b","json":{"x":[1,"<&` + "\u2028" + `"]}`},
		{`a"\`, "NATS/1.0\r\nK: v\r\nK: w\r\n\r\n", "7", `"subject":"a\"\\","header":{"K":["v","w"]},"json":7`},
		{"a", "NATS/1.0\r\n\r\n", `{"a":1`, `"subject":"a","data":"eyJhIjox"`},
		{"a", "no header", "", `"subject":"a","header_data":"bm8gaGVhZGVy"`},
		{"\xff", "", "{} {}", `"subject":"\ufffd","data":"e30ge30="`},
		{"a", "", "\"\xff\"", `"subject":"a","data":"Iv8i"`},
	} {
		out := bytes.NewBufferString("before\n")
		r := &found{shard: 2, View: client.View{Offset: 1 << 63, Time: 1_800_000_000_120_000_000, Subject: []byte(c.subject), Header: []byte(c.header), Data: []byte(c.data)}}
		testutil.Must(t, jsonFound(out, r))
		want := "before\n" + `{"shard":2,"offset":9223372036854775808,"time":"2027-01-15T08:00:00.12Z",` + c.want + "}\n"
		if got := out.String(); got != want || !utf8.ValidString(got) ||
			!json.Valid([]byte(got[len("before\n"):])) {
			t.Errorf("printed\n%s\nwant\n%s", got, want)
		}
	}
}

// TestAScanEndsAtItsCount: with the first messages that match. It says how many it read for them.
func TestAScanEndsAtItsCount(t *testing.T) {
	shard, want := newCannedShard(100), ""
	for n := range 300 {
		if n%5 == 2 {
			want += order(n%100) + "\n"
		}
	}
	ended := false
	got, q, err := shard.scan(t, `json.region == "asia"`, 50, func(q *query) {
		q.count, q.enough = 60, func() { ended = true }
	})
	if err != nil || got != want || !ended || q.matched != 60 || q.read != 298 {
		t.Errorf("%d of %d match, %v: %v\n%s", q.matched, q.read, ended, err, got)
	}
	compiled, err := aggregate.Compile(aggregate.Options{Functions: "count()"})
	testutil.Must(t, err)
	var row aggregate.Row
	_, q, err = shard.scan(t, `json.region == "asia"`, 50, func(q *query) {
		q.count = 60
		q.aggregation = &aggregation{query: compiled, merger: compiled.NewMerger(), stored: true}
		q.aggregation.print = func(r *aggregate.Row) error { row = *r; return nil }
		q.aggregation.begin(1)
	})
	testutil.Must(t, err)
	testutil.Must(t, q.rest(false))
	if len(row.Values) != 1 || row.Values[0].Count != 60 {
		t.Errorf("counted %+v", row)
	}
}

// TestAScanCountsWhatItCantJudge: several goroutines judge by one program of cel-go, too.
func TestAScanCountsWhatItCantJudge(t *testing.T) {
	const count, answers = 500, 20
	shard := newCannedShard(count)
	for where, failed := range map[string]int{
		`json.missing == 1 || json.region == "eu"`:               count * 3 / 5,
		`json.region.size() == 2 && json.lines.note == "x"`:      count * 3 / 5,
		`json.region == "eu" && json.lines.note == "x"`:          count * 2 / 5,
		`(json.customer.vip ? json.missing : json.region) == ""`: (count + 2) / 3,
	} {
		_, q, err := shard.scan(t, where, answers, func(*query) {})
		testutil.Must(t, err)
		if q.read != count*answers || q.failed != failed*answers || q.why == nil {
			t.Errorf("%s: %d of %d can't be judged: %v", where, q.failed, q.read, q.why)
		}
	}
}

// TestAnErrorOfTheLastMessageIsTold: that all that is wanted was found excuses shards that can't be
// read, and not a file that lacks some of it.
func TestAnErrorOfTheLastMessageIsTold(t *testing.T) {
	full := errors.New("the disk is full")
	_, q, err := newCannedShard(100).scan(t, "", 3, func(q *query) {
		q.count = 150
		q.store = func(r *found) error {
			if r.Offset == 150 {
				return full
			}
			return nil
		}
	})
	if !errors.Is(err, full) || !q.full() {
		t.Fatalf("%d were found: %v", q.matched, err)
	}
	for _, ended := range []bool{false, true} {
		if err := q.failure([]error{err}, ended); !errors.Is(err, full) {
			t.Errorf("ended from outside %v: %v", ended, err)
		}
	}
	if err := (&query{count: 1, matched: 1}).failure([]error{io.ErrUnexpectedEOF}, false); err != nil {
		t.Errorf("a shard that isn't needed: %v", err)
	}
	if err := new(query).failure([]error{nil, io.ErrUnexpectedEOF}, false); err == nil {
		t.Error("a shard can't be read, which nobody is told")
	}
}

// allJudged waits until as many batches are judged, or were, as may be at once.
func allJudged(q *query) error {
	return testutil.Within(testutil.Patience, time.Millisecond, "all batches are judged", func() error {
		if n := len(q.free); n > 0 {
			return fmt.Errorf("%d are not", n)
		}
		return nil
	})
}

// TestAScanThatIsEndedLeavesNothing: neither by an error of what it prints to, nor from outside.
func TestAScanThatIsEndedLeavesNothing(t *testing.T) {
	shard := newCannedShard(500)
	full := errors.New("the disk is full")
	_, q, err := shard.scan(t, "", 1<<20, func(q *query) {
		q.print = func(_ *bytes.Buffer, r *found) error {
			if r.Offset == 3000 {
				return errors.Join(full, allJudged(q))
			}
			return nil
		}
	})
	if !errors.Is(err, full) || strings.Contains(err.Error(), "are not") || q.matched != 2500 {
		t.Errorf("%d match: %v", q.matched, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	q = &query{out: bufio.NewWriter(io.Discard), print: func(_ *bytes.Buffer, r *found) error {
		if r.Offset == 3000 {
			err := allJudged(q)
			cancel()
			return err
		}
		return nil
	}}
	q.prepare()
	err = q.records(ctx, shard.reader(t), part{end: 1 << 40, unjudged: true})
	if !errors.Is(err, context.Canceled) || len(q.free) != cap(q.free) {
		t.Errorf("%d batches are left: %v", cap(q.free)-len(q.free), err)
	}
}

// BenchmarkScan runs queries over records as brokers send them, without the brokers and without the
// kernel's part of a network. cpu-ns/op is the processor time of all goroutines for a record.
func BenchmarkScan(b *testing.B) {
	shard := newCannedShard(4000)
	for name, where := range map[string]string{
		"all":       "",
		"selective": `json.total > 100.0 && json.region == "eu"`,
		"subject":   `subject == "orders.3"`,
		"json":      `json.total > 100.0 && json.region == "eu"`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := shard.reader(b)
			q := &query{out: bufio.NewWriter(io.Discard), print: foundPrinters["raw"]}
			if name == "json" {
				q.print = foundPrinters[name]
			}
			if where != "" {
				var err error
				q.filter, err = filter.Compile(where)
				testutil.Must(b, err)
			}
			q.prepare()
			_, err := r.Batch(context.Background())
			testutil.Must(b, err)
			b.SetBytes(int64(len(shard.records) / shard.count))
			b.ResetTimer()
			begin := processorTime(b)
			testutil.Must(b, q.records(context.Background(), r, part{end: r.Offset() + uint64(b.N), unjudged: true}))
			b.ReportMetric(float64(processorTime(b)-begin)/float64(b.N), "cpu-ns/op")
			b.Logf("%d of %d match", q.matched, q.read)
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	testutil.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
