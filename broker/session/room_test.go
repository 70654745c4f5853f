package session

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestRoomForLargeOperations: a client announces 1 MiB. Room is made as it arrives, since anybody
// can announce. When it has arrived, the client may have as much again at once: its bytes are not
// copied from slab to slab, and the next operation is not read into the slab of this one.
func TestRoomForLargeOperations(t *testing.T) {
	const need = 1<<20 + 100
	c := &Conn{readSize: fullChunk}
	operation := func() (slabs []int) {
		for c.end-c.start < need {
			if c.in == nil {
				c.in, c.start, c.end = newSlab(c.readSize), 0, 0
			}
			if n := len(c.in.buf); len(slabs) == 0 || slabs[len(slabs)-1] != n {
				slabs = append(slabs, n)
			}
			c.readN = len(c.room()) // the socket has more than is read
			c.end += c.readN
			if c.end-c.start < need {
				c.makeRoom(need)
			}
		}
		c.start += need
		c.proven = max(c.proven, need)
		if c.start != c.end {
			t.Errorf("%d bytes of the next operation were read", c.end-c.start)
		}
		c.makeRoom(0)
		return slabs
	}
	if got, want := operation(), []int{64 << 10, 256 << 10, 1 << 20, 2 << 20}; !slices.Equal(got, want) {
		t.Errorf("the first operation was read into slabs of %d bytes, not %d", got, want)
	}
	if got, want := operation(), []int{64 << 10, 2 << 20}; !slices.Equal(got, want) {
		t.Errorf("the second operation was read into slabs of %d bytes, not %d", got, want)
	}
}

// TestSmallMessagesNeedNoClaim: what has room without a claim takes no lock for it, however many
// messages are in a read.
func TestSmallMessagesNeedNoClaim(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, Loops: 2, Ping: time.Hour})
	defer h.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var served sync.WaitGroup
	defer served.Wait()
	defer ln.Close()
	served.Go(func() { _ = h.Serve(ln) })
	nc, err := net.Dial("tcp", ln.Addr().String())
	testutil.Must(t, err)
	defer nc.Close()
	testutil.Must(t, nc.SetDeadline(time.Now().Add(testutil.Patience)))
	h.input.mu.Lock()
	defer h.input.mu.Unlock()
	line := fmt.Sprintf("PUB a %d\r\n", freeInput-20)
	largest := line + strings.Repeat("x", freeInput-20) + "\r\n"
	_, err = nc.Write([]byte("CONNECT {\"verbose\":false}\r\n" + strings.Repeat(strings.Repeat("PUB a 1\r\nx\r\n", 1000)+largest, 10) + "PING\r\n"))
	testutil.Must(t, err)
	in := bufio.NewReader(nc)
	for _, want := range []string{"INFO", "PONG"} {
		if got, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
			t.Fatalf("got %q, %v, want %s", got, err, want)
		}
	}
}

// TestAClaimWaitsForItsClientOnly: a publisher that waits for a loop that is behind has no claim
// meanwhile, which others might need. One that has a claim is read on while a loop is behind.
func TestAClaimWaitsForItsClientOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		profile, err := limits.ForProfile(limits.DefaultProfile)
		testutil.Must(t, err)
		h := NewHub(Config{Profile: profile, Loops: 2, Ping: time.Hour})
		defer h.Close()
		client, server := net.Pipe()
		defer client.Close()
		go io.Copy(io.Discard, client)
		h.accept(server, false)
		other, server := net.Pipe()
		defer other.Close()
		go io.Copy(io.Discard, other)
		h.accept(server, false)
		_, err = io.WriteString(other, "SUB a 1\r\n")
		testutil.Must(t, err)
		sends := func(text string) (done *atomic.Bool) {
			done = new(atomic.Bool)
			go func() {
				_, err := io.WriteString(client, text)
				done.Store(err == nil)
			}()
			synctest.Wait()
			return done
		}
		const many = limits.LoopDeliveries + 1
		behind := func() {
			for _, l := range h.loops {
				l.push(nil, many, 0)
			}
		}
		serve := func() {
			for _, l := range h.loops {
				l.served(many, 0)
			}
			synctest.Wait()
		}
		op := fmt.Sprintf("PUB a %d\r\n%s\r\n", 1<<20, strings.Repeat("x", 1<<20))
		sends("CONNECT {\"verbose\":false}\r\n")
		behind()
		began := sends("PUB a 1\r\nx\r\n" + op[:len(op)/2])
		if n := h.Stats().InputBytes; n != 0 || began.Load() {
			t.Errorf("it has %d bytes while a loop is behind", n)
		}
		serve()
		if n := h.Stats().InputBytes; n != 2<<20 || !began.Load() {
			t.Errorf("it has %d bytes when no loop is behind", n)
		}
		behind()
		for rest := op[len(op)/2:]; len(rest) > 0; {
			n := min(len(rest), 100_000)
			if done := sends(rest[:n]); !done.Load() {
				t.Fatal("it is not read on")
			}
			rest = rest[n:]
		}
		if n := h.Stats().InputBytes; n != 0 {
			t.Errorf("%d bytes are left", n)
		}
		if done := sends("PING\r\n"); done.Load() {
			t.Error("a publisher does not wait for a loop that is behind")
		}
		serve()
	})
}
