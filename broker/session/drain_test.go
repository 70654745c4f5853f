package session_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// slowly is a Taker that answers when the test lets it.
type slowly struct {
	hub   *session.Hub
	asked chan []byte
}

func (s *slowly) Take(messages []session.Message, _ bool) bool {
	for i := range messages {
		s.asked <- bytes.Clone(messages[i].Reply)
	}
	return false
}

func (s *slowly) Wait() {}

// TestWhoIsSentAwayIsAnsweredFirst: Leave closes a connection after what was read from it has been
// answered.
func TestWhoIsSentAwayIsAnsweredFirst(t *testing.T) {
	h, address := newTestHub(t, nil)
	topic := &slowly{hub: h, asked: make(chan []byte, 1)}
	h.Offer(topic).Set([]string{"orders"})
	c := dial(t, address, "")
	c.send("SUB inbox 1\r\nPUB orders inbox 3\r\none\r\n")
	reply := <-topic.asked
	left := make(chan error, 1)
	go func() { left <- h.Leave(t.Context(), 4*time.Millisecond) }()
	time.Sleep(50 * time.Millisecond) // long enough for Leave to close it
	h.Send([]session.Message{{Subject: reply, Data: []byte("kept")}})
	c.expect("MSG inbox 1 4", "kept")
	c.conn.SetReadDeadline(time.Now().Add(testutil.Patience))
	if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}
