package jetstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// leads makes a broker the leader of the stream orders, under the next epoch.
func (w *world) leads(leader string) {
	w.set(func() { w.lead(w.topics["orders"], 0, leader) })
}

// unled creates a stream that no broker leads yet, with a durable consumer.
func unled(t *testing.T, w *world) {
	t.Helper()
	config := jsapi.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, AllowDirect: true}
	if err := config.Normalize(); err != nil {
		t.Fatal(err)
	}
	w.place = func(string) string { return "" }
	_, err := w.CreateTopic(t.Context(), "orders", config.TopicSpec(), client)
	testutil.Must(t, err)
	spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}}
	_, err = w.CreateSubscription(t.Context(), "orders", "billing", spec, client)
	testutil.Must(t, err)
}

// TestRequestsWaitForALeader: pulls, acks and calls that come while a stream has no leader are
// answered by the next one, on whichever broker they came.
func TestRequestsWaitForALeader(t *testing.T) {
	w := newWorld(t, 2)
	for _, n := range w.nodes {
		n.timeouts.open = patience
		n.timeouts.answer = patience
	}
	unled(t, w)
	var pulls, calls, acks []string
	for _, n := range w.nodes {
		pulls = append(pulls, n.say(nextCall, ""))
		acks = append(acks, n.say("$JS.ACK.orders.billing.1.9.9.1.1", "+WPI"))
		calls = append(calls, n.say("$JS.API.CONSUMER.INFO.orders.billing", ""), n.say("$JS.API.STREAM.INFO.orders", ""),
			n.say("$JS.API.DIRECT.GET.orders.orders.eu", ""), n.say("$JS.API.CONSUMER.CREATE.orders.reader", `{"stream_name":"orders","config":{"name":"reader"}}`))
	}
	for _, inbox := range slices.Concat(pulls, calls, acks) {
		if got := w.received(inbox); len(got) > 0 {
			t.Errorf("%s has an answer without a leader: %q", inbox, got[0].Data)
		}
	}
	leader := w.nodes[1]
	w.leads(leader.id)
	for _, inbox := range calls {
		if m := w.await(inbox); strings.Contains(string(m.Data), `"error":`) || strings.HasPrefix(string(m.Data), "NATS/1.0 503") {
			t.Errorf("a call was answered with %q", m.Data)
		}
	}
	for i := range pulls {
		w.await(leader.say("orders.eu", fmt.Sprint(i)))
	}
	for _, inbox := range pulls {
		if m := w.await(inbox); string(m.Subject) != "orders.eu" {
			t.Errorf("a pull was answered with %q", m.Data)
		}
	}
	for _, inbox := range acks { // nothing was delivered to acknowledge, which is no reason for a 503
		if got := w.received(inbox); len(got) > 0 {
			t.Errorf("an ack of nothing was answered with %q", got[0].Data)
		}
	}
}

// TestWaitingForALeaderIsBounded: in time, in number and in bytes.
func TestWaitingForALeaderIsBounded(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	unled(t, w)
	n.timeouts.open = 100 * time.Millisecond
	if m := w.await(n.say(nextCall, "")); string(m.Data) != "NATS/1.0 503\r\n\r\n" {
		t.Errorf("without a leader a pull got %q", m.Data)
	}
	room := newWaitingRoom(n.Server) // nobody takes messages from this one
	m := protocol.Message{Subject: []byte(nextCall), Data: make([]byte, 100)}
	kept := 0
	for room.add(&m, puller{}) {
		kept++
	}
	if kept != waitingMessages {
		t.Errorf("%d messages wait, and %d may", kept, waitingMessages)
	}
	room = newWaitingRoom(n.Server) // the bytes that wait are bounded, too
	m.Data = make([]byte, 1<<20)
	for kept = 0; room.add(&m, puller{}); {
		kept++
	}
	if kept != waitingBytes>>20-1 {
		t.Errorf("%d messages of 1 MiB wait in %d bytes", kept, waitingBytes)
	}
}

