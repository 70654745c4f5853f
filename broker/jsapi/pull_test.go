package jsapi

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

func TestPullRequests(t *testing.T) {
	for payload, want := range map[string]Pull{
		"":     {Batch: 1, Priority: plainPriority},
		"  \n": {Batch: 1, Priority: plainPriority},
		"25":   {Batch: 25, Priority: plainPriority},
		"-3":   {Batch: 1, Priority: plainPriority},
		"many": {Batch: 1, Priority: plainPriority},
		"{}":   {Batch: 1, formal: true},
		`{"expires":30000000000,"batch":500,"max_bytes":0,"idle_heartbeat":15000000000}`: {Batch: 500, Expires: 30 * time.Second, Heartbeat: 15 * time.Second, formal: true},
		`{"no_wait":true,"batch":2,"max_bytes":4096}`:                                    {Batch: 2, NoWait: true, MaxBytes: 4096, formal: true},
		`{"batch":3,"group":"a"}`:                                                        {Batch: 3, Group: "a", formal: true},
	} {
		got, refusal := ParsePull([]byte(payload))
		if got != want || refusal != nil {
			t.Errorf("%q: %+v %q, want %+v", payload, got, refusal, want)
		}
	}
	for payload, why := range map[string]string{
		`{"batch":"x"}`: "json: cannot unmarshal",
		`{"batch":1`:    "unexpected end of JSON input",
		`{"expires":1000000000,"idle_heartbeat":600000000}`:  "heartbeat value too large",
		`{"idle_heartbeat":1}`:                               "heartbeat value too large",
		`{"expires":4,"idle_heartbeat":9223372036854775807}`: "heartbeat value too large",
		`{"expires":-1}`:                                     "expires can not be negative",
		`{"priority":10}`:                                    "Priority must be between 0 and 9",
	} {
		_, refusal := ParsePull([]byte(payload))
		code, text := protocol.Header(refusal).Status()
		if code != 400 || !strings.HasPrefix(string(text), "Bad Request - "+why) {
			t.Errorf("%s: %q", payload, refusal)
		}
	}
}

// TestPullsOfPriorityGroups: a request in JSON names a group of its consumer, and only what the
// policy knows. Any other request needs no group.
func TestPullsOfPriorityGroups(t *testing.T) {
	type policy = coordination.PriorityPolicy
	const none, overflow, pinned, prioritized = policy(""), coordination.PriorityOverflow, coordination.PriorityPinned, coordination.PriorityPrioritized
	for _, test := range []struct {
		policy  policy
		payload string
		want    string
	}{
		{none, `{"group":"x","priority":3}`, ""},
		{none, `{"min_pending":1}`, "Not a Overflow Priority consumer"},
		{prioritized, `{"group":"A","min_ack_pending":1}`, "Not a Overflow Priority consumer"},
		{overflow, `{"group":"A","min_pending":1,"min_ack_pending":2}`, ""},
		{none, `{"id":"pin"}`, "Not a Pinned Client Priority consumer"},
		{overflow, `{"group":"A","id":"pin"}`, "Not a Pinned Client Priority consumer"},
		{pinned, `{"group":"A","id":"pin"}`, ""},
		{pinned, `{"batch":1}`, "Priority Group missing"},
		{pinned, `{"group":"B"}`, "Invalid Priority Group"},
		{prioritized, `{"group":"A","priority":9}`, ""},
		{prioritized, ``, ""},
		{overflow, `5`, ""},
	} {
		p, refusal := ParsePull([]byte(test.payload))
		if refusal == nil {
			refusal = p.CheckPriority(test.policy, []string{"A"})
		}
		want := test.want
		if want != "" {
			want = "NATS/1.0 400 Bad Request - " + want + "\r\n\r\n"
		}
		if string(refusal) != want {
			t.Errorf("%s %s: %q, want %q", test.policy, test.payload, refusal, want)
		}
	}
}

func TestPullsBeyondTheConsumersLimits(t *testing.T) {
	config := &ConsumerConfig{MaxRequestBatch: 10, MaxRequestExpires: time.Minute, MaxRequestMaxBytes: 100}
	for want, p := range map[string]Pull{
		"": {Batch: 10, Expires: time.Minute, MaxBytes: 100},
		"NATS/1.0 409 Exceeded MaxRequestBatch of 10\r\n\r\n":     {Batch: 11},
		"NATS/1.0 409 Exceeded MaxRequestExpires of 1m0s\r\n\r\n": {Batch: 1, Expires: time.Hour},
		"NATS/1.0 409 Exceeded MaxRequestMaxBytes of 100\r\n\r\n": {Batch: 1, MaxBytes: 101},
	} {
		if got := string(p.CheckLimits(config)); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
		if refusal := p.CheckLimits(&ConsumerConfig{}); refusal != nil {
			t.Errorf("without limits: %q", refusal)
		}
	}
}

func TestStatuses(t *testing.T) {
	for got, want := range map[string]string{
		string(AppendStatus(nil, NoMessages)):                                 "NATS/1.0 404 No Messages\r\n\r\n",
		string(AppendStatusLeft(nil, RequestTimeout, 3, 0)):                   "NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n",
		string(AppendStatusLeft([]byte("x"), BatchCompleted, 0, 17)):          "xNATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 17\r\n\r\n",
		string(AppendHeartbeat(nil, 7, 9, nil)):                               "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\nNats-Last-Stream: 9\r\n\r\n",
		string(AppendPinned(nil, []byte("NATS/1.0\r\nA: b\r\n\r\n"), "xyz")):  "NATS/1.0\r\nA: b\r\nNats-Pin-Id: xyz\r\n\r\n",
		string(AppendPinned(nil, nil, "xyz")):                                 "NATS/1.0\r\nNats-Pin-Id: xyz\r\n\r\n",
		string(AppendHeadersOnly(nil, nil, 5)):                                "NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n",
		string(AppendHeadersOnly(nil, []byte("NATS/1.0\r\nA: b\r\n\r\n"), 5)): "NATS/1.0\r\nA: b\r\nNats-Msg-Size: 5\r\n\r\n",
		string(AppendHeadersOnly(nil, []byte("NATS/1.0\r\n\r\n"), 5)):         "NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n",
		string(AppendHeadersOnly(nil, []byte("garbage"), 5)):                  "NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	kept := DirectMessage{
		Stream: []byte("S"), Subject: []byte("a.b"), Sequence: 4, Time: time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC).UnixNano(),
		Header: []byte("NATS/1.0\r\nA: b\r\n\r\n"),
	}
	header := protocol.Header(kept.AppendHeader(nil))
	for key, want := range map[string]string{"A": "b", "Nats-Stream": "S", "Nats-Subject": "a.b", "Nats-Sequence": "4", "Nats-Time-Stamp": "2026-01-02T03:04:05.00000006Z"} {
		if got, _ := header.Get(key); string(got) != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func FuzzPull(f *testing.F) {
	f.Add([]byte(`{"expires":30000000000,"batch":500,"idle_heartbeat":15000000000}`))
	f.Add([]byte("12"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, refusal := ParsePull(payload)
		if refusal == nil && (p.Batch < 1 || p.MaxBytes < 0 || p.Expires < 0 || p.Heartbeat < 0 || p.Heartbeat > p.Expires) {
			t.Errorf("%q: %+v", payload, p)
		}
		if refusal != nil && strings.Count(string(refusal), "\n") != 2 {
			t.Errorf("%q: a status of several lines: %q", payload, refusal)
		}
	})
}
