package admin

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// node is a broker's Topics on a disk in memory, with a Server. It is their hub, too.
type node struct {
	*testing.T
	topics *topic.Service
	server *Server
	orders publish.Taker

	mu      sync.Mutex
	changed *sync.Cond
	answers map[string][]protocol.Message
	asked   int
	others  map[string]*node // linked brokers; nil: requests to them are recorded only
	deaf    bool             // requests of others are lost
	gone    map[string]bool  // reply subjects without a subscriber
	slow    chan struct{}    // if set, the clients are behind until it is closed
}

func (n *node) SendLent(_ *session.Loan, messages []protocol.Message) work.Behind {
	return n.Send(messages)
}

func (n *node) Send(messages []protocol.Message) (behind work.Behind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range messages {
		m.Data = slices.Clone(m.Data)
		n.answers[string(m.Subject)] = append(n.answers[string(m.Subject)], m)
	}
	n.changed.Broadcast()
	if n.slow != nil {
		behind.Add(gate(n.slow))
	}
	return behind
}

// gate is behind until it is closed.
type gate chan struct{}

func (g gate) Wait() { <-g }

func (n *node) Interested(of []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.gone[string(of)]
}

func (n *node) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	if n.others != nil {
		to := n.others[broker]
		if to == nil {
			return false, behind
		}
		to.mu.Lock()
		deaf := to.deaf
		to.mu.Unlock()
		if !deaf {
			to.server.Take([]protocol.Message{*m}, nil, true)
		}
		return true, behind
	}
	n.Send([]protocol.Message{{Subject: []byte("to " + broker), Data: m.Subject}})
	return true, behind
}

func (n *node) Offer(t publish.Taker) publish.Offer { return &offer{n, t} }

type offer struct {
	node  *node
	taker publish.Taker
}

func (o *offer) Set(patterns []string) {
	if slices.Contains(patterns, "orders") || slices.Contains(patterns, "orders.>") {
		o.node.orders = o.taker
	}
}
func (o *offer) Close() {}

// codec answers publishers with one byte.
type codec struct{}

func (codec) Conditions(header []byte) (c publish.Conditions, _ error) {
	if value, ok := protocol.Header(header).Get("Carillon-Records"); ok {
		c.Records, _ = strconv.Atoi(string(value))
	}
	return c, nil
}
func (codec) AppendAck(dst []byte, _ string, _ publish.Ack) []byte             { return append(dst, '+') }
func (codec) Part([]byte) (p publish.Part, ok bool)                            { return p, false }
func (codec) Counter(_, _ []byte) (total, sources []byte, ok bool)             { return nil, nil, false }
func (codec) AppendCounter(dst, _ []byte, _, _ string, _ []byte) ([]byte, int) { return dst, 0 }
func (codec) CounterSource(_ []byte, _, _, _ string) (updated []byte, before string, ok bool) {
	return nil, "", false
}
func (codec) AppendCommit(dst, header []byte) []byte                    { return append(dst, header...) }
func (codec) AppendMarker(dst []byte, _ time.Duration, _ uint64) []byte { return dst }

func (codec) AppendRefusal(dst []byte, _ string, err error) []byte {
	return append(dst, err.Error()...)
}

// startNode serves the Topic "orders". Another broker leads "bills".
func startNode(t *testing.T, change func(*coordination.TopicSpec)) *node {
	spec := coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1, Replicas: 1, Durability: coordination.Memory}
	if change != nil {
		change(&spec)
	}
	state := coordination.NewState(1,
		[]coordination.Broker{{ID: "a", Incarnation: 5, Name: "main-0"}, {ID: "b", Incarnation: 6, Name: "main-1"}},
		[]*coordination.Topic{{Name: "orders", ID: "o", Spec: spec}, {Name: "bills", ID: "b", Spec: coordination.TopicSpec{Subjects: []string{"bills"}, Shards: 1, Replicas: 1}}},
		[]*coordination.Shard{
			{Topic: "o", Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: 5}}},
			{Topic: "b", Epoch: 1, Leader: "b", Replicas: []string{"b"}, InSync: []coordination.Replica{{Broker: "b", Incarnation: 6}}},
		}, nil)
	n := startNodeAs(t, "a", "main-0", state)
	n.awaitShard(0)
	return n
}

