package replica

import (
	"bytes"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drain reads until the connection ends.
func drain(c net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// TestAMalformedFrameOfAFollowerEndsItsConnection: a malformed frame of a follower ends its
// connection with one log line, and has no other effect.
func TestAMalformedFrameOfAFollowerEndsItsConnection(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		for what, bytes := range map[string][]byte{
			"no frame":          []byte("GET / HTTP/1.1\r\n\r\n"),
			"an unknown type":   {0, 0, 0, 1, 99},
			"a leader's frame":  appendHigh(nil, 1, &someMarks),
			"an ask cut short":  {0, 0, 0, 3, byte(frameAsk), 1, 2},
			"an ack cut short":  {0, 0, 0, 3, byte(frameAck), 1, 2},
			"a leave cut short": {0, 0, 0, 2, byte(frameLeave), 1},
		} {
			near, far := net.Pipe()
			w.wires.carriers.Go(func() { a.x.Serve(far, "stranger") })
			w.wires.carriers.Go(func() { drain(near) })
			_, _ = near.Write(bytes)
			synctest.Wait()
			if _, err := near.Write([]byte{0}); err == nil {
				t.Errorf("%s: the connection goes on", what)
			}
			near.Close()
		}
		if n := strings.Count(a.out.String(), "Ended a replication connection for what came over it"); n != 6 {
			t.Errorf("%d lines in the log", n)
		}
		a.publish(orders, "two")
		if w.wires.dials != 1 {
			t.Errorf("others were disturbed: %d dials", w.wires.dials)
		}
	})
}

// TestInventedFramesOfAFollowerAreHarmless: a follower may ack what it never received, leave a
// stream that it never had, and ask for unknown shards.
func TestInventedFramesOfAFollowerAreHarmless(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b")
		a := w.nodes["a"]
		a.publish(orders, "one")
		near, far := net.Pipe()
		w.wires.carriers.Go(func() { a.x.Serve(far, "stranger") })
		w.wires.carriers.Go(func() { drain(near) })
		stranger := someAsk
		stranger.ID, stranger.epoch = orders, 1
		nothing := someAsk
		nothing.stream, nothing.Topic = 9, "nothing"
		b := appendAck(nil, 1, Data, 1<<40)
		b = appendLeave(b, 2)
		b = appendAsk(b, &stranger)
		b = appendAck(b, stranger.stream, Data, 1<<40)
		b = appendAsk(b, &nothing)
		b = appendAck(b, 9, State, 1<<40)
		if _, err := near.Write(b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if high := a.leads[orders].High(Data); high != 2 {
			t.Errorf("the watermark is at %d", high)
		}
		if _, err := near.Write(appendBeat(nil)); err != nil {
			t.Error("it was cut off for what only doesn't count")
		}
		near.Close()
		a.publish(orders, "two")
	})
}

// heard is what a leader sends on a connection: the refusals, and how many data frames by stream.
type heard struct {
	mu       sync.Mutex
	refusals []refusal
	data     map[uint32]int
	ended    bool
}

