package route

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// startMemoryNode starts a broker on a network in memory.
func startMemoryNode(t *testing.T, id string, n *memoryNet, change ...func(*Config)) *testNode {
	return startNode(t, id, nil, append(change, func(c *Config) {
		c.Listener, c.Dial = n.listen(id), n.dial
	})...)
}

// end closes the brokers and waits until nothing of theirs is under way.
func (n *memoryNet) end(nodes ...*testNode) {
	for _, node := range nodes {
		node.Close()
	}
	n.carriers.Wait()
}

// within returns how long a condition took to hold, on the test's clock.
func within(limit time.Duration, condition func() bool) (time.Duration, bool) {
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			return time.Since(began), false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began), true
}

func TestInterestIsExactWithinASecondOfTheNetworksReturn(t *testing.T) {
	worst := time.Duration(0)
	for cut := 50 * time.Millisecond; cut < 10*time.Second; cut += 70 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			network := newMemoryNet()
			a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
			a.hub.set("a.before", "", 1)
			linkAll(t, a, b)
			time.Sleep(cut % (337 * time.Millisecond)) // Any moment between two pings.
			network.cut()
			a.hub.set("a.during", "", 1)
			b.hub.set("b.during", "q", 3)
			time.Sleep(cut)
			a.hub.set("a.before", "", 0)
			network.heal()
			took, ok := within(5*time.Second, func() bool { return a.hub.sees(b.hub) && b.hub.sees(a.hub) })
			worst = max(worst, took)
			if !ok || took > time.Second {
				t.Errorf("cut for %v: interest was exact after %v", cut, took)
			}
			network.end(a, b)
		})
	}
	t.Logf("worst: %v", worst)
}

func TestASilentPeerIsDetachedAfterDeadAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		linkAll(t, a, b)
		network.cut()
		took, ok := within(time.Minute, func() bool { return a.hub.sees() && b.hub.sees() })
		if !ok || took < deadAfter-pingEvery-keepAliveTick || took > deadAfter+2*keepAliveTick {
			t.Errorf("detached after %v", took)
		}
		synctest.Wait() // The log line follows the call of the hub.
		if got := a.logs.lines("WARN", "nothing was heard for 3s"); len(got) != 1 {
			t.Errorf("log: %q", got)
		}
		time.Sleep(time.Minute) // A long outage must not log a line per attempt.
		if got := a.logs.lines("WARN"); len(got) > 2 {
			t.Errorf("%d warnings in a minute: %q", len(got), got)
		}
		network.heal()
		network.end(a, b)
	})
}

func TestAnIdleLinkStaysUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		linkAll(t, a, b)
		time.Sleep(time.Hour)
		if p := a.peerOf("b"); !p.Up || p.Generation != 1 || p.Attempts != 1 {
			t.Errorf("after an hour: %+v", p)
		}
		if p := b.peerOf("a"); p.Attempts != 0 {
			t.Errorf("b did not leave the dialling to a: %+v", p)
		}
		network.end(a, b)
	})
}

func TestAReaderHeldBackBySlowClientsIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		linkAll(t, a, b)
		letGo := b.hub.holdBack()
		a.hub.all(&session.Message{Subject: []byte("s")}, true, nil)
		time.Sleep(writeTimeout - time.Second) // Longer than deadAfter.
		letGo()
		if p, q := a.peerOf("b"), b.peerOf("a"); p.Generation != 1 || !p.Up || q.Generation != 1 || !q.Up {
			t.Errorf("the link did not survive: %+v, %+v", p, q)
		}
		network.end(a, b)
	})
}

func TestRedialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a := startMemoryNode(t, "a", network)
		a.SetMembers([]Member{{ID: "b", Name: "b", Route: "b"}})
		time.Sleep(time.Minute)
		if n := a.peerOf("b").Attempts; n < 100 || n > 260 {
			t.Errorf("%d dials in a minute to a member that is down", n)
		}
		stranger := startMemoryNode(t, "b", network, func(c *Config) { c.Cluster = "default/other" })
		time.Sleep(5 * time.Second)
		before := a.peerOf("b").Attempts
		time.Sleep(time.Minute)
		if n := a.peerOf("b").Attempts - before; n > 35 {
			t.Errorf("%d dials in a minute to a broker of another cluster", n)
		}
		if n := len(a.logs.lines("WARN")); n > 2 {
			t.Errorf("%d warnings", n)
		}
		network.end(a, stranger)
	})
}

func TestALeavingPeerIsRedialledWithoutHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		linkAll(t, a, b)
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, l := range a.links() {
			l.raw.Close() // The connection breaks while b still serves its last clients.
		}
		took, ok := within(time.Minute, func() bool { return a.peerOf("b").Generation == 2 && a.hub.sees(b.hub) && b.hub.sees(a.hub) })
		if !ok || took > refusedPause+time.Second {
			t.Errorf("a peer that was leaving, but is still there, was linked again after %v", took)
		}
		testutil.EventuallyTrue(t, "it says again that it leaves", func() bool { return a.peerOf("b").Leaving })
		// What is queued when the links close still arrives.
		a.hub.set("bye", "", 1)
		testutil.EventuallyTrue(t, "interest", func() bool { return b.hub.sees(a.hub) })
		for i := range 1000 {
			b.hub.publish("bye", fmt.Sprint(i))
		}
		b.Close()
		testutil.EventuallyTrue(t, "a has no peer", func() bool { return a.hub.sees() })
		if got := len(a.hub.messages()); got != 1000 {
			t.Errorf("%d of the last 1000 messages arrived", got)
		}
		before := a.peerOf("b").Attempts
		time.Sleep(time.Minute)
		if n := a.peerOf("b").Attempts - before; n < 10 || n > 35 {
			t.Errorf("%d dials in a minute to a broker that has left", n)
		}
		if got := a.logs.lines("WARN"); len(got) > 0 {
			t.Errorf("warnings: %q", got)
		}
		again := startMemoryNode(t, "b", network)
		successor := again.member()
		successor.Incarnation++
		a.SetMembers([]Member{successor})
		if took, ok := within(time.Minute, func() bool { return a.peerOf("b").Up }); !ok || took > refusedPause/2 {
			t.Errorf("its successor was linked after %v", took)
		}
		network.end(a, b, again)
	})
}

// proxy forwards between two brokers on real sockets. While cut, it accepts bytes and connections
// and forwards nothing; those bytes are lost with their connection.
type proxy struct {
	listener net.Listener
	to       string
	workers  sync.WaitGroup
	mu       sync.Mutex
	isCut    bool
	conns    map[net.Conn]bool
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: to, conns: make(map[net.Conn]bool)}
	p.workers.Go(p.serve)
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.workers.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns[in] = true
		cut := p.isCut
		p.mu.Unlock()
		if cut {
			p.workers.Go(func() { _, _ = io.Copy(io.Discard, in) })
			continue
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[out] = true
		p.mu.Unlock()
		dead := make(chan struct{})
		var once sync.Once
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			p.workers.Go(func() { p.carry(pair[0], pair[1], func() { once.Do(func() { close(dead) }) }, dead) })
		}
	}
}

func (p *proxy) carry(from, to net.Conn, die func(), dead <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		cut := p.isCut
		p.mu.Unlock()
		if cut {
			die()
		}
		select {
		case <-dead: // Nothing passes any more, not even the end of the stream.
			if err != nil {
				return
			}
			continue
		default:
		}
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (p *proxy) cut(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = is
}

func TestACutOnRealSocketsHeals(t *testing.T) {
	ca := newAuthority(t)
	a, b, c := startNode(t, "a", ca), startNode(t, "b", ca), startNode(t, "c", ca)
	toA, toB, toC := startProxy(t, a.address), startProxy(t, b.address), startProxy(t, c.address)
	via := func(n *testNode, p *proxy) Member {
		m := n.member()
		m.Route = p.listener.Addr().String()
		return m
	}
	a.SetMembers([]Member{via(b, toB), via(c, toC)})
	b.SetMembers([]Member{via(c, toC)})
	testutil.EventuallyTrue(t, "c is linked with both", func() bool { return c.peerOf("a").Up && c.peerOf("b").Up })
	b.SetMembers([]Member{via(a, toA), via(c, toC)})
	c.SetMembers([]Member{via(a, toA), via(b, toB)})
	waitUp(t, a, b, c)
	for _, cut := range []time.Duration{300 * time.Millisecond, 2 * time.Second} {
		toB.cut(true) // a -> b; b's own attempts towards a
		toA.cut(true)
		a.hub.set("a", fmt.Sprint(cut), 1)
		b.hub.set("b", fmt.Sprint(cut), 1)
		timer := time.NewTimer(cut)
		<-timer.C
		if !c.peerOf("b").Up || c.peerOf("b").Generation != 1 {
			t.Errorf("the link that was not cut: %+v", c.peerOf("b"))
		}
		toB.cut(false)
		toA.cut(false)
		testutil.EventuallyTrue(t, "interest is exact", func() bool {
			return a.hub.sees(b.hub, c.hub) && b.hub.sees(a.hub, c.hub) && c.hub.sees(a.hub, b.hub)
		})
	}
}

// TestACutThatLosesConnectionsHeals: a connection that lost bytes for good is detected by silence
// only. TCP never loses bytes, so a short cut of this kind may take longer than a second to heal.
func TestACutThatLosesConnectionsHeals(t *testing.T) {
	for cut := 100 * time.Millisecond; cut < 6*time.Second; cut += 190 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			network := newMemoryNet()
			a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
			linkAll(t, a, b)
			network.cutForGood()
			a.hub.set("a", "", 1)
			b.hub.set("b", "", 1)
			time.Sleep(cut)
			network.heal()
			limit := time.Second
			if cut < suspectAfter {
				limit += suspectAfter - cut
			}
			if took, ok := within(time.Minute, func() bool { return a.hub.sees(b.hub) && b.hub.sees(a.hub) }); !ok || took > limit {
				t.Errorf("cut for %v: interest was exact only %v after the return", cut, took)
			}
			network.end(a, b)
		})
	}
}