// startNodeAs is startNode for the broker with that id.
func startNodeAs(t *testing.T, id, name string, state *coordination.State) *node {
	n := &node{T: t, answers: map[string][]protocol.Message{}}
	n.changed = sync.NewCond(&n.mu)
	var service *topic.Service
	var ready sync.WaitGroup
	ready.Add(1)
	disk, err := log.OpenDisk(crashfs.New(), "data", log.Options{
		SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1, Committed: func(idle bool) { ready.Wait(); service.Committed(idle) },
	})
	if err != nil {
		t.Fatal(err)
	}
	exchange := replica.NewExchange(replica.Config{Self: id})
	t.Cleanup(exchange.Close)
	service, err = topic.Open(topic.Config{
		Self: id, Name: name, Disk: disk, Hub: n, Codec: codec{}, Payload: 8 << 20, Exchange: exchange,
		Compact: upkeep.Compacting{Every: 5 * time.Millisecond, Age: 1},
	})
	ready.Done()
	if err != nil {
		t.Fatal(err)
	}
	service.Follow(state, coordination.Changes{})
	n.topics = service
	n.server = New(id, service, n, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		n.server.Close()
		_ = service.Close()
		_ = disk.Close()
	})
	return n
}

// awaitShard waits until a shard of the Topic "orders" is served here.
func (n *node) awaitShard(number int) {
	n.Helper()
	testutil.EventuallyTrue(n, fmt.Sprintf("shard %d of orders is served", number), func() bool {
		return n.topics.Topic("orders").ShardAt(number) != nil
	})
}

// await waits until ok, called with mu held after each change, returns true.
func (n *node) await(what string, ok func() bool) {
	n.Helper()
	late := false
	timer := time.AfterFunc(testutil.Patience, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		late = true
		n.changed.Broadcast()
	})
	defer timer.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !ok() {
		if late {
			n.Fatalf("not within %v: %s", testutil.Patience, what)
		}
		n.changed.Wait()
	}
}

// publish publishes records, several by one message.
func (n *node) publish(records ...string) {
	n.Helper()
	n.publishOn("orders", records...)
}

func (n *node) publishOn(subject string, records ...string) {
	n.Helper()
	var data []byte
	for _, r := range records {
		data = append(binary.AppendUvarint(data, uint64(len(r))), r...)
	}
	header := fmt.Sprintf("NATS/1.0\r\nCarillon-Records: %d\r\n\r\n", len(records))
	m := protocol.Message{Subject: []byte(subject), Reply: []byte("ack"), Header: len(header), Data: append([]byte(header), data...)}
	n.orders.Take([]protocol.Message{m}, nil, false)
	if got := n.answer("ack"); string(got.Data) != "+" {
		n.Fatalf("not kept: %s", got.Data)
	}
}

// ask sends a request and returns its reply subject.
func (n *node) ask(subject, payload string, forwarded bool) (reply string) {
	return n.askAs(0, subject, payload, forwarded)
}

// askAs is ask of the client with a number.
func (n *node) askAs(client uint64, subject, payload string, forwarded bool) (reply string) {
	n.mu.Lock()
	n.asked++
	reply = fmt.Sprint("_INBOX.", n.asked)
	n.mu.Unlock()
	messages := []protocol.Message{{Subject: []byte(subject), Reply: []byte(reply), Data: []byte(payload)}}
	if forwarded {
		n.server.Take(messages, nil, true)
	} else {
		n.server.TakeOf(client, messages, nil, &work.Behind{})
	}
	return reply
}

// answer waits for one answer and removes it.
func (n *node) answer(reply string) protocol.Message {
	n.Helper()
	n.await("an answer to "+reply, func() bool { return len(n.answers[reply]) > 0 })
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.answers[reply][0]
	if n.answers[reply] = n.answers[reply][1:]; len(n.answers[reply]) > 0 {
		n.Fatalf("%d more answers to %s", len(n.answers[reply]), reply)
	}
	return m
}

func (n *node) answered(reply string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.answers[reply]) > 0
}

func (n *node) refusal(reply string) *Error {
	n.Helper()
	m := n.answer(reply)
	var answer onlyError
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error == nil || m.Header > 0 {
		n.Fatalf("no refusal: %q, %v", m.Data, err)
	}
	return answer.Error
}

