//go:build !race

package subscription

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestDeliveringAllocatesNothing(t *testing.T) {
	for name, opts := range map[string]log.Options{"memory": {}, "disk": {TailBytes: 1}} {
		for kind, spec := range map[string]coordination.SubscriptionSpec{
			"all": earliest(), "some": filtered("orders.1", "orders.3"), "condition": where(`subject == "orders.1" || subject == "orders.3"`), "equality": where(`subject in ["orders.1", "orders.3"]`), "all or dead letters": buried(),
		} {
			w, sink := full(t, 170_000, opts) // half of them pass the filter, enough for all series
			w.service.config.DeadLetters = &morgue{}
			w.declare("billing", 1, spec)
			sink.sub = w.find("billing")
			sink.run(20_000)
			got := testutil.LeastAllocs(10, 10, func() { sink.run(1000) })
			if got > 10 { // per thousand deliveries and acks, with their ops in the state log
				t.Errorf("from %s, %s: %.1f allocations per 1000 records delivered and acknowledged", name, kind, got)
			}
			got = testutil.LeastAllocs(1000, 0, func() { sink.run(1) })
			if got >= 1 {
				t.Errorf("from %s, %s: %.1f allocations per record pulled alone", name, kind, got)
			}
		}
	}
}

// TestPushingAllocatesNothing: delivering to a subject allocates as little, with flow control.
func TestPushingAllocatesNothing(t *testing.T) {
	w, sink := full(t, 170_000, log.Options{})
	sink.idle.Store(true)
	w.declare("billing", 1, pushing(func(s *coordination.SubscriptionSpec) {
		s.Consumer.FlowControl, s.Consumer.IdleHeartbeat, s.Consumer.RateLimit = true, time.Second, 1<<40
	}))
	sink.sub = w.find("billing")
	sink.push(20_000)
	if got := testutil.LeastAllocs(10, 10, func() { sink.push(1000) }); got > 10 {
		t.Errorf("%.1f allocations per 1000 records pushed and acknowledged", got)
	}
}

// TestIdleSubscriptionsAreCheap: 10,000 idle Subscriptions share the workers' goroutines and take
// little memory, and those that push to a subject without a subscriber hardly more.
func TestIdleSubscriptionsAreCheap(t *testing.T) {
	testIdle(t, earliest(), 1500)
	testIdle(t, pushing(nil), 2500)
}

func testIdle(t *testing.T, spec coordination.SubscriptionSpec, most int64) {
	w, sink := full(t, 1, log.Options{})
	sink.idle.Store(true)
	const n = 10_000
	for i := range n {
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: fmt.Sprintf("s%d", i), Made: int64(i + 1), Spec: &spec})
	}
	goroutines := runtime.NumGoroutine()
	before, after := runtime.MemStats{}, runtime.MemStats{}
	collect()
	runtime.ReadMemStats(&before)
	w.follow()
	for i := range n {
		w.find(fmt.Sprintf("s%d", i))
	}
	collect()
	runtime.ReadMemStats(&after)
	if more := runtime.NumGoroutine() - goroutines; more > max(2, runtime.GOMAXPROCS(0)) {
		t.Errorf("%d goroutines more", more)
	}
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; each > most {
		t.Errorf("each takes %d bytes", each)
	}
}

// collect frees also what pools keep, which takes two collections.
func collect() {
	runtime.GC()
	runtime.GC()
}
