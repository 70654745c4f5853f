package session_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// tlsHub is a hub with a certificate, and what its clients need.
type tlsHub struct {
	*session.Hub
	t       testing.TB
	ca      *testca.CA
	dir     string // the server's files
	address string
}

func newTLSHub(t testing.TB, rules session.TLS, change func(*session.Config)) *tlsHub {
	t.Helper()
	h := &tlsHub{t: t, ca: testca.New(t), dir: t.TempDir()}
	h.ca.Issue(t, h.dir)
	files, err := env.LoadServerTLS(h.dir, rules.Verify)
	testutil.Must(t, err)
	rules.Config = files.Server()
	h.Hub, h.address = newTestHub(t, func(c *session.Config) {
		c.TLS = &rules
		if change != nil {
			change(c)
		}
	})
	return h
}

// client returns the configuration of a client that trusts the hub.
func (h *tlsHub) client() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(h.ca.PEM)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// certificate returns a client's certificate from ca.
func certificate(t testing.TB, ca *testca.CA) tls.Certificate {
	t.Helper()
	dir := t.TempDir()
	ca.Issue(t, dir)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, env.CertFile), filepath.Join(dir, env.KeyFile))
	testutil.Must(t, err)
	return pair
}

func (h *tlsHub) connect(config *tls.Config, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, nats.NoReconnect(), nats.Timeout(testutil.Patience))
	if config != nil {
		options = append(options, nats.Secure(config))
	}
	nc, err := nats.Connect("nats://"+h.address, options...)
	if err == nil {
		h.t.Cleanup(nc.Close)
	}
	return nc, err
}

func (h *tlsHub) mustConnect(config *tls.Config, options ...nats.Option) *nats.Conn {
	h.t.Helper()
	nc, err := h.connect(config, options...)
	testutil.Must(h.t, err)
	return nc
}

// exchange sends messages of several sizes from one client to the other.
func exchange(t testing.TB, from, to *nats.Conn, sizes ...int) {
	t.Helper()
	sub, err := to.SubscribeSync("exchange")
	testutil.Must(t, err)
	testutil.Must(t, to.Flush())
	for _, size := range sizes {
		data := content(size, size)
		testutil.Must(t, from.Publish("exchange", data))
		m, err := sub.NextMsg(testutil.Patience)
		testutil.Must(t, err)
		if !bytes.Equal(m.Data, data) {
			t.Fatalf("%d bytes arrived changed", size)
		}
	}
	testutil.Must(t, sub.Unsubscribe())
	testutil.Must(t, to.Flush())
}

// dial speaks the protocol by hand over TLS.
func (h *tlsHub) dial(config *tls.Config) *wire {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	testutil.Must(h.t, err)
	h.t.Cleanup(func() { conn.Close() })
	return h.secure(conn, config)
}

// secure begins TLS on a new connection.
func (h *tlsHub) secure(conn net.Conn, config *tls.Config) *wire {
	h.t.Helper()
	c := &wire{t: h.t, conn: conn, in: bufio.NewReaderSize(conn, 16)}
	info := c.line()
	if !strings.HasPrefix(info, "INFO {") || c.in.Buffered() > 0 {
		h.t.Fatalf("greeted with %q", info)
	}
	secure := tls.Client(conn, config)
	testutil.Must(h.t, secure.SetDeadline(time.Now().Add(testutil.Patience)))
	testutil.Must(h.t, secure.Handshake())
	testutil.Must(h.t, secure.SetDeadline(time.Time{}))
	c.conn, c.in = secure, bufio.NewReader(secure)
	c.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n")
	c.sync()
	return c
}

// raw connects without TLS and without a word.
func (h *tlsHub) raw() *wire {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	testutil.Must(h.t, err)
	h.t.Cleanup(func() { conn.Close() })
	return &wire{t: h.t, conn: conn, in: bufio.NewReader(conn)}
}

var allSizes = []int{0, 1, 300, 5 << 10, 16<<10 - 1, 16 << 10, 60 << 10, 64 << 10, 200 << 10, 1 << 20, 8 << 20}

func TestAClientOfABrokerThatRequiresTLS(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
			config := h.client()
			config.MinVersion, config.MaxVersion = version, version
			// The second one learns from INFO that it has to use TLS.
			a, b := h.mustConnect(config), h.mustConnect(nil, nats.RootCAs(caFile(h)))
			if is, err := a.TLSConnectionState(); err != nil || is.Version != version {
				t.Fatalf("connected with %v, %v", is, err)
			}
			exchange(t, a, b, allSizes...)
			exchange(t, b, a, allSizes...)
			want := strings.TrimPrefix(tls.VersionName(version), "TLS ")
			var versions []string
			for _, c := range h.ConnStats() {
				if c.TLS == nil || c.TLS.CipherSuite == "" {
					t.Fatalf("a connection without TLS: %+v", c)
				}
				versions = append(versions, c.TLS.Version)
			}
			if !strings.Contains(fmt.Sprint(versions), want) || h.Stats().Handshakes[session.HandshakeDone] != 2 {
				t.Errorf("TLS of %v, handshakes %v", versions, h.Stats().Handshakes)
			}
		})
	}
}

