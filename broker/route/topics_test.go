package route

import (
	"fmt"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// testTopics is the least Topics that a link needs. Its Take fails the test while messages are
// delivered and not flushed.
type testTopics struct {
	hub *testHub

	mu    sync.Mutex
	way   Carrier
	calls []string
}

func (x *testTopics) Attach(_ string, way Carrier) TopicsSide {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.way = way
	return x
}

func (x *testTopics) note(what string) {
	x.hub.mu.Lock()
	open := x.hub.open
	x.hub.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls = append(x.calls, fmt.Sprintf("%s, open %v", what, open))
}

func (x *testTopics) Take([]byte) error { x.note("take"); return nil }
func (x *testTopics) Flush()            { x.note("flush") }
func (x *testTopics) Detach()           { x.note("detach") }

func (x *testTopics) called() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.calls)
}

// TestMessagesAreDeliveredBeforeTopicsFramesAreHandled: one read brings messages and a Topics frame
// between them. While messages are delivered, the hub's index is locked. The handler of the frame
// may need that lock, and with a change of interest waiting in between both would deadlock.
func TestMessagesAreDeliveredBeforeTopicsFramesAreHandled(t *testing.T) {
	var xa, xb testTopics
	a := startNode(t, "a", nil, func(c *Config) { xa.hub = c.Hub.(*testHub); c.Topics = &xa })
	b := startNode(t, "b", nil, func(c *Config) { xb.hub = c.Hub.(*testHub); c.Topics = &xb })
	linkAll(t, a, b)
	letGo := b.hub.holdBack()
	message := func(subject string) {
		a.hub.all(&session.Message{Subject: []byte(subject), Data: make([]byte, 100)}, true, nil)
	}
	message("first")
	testutil.EventuallyTrue(t, "b's reader is held back", func() bool { return len(b.hub.messages()) == 1 })
	message("second")
	xa.way.Carry([]byte("a frame"))
	message("third")
	testutil.EventuallyTrue(t, "all of it is on its way", func() bool { return a.links()[0].Pending() == 0 })
	letGo()
	testutil.EventuallyTrue(t, "b has it", func() bool { return len(b.hub.messages()) == 3 && xb.called() == 2 })
	for _, l := range b.links() {
		l.raw.Close()
	}
	testutil.EventuallyTrue(t, "the link has ended", func() bool { return xb.called() > 2 })
	xb.mu.Lock()
	defer xb.mu.Unlock()
	if got := fmt.Sprint(xb.calls[:3]); got != "[take, open false flush, open false detach, open false]" {
		t.Errorf("Topics were called: %s", got)
	}
}
