package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// notices lists what a broker was notified of.
type notices struct {
	mu  sync.Mutex
	all []string
}

func (n *notices) take(from string, notice []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if string(notice) == "broken" {
		return errors.New("it is broken")
	}
	n.all = append(n.all, from+" "+string(notice))
	return nil
}

func (n *notices) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

const noted coordination.Feature = "noted"

func notifying(n *notices) func(*Config) {
	return func(c *Config) { c.Notices, c.Features = n.take, coordination.MakeFeatureSet(noted) }
}

// TestAfterSyncPeersHaveHandledAll: interest, messages and notices that were queued before.
func TestAfterSyncPeersHaveHandledAll(t *testing.T) {
	ca := newAuthority(t)
	var ofB, ofC notices
	a := startNode(t, "a", ca, notifying(&notices{}))
	b, c := startNode(t, "b", ca, notifying(&ofB)), startNode(t, "c", ca, func(config *Config) { config.Notices = ofC.take })
	b.hub.set("work", "", 1)
	linkAll(t, a, b, c)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for i := range 200 {
		a.hub.publish("work", fmt.Sprint("message ", i))
		a.Notify(noted, fmt.Append(nil, "notice ", i))
		a.hub.set(fmt.Sprint("interest.", i), "", 1)
		if late := a.Sync(ctx, noted); late > 0 {
			t.Fatalf("%d brokers have not answered", late)
		}
		if n := len(ofB.list()); n != i+1 {
			t.Fatalf("%d notices after %d calls", n, i+1)
		}
		if n := len(b.hub.messages()); n != i+1 {
			t.Fatalf("%d messages after %d calls", n, i+1)
		}
		if !b.hub.sees(a.hub, c.hub) {
			t.Fatal("the interest has not arrived")
		}
	}
	if got := ofB.list()[7]; got != "a notice 7" {
		t.Errorf("the notice is %q", got)
	}
	if got := ofC.list(); len(got) > 0 {
		t.Errorf("a broker without the feature was notified of %q", got)
	}
}

// TestAfterSyncWhatPeersHaveSentIsHandled: what they had queued for this broker before the call.
func TestAfterSyncWhatPeersHaveSentIsHandled(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca, notifying(&notices{}))
	a.hub.set("work", "", 1)
	linkAll(t, a, b)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for i := range 200 {
		b.hub.publish("work", fmt.Sprint("message ", i))
		if late := a.Sync(ctx, noted); late > 0 {
			t.Fatalf("%d brokers have not answered", late)
		}
		if n := len(a.hub.messages()); n != i+1 {
			t.Fatalf("%d messages after %d calls", n, i+1)
		}
	}
}

// TestSyncWaitsForAPeerThatDoesNotRead: until its time is over, or the link ends.
func TestSyncWaitsForAPeerThatDoesNotRead(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca, notifying(&notices{}))
	b.hub.set("work", "", 1)
	linkAll(t, a, b)
	letGo := b.hub.holdBack()
	defer letGo()
	a.hub.publish("work", "x")
	testutil.EventuallyTrue(t, "the message arrives", func() bool { return len(b.hub.messages()) == 1 })
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if late := a.Sync(soon, noted); late != 1 {
		t.Error("the peer has handled nothing, and is not late")
	}
	letGo()
	testutil.EventuallyTrue(t, "it has answered", func() bool { return a.Sync(t.Context(), noted) == 0 })
	again := b.hub.holdBack()
	defer again()
	a.hub.publish("work", "y")
	testutil.EventuallyTrue(t, "the next message arrives", func() bool { return len(b.hub.messages()) == 2 })
	over := make(chan int, 1)
	go func() { over <- a.Sync(t.Context(), noted) }()
	testutil.EventuallyTrue(t, "it waits", func() bool {
		l := a.links()[0]
		l.barrier.mu.Lock()
		defer l.barrier.mu.Unlock()
		return len(l.barrier.waits) == 1
	})
	if len(over) > 0 {
		t.Error("it does not wait for the peer")
	}
	again()
	if late := <-over; late != 0 {
		t.Error("the peer is late")
	}
	go b.Close()
	for len(a.links()) > 0 {
		a.Sync(t.Context(), noted)
	}
}

