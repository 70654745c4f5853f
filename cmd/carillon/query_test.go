package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// queried is a line of a query's JSON.
type queried struct {
	Shard   int             `json:"shard"`
	Offset  uint64          `json:"offset"`
	Time    time.Time       `json:"time"`
	Subject string          `json:"subject"`
	JSON    json.RawMessage `json:"json"`
	Data    []byte          `json:"data"`
}

// query types a query, and returns its lines and what it said beside.
func (s shell) query(topic, where string, more ...string) (lines []queried, said string) {
	s.Helper()
	if where != "" {
		more = append(more, "--where", where)
	}
	out, said, code := s.types("", "query "+topic, more...)
	if code != 0 {
		s.Fatalf("query %s %q: exit code %d\n%s%s", topic, more, code, out, said)
	}
	for line := range strings.Lines(out) {
		var q queried
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			s.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, q)
	}
	return lines, said
}

// TestQueriesFromTheCommandLine: the messages of all shards are judged by their content, from and
// to a place or a time, and with new ones; what is wrong with a query is said.
func TestQueriesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 3")
	for n := range 60 {
		region := []string{"eu", "us", "asia"}[n%3]
		s.does(fmt.Sprintf("pub --ack orders.%s.%d --header Priority:%d", region, n, n%2), fmt.Sprintf(`{"id": %d, "region": %q, "total": %d.5}`, n, region, n*10))
	}
	s.does("pub --ack orders.eu.note", "no JSON")

	got, said := s.query("orders", `json.total > 300 && json.region == "eu"`)
	if len(got) != 10 || !strings.Contains(said, "10 of 61 messages match\n") || !strings.Contains(said, "1 could not be judged; of the first one: the payload is no JSON") {
		t.Fatalf("%d lines: %s", len(got), said)
	}
	shards := map[int]bool{}
	for _, q := range got {
		var is struct{ ID int }
		if err := json.Unmarshal(q.JSON, &is); err != nil || is.ID < 30 || q.Subject != fmt.Sprintf("orders.eu.%d", is.ID) || q.Offset == 0 || time.Since(q.Time) > time.Hour {
			t.Errorf("%+v: %v", q, err)
		}
		shards[q.Shard] = true
	}
	if len(shards) < 2 {
		t.Errorf("of shards %v", shards)
	}
	if got, said := s.query("orders", `headers.Priority == "1" && subject.startsWith("orders.us.")`); len(got) != 10 || strings.Contains(said, "judged") {
		t.Errorf("%d lines: %s", len(got), said)
	}
	if got, _ := s.query("orders", `!has(json.total)`, "--filter", "orders.*.note,nobody.>"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got, _ := s.query("orders", "", "--filter", "orders.*.note"); len(got) != 1 || string(got[0].Data) != "no JSON" {
		t.Errorf("%+v", got)
	}
	if got, _ := s.query("orders", `json.id >= 0`, "--count", "7"); len(got) != 7 {
		t.Errorf("%d lines of 7", len(got))
	}

	// By time: a query sees what was stored between two moments.
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(20 * time.Millisecond)))
	between := time.Now().UTC()
	s.does("pub --ack orders.eu.late", `{"id": 100}`)
	if got, _ := s.query("orders", "", "--from", between.Format(time.RFC3339Nano)); len(got) != 1 || got[0].Subject != "orders.eu.late" {
		t.Errorf("%+v", got)
	}
	if got, _ := s.query("orders", `json.id >= 0`, "--to", between.Format(time.RFC3339Nano)); len(got) != 60 {
		t.Errorf("%d lines", len(got))
	}
	for flag, want := range map[string]string{"--to": "61", "--from": "1"} {
		s.prints(`{"count()":`+want+"}\n", "query orders --aggregate count()", flag, between.Format(time.RFC3339Nano))
	}
	if got, _ := s.query("orders", "", "--from", "latest"); len(got) != 0 {
		t.Errorf("%+v", got)
	}

	// A table is for people.
	if text := s.does("query orders --output table --where json.id==100"); !strings.HasPrefix(text, "TIME ") || strings.Count(text, "\n") != 2 || !strings.Contains(text, `  orders.eu.late                  {"id": 100}`) {
		t.Errorf("printed\n%s", text)
	}
	s.prints("{\"id\": 100}\n", "query orders --output raw --where json.id==100")

	// New messages are judged as they come.
	followed := make(chan []queried, 1)
	go func() {
		got, _ := s.query("orders", `json.id > 100`, "--follow", "--count", "2")
		followed <- got
	}()
	for n := range 300 { // until it has begun and has two
		select {
		case got := <-followed:
			if len(got) != 2 {
				t.Errorf("%+v", got)
			}
			followed = nil
		default:
			s.does("pub --ack orders.us.new", fmt.Sprintf(`{"id": %d}`, 100+n))
		}
		if followed == nil {
			break
		}
	}
	if followed != nil {
		t.Error("no new messages came")
	}

	s.fails(2, `--where: filter "json.total >": column 13`, "query orders", "--where", "json.total >")
	s.fails(2, "undeclared reference to 'total'", "query orders --where total>5")
	s.fails(2, "shards with sequences of their own", "query orders --from 3")
	s.fails(2, `--from "1h" is later than --to "2h": exchange them`, "query orders --from 1h --to 2h")
	s.fails(2, "--to and --follow", "query orders --to 1h --follow")
	s.fails(2, `--to "latest"`, "query orders --to latest")
	s.fails(2, "it is no subject", "query orders --filter orders..eu")
	if _, said, code := s.types("", "query nobody"); code != 1 || !strings.HasPrefix(said, `carillon: there is no topic "nobody"`) {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// TestAQueryPrintsWhateverIsStored: clients publish headers that are none, and what a terminal
// would obey. Neither ends a query, and a terminal gets nothing to obey.
func TestAQueryPrintsWhateverIsStored(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create odd")
	conn, err := net.Dial("tcp", strings.TrimPrefix(dev.url, "nats://"))
	testutil.Must(t, err)
	defer func() { _ = conn.Close() }()
	const block, payload = "NATS/1.0\r\nno header\r\n\r\n", "a\u009b2Jb\x1b[2Jc"
	_, err = fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB odd.x %d %d\r\n%s%s\r\nPING\r\n", len(block), len(block)+len(payload), block, payload)
	testutil.Must(t, err)
	for answers := bufio.NewReader(conn); ; {
		line, err := answers.ReadString('\n')
		testutil.Must(t, err)
		if strings.HasPrefix(line, "PONG") {
			break
		}
	}
	s.does("pub --ack odd.y", "after it")
	out, _, code := s.types("", "query odd")
	if code != 0 || !strings.Contains(out, base64.StdEncoding.EncodeToString([]byte(block))) || !strings.Contains(out, `"subject":"odd.y"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if text := s.does("query odd --output table"); strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), unicode.IsControl) {
		t.Errorf("printed %q", text)
	}
}

// TestAQueryThatFollowsBeginsWhereItIsAsked: at a sequence, or a time, that is not there yet.
func TestAQueryThatFollowsBeginsWhereItIsAsked(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders")
	followed := make(chan []queried, 1)
	begin := time.Now().Add(2 * time.Second)
	for _, from := range []string{"4", begin.UTC().Format(time.RFC3339Nano)} {
		go func() {
			got, _ := s.query("orders", "", "--follow", "--count", "1", "--from", from)
			followed <- got
		}()
		for begun := time.Now(); ; {
			s.does("pub --ack orders.x", "new")
			select {
			case got := <-followed:
				if len(got) != 1 || from == "4" && got[0].Offset < 4 || from != "4" && got[0].Time.Before(begin) {
					t.Errorf("from %s it printed %+v", from, got)
				}
			default:
				if time.Since(begun) < testutil.Patience {
					continue
				}
				t.Fatal("nothing came")
			}
			break
		}
	}
}