func caFile(h *tlsHub) string { return filepath.Join(h.dir, env.CAFile) }

func TestAClientThatDoesNotTrustTheBroker(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	if _, err := h.connect(nil); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("it connected: %v", err)
	}
	h.await("failed handshakes", func(s session.Stats) bool {
		return s.Handshakes[session.HandshakeFailed] == 1 && s.Ended[session.TLSHandshake] == 1
	})
}

func (h *tlsHub) await(what string, condition func(session.Stats) bool) {
	h.t.Helper()
	testutil.Eventually(h.t, what, func() error {
		if s := h.Stats(); !condition(s) {
			return fmt.Errorf("stats are %+v", s)
		}
		return nil
	})
}

func TestAPlaintextClientIsToldThatTLSIsRequired(t *testing.T) {
	for _, first := range []session.First{session.FirstNo, session.FirstYes, session.FirstAuto} {
		t.Run(string(first), func(t *testing.T) {
			h := newTLSHub(t, session.TLS{First: first}, nil)
			c := h.raw()
			if first != session.FirstYes {
				if info := c.line(); !strings.Contains(info, `"tls_required":true`) || strings.Contains(info, "tls_available") {
					t.Errorf("greeted with %s", info)
				}
			}
			c.send("CONNECT {}\r\nPING\r\n%s", strings.Repeat("x", 10_000))
			c.expect("-ERR 'Secure Connection - TLS Required'")
			if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
				t.Errorf("then %q, %v", rest, err)
			}
			c.conn.Close()
			h.await("the refusal", func(s session.Stats) bool {
				return s.Handshakes[session.HandshakePlaintext] == 1 && s.Ended[session.TLSHandshake] == 1
			})
		})
	}
}

func TestOptionalTLSServesBothKindsOfClients(t *testing.T) {
	for _, first := range []session.First{session.FirstNo, session.FirstAuto} {
		t.Run(string(first), func(t *testing.T) {
			h := newTLSHub(t, session.TLS{Optional: true, First: first}, nil)
			plain, secure := h.mustConnect(nil), h.mustConnect(h.client())
			if _, err := plain.TLSConnectionState(); err == nil {
				t.Error("the plaintext client uses TLS")
			}
			if is, err := secure.TLSConnectionState(); err != nil || !is.HandshakeComplete {
				t.Errorf("the other uses none: %v", err)
			}
			exchange(t, plain, secure, allSizes...)
			exchange(t, secure, plain, allSizes...)
			c := h.raw()
			if info := c.line(); !strings.Contains(info, `"tls_available":true`) || strings.Contains(info, "tls_required") {
				t.Errorf("greeted with %s", info)
			}
		})
	}
}

// firstWait is how long hubs wait for a handshake before INFO: longer than a busy machine takes to
// begin one.
const firstWait = 5 * time.Second

func TestTheHandshakeBeforeINFO(t *testing.T) {
	for _, first := range []session.First{session.FirstYes, session.FirstAuto} {
		t.Run(string(first), func(t *testing.T) {
			h := newTLSHub(t, session.TLS{First: first, FirstWait: firstWait}, nil)
			a := h.mustConnect(h.client(), nats.TLSHandshakeFirst())
			b := a
			if first == session.FirstAuto {
				b = h.mustConnect(h.client())
			}
			exchange(t, a, b, allSizes...)
			exchange(t, b, a, allSizes...)
		})
	}
}

func TestClientCertificates(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			h := newTLSHub(t, session.TLS{First: session.FirstNo, Verify: true}, nil)
			config := h.client()
			config.MinVersion, config.MaxVersion = version, version
			if _, err := h.connect(config); err == nil {
				t.Error("a client without a certificate connected")
			}
			config.Certificates = []tls.Certificate{certificate(t, testca.New(t))}
			if _, err := h.connect(config); err == nil {
				t.Error("a client with a stranger's certificate connected")
			}
			config.Certificates = []tls.Certificate{certificate(t, h.ca)}
			nc := h.mustConnect(config)
			exchange(t, nc, nc, 1000)
			h.await("both refusals", func(s session.Stats) bool { return s.Handshakes[session.HandshakeFailed] == 2 })
			if info := h.raw().line(); !strings.Contains(info, `"tls_verify":true`) {
				t.Errorf("INFO is %s", info)
			}
		})
	}
}

