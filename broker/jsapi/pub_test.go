package jsapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

func header(lines ...string) protocol.Header {
	block := "NATS/1.0\r\n"
	for _, line := range lines {
		block += line + "\r\n"
	}
	return protocol.Header(block + "\r\n")
}

func TestPublishHeaders(t *testing.T) {
	for _, test := range []struct {
		header protocol.Header
		want   Publish
	}{
		{nil, Publish{}},
		{header("Trace: 1", "KV-Operation: DEL"), Publish{}},
		{header("Trace: 1", "Nats-Marker-Reason: Remove"), Publish{Marks: true}},
		{header("KV-Operation: PURGE", "KV-Operation: DEL"), Publish{Marks: true}},
		{header("Nats-TTL: 1h", "Nats-TTL: 2h"), Publish{TTL: time.Hour}},
		{header("Nats-TTL: 1500ms"), Publish{TTL: time.Second}},
		{header("Nats-TTL: 90"), Publish{TTL: 90 * time.Second}},
		{header("Nats-TTL: 00"), Publish{}},
		{header("Nats-TTL: 18446744073709551615"), Publish{TTL: time.Duration(maxTTL) * time.Second}},
		{header("Nats-TTL: Never"), Publish{TTL: publish.Never}},
		{header("Nats-TTL:"), Publish{}},
		{header("Nats-Msg-Id: one", "Nats-Msg-Id: two"), Publish{ID: []byte("one")}},
		{header("nats-msg-id: one"), Publish{}},
		{header("Nats-Expected-Stream: S", "Nats-Expected-Last-Msg-Id: m"), Publish{ExpectedStream: []byte("S"), ExpectedLastID: []byte("m")}},
		{header("Nats-Expected-Last-Sequence: 0"), Publish{ExpectsLast: true}},
		{header("Nats-Expected-Last-Sequence: 12"), Publish{ExpectsLast: true, ExpectedLast: 12}},
		{header("Nats-Expected-Last-Subject-Sequence: 3", "Nats-Expected-Last-Subject-Sequence-Subject: a.>"),
			Publish{ExpectsLastBySubject: true, ExpectedLastBySubject: 3, ExpectedSubject: []byte("a.>")}},
	} {
		got, err := ParsePublish(test.header)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %+v %v, want %+v", test.header, got, err, test.want)
		}
	}
}

func TestRefusedPublishHeaders(t *testing.T) {
	for line, code := range map[string]int{
		"Nats-TTL: 0":                       10165,
		"Nats-TTL: 999ms":                   10165,
		"Nats-TTL: -1h":                     10165,
		"Nats-TTL: -1":                      10165,
		"Nats-TTL: +1":                      10165,
		"Nats-TTL: soon":                    10165,
		"Nats-TTL: 18446744073709551616":    10165,
		"Nats-Rollup: some":                 10111,
		"Nats-Incr: x":                      10171,
		"Nats-Incr: +":                      10171,
		"Nats-Incr: 1.5":                    10171,
		"Nats-Incr: 1_000":                  10171,
		"Nats-Expected-Last-Sequence: -1":   10003,
		"Nats-Expected-Last-Sequence: soon": 10003,
		"Nats-Expected-Last-Subject-Sequence-Subject: a": 10193,
	} {
		if _, err := ParsePublish(header("Trace: 1", line)); codeOf(err) != code {
			t.Errorf("%s: %v, want %d", line, err, code)
		}
	}
	for _, refused := range refusedHeaders {
		if _, err := ParsePublish(header(refused.name + ": 1")); err != refused.err {
			t.Errorf("%s: %v", refused.name, err)
		}
	}
}

