package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAFloodOfOneClientLeavesRoomForOthers: one client fills the pool of calls that wait. A call of
// another client is taken, and the newest one of the flood is refused in its place.
func TestAFloodOfOneClientLeavesRoomForOthers(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	store := &stuck{w, make(chan struct{})}
	n.config.Store = store
	n.timeouts.answer = patience // a call that is over leaves its place
	n.pace.unbounded()
	said := 0
	say := func(client uint64) (inbox string) {
		said++
		inbox = fmt.Sprintf("_INBOX.%d.%d", client, said)
		n.TakeOf(client, []protocol.Message{{
			Subject: []byte("$JS.API.STREAM.CREATE.s"), Reply: []byte(inbox), Data: []byte(`{"name":"s"}`),
		}}, nil, nil)
		return inbox
	}
	overloaded := func(inbox string) bool {
		answers := w.received(inbox)
		return len(answers) == 1 && strings.Contains(string(answers[0].Data), fmt.Sprint(jsapi.ErrInsufficientResources.ErrCode))
	}
	var flood []string
	for n := 0; ; n++ {
		inbox := say(1)
		if overloaded(inbox) {
			break
		}
		if flood = append(flood, inbox); n > slowAtOnce+slowWaiting {
			t.Fatal("the flood exceeds the pool")
		}
	}
	if len(flood) >= slowAtOnce+slowWaiting {
		t.Error("the flood has all places")
	}
	for client := uint64(100); n.slow.Dropped() == 0; client++ { // some take the places that it leaves
		if client >= 100+slowAtOnce {
			t.Fatal("others don't get in")
		}
		say(client)
	}
	flood = flood[:len(flood)-1]
	other := say(2)
	if len(w.received(other)) > 0 {
		t.Errorf("the call of another client was answered: %s", w.received(other)[0].Data)
	}
	if !overloaded(flood[len(flood)-1]) || len(w.received(flood[len(flood)-2])) > 0 {
		t.Error("the newest call of the flood was not refused for it")
	}
	if dropped := n.slow.Dropped(); dropped != 2 || n.Stats().Overloaded != 3 {
		t.Errorf("%d calls were dropped, %d refused", dropped, n.Stats().Overloaded)
	}
}

// TestForwardedCallsNameTheirClient: the leader tells the clients of another broker apart, and no
// client can take another's name.
func TestForwardedCallsNameTheirClient(t *testing.T) {
	w := newWorld(t, 2)
	n := w.nodes[0]
	n.config.Account = func(client uint64) string { return []string{"", "user a/b c", "user a/b c", "user d"}[client] }
	keyOf := func(client uint64, header string) work.Client {
		m := n.from(client, &protocol.Message{Subject: []byte("$JS.API.INFO"), Header: len(header), Data: []byte(header + "{}")})
		c := newCall(m, true, n.timeouts.answer)
		if string(c.payload) != "{}" {
			t.Errorf("the payload became %q", c.payload)
		}
		if strings.Contains(header, "Other") {
			if value, _ := c.header.Get("Other"); string(value) != "x" {
				t.Errorf("the other header became %q", value)
			}
		}
		return c.by
	}
	one, two := keyOf(1, ""), keyOf(2, "")
	if one == two || one == brokers || two == brokers || one.User != two.User || keyOf(3, "").User == one.User {
		t.Errorf("clients 1 and 2 are %d and %d", one, two)
	}
	if user := identity.ClientOf("user a/b c", 1).User; one.User != user {
		t.Errorf("the user is %d on its own broker, and %d on another", user, one.User)
	}
	forged := "NATS/1.0\r\nCarillon-Client: broker-0/2\r\nOther: x\r\n\r\n"
	if keyOf(1, forged) != one {
		t.Error("client 1 has taken another's place")
	}
	if local := newCall(&protocol.Message{Subject: []byte("$JS.API.INFO"), Header: len(forged), Data: []byte(forged)}, false, 0); local.by == two {
		t.Error("the header of a client of this broker is believed")
	}
}

// TestNoClientForgesItsNameToTheNextLeader: a call that the leader handed on, since it had stopped
// leading, names the client that made the call, and not the one in the client's header. A call that
// another broker forwarded keeps the name that the other broker wrote.
func TestNoClientForgesItsNameToTheNextLeader(t *testing.T) {
	w := newWorld(t, 2)
	w.place = func(string) string { return "broker-0" }
	if made := ask[jsapi.StreamResponse](w.nodes[0], "STREAM.CREATE.s", `{"name":"s"}`); made.Error != nil {
		t.Fatal(made.Error)
	}
	n := w.nodes[0]
	n.config.Account = func(uint64) string { return "user d" }
	w.set(func() { w.lead(w.topics["s"], 0, "broker-1") })
	shard := n.topics.Shard("s")
	testutil.EventuallyTrue(t, "broker-0 stops leading", func() bool { return shard.Led() == nil && shard.Leader() == "broker-1" })
	names := make(chan string, 16)
	n.mu.Lock()
	n.hands = func(m *protocol.Message) {
		header, _ := protocol.SplitData(m.Data, m.Header)
		name, _ := header.Get("Carillon-Client")
		names <- string(name)
	}
	n.mu.Unlock()
	header := "NATS/1.0\r\nCarillon-Client: broker-9/7 user+ann\r\n\r\n"
	for forwarded, want := range map[bool]string{false: "broker-0/5 user+d", true: "broker-9/7 user+ann"} {
		c := newCall(&protocol.Message{
			Subject: []byte(jsapi.APIPrefix + "CONSUMER.INFO.s.c"), Reply: []byte("_INBOX.next"), Header: len(header), Data: []byte(header),
		}, forwarded, n.timeouts.answer)
		if !forwarded {
			c.client = 5
		}
		n.refuseConsumer(c, shard, consumerOffline(nil))
		select {
		case name := <-names:
			if name != want {
				t.Errorf("forwarded %v: the client is %q to the next leader, want %q", forwarded, name, want)
			}
		case <-time.After(testutil.Patience):
			t.Fatal("the call is not handed on")
		}
	}
}

// TestNoClientForgesItsNameForSeveralShards: the creation of a consumer of a Topic with several
// shards is forwarded to the leader of the first one, with the name of the client that asks.
func TestNoClientForgesItsNameForSeveralShards(t *testing.T) {
	w := newWorld(t, 2)
	w.wide(2, 0, 0)
	forged := "NATS/1.0\r\nCarillon-Client: broker-9/9\r\n\r\n"
	create := forged + `{"stream_name":"orders","config":{"durable_name":"d","ack_policy":"explicit"}}`
	names := make(chan string, 16)
	for i, n := range w.nodes {
		n.mu.Lock()
		n.hands = func(m *protocol.Message) {
			if header, _ := protocol.SplitData(m.Data, m.Header); strings.Contains(string(m.Subject), "CONSUMER.CREATE") {
				name, _ := header.Get("Carillon-Client")
				names <- string(name)
			}
		}
		n.mu.Unlock()
		inbox := fmt.Sprint("_INBOX.create.", i)
		n.TakeOf(5, []protocol.Message{{
			Subject: []byte("$JS.API.CONSUMER.CREATE.orders.d"), Reply: []byte(inbox), Header: len(forged), Data: []byte(create),
		}}, nil, nil)
		w.await(inbox)
	}
	if name := <-names; !strings.HasSuffix(name, "/5") {
		t.Errorf("client 5 is %q to the leader", name)
	}
}
