package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// ownAccounts has each client work on an account of its own.
func ownAccounts(client uint64) string { return fmt.Sprint("user ", client) }

// TestOneClientsReadsLeaveRoomForOthers: one client has the goroutines that it may have, and the
// whole queue. Another one's requests are served at once, or taken in place of the flood's newest
// and served before the flood's.
func TestOneClientsReadsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.server.Accounts(ownAccounts)
		n.publish("one")
		slow, next := make(chan struct{}), make(chan struct{})
		goOn, serveThem := sync.OnceFunc(func() { close(slow) }), sync.OnceFunc(func() { close(next) })
		t.Cleanup(func() { goOn(); serveThem() })
		n.mu.Lock()
		n.slow = slow
		n.mu.Unlock()
		for client := range uint64(readsAtOnce) { // as many users as there are goroutines
			reply := n.askAs(client+10, ordersSubject, "", false)
			n.await("an answer to "+reply, func() bool { return len(n.answers[reply]) > 0 })
		}
		var flood []string
		for range readsQueued {
			flood = append(flood, n.askAs(1, ordersSubject, "", false))
		}
		if got := n.refusal(n.askAs(1, ordersSubject, "", false)); got.Code != Busy || !strings.Contains(got.Text, "1024 wait") {
			t.Errorf("the flood exceeds the queue: %+v", got)
		}
		other := n.askAs(2, ordersSubject, "", false)
		if got := n.refusal(flood[len(flood)-1]); got.Code != Busy {
			t.Errorf("%+v", got)
		}
		if n.answered(other) {
			t.Error("the other client was refused")
		}
		if got := n.server.Stats().Overloaded; got != 2 {
			t.Errorf("%d requests were refused", got)
		}
		// Each goroutine takes its next request, and serves none yet.
		var taken []string
		n.server.reads.mu.Lock()
		serve := n.server.reads.serve
		n.server.reads.serve = func(w *worker, r *read) {
			n.set(func() { taken = append(taken, string(r.reply)) })
			<-next
			serve(w, r)
		}
		n.server.reads.mu.Unlock()
		goOn()
		synctest.Wait()
		n.set(func() {
			if !slices.Contains(taken, other) {
				t.Errorf("the other client waits behind %d requests of the flood", len(taken))
			}
		})
		serveThem()
		n.await("the other client's answer", func() bool { return len(n.answers[other]) > 0 })
	})
}

// TestOneClientsReadsLeaveGoroutinesToOthers: one client has more requests than there are
// goroutines, none of which ends. Another connection of its user is served, and so is another user.
func TestOneClientsReadsLeaveGoroutinesToOthers(t *testing.T) {
	n := startNode(t, nil)
	n.server.Accounts(func(client uint64) string { return fmt.Sprintf("user %d", client/10) })
	n.publish("one")
	slow := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(slow) }))
	n.mu.Lock()
	n.slow = slow
	n.mu.Unlock()
	for range 2 * readsAtOnce {
		n.askAs(11, ordersSubject, "", false)
	}
	for _, client := range []uint64{12, 21} {
		reply := n.askAs(client, ordersSubject, "", false)
		n.await("an answer to "+reply, func() bool { return len(n.answers[reply]) > 0 })
	}
}

// TestOneClientsWaitingReadsLeaveRoomForOthers: one client has as many requests wait for records as
// may. Another one's waits, too, in place of the newest one.
func TestOneClientsWaitingReadsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		ask := func(client uint64) string {
			reply := n.askAs(client, ordersSubject, `{"offset":1,"wait_ms":30000}`, false)
			synctest.Wait()
			return reply
		}
		var flood []string
		for range readsPolling {
			flood = append(flood, ask(1))
		}
		n.waiting(readsPolling)
		if got := n.refusal(ask(1)); got.Code != Busy || !strings.Contains(got.Text, "4096 requests wait") {
			t.Errorf("%+v", got)
		}
		other := ask(2)
		if got := n.refusal(flood[len(flood)-1]); got.Code != Busy {
			t.Errorf("%+v", got)
		}
		n.waiting(readsPolling)
		n.publish("one")
		synctest.Wait()
		for _, reply := range []string{other, flood[0]} {
			if got, _ := n.records(reply); len(got) != 1 {
				t.Errorf("%s was answered %q", reply, got)
			}
		}
		n.waiting(0)
	})
}

