package route

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestThreeBrokersLearnEachOthersInterest(t *testing.T) {
	ca := newAuthority(t)
	a, b, c := startNode(t, "a", ca), startNode(t, "b", ca), startNode(t, "c", ca)
	a.hub.set("before.a", "", 1)
	b.hub.set("before.b", "workers", 7)
	linkAll(t, a, b, c)
	c.hub.set("after.c", "", 1)
	c.hub.set("gone", "", 1)
	c.hub.set("gone", "", 0)
	testutil.EventuallyTrue(t, "everybody knows everybody's interest", func() bool {
		return a.hub.sees(b.hub, c.hub) && b.hub.sees(a.hub, c.hub) && c.hub.sees(a.hub, b.hub)
	})
	if p := a.peerOf("b"); p.Groups != 1 || p.Patterns != 0 || !p.Dialed || !p.Up || p.Name != "main-b" {
		t.Errorf("a's picture of b: %+v", p)
	}
	if p := c.peerOf("a"); p.Patterns != 1 || p.Groups != 0 || p.Dialed {
		t.Errorf("c's picture of a: %+v", p)
	}
	testutil.EventuallyTrue(t, "round trips are measured", func() bool { return a.peerOf("b").RTT > 0 && b.peerOf("a").RTT > 0 })
}

func TestEveryPartOfAMessageArrives(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	linkAll(t, a, b)
	a.hub.all(&session.Message{Subject: []byte("s.1"), Reply: []byte("r"), Header: 4, Data: []byte("H\r\n\nbody")}, true, []string{"q1", "q2"})
	a.hub.all(&session.Message{Subject: []byte("s.2")}, false, []string{"q2"})
	a.hub.all(&session.Message{Subject: []byte("s.3"), Data: []byte("x")}, true, nil)
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB: many chunks, more than one read
	a.hub.all(&session.Message{Subject: []byte("s.4"), Data: []byte(large)}, true, nil)
	// Over max_payload.
	a.hub.all(&session.Message{Subject: []byte("s.5"), Data: []byte(large + "!")}, true, nil)
	var many []string
	for i := range 20000 {
		many = append(many, fmt.Sprintf("group-%020d", i)) // more names than one frame may hold
	}
	a.hub.all(&session.Message{Subject: []byte("s.6"), Data: []byte("y")}, true, many)
	a.hub.all(&session.Message{Subject: []byte("end")}, true, nil)
	testutil.EventuallyTrue(t, "the last one arrives", func() bool {
		got := b.hub.messages()
		return len(got) > 0 && strings.HasPrefix(got[len(got)-1], "end|")
	})
	got := b.hub.messages()
	for i, want := range []string{"s.1|r|H\r\n\n|body|true|q1,q2", "s.2||||false|q2", "s.3|||x|true|", "s.4|||" + large + "|true|"} {
		if got[i] != want {
			t.Errorf("message %d: got %.200q, want %.200q", i, got[i], want)
		}
	}
	var groups []string
	plain, frames := 0, 0
	for _, m := range got[4 : len(got)-1] {
		parts := strings.Split(m, "|")
		if parts[0] != "s.6" || parts[3] != "y" {
			t.Fatalf("unexpected message %.100q", m)
		}
		if parts[4] == "true" {
			plain++
		}
		frames++
		groups = append(groups, strings.Split(parts[5], ",")...)
	}
	if least := len(many) * len(many[0]) / maxNames; frames < least {
		t.Errorf("%d frames, where names alone need %d", frames, least)
	}
	if plain != 1 || strings.Join(groups, ",") != strings.Join(many, ",") {
		t.Errorf("a message for %d groups: plain %d times, %d groups named", len(many), plain, len(groups))
	}
	if p := a.peerOf("b"); p.Oversize != 1 {
		t.Errorf("messages too large: %d, want 1", p.Oversize)
	}
}

