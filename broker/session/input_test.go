package session_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/admission"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// inputHub is a hub on a virtual clock. A payload has 1 MiB at most, so its slab has 2 MiB; there
// is room for four of them, and one address may have two.
type inputHub struct {
	*session.Hub
	t     testing.TB
	pipes *pipes
}

const largePayload = 1 << 20

// addressed is the hub's end of a pipe to a client at an address. A nil client doesn't read what
// the hub sends.
type addressed struct {
	net.Conn
	from   string
	client *eager
}

// Write hands the client what the hub sends. It doesn't go through the pipe, whose reader could
// still hold it when CloseWrite is called.
func (a addressed) Write(data []byte) (int, error) {
	if a.client == nil {
		return a.Conn.Write(data)
	}
	return len(data), a.client.take(data, nil)
}

// CloseWrite has the client read the end. It may still write.
func (a addressed) CloseWrite() error {
	if a.client == nil {
		return nil
	}
	return a.client.take(nil, io.EOF)
}

// eager is a pipe whose input is read at once, as a kernel does. What comes after the end is
// refused.
type eager struct {
	net.Conn
	mu   sync.Mutex
	more *sync.Cond
	data []byte
	err  error
}

func newEager(conn net.Conn) *eager {
	e := &eager{Conn: conn}
	e.more = sync.NewCond(&e.mu)
	go func() {
		buf := make([]byte, 64<<10)
		for err := error(nil); err == nil; {
			var n int
			n, err = conn.Read(buf)
			_ = e.take(buf[:n], err)
		}
	}()
	return e
}

func (e *eager) take(data []byte, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return io.ErrClosedPipe
	}
	e.data, e.err = append(e.data, data...), err
	e.more.Broadcast()
	return nil
}

func (e *eager) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	late := false
	timer := time.AfterFunc(testutil.Patience, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		late = true
		e.more.Broadcast()
	})
	defer timer.Stop()
	for len(e.data) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		if late {
			return 0, os.ErrDeadlineExceeded
		}
		e.more.Wait()
	}
	n := copy(p, e.data)
	e.data = e.data[n:]
	return n, nil
}

func (e *eager) SetReadDeadline(time.Time) error { return nil }

func (a addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.from), Port: 1} }

// withInput runs a test with a hub on a virtual clock, and checks that nothing is left in the end.
func withInput(t *testing.T, change func(*session.Config), test func(*testing.T, *inputHub)) {
	synctest.Test(t, func(t *testing.T) {
		profile, err := limits.ForProfile(limits.DefaultProfile)
		testutil.Must(t, err)
		profile.Payload, profile.Input = largePayload, 4*2*largePayload
		config := session.Config{Profile: profile, Loops: 2, Ping: time.Hour}
		if change != nil {
			change(&config)
		}
		h := &inputHub{Hub: session.NewHub(config), t: t, pipes: newPipes()}
		served := make(chan error, 1)
		go func() { served <- h.Serve(h.pipes) }()
		t.Cleanup(func() {
			h.Close()
			testutil.Must(t, <-served)
			if s := h.Stats(); s.InputBytes != 0 || s.InputWaiting != 0 {
				t.Errorf("%d bytes are held in the end, %d clients wait", s.InputBytes, s.InputWaiting)
			}
		})
		test(t, h)
	})
}

func (h *inputHub) dial(from string) *wire { return h.dialAs(from, "") }

func (h *inputHub) dialAs(from, user string) *wire {
	near, far := net.Pipe()
	conn := newEager(near)
	h.pipes.conns <- addressed{far, from, conn}
	c := &wire{t: h.t, conn: conn, in: bufio.NewReader(conn)}
	c.greet(fmt.Sprintf(`,"user":%q`, user))
	return c
}

// starts sends text in the background, since the hub may not read it. The result is closed when it
// was sent, or the connection ended.
func (c *wire) starts(text string) chan error { return c.startsBytes([]byte(text)) }

func (c *wire) startsBytes(text []byte) chan error {
	sent := make(chan error, 1)
	go func() {
		_, err := c.conn.Write(text)
		sent <- err
	}()
	return sent
}

