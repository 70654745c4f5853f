package session_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/websocket"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// webHub is a hub with a port for WebSocket beside its own.
type webHub struct {
	*tlsHub
	web    string // address
	secure bool
}

// newWebHub serves WebSocket, over TLS if secure. The other port is plaintext.
func newWebHub(t testing.TB, secure bool, change func(*session.Config)) *webHub {
	t.Helper()
	h := &webHub{tlsHub: &tlsHub{t: t}, secure: secure}
	h.Hub, h.address = newTestHub(t, func(c *session.Config) {
		c.AuthWait = testutil.Patience // includes the upgrade, which a busy machine delays
		if secure {
			h.ca, h.dir = testca.New(t), t.TempDir()
			h.ca.Issue(t, h.dir)
			files, err := env.LoadServerTLS(h.dir, false)
			testutil.Must(t, err)
			c.WebSocket.TLS = files.Server()
		}
		if change != nil {
			change(c)
		}
	})
	h.web = h.listen()
	return h
}

// listen opens a port for WebSocket.
func (h *webHub) listen() string {
	h.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(h.t, err)
	var served sync.WaitGroup
	served.Go(func() {
		if err := h.ServeWebSocket(ln); err != nil {
			h.t.Errorf("serve: %v", err)
		}
	})
	h.t.Cleanup(func() {
		h.Close()
		served.Wait()
	})
	return ln.Addr().String()
}

func (h *webHub) url() string {
	if h.secure {
		return "wss://" + h.web
	}
	return "ws://" + h.web
}

func (h *webHub) mustConnectWeb(options ...nats.Option) *nats.Conn {
	h.t.Helper()
	options = append(options, nats.NoReconnect(), nats.Timeout(testutil.Patience))
	if h.secure {
		options = append(options, nats.RootCAs(caFile(h.tlsHub)))
	}
	nc, err := nats.Connect(h.url(), options...)
	testutil.Must(h.t, err)
	h.t.Cleanup(nc.Close)
	return nc
}

// open connects to the port for WebSocket, without the upgrade.
func (h *webHub) open() net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.web)
	testutil.Must(h.t, err)
	h.t.Cleanup(func() { conn.Close() })
	if !h.secure {
		return conn
	}
	secure := tls.Client(conn, h.client())
	testutil.Must(h.t, secure.Handshake())
	return secure
}

// dialWeb speaks the client protocol by hand over WebSocket.
func (h *webHub) dialWeb(options string) *wire {
	h.t.Helper()
	c := h.wireOf(upgraded(h.t, h.open()))
	c.greet(options)
	return c
}

func (h *webHub) wireOf(conn net.Conn) *wire {
	return &wire{t: h.t, conn: conn, in: bufio.NewReader(conn)}
}

const upgradeRequest = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

// webConn is the client's side of a WebSocket.
type webConn struct {
	net.Conn
	t    testing.TB
	in   *bufio.Reader
	head [10]byte
	left int  // of the current frame
	wild bool // writes fragments of any size, with control frames between

	frames int // of data that came
	pongs  []string
	status websocket.Status // of the close frame that came
	reason string
}

// upgraded upgrades a connection.
func upgraded(t testing.TB, conn net.Conn) *webConn {
	t.Helper()
	_, err := io.WriteString(conn, upgradeRequest+"\r\n")
	testutil.Must(t, err)
	c := &webConn{Conn: conn, t: t, in: bufio.NewReader(conn)}
	testutil.Must(t, conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
	answer, err := http.ReadResponse(c.in, nil)
	testutil.Must(t, err)
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("the upgrade was answered with %v", answer)
	}
	testutil.Must(t, conn.SetReadDeadline(time.Time{}))
	return c
}

// masked encodes a client's frame.
func masked(first byte, payload []byte) []byte {
	b := []byte{first, 0}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b[1] |= 0x80
	key := []byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())}
	b = append(b, key...)
	for i, x := range payload {
		b = append(b, x^key[i%4])
	}
	return b
}

