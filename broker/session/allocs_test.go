//go:build !race

package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestDeliveryAllocatesNothing has no race build: under the race detector sync.Pool drops items at
// random.
func TestDeliveryAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name                        string
		subscribers, messages, size int
		newCircle                   func(testing.TB, int, int, int) *circle
	}{
		{"plaintext", 1, 1000, 128, newCircle}, {"plaintext", 50, 100, 128, newCircle}, {"plaintext", 1, 50, 32 << 10, newCircle},
		{"user", 1, 1000, 128, newUserCircle(identity.Limits{})},
		{"user with limits", 1, 1000, 128, newUserCircle(identity.Limits{Messages: 1 << 40, Bytes: 1 << 50})},
		{"TLS", 1, 1000, 128, newTLSCircle}, {"TLS", 50, 100, 128, newTLSCircle},
		{"WebSocket", 1, 1000, 128, newWebCircle}, {"WebSocket", 50, 100, 128, newWebCircle}, {"WebSocket", 1, 50, 32 << 10, newWebCircle},
		{"WebSocket over TLS", 1, 1000, 128, newSecureWebCircle},
	} {
		t.Run(fmt.Sprintf("%s, %d subscribers, %d bytes", tc.name, tc.subscribers, tc.size), func(t *testing.T) {
			c := tc.newCircle(t, tc.subscribers, tc.messages, tc.size)
			for range 5 {
				c.round(t)
			}
			perRound := testutil.LeastAllocs(20, 0.05*float64(tc.messages*tc.subscribers), func() { c.round(t) })
			if per := perRound / float64(tc.messages*tc.subscribers); per > 0.05 {
				t.Errorf("%.3f allocations per delivery", per)
			}
		})
	}
}

func TestSendingAllocatesNothing(t *testing.T) {
	h, address := newTestHub(t, nil)
	c := dial(t, address, "")
	c.send("SUB a 1\r\n")
	c.sync()
	messages := []session.Message{{Subject: []byte("a"), Data: make([]byte, 100)}, {Subject: []byte("a"), Data: make([]byte, 100)}}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.conn.Read(buf); err != nil {
				return
			}
		}
	}()
	_ = c.conn.SetDeadline(time.Now().Add(10 * testutil.Patience))
	if n := testutil.LeastAllocs(2000, 0.5, func() { h.Send(messages) }); n > 0.5 {
		t.Errorf("%v allocations for two messages", n)
	}
}