func TestInterestPrecedesWhatItsClientPublishes(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	b.hub.set("work", "", 1)
	// Changes and messages from the first instant on, so that some fall into the exchange of the
	// complete interest.
	done := make(chan int)
	stop := make(chan struct{})
	go func() {
		i := 0
		for ; ; i++ {
			select {
			case <-stop:
				done <- i
				return
			default:
			}
			inbox := fmt.Sprintf("inbox.%d", i)
			a.hub.set(inbox, "", 1)
			a.hub.publish("work", inbox)
		}
	}()
	linkAll(t, a, b)
	testutil.EventuallyTrue(t, "traffic flows", func() bool { return len(b.hub.messages()) > 1000 })
	close(stop)
	sent := <-done
	testutil.EventuallyTrue(t, "all has arrived", func() bool { return b.hub.sees(a.hub) })
	a.hub.publish("work", "last")
	testutil.EventuallyTrue(t, "the last message", func() bool {
		got := b.hub.messages()
		return strings.Contains(got[len(got)-1], "|last|")
	})
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	known := make(map[string]bool)
	before := -1
	for _, r := range b.hub.received {
		if pattern, ok := strings.CutPrefix(r, "interest "); ok {
			known[pattern] = true
			continue
		}
		inbox := strings.Split(r, "|")[3]
		if inbox == "last" {
			break
		}
		if !known[inbox] {
			t.Fatalf("a request arrived before the interest in its reply subject %q", inbox)
		}
		var n int
		if _, err := fmt.Sscanf(inbox, "inbox.%d", &n); err != nil || n <= before || n >= sent {
			t.Fatalf("%q after inbox.%d", inbox, before)
		}
		before = n
	}
}

func TestALostConnectionResynchronises(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	a.hub.set("kept", "", 1)
	linkAll(t, a, b)
	for round := range 5 {
		before := a.peerOf("b").Generation
		for _, l := range a.links() {
			l.raw.Close()
		}
		a.hub.set(fmt.Sprintf("new.%d", round), "", 1)
		testutil.EventuallyTrue(t, "a new generation", func() bool { return a.peerOf("b").Generation > before })
		testutil.EventuallyTrue(t, "exact interest", func() bool { return b.hub.sees(a.hub) && a.hub.sees(b.hub) })
	}
	testutil.EventuallyTrue(t, "up again", func() bool { return a.peerOf("b").Up && a.peerOf("b").LastError == "" })
}

func TestADeadBrokersInterestVanishesAndItsSuccessorTakesOver(t *testing.T) {
	ca := newAuthority(t)
	a, b, c := startNode(t, "a", ca), startNode(t, "b", ca), startNode(t, "c", ca)
	linkAll(t, a, b, c)
	b.hub.set("old", "", 1)
	testutil.EventuallyTrue(t, "b's interest is known", func() bool { return a.hub.sees(b.hub, c.hub) && c.hub.sees(a.hub, b.hub) })
	b.Close()
	testutil.EventuallyTrue(t, "b's interest is gone", func() bool { return a.hub.sees(c.hub) && c.hub.sees(a.hub) })

	// A process with the same id and name and another address. The others still have the old
	// address.
	again := startNode(t, "b", ca)
	again.hub.set("new", "", 1)
	again.SetMembers([]Member{a.member(), again.member(), c.member()})
	waitUp(t, again, a, c)
	testutil.EventuallyTrue(t, "the successor's interest is known", func() bool { return a.hub.sees(again.hub, c.hub) && c.hub.sees(a.hub, again.hub) })
}

func TestANewProcessReplacesAnOldOneThatSeemsAlive(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	b.hub.set("old", "", 1)
	linkAll(t, a, b)
	again := startNode(t, "b", ca)
	again.hub.set("new", "", 1)
	b.SetMembers(nil) // The old process stops dialling.
	again.SetMembers([]Member{a.member()})
	testutil.EventuallyTrue(t, "the new process is the peer", func() bool { return a.hub.sees(again.hub) && again.hub.sees(a.hub) })
	testutil.EventuallyTrue(t, "the old one has no link", func() bool { return b.hub.sees() })
}

func TestTheOldLinkIsGoneBeforeTheNewOneBegins(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	linkAll(t, a, b)
	letGo := b.hub.holdBack()
	a.hub.all(&session.Message{Subject: []byte("old")}, true, nil)
	testutil.EventuallyTrue(t, "b's reader is held back", func() bool { return len(b.hub.messages()) == 1 })
	old := b.links()[0]
	for _, l := range a.links() {
		l.raw.Close()
	}
	a.hub.set("new", "", 1)
	testutil.EventuallyTrue(t, "b has a new connection", func() bool { l := b.links(); return len(l) == 1 && l[0] != old })
	testutil.EventuallyTrue(t, "the new connection has brought something", func() bool { l := b.links(); return len(l) == 1 && l[0].out.pending() > 0 })
	b.hub.mu.Lock()
	if b.hub.attaches != 1 || len(b.hub.peers) != 1 {
		t.Errorf("%d attached at once, %d in all, while the old reader is at work", len(b.hub.peers), b.hub.attaches)
	}
	b.hub.mu.Unlock()
	letGo()
	testutil.EventuallyTrue(t, "the new link works", func() bool { return b.hub.sees(a.hub) && a.hub.sees(b.hub) })
}