// Write sends a message.
func (c *webConn) Write(p []byte) (int, error) {
	if !c.wild {
		_, err := c.Conn.Write(masked(0x82, p))
		return len(p), err
	}
	var out []byte
	first := byte(1 + rand.IntN(2))
	for rest := p; ; first = 0 {
		n := min(rand.IntN(max(len(p)/3, 4)), len(rest))
		out = append(out, masked(first, rest[:n])...)
		if rest = rest[n:]; rand.IntN(3) == 0 {
			out = append(out, masked(0x89+byte(rand.IntN(2)), []byte("between"))...)
		}
		if len(rest) == 0 {
			break
		}
	}
	out = append(out, masked(0x80, nil)...)
	for len(out) > 0 {
		n := min(1+rand.IntN(5000), len(out))
		if _, err := c.Conn.Write(out[:n]); err != nil {
			return 0, err
		}
		out = out[n:]
	}
	return len(p), nil
}

// Read returns payload. A close frame is the end.
func (c *webConn) Read(p []byte) (int, error) {
	for c.left == 0 {
		head := c.head[:2]
		if _, err := io.ReadFull(c.in, head); err != nil {
			return 0, err
		}
		n, more := int(head[1]), 0
		switch n {
		case 126:
			more = 2
		case 127:
			more = 8
		}
		if head = c.head[:2+more]; more > 0 {
			if _, err := io.ReadFull(c.in, head[2:2+more]); err != nil {
				return 0, err
			}
			n = 0
			for _, digit := range head[2 : 2+more] {
				n = n<<8 | int(digit)
			}
			if n < 126 || more == 8 && n < 1<<16 {
				c.t.Errorf("a length of %d bytes is not minimal", more)
			}
		}
		if head[1]&0x80 != 0 || n > websocket.MaxFrame {
			c.t.Errorf("a frame begins with %x", head)
		}
		if head[0] == 0x82 {
			c.left = n
			c.frames++
			continue
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(c.in, payload); err != nil {
			return 0, err
		}
		switch head[0] {
		case 0x88:
			if n >= 2 {
				c.status, c.reason = websocket.Status(binary.BigEndian.Uint16(payload)), string(payload[2:])
			}
			if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
				c.t.Errorf("%q comes after the close frame, %v", rest, err)
			}
			return 0, io.EOF
		case 0x8a:
			c.pongs = append(c.pongs, string(payload))
		default:
			c.t.Errorf("a frame begins with %x", head)
			return 0, net.ErrClosed
		}
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// TestTranscriptsOverWebSocket tells the stories of TestTranscripts over WebSocket, but for the one
// about too many connections, which an upgrade answers.
func TestTranscriptsOverWebSocket(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	testutil.Must(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if name == "max_connections" {
			continue
		}
		text, err := os.ReadFile(file)
		testutil.Must(t, err)
		script, err := parseTranscript(string(text), "carillon")
		testutil.Must(t, err)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newWebHub(t, false, withOptions(t, script.options))
			script.run(t, file, runningServer{address: h.web, web: true, lameDuck: lameDuckOf(h.Hub)})
		})
	}
}

// TestClientsOfAllKindsExchangeMessages of all sizes, over WebSocket with and without TLS, and over
// TCP.
func TestClientsOfAllKindsExchangeMessages(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, nil)
			a, b, plain := h.mustConnectWeb(), h.mustConnectWeb(nats.Compression(true)), h.mustConnect(nil)
			exchange(t, a, b, allSizes...)
			exchange(t, a, plain, allSizes...)
			exchange(t, plain, a, allSizes...)
			kinds := 0
			for _, c := range h.ConnStats() {
				if c.WebSocket {
					kinds++
				}
				if (c.TLS != nil) != (c.WebSocket && secure) {
					t.Errorf("the TLS of %+v", c)
				}
			}
			if s := h.Stats(); kinds != 2 || s.WebSockets != 2 || s.Connections != 3 || s.Upgrades[session.UpgradeDone] != 2 {
				t.Errorf("%d WebSockets, %+v", kinds, s)
			}
		})
	}
}

