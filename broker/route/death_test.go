package route

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// process has the sockets of a broker, so that a test can end them all, as the kernel does for a
// killed process. Links alone are not all: a connection that is being greeted becomes one.
type process struct {
	net.Listener
	dialer func(ctx context.Context, address string) (net.Conn, error)

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// killable gives a broker's sockets to p.
func killable(p *process) func(*Config) {
	return func(c *Config) {
		if p.Listener, p.dialer = c.Listener, c.Dial; p.Listener == nil {
			var err error
			if p.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				panic(err)
			}
			p.dialer = func(ctx context.Context, address string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}
		}
		c.Listener, c.Dial = p, p.dial
	}
}

func (p *process) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err == nil {
		p.own(conn)
	}
	return conn, err
}

func (p *process) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := p.dialer(ctx, address)
	if err == nil {
		p.own(conn)
	}
	return conn, err
}

func (p *process) own(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns = append(p.conns, conn); p.dead {
		conn.Close()
	}
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	p.Listener.Close()
	for _, conn := range p.conns {
		conn.Close()
	}
}

// deaths records the members that a node found dead.
type deaths struct {
	mu    sync.Mutex
	found []Member
}

func (d *deaths) note(m Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, m)
}

func (d *deaths) all() []Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.found)
}

// TestADeadBrokerIsNoticedByItsKernel: a dead broker is detected once, whichever of the two dials
// first.
func TestADeadBrokerIsNoticedByItsKernel(t *testing.T) {
	ca := newAuthority(t)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		var of deaths
		var p process
		witness := startNode(t, names[0], ca, func(c *Config) { c.Dead = of.note })
		victim := startNode(t, names[1], ca, killable(&p))
		linkAll(t, witness, victim)
		for _, l := range victim.links() {
			l.raw.Close() // A broken connection is no death.
		}
		testutil.EventuallyTrue(t, "linked again", func() bool { p := witness.peerOf(names[1]); return p.Up && p.Generation > 1 })
		if found := of.all(); len(found) > 0 {
			t.Fatalf("found dead: %v", found)
		}
		p.die()
		testutil.EventuallyTrue(t, "it is found dead", func() bool { return len(of.all()) > 0 })
		testutil.EventuallyTrue(t, "it is dialled further", func() bool { return witness.peerOf(names[1]).Attempts > 4 })
		if found := of.all(); len(found) != 1 || found[0] != victim.member() {
			t.Errorf("found dead: %v", found)
		}
		victim.Close()
		witness.Close()
	}
}

// TestADeadBrokerIsDetectedAtOnce: a dead broker is detected within about a tenth of a second,
// before it is the turn of the broker that dials second.
func TestADeadBrokerIsDetectedAtOnce(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			var of deaths
			var p process
			network := newMemoryNet()
			witness := startMemoryNode(t, names[0], network, func(c *Config) { c.Dead = of.note })
			victim := startNode(t, names[1], nil, func(c *Config) { c.Listener, c.Dial = network.listen(names[1]), network.dial }, killable(&p))
			linkAll(t, witness, victim)
			synctest.Wait() // Both know of each other.
			p.die()
			if took, ok := within(time.Minute, func() bool { return len(of.all()) > 0 }); !ok || took > dialSecondAfter {
				t.Errorf("%s noticed after %v", names[0], took)
			}
			network.end(witness, victim)
		})
	}
}

// TestADeathWhileTheLinkIsReplacedIsNoticed: a broker dies just after a connection has taken the
// place of its link, and before that is up.
func TestADeathWhileTheLinkIsReplacedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of deaths
		var p process
		network := newMemoryNet()
		a := startMemoryNode(t, "a", network, func(c *Config) { c.Dead = of.note })
		b := startNode(t, "b", nil, func(c *Config) { c.Listener, c.Dial = network.listen("b"), network.dial }, killable(&p))
		linkAll(t, a, b)
		b.SetMembers(nil)
		conn, err := network.dial(t.Context(), "a")
		testutil.Must(t, err)
		p.own(conn)
		_, err = conn.Write(helloBytes(t, func(h *hello) { h.ID, h.Name = "b", "main-b" }))
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "it takes the link's place", func() bool { return a.peerOf("b").Generation == 2 })
		p.die()
		if took, ok := within(time.Minute, func() bool { return len(of.all()) == 1 }); !ok || took > dialSecondAfter {
			t.Errorf("noticed after %v: %v", took, of.all())
		}
		network.end(a, b)
	})
}

