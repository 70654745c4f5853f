package route

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// die does what the kernel does for a killed process.
func (n *testNode) die() {
	n.SetMembers(nil) // Stop dialling.
	n.config.Listener.Close()
	for _, l := range n.links() {
		l.raw.Close()
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

// TestADeadBrokerIsNoticedByItsKernel: a dead broker is detected within about a tenth of a second,
// and once, whichever of the two dials first.
func TestADeadBrokerIsNoticedByItsKernel(t *testing.T) {
	ca := newAuthority(t)
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		var of deaths
		witness := startNode(t, names[0], ca, func(c *Config) { c.Dead = of.note })
		victim := startNode(t, names[1], ca)
		introduceAll(witness, victim)
		waitUp(t, witness, victim)
		for _, l := range victim.links() {
			l.raw.Close() // A broken connection is no death.
		}
		testutil.EventuallyTrue(t, "linked again", func() bool { p := witness.peerOf(names[1]); return p.Up && p.Generation > 1 })
		if found := of.all(); len(found) > 0 {
			t.Fatalf("found dead: %v", found)
		}
		victim.die()
		began := time.Now()
		testutil.EventuallyTrue(t, "it is found dead", func() bool { return len(of.all()) > 0 })
		if took := time.Since(began); took > dialSecondAfter {
			t.Errorf("%s noticed after %v", names[0], took)
		}
		testutil.EventuallyTrue(t, "it is dialled further", func() bool { return witness.peerOf(names[1]).Attempts > 4 })
		if found := of.all(); len(found) != 1 || found[0] != victim.member() {
			t.Errorf("found dead: %v", found)
		}
		victim.Close()
		witness.Close()
	}
}

// TestOnlyWhoWasLinkedCanDie: a member that was never linked in its current incarnation is never
// called dead.
func TestOnlyWhoWasLinkedCanDie(t *testing.T) {
	var of deaths
	a, b := startNode(t, "a", nil, func(c *Config) { c.Dead = of.note }), startNode(t, "b", nil)
	never := b.member()
	never.ID, never.Route = "z", "127.0.0.1:1"
	a.SetMembers([]Member{never, b.member()})
	b.SetMembers([]Member{a.member()})
	testutil.EventuallyTrue(t, "linked", func() bool { return a.peerOf("b").Up && a.peerOf("z").Attempts > 2 })
	next := b.member()
	next.Incarnation++
	next.Route = "127.0.0.1:1" // a new incarnation of which only the address is known
	b.SetMembers(nil)
	b.config.Listener.Close()
	for _, l := range a.links() {
		a.SetMembers([]Member{never}) // It left the cluster before its link ended.
		l.raw.Close()
	}
	testutil.EventuallyTrue(t, "b's link is gone", func() bool { return len(a.links()) == 0 })
	a.SetMembers([]Member{never, next})
	testutil.EventuallyTrue(t, "it is dialled", func() bool { return a.peerOf("b").Attempts > 2 })
	if found := of.all(); len(found) > 0 {
		t.Errorf("found dead: %v", found)
	}
}

// TestWhoLeavesIsDeadWhenItIs: a leaving broker is dead when its kernel refuses connections.
func TestWhoLeavesIsDeadWhenItIs(t *testing.T) {
	var of deaths
	a, b := startNode(t, "a", nil, func(c *Config) { c.Dead = of.note }), startNode(t, "b", nil)
	introduceAll(a, b)
	waitUp(t, a, b)
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

// TestSilenceIsOfWhoWasHeard: a member that is cut off is silent, before its link is closed and
// after. It stops being silent when it is heard again or restarts, and a member that was never
// linked in its current incarnation is not silent.
func TestSilenceIsOfWhoWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newMemoryNet()
		a, b := startMemoryNode(t, "a", network), startMemoryNode(t, "b", network)
		never := b.member()
		never.ID, never.Route = "z", "z"
		introduceAll(a, b)
		waitUp(t, a, b)
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