// TestFragmentsOfAnySize: protocol lines and payloads are cut anywhere, with control frames
// between.
func TestFragmentsOfAnySize(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, nil)
			sub := dial(t, h.address, "")
			sub.send("SUB a 1\r\n")
			sub.sync()
			conn := upgraded(t, h.open())
			conn.wild = true
			pub := h.wireOf(conn)
			pub.greet("")
			for i := range 60 {
				size := rand.IntN(1 << (i % 18))
				pub.send("PUB a %d\r\n%s\r\n", size, content(i, size))
				sub.expect(fmt.Sprintf("MSG a 1 %d", size))
				got := make([]byte, size+2)
				_, err := io.ReadFull(sub.in, got)
				testutil.Must(t, err)
				if !bytes.Equal(got[:size], content(i, size)) {
					t.Fatalf("message %d of %d bytes arrived changed", i, size)
				}
			}
			pub.sync()
			if len(conn.pongs) == 0 || slices.ContainsFunc(conn.pongs, func(p string) bool { return p != "between" }) {
				t.Errorf("the pings were answered with %q", conn.pongs)
			}
		})
	}
}

// TestByteByByte: the upgrade and frames that come byte by byte are understood.
func TestByteByByte(t *testing.T) {
	h := newWebHub(t, false, nil)
	conn := h.open()
	testutil.Must(t, conn.(*net.TCPConn).SetNoDelay(true))
	for _, b := range []byte(upgradeRequest + "\r\n") {
		_, err := conn.Write([]byte{b})
		testutil.Must(t, err)
	}
	web := &webConn{Conn: conn, t: t, in: bufio.NewReader(conn)}
	answer, err := http.ReadResponse(web.in, nil)
	if err != nil || answer.StatusCode != 101 {
		t.Fatalf("%v, %v", answer, err)
	}
	frames := masked(0x82, []byte("CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 300\r\n"))
	frames = append(frames, masked(0x01, content(1, 300))...)
	frames = append(frames, masked(0x89, []byte("?"))...)
	frames = append(frames, masked(0x80, []byte("\r\nPING\r\n"))...)
	for _, b := range frames {
		_, err := conn.Write([]byte{b})
		testutil.Must(t, err)
	}
	c := h.wireOf(web)
	c.line()
	c.expect("MSG a 1 300", string(content(1, 300)), "PONG")
	if fmt.Sprint(web.pongs) != "[?]" {
		t.Errorf("pongs %q", web.pongs)
	}
}

// TestMessagesOfOneWriteAreOneFrame: the loop puts a header before what it writes together.
func TestMessagesOfOneWriteAreOneFrame(t *testing.T) {
	h := newWebHub(t, false, nil)
	sub, pub := h.dialWeb(""), dial(t, h.address, "")
	sub.send("SUB a 1\r\n")
	sub.sync()
	web := sub.conn.(*webConn)
	before, n := web.frames, 200
	pub.send("%s", strings.Repeat("PUB a 2\r\nhi\r\n", n))
	for range n {
		sub.expect("MSG a 1 2", "hi")
	}
	if frames := web.frames - before; frames > n/10 {
		t.Errorf("%d messages came in %d frames", n, frames)
	}
}

