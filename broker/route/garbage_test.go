package route

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// helloBytes returns the hello of a broker of the same cluster, after change.
func helloBytes(t *testing.T, change func(*hello)) []byte {
	t.Helper()
	h := hello{Magic: helloMagic, Newest: protocolNewest, Oldest: protocolOldest, Kind: kindCore, Cluster: "default/main", ID: "z", Name: "z", Session: "s", MaxPayload: 1 << 20}
	if change != nil {
		change(&h)
	}
	frame, err := jsonFrame(frameHello, h)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestMalformedInputHarmsNoOtherConnection sends malformed input before and after a valid hello,
// while two real brokers work beside it.
func TestMalformedInputHarmsNoOtherConnection(t *testing.T) {
	random := make([]byte, 64<<10)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(random)
	claim := func(size uint32, typ frameType, rest ...byte) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, size), byte(typ)), rest...)
	}
	strangers := map[string][]byte{
		"random bytes":            random,
		"an HTTP request":         []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a NATS client":           []byte("CONNECT {}\r\nPING\r\n"),
		"a huge length":           claim(1<<32-1, frameHello),
		"a length of zero":        {0, 0, 0, 0},
		"half a hello":            helloBytes(t, nil)[:20],
		"a hello of 4 KiB + 1":    claim(maxHello+1, frameHello, make([]byte, maxHello)...),
		"no JSON":                 claim(5, frameHello, []byte("{{{{")...),
		"another protocol":        helloBytes(t, func(h *hello) { h.Magic = "other" }),
		"a message before hello":  claim(1, frameMessage),
		"an absurd payload limit": helloBytes(t, func(h *hello) { h.MaxPayload = 1 << 40 }),
		"no id":                   helloBytes(t, func(h *hello) { h.ID = "" }),
		"another kind":            helloBytes(t, func(h *hello) { h.Kind = "replication" }),
		"null":                    claim(5, frameHello, []byte("null")...),
	}
	peers := map[string][]byte{
		"random bytes":                random,
		"an unknown frame":            claim(1, 99),
		"a second hello":              helloBytes(t, nil),
		"a huge length":               claim(1<<32-1, frameMessage),
		"a frame over the limit":      claim(1<<20+frameOverhead+1, frameMessage),
		"a message of nothing":        claim(1, frameMessage),
		"a message without a subject": claim(12, frameMessage, make([]byte, 11)...),
		"groups that are not there":   claim(13, frameMessage, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 's'),
		"more headers than data":      claim(13, frameMessage, 1, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 's'),
		"interest in nothing":         claim(7, frameInterest, 0, 0, 0, 1, 0, 0),
		"interest in a line break":    claim(9, frameInterest, 0, 0, 0, 1, 0, 0, '\r', '\n'),
		"interest in an empty token":  claim(11, frameInterest, 0, 0, 0, 1, 0, 0, 'a', '.', '.', 'b'),
		"a ping of one byte":          claim(2, framePing, 1),
		"a refusal":                   claim(3, frameRefused, '{', '}'),
		"half a message":              claim(1000, frameMessage, 1, 0, 0),
	}
	ca := newAuthority(t)
	secured, open := startNode(t, "a", ca), startNode(t, "a", nil)
	partner := startNode(t, "b", nil)
	linkAll(t, open, partner)

	send := func(t *testing.T, conn net.Conn, data []byte) {
		t.Helper()
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(data) // The node may close the connection before everything is written.
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection was not closed")
			}
		}
	}
	dial := func(t *testing.T, n *testNode) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", n.address)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, data := range strangers {
		t.Run("stranger sends "+name, func(t *testing.T) {
			send(t, dial(t, open), data)
			send(t, dial(t, secured), data) // plaintext to a TLS port
			conn, err := tls.Dial("tcp", secured.address, ca.client("127.0.0.1"))
			if err != nil {
				t.Fatal(err)
			}
			send(t, conn, data)
		})
	}
	for name, data := range peers {
		t.Run("peer sends "+name, func(t *testing.T) {
			send(t, dial(t, open), append(helloBytes(t, nil), data...))
		})
	}
	t.Run("TLS without a certificate", func(t *testing.T) {
		config := ca.client("127.0.0.1")
		config.Certificates = nil
		conn, err := tls.Dial("tcp", secured.address, config)
		if err != nil {
			return
		}
		send(t, conn, helloBytes(t, nil))
	})

	testutil.EventuallyTrue(t, "only the partner is attached", func() bool { return open.hub.sees(partner.hub) && secured.hub.sees() })
	if p := open.peerOf("b"); p.Generation != 1 {
		t.Errorf("the link between the real brokers was disturbed: %+v", p)
	}
	partner.hub.set("s", "", 1)
	testutil.EventuallyTrue(t, "interest", func() bool { return open.hub.sees(partner.hub) })
	open.hub.publish("s", "unharmed")
	testutil.EventuallyTrue(t, "the message", func() bool { return len(partner.hub.messages()) == 1 })
	if got := open.hub.messages(); len(got) > 0 {
		t.Errorf("garbage was delivered: %q", got)
	}
	refused := open.Stats().Refused
	if refused[CauseMalformed] < 5 || refused[CauseVersion] < 1 {
		t.Errorf("refusals: %v", refused)
	}
	if n := len(open.logs.lines("WARN", "Refused a connection")); n > len(refused) {
		t.Errorf("%d warnings for %d causes", n, len(refused))
	}
	if n := len(open.Stats().Peers); n != 1 {
		t.Errorf("%d peers are remembered", n)
	}
}