// TestAReadIsInterruptedForRoom: one read brings several messages, and after the first the clients
// have no room. The others follow when they have.
func TestAReadIsInterruptedForRoom(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	linkAll(t, a, b)
	letGo := b.hub.holdBack()
	defer letGo()
	b.hub.mu.Lock()
	b.hub.full = true
	b.hub.mu.Unlock()
	l := b.links()[0]
	old := l.neighbour.traffic.inBytes.Load()
	a.hub.mu.Lock()
	out := a.links()[0].out
	out.mu.Lock()
	for range 3 { // one write, so one read
		out.queued.message(&session.Message{Subject: []byte("many")}, session.Reach{Plain: true}, out.maxPayload)
	}
	out.mu.Unlock()
	a.hub.mu.Unlock()
	out.signal()
	testutil.EventuallyTrue(t, "all are read, and what is delivered is flushed", func() bool {
		read := l.neighbour.traffic.inBytes.Load() >= old+3*uint64(headerSize) && len(b.hub.messages()) > 0
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		return read && !b.hub.open
	})
	if n := len(b.hub.messages()); n != 1 {
		t.Errorf("%d messages were delivered without room", n)
	}
	letGo()
	testutil.EventuallyTrue(t, "the others follow", func() bool { return len(b.hub.messages()) == 3 })
}

func TestBothSidesPreferTheSameConnection(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	// Each case checks one pair of connections from both ends. by is the side that dialled the
	// newer one.
	for _, c := range []struct {
		by         string
		newProcess bool
		silent     bool
		replaces   bool
	}{
		{by: "a", replaces: true},
		{by: "b", replaces: false},
		{by: "b", newProcess: true, replaces: true},
		{by: "b", silent: true, replaces: true},
	} {
		for _, end := range []struct {
			*testNode
			peer string
		}{{a, "b"}, {b, "a"}} {
			current, next := &link{peer: hello{ID: end.peer, Session: "1"}}, &link{peer: hello{ID: end.peer, Session: "1"}}
			if c.newProcess {
				next.peer.Session = "2"
			}
			next.dialed = end.config.ID == c.by
			current.suspect.Store(c.silent)
			if got := end.replaces(next, current); got != c.replaces {
				t.Errorf("%+v: for %s the newer one replaces the older: %v", c, end.config.ID, got)
			}
		}
	}
}

func TestQueuedMessagesArriveWhileThePeerStillSends(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	b.parting = testutil.Patience // for how long it takes is not what is looked at
	linkAll(t, a, b)
	letGoA, letGoB := a.hub.holdBack(), b.hub.holdBack()
	defer letGoB() // Close waits for the readers
	defer letGoA()
	m := session.Message{Subject: []byte("s"), Data: make([]byte, 8<<10)}
	const count = 2000
	// b does not read its half, so an early close would reset the connection.
	for range count {
		a.hub.all(&m, true, nil)
		b.hub.all(&m, true, nil)
	}
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	testutil.EventuallyTrue(t, "b is closing", func() bool { return b.leaving.Load() })
	letGoA()
	testutil.EventuallyTrue(t, "all has arrived", func() bool { return len(a.hub.messages()) == count })
	letGoB()
	<-closed
}

func TestBothMayDialAtOnceAndOneLinkStays(t *testing.T) {
	for range 20 {
		a, b := startNode(t, "a", nil), startNode(t, "b", nil)
		a.hub.set("of.a", "", 1)
		b.hub.set("of.b", "", 1)
		n := &neighbour{}
		done := make(chan error, 2)
		go func() { done <- a.connect(n, b.member()) }()
		go func() { done <- b.connect(&neighbour{}, a.member()) }()
		<-done
		<-done
		linkAll(t, a, b)
		testutil.EventuallyTrue(t, "interest is exact", func() bool { return a.hub.sees(b.hub) && b.hub.sees(a.hub) })
		a.hub.publish("of.b", "once")
		a.hub.publish("of.b", "end")
		testutil.EventuallyTrue(t, "the messages", func() bool { return len(b.hub.messages()) >= 2 })
		if got := b.hub.messages(); len(got) != 2 {
			t.Fatalf("forwarded twice: %q", got)
		}
		a.Close()
		b.Close()
	}
}

