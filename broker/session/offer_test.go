package session_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
)

// recordingTaker is a Taker that records what it received, a line per call.
type recordingTaker struct {
	mu    sync.Mutex
	took  []string
	waits int
	full  bool
}

func (k *recordingTaker) Take(messages []session.Message, _ protocol.Memory, forwarded bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	var line []string
	for _, m := range messages {
		line = append(line, fmt.Sprintf("%s=%s>%s", m.Subject, m.Data, m.Reply))
	}
	if forwarded {
		line = append(line, "forwarded")
	}
	k.took = append(k.took, strings.Join(line, " "))
	return k.full
}

func (k *recordingTaker) Wait() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits++
}

func (k *recordingTaker) has(t *testing.T, want ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.took, want) {
		t.Errorf("took %q, want %q", k.took, want)
	}
}

// sentLink is a link that records what was forwarded to it.
type sentLink struct {
	mu   sync.Mutex
	sent []string
}

func (l *sentLink) Forward(m *session.Message, reach session.Reach) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, fmt.Sprintf("%s|%s=%s plain=%v keep=%v %v", m.To, m.Subject, m.Data, reach.Plain, reach.Keep, reach.Queues))
	return false
}
func (l *sentLink) Wait()                     {}
func (l *sentLink) Announce(session.Interest) {}

func (l *sentLink) has(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.sent, want) {
		t.Errorf("forwarded %q, want %q", l.sent, want)
	}
}

// TestATakerGetsTheMessagesOfItsSubjects: the messages of one read reach a Taker in one call,
// besides the subscribers, and a request that it takes gets no no-responders notice.
func TestATakerGetsTheMessagesOfItsSubjects(t *testing.T) {
	h, address := newTestHub(t, nil)
	orders, other := &recordingTaker{full: true}, &recordingTaker{}
	o := h.Offer(orders)
	o.Set([]string{"orders", "orders.>"})
	h.Offer(other).Set([]string{"other.*"})
	c := dial(t, address, "")
	c.send("SUB orders.a 1\r\nSUB _INBOX.* 2\r\n")
	c.send("PUB orders.a 1\r\nx\r\nPUB orders _INBOX.1 1\r\ny\r\nPUB other.b 1\r\nz\r\nPUB orders.a.b 0\r\n\r\n")
	if got := c.line(); got != "MSG orders.a 1 1" {
		t.Errorf("the subscriber got %q", got)
	}
	c.line()
	c.sync()
	orders.has(t, "orders.a=x> orders=y>_INBOX.1 orders.a.b=>")
	other.has(t, "other.b=z>")
	if orders.waits != 1 || other.waits != 0 {
		t.Errorf("the publisher waited %d times for a full Taker, %d times for another", orders.waits, other.waits)
	}

	// Set changes the subjects in one step. A pattern that is no longer offered has no receiver.
	o.Set([]string{"orders.>", "more"})
	c.send("PUB orders _INBOX.2 1\r\ny\r\nPUB more 1\r\nm\r\n")
	if got := c.line(); !strings.HasPrefix(got, "HMSG _INBOX.2 2 ") {
		t.Errorf("a request that nobody serves was answered by %q", got)
	}
	for c.line() != "" { // skip the header block
	}
	c.line()
	c.sync()
	orders.has(t, "orders.a=x> orders=y>_INBOX.1 orders.a.b=>", "more=m>")
	o.Close()
	c.send("PUB more 1\r\nm\r\n")
	c.sync()
	orders.has(t, "orders.a=x> orders=y>_INBOX.1 orders.a.b=>", "more=m>")
}

