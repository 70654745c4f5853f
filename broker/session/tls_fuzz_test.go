package session_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// FuzzFirstBytes sends anything, in two parts, to brokers with TLS. The first byte alone decides
// whether it is a handshake. Only that is answered with an alert, and only another is answered with
// lines.
func FuzzFirstBytes(f *testing.F) {
	hubs := []*tlsHub{
		newTLSHub(f, session.TLS{First: session.FirstNo}, nil),
		newTLSHub(f, session.TLS{First: session.FirstYes}, nil),
		newTLSHub(f, session.TLS{First: session.FirstAuto}, nil),
		newTLSHub(f, session.TLS{First: session.FirstNo, Optional: true}, nil),
		newTLSHub(f, session.TLS{First: session.FirstAuto, Optional: true}, nil),
	}
	f.Add([]byte("\x16\x03\x01\x00\x05hello"), 1)
	f.Add([]byte("\x16"), 0)
	f.Add([]byte("\x15\x03\x03\x00\x02\x01\x00"), 3)
	f.Add([]byte("CONNECT {}\r\nPING\r\n"), 4)
	f.Add([]byte("PUB a 3\r\n\x16\x03\x01\r\n"), 9)
	f.Fuzz(func(t *testing.T, input []byte, at int) {
		if len(input) == 0 {
			return
		}
		at = min(max(at, 0), len(input))
		for i, h := range hubs {
			conn, err := net.Dial("tcp", h.address)
			testutil.Must(t, err)
			testutil.Must(t, conn.SetDeadline(time.Now().Add(testutil.Patience)))
			_, _ = conn.Write(input[:at])
			_, _ = conn.Write(input[at:])
			_ = conn.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(conn)
			_ = conn.Close()
			if line, rest, _ := bytes.Cut(answer, []byte("\n")); bytes.HasPrefix(line, []byte("INFO {")) {
				answer = rest
			}
			alert := len(answer) > 0 && answer[0] == 0x15
			refused := bytes.Equal(answer, []byte("-ERR 'Secure Connection - TLS Required'\r\n"))
			secure, optional := input[0] == 0x16, i >= 3
			switch {
			case secure && len(answer) > 0 && !alert:
				t.Errorf("hub %d: a handshake was answered with %q", i, answer)
			case !secure && alert:
				t.Errorf("hub %d: plaintext was answered with an alert", i)
			case !secure && !optional && !refused:
				t.Errorf("hub %d: plaintext was answered with %q", i, answer)
			case refused && (secure || optional):
				t.Errorf("hub %d: refused", i)
			}
		}
	})
}