// TestALateBrokerIsWaitedForOnce: until it has answered. One without the feature is not at all.
func TestALateBrokerIsWaitedForOnce(t *testing.T) {
	ca := newAuthority(t)
	a, b, c := startNode(t, "a", ca), startNode(t, "b", ca, notifying(&notices{})), startNode(t, "c", ca)
	b.hub.set("work", "", 1)
	c.hub.set("work", "", 1)
	linkAll(t, a, b, c)
	letGo, letGoC := b.hub.holdBack(), c.hub.holdBack()
	defer letGoC()
	defer letGo()
	a.hub.publish("work", "x")
	testutil.EventuallyTrue(t, "the message arrives", func() bool { return len(b.hub.messages()) == 1 && len(c.hub.messages()) == 1 })
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if late := a.Sync(soon, noted); late != 1 {
		t.Errorf("%d brokers are late", late)
	}
	testutil.EventuallyTrue(t, "it is late for long enough", func() bool {
		for _, l := range a.links() {
			l.barrier.mu.Lock()
			late := len(l.barrier.waits) > 0 && l.barrier.waits[0].since <= a.now()-lateAfter
			l.barrier.mu.Unlock()
			if late {
				return true
			}
		}
		return false
	})
	if late := a.Sync(t.Context(), noted); late != 1 { // it would wait forever
		t.Errorf("%d brokers are late, and were not waited for", late)
	}
	letGo()
	testutil.EventuallyTrue(t, "it has answered", func() bool { return a.Sync(t.Context(), noted) == 0 })
}

// slowTopics are Topics that handle a read when they are let go.
type slowTopics struct {
	testTopics
	let chan struct{}
}

func (x *slowTopics) Attach(broker string, way Carrier) TopicsSide {
	x.testTopics.Attach(broker, way)
	return x
}

func (x *slowTopics) Flush() {
	<-x.let
	x.testTopics.Flush()
}

// TestSyncWaitsForWhatTopicsHandle: they do so at the end of a read, which may bring the ping, too.
func TestSyncWaitsForWhatTopicsHandle(t *testing.T) {
	var xa testTopics
	xb := slowTopics{let: make(chan struct{})}
	a := startNode(t, "a", nil, func(c *Config) { xa.hub = c.Hub.(*testHub); c.Topics = &xa })
	b := startNode(t, "b", nil, notifying(&notices{}), func(c *Config) { xb.hub = c.Hub.(*testHub); c.Topics = &xb })
	b.hub.set("work", "", 1)
	linkAll(t, a, b)
	letGo := b.hub.holdBack()
	defer letGo()
	a.hub.publish("work", "x")
	testutil.EventuallyTrue(t, "b's reader is held back", func() bool { return len(b.hub.messages()) == 1 })
	xa.way.Carry([]byte("a frame"))
	over := make(chan int, 1)
	go func() { over <- a.Sync(t.Context(), noted) }()
	testutil.EventuallyTrue(t, "both are on their way", func() bool {
		l := a.links()[0]
		l.barrier.mu.Lock()
		defer l.barrier.mu.Unlock()
		return len(l.barrier.waits) == 1 && l.Pending() == 0
	})
	letGo()
	testutil.EventuallyTrue(t, "b has the frame", func() bool { return xb.called() == 1 })
	select {
	case late := <-over:
		t.Error("Topics have not handled the frame")
		over <- late
	case <-time.After(50 * time.Millisecond):
	}
	close(xb.let)
	if late := <-over; late != 0 {
		t.Error("the peer is late")
	}
	if n := xb.called(); n < 2 {
		t.Error("Topics were not called")
	}
}

// TestABrokenNoticeEndsItsLink, and one that the receiver has not asked for.
func TestABrokenNoticeEndsItsLink(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca, notifying(&notices{}))
	linkAll(t, a, b)
	before := a.links()[0]
	a.Notify(noted, []byte("broken"))
	<-before.done
	testutil.EventuallyTrue(t, "they are linked again", func() bool {
		ofA, ofB := a.links(), b.links()
		if len(ofA) != 1 || len(ofB) != 1 || !ofA[0].up.Load() || !ofB[0].up.Load() {
			return false
		}
		before = ofB[0]
		return true
	})
	before.sendControl(func(f *frames) { f.opaque(frameNotice, []byte("x")) })
	<-before.done
}