// TestOneClientsSnapshotsLeaveRoomForOthers: one account may hold half of what a broker holds, a
// second one a third, and releases make room. An account on another broker is told apart, and no
// client can take another's name.
func TestOneClientsSnapshotsLeaveRoomForOthers(t *testing.T) {
	p := startPair(t, 2, nil)
	p.publish(2)
	for _, n := range []*node{p.a, p.b} {
		n.server.Accounts(func(client uint64) string { return fmt.Sprintf("10.0.0.%d", client) })
	}
	hold := func(n *node, client uint64, id, more string) *Error {
		t.Helper()
		header := "NATS/1.0\r\nCarillon-Account: 10.0.0.9\r\n\r\n"
		reply := fmt.Sprintf("_INBOX.%s.%d", id, client)
		n.server.TakeOf(client, []protocol.Message{{
			Subject: []byte(SnapshotSubject + "orders.0"), Reply: []byte(reply), Header: len(header),
			Data: fmt.Appendf([]byte(header), `{"id":"%s-%d"%s}`, id, client, more),
		}}, nil, &work.Behind{})
		to := p.a
		if !to.answered(reply) { // the leader answers forwarded requests, or their broker
			to = n
		}
		var got SnapshotAnswer
		if err := json.Unmarshal(to.answer(reply).Data, &got); err != nil {
			t.Fatal(err)
		}
		return got.Error
	}
	fill := func(n *node, client uint64) (held int, why *Error) {
		t.Helper()
		for {
			if why = hold(n, client, fmt.Sprint(held), ""); why != nil {
				return held, why
			}
			held++
		}
	}
	held, why := fill(p.a, 1)
	if held != maxSnapshots/2 || why.Code != Busy || !strings.Contains(why.Text, "512 of them for this client") {
		t.Errorf("the first client holds %d: %v", held, why)
	}
	if held, _ = fill(p.b, 2); held != maxSnapshots/4 {
		t.Errorf("the second client holds %d", held)
	}
	if why := hold(p.b, 1, "more", ""); why == nil {
		t.Error("the first client holds more through another broker")
	}
	for i := range maxSnapshots / 2 {
		if why := hold(p.a, 1, fmt.Sprint(i), `,"release":true`); why != nil {
			t.Fatal(why)
		}
	}
	if why := hold(p.b, 2, "more", ""); why != nil {
		t.Errorf("what was released is not free: %v", why)
	}
	if n := len(p.a.server.snapshots.by); n != 1 {
		t.Errorf("%d accounts hold something", n)
	}
}

// TestForwardedRequestsNameTheirClient: the leader tells the clients of another broker apart.
func TestForwardedRequestsNameTheirClient(t *testing.T) {
	of := func(client uint64, account string) work.Client {
		m := &protocol.Message{Subject: []byte(ordersSubject), Data: []byte("{}")}
		return forwardedBy(identity.NameClient(m, "b", client, account)).by
	}
	none := work.Client{}
	one, two, other, former := of(1, "user a b"), of(2, "user a b"), of(3, "user c"), of(4, "")
	if one == two || one == none || one.User != two.User || one.User == other.User {
		t.Errorf("clients 1, 2 and 3 are %d, %d and %d", one, two, other)
	}
	if former.User != former.Connection || of(0, "") != none {
		t.Errorf("a client of an earlier version is %d, and a broker %d", former, of(0, ""))
	}
	p := startPair(t, 2, nil)
	for _, n := range []*node{p.a, p.b} {
		n.server.Accounts(func(client uint64) string { return "user ann" })
	}
	var seen []work.Client
	serve := p.a.server.reads.serve
	p.a.server.reads.serve = func(w *worker, r *read) { seen = append(seen, r.by); serve(w, r) }
	for _, client := range []uint64{1, 2, 1} {
		p.a.answer(p.b.askAs(client, RecordsSubject+"orders.0", "", false))
	}
	if len(seen) != 3 || seen[0] == seen[1] || seen[0] != seen[2] || seen[0].User != p.a.server.originOf(1).by.User || seen[0].User != seen[1].User {
		t.Errorf("the clients were %d", seen)
	}
}