func TestAMemberThatDisappearsKeepsItsLinkWhileItLives(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	linkAll(t, a, b)
	a.SetMembers(nil)
	b.SetMembers(nil)
	b.hub.set("still", "", 1)
	testutil.EventuallyTrue(t, "interest still travels", func() bool { return a.hub.sees(b.hub) })
	a.hub.publish("still", "here")
	testutil.EventuallyTrue(t, "messages still travel", func() bool { return len(b.hub.messages()) == 1 })
	if p := a.peerOf("b"); p.Member || !p.Up {
		t.Errorf("a's picture of b: %+v", p)
	}
	b.Close()
	testutil.EventuallyTrue(t, "b is forgotten", func() bool { return len(a.Stats().Peers) == 0 })
}

func TestARefusedPeerIsReportedOnceWithTheCause(t *testing.T) {
	ca := newAuthority(t)
	a := startNode(t, "a", ca)
	cases := []struct {
		cause Cause
		says  string
		node  *testNode
	}{
		{CauseCluster, `belongs to cluster \"default/other\"`, startNode(t, "b", ca, func(c *Config) { c.Cluster = "default/other" })},
		{CauseSelf, "this broker's own id", startNode(t, "a", ca)},
		{CauseTLS, "TLS handshake", startNode(t, "d", newAuthority(t))},
		{CauseTLS, "TLS handshake", startNode(t, "e", nil)},
	}
	for _, c := range cases {
		t.Run(string(c.cause)+" "+c.node.config.ID, func(t *testing.T) {
			before := a.Stats().Refused[c.cause]
			target := a.member()
			if c.cause == CauseSelf {
				target.ID = "0" // As if another member's address led here.
			}
			c.node.SetMembers([]Member{target})
			testutil.EventuallyTrue(t, "a counts the refusal", func() bool { return a.Stats().Refused[c.cause] > before || c.node.config.ServerTLS == nil })
			// An attempt is short, and on a busy machine some end before they are refused.
			says := []string{"WARN", "No link"}
			if c.node.config.ServerTLS != nil {
				says = append(says, c.says, "cause="+string(c.cause))
			}
			testutil.EventuallyTrue(t, "the stranger knows why", func() bool { return len(c.node.logs.lines(says...)) > 0 })
			if got := c.node.logs.lines(says...); len(got) > 1 {
				t.Errorf("the stranger complains %d times: %q", len(got), got)
			}
			if attempts := c.node.Stats().Peers[0].Attempts; attempts > 20 {
				t.Errorf("%d attempts: a storm", attempts)
			}
			if !a.hub.sees() || !c.node.hub.sees() {
				t.Error("somebody was attached")
			}
		})
	}
	if got := a.logs.lines("cause=cluster"); len(got) != 1 {
		t.Errorf("a complains %d times of the wrong cluster: %q", len(got), got)
	}
}

func TestAnotherVersionIsRefused(t *testing.T) {
	a := startNode(t, "a", nil)
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(helloBytes(t, func(h *hello) { h.Newest, h.Oldest = 9, 8 })); err != nil {
		t.Fatal(err)
	}
	typ, body, err := newReader(conn).one()
	if err != nil || typ != frameRefused {
		t.Fatalf("answered with type %d, %v", typ, err)
	}
	if r := parseRefusal(body); r.Cause != CauseVersion || !strings.Contains(r.Text, "speaks 8 to 9: upgrade one release at a time") {
		t.Errorf("refused with %+v", r)
	}
}

func TestVersionsThatOverlapMayLink(t *testing.T) {
	own := hello{Magic: helloMagic, Newest: 3, Oldest: 2, Kind: kindCore, Cluster: "c", ID: "a", Session: "s"}
	for _, c := range []struct {
		newest, oldest int
		may            bool
	}{{3, 2, true}, {2, 1, true}, {5, 3, true}, {1, 1, false}, {5, 4, false}} {
		peer := own
		peer.ID, peer.Newest, peer.Oldest = "b", c.newest, c.oldest
		if refused := own.judge(peer, kindCore); (refused == nil) != c.may {
			t.Errorf("versions %d to %d: %v", c.oldest, c.newest, refused)
		}
	}
}

