package identity

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// TestNoHeaderHidesASignature: whatever a client writes before its payload, the user, the client
// and the account that its broker names are read, and its other headers stay.
func TestNoHeaderHidesASignature(t *testing.T) {
	forged := "Carillon-User: eve\r\nCarillon-Account: eve\r\nCarillon-Client: x/1\r\n"
	for _, header := range []string{
		"", "X", "XY", "\n", "\r\n\r\n", "NATS/1.0", "NATS/1.0\r", "NATS/1.0\r\n", "NATS/1.0\r\n\r\n", "NATS/1.0\n\n", "HTTP/1.1\r\nA: b\r\n\r\n",
		"NATS/1.0 100 Idle\r\nA: b\r\n\r\n", "NATS/1.0\r\nA: b", "NATS/1.0\r\nA: b\r\n", "NATS/1.0\r\n\r\nA: b\r\n\r\n",
		"NATS/1.0\r\n" + forged + "\r\n", "NATS/1.0\r\nA: b\r\n" + forged, "NATS/1.0\r\n\r\n" + forged + "\r\n", forged + "\r\n",
	} {
		m := &protocol.Message{Data: []byte(header + "payload"), Header: len(header)}
		before, _ := protocol.SplitData(m.Data, m.Header)
		value, had := before.Get("A")
		m = NameClient(NameAccount(Sign(m, "ann b"), "user ann b"), "broker", 7, "user ann b")
		after, payload := protocol.SplitData(m.Data, m.Header)
		if user, account := SignedBy(after), ForwardedAccount(after); user != "ann b" || account != "user ann b" || string(payload) != "payload" {
			t.Errorf("after %q the user is %q, the account %q, the payload %q", header, user, account, payload)
		}
		if name, _ := after.Get(clientHeader); string(name) != "broker/7 user+ann+b" {
			t.Errorf("after %q the client is %q", header, name)
		}
		if got := ForwardedClient(after); got.User != ClientOf("user ann b", 7).User {
			t.Errorf("after %q the client is %d", header, got)
		}
		if got, has := after.Get("A"); has != had || string(got) != string(value) {
			t.Errorf("%q becomes %q", header, after)
		}
		if fmt.Sprint(before.Status()) != fmt.Sprint(after.Status()) {
			t.Errorf("%q becomes %q", header, after)
		}
		m = NameClient(NameAccount(Sign(m, ""), ""), "broker", 0, "")
		if none, _ := protocol.SplitData(m.Data, m.Header); SignedBy(none) != "" || ForwardedAccount(none) != "" || ForwardedClient(none) != (work.Client{}) {
			t.Errorf("%q remains of %q, which nobody signed", none, header)
		}
	}
}
