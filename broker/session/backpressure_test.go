package session

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func newHubOf(t *testing.T, loops int) *Hub {
	t.Helper()
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	return NewHub(Config{Profile: profile, Loops: loops, Ping: time.Hour})
}

// piped connects a client by a pipe. Its output is discarded. sends writes input, and tells whether
// it was read.
func piped(t *testing.T, h *Hub) (sends func(text string) (read *atomic.Bool)) {
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	go io.Copy(io.Discard, client)
	h.accept(server, false)
	sends = func(text string) *atomic.Bool {
		read := new(atomic.Bool)
		go func() {
			_, err := io.WriteString(client, text)
			read.Store(err == nil)
		}()
		synctest.Wait()
		return read
	}
	if !sends("CONNECT {\"verbose\":false}\r\n").Load() {
		t.Fatal("CONNECT is not read")
	}
	return sends
}

// TestAFloodIsServedInPortions: a portion ends with its writes. What is for another connection is
// written before the messages behind it are served, and a message with more receivers than a
// portion is divided. The message's memory is kept until its last receiver is served.
func TestAFloodIsServedInPortions(t *testing.T) {
	h := newHubOf(t, 1)
	defer h.Close()
	l := h.loops[0]
	conn := func(id uint64) *Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		go io.Copy(io.Discard, near)
		return newConn(h, id, far, false)
	}
	flooded, other := conn(1), conn(2)
	const receivers = 3 * portionDeliveries
	many := make([]*Sub, receivers)
	for i := range many {
		many[i] = &Sub{conn: flooded, sid: "1"}
	}
	flood := func() entry {
		return entry{kind: deliverMany, subs: many, msg: visible{Subject: []byte("a")}, from: newSlab(1), ownsSlab: true}
	}
	entries := []entry{flood(), {kind: deliverOne, sub: &Sub{conn: other, sid: "1"}, msg: visible{Subject: []byte("b")}}, flood()}
	memory := entries[0].from
	memory.Retain() // by this test
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(entries, 2*receivers+1, 3)
	portions := 0
	for left, more := 2*receivers+1, true; more; portions++ {
		more = l.drain()
		if served := left - l.deliveries; served > portionDeliveries+clockEvery || served == 0 {
			t.Fatalf("portion %d has %d deliveries", portions, served)
		}
		left = l.deliveries
		if total := flooded.outMsgs.Load() + other.outMsgs.Load(); len(l.dirty) > 0 || int(total) != 2*receivers+1-left {
			t.Fatalf("%d messages are written when %d are to be served", total, left)
		}
		if kept, first := memory.refs.Load() == 2, left > receivers+1; kept != first {
			t.Fatalf("the memory is kept: %v, with %d deliveries left", kept, left)
		}
		if left > 2*portionDeliveries && left < receivers && other.outMsgs.Load() == 0 {
			t.Fatal("the other connection's message waits for what is behind it")
		}
	}
	single := make([]entry, 2*portionDeliveries)
	for i := range single {
		single[i] = entry{kind: deliverOne, sub: many[i], msg: visible{Subject: []byte("a")}}
	}
	l.push(single, len(single), len(single))
	if l.drain(); len(single)-l.deliveries > portionDeliveries+clockEvery {
		t.Errorf("a portion has %d entries", len(single)-l.deliveries)
	}
	for l.drain() {
	}
	if l.deliveries != 0 || l.unserved() != 0 || other.outMsgs.Load() != 1 || portions < 6 {
		t.Errorf("%d deliveries and %d bytes are left after %d portions", l.deliveries, l.unserved(), portions)
	}
}