func (h *heard) read(c net.Conn) {
	r := newReader(c, dataBuffer, maxFrame)
	for {
		if _, err := r.fill(); err != nil {
			break
		}
		for {
			t, body, ok, err := r.next()
			if !ok || err != nil {
				break
			}
			h.mu.Lock()
			switch t {
			case frameRefused:
				if said, err := parseRefusal(body); err == nil {
					h.refusals = append(h.refusals, said)
				}
			case frameData:
				if d, err := parseData(body); err == nil {
					h.data[d.stream]++
				}
			}
			h.mu.Unlock()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// take returns what came since the last call.
func (h *heard) take() (refusals []refusal, data map[uint32]int, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	refusals, data = h.refusals, h.data
	h.refusals, h.data = nil, map[uint32]int{}
	return refusals, data, h.ended
}

// TestAMalformedAskEndsItsStreamOnly: a malformed ask or fetch ends its stream, with a reason. The
// other streams of the connection go on, and the stream works again after a well-formed ask.
func TestAMalformedAskEndsItsStreamOnly(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.store.register("x")
		payments := ID{Topic: "payments"}
		w.place(orders, 1, "a (x)")
		w.place(payments, 1, "a (x)")
		a := w.nodes["a"]
		near, far := net.Pipe()
		w.wires.carriers.Go(func() { a.x.Serve(far, "x") })
		h := &heard{data: map[uint32]int{}}
		w.wires.carriers.Go(func() { h.read(near) })
		write := func(b []byte) {
			t.Helper()
			if _, err := near.Write(b); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		asks := func(id ID, stream, round uint32) *ask {
			empty := Lineage{Start: 1, End: 1}
			return &ask{requestHead: requestHead{stream: stream, round: round, ID: id, epoch: 1}, incarnation: w.store.lives()["x"],
				logs: [Parts]Lineage{empty, empty}, safe: [Parts]uint64{1, 1}}
		}
		write(appendAsk(nil, asks(orders, 1, 1)))
		write(appendAsk(nil, asks(payments, 2, 1)))
		both := func(what string, want map[uint32]int, refused ...uint32) {
			t.Helper()
			a.append(orders, Data, true, what)
			a.append(payments, Data, true, what)
			synctest.Wait()
			refusals, data, ended := h.take()
			if ended || !maps.Equal(data, want) || len(refusals) != len(refused)/2 {
				t.Fatalf("%s: data came on %v, want %v; refused %+v; the connection has ended: %v", what, data, want, refusals, ended)
			}
			for i, said := range refusals {
				if said.stream != refused[2*i] || said.round != refused[2*i+1] || !strings.Contains(said.why, "malformed") {
					t.Errorf("%s: %+v", what, said)
				}
			}
		}
		both("before", map[uint32]int{1: 1, 2: 1})
		bad := asks(payments, 2, 7)
		bad.logs[Data].Start = 0
		write(appendAsk(nil, bad))
		both("after a malformed ask", map[uint32]int{1: 1}, 2, 7)
		cut := appendAsk(nil, asks(payments, 3, 8))
		write(endFrame(cut[:len(cut)-3], 0))
		write(appendFetch(nil, &fetch{requestHead: requestHead{stream: 4, round: 9, ID: payments, epoch: 1}, log: Lineage{Start: 1, End: 1}}))
		both("after requests for streams that there are not", map[uint32]int{1: 1}, 3, 8, 4, 9)
		write(appendAsk(nil, asks(payments, 2, 10)))
		h.take()
		both("after a well-formed ask", map[uint32]int{1: 1, 2: 1})
		synctest.Wait() // until nobody logs
		if lines := strings.Count(a.out.String(), "Refused a malformed request of a follower"); lines == 0 {
			t.Error("no line in the log")
		}
		near.Close()
	})
}

// TestAMalformedFrameOfALeaderEndsTheConnection: a malformed frame of a leader ends the connection,
// and a batch that does not match the stream is not appended.
func TestAMalformedFrameOfALeaderEndsTheConnection(t *testing.T) {
	// Batches of another log.
	var good, other, newer []byte
	for _, epoch := range []int64{2, 1} {
		story(t, "a", func(w *world) {
			w.place(orders, epoch, "a")
			a := w.nodes["a"]
			a.publish(orders, "one", "two")
			v, err := a.logs[orders][Data].NewCursor(1).Read(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			first, _ := v.Next()
			second, _ := v.Next()
			newer, good, other = good, bytes.Clone(first), bytes.Clone(second)
			v.Release()
		})
	}
	spoilt := bytes.Clone(good)
	spoilt[len(spoilt)-1] ^= 1
	frame := func(d data, batches []byte) []byte {
		return append(appendDataHeader(nil, &d, len(batches)), batches...)
	}
	for what, nonsense := range map[string][]byte{
		"no frame":          []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an unknown type":   {0, 0, 0, 1, 99},
		"a follower's":      appendLeave(nil, 1),
		"a checksum":        frame(data{stream: 1}, spoilt),
		"a gap":             frame(data{stream: 1}, other),
		"half a batch":      frame(data{stream: 1}, good[:len(good)/2]),
		"an epoch to come":  frame(data{stream: 1}, newer),
		"something behind":  frame(data{stream: 1}, append(bytes.Clone(good), 1, 2, 3)),
		"a frame too large": append(be.AppendUint32(nil, maxFrame+1), byte(frameData)),
	} {
		story(t, "b", func(w *world) {
			calls := 0
			w.wires.serve["a"] = func(c net.Conn, _ string) {
				defer c.Close()
				calls++
				w.wires.carriers.Go(func() { drain(c) })
				// Rounds are counted over all connections, and an Adopt or a lost connection
				// counts, too.
				b := []byte{}
				for round := range uint32(50) {
					b = appendVerdict(b, &verdict{stream: 1, round: round, parts: [Parts]Verdict{{Copy, 1}, {Copy, 1}}})
				}
				time.Sleep(time.Millisecond)
				_, _ = c.Write(b)
				_, _ = c.Write(nonsense)
				time.Sleep(time.Hour)
			}
			w.store.register("a")
			w.place(orders, 1, "a b")
			b := w.nodes["b"]
			w.within(time.Second, "it dials again", func() bool { w.wires.mu.Lock(); defer w.wires.mu.Unlock(); return w.wires.dials > 1 })
			if !strings.Contains(b.out.String(), "Ended a replication connection for what came over it") {
				t.Errorf("%s: no line in the log:\n%s", what, b.out.String())
			}
			l := b.logs[orders][Data]
			if _, end, _ := l.Offsets(); end > 2 || end == 2 && what != "something behind" {
				t.Errorf("%s: appended up to %d", what, end)
			}
			b.follows[orders].End()
			delete(b.follows, orders)
			delete(w.wires.serve, "a")
		})
	}
}
