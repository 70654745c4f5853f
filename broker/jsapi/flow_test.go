package jsapi

import (
	"strings"
	"testing"
	"time"
)

func TestAFlowControlAnswerNamesItsRequest(t *testing.T) {
	for _, token := range []uint64{1, 35, 36, 1<<64 - 1} {
		f := Flow{Stream: []byte("orders"), Consumer: []byte("billing"), Token: token}
		to := f.AppendSubject(nil)
		got, ok := ParseFlowSubject(to)
		if !ok || string(got.Stream) != "orders" || string(got.Consumer) != "billing" || got.Token != token {
			t.Errorf("%s is %+v, %v", to, got, ok)
		}
	}
	for _, wrong := range []string{"", "$JS.FC.", "$JS.FC.s.c", "$JS.FC.s.c.", "$JS.FC.s.c.0", "$JS.FC.s.c.x.y", "$JS.FC..c.1", "$JS.FC.s..1", "$JS.FC.s.c.zzzzzzzzzzzzzzzzzz", "$JS.ACK.s.c.1"} {
		if f, ok := ParseFlowSubject([]byte(wrong)); ok {
			t.Errorf("%q is %+v", wrong, f)
		}
	}
	if got := string(AppendFlowRequest(nil)); got != "NATS/1.0 100 FlowControl Request\r\n\r\n" {
		t.Errorf("a request is %q", got)
	}
}

func TestImpossiblePushConsumers(t *testing.T) {
	for _, test := range []struct {
		code   int
		config ConsumerConfig
	}{
		{0, ConsumerConfig{DeliverSubject: "inbox", DeliverGroup: "g", RateLimit: 1, FlowControl: true, Heartbeat: time.Second}},
		{0, ConsumerConfig{DeliverSubject: "inbox", MaxWaiting: -1, AckPolicy: ackNone}},
		{10079, ConsumerConfig{DeliverSubject: "a.*"}},
		{10079, ConsumerConfig{DeliverSubject: ">"}},
		{10112, ConsumerConfig{DeliverSubject: "a..b"}},
		{10112, ConsumerConfig{DeliverSubject: "a b"}},
		{10112, ConsumerConfig{DeliverSubject: strings.Repeat("a", 256)}},
		{10081, ConsumerConfig{DeliverSubject: "orders.eu"}},
		{10080, ConsumerConfig{DeliverSubject: "inbox", MaxWaiting: 1}},
		{10082, ConsumerConfig{DeliverSubject: "inbox", MaxAckPending: 1, AckPolicy: ackNone}},
		{10083, ConsumerConfig{DeliverSubject: "inbox", Heartbeat: time.Millisecond}},
		{10108, ConsumerConfig{DeliverSubject: "inbox", FlowControl: true}},
		{10012, ConsumerConfig{DeliverSubject: "inbox", DeliverGroup: strings.Repeat("a", 256)}},
		{10012, ConsumerConfig{DeliverGroup: "g"}},
	} {
		c := test.config
		c.Name = "billing"
		stream := ordersStream(t, ConsumerLimits{})
		stream.Subjects = []string{"orders.>"}
		if err := c.Normalize(stream); codeOf(err) != test.code {
			t.Errorf("%+v: %v, want %d", test.config, err, test.code)
		}
	}
}

func TestAPushConsumerStaysOne(t *testing.T) {
	made := func(change func(*ConsumerConfig)) *ConsumerConfig {
		c := ConsumerConfig{Name: "c", Durable: "c"}
		change(&c)
		if err := c.Normalize(ordersStream(t, ConsumerLimits{})); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	pull := made(func(*ConsumerConfig) {})
	push := made(func(c *ConsumerConfig) { c.DeliverSubject, c.Heartbeat = "inbox", time.Second })
	for _, test := range []struct {
		from, to *ConsumerConfig
		why      string // empty: permitted
	}{
		{pull, push, "heart beats can not be updated"},
		{pull, made(func(c *ConsumerConfig) { c.DeliverSubject = "inbox" }), "can not update pull consumer to push based"},
		{made(func(c *ConsumerConfig) { c.DeliverSubject = "inbox" }), pull, "can not update push consumer to pull based"},
		{push, made(func(c *ConsumerConfig) { c.DeliverSubject, c.Heartbeat, c.FlowControl = "inbox", time.Second, true }), "flow control can not be updated"},
		{push, made(func(c *ConsumerConfig) {
			c.DeliverSubject, c.Heartbeat, c.DeliverGroup, c.RateLimit, c.HeadersOnly = "other", time.Second, "g", 8, true
		}), ""},
	} {
		err := CheckConsumerUpdate(test.from, test.to)
		if test.why == "" && err != nil || test.why != "" && (err == nil || err.Description != test.why) {
			t.Errorf("%v, want %q", err, test.why)
		}
	}
}
