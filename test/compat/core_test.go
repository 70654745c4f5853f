package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestRequestReply(t *testing.T) {
	n := startNode(t, nil)
	server, client := connect(t, n), connect(t, n)
	_, err := server.Subscribe("greet.*", func(m *nats.Msg) { _ = m.Respond(append([]byte("hello, "), m.Data...)) })
	testutil.Must(t, err)
	flush(t, server)
	for _, who := range []string{"ann", "", "bob"} {
		m, err := client.Request("greet.x", []byte(who), patience)
		if err != nil || string(m.Data) != "hello, "+who {
			t.Fatalf("answer to %q: %v, %v", who, m, err)
		}
	}
	old := connect(t, n, nats.UseOldRequestStyle()) // a subscription with a maximum per request
	for range 3 {
		m, err := old.Request("greet.x", []byte("old"), patience)
		if err != nil || string(m.Data) != "hello, old" {
			t.Fatalf("old style: %v, %v", m, err)
		}
	}
	testutil.EventuallyTrue(t, "the old style's subscriptions end", func() bool { return n.Stats().Subscriptions == 2 })
}

func TestARequestWithoutResponders(t *testing.T) {
	n := startNode(t, nil)
	nc := connect(t, n)
	begin := time.Now()
	if _, err := nc.Request("nobody", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("request: %v", err)
	}
	if took := time.Since(begin); took > patience/3 {
		t.Errorf("it took %v to say that nobody listens", took)
	}
	old := connect(t, n, nats.UseOldRequestStyle())
	if _, err := old.Request("nobody", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("old style request: %v", err)
	}
	// A responder that does not answer is another case than no responder.
	sub := subscribe(t, nc, "silent")
	if _, err := nc.Request("silent", nil, 50*time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Fatalf("request to one that is silent: %v", err)
	}
	receive(t, sub)
}

func TestFlushIsABarrier(t *testing.T) {
	n := startNode(t, nil)
	pub, sub := connect(t, n), connect(t, n)
	for i := range 200 {
		s, err := sub.SubscribeSync("barrier")
		testutil.Must(t, err)
		flush(t, sub)
		testutil.Must(t, pub.Publish("barrier", fmt.Append(nil, i)))
		flush(t, pub)
		if m := receive(t, s); string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("received %q, want %d", m.Data, i)
		}
		testutil.Must(t, s.Unsubscribe())
	}
}

func TestHeaders(t *testing.T) {
	n := startNode(t, nil)
	nc := connect(t, n)
	sub := subscribe(t, nc, "h")
	out := nats.NewMsg("h")
	out.Header.Add("Key", "one")
	out.Header.Add("Key", "two")
	out.Header.Set("lower-case", "x: y")
	out.Data = []byte("payload\r\n")
	testutil.Must(t, nc.PublishMsg(out))
	in := receive(t, sub)
	if got := in.Header.Values("Key"); len(got) != 2 || got[0] != "one" || got[1] != "two" || in.Header.Get("lower-case") != "x: y" {
		t.Errorf("headers %v", in.Header)
	}
	if !bytes.Equal(in.Data, out.Data) {
		t.Errorf("payload %q", in.Data)
	}
	testutil.Must(t, nc.Publish("h", []byte("plain")))
	if in = receive(t, sub); len(in.Header) != 0 || string(in.Data) != "plain" {
		t.Errorf("a message without headers arrived as %v %q", in.Header, in.Data)
	}
}

func TestQueueGroupSharesTheWork(t *testing.T) {
	n := startNode(t, nil)
	const members, messages = 5, 5000
	var got [members]atomic.Int64
	var total atomic.Int64
	for i := range members {
		nc := connect(t, n)
		_, err := nc.QueueSubscribe("work", "workers", func(*nats.Msg) { got[i].Add(1); total.Add(1) })
		testutil.Must(t, err)
		flush(t, nc)
	}
	pub := connect(t, n)
	all := subscribe(t, pub, "work")
	for range messages {
		testutil.Must(t, pub.Publish("work", nil))
	}
	for range messages {
		receive(t, all)
	}
	testutil.EventuallyTrue(t, "the group has had every message", func() bool { return total.Load() >= messages })
	if total.Load() != messages {
		t.Errorf("the group has had %d of %d messages", total.Load(), messages)
	}
	for i := range got {
		// The shares differ by less than a factor of two; chance alone stays far below.
		if g := got[i].Load(); g < messages/members/2 || g > messages/members*2 {
			t.Errorf("member %d has had %d of %d messages", i, g, messages)
		}
	}
}

