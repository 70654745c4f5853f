package session_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// declarers record what messages declare. Each text but "same" waits for the test.
type declarers struct {
	mu      sync.Mutex
	asked   []string
	waiting chan chan *session.Refusal
	setting func() // is called by each that sets something
}

type declarer struct {
	of     *declarers
	client uint64
}

func (d *declarer) Declare(subject, text []byte, bound bool) (set func() <-chan *session.Refusal, refusal *session.Refusal) {
	d.of.mu.Lock()
	d.of.asked = append(d.of.asked, fmt.Sprintf("%s %s %v", subject, text, bound))
	d.of.mu.Unlock()
	switch string(text) {
	case "same":
		return nil, nil
	case "wrong":
		return nil, &session.Refusal{Code: 400, Text: "it's wrong", Answer: func([]byte) []byte { return []byte(`{"error":{}}`) }}
	}
	none := string(text) == "none" // to wait for
	return func() <-chan *session.Refusal {
		if d.of.setting != nil {
			d.of.setting()
		}
		if none {
			return nil
		}
		outcome := make(chan *session.Refusal, 1)
		d.of.waiting <- outcome
		return outcome
	}, nil
}

func (d *declarers) all() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.asked, ", ")
}

func newDeclarers(h *session.Hub) *declarers {
	d := &declarers{waiting: make(chan chan *session.Refusal, 100)}
	h.Declaring(func(client uint64) session.Declarer { return &declarer{d, client} })
	return d
}

// hpub is an operation that publishes a message with headers. reply is empty or ends with a blank.
func hpub(subject, reply, payload string, headers ...string) string {
	block := "NATS/1.0\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
	return fmt.Sprintf("HPUB %s %s%d %d\r\n%s%s\r\n", subject, reply, len(block), len(block)+len(payload), block, payload)
}

// message reads a message, and returns its payload, with headers.
func (c *wire) message() (subject, data string) {
	c.t.Helper()
	line := strings.Fields(c.line())
	if len(line) < 4 || !strings.HasSuffix(line[0], "MSG") {
		c.t.Fatalf("got %q, want a message", line)
	}
	var n int
	if _, err := fmt.Sscan(line[len(line)-1], &n); err != nil {
		c.t.Fatal(err)
	}
	for len(data) < n+2 {
		data += c.raw()
	}
	return line[1], strings.TrimSuffix(data, "\r\n")
}

// raw reads up to the next line break, and with it.
func (c *wire) raw() string {
	c.t.Helper()
	text, err := c.in.ReadString('\n')
	testutil.Must(c.t, err)
	return text
}

// TestAMessageWaitsForWhatItDeclares: what its client publishes before goes on, and what it
// publishes later waits, too. Other clients wait for nothing.
func TestAMessageWaitsForWhatItDeclares(t *testing.T) {
	h, address := newTestHub(t, nil)
	d := newDeclarers(h)
	reader, publisher, other := dial(t, address, ""), dial(t, address, ""), dial(t, address, "")
	reader.send("SUB > 1\r\n")
	reader.sync()
	// One is larger than an operation that needs no claim of room.
	large := strings.Repeat("x", 100<<10)
	publisher.send("PUB s 1\r\n1\r\n%s%sPUB s 1\r\n4\r\nPING\r\n",
		hpub("s", "", "2"+large, "Carillon-Attributes: new"), hpub("s", "", "3", "Other: x", "Carillon-Attributes: newer", "Carillon-Attributes-Bound: False"))
	next := func(want string) {
		t.Helper()
		if _, got := reader.message(); !strings.Contains(got, want) {
			t.Fatalf("got %.100q, want %.100q", got, want)
		}
	}
	next("1")
	made := <-d.waiting
	other.send("PUB s 5\r\nother\r\n%s", hpub("s", "", "same", "Carillon-Attributes: same"))
	next("other")
	next("Carillon-Attributes: same\r\n\r\nsame")
	made <- nil
	next("2" + large)
	made = <-d.waiting
	other.send("PUB s 5\r\nagain\r\n")
	next("again")
	made <- nil
	next("\r\n\r\n3")
	next("4")
	if got := publisher.line(); got != "PONG" {
		t.Errorf("got %q", got)
	}
	if got, want := d.all(), "s new true, s same true, s newer false"; got != want {
		t.Errorf("declared were %s, want %s", got, want)
	}
}