// TestWhatIsQueuedClosesNoReceiver: a receiver gets no processor for a while. Its publishers send
// as much as they may: as long as the loop is not behind and nothing says that the receiver is
// close to its bound. Then they wait, and what is queued by then does not close the receiver. It
// reads all once it runs again, and is not close to its bound any more.
func TestWhatIsQueuedClosesNoReceiver(t *testing.T) {
	for _, name := range []string{"small", "medium"} {
		synctest.Test(t, func(t *testing.T) {
			profile, err := limits.ForProfile(name)
			testutil.Must(t, err)
			h := NewHub(Config{Profile: profile, Loops: 1, Ping: time.Hour})
			defer h.Close()
			near, far := net.Pipe()
			defer near.Close()
			l, c := h.loops[0], newConn(h, 1, far, false)
			const read = 64 << 10 // of a publisher
			sub := []*Sub{{conn: c, sid: "1"}}
			slab := newSlab(read)
			defer slab.Release()
			entries := make([]entry, 64)
			for i := range entries {
				part := slab.buf[i*read/len(entries):][:read/len(entries)]
				entries[i] = entry{kind: deliverMany, subs: sub, msg: visible{Subject: []byte("a"), Data: part}, from: slab}
			}
			sent := 0
			l.mu.Lock()
			for more := true; more || !c.nearBound.Load(); more = l.drain() {
				for !c.nearBound.Load() && !l.isBehind() {
					l.push(entries, len(entries), len(entries)*entries[0].size())
					sent += len(entries)
				}
			}
			l.mu.Unlock()
			if !c.nearBound.Load() || c.closed() {
				t.Fatalf("%s: close to its bound: %v, closed: %v, with %d MiB pending", name, c.nearBound.Load(), c.closed(), c.pending.Load()>>20)
			}
			if held := c.held.Load(); held < profile.Pending/2 {
				t.Errorf("%s: publishers wait when it holds %d MiB of %d", name, held>>20, profile.Pending>>20)
			}
			line := fmt.Sprintf("MSG a 1 %d\r\n", read/len(entries))
			if _, err := io.CopyN(io.Discard, near, int64(sent*(len(line)+read/len(entries)+len(crlf)))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if c.nearBound.Load() || c.pending.Load() != 0 || c.parked {
				t.Errorf("%s: it has read all, and is close to its bound", name)
			}
		})
	}
}

// TestALargeMessageTakesMoreOfAPortion: what takes longer counts more, so that the clock is read in
// time.
func TestALargeMessageTakesMoreOfAPortion(t *testing.T) {
	if a, b := strideOf(100), strideOf(8<<20); a != clockEvery || b != 1 {
		t.Errorf("the clock is read after %d small and %d large deliveries", a, b)
	}
	var p portion
	for p.count(1, 8<<20); !p.full(); p.count(1, 8<<20) {
		time.Sleep(portionTime / 4)
	}
	if p.deliveries > 6 {
		t.Errorf("%d deliveries within %v", p.deliveries, portionTime)
	}
}

// TestAnIdleLoopKeepsNothing: it gives back the memory of its queue, and has served what nobody
// woke it for. One that is in use keeps its queue for what comes next.
func TestAnIdleLoopKeepsNothing(t *testing.T) {
	l := newLoop(&Hub{}, 0)
	s := &Sub{}
	l.pushOne(entry{kind: endSub, sub: s})
	l.rest() // it is in use
	if len(l.wake) > 0 {
		t.Fatal("a loop in use is woken")
	}
	l.rest()
	if len(l.wake) == 0 {
		t.Fatal("nobody serves the end of the subscription")
	}
	l.drain()
	if !s.ended || l.spare == nil {
		t.Fatal("it is not served, or its memory is not kept for the next one")
	}
	l.rest()
	if l.spare != nil || l.queue != nil {
		t.Error("an idle loop keeps memory")
	}
}

// TestALoopIsBehindUntilHalfIsServed: deliveries count, not entries. Whoever waits is woken for
// more than one message.
func TestALoopIsBehindUntilHalfIsServed(t *testing.T) {
	h := newHubOf(t, 1)
	defer h.Close()
	l := h.loops[0]
	const room = limits.LoopDeliveries - limits.BatchDeliveries
	if l.push(nil, room, 0) {
		t.Error("behind with room for another batch")
	}
	if !l.push(nil, 1, 0) {
		t.Error("not behind without room for another batch")
	}
	if l.served(room-limits.LoopDeliveries/2, 0); !l.behind.Load() {
		t.Error("not behind with more than half")
	}
	if l.served(1, 0); l.behind.Load() {
		t.Error("behind with half")
	}
	if !l.push(nil, 0, limits.LoopBacklog+1) {
		t.Error("not behind with too many bytes")
	}
	if l.served(0, limits.LoopBacklog/2+1); l.behind.Load() {
		t.Error("behind with half of the bytes")
	}
}

// TestAReaderWaitsForWhatItPublishedTo: a loop is behind. A client whose messages go to the other
// loop, or to nobody, is read on. One whose message goes to the loop that is behind waits.
func TestAReaderWaitsForWhatItPublishedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 2)
		defer h.Close()
		piped(t, h)("SUB slow 1\r\n") // loop 1
		piped(t, h)("SUB fast 1\r\n") // loop 0
		piped(t, h)
		publisher := piped(t, h)
		const many = 2 * limits.LoopDeliveries
		h.loops[1].push(nil, many, 0)
		for range 3 {
			if !publisher("PUB fast 1\r\nx\r\nPUB nobody 1\r\nx\r\nPING\r\n").Load() {
				t.Fatal("the publisher waits for a loop that gets nothing from it")
			}
		}
		publisher("PUB slow 1\r\nx\r\nPUB fast 1\r\nx\r\n")
		next := publisher("PUB fast 1\r\nx\r\n")
		if next.Load() {
			t.Error("the publisher does not wait for its message's loop")
		}
		h.loops[1].served(many, 0)
		if synctest.Wait(); !next.Load() {
			t.Error("the publisher still waits")
		}
		// So is the end of a subscription an entry for its own loop.
		h.loops[0].push(nil, many, 0)
		publisher("SUB a 1\r\nUNSUB 1\r\n")
		if next = publisher("PING\r\n"); next.Load() {
			t.Error("it does not wait for the end of its subscription")
		}
		h.loops[0].served(many, 0)
		synctest.Wait()
	})
}