func TestARenewedCertificateIsForNewConnections(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	before := h.mustConnect(h.client())
	renewed := h.ca.Issue(t, h.dir, testca.Options{NotAfter: time.Now().Add(2 * time.Hour)})
	after := h.mustConnect(h.client())
	is, err := after.TLSConnectionState()
	testutil.Must(t, err)
	if !is.PeerCertificates[0].Equal(renewed) {
		t.Error("a new connection sees the old certificate")
	}
	exchange(t, before, after, 100, 100_000)
	exchange(t, after, before, 100, 100_000)
}

// TestASlowTLSClientIsCutOffAtItsBound: what it does not read is counted and bounded, and all
// counts return to zero. Others get everything.
func TestASlowTLSClientIsCutOffAtItsBound(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, func(c *session.Config) { c.Profile.Pending = 1 << 20 })
	idle, good, pub := h.dial(h.client()), h.dial(h.client()), h.dial(h.client())
	for _, c := range []*wire{idle, good} {
		c.send("SUB a 1\r\n")
		c.sync()
	}
	const n, size = 4000, 8 << 10
	body := strings.Repeat("x", size)
	for range n {
		pub.send("PUB a %d\r\n%s\r\n", size, body)
		good.expect(fmt.Sprintf("MSG a 1 %d", size), body)
	}
	h.await("the slow client's end", func(s session.Stats) bool {
		return s.Ended[session.SlowPending] == 1 && s.PendingBytes == 0 && s.Parked == 0
	})
}

