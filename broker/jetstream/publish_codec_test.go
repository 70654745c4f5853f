package jetstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
)

// TestARefusalHasTheCodeThatClientsKnow: each rejection by a Topic has the error code of
// nats-server.
func TestARefusalHasTheCodeThatClientsKnow(t *testing.T) {
	for _, c := range []struct {
		err         error
		code        int
		description string
	}{
		{&publish.TooLargeError{Topic: "orders", Size: 2, Max: 1}, 10054, "message size exceeds maximum allowed"},
		{&publish.WrongTopicError{Topic: "orders", Expected: "bills"}, 10060, "expected stream does not match"},
		{&publish.WrongLastError{Topic: "orders", Last: 7}, 10071, "wrong last sequence: 7"},
		{&publish.WrongLastIDError{Topic: "orders", ID: "a"}, 10070, "wrong last msg ID: a"},
		{&publish.NotServedError{Topic: "orders", Why: "it is\r\naway"}, 10118, "stream is offline: it is  away"},
		{&publish.StoreError{Topic: "orders", Err: fmt.Errorf("append: %w", syscall.ENOSPC)}, 10077, "topic orders: not kept: append: no space left on device"},
		{&publish.StoreError{Topic: "orders", Err: log.ErrOverloaded}, 10077, "topic orders: not kept: the disk is behind: too much waits to be written; publish more slowly"},
		{&publish.WindowFullError{Topic: "orders", IDs: 3, Window: 1e9}, 10077,
			"topic orders: 3 message ids within the deduplication window of 1s are all that this broker keeps of this topic, beside those of others; shorten spec.deduplication or publish more slowly"},
		{&publish.UnsupportedConditionError{Topic: "orders", Condition: "that", Why: "it is so"}, 10077, "topic orders: that is not possible: it is so"},
		{&publish.WrongLastError{Topic: "orders", Subject: "orders.eu", Last: 7}, 10071, "wrong last sequence: 7"},
		{&publish.NotAfterError{Topic: "orders", ID: "a"}, 40002, `topic orders: no message with id "a" was kept within the deduplication window (publish that one first)`},
		{jsapi.ErrMessageIncrInvalid, 10171, "message counter increment is invalid"},
		{&publish.CounterError{Fault: publish.CountersDisabled}, 10168, "message counters is disabled"},
		{&publish.CounterError{Fault: publish.IncrementMissing}, 10169, "message counter increment is missing"},
		{&publish.CounterError{Fault: publish.CounterPayload}, 10170, "message counter has payload"},
		{&publish.CounterError{Fault: publish.IncrementInvalid}, 10171, "message counter increment is invalid"},
		{&publish.CounterError{Fault: publish.CounterBroken}, 10172, "message counter is broken"},
		{&publish.BatchError{Fault: publish.BatchesDisabled}, 10174, "atomic publish is disabled"},
		{&publish.BatchError{Fault: publish.BatchTooLarge, What: "1000"}, 10199, "atomic publish batch is too large: 1000"},
		{&publish.BatchError{Fault: publish.BatchUnsupported, What: "X"}, 10177, "atomic publish unsupported header used: X"},
		{&publish.TTLError{Topic: "S"}, 10166, "per-message TTL is disabled"},
		{errors.New("whatever else"), 10077, "whatever else"},
	} {
		var got struct {
			Error  *jsapi.Error `json:"error"`
			Stream string       `json:"stream"`
		}
		text := PublishCodec{}.AppendRefusal([]byte(nil), "orders", c.err)
		if err := json.Unmarshal(text, &got); err != nil || got.Error == nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got.Error.ErrCode != c.code || got.Error.Description != c.description || got.Stream != "orders" {
			t.Errorf("%T is answered with %s", c.err, text)
		}
	}
	if jsapi.ErrStreamOffline.Description != "stream is offline" {
		t.Error("the shared error was changed")
	}
}

func TestConditionsAreReadFromHeaders(t *testing.T) {
	c, err := PublishCodec{}.Conditions([]byte("NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Expected-Stream: orders\r\nNats-Expected-Last-Sequence: 4\r\n" +
		"Nats-Expected-Last-Msg-Id: 0\r\nNats-Expected-Last-Subject-Sequence: 0\r\nNats-Expected-Last-Subject-Sequence-Subject: orders.*\r\n\r\n"))
	if err != nil || string(c.ID) != "1" || string(c.ExpectedTopic) != "orders" || c.ExpectedLast != 4 || !c.ExpectsLast || string(c.ExpectedLastID) != "0" ||
		c.ExpectedLastBySubject != 0 || !c.ExpectsLastBySubject || string(c.ExpectedSubject) != "orders.*" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := (PublishCodec{}).Conditions(nil); err != nil || c.ID != nil {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = PublishCodec{}.Conditions([]byte("NATS/1.0\r\nNats-Incr: x\r\n\r\n"))
	if !errors.Is(err, jsapi.ErrMessageIncrInvalid) {
		t.Error(err)
	}
	if got := string(PublishCodec{}.AppendAck(nil, "orders", publish.Ack{Offset: 7, Duplicate: true})); got != `{"stream":"orders","seq":7,"duplicate":true}` {
		t.Error(got)
	}
	header := []byte("NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { _, _ = PublishCodec{}.Conditions(header) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// TestAMessageOfRecordsIsUnderstood: a message of many records is marked by a header and acked with
// their number.
func TestAMessageOfRecordsIsUnderstood(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "65536": 65536} {
		c, err := PublishCodec{}.Conditions([]byte("NATS/1.0\r\nCarillon-Records: " + value + "\r\nNats-Msg-Id: a\r\nCarillon-After: b\r\n\r\n"))
		if err != nil || c.Records != want || string(c.After) != "b" || string(c.ID) != "a" {
			t.Errorf("%s: %+v, %v", value, c, err)
		}
	}
	for _, value := range []string{"0", "65537", "-1", "one", "1 2", "", "99999999999999999999"} {
		_, err := PublishCodec{}.Conditions([]byte("NATS/1.0\r\nCarillon-Records: " + value + "\r\n\r\n"))
		if e, ok := errors.AsType[*jsapi.Error](err); !ok || e.ErrCode != 40001 || e.Code != 400 {
			t.Errorf("%q: %v", value, err)
		}
	}
	if c, err := (PublishCodec{}).Conditions([]byte("NATS/1.0\r\nX-Carillon-Records: 7\r\n\r\n")); err != nil || c.Records != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if got := string(PublishCodec{}.AppendAck(nil, "orders", publish.Ack{Offset: 7, Records: 3})); got != `{"stream":"orders","seq":7,"count":3}` {
		t.Error(got)
	}
	got := string(PublishCodec{}.AppendRefusal(nil, "orders", &publish.RecordsError{Topic: "orders", Why: "record 3 of 4 is wrong"}))
	if got != `{"error":{"code":400,"err_code":40001,"description":"topic orders: record 3 of 4 is wrong"},"stream":"orders","seq":0}` {
		t.Error(got)
	}
}
