package jetstream

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// unbounded ends the rate, for tests of what is behind it.
func (p *pace) unbounded() { p.buckets = work.NewBuckets(1<<30, 1, 0, 2) }

// TestNoClientKeepsEtcdBusy: a client deletes streams as fast as it can. Its burst is served at
// once, some calls wait their turn, and all others are refused. A client that came meanwhile does
// not notice. What waited is served at the rate.
func TestNoClientKeepsEtcdBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, rate = 20, 10
		s := NewServer(ServerConfig{Topics: new(topic.Service), Hub: &sender{quiet: true}, Account: func(client uint64) string { return fmt.Sprint(client) }})
		defer s.stop()
		s.pace.buckets = work.NewBuckets(burst, rate, time.Second, 100)
		var taken [3]atomic.Int64 // by client
		refusals := 0
		s.pace.take = func(c *pacedCall) { taken[c.client].Add(1) }
		s.running.Go(s.pace.run)
		call := func(client uint64, name string, bytes int) {
			m := &protocol.Message{Subject: []byte(jsapi.APIPrefix + name), Data: []byte(strings.Repeat(" ", bytes))}
			r, _ := jsapi.ParseSubject(m.Subject)
			before := s.pace.refused.Load()
			if s.pace.passes(client, r, m) {
				taken[client].Add(1)
			}
			refusals += int(s.pace.refused.Load() - before)
		}
		for range 100 {
			call(1, "STREAM.DELETE.orders", 0)
		}
		if taken[1].Load() != burst || refusals != 100-burst-rate {
			t.Errorf("%d calls were served at once, %d refused", taken[1].Load(), refusals)
		}
		call(2, "STREAM.CREATE.orders", 100)
		if taken[2].Load() != 1 {
			t.Error("another client had to wait")
		}
		call(1, "STREAM.INFO.orders", 0)
		call(1, "CONSUMER.CREATE.orders", 1000)
		call(1, "CONSUMER.DELETE.orders.unknown", 0)
		if taken[1].Load() != burst+3 {
			t.Error("calls that don't write to etcd had to wait")
		}
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := taken[1].Load() - burst - 3; n != rate/2 {
			t.Errorf("%d calls were served within half a second", n)
		}
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := taken[1].Load() - burst - 3; n != rate || s.pace.paced.Load() != rate {
			t.Errorf("%d calls were served within a second, %d waited", n, s.pace.paced.Load())
		}
		// Large settings count for more: after an hour this is the whole burst.
		time.Sleep(time.Hour)
		before := taken[1].Load()
		call(1, "STREAM.UPDATE.orders", 19*paceBytes)
		call(1, "STREAM.UPDATE.orders", 0)
		if taken[1].Load() != before+1 {
			t.Errorf("%d calls of large settings were served", taken[1].Load()-before)
		}
		s.stop()
		s.running.Wait()
	})
}

// TestConsumersThatAreInEtcdCount: a client that creates, changes and deletes durable consumers, by
// whichever request, or any consumers of a Topic with several shards, has a rate. One that does so
// with others has none.
func TestConsumersThatAreInEtcdCount(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 0)
	of := func(call, payload string) float64 {
		t.Helper()
		m := &protocol.Message{Subject: []byte(jsapi.APIPrefix + call), Data: []byte(payload)}
		r, ok := jsapi.ParseSubject(m.Subject)
		if !ok {
			t.Fatalf("%s is no call", call)
		}
		return n.pace.of(&r, m)
	}
	for _, test := range []struct {
		call, payload string
		want          float64
	}{
		{"CONSUMER.DURABLE.CREATE.orders.x", "", paceConsumer},
		{"CONSUMER.CREATE.orders.x", `{"stream_name":"orders","config":{"durable_name":"x"}}`, paceConsumer},
		{"CONSUMER.CREATE.orders.x", `{"config":{"Durable\u005fName":"x"}}`, paceConsumer},
		{"CONSUMER.CREATE.orders.x.orders.eu", `{"config":{"durable_name":"x"},"unknown":` + strings.Repeat(" ", paceBytes) + `1}`, paceConsumer + 1},
		{"CONSUMER.CREATE.orders.x", `{"stream_name":"orders","config":{"name":"x"}}`, 0},
		{"CONSUMER.CREATE.orders.billing", `{"action":"update","config":{"name":"billing"}}`, paceConsumer},
		{"CONSUMER.CREATE.orders", `{"action":"update","config":{"name":"billing"}}`, paceConsumer},
		{"CONSUMER.DELETE.orders.billing", "", paceConsumer},
		{"CONSUMER.PAUSE.orders.billing", "{}", paceConsumer},
		{"CONSUMER.DELETE.orders.none", "", 0},
		{"CONSUMER.INFO.orders.billing", "", 0},
	} {
		if got := of(test.call, test.payload); got != test.want {
			t.Errorf("%s %.40s takes %v", test.call, test.payload, got)
		}
	}
	sharded := newWorld(t, 1)
	n = sharded.nodes[0]
	sharded.wide(2, 0, 0)
	if got := of("CONSUMER.CREATE.orders.x", `{"stream_name":"orders","config":{"name":"x"}}`); got != paceConsumer {
		t.Errorf("a consumer of several shards takes %v", got)
	}
}