// TestATLSClientThatReadsLateGetsEverything: a client falls far behind and catches up, several
// times. Its messages change between the loop and the writer goroutine, and arrive in order.
func TestATLSClientThatReadsLateGetsEverything(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	late, pub := h.dial(h.client()), h.dial(h.client())
	late.send("SUB a 1\r\n")
	late.sync()
	for round := range 4 {
		sizes := make([]int, 200)
		for i := range sizes {
			sizes[i] = rand.IntN(100_000)
		}
		for i, size := range sizes {
			pub.send("PUB a %d\r\n%s\r\n", size, content(i, size))
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
}

// recorder keeps what is read from a connection.
type recorder struct {
	net.Conn
	got []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.got = append(r.got, p[:n]...)
	return n, err
}

// TestTheLastWordsComeOverTLS: a client reads the reason and then an end that TLS announces, by an
// alert. TLS 1.2 shows it in the header of its record.
func TestTheLastWordsComeOverTLS(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	conn, err := net.Dial("tcp", h.address)
	testutil.Must(t, err)
	defer conn.Close()
	config := h.client()
	config.MaxVersion = tls.VersionTLS12
	read := &recorder{Conn: conn}
	c := h.secure(read, config)
	c.send("NONSENSE\r\n")
	c.expect("-ERR 'Unknown Protocol Operation'")
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	records := read.got[bytes.IndexByte(read.got, '\n')+1:] // after INFO
	last := byte(0)
	for len(records) >= 5 {
		last, records = records[0], records[min(5+(int(records[3])<<8|int(records[4])), len(records)):]
	}
	if last != 0x15 {
		t.Errorf("the last record has type %#x", last)
	}
}

// TestATLSClientSeesTheEndOfALeavingBroker: so does one that publishes meanwhile.
func TestATLSClientSeesTheEndOfALeavingBroker(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	clients := []*wire{h.dial(h.client()), h.dial(h.client())}
	silent := h.raw() // in its handshake
	silent.line()
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
	if s := h.Stats(); s.Ended[session.LameDuck] != 3 {
		t.Errorf("ended %v", s.Ended)
	}
}

// TestGarbageInsteadOfAHandshake is refused at once, and bounded.
func TestGarbageInsteadOfAHandshake(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	rest := make([]byte, 5000)
	for i := range rest {
		rest[i] = byte(rand.Uint32())
	}
	// Behind 0x16 this is no version of TLS. With a lower byte it may begin a record that is longer
	// than what was sent, and the broker waits for the rest of that as long as for any handshake.
	rest[0] |= 0x10
	rest[1] |= 0x80 // nor is it the length of a message that is waited for
	// A ClientHello of 64 KiB that never ends.
	endless := append([]byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0}, make([]byte, 16<<10-4)...)
	endless = append(endless, append([]byte{0x16, 3, 1, 0x40, 0}, make([]byte, 16<<10)...)...)
	for i, garbage := range [][]byte{
		append([]byte{0x16}, rest...),
		append([]byte{0x16, 3, 1, 0xff, 0xff}, rest...),
		append([]byte{0x16, 3, 1, 0, 5}, rest...),
		endless,
	} {
		c := h.raw()
		c.line()
		_, _ = c.conn.Write(garbage)
		testutil.Must(t, c.conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
		answer, err := io.ReadAll(c.in)
		if err != nil || len(answer) > 7 { // an alert at most
			t.Errorf("garbage %d was answered with %d bytes, %v", i, len(answer), err)
		}
		c.conn.Close()
		h.await("its end", func(s session.Stats) bool {
			return s.Ended[session.TLSHandshake] == uint64(i+1) && s.Handshakes[session.HandshakeFailed] == uint64(i+1)
		})
	}
	nc := h.mustConnect(h.client())
	exchange(t, nc, nc, 10)
}

// TestAStalledHandshakeHoldsNobodyUp: clients that stop in the middle of it hold no turn, and are
// closed after the deadline.
func TestAStalledHandshakeHoldsNobodyUp(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	stalled, took := 0, limits.HandshakeTimeout
	for try := 0; try < 5 && took >= limits.HandshakeTimeout; try++ { // a busy machine may delay one
		for i := range 10 * runtime.GOMAXPROCS(0) {
			c := h.raw()
			c.line()
			if i%2 == 0 {
				c.send("\x16\x03\x01\x02") // in the header
			} else {
				c.send("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
			}
			stalled++
		}
		began := time.Now()
		nc := h.mustConnect(h.client())
		exchange(t, nc, nc, 10)
		took = time.Since(began)
	}
	if took >= limits.HandshakeTimeout {
		t.Errorf("another client connected after %v", took)
	}
	h.await("the end of all stalled ones", func(s session.Stats) bool {
		return s.Handshakes[session.HandshakeTimeout] == uint64(stalled) && s.Ended[session.TLSHandshake] == uint64(stalled)
	})
}

func TestASilentClientIsToldThatTLSIsRequired(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstNo}, nil)
	c := h.raw()
	c.line()
	c.expect("-ERR 'Secure Connection - TLS Required'")
	h.await("its end", func(s session.Stats) bool { return s.Handshakes[session.HandshakeTimeout] == 1 })
}

// TestManyTLSClientsAtOnce: handshakes take turns, and all succeed. Half of the clients begin with
// the handshake, the others wait for INFO.
func TestManyTLSClientsAtOnce(t *testing.T) {
	h := newTLSHub(t, session.TLS{First: session.FirstAuto, FirstWait: firstWait}, nil)
	var all sync.WaitGroup
	const clients = 100
	for i := range clients {
		all.Go(func() {
			options := []nats.Option{nats.Secure(h.client()), nats.Timeout(testutil.Patience), nats.NoReconnect()}
			if i%2 == 0 {
				options = append(options, nats.TLSHandshakeFirst())
			}
			nc, err := nats.Connect("nats://"+h.address, options...)
			if err != nil {
				t.Error(err)
				return
			}
			if err := nc.Flush(); err != nil {
				t.Error(err)
			}
			nc.Close()
		})
	}
	all.Wait()
	if n := h.Stats().Handshakes[session.HandshakeDone]; n != clients {
		t.Errorf("%d handshakes", n)
	}
}

// memoryPer returns the memory that each connection of both sides takes, in bytes.
func memoryPer(clients int, connect func()) int {
	var before, after runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&before)
	for range clients {
		connect()
	}
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	return int(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse) / clients
}

// TestAnIdleTLSConnectionIsSmall bounds the memory of a connection that waits for messages.
func TestAnIdleTLSConnectionIsSmall(t *testing.T) {
	measure := func(connect func()) int { return memoryPer(400, connect) }
	h := newTLSHub(t, session.TLS{First: session.FirstNo, Optional: true}, nil)
	config := h.client()
	// The clients of this process keep their sockets only.
	plain := measure(func() { dial(t, h.address, "") })
	secure := measure(func() { h.dial(config) })
	used := measure(func() { h.dial(config).send("PUB a 40000\r\n%s\r\nPING\r\n", content(1, 40_000)) })
	t.Logf("bytes per idle connection: %d plaintext, %d TLS, %d after large messages", plain, secure, used)
	if most := plain + 14<<10; secure > most {
		t.Errorf("a TLS connection takes %d bytes, and a plaintext one %d", secure, plain)
	}
	if most := plain + 34<<10; used > most { // crypto/tls keeps the largest record
		t.Errorf("a TLS connection that sent large messages takes %d bytes, and a plaintext one %d", used, plain)
	}
}