// TestUsersShareWhatWaitsForALeader: the messages of one client fill the room. Those of another
// connection, of another user and of another broker find room, in place of the flood's newest
// ones, which are refused.
func TestUsersShareWhatWaitsForALeader(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.config.Account = func(client uint64) string { return fmt.Sprintf("user %d", client/10) }
	n.timeouts.open = patience
	unled(t, w)
	room := newWaitingRoom(n.Server) // nobody takes messages from this one
	pull := func(inbox, header string) *protocol.Message {
		return &protocol.Message{Subject: []byte(nextCall), Reply: []byte(inbox), Header: len(header), Data: []byte(header)}
	}
	for range waitingMessages {
		if !room.add(pull("_INBOX.flood", ""), puller{client: 11, pulls: true}) {
			t.Fatal("a message was refused, and there is room")
		}
	}
	account := "NATS/1.0\r\nCarillon-Account: user+3\r\n\r\n"
	others := map[string]puller{"_INBOX.same": {client: 12, pulls: true}, "_INBOX.other": {client: 21, pulls: true}, "_INBOX.far": {forwarded: true, pulls: true}, "_INBOX.ack": {forwarded: true}}
	for inbox, by := range others {
		header := ""
		if inbox == "_INBOX.far" {
			header = account
		}
		if !room.add(pull(inbox, header), by) {
			t.Errorf("there is no room for %s", inbox)
		}
	}
	if room.add(pull("_INBOX.flood", ""), puller{client: 11, pulls: true}) {
		t.Error("there is more room for the flood")
	}
	if got := room.clientOf(pull("", account), puller{forwarded: true, pulls: true}).User; got != identity.ClientOf("user 3", 0).User {
		t.Errorf("a forwarded pull counts for %d", got)
	}
	if !room.takeAgain() || len(room.messages) != waitingMessages || room.places.Len() != waitingMessages {
		t.Errorf("%d messages wait, in %d places", len(room.messages), room.places.Len())
	}
	if got := len(w.received("_INBOX.flood")); got != len(others) {
		t.Errorf("%d messages of the flood were refused", got)
	}
	for inbox := range others {
		if got := w.received(inbox); len(got) > 0 {
			t.Errorf("%s was refused: %q", inbox, got[0].Data)
		}
	}
	n.timeouts.open = 0 // they wait no longer
	if room.takeAgain() || room.places.Len() > 0 {
		t.Errorf("%d messages wait, in %d places", len(room.messages), room.places.Len())
	}
}

// TestAReaderGoesOnUnderTheNextLeader: a consumer without a durable name is where it was, and a
// deleted one is gone.
func TestAReaderGoesOnUnderTheNextLeader(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	orders(t, w, n, 6)
	for _, name := range []string{"reader", "gone"} {
		made := ask[jsapi.ConsumerResponse](n, "CONSUMER.CREATE.orders."+name, fmt.Sprintf(`{"stream_name":"orders","config":{"name":%q,"ack_policy":"explicit","description":"reads"}}`, name))
		if made.Error != nil {
			t.Fatal(made.Error)
		}
	}
	for i := range 3 {
		m := w.await(n.say("$JS.API.CONSUMER.MSG.NEXT.orders.reader", ""))
		if string(m.Data) != fmt.Sprint(i+1) {
			t.Fatalf("pull %d got %q", i+1, m.Data)
		}
		w.await(n.say(string(m.Reply), "+ACK"))
	}
	if done := ask[jsapi.DoneResponse](n, "CONSUMER.DELETE.orders.gone", ""); !done.Success {
		t.Fatal(done.Error)
	}
	w.leads(n.id)
	is := ask[jsapi.ConsumerResponse](n, "CONSUMER.INFO.orders.reader", "")
	if is.Error != nil || is.AckFloor.Stream != 3 || is.Delivered.Consumer != 3 || is.NumPending != 3 || is.Config.Description != "reads" {
		t.Fatalf("under the next leader it is %+v, %v", is.ConsumerInfo, is.Error)
	}
	if m := w.await(n.say("$JS.API.CONSUMER.MSG.NEXT.orders.reader", "")); string(m.Data) != "4" {
		t.Errorf("the next message is %q", m.Data)
	}
	expect(t, "the deleted one", n, "CONSUMER.INFO.orders.gone", "", jsapi.ErrConsumerNotFound.ErrCode)
}