func TestAnAddressThatLeadsToAnotherBrokerIsNoLink(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	wrong := b.member()
	wrong.ID = "c"
	a.SetMembers([]Member{wrong})
	testutil.EventuallyTrue(t, "a knows why", func() bool { return strings.Contains(a.peerOf("c").LastError, "is answered by broker") })
	if !a.hub.sees() {
		t.Error("a linked with a broker that it did not mean")
	}
}

func TestLeavingIsAnnouncedAndQuiet(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	linkAll(t, a, b)
	b.hub.set("late", "", 1)
	testutil.EventuallyTrue(t, "interest", func() bool { return a.hub.sees(b.hub) })
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	testutil.EventuallyTrue(t, "a knows that b leaves", func() bool { return a.Leaving("b") && a.peerOf("b").Leaving })
	a.hub.publish("late", "still served")
	testutil.EventuallyTrue(t, "b's last clients are served", func() bool { return len(b.hub.messages()) == 1 })

	b.Close()
	testutil.EventuallyTrue(t, "a has no peer", func() bool { return a.hub.sees() })
	attempts, began := a.peerOf("b").Attempts, time.Now()
	if warnings := a.logs.lines("WARN"); len(warnings) > 0 {
		t.Errorf("a warns of a peer that left on purpose: %q", warnings)
	}

	// Its successor is dialled.
	again := startNode(t, "b", ca)
	member := again.member()
	member.Incarnation = 2
	a.SetMembers([]Member{member})
	testutil.EventuallyTrue(t, "the successor is linked", func() bool { return a.peerOf("b").Up })
	// On a busy machine attempts fail, with a pause between them.
	if now := a.peerOf("b").Attempts; now > attempts+3+uint64(time.Since(began)/redialMax) {
		t.Errorf("a dialled %d times", now-attempts)
	}
}

func TestABacklogIsVisibleAndBounded(t *testing.T) {
	a, b := startNode(t, "a", nil), startNode(t, "b", nil)
	linkAll(t, a, b)
	letGo := b.hub.holdBack() // b's clients read nothing
	l, before := a.links()[0], a.peerOf("b").Generation
	m := session.Message{Subject: []byte("s"), Data: make([]byte, 1<<20)}
	a.hub.all(&m, true, nil)
	if l.Forward(&m, session.Reach{Plain: true}) {
		t.Error("behind at once")
	}
	for l.Pending() < maxPending+16<<20 { // Socket buffers take a few MiB.
		behind := l.Forward(&m, session.Reach{Plain: true})
		if pending := l.Pending(); !behind && pending > maxPending {
			t.Fatalf("not behind with %d bytes pending", pending)
		}
	}
	waited := make(chan struct{})
	go func() {
		l.Wait()
		close(waited)
	}()
	if p := a.peerOf("b"); p.Pending <= maxPending || p.Pending > maxPendingHard || !p.Up {
		t.Errorf("a's picture of b: %+v", p)
	}
	select {
	case <-waited:
		t.Error("publishers do not wait")
	default:
	}
	most := 0
	for l.alive() {
		a.hub.all(&m, true, nil)
		most = max(most, l.Pending())
	}
	if most > maxPendingHard+2<<20 {
		t.Errorf("%d bytes were pending", most)
	}
	<-waited // Wait returns when the link is down.
	letGo()
	testutil.EventuallyTrue(t, "the link is made again", func() bool { p := a.peerOf("b"); return p.Up && p.Generation > before })
	if p := a.peerOf("b"); p.Overflows != 1 || p.LostMessages < 60 || p.Pending > 1<<20 {
		t.Errorf("a's picture of b: %+v", p)
	}
	if len(a.logs.lines("WARN", "more is pending", "lost_messages=")) != 1 {
		t.Error("the overflow is not in the log")
	}
}

func TestCloseEndsEverythingAtAnyMoment(t *testing.T) {
	for i := range 20 {
		a, b := startNode(t, "a", nil), startNode(t, "b", nil)
		silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, in its backlog, and never answers
		if err != nil {
			t.Fatal(err)
		}
		a.SetMembers([]Member{b.member(), {ID: "x", Name: "x", Route: silent.Addr().String()}, {ID: "y", Name: "y", Route: "127.0.0.1:1"}})
		if i%2 == 0 {
			testutil.EventuallyTrue(t, "linked", func() bool { return a.peerOf("b").Up })
		}
		a.Close()
		b.Close()
		silent.Close()
		if !a.hub.sees() || !b.hub.sees() {
			t.Fatal("a peer is still attached")
		}
	}
}
