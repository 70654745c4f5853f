package route

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

// testHub is the least Hub that a link needs. It keeps the interest of its own side, the interest
// that each peer announced, and every message that arrived.
type testHub struct {
	mu       sync.Mutex
	own      map[session.Interest]int
	peers    []*testPeer
	received []string
	open     bool // something was delivered and not flushed
	attaches int
	gate     chan struct{} // if set, Wait blocks until it is closed
	full     bool          // each message asks for Wait
}

type testPeer struct {
	hub      *testHub
	link     session.Link
	interest map[session.Interest]int
}

func newTestHub() *testHub { return &testHub{own: make(map[session.Interest]int)} }

func (h *testHub) Attach(l session.Link, _ string) (ClientSide, []session.Interest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &testPeer{hub: h, link: l, interest: make(map[session.Interest]int)}
	h.peers = append(h.peers, p)
	h.attaches++
	var all []session.Interest
	for i, count := range h.own {
		i.Count = count
		all = append(all, i)
	}
	return p, all
}

func (p *testPeer) SetInterest(i session.Interest) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if i.Count == 0 {
		delete(p.interest, session.Interest{Pattern: i.Pattern, Queue: i.Queue})
		return
	}
	p.interest[session.Interest{Pattern: i.Pattern, Queue: i.Queue}] = i.Count
	p.hub.received = append(p.hub.received, "interest "+i.Pattern)
}

func (p *testPeer) Deliver(m *session.Message, reach session.Reach) (full bool) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.hub.open = true
	p.hub.received = append(p.hub.received, fmt.Sprintf("%s|%s|%s|%s|%v|%s", m.Subject, m.Reply, m.Data[:m.Header], m.Data[m.Header:], reach.Plain, strings.Join(reach.Queues, ",")))
	return p.hub.full
}

func (p *testPeer) Flush() {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.hub.open = false
}

// holdBack blocks the links that bring messages, as slow clients do, until the returned function is
// called, once or several times.
func (h *testHub) holdBack() (letGo func()) {
	gate := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (p *testPeer) Wait() {
	p.hub.mu.Lock()
	gate := p.hub.gate
	p.hub.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (p *testPeer) Detach() {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	for i := range p.hub.peers {
		if p.hub.peers[i] == p {
			p.hub.peers = append(p.hub.peers[:i:i], p.hub.peers[i+1:]...)
			return
		}
	}
	panic("a peer was detached twice")
}

// set sets the interest of this broker's own clients. A count of 0 ends it.
func (h *testHub) set(pattern, queue string, count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := session.Interest{Pattern: pattern, Queue: queue}
	if count == 0 {
		delete(h.own, key)
	} else {
		h.own[key] = count
	}
	for _, p := range h.peers {
		p.link.Announce(session.Interest{Pattern: pattern, Queue: queue, Count: count})
	}
}

// publish forwards to every peer that announced exactly this subject.
func (h *testHub) publish(subject, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := session.Message{Subject: []byte(subject), Data: []byte(payload)}
	for _, p := range h.peers {
		if p.interest[session.Interest{Pattern: subject}] > 0 {
			p.link.Forward(&m, session.Reach{Plain: true})
		}
	}
}

// all forwards to every peer, whatever its interest.
func (h *testHub) all(m *session.Message, plain bool, queues []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.peers {
		p.link.Forward(m, session.Reach{Plain: plain, Queues: queues})
	}
}

func (h *testHub) interest() map[session.Interest]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.own)
}

// messages returns the messages that arrived.
func (h *testHub) messages() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []string
	for _, r := range h.received {
		if !strings.HasPrefix(r, "interest ") {
			got = append(got, r)
		}
	}
	return got
}

// sees reports whether h has exactly one peer per other hub, with exactly its interest.
func (h *testHub) sees(others ...*testHub) bool {
	var want []map[session.Interest]int
	for _, o := range others {
		want = append(want, o.interest())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.peers) != len(want) {
		return false
	}
	for _, p := range h.peers {
		found := false
		for i := range want {
			if maps.Equal(p.interest, want[i]) {
				want = append(want[:i:i], want[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