func TestAutoUnsubscribe(t *testing.T) {
	n := startNode(t, nil)
	pub, nc := connect(t, n), connect(t, n)
	for _, before := range []int{0, 2} {
		sub := subscribe(t, nc, "auto")
		for range before {
			testutil.Must(t, pub.Publish("auto", nil))
			receive(t, sub)
		}
		flush(t, pub)
		testutil.Must(t, sub.AutoUnsubscribe(5))
		flush(t, nc)
		for range 20 {
			testutil.Must(t, pub.Publish("auto", nil))
		}
		flush(t, pub, nc)
		for range 5 - before {
			receive(t, sub)
		}
		if _, err := sub.NextMsg(time.Millisecond); !errors.Is(err, nats.ErrMaxMessages) {
			t.Errorf("after the last message: %v", err)
		}
		testutil.EventuallyTrue(t, "the subscription is gone", func() bool { return n.Stats().Subscriptions == 0 })
	}
}

func TestNoEcho(t *testing.T) {
	n := startNode(t, nil)
	quiet, other := connect(t, n, nats.NoEcho()), connect(t, n)
	mine, theirs := subscribe(t, quiet, "talk"), subscribe(t, other, "talk")
	testutil.Must(t, quiet.Publish("talk", []byte("from quiet")))
	if m := receive(t, theirs); string(m.Data) != "from quiet" {
		t.Fatalf("received %q", m.Data)
	}
	testutil.Must(t, other.Publish("talk", []byte("from other")))
	if m := receive(t, mine); string(m.Data) != "from other" {
		t.Fatalf("received %q: its own words", m.Data)
	}
	receivesNothing(t, quiet, mine)
}

func TestUnsubscribeTwice(t *testing.T) {
	n := startNode(t, nil)
	nc := connect(t, n)
	sub := subscribe(t, nc, "once")
	testutil.Must(t, sub.Unsubscribe())
	if err := sub.Unsubscribe(); !errors.Is(err, nats.ErrBadSubscription) {
		t.Errorf("the second time: %v", err)
	}
	if _, err := nc.Subscribe("bad subject", func(*nats.Msg) {}); !errors.Is(err, nats.ErrBadSubject) {
		t.Errorf("a bad subject: %v", err)
	}
	testutil.Must(t, nc.Publish("once", nil))
	flush(t, nc)
}