// TestPullsOfADeadLeaderEnd: whoever pulled from it through another broker learns it at once, and
// nobody else does.
func TestPullsOfADeadLeaderEnd(t *testing.T) {
	w := newWorld(t, 3)
	leader, other := w.nodes[1], w.nodes[0]
	orders(t, w, leader, 0)
	gone := other.say(nextCall, "")
	w.inboxMu.Lock()
	w.deserted = map[string]bool{gone: true}
	w.inboxMu.Unlock()
	waits, own := other.say(nextCall, ""), leader.say(nextCall, "")
	w.set(func() {
		w.dead = map[string]bool{w.nodes[2].id: true} // another one dies before
		w.tell(coordination.Changes{Brokers: true})
		w.dead = map[string]bool{leader.id: true}
		w.tell(coordination.Changes{Brokers: true})
	})
	if m := w.await(waits); string(m.Data) != "NATS/1.0 409 Leadership Change\r\n\r\n" {
		t.Errorf("a pull from a dead leader ended with %q", m.Data)
	}
	for _, inbox := range []string{gone, own} {
		if got := w.received(inbox); len(got) > 0 {
			t.Errorf("%s got %q", inbox, got[0].Data)
		}
	}
	if got := w.received(waits); len(got) != 1 {
		t.Errorf("a pull ended %d times", len(got))
	}
}

// TestPullsOfALeaderThatRegistersEnd: a leader that was killed and is started again has its links
// before all brokers know its registration. Pulls that it gets then are remembered, too.
func TestPullsOfALeaderThatRegistersEnd(t *testing.T) {
	w := newWorld(t, 2)
	leader, other := w.nodes[1], w.nodes[0]
	orders(t, w, leader, 0)
	registers := func(yes bool) {
		w.set(func() {
			w.dead = map[string]bool{leader.id: !yes}
			w.tell(coordination.Changes{Brokers: true})
		})
	}
	before := other.pulled.life(leader.id)
	registers(false)
	inbox := other.say(nextCall, "")
	registers(true)
	if m := w.await(inbox); string(m.Data) != "NATS/1.0 409 Leadership Change\r\n\r\n" {
		t.Errorf("a pull from a leader without a registration ended with %q", m.Data)
	}
	// The leader may die between the forwarding and the note, and its pulls end before that.
	inbox = other.say(nextCall, "")
	registers(false)
	w.await(inbox)
	other.pulled.note(before, []byte("_INBOX.late"))
	if m := w.await("_INBOX.late"); string(m.Data) != "NATS/1.0 409 Leadership Change\r\n\r\n" {
		t.Errorf("a pull from a leader that died meanwhile ended with %q", m.Data)
	}
}

// TestAPullForwardedToAFormerLeaderEnds: a broker with an older State forwards a pull to the former
// leader. The client gets 409 Leadership Change and pulls again. With 503 No Responders it would
// wait.
func TestAPullForwardedToAFormerLeaderEnds(t *testing.T) {
	w := newWorld(t, 2)
	former := w.nodes[0]
	orders(t, w, former, 0)
	w.leads(w.nodes[1].id)
	pull := protocol.Message{Subject: []byte(nextCall), Reply: []byte("_INBOX.stray")}
	if former.takeOfConsumer(&pull, puller{forwarded: true}, time.Now()) { // the other broker's State may be the newer one
		t.Error("a forwarded pull did not wait")
	}
	former.Take([]protocol.Message{pull}, nil, true)
	if m := w.await("_INBOX.stray"); string(m.Data) != "NATS/1.0 409 Leadership Change\r\n\r\n" {
		t.Errorf("a pull that was forwarded to a former leader ended with %q", m.Data)
	}
	if n := former.Stats().Forwarded; n != 0 {
		t.Errorf("%d messages were forwarded again", n)
	}
}

// TestForwardedPullsAreBounded: in number, and in time by periods.
func TestForwardedPullsAreBounded(t *testing.T) {
	w := newWorld(t, 2)
	n := w.nodes[0]
	for i := range 3*forwardedInboxes + 5 {
		n.pulled.note(n.pulled.life(w.nodes[1].id), fmt.Append(nil, i))
		n.pulled.note(n.pulled.life(w.nodes[1].id), fmt.Append(nil, i)) // the same again
	}
	w.set(func() { w.dead = map[string]bool{w.nodes[1].id: true} })
	n.pulled.mu.Lock()
	kept := n.pulled.n
	for _, inboxes := range n.pulled.before {
		kept += len(inboxes)
	}
	n.pulled.mu.Unlock()
	if kept != forwardedInboxes+5 {
		t.Errorf("%d inboxes are kept, want %d", kept, forwardedInboxes+5)
	}
	n.pulled.rotated = n.pulled.rotated.Add(-2 * forwardedFor)
	n.pulled.note(n.pulled.life(w.nodes[1].id), []byte("another period"))
	if n.pulled.n != 1 {
		t.Errorf("%d inboxes are in a new period", n.pulled.n)
	}
}