// TestTheEndHasAStatus: whatever ends a connection, the client reads -ERR if there is one, then a
// close frame, then the end.
func TestTheEndHasAStatus(t *testing.T) {
	for _, tc := range []struct {
		name, send string // raw frames if it begins with a bit of a frame
		options    func(*session.Config)
		want       string
		status     websocket.Status
		ended      session.Reason
	}{
		{"unknown operation", "NONSENSE\r\n", nil, "-ERR 'Unknown Protocol Operation'", 1002, session.ProtocolError},
		{"payload", "PUB a 99999999\r\n", nil, "-ERR 'Maximum Payload Violation'", 1009, session.ProtocolError},
		{"control line", "PUB " + strings.Repeat("a", 5000), nil, "-ERR 'maximum control line exceeded'", 1008, session.ProtocolError},
		{"authorization", "CONNECT {\"user\":\"x\"}\r\n", func(c *session.Config) { c.Auth = login.Single{User: "me"} }, "-ERR 'Authorization Violation'", 1008, session.NotAuthorized},
		{"no CONNECT", "", func(c *session.Config) { c.Auth, c.AuthWait = login.Single{User: "me"}, time.Second }, "-ERR 'Authentication Timeout'", 1008, session.AuthTimedOut},
		{"stale", "", func(c *session.Config) { c.Ping = 20 * time.Millisecond }, "PING|PING|-ERR 'Stale Connection'", 1001, session.Stale},
		{"unmasked", "\x82\x04PING", nil, "", 1002, session.ProtocolError},
		{"reserved bit", string(masked(0xc2, []byte("PING\r\n"))), nil, "", 1002, session.ProtocolError},
		{"opcode", string(masked(0x83, nil)), nil, "", 1002, session.ProtocolError},
		{"long ping", string(masked(0x89, make([]byte, 126))), nil, "", 1002, session.ProtocolError},
		{"text in the close", string(masked(0x88, []byte("\x03\xe8\xff"))), nil, "", 1007, session.ProtocolError},
		{"answers first", string(masked(0x82, []byte("PING\r\n"))) + string(masked(0x83, nil)), nil, "PONG", 1002, session.ProtocolError},
		{"the client closes", string(masked(0x88, []byte("\x03\xe8bye"))), nil, "", 1000, session.ClientClosed},
		{"without a status", string(masked(0x88, nil)), nil, "", 0, session.ClientClosed},
		{"after its last message", string(masked(0x82, []byte("PING\r\n"))) + string(masked(0x88, []byte("\x0f\xa0"))) + string(masked(0x82, []byte("PING\r\n"))), nil, "PONG", 4000, session.ClientClosed},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, secure=%v", tc.name, secure), func(t *testing.T) {
				t.Parallel()
				h := newWebHub(t, secure, tc.options)
				web := upgraded(t, h.open())
				c := h.wireOf(web)
				c.line()
				if len(tc.send) > 0 && tc.send[0] >= 0x80 {
					_, err := io.WriteString(web.Conn, tc.send)
					testutil.Must(t, err)
				} else if tc.send != "" {
					c.send("%s", tc.send)
				}
				if tc.want != "" {
					c.expect(strings.Split(tc.want, "|")...)
				}
				testutil.Must(t, web.SetReadDeadline(time.Now().Add(testutil.Patience)))
				if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
					t.Errorf("then %q, %v", rest, err)
				}
				if web.status != tc.status {
					t.Errorf("closed with %d %s", web.status, web.reason)
				}
				web.Close()
				h.await("its end", func(s session.Stats) bool { return s.Ended[tc.ended] == 1 })
			})
		}
	}
}

// TestUpgradesThatAreRefused: the client reads why, and the connection ends.
func TestUpgradesThatAreRefused(t *testing.T) {
	allowed, err := websocket.ParseOrigins([]string{websocket.SameOrigin})
	testutil.Must(t, err)
	for _, tc := range []struct {
		name, send string
		status     int
		outcome    session.Outcome
	}{
		{"a page", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 426, session.UpgradeRefused},
		{"a POST", "POST / HTTP/1.1\r\nHost: h\r\n\r\n", 405, session.UpgradeRefused},
		{"another's page", upgradeRequest + "Origin: https://evil.example.com\r\n\r\n", 403, session.UpgradeRefused},
		{"too long", upgradeRequest + "Cookie: " + strings.Repeat("x", websocket.MaxHead) + "\r\n\r\n", 431, session.UpgradeRefused},
		{"endless", "GET /" + strings.Repeat("x", 100_000), 431, session.UpgradeRefused},
		{"impatient", upgradeRequest + "\r\n" + string(masked(0x82, []byte("PING\r\n"))), 400, session.UpgradeRefused},
		{"too late", "GET /", 408, session.UpgradeTimeout},
		{"silent", "", 408, session.UpgradeTimeout},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, session.UpgradeRefused},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, secure=%v", tc.name, secure), func(t *testing.T) {
				t.Parallel()
				h := newWebHub(t, secure, func(c *session.Config) {
					c.WebSocket.Origins = allowed
					if tc.status == 408 {
						c.AuthWait = 100 * time.Millisecond
					}
				})
				conn := h.open()
				_, err := io.WriteString(conn, tc.send)
				testutil.Must(t, err)
				testutil.Must(t, conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
				in := bufio.NewReader(conn)
				answer, err := http.ReadResponse(in, nil)
				if err != nil || answer.StatusCode != tc.status {
					t.Fatalf("answered with %v, %v", answer, err)
				}
				_, err = io.ReadAll(answer.Body)
				testutil.Must(t, err)
				if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
					t.Errorf("then %q, %v", rest, err)
				}
				conn.Close()
				h.await("its end", func(s session.Stats) bool {
					return s.Upgrades[tc.outcome] == 1 && s.Ended[session.NotUpgraded] == 1
				})
			})
		}
	}
}