// TestAQueueHoldsItsBoundAndOneMessage: one read brings thousands of messages for 200 receivers,
// while the loop does not run. The queue is bounded all the same: the reader keeps the rest of its
// input. Each further publisher adds a single message. Then all arrives.
func TestAQueueHoldsItsBoundAndOneMessage(t *testing.T) {
	const receivers, messages = 200, 5000
	h := newHubOf(t, 1)
	defer h.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var served sync.WaitGroup
	defer served.Wait()
	defer ln.Close()
	served.Go(func() { _ = h.Serve(ln) })
	dial := func(text string) (net.Conn, *bufio.Reader) {
		nc, err := net.Dial("tcp", ln.Addr().String())
		testutil.Must(t, err)
		t.Cleanup(func() { nc.Close() })
		testutil.Must(t, nc.SetDeadline(time.Now().Add(testutil.Patience)))
		in := bufio.NewReader(nc)
		_, err = io.WriteString(nc, "CONNECT {\"verbose\":false}\r\n"+text+"PING\r\n")
		testutil.Must(t, err)
		for _, want := range []string{"INFO", "PONG"} {
			if got, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
				t.Fatalf("got %q, %v, want %s", got, err, want)
			}
		}
		return nc, in
	}
	var subs strings.Builder
	for i := range receivers {
		fmt.Fprintf(&subs, "SUB a %d\r\n", i)
	}
	_, in := dial(subs.String())
	flooder, _ := dial("")
	second, _ := dial("")
	l := h.loops[0]
	l.mu.Lock()
	release := sync.OnceFunc(l.mu.Unlock)
	defer release()
	flood := strings.Repeat("PUB a 0\r\n\r\n", messages)
	for i, nc := range []net.Conn{flooder, second} {
		_, err := io.WriteString(nc, flood)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "the publisher waits", func() bool { return h.Stats().Stalls == uint64(i+1) })
		l.in.Lock()
		queued := l.deliveries
		l.in.Unlock()
		if most := limits.LoopDeliveries + (i+1)*receivers; queued > most || queued <= limits.LoopDeliveries-limits.BatchDeliveries {
			t.Errorf("%d publishers: %d deliveries are queued, of at most %d", i+1, queued, most)
		}
	}
	release()
	for i := range 2 * messages * receivers * 2 {
		if _, err := in.ReadSlice('\n'); err != nil {
			t.Fatalf("after %d lines: %v", i, err)
		}
	}
	if n := h.Stats().InMsgs; n != 2*messages {
		t.Errorf("%d messages came", n)
	}
}