// TestAMemberThatWasNeverLinkedIsNeverCalledDead: a member that was never linked in its current
// incarnation is never called dead.
func TestAMemberThatWasNeverLinkedIsNeverCalledDead(t *testing.T) {
	var of deaths
	var p process
	a, b := startNode(t, "a", nil, func(c *Config) { c.Dead = of.note }), startNode(t, "b", nil, killable(&p))
	never := b.member()
	never.ID, never.Route = "z", "127.0.0.1:1"
	a.SetMembers([]Member{never, b.member()})
	b.SetMembers([]Member{a.member()})
	testutil.EventuallyTrue(t, "linked", func() bool { return a.peerOf("b").Up && a.peerOf("z").Attempts > 2 })
	next := b.member()
	next.Incarnation++
	next.Route = "127.0.0.1:1"    // a new incarnation of which only the address is known
	a.SetMembers([]Member{never}) // It left the cluster before its link ended.
	p.die()
	testutil.EventuallyTrue(t, "b's link is gone", func() bool { return len(a.links()) == 0 })
	a.SetMembers([]Member{never, next})
	testutil.EventuallyTrue(t, "it is dialled", func() bool { return a.peerOf("b").Attempts > 2 })
	if found := of.all(); len(found) > 0 {
		t.Errorf("found dead: %v", found)
	}
}

// TestALeavingBrokerIsDeadWhenItsKernelRefuses: a leaving broker is dead when its kernel refuses
// connections.
func TestALeavingBrokerIsDeadWhenItsKernelRefuses(t *testing.T) {
	var of deaths
	a, b := startNode(t, "a", nil, func(c *Config) { c.Dead = of.note }), startNode(t, "b", nil)
	linkAll(t, a, b)
	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	testutil.EventuallyTrue(t, "a knows", func() bool { return a.Leaving("b") })
	if found := of.all(); len(found) > 0 {
		t.Errorf("found dead: %v", found)
	}
	b.Close()
	testutil.EventuallyTrue(t, "it is found dead", func() bool { return len(of.all()) == 1 })
	if warnings := a.logs.lines("WARN"); len(warnings) > 0 {
		t.Errorf("a warns of a peer that left on purpose: %q", warnings)
	}
}

// TestOnlyALinkedMemberIsCalledSilent: a member that is cut off is silent, before its link is
// closed and after. It stops being silent when it is heard again or restarts, and a member that was
// never linked in its current incarnation is not silent.
func TestOnlyALinkedMemberIsCalledSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		never := b.member()
		never.ID, never.Route = "z", "z"
		linkAll(t, a, b)
		a.SetMembers([]Member{b.member(), never})
		silent := func() []Member { return a.Silent() }
		time.Sleep(10 * time.Second)
		if found := silent(); len(found) > 0 {
			t.Errorf("silent while all is well: %v", found)
		}
		network.cut()
		took, ok := within(time.Minute, func() bool { return len(silent()) > 0 })
		if !ok || took < silentAfter-pingEvery-keepAliveTick || took > silentAfter+2*keepAliveTick || silent()[0] != b.member() {
			t.Errorf("silent after %v: %v", took, silent())
		}
		time.Sleep(time.Minute) // Its link is gone, and dials fail.
		if found := silent(); len(found) != 1 {
			t.Errorf("silent after a minute: %v", found)
		}
		network.heal()
		if took, ok := within(time.Minute, func() bool { return len(silent()) == 0 }); !ok || took > 2*time.Second {
			t.Errorf("heard again after %v", took)
		}
		network.cut()
		time.Sleep(time.Minute)
		next := b.member()
		next.Incarnation++
		a.SetMembers([]Member{next, never})
		if found := silent(); len(found) > 0 {
			t.Errorf("silent in a life in which it was not met: %v", found)
		}
		network.heal()
		network.end(a, b)
	})
}
