package session

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAnEmptyWriteLeavesNoSegment: a writer would try forever to write it.
func TestAnEmptyWriteLeavesNoSegment(t *testing.T) {
	var o outbox
	o.write(nil)
	if !o.empty() || len(o.segments) > 0 {
		t.Errorf("%d segments of %d bytes", len(o.segments), o.size)
	}
}

// TestWhatWaitsTakesTheMemoryThatCounts: a client that reads nothing is sent thousands of small
// lines, each in a flush of its own. The slabs that they wait in are not much larger than what is
// counted as pending, and all of it arrives in order.
func TestWhatWaitsTakesTheMemoryThatCounts(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, Loops: 1})
	defer h.Close()
	near, far := net.Pipe()
	defer near.Close()
	c := newConn(h, 1, far, false)
	const lines = 5000
	var want []byte
	for i := range lines {
		line := []byte{byte(i), byte(i >> 8)}
		want = append(want, line...)
		c.loop.mu.Lock()
		c.out.write(line)
		c.write()
		c.loop.mu.Unlock()
	}
	c.parking.Lock()
	memory := 0
	for _, s := range c.waiting.segments { // of which none shares its slab
		memory += len(s.slab.buf)
	}
	c.parking.Unlock()
	if pending := int(c.pending.Load()); pending != 2*lines || memory > 2*pending+firstChunk || int(c.held.Load()) < memory {
		t.Errorf("%d bytes are pending and take %d", pending, memory)
	}
	got := make([]byte, len(want))
	testutil.Must(t, near.SetReadDeadline(time.Now().Add(testutil.Patience)))
	if _, err := io.ReadFull(near, got); err != nil || string(got) != string(want) {
		t.Errorf("what arrived is not what was sent: %v", err)
	}
}