// TestCountersAreReadAndWritten: as nats-server writes them, with what they say of other streams.
func TestCountersAreReadAndWritten(t *testing.T) {
	message, size := AppendCounter(nil, header("Nats-Incr: 2"), "44", "", nil)
	if want := string(header("Nats-Incr: 2")) + `{"val":"44"}`; string(message) != want || size != len(header("Nats-Incr: 2")) {
		t.Errorf("%q, %d", message, size)
	}
	sources := []byte(`{"other":{"a":"7"}}`)
	message, size = AppendCounter(nil, header("Nats-Counter-Sources: {}", "Nats-Incr: 2"), "-1", "", sources)
	want := header("Nats-Incr: 2", "Nats-Counter-Sources: "+string(sources))
	if string(message) != string(want)+`{"val":"-1"}` || size != len(want) {
		t.Errorf("%q, %d", message, size)
	}
	total, of, ok := ParseCounter(protocol.Header(message[:size]), message[size:])
	if string(total) != "-1" || string(of) != string(sources) || !ok {
		t.Errorf("%q, %q, %v", total, of, ok)
	}
	message, size = AppendCounter(nil, header("Nats-Incr: 2", "Trace: 1"), "-1", "-9", sources)
	if want := header("Nats-Incr: -9", "Trace: 1", "Nats-Counter-Sources: "+string(sources)); string(message[:size]) != string(want) {
		t.Errorf("%q", message)
	}
	for payload, want := range map[string]string{"": `{"s":{"a":"1"}} ""`, string(sources): `{"other":{"a":"7"},"s":{"a":"1"}} ""`,
		`{"s":{"b":"2","a":"-3"}}`: `{"s":{"a":"1","b":"2"}} "-3"`, "{}": `{"s":{"a":"1"}} ""`} {
		updated, before, ok := CounterSource([]byte(payload), "s", "a", "1")
		if got := fmt.Sprintf("%s %q", updated, before); got != want || !ok {
			t.Errorf("with %s it says %s, %v, want %s", payload, got, ok, want)
		}
	}
	for _, payload := range []string{"x", "null", `{"s":1}`, `{"s":{"a":"x"}}`} {
		if updated, _, ok := CounterSource([]byte(payload), "s", "a", "1"); ok {
			t.Errorf("%s became %s", payload, updated)
		}
	}
	for _, payload := range []string{"", "1", `{"val":1}`, `{"val":""}`, `{"val":"x"}`, `{"val":"1.0"}`} {
		if total, _, ok := ParseCounter(nil, []byte(payload)); ok {
			t.Errorf("%s has the total %s", payload, total)
		}
	}
	if _, _, ok := ParseCounter(header("Nats-Counter-Sources: x"), []byte(`{"val":"1"}`)); ok {
		t.Error("invalid sources are taken")
	}
	if got := string(AppendPubAck(nil, "s", publish.Ack{Offset: 7, Total: []byte("44")})); got != `{"stream":"s","seq":7,"val":"44"}` {
		t.Error(got)
	}
}

