package session_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// slowly is a Taker that answers when the test lets it.
type slowly struct {
	hub   *session.Hub
	asked chan []byte
}

func (s *slowly) Take(messages []session.Message, _ protocol.Memory, _ bool) bool {
	for i := range messages {
		s.asked <- bytes.Clone(messages[i].Reply)
	}
	return false
}

func (s *slowly) Wait() {}

// pipes is a listener whose connections are pipes, for tests on a virtual clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return (*net.TCPAddr)(nil) }

// TestLeaveAnswersBeforeItCloses: Leave closes a connection after what was read from it has been
// answered.
func TestLeaveAnswersBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		profile, err := limits.ForProfile(limits.DefaultProfile)
		testutil.Must(t, err)
		h, listener := session.NewHub(session.Config{Profile: profile, Loops: 2}), newPipes()
		served := make(chan error, 1)
		go func() { served <- h.Serve(listener) }()
		topic := &slowly{hub: h, asked: make(chan []byte, 1)}
		h.Offer(topic).Set([]string{"orders"})
		conn := listener.dial()
		c := &wire{t: t, conn: conn, in: bufio.NewReader(conn)}
		c.greet("")
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
		h.Close()
		testutil.Must(t, <-served)
	})
}