func TestTheLongestUpgradeIsServed(t *testing.T) {
	h := newWebHub(t, false, nil)
	conn := h.open()
	text := upgradeRequest + "Cookie: "
	text += strings.Repeat("x", websocket.MaxHead-len(text)-4) + "\r\n\r\n"
	for len(text) > 0 {
		n := min(1+rand.IntN(3000), len(text))
		_, err := io.WriteString(conn, text[:n])
		testutil.Must(t, err)
		text = text[n:]
	}
	if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != 101 {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestPlaintextOnAPortWithTLS is told so.
func TestPlaintextOnAPortWithTLS(t *testing.T) {
	h := newWebHub(t, true, nil)
	conn, err := net.Dial("tcp", h.web)
	testutil.Must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, upgradeRequest+"\r\n")
	testutil.Must(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != 400 {
		t.Errorf("%v, %v", answer, err)
	}
	conn.Close()
	h.await("its end", func(s session.Stats) bool {
		return s.Handshakes[session.HandshakePlaintext] == 1 && s.Ended[session.TLSHandshake] == 1
	})
}

func TestOneWebSocketTooMany(t *testing.T) {
	h := newWebHub(t, false, func(c *session.Config) { c.Profile.Connections = 1 })
	h.dialWeb("")
	conn := h.open()
	if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != 503 {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestTheINFOOfWebSocketClients is about the port for WebSocket, as nats-server's is.
func TestTheINFOOfWebSocketClients(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, func(c *session.Config) {
				c.Advertise, c.WebSocket.Advertise = "tcp.example.com:4222", "web.example.com:9222"
			})
			h.SetURLs([]string{"other:4222"}, []string{"other:9222"})
			info := h.wireOf(upgraded(t, h.open())).line()
			want := []string{`"host":"web.example.com"`, `"port":9222`, `"connect_urls":["web.example.com:9222","other:9222"]`}
			for _, text := range want {
				if !strings.Contains(info, text) {
					t.Errorf("%s is not in %s", text, info)
				}
			}
			if strings.Contains(info, "ws_connect_urls") || strings.Contains(info, `"tls_required":true`) != secure {
				t.Errorf("INFO is %s", info)
			}
			plain := dialTranscript(t, runningServer{address: h.address})
			testutil.Must(t, plain.expectInfo(`{"host":"tcp.example.com","connect_urls":["tcp.example.com:4222","other:4222"],"ws_connect_urls":null,"tls_required":null}`))
		})
	}
}

// TestASlowWebSocketIsCutOffAtItsBound: what it does not read is counted and bounded, and all
// counts return to zero. Others get everything.
func TestASlowWebSocketIsCutOffAtItsBound(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, func(c *session.Config) { c.Profile.Pending = 1 << 20 })
			idle, good, pub := h.dialWeb(""), h.dialWeb(""), h.dialWeb("")
			for _, c := range []*wire{idle, good} {
				c.send("SUB a 1\r\n")
				c.sync()
			}
			const n, size = 3000, 8 << 10
			body := strings.Repeat("x", size)
			for range n {
				pub.send("PUB a %d\r\n%s\r\n", size, body)
				good.expect(fmt.Sprintf("MSG a 1 %d", size), body)
			}
			h.await("the slow client's end", func(s session.Stats) bool {
				return s.Ended[session.SlowPending] == 1 && s.PendingBytes == 0 && s.Parked == 0
			})
		})
	}
}