// TestPartsOfBatches: what is missing or wrong is told apart.
func TestPartsOfBatches(t *testing.T) {
	for _, test := range []struct {
		header protocol.Header
		want   publish.Part
		ok     bool
	}{
		{header("Trace: 1"), publish.Part{}, false},
		{header("Nats-Batch-Sequence: 1"), publish.Part{}, false},
		{header("Nats-Batch-Id:"), publish.Part{}, false},
		{header("Other: Nats-Batch-Id"), publish.Part{}, false},
		{header("Nats-Batch-Id: b"), publish.Part{Batch: []byte("b")}, true},
		{header("Nats-Batch-Id: b", "Nats-Batch-Sequence: x"), publish.Part{Batch: []byte("b")}, true},
		{header("Nats-Batch-Id: b", "Nats-Batch-Sequence: 0"), publish.Part{Batch: []byte("b"), Sequenced: true}, true},
		{header("Nats-Batch-Id: b", "Nats-Batch-Sequence: 7", "Nats-Batch-Commit: 1"), publish.Part{Batch: []byte("b"), Sequence: 7, Sequenced: true, Commit: publish.CommitWith}, true},
		{header("Nats-Batch-Id: b", "Nats-Batch-Sequence: 7", "Nats-Batch-Commit: eob"), publish.Part{Batch: []byte("b"), Sequence: 7, Sequenced: true, Commit: publish.CommitBefore}, true},
		{header("Nats-Batch-Id: b", "Nats-Batch-Sequence: 7", "Nats-Batch-Commit: 0"), publish.Part{Batch: []byte("b"), Sequence: 7, Sequenced: true, Commit: publish.CommitInvalid}, true},
		{header("Nats-Batch-Id: b", "Nats-Required-Api-Level: 2"), publish.Part{Batch: []byte("b"), Strip: "Nats-Required-Api-Level"}, true},
		{header("Nats-Batch-Id: b", "Nats-Required-Api-Level: 99"), publish.Part{Batch: []byte("b"), Unserved: true, Strip: "Nats-Required-Api-Level"}, true},
	} {
		if got, ok := ParsePart(test.header); ok != test.ok || ok && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %+v, %v", test.header, got, ok)
		}
	}
	if got, want := AppendCommit(nil, header("Nats-Batch-Id: b")), header("Nats-Batch-Id: b", "Nats-Batch-Commit: 1"); string(got) != string(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestClientsReadPubAcks(t *testing.T) {
	for _, stream := range []string{"ORDERS", `quo"te`, "größe"} {
		for _, duplicate := range []bool{false, true} {
			var ack jetstream.PubAck
			data := AppendPubAck(nil, stream, publish.Ack{Offset: 1 << 63, Duplicate: duplicate})
			if err := json.Unmarshal(data, &ack); err != nil || ack != (jetstream.PubAck{Stream: stream, Sequence: 1 << 63, Duplicate: duplicate}) {
				t.Errorf("%s: %+v %v", data, ack, err)
			}
		}
		var refused struct {
			jetstream.PubAck
			Error *jetstream.APIError
		}
		why := ErrStreamStoreFailed.With("disk full:\n\"/data\"")
		data := AppendPubRefusal(nil, stream, why)
		if err := json.Unmarshal(data, &refused); err != nil || refused.Stream != stream || refused.Error == nil ||
			int(refused.Error.ErrorCode) != 10077 || refused.Error.Code != 503 || refused.Error.Description != why.Description {
			t.Errorf("%s: %+v %v", data, refused.Error, err)
		}
	}
	if got := string(appendString(nil, "a\x01\t\\")); got != `"a\u0001\u0009\\"` {
		t.Error(got)
	}
}

// TestMessagesCostNoMemory: handling a message allocates nothing.
func TestMessagesCostNoMemory(t *testing.T) {
	buffer := make([]byte, 0, 1024)
	d := Delivery{[]byte("ORDERS"), []byte("billing"), 1, 2, 3, 4, 5}
	ackSubject := d.AppendSubject(nil)
	next := []byte("$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing")
	plus, term := []byte("+ACK"), []byte("+TERM no")
	h := header("Trace: 1", "Nats-Msg-Id: one", "Nats-Expected-Last-Sequence: 4")
	kept := DirectMessage{Stream: []byte("S"), Subject: []byte("a.b"), Sequence: 4, Time: 5, Header: h}
	for name, do := range map[string]func(){
		"ack subject":   func() { d.AppendSubject(buffer) },
		"ack, parsed":   func() { _, _ = ParseAckSubject(ackSubject) },
		"ack payload":   func() { ParseAck(plus); ParseAck(term) },
		"API subject":   func() { _, _ = ParseSubject(next) },
		"pull":          func() { _, _ = ParsePull(nil) },
		"headers":       func() { _, _ = ParsePublish(h) },
		"PubAck":        func() { AppendPubAck(buffer, "ORDERS", publish.Ack{Offset: 7, Duplicate: true}) },
		"PubAck, error": func() { AppendPubRefusal(buffer, "ORDERS", ErrStreamNotFound) },
		"status":        func() { AppendStatus(buffer, NoMessages) },
		"status left":   func() { AppendStatusLeft(buffer, RequestTimeout, 1, 2) },
		"heartbeat":     func() { AppendHeartbeat(buffer, 1, 2, &Flow{Stream: []byte("s"), Consumer: []byte("c"), Token: 7}) },
		"direct get":    func() { kept.AppendHeader(buffer) },
		"headers only":  func() { AppendHeadersOnly(buffer, h, 9) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzPublish(f *testing.F) {
	f.Add([]byte(header("Nats-Msg-Id: one", "Nats-Expected-Last-Sequence: 4")))
	f.Add([]byte(header("Nats-TTL: 1m")))
	f.Fuzz(func(t *testing.T, block []byte) {
		p, err := ParsePublish(block)
		if err != nil && !reflect.DeepEqual(p, Publish{}) {
			t.Errorf("%q: %+v beside %v", block, p, err)
		}
		if id, ok := protocol.Header(block).Get("Nats-Msg-Id"); ok && err == nil && len(p.ID) == 0 && len(id) > 0 {
			t.Errorf("%q: the id is lost", block)
		}
	})
}

func BenchmarkPubAck(b *testing.B) {
	buffer := make([]byte, 0, 128)
	for b.Loop() {
		AppendPubAck(buffer, "ORDERS", publish.Ack{Offset: 123456789})
	}
}

func BenchmarkAckSubject(b *testing.B) {
	d := Delivery{[]byte("ORDERS"), []byte("billing"), 1, 123456, 654321, 1772600767000000089, 5}
	buffer := make([]byte, 0, 128)
	for b.Loop() {
		if _, ok := ParseAckSubject(d.AppendSubject(buffer)); !ok {
			b.Fatal(fmt.Sprint(d))
		}
	}
}

// TestAMarkerIsReadAsOne: it asks for what makes it safe.
func TestAMarkerIsReadAsOne(t *testing.T) {
	block := AppendMarker(nil, time.Hour, 7)
	if want := "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1h0m0s\r\nNats-Rollup: sub\r\nNats-Expected-Last-Subject-Sequence: 7\r\n\r\n"; string(block) != want {
		t.Errorf("%q", block)
	}
	got, err := ParsePublish(protocol.Header(block))
	want := Publish{Marks: true, TTL: time.Hour, Rollup: publish.RollupSubject, ExpectsLastBySubject: true, ExpectedLastBySubject: 7}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