// heldLink is a link that is behind while it is held.
type heldLink struct {
	held  atomic.Bool
	waits atomic.Int64
}

func (l *heldLink) Forward(*Message, Reach) bool { return l.held.Load() }
func (l *heldLink) Wait()                        { l.waits.Add(1) }
func (l *heldLink) Announce(Interest)            {}

// TestWhatIsSentNamesWhatIsBehind: messages of this broker itself come back with the loops and
// links that they went to and that are behind, and with no others.
func TestWhatIsSentNamesWhatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 2)
		defer h.Close()
		piped(t, h)("SUB slow 1\r\n") // loop 1
		piped(t, h)("SUB fast 1\r\n") // loop 0
		free, stuck := &heldLink{}, &heldLink{}
		for broker, link := range map[string]*heldLink{"free": free, "stuck": stuck} {
			peer, _ := h.Attach(link, broker)
			peer.SetInterest(Interest{Pattern: broker, Count: 1})
			defer peer.Detach()
		}
		stuck.held.Store(true)
		const many = 2 * limits.LoopDeliveries
		h.loops[1].push(nil, many, 0)
		behind := func(on string) (loop, link bool) {
			b := h.Send([]Message{{Subject: []byte(on)}})
			soon, lent := h.SendSoon([]Message{{Subject: []byte(on)}}), h.SendLent(Borrow(1), []Message{{Subject: []byte(on)}})
			if published := h.Publish([]Message{{Subject: []byte(on)}}); b.Any() != soon.Any() || b.Any() != lent.Any() || b.Any() != published.Any() {
				t.Errorf("%s: what is behind depends on the way it is sent", on)
			}
			waits, done := stuck.waits.Load(), new(atomic.Bool)
			go func() {
				b.Wait()
				done.Store(true)
			}()
			synctest.Wait()
			return !done.Load(), stuck.waits.Load() > waits
		}
		for on, want := range map[string][2]bool{"nobody": {}, "fast": {}, "free": {}, "slow": {true, false}, "stuck": {false, true}} {
			if loop, link := behind(on); loop != want[0] || link != want[1] {
				t.Errorf("%s: waits for the loop: %v, for the link: %v", on, loop, link)
			}
		}
		for broker, want := range map[string]bool{"free": false, "stuck": true} {
			if linked, behind := h.Forward(broker, &Message{Subject: []byte("a")}); !linked || behind.Any() != want {
				t.Errorf("forwarded to %s: linked %v, behind %v", broker, linked, behind.Any())
			}
		}
		h.loops[1].served(many, 0)
	})
}

// TestALinkWaitsWithinARead: a link's reader is asked to wait after as many deliveries as a
// publisher's, and only for loops that its own messages went to.
func TestALinkWaitsWithinARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 2)
		defer h.Close()
		const receivers = 100
		var subs strings.Builder
		for i := range receivers {
			fmt.Fprintf(&subs, "SUB slow %d\r\n", i)
		}
		piped(t, h)(subs.String())    // loop 1
		piped(t, h)("SUB fast 1\r\n") // loop 0
		peer, _ := h.Attach(&heldLink{}, "b2")
		defer peer.Detach()
		deliver := func(on string) bool { return peer.Deliver(&Message{Subject: []byte(on)}, Reach{Plain: true}) }
		n := 1
		for ; !deliver("slow"); n++ {
		}
		if want := (limits.BatchDeliveries + receivers - 1) / receivers; n != want {
			t.Errorf("asked to wait after %d messages, not %d", n, want)
		}
		peer.Flush()
		peer.Wait()
		const many = 2 * limits.LoopDeliveries
		h.loops[1].push(nil, many, 0)
		waits := func(on string) bool {
			done := new(atomic.Bool)
			full := deliver(on)
			peer.Flush()
			go func() {
				peer.Wait()
				done.Store(true)
			}()
			if synctest.Wait(); full == done.Load() {
				t.Errorf("%s: Deliver reports %v, and Wait has returned: %v", on, full, done.Load())
			}
			return !done.Load()
		}
		if waits("fast") || !waits("slow") {
			t.Error("a link waits for a loop that got nothing from it, or not for its own")
		}
		h.loops[1].served(many, 0)
		synctest.Wait()
	})
}
