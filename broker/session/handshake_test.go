package session

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestInputThatCameInTimeIsReadLate: a broker that was too busy to look in time does not take it
// for the client's silence.
func TestInputThatCameInTimeIsReadLate(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	testutil.Must(t, err)
	defer client.Close()
	nc, err := ln.Accept()
	testutil.Must(t, err)
	defer nc.Close()
	c := &Conn{nc: nc}
	_, err = client.Write([]byte("x"))
	testutil.Must(t, err)
	testutil.Must(t, nc.SetReadDeadline(time.Now().Add(-time.Second)))
	if n, err := c.readInTime(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	testutil.Must(t, nc.SetReadDeadline(time.Now().Add(-time.Second)))
	if n, err := c.readInTime(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes of nothing, %v", n, err)
	}
}
