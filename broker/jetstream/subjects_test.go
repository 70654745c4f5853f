package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestGetsDoNotWaitForCounts: while as many calls count as may, and all others that may count wait,
// messages are read. Infos of streams go without what would be counted.
func TestGetsDoNotWaitForCounts(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.orders", `{"name":"orders","subjects":["orders.>"],"allow_direct":true}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	w.publish("orders.a", "x")
	begun, over := make(chan struct{}), make(chan struct{})
	counting := func() { begun <- struct{}{}; <-over }
	for range countsAtOnce {
		n.infos.Submit(brokers, asked{do: func() { n.count(t.Context(), counting) }}, 0)
	}
	for range countsAtOnce {
		<-begun
	}
	if info := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", ""); info.Error != nil || info.State.Messages != 1 {
		t.Errorf("info: %+v", info)
	}
	expect(t, "subjects", n, "STREAM.INFO.orders", `{"subjects_filter":">"}`, jsapi.ErrInsufficientResources.ErrCode)
	for user := range uint64(infosAtOnce - countsAtOnce) {
		n.infos.Submit(work.Client{User: 1 + user}, asked{do: counting}, 0)
		<-begun
	}
	waits := n.say("$JS.API.STREAM.INFO.orders", "")
	if m := w.await(n.say("$JS.API.DIRECT.GET.orders.orders.a", "")); string(m.Data[m.Header:]) != "x" {
		t.Errorf("a direct get is answered with %q", m.Data)
	}
	if got := len(w.received(waits)); got > 0 {
		t.Error("the pool of infos has room: the test shows nothing")
	}
	close(over)
	w.await(waits)
}

// TestPagesOfSubjectsAreBounded: a page of subjects has a bounded number of bytes, and the next one
// goes on where it ends.
func TestPagesOfSubjectsAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	if made := ask[jsapi.StreamResponse](n, "STREAM.CREATE.orders", `{"name":"orders","subjects":["orders.>"]}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	const all, size = 1200, 4000
	for i := range all {
		w.publish(fmt.Sprintf("orders.%0*d", size, i), "")
	}
	seen := map[string]bool{}
	pages := 0
	for late := time.Now().Add(testutil.Patience); len(seen) < all; {
		page := ask[jsapi.StreamInfoResponse](n, "STREAM.INFO.orders", fmt.Sprintf(`{"subjects_filter":">","offset":%d}`, len(seen)))
		if page.Error != nil && strings.Contains(page.Error.Description, " being ") && time.Now().Before(late) {
			continue // a busy machine has not indexed the subjects yet
		}
		if page.Error != nil {
			t.Fatalf("page %d from %d on: %+v", pages, len(seen), page.Error)
		}
		if page.Total != all || page.Offset != len(seen) || len(page.State.Subjects) == 0 {
			t.Fatalf("page %d from %d on: %d of %d subjects", pages, len(seen), len(page.State.Subjects), page.Total)
		}
		pages++
		bytes := 0
		for of, records := range page.State.Subjects {
			if seen[of] || records != 1 {
				t.Fatalf("%s has %d messages, seen %v", of, records, seen[of])
			}
			seen[of] = true
			bytes += len(of)
		}
		if bytes > listBytes {
			t.Fatalf("a page has %d bytes", bytes)
		}
	}
	if pages != 2 {
		t.Errorf("there are %d pages", pages)
	}
}
