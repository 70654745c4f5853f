package session_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// FuzzWebSocket sends anything after an upgrade, in two parts. Whatever it is, the answer is whole
// frames, and a close frame is the last one.
func FuzzWebSocket(f *testing.F) {
	h := newWebHub(f, false, nil)
	connect := masked(0x82, []byte("CONNECT {\"verbose\":false}\r\n"))
	f.Add(append(connect, masked(0x82, []byte("SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"))...), 40)
	f.Add(append(masked(0x02, []byte("CONN")), append(masked(0x89, []byte("?")), masked(0x80, []byte("ECT {}\r\nPING\r\n"))...)...), 7)
	f.Add(append(connect, masked(0x88, []byte("\x03\xe8bye"))...), 3)
	f.Add(append(connect, masked(0xc2, []byte("PING\r\n"))...), 0)
	f.Add(append(connect, masked(0x82, []byte("PUB a 99999999\r\n"))...), 1)
	f.Add([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'P', 'I', 'N', 'G', '\r', '\n'}, 12)
	f.Fuzz(func(t *testing.T, input []byte, at int) {
		at = min(max(at, 0), len(input))
		conn, err := net.Dial("tcp", h.web)
		testutil.Must(t, err)
		defer conn.Close()
		testutil.Must(t, conn.SetDeadline(time.Now().Add(testutil.Patience)))
		_, err = io.WriteString(conn, upgradeRequest+"\r\n")
		testutil.Must(t, err)
		c := &webConn{Conn: conn, t: t, in: bufio.NewReader(conn)}
		answer, err := http.ReadResponse(c.in, nil)
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", answer, err)
		}
		_, _ = conn.Write(input[:at])
		_, _ = conn.Write(input[at:])
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, c); err == io.ErrUnexpectedEOF || c.left > 0 {
			t.Errorf("the answer ends within a frame: %v, %d bytes are left", err, c.left)
		}
	})
}