// TestAWebSocketThatReadsLateGetsEverything: a client falls far behind and catches up, several
// times, and pings meanwhile. Its frames change between the loop and the writer goroutine.
func TestAWebSocketThatReadsLateGetsEverything(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, nil)
			late, pub := h.dialWeb(""), h.dialWeb("")
			late.send("SUB a 1\r\n")
			late.sync()
			web := late.conn.(*webConn)
			for round := range 3 {
				sizes := make([]int, 200)
				for i := range sizes {
					sizes[i] = rand.IntN(100_000)
				}
				sizes[7], sizes[99] = 1<<20, 8<<20
				for i, size := range sizes {
					pub.send("PUB a %d\r\n%s\r\n", size, content(i, size))
					if i%20 == 0 {
						_, err := web.Conn.Write(masked(0x89, nil))
						testutil.Must(t, err)
					}
				}
				pub.sync()
				if h.Stats().Parked == 0 {
					t.Errorf("round %d: the client is not behind", round)
				}
				for i, size := range sizes {
					late.expect(fmt.Sprintf("MSG a 1 %d", size))
					got := make([]byte, size+2)
					_, err := io.ReadFull(late.in, got)
					testutil.Must(t, err)
					if !bytes.Equal(got[:size], content(i, size)) {
						t.Fatalf("round %d: message %d of %d bytes arrived changed", round, i, size)
					}
				}
				late.sync()
				h.await("an empty outbox", func(s session.Stats) bool { return s.Parked == 0 && s.PendingBytes == 0 })
			}
			if len(web.pongs) == 0 {
				t.Error("no ping was answered")
			}
		})
	}
}

// TestAClientThatPingsAndReadsNothingIsASlowOne: its pongs are bounded.
func TestAClientThatPingsAndReadsNothingIsASlowOne(t *testing.T) {
	h := newWebHub(t, false, func(c *session.Config) { c.Profile.Pending = 64 << 10 })
	conn := h.dialWeb("").conn.(*webConn).Conn
	pings := bytes.Repeat(masked(0x89, make([]byte, 125)), 4)
	testutil.Must(t, conn.SetWriteDeadline(time.Now().Add(testutil.Patience)))
	for {
		if _, err := conn.Write(pings); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it is not cut off")
			}
			break
		}
	}
	h.await("its end", func(s session.Stats) bool { return s.Ended[session.SlowPending] == 1 && s.PendingBytes == 0 })
}

// TestAWebSocketSeesTheEndOfALeavingBroker: so does one that publishes meanwhile.
func TestAWebSocketSeesTheEndOfALeavingBroker(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			h := newWebHub(t, secure, nil)
			clients := []*wire{h.dialWeb(""), h.dialWeb(`,"protocol":1`)}
			half := h.open() // no request
			h.await("three connections", func(s session.Stats) bool { return s.Connections == 3 })
			var all sync.WaitGroup
			for _, c := range clients {
				all.Go(func() {
					testutil.Must(t, c.conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
					if _, err := io.Copy(io.Discard, c.in); err != nil {
						t.Errorf("a client sees %v", err)
					}
					_ = c.conn.Close()
				})
			}
			testutil.Must(t, h.Leave(t.Context(), 0))
			all.Wait()
			half.Close()
			for _, c := range clients {
				if web := c.conn.(*webConn); web.status != websocket.GoingAway {
					t.Errorf("closed with %d", web.status)
				}
			}
			if s := h.Stats(); s.Ended[session.LameDuck] != 3 {
				t.Errorf("ended %v", s.Ended)
			}
		})
	}
}

// TestAnIdleWebSocketIsSmall bounds the memory of a connection that waits for messages, also after
// large ones.
func TestAnIdleWebSocketIsSmall(t *testing.T) {
	measure := func(connect func()) int { return memoryPer(400, connect) }
	h := newWebHub(t, false, nil)
	// The clients of this process keep their sockets only.
	plain := measure(func() { dial(t, h.address, "") })
	web := measure(func() { h.dialWeb("") })
	used := measure(func() {
		c := h.dialWeb("")
		c.send("PUB a 40000\r\n%s\r\n", content(1, 40_000))
		c.sync()
	})
	t.Logf("bytes per idle connection: %d plaintext, %d WebSocket, %d after large messages", plain, web, used)
	// The client of this process has a reader more: 4 KiB.
	if most := plain + 6<<10; web > most || used > most {
		t.Errorf("a WebSocket takes %d bytes, %d after large messages, and a plaintext connection %d", web, used, plain)
	}
}