// large is an operation with a payload of that size, less its last byte.
func large(size int) (most, last string) {
	op := fmt.Sprintf("PUB large %d\r\n%s\r\n", size, strings.Repeat("x", size))
	return op[:len(op)-1], op[len(op)-1:]
}

func (h *inputHub) expectInput(slabs, waiting int) {
	h.t.Helper()
	synctest.Wait()
	if s := h.Stats(); s.InputBytes != int64(slabs)*2*largePayload || s.InputWaiting != waiting {
		h.t.Fatalf("%d bytes are held, %d wait; want %d slabs, %d", s.InputBytes, s.InputWaiting, slabs, waiting)
	}
}

// fill has stranglers hold all room, from two addresses.
func (h *inputHub) fill() (stranglers []*wire) {
	for i := range 4 {
		c := h.dial(fmt.Sprintf("10.0.0.%d", 1+i/2))
		most, _ := large(largePayload)
		testutil.Must(h.t, <-c.starts(most))
		stranglers = append(stranglers, c)
	}
	h.expectInput(4, 0)
	return stranglers
}

// ends reads to the end of a connection, and returns what came.
func (c *wire) ends() string {
	c.t.Helper()
	testutil.Must(c.t, c.conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
	text, err := io.ReadAll(c.in)
	if err != nil {
		c.t.Fatalf("after %q: %v", text, err)
	}
	return string(text)
}

const tooSlow = "-ERR 'Stale Connection'\r\n"

// TestASlowProducerGivesWay: while nobody waits, a client may take its time. When somebody has
// waited, a slow one is told and closed, no more than it takes, and the one that waited gets
// through. Small messages never wait.
func TestASlowProducerGivesWay(t *testing.T) {
	withInput(t, nil, func(t *testing.T, h *inputHub) {
		stranglers := h.fill()
		time.Sleep(time.Minute)
		sub, small, other := h.dial("10.0.0.1"), h.dial("10.0.0.1"), h.dial("10.0.0.3")
		sub.send("SUB large 1\r\nSUB small 2\r\n")
		sub.sync()
		began := time.Now()
		most, last := large(largePayload)
		sent := other.starts(most + last)
		h.expectInput(4, 1)
		for range 100 {
			small.send("PUB small 1\r\nx\r\n")
			sub.expect("MSG small 2 1", "x")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("small messages took %v", took)
		}
		sub.expect(fmt.Sprintf("MSG large 1 %d", largePayload))
		if took := time.Since(began); took < admission.Patience || took > 2*admission.Patience {
			t.Errorf("a large message waited for %v", took)
		}
		testutil.Must(t, <-sent)
		_, err := io.CopyN(io.Discard, sub.in, largePayload+2)
		testutil.Must(t, err)
		h.expectInput(3, 0)
		if got := stranglers[0].ends(); got != tooSlow {
			t.Errorf("a slow client was told %q", got)
		}
		testutil.EventuallyTrue(t, "it is closed", func() bool { return h.Stats().Ended[session.SlowProducer] == 1 })
		// The others hold theirs as long as they like, and may complete them.
		time.Sleep(time.Minute)
		h.expectInput(3, 0)
		for _, c := range stranglers[1:] {
			c.send("\n")
			c.sync()
			sub.expect(fmt.Sprintf("MSG large 1 %d", largePayload))
			_, err := io.CopyN(io.Discard, sub.in, largePayload+2)
			testutil.Must(t, err)
		}
	})
}

// TestAFastProducerIsNeverEvicted, however long others wait. They are not stale for that, although
// they can't answer pings.
func TestAFastProducerIsNeverEvicted(t *testing.T) {
	withInput(t, func(c *session.Config) { c.Ping = time.Second }, func(t *testing.T, h *inputHub) {
		most, last := large(largePayload)
		var fast []chan error
		for i := range 4 {
			c := h.dial(fmt.Sprintf("10.0.0.%d", 1+i/2))
			sent := make(chan error, 1)
			fast = append(fast, sent)
			go func() {
				for rest := most + last; len(rest) > 0; {
					n := min(admission.Floor*3/4, len(rest))
					if _, err := io.WriteString(c.conn, rest[:n]); err != nil {
						sent <- err
						return
					}
					rest = rest[n:]
					time.Sleep(time.Second / 2)
				}
				sent <- nil
			}()
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		other := h.dial("10.0.0.3")
		testutil.Must(t, <-other.starts(most+last))
		if took := time.Since(began); took < 8*time.Second {
			t.Errorf("it waited for %v only", took)
		}
		for _, sent := range fast {
			testutil.Must(t, <-sent)
		}
		h.expectInput(0, 0)
		if s := h.Stats(); len(s.Ended) > 0 {
			t.Errorf("ended: %v", s.Ended)
		}
	})
}

// TestManyConnectionsOfOneAddress: a hundred slow clients of one address hold its share. One of
// another address does not wait, and they give way to each other, each once.
func TestManyConnectionsOfOneAddress(t *testing.T) {
	const many = 100
	withInput(t, nil, func(t *testing.T, h *inputHub) {
		most, last := large(largePayload)
		for range many {
			h.dial("10.0.0.1").starts(most)
		}
		h.expectInput(2, many-2)
		began := time.Now()
		other := h.dial("10.0.0.2")
		for range 20 {
			testutil.Must(t, <-other.starts(most+last))
			other.sync()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
		// One that comes later to the same address has its turn after them, and is served.
		later := h.dial("10.0.0.1")
		testutil.Must(t, <-later.starts(most+last))
		later.sync()
		time.Sleep(2 * time.Second)
		h.expectInput(1, 0) // the last one, since nobody waits for it
		if n := h.Stats().Ended[session.SlowProducer]; n != many-1 {
			t.Errorf("%d were evicted", n)
		}
	})
}

// TestOnlyLargeOperationsWait: at 64 KiB with its control line an operation needs no room, and with
// one byte more it does, in whatever pieces and by whatever verb it comes.
func TestOnlyLargeOperationsWait(t *testing.T) {
	const free = 64 << 10
	withInput(t, nil, func(t *testing.T, h *inputHub) {
		h.fill()
		header := "NATS/1.0\r\na: b\r\n\r\n"
		sized := func(total int, line string, args ...any) (op string) {
			size := total - len(fmt.Sprintf(line, append(args, 65536)...)) - 2
			return fmt.Sprintf(line, append(args, size)...) + header + strings.Repeat("y", size-len(header)) + "\r\n"
		}
		pub := func(total int) string { return sized(total, "PUB a %d\r\n") }
		hpub := func(total int) string { return sized(total, "HPUB a b %d %d\r\n", len(header)) }
		for name, op := range map[string]string{
			"PUB": pub(free), "HPUB": hpub(free), "behind another": "PUB a 5\r\nhello\r\n" + pub(free) + hpub(free),
			"behind one that ends a slab": pub(free-100) + hpub(free) + pub(free),
		} {
			c := h.dial("10.0.0.9")
			testutil.Must(t, <-c.starts(op))
			c.sync()
			c = h.dial("10.0.0.9")
			for _, b := range op[:30] {
				c.send("%c", b)
			}
			testutil.Must(t, <-c.starts(op[30:]))
			if c.sync(); h.Stats().InputWaiting > 0 {
				t.Errorf("%s waits", name)
			}
		}
		for _, op := range []string{pub(free + 1), hpub(free + 1), "PUB a 5\r\nhello\r\n" + hpub(free+1)} {
			c := h.dial("10.0.0.9")
			testutil.Must(t, <-c.starts(op[:10]))
			c.starts(op[10:] + "PING\r\n")
			h.expectInput(4, 1)
			c.expect("PONG") // somebody was evicted
			h.expectInput(3, 0)
			h.strangle()
		}
		// The largest payload of all, in pieces, and one byte more.
		c := h.dial("10.0.0.10")
		sent := c.starts(fmt.Sprintf("HPUB a b %d %d\r\n%s%s\r\nPING\r\n", len(header), largePayload, header, strings.Repeat("y", largePayload-len(header))))
		c.expect("PONG")
		testutil.Must(t, <-sent)
		c.starts(fmt.Sprintf("PUB a %d\r\n", largePayload+1))
		if got := c.ends(); got != "-ERR 'Maximum Payload Violation'\r\n" {
			t.Errorf("told %q", got)
		}
	})
}

// strangle fills what is left.
func (h *inputHub) strangle() {
	for h.Stats().InputBytes < h.Stats().InputLimit {
		most, _ := large(largePayload)
		c := h.dial(fmt.Sprintf("10.0.1.%d", rand.IntN(200)))
		testutil.Must(h.t, <-c.starts(most))
		synctest.Wait()
	}
}

// TestWhoEndsWhileItWaits: a client that waits is drained at once, and one that goes is noticed
// when its turn comes. Nothing is left of them.
func TestWhoEndsWhileItWaits(t *testing.T) {
	most, last := large(largePayload)
	t.Run("lame duck", func(t *testing.T) {
		withInput(t, nil, func(t *testing.T, h *inputHub) {
			h.fill()
			c := h.dial("10.0.0.3")
			c.starts(most + last)
			h.expectInput(4, 1)
			began := time.Now()
			if err := h.Leave(t.Context(), 4*time.Millisecond); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took >= admission.Patience {
				t.Errorf("it took %v", took)
			}
			synctest.Wait()
			if n := h.Stats().Ended[session.LameDuck]; n != 5 {
				t.Errorf("ended: %v", h.Stats().Ended)
			}
		})
	})
	t.Run("it goes", func(t *testing.T) {
		withInput(t, nil, func(t *testing.T, h *inputHub) {
			holding := h.fill()
			var waiting []*wire
			for i := range 3 {
				c := h.dial(fmt.Sprintf("10.0.0.%d", 3+i))
				c.starts(most + last)
				waiting = append(waiting, c)
			}
			h.expectInput(4, 3)
			waiting[0].conn.Close()
			holding[0].conn.Close()
			holding[1].conn.Close()
			h.expectInput(2, 0)
			waiting[1].sync()
			waiting[2].sync()
		})
	})
	t.Run("the broker stops", func(t *testing.T) {
		withInput(t, nil, func(t *testing.T, h *inputHub) {
			h.fill()
			h.dial("10.0.0.3").starts(most)
			h.expectInput(4, 1)
		})
	})
}

// TestAClientThatDoesNotReadGivesWay, too: its -ERR waits behind what it was sent, in a writer
// goroutine, and the room of its operation waits for neither.
func TestAClientThatDoesNotReadGivesWay(t *testing.T) {
	withInput(t, nil, func(t *testing.T, h *inputHub) {
		most, last := large(largePayload)
		for i := range 4 {
			near, far := net.Pipe()
			h.pipes.conns <- addressed{far, fmt.Sprintf("10.0.0.%d", 1+i/2), nil}
			c := &wire{t: t, conn: near, in: bufio.NewReader(near)}
			c.greet("")
			c.send("SUB a 1\r\n")
			testutil.Must(t, <-c.starts(most))
		}
		h.expectInput(4, 0)
		other := h.dial("10.0.0.3")
		other.send("PUB a 100000\r\n%s\r\n", strings.Repeat("x", 100_000))
		other.sync()
		synctest.Wait()
		if n := h.Stats().Parked; n != 4 {
			t.Fatalf("%d are parked", n)
		}
		began := time.Now()
		testutil.Must(t, <-other.starts(most+last))
		if took := time.Since(began); took > 2*admission.Patience {
			t.Errorf("it took %v", took)
		}
		other.sync()
		h.expectInput(3, 0)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if s := h.Stats(); s.Ended[session.SlowProducer] != 1 || s.Parked != 3 {
			t.Errorf("ended %v, %d are parked", s.Ended, s.Parked)
		}
	})
}

// TestWhoLosesItsAccessWhileItHolds returns its room within the time in which it reads its -ERR.
func TestWhoLosesItsAccessWhileItHolds(t *testing.T) {
	users := &anyone{}
	withInput(t, func(c *session.Config) { c.Auth = users }, func(t *testing.T, h *inputHub) {
		most, _ := large(largePayload)
		bob := h.dialAs("10.0.0.1", "bob")
		testutil.Must(t, <-bob.starts(most))
		h.expectInput(1, 0)
		name := "bob"
		users.revoked.Store(&name)
		h.Recheck()
		if got := bob.ends(); got != "-ERR 'User Authentication Revoked'\r\n" {
			t.Errorf("told %q", got)
		}
		time.Sleep(1100 * time.Millisecond)
		h.expectInput(0, 0)
	})
}

// anyone authenticates whoever was not revoked.
type anyone struct{ revoked atomic.Pointer[string] }

func (*anyone) Nonce() bool { return false }

func (*anyone) Authenticate(_ context.Context, c *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	return identity.Single(c.User), nil, nil
}

func (a *anyone) Again(is *identity.Identity, _ *identity.Credential) *identity.Identity {
	if name := a.revoked.Load(); name != nil && *name == is.Name {
		return nil
	}
	return is
}

// TestWhoLosesItsAccessWhileItWaits is told so, and goes before it has a turn. Whoever waited
// behind it may have room then.
func TestWhoLosesItsAccessWhileItWaits(t *testing.T) {
	users := &anyone{}
	withInput(t, func(c *session.Config) { c.Auth = users }, func(t *testing.T, h *inputHub) {
		most, last := large(largePayload)
		half, halfLast := large(largePayload / 3) // its slab has half of 1 MiB
		for _, from := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2"} {
			testutil.Must(t, <-h.dial(from).starts(most))
		}
		testutil.Must(t, <-h.dial("10.0.0.2").starts(half))
		bob, ann := h.dialAs("10.0.0.3", "bob"), h.dialAs("10.0.0.3", "ann")
		bob.starts(most + last)
		synctest.Wait()
		sent := ann.starts(half + halfLast + half)
		synctest.Wait()
		if s := h.Stats(); s.InputWaiting != 2 {
			t.Fatalf("%d wait", s.InputWaiting)
		}
		name := "bob"
		users.revoked.Store(&name)
		h.Recheck()
		testutil.Must(t, <-sent)
		if s := h.Stats(); s.InputWaiting != 0 || s.InputBytes != 7*largePayload {
			t.Errorf("%d wait, %d bytes are held", s.InputWaiting, s.InputBytes)
		}
		if got := bob.ends(); got != "-ERR 'User Authentication Revoked'\r\n" {
			t.Errorf("told %q", got)
		}
		time.Sleep(1100 * time.Millisecond) // what it still sends is discarded
		synctest.Wait()
		if s := h.Stats(); s.Ended[session.Revoked] != 1 || len(s.Ended) != 1 {
			t.Errorf("ended: %v", s.Ended)
		}
	})
}

// TestRandomProducers: clients send large operations in pieces, fast or slowly, whole or not, and
// close at any time. The budget holds at all times, whoever is honest gets through, and nothing is
// left.
func TestRandomProducers(t *testing.T) {
	for seed := range uint64(10) {
		withInput(t, nil, func(t *testing.T, h *inputHub) {
			stop := make(chan struct{})
			var watching, running sync.WaitGroup
			watching.Go(func() {
				for {
					if s := h.Stats(); s.InputBytes > s.InputLimit || s.InputBytes < 0 {
						t.Errorf("seed %d: %d bytes are held", seed, s.InputBytes)
					}
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
			for i := range 30 {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				c := h.dial(fmt.Sprintf("10.0.0.%d", 1+rng.IntN(5)))
				running.Go(func() {
					defer c.conn.Close()
					for range 5 {
						most, last := large(rng.IntN(largePayload))
						rest, slowly := most+last, rng.IntN(4) == 0
						rest = rest[:len(rest)-rng.IntN(2)*rng.IntN(2)*rng.IntN(len(rest))]
						for len(rest) > 0 {
							n := min(1+rng.IntN(100<<10), len(rest))
							if _, err := io.WriteString(c.conn, rest[:n]); err != nil {
								return
							}
							if rest = rest[n:]; slowly {
								time.Sleep(time.Duration(rng.IntN(int(3 * time.Second))))
							}
						}
					}
				})
			}
			honest := h.dial("10.0.0.9")
			for range 10 {
				most, last := large(largePayload)
				began := time.Now()
				testutil.Must(t, <-honest.starts(most+last))
				honest.sync()
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("seed %d: it waited for %v", seed, took)
				}
			}
			running.Wait()
			time.Sleep(2 * time.Second)
			h.expectInput(0, 0)
			close(stop)
			watching.Wait()
		})
	}
}

// TestUnfinishedOperationsTakeNoMoreThanTheBudget: 150 clients announce 8 MiB each and send all but
// one byte. Without the budget they took 1.2 GB.
func TestUnfinishedOperationsTakeNoMoreThanTheBudget(t *testing.T) {
	const many, payload = 150, 8 << 20
	h, address := newTestHub(t, nil)
	if h.Stats().InputLimit != 128<<20 {
		t.Errorf("the budget has %d bytes", h.Stats().InputLimit)
	}
	var before, after runtime.MemStats
	most, last := large(payload)
	text := []byte(most + last)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range many {
		dial(t, address, "").startsBytes(text[:len(text)-1])
	}
	room := h.Stats().InputLimit / admission.Shares
	testutil.EventuallyTrue(t, "they have, wait or gave way", func() bool {
		s := h.Stats()
		gone := int(s.Ended[session.SlowProducer]) // already, on a busy machine
		return s.InputBytes == room && s.InputWaiting == many-gone-int(room/(16<<20))
	})
	small := dial(t, address, "")
	small.send("SUB small 1\r\nPUB small 1\r\nx\r\n")
	small.expect("MSG small 1 1", "x")
	other, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
	if err != nil {
		t.Skipf("no second address: %v", err)
	}
	defer other.Close()
	large := &wire{t: t, conn: other, in: bufio.NewReader(other)}
	large.greet("")
	for range 3 {
		testutil.Must(t, <-large.startsBytes(text))
		large.sync()
	}
	runtime.GC()
	runtime.GC() // a pool keeps what it has for one more collection, such as slabs of who gave way
	runtime.ReadMemStats(&after)
	// 16 MiB of slabs of the other one, and those that have grown, may be left.
	if took := int64(after.HeapInuse) - int64(before.HeapInuse); took > room+many*(64<<10)+48<<20 {
		t.Errorf("they take %d MiB", took>>20)
	}
	testutil.EventuallyTrue(t, "slow ones are evicted", func() bool { return h.Stats().Ended[session.SlowProducer] >= 4 })
}

// TestInputOfTLSAndWebSocket: clients with TLS and WebSocket have the same budget.
func TestInputOfTLSAndWebSocket(t *testing.T) {
	small := func(c *session.Config) { c.Profile.Payload, c.Profile.Input = largePayload, 4*2*largePayload }
	for name, dialer := range map[string]func(t *testing.T) (*session.Hub, func() *wire){
		"TLS": func(t *testing.T) (*session.Hub, func() *wire) {
			h := newTLSHub(t, session.TLS{First: session.FirstNo}, small)
			config := h.client()
			return h.Hub, func() *wire { return h.dial(config) }
		},
		"WebSocket": func(t *testing.T) (*session.Hub, func() *wire) {
			h := newWebHub(t, false, small)
			return h.Hub, func() *wire { return h.dialWeb("") }
		},
		"WebSocket over TLS": func(t *testing.T) (*session.Hub, func() *wire) {
			h := newWebHub(t, true, small)
			return h.Hub, func() *wire { return h.dialWeb("") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, dial := dialer(t)
			most, last := large(largePayload)
			var stranglers []*wire
			for range 2 {
				c := dial()
				testutil.Must(t, <-c.starts(most))
				stranglers = append(stranglers, c)
			}
			testutil.EventuallyTrue(t, "they hold all", func() bool { return h.Stats().InputBytes == 4*largePayload })
			c := dial()
			sent := c.starts(most + last + "PING\r\n")
			testutil.EventuallyTrue(t, "one waits, or has waited", func() bool {
				s := h.Stats()
				return s.InputWaiting == 1 || s.Ended[session.SlowProducer] > 0
			})
			c.expect("PONG")
			testutil.Must(t, <-sent)
			told := make(chan string, 2)
			for _, s := range stranglers {
				go func() {
					text, _ := io.ReadAll(s.in)
					told <- string(text)
				}()
			}
			if got := <-told; got != tooSlow {
				t.Errorf("a slow client was told %q", got)
			}
			testutil.EventuallyTrue(t, "one is left", func() bool { return h.Stats().InputBytes == 2*largePayload })
		})
	}
}