// TestSettingHoldsNoLock: it may send messages, such as the refusal of another client's request,
// while others subscribe. What its client has published before has been sent then.
func TestSettingHoldsNoLock(t *testing.T) {
	h, address := newTestHub(t, nil)
	d := newDeclarers(h)
	publisher, other := dial(t, address, ""), dial(t, address, "")
	other.send("SUB > 1\r\n")
	other.sync()
	set := make(chan struct{})
	d.setting = func() {
		defer close(set)
		if _, got := other.message(); got != "1" {
			t.Errorf("got %q", got)
		}
		other.send("SUB refusal 2\r\n")
		other.sync()
		h.Send([]session.Message{{Subject: []byte("refusal"), Data: []byte("no")}})
	}
	publisher.send("PUB s 1\r\n1\r\n%s", hpub("s", "", "2", "Carillon-Attributes: none"))
	<-set
	for _, want := range []string{"no", "no", "2"} {
		if _, got := other.message(); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// TestAMessageWithoutItsAttributesIsRefused: it goes nowhere. Its publisher is told on its reply
// subject, or by an -ERR after which clients stay connected.
func TestAMessageWithoutItsAttributesIsRefused(t *testing.T) {
	h, address := newTestHub(t, nil)
	d := newDeclarers(h)
	c := dial(t, address, "")
	c.send("SUB s 1\r\nSUB _INBOX.x 2\r\n")
	c.sync()
	c.send("%s%s", hpub("s", "", "a", "Carillon-Attributes: wrong"), hpub("s", "_INBOX.x ", "b", "Carillon-Attributes: wrong"))
	if got, want := c.line(), `-ERR 'Permissions Violation for Publish to "s": it’s wrong'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if to, got := c.message(); to != "_INBOX.x" || got != "NATS/1.0\r\nNats-Service-Error-Code: 400\r\nNats-Service-Error: it's wrong\r\n\r\n"+`{"error":{}}` {
		t.Errorf("got %q on %s", got, to)
	}
	c.send("%sPUB s 1\r\nd\r\n", hpub("s", "", "c", "Carillon-Attributes: late"))
	made := <-d.waiting
	made <- &session.Refusal{Text: "too many"}
	if got := c.line(); !strings.HasSuffix(got, `"s": too many'`) {
		t.Errorf("got %s", got)
	}
	if _, got := c.message(); got != "d" {
		t.Errorf("got %q", got)
	}
}

// TestWhatMayNotBePublishedDeclaresNothing: nor do answers, and messages that only ask for a trace.
func TestWhatMayNotBePublishedDeclaresNothing(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann", Permissions: may(deny("denied"), nil)})
	d := newDeclarers(h.Hub)
	c := h.dial("ann")
	c.send("%s", hpub("s", "", "", "Nats-Trace-Dest: denied", "Carillon-Attributes: same"))
	if got := c.line(); got != `-ERR 'Permissions Violation for Publish to "denied"'` {
		t.Errorf("got %s", got)
	}
	c.send("%s%s%s%s", hpub("denied", "", "a", "Carillon-Attributes: same"), hpub("_INBOX.x", "", "", "Carillon-Attributes: same"),
		hpub("$other", "", "", "Carillon-Attributes: same"), hpub("s", "", "", "Nats-Trace-Dest: t", "Nats-Trace-Only: true", "Carillon-Attributes: same"))
	if got := c.line(); got != `-ERR 'Permissions Violation for Publish to "denied"'` {
		t.Errorf("got %s", got)
	}
	// A right that is lost while the attributes are set refuses the message, and no later one.
	c.send("%sPUB t 1\r\n1\r\n", hpub("s", "", "", "Carillon-Attributes: new"))
	made := <-d.waiting
	h.change(identity.User{Name: "ann", Permissions: may(deny("s"), nil)})
	made <- &session.Refusal{Text: "no"}
	if got := c.line(); got != `-ERR 'Permissions Violation for Publish to "s"'` {
		t.Errorf("got %s", got)
	}
	c.send("SUB t 1\r\nPUB t 1\r\n2\r\n")
	if _, got := c.message(); got != "2" {
		t.Errorf("got %q", got)
	}
	if got := d.all(); got != "s new true" {
		t.Errorf("declared were %s", got)
	}
}

// TestAHubClosesWhileAMessageWaits: nobody answers any more, and the connection ends.
func TestAHubClosesWhileAMessageWaits(t *testing.T) {
	h, address := newTestHub(t, nil)
	d := newDeclarers(h)
	c := dial(t, address, "")
	c.send("%s", hpub("s", "", "", "Carillon-Attributes: new"))
	<-d.waiting
	h.Close()
}