// records returns the records of an answer, with its headers.
func (n *node) records(reply string) (records []string, headers map[string]string) {
	n.Helper()
	m := n.answer(reply)
	header, rest := protocol.SplitData(m.Data, m.Header)
	headers = map[string]string{}
	for key, value := range header.All() {
		headers[string(key)] = string(value)
	}
	for len(rest) > 0 {
		size, k := binary.Uvarint(rest)
		records = append(records, string(rest[k:k+int(size)]))
		rest = rest[k+int(size):]
	}
	if headers["Carillon-Records"] != fmt.Sprint(len(records)) {
		n.Fatalf("%d records under %q: %.200q", len(records), header, m.Data)
	}
	return records, headers
}

const ordersSubject = RecordsSubject + "orders.0"

func TestRecordsAreRead(t *testing.T) {
	n := startNode(t, nil)
	n.publish("one", "two", "three")
	n.publish("four")
	for payload, want := range map[string][]string{
		"":                              {"one", "two", "three", "four"},
		`{"offset":2}`:                  {"two", "three", "four"},
		`{"offset":2,"max_records":2}`:  {"two", "three"},
		`{"offset":1,"max_bytes":8}`:    {"one", "two"},
		`{"offset":3,"max_bytes":1}`:    {"three"},
		`{"offset":5}`:                  nil,
		`{"offset":1,"form":"plain"}`:   {"one", "two", "three", "four"},
		` {"offset":4,"wait_ms":1000} `: {"four"},
	} {
		got, headers := n.records(n.ask(ordersSubject, payload, false))
		if !slices.Equal(got, want) || headers["Carillon-High"] != "5" {
			t.Errorf("%s: %q %v", payload, got, headers)
		}
		first, _ := strconv.Atoi(headers["Carillon-Offset"])
		if next := fmt.Sprint(first + len(got)); headers["Carillon-Next"] != next {
			t.Errorf("%s: %v", payload, headers)
		}
	}
	got, headers := n.records(n.ask(ordersSubject, `{"offset":1,"form":"full"}`, false))
	if at, err := strconv.ParseInt(headers["Carillon-Time"], 10, 64); err != nil || time.Since(time.Unix(0, at)) > time.Minute {
		t.Errorf("%v", headers)
	}
	if len(got) != 4 || got[0] != "\x00\x06orders\x00one" || got[1] != "\x00\x00\x00two" {
		t.Errorf("%q", got)
	}
}

// TestRecordsWithGapsAreRead: an answer about a compacted shard marks skipped offsets if the
// request permits them; otherwise it ends before a gap.
func TestRecordsWithGapsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, func(s *coordination.TopicSpec) {
			s.Subjects, s.Durability, s.Compaction = []string{"orders.>"}, coordination.Synced, coordination.LatestOnly
		})
		for i := 1; i <= 200; i++ { // every second one has a subject of its own
			n.publishOn(fmt.Sprint("orders.", i*(1-i%2)), fmt.Sprintf("%d %s", i, strings.Repeat("x", 200)))
		}
		time.Sleep(time.Second) // many rounds of the compactor, by the bubble's clock
		synctest.Wait()
		if n.topics.Compacted().Records == 0 {
			t.Fatal("nothing is compacted")
		}
		m := n.answer(n.ask(ordersSubject, `{"gaps":true}`, false))
		header, rest := protocol.SplitData(m.Data, m.Header)
		value := func(key string) int {
			text, _ := header.Get(key)
			number, _ := strconv.Atoi(string(text))
			return number
		}
		offset, gaps := value("Carillon-Offset"), 0
		for range value("Carillon-Records") {
			gap, k := binary.Uvarint(rest)
			size, more := binary.Uvarint(rest[k:])
			record := rest[k+more : k+more+int(size)]
			offset, gaps, rest = offset+int(gap), gaps+int(gap), rest[k+more+int(size):]
			if !strings.HasPrefix(string(record), fmt.Sprint(offset, " ")) {
				t.Fatalf("at offset %d stands %.10q", offset, record)
			}
			offset++
		}
		if value("Carillon-Gaps") != 1 || gaps < 5 || len(rest) > 0 || value("Carillon-Next") < offset {
			t.Errorf("%d offsets are left out up to %d, and %d bytes are left, under %q", gaps, offset, len(rest), header)
		}
		if got, headers := n.records(n.ask(ordersSubject, "", false)); len(got) != 1 || headers["Carillon-Gaps"] != "" {
			t.Errorf("%.80q under %v", got, headers)
		}
	})
}