// TestInvalidSubjectIsReported: an error that the client does not check and the broker does is
// reported to the application. nats.go closes the connection on an error that it does not know,
// such as an invalid subject.
func TestInvalidSubjectIsReported(t *testing.T) {
	n := startNode(t, nil)
	closed := make(chan struct{})
	nc := connect(t, n, nats.NoReconnect(), nats.ErrorHandler(nil), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	_, err := nc.SubscribeSync("a.>.b")
	testutil.Must(t, err)
	_ = nc.FlushTimeout(patience)
	wait(t, "the connection is closed", closed)
	if err := nc.LastError(); err == nil || !strings.EqualFold(err.Error(), "nats: Invalid Subject") {
		t.Errorf("the client's last error is %v", err)
	}
}

func TestDrainLosesNothing(t *testing.T) {
	n := startNode(t, nil)
	pub := connect(t, n)
	closed := make(chan struct{})
	nc := connect(t, n, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	const messages = 2000
	var got atomic.Int64
	half := make(chan struct{})
	_, err := nc.QueueSubscribe("drain", "q", func(m *nats.Msg) {
		if got.Add(1) == 10 {
			close(half)
		}
		_ = m.Respond(nil)
	})
	testutil.Must(t, err)
	flush(t, nc)
	other := connect(t, n)
	var rest atomic.Int64
	_, err = other.QueueSubscribe("drain", "q", func(*nats.Msg) { rest.Add(1) })
	testutil.Must(t, err)
	flush(t, other)
	for i := range messages {
		testutil.Must(t, pub.PublishRequest("drain", "answers", nil))
		if i == messages/2 {
			flush(t, pub)
			wait(t, "the first messages", half)
			testutil.Must(t, nc.Drain())
		}
	}
	flush(t, pub)
	wait(t, "the drained connection closes by itself", closed)
	testutil.EventuallyTrue(t, "every message is with one of the two", func() bool { return got.Load()+rest.Load() >= messages })
	if sum := got.Load() + rest.Load(); sum != messages || rest.Load() == 0 {
		t.Errorf("%d and %d of %d messages", got.Load(), rest.Load(), messages)
	}
}

func TestStatus(t *testing.T) {
	n := startNode(t, nil)
	nc := connect(t, n, nats.Name("who is this"))
	if !nc.HeadersSupported() || nc.ConnectedServerId() == "" || nc.ConnectedServerName() != "compat" || nc.ConnectedAddr() != n.address {
		t.Errorf("the server is known as %s, %s, %s", nc.ConnectedServerId(), nc.ConnectedServerName(), nc.ConnectedAddr())
	}
	if ip, err := nc.GetClientIP(); err != nil || !ip.IsLoopback() {
		t.Errorf("client address %v, %v", ip, err)
	}
	id, err := nc.GetClientID()
	testutil.Must(t, err)
	if rtt, err := nc.RTT(); err != nil || rtt <= 0 {
		t.Errorf("round trip %v, %v", rtt, err)
	}
	for _, c := range n.ConnStats() {
		if c.ID == id && c.Name == "who is this" && c.Lang == "go" && c.Version == nats.Version {
			return
		}
	}
	t.Errorf("connection %d is not as it said among %+v", id, n.ConnStats())
}

// trace publishes a message that asks for a trace, and returns the steps of the trace by type.
func trace(t *testing.T, nc *nats.Conn, subject string, only string) map[string][]map[string]any {
	t.Helper()
	traces, err := nc.SubscribeSync(nats.NewInbox())
	testutil.Must(t, err)
	defer func() { testutil.Must(t, traces.Unsubscribe()) }()
	m := nats.NewMsg(subject)
	m.Data = []byte("hello")
	m.Header.Set("Nats-Trace-Dest", traces.Subject)
	if only != "" {
		m.Header.Set("Nats-Trace-Only", only)
	}
	testutil.Must(t, nc.PublishMsg(m))
	got, err := traces.NextMsg(patience)
	if err != nil {
		t.Fatalf("trace of %s: %v", subject, err)
	}
	var is struct {
		Server  map[string]any
		Request struct {
			Header map[string][]string
			Size   int `json:"msgsize"`
		}
		Events []map[string]any
	}
	testutil.Must(t, json.Unmarshal(got.Data, &is))
	if is.Server["name"] == "" || is.Request.Size < len("hello")+40 || is.Request.Header["Nats-Trace-Dest"][0] != traces.Subject {
		t.Errorf("trace %s", got.Data)
	}
	steps := map[string][]map[string]any{}
	for _, e := range is.Events {
		kind := e["type"].(string)
		steps[kind] = append(steps[kind], e)
	}
	return steps
}

// traceStories hold for every site of JetStream.
var traceStories = []story{
	{"a trace tells where a message goes, and a dry run goes nowhere", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		nc := js.Conn()
		plain, err := nc.SubscribeSync(name + ".*")
		testutil.Must(t, err)
		member, err := nc.QueueSubscribeSync(name+".a", "workers")
		testutil.Must(t, err)
		testutil.Must(t, nc.Flush())
		for _, only := range []string{"true", "1", "ON", "", "false"} {
			steps := trace(t, nc, name+".a", only)
			if in := steps["in"]; len(in) != 1 || in[0]["subj"] != name+".a" || in[0]["acc"] != "$G" || in[0]["cid"] == nil {
				t.Errorf("%q: in %v", only, in)
			}
			if stored := steps["js"]; len(stored) != 1 || stored[0]["stream"] != name {
				t.Errorf("%q: stored %v", only, stored)
			}
			out := map[any]any{}
			for _, e := range steps["eg"] {
				out[e["sub"]] = e["queue"]
			}
			if queue, ok := out[name+".*"]; !ok || queue != nil || out[name+".a"] != "workers" || len(out) != 2 {
				t.Errorf("%q: out %v", only, steps["eg"])
			}
			for _, sub := range []*nats.Subscription{plain, member} {
				if only == "" || only == "false" {
					if _, err := sub.NextMsg(patience); err != nil {
						t.Errorf("%q: %s: %v", only, sub.Subject, err)
					}
				}
			}
		}
		for _, sub := range []*nats.Subscription{plain, member} {
			if m, err := sub.NextMsg(10 * time.Millisecond); err == nil {
				t.Errorf("a dry run was delivered on %s: %v", sub.Subject, m.Header)
			}
		}
		testutil.Eventually(t, "two messages", func() error {
			stream, err := js.Stream(within(t), name)
			testutil.Must(t, err)
			if is := stream.CachedInfo().State.Msgs; is != 2 {
				return fmt.Errorf("%d are stored", is)
			}
			return nil
		})
		// A dry run of a call does nothing either.
		trace(t, nc, "$JS.API.STREAM.DELETE."+name, "true")
		_, err = js.Stream(within(t), name)
		testutil.Must(t, err)
	}},
}