// TestThePublishersBrokerPassesMessagesToItsTaker: the publisher's broker passes each message to
// its Taker. Messages from a link reach a Taker only if they are meant for Takers.
func TestThePublishersBrokerPassesMessagesToItsTaker(t *testing.T) {
	h, address := newTestHub(t, nil)
	orders := &recordingTaker{}
	h.Offer(orders).Set([]string{"orders"})
	c := dial(t, address, "")

	link := &sentLink{}
	peer, interest := h.Attach(link, "b2")
	if len(interest) != 0 {
		t.Errorf("an offer is announced as interest: %v", interest)
	}
	c.send("PUB orders 1\r\n2\r\n")
	c.sync()
	peer.SetInterest(session.Interest{Pattern: "orders", Count: 1})
	c.send("PUB orders 1\r\n3\r\n")
	c.sync()
	orders.has(t, "orders=2>", "orders=3>")
	link.has(t, "|orders=3 plain=true keep=false []")

	// Messages from a link are not forwarded again, and reach Takers only with Keep.
	peer.Deliver(&session.Message{Subject: []byte("orders"), Data: []byte("4")}, session.Reach{Plain: true})
	peer.Deliver(&session.Message{Subject: []byte("orders"), Data: []byte("5")}, session.Reach{Keep: true})
	peer.Flush()
	orders.has(t, "orders=2>", "orders=3>", "orders=5> forwarded")
	linked, _ := h.Forward("b2", &session.Message{Subject: []byte("ask"), Data: []byte("?")})
	if other, _ := h.Forward("b3", &session.Message{Subject: []byte("ask")}); !linked || other {
		t.Error("Forward says wrongly whether there is a link")
	}
	peer.Detach()
	c.send("PUB orders 1\r\n6\r\n")
	c.sync()
	orders.has(t, "orders=2>", "orders=3>", "orders=5> forwarded", "orders=6>")
	link.has(t, "|orders=3 plain=true keep=false []", "|ask=? plain=false keep=true []")
}

// TestTheBrokersOwnMessagesReachNoTaker: the broker's own messages are routed by To, show Subject,
// and reach no Taker.
func TestTheBrokersOwnMessagesReachNoTaker(t *testing.T) {
	h, address := newTestHub(t, nil)
	all := &recordingTaker{}
	h.Offer(all).Set([]string{">"})
	c := dial(t, address, "")
	c.send("SUB _INBOX.me.* 7\r\n")
	c.sync()
	if !h.Interested([]byte("_INBOX.me.1")) || h.Interested([]byte("_INBOX.you.1")) {
		t.Error("Interested is wrong")
	}
	h.Send([]session.Message{
		{To: []byte("_INBOX.me.1"), Subject: []byte("orders"), Reply: []byte("ack"), Data: []byte("one")},
		{Subject: []byte("_INBOX.me.2"), Data: []byte("two")},
		{Subject: []byte("_INBOX.you.2"), Data: []byte("three")},
	})
	for _, want := range []string{"MSG orders 7 ack 3", "one", "MSG _INBOX.me.2 7 3", "two"} {
		if got := c.line(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// What is sent soon comes without another Send, and in order with it.
	for i := range 100 {
		h.SendSoon([]session.Message{{Subject: []byte("_INBOX.me.soon"), Data: []byte(strconv.Itoa(i))}})
	}
	for i := range 100 {
		if got := c.line(); !strings.HasPrefix(got, "MSG _INBOX.me.soon 7 ") {
			t.Fatalf("got %q", got)
		}
		if got := c.line(); got != strconv.Itoa(i) {
			t.Errorf("got message %q, want %d", got, i)
		}
	}
	link := &sentLink{}
	peer, _ := h.Attach(link, "b2")
	peer.SetInterest(session.Interest{Pattern: "_INBOX.you.>", Count: 1})
	if !h.Interested([]byte("_INBOX.you.1")) {
		t.Error("the interest of another broker does not count")
	}
	h.Send([]session.Message{{To: []byte("_INBOX.you.2"), Subject: []byte("orders"), Data: []byte("four")}})
	link.has(t, "_INBOX.you.2|orders=four plain=true keep=false []")
	all.has(t)
}