func TestInvalidRecordRequestsAreRefused(t *testing.T) {
	n := startNode(t, func(s *coordination.TopicSpec) { s.Retention.Messages = 1 })
	n.publish("one", "two", strings.Repeat("x", 100))
	for _, c := range []struct {
		subject, payload string
		code             Code
		text             string
	}{
		{RecordsSubject + "orders", "", BadRequest, "RECORDS.<topic>.<shard>"},
		{RecordsSubject + "orders.0.1", "", BadRequest, "RECORDS.<topic>.<shard>"},
		{RecordsSubject + "orders.-1", "", BadRequest, "RECORDS.<topic>.<shard>"},
		{RecordsSubject + "orders.00", "", BadRequest, "RECORDS.<topic>.<shard>"},
		{RecordsSubject + ".0", "", BadRequest, "RECORDS.<topic>.<shard>"},
		{RecordsSubject + "orders.1", "", NotFound, "no shard 1 (its shards are 0 to 0)"},
		{RecordsSubject + "nothing.0", "", NotFound, `no topic "nothing"`},
		{ordersSubject, `{"offset":1,"from":2}`, BadRequest, "unknown field"},
		{ordersSubject, `{"offset":-1}`, BadRequest, "cannot unmarshal"},
		{ordersSubject, `{"max_bytes":8388608}`, BadRequest, "max_bytes of 8388608 (use 1 to 8384512"},
		{ordersSubject, `{"max_records":65537}`, BadRequest, "use 1 to 65536"},
		{ordersSubject, `{"wait_ms":30001}`, BadRequest, "use 0 to 30000"},
		{ordersSubject, `{"form":"short"}`, BadRequest, "use plain or full"},
		{ordersSubject, strings.Repeat(" ", 33000), BadRequest, "use at most 32768"},
		{ordersSubject, `{"offset":1}`, OutOfRange, "begins at 3"},
		{ordersSubject, `{"offset":9}`, OutOfRange, "the high watermark, which is 4"},
	} {
		got := n.refusal(n.ask(c.subject, c.payload, false))
		if got.Code != c.code || !strings.Contains(got.Text, c.text) || len(got.Text) > 500 {
			t.Errorf("%s %.40s: %+v, want %s and %q", c.subject, c.payload, got, c.code, c.text)
		}
		if got.Code == OutOfRange && (got.Start != 3 || got.High != 4) {
			t.Errorf("%+v", got)
		}
	}
}

// TestARecordRequestIsForwardedOnceToTheLeader: the leader answers, and a forwarded request is not
// forwarded again.
func TestARecordRequestIsForwardedOnceToTheLeader(t *testing.T) {
	n := startNode(t, nil)
	reply := n.ask(RecordsSubject+"bills.0", "", false)
	if got := n.answer("to b"); string(got.Data) != RecordsSubject+"bills.0" {
		t.Errorf("handed on: %q", got.Data)
	}
	if n.answered(reply) {
		t.Error("it was answered here, too")
	}
	got := n.refusal(n.ask(RecordsSubject+"bills.0", "", true))
	if got.Code != NotServed || got.Reason != string(publish.LedElsewhere) || !strings.Contains(got.Text, "main-1") {
		t.Errorf("%+v", got)
	}
	if n.answered("to b") {
		t.Error("it was handed on again")
	}
}

// TestRecordsAreWaitedFor: a request for future records is answered when they arrive or its time is
// over.
func TestRecordsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.publish("one")
		began := time.Now()
		got, headers := n.records(n.ask(ordersSubject, `{"offset":2,"wait_ms":50}`, false))
		if took := time.Since(began); len(got) != 0 || headers["Carillon-Next"] != "2" || took != 50*time.Millisecond {
			t.Errorf("after %s: %q %v", took, got, headers)
		}
		var replies []string
		for range 100 {
			replies = append(replies, n.ask(ordersSubject, `{"offset":2,"wait_ms":30000}`, false))
		}
		n.waiting(100)
		if n.answered(replies[0]) {
			t.Error("answered before there was anything")
		}
		n.publish("two", "three")
		for _, reply := range replies {
			if got, _ := n.records(reply); !slices.Equal(got, []string{"two", "three"}) {
				t.Errorf("%q", got)
			}
		}
		n.waiting(0)
		// A broker that stops ends waiting requests.
		reply := n.ask(ordersSubject, `{"offset":4,"wait_ms":30000}`, false)
		n.waiting(1)
		n.server.Close()
		if got := n.refusal(reply); got.Code != Busy {
			t.Errorf("%+v", got)
		}
		if got := n.refusal(n.ask(ordersSubject, "", false)); got.Code != Busy {
			t.Errorf("%+v", got)
		}
	})
}