// TestSilentConnectionsKeepNobodyOut: strangers that connect and send nothing, many more than there
// is room for, hold a bounded number of slots, and a broker gets through at once: before any of
// them has exceeded its time.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(map[bool]string{false: "plaintext", true: "TLS"}[secured], func(t *testing.T) {
			var ca *authority
			if secured {
				ca = newAuthority(t)
			}
			a, b := startNode(t, "a", ca), startNode(t, "b", ca)
			const strangers = 5 * maxGreeting
			for range strangers {
				conn, err := net.Dial("tcp", a.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			// On a busy machine some have exceeded their time before the next ones come.
			testutil.EventuallyTrue(t, "the oldest strangers are evicted", func() bool {
				refused := a.Stats().Refused
				return refused[CauseEvicted] > 0 && refused[CauseEvicted]+refused[CauseTimeout] >= strangers-maxGreeting
			})
			if n := a.greeting.count(); n > 2*maxGreeting {
				t.Errorf("%d strangers are greeted at once", n)
			}
			b.SetMembers([]Member{a.member()}) // b can only connect to a's port.
			a.hub.set("s", "", 1)
			testutil.EventuallyTrue(t, "a broker gets through", func() bool { return b.hub.sees(a.hub) })
			testutil.EventuallyTrue(t, "strangers without a word are counted", func() bool { return a.Stats().Refused[CauseTimeout] > 0 })
		})
	}
}

// TestStrangersDoNotEvictACertificate: a connection with a certificate of the cluster keeps its
// slot, however many strangers come after it.
func TestStrangersDoNotEvictACertificate(t *testing.T) {
	var g greeting
	pipe := func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		return near
	}
	member, stranger := g.admit(pipe()), g.admit(pipe())
	g.vouch(member)
	for range 3 * maxGreeting {
		g.admit(pipe())
	}
	if !g.leave(stranger) {
		t.Error("the oldest stranger was not evicted")
	}
	if g.leave(member) {
		t.Error("a member was evicted for strangers")
	}
	if n := g.count(); n != maxGreeting {
		t.Errorf("%d connections are left", n)
	}
}

// TestAPeerThatNeverReadsIsCutOff: a peer that pings and never reads its pongs is disconnected.
func TestAPeerThatNeverReadsIsCutOff(t *testing.T) {
	a := startNode(t, "a", nil)
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(helloBytes(t, nil), 0, 0, 0, 1, byte(frameInterestEnd))); err != nil {
		t.Fatal(err)
	}
	testutil.EventuallyTrue(t, "attached", func() bool { return len(a.links()) == 1 })
	ping := bytes.Repeat(append([]byte{0, 0, 0, 9, byte(framePing)}, make([]byte, 8)...), 10000)
	if err := conn.SetWriteDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	most := 0
	for {
		if _, err := conn.Write(ping); err != nil {
			break
		}
		for _, l := range a.links() {
			most = max(most, l.Pending())
		}
	}
	testutil.EventuallyTrue(t, "cut off", func() bool { return len(a.links()) == 0 })
	if most > maxPendingHard+1<<20 {
		t.Errorf("%d bytes were pending", most)
	}
	var _ session.Link = (*link)(nil)
}

func TestAHelloFitsItsFrame(t *testing.T) {
	long := hello{Name: string(bytes.Repeat([]byte("x"), maxHello))}
	if _, err := jsonFrame(frameHello, long); err == nil {
		t.Error("a hello that no peer would read was encoded")
	}
	var back hello
	if err := json.Unmarshal(helloBytes(t, nil)[headerSize:], &back); err != nil || back.Cluster != "default/main" {
		t.Errorf("%+v, %v", back, err)
	}
}