// TestARequestWaitsNoLongerThanItsClient: one whose client has gone gives up its place among those
// that wait, long before its time is over. One whose client was away for a moment does not.
func TestARequestWaitsNoLongerThanItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.publish("one")
		stays := n.ask(ordersSubject, `{"offset":2,"wait_ms":30000}`, false)
		away := n.ask(ordersSubject, `{"offset":2,"wait_ms":30000}`, false)
		plain := n.ask(ordersSubject, `{"offset":2,"wait_ms":30000}`, false)
		judged := n.ask(ordersSubject, `{"offset":2,"wait_ms":30000,"where":"true"}`, false)
		n.waiting(4)
		for _, reply := range []string{plain, judged, away} {
			n.leaves(reply, true)
		}
		time.Sleep(goneLook)
		n.waiting(4)
		n.leaves(away, false)
		time.Sleep(goneLook)
		n.waiting(2)
		n.leaves(away, true) // again, for less than two looks
		time.Sleep(goneLook)
		n.leaves(away, false)
		time.Sleep(goneLook)
		n.waiting(2)
		n.publish("two")
		for _, reply := range []string{stays, away} {
			if got, _ := n.records(reply); !slices.Equal(got, []string{"two"}) {
				t.Errorf("%q", got)
			}
		}
		n.waiting(0)
		n.leaves(n.ask(ordersSubject, `{"offset":3,"wait_ms":30000}`, false), true)
		n.waiting(1) // the first one after none was left
		time.Sleep(2 * goneLook)
		n.waiting(0)
	})
}

// leaves has nobody wait for a reply, or somebody again.
func (n *node) leaves(reply string, gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone == nil {
		n.gone = map[string]bool{}
	}
	n.gone[reply] = gone
}

// waiting fails unless the given number of requests wait for records when nothing is left to do.
func (n *node) waiting(want int) {
	n.Helper()
	synctest.Wait()
	n.server.polls.mu.Lock()
	defer n.server.polls.mu.Unlock()
	if got := n.server.polls.shares.Len(); got != want {
		n.Fatalf("%d requests wait, not %d", got, want)
	}
}

// TestRequestsForRecordsAreBounded: requests beyond the bounds are refused at once.
func TestRequestsForRecordsAreBounded(t *testing.T) {
	n := startNode(t, nil)
	n.publish("one")
	slow := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(slow) })
	t.Cleanup(goOn) // the server waits for its reads when it closes
	n.mu.Lock()
	n.slow = slow
	n.mu.Unlock()
	var replies []string
	n.server.Accounts(ownAccounts)
	for client := range uint64(readsAtOnce) {
		reply := n.askAs(1+client, ordersSubject, "", false)
		// Its goroutine has sent the answer, and waits for the client.
		n.await("an answer to "+reply, func() bool { return len(n.answers[reply]) > 0 })
		replies = append(replies, reply)
	}
	for range readsQueued {
		replies = append(replies, n.ask(ordersSubject, "", false))
	}
	if got := n.refusal(n.ask(ordersSubject, "", false)); got.Code != Busy || !strings.Contains(got.Text, "ask again") {
		t.Errorf("%+v", got)
	}
	goOn()
	for _, reply := range replies {
		if got, _ := n.records(reply); len(got) != 1 {
			t.Fatalf("%q", got)
		}
	}
}

func FuzzRecordsRequest(f *testing.F) {
	f.Add("orders.0", `{"offset":1}`)
	f.Add("orders.00", `{"form":"full"}`)
	f.Fuzz(func(t *testing.T, rest, payload string) {
		name, number, ok := ofShard([]byte(rest))
		if ok && fmt.Sprintf("%s.%d", name, number) != rest {
			t.Errorf("%q was understood as shard %d of %q", rest, number, name)
		}
		var r RecordsRequest
		if decode([]byte(payload), &r) == nil && r.check() == nil {
			if r.Bytes < 1 || r.Bytes > MaxRecordsBytes || r.Records < 1 || r.Records > MaxRecords || r.Wait < 0 || time.Duration(r.Wait)*time.Millisecond > MaxRecordsWait {
				t.Errorf("%s was let through as %+v", payload, r)
			}
		}
	})
}
