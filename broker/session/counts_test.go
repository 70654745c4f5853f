package session

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestNothingCountsAfterAnyTraffic: clients subscribe, unsubscribe, with maxima and in queue
// groups, publish, stop reading and go, at random. A client with many subscriptions gets each
// publisher's messages on each, in order, and none twice. Afterwards the queues are empty,
// and neither deliveries, nor bytes, nor pending memory count.
func TestNothingCountsAfterAnyTraffic(t *testing.T) {
	for _, loops := range []int{1, 3, 70} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) { anyTraffic(t, loops, rand.Uint64()) })
	}
}

func anyTraffic(t *testing.T, loops int, seed uint64) {
	t.Logf("seed %d", seed)
	h := newHubOf(t, loops)
	defer h.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var served, clients sync.WaitGroup
	defer served.Wait()
	defer ln.Close()
	served.Go(func() { _ = h.Serve(ln) })
	dial := func() net.Conn {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			panic(err)
		}
		_ = nc.SetDeadline(time.Now().Add(testutil.Patience))
		_, _ = io.WriteString(nc, "CONNECT {\"verbose\":false}\r\n")
		return nc
	}
	// The one that gets all: 2,000 subscriptions to each of its messages.
	const many, publishers, each = 2000, 4, 60
	all := dial()
	defer all.Close()
	var subs strings.Builder
	for i := range many {
		fmt.Fprintf(&subs, "SUB t.* %d\r\n", i)
	}
	_, err = io.WriteString(all, subs.String()+"PING\r\n")
	testutil.Must(t, err)
	in := bufio.NewReaderSize(all, 1<<20)
	for {
		line, err := in.ReadString('\n')
		testutil.Must(t, err)
		if line == "PONG\r\n" {
			break
		}
	}
	for p := range publishers {
		r := rand.New(rand.NewPCG(seed, uint64(p)))
		clients.Go(func() {
			nc := dial()
			defer nc.Close()
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, nc)
				ended <- err
			}()
			for i := range each {
				data := fmt.Sprintf("%d %d ", p, i)
				text := fmt.Sprintf("PUB t.%d %d\r\n%s\r\n", p, len(data), data)
				switch large := r.IntN(40 << 10); r.IntN(20) { // of these there is none for the first client
				case 0:
					text += fmt.Sprintf("PUB u.%d %d\r\n%s\r\n", p, large, strings.Repeat("x", large))
				case 1:
					text += fmt.Sprintf("PUB u.%d %d\r\n%s\r\n", p, 20*large, strings.Repeat("x", 20*large))
				}
				if r.IntN(3) == 0 {
					sid := 1 + r.IntN(3)
					text += fmt.Sprintf("SUB t.* q %d\r\nUNSUB %d %d\r\nSUB t.%d x%d\r\nUNSUB x%d\r\nPING\r\n", sid, sid, r.IntN(4), r.IntN(publishers), i, i)
				}
				if _, err := io.WriteString(nc, text); err != nil {
					t.Errorf("publisher %d: %v", p, err)
					return
				}
			}
			_ = nc.(*net.TCPConn).CloseWrite()
			if err := <-ended; err != nil {
				t.Errorf("publisher %d: %v", p, err)
			}
		})
	}
	// Others come, read nothing and go.
	stop := make(chan struct{})
	halt := sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
	})
	defer func() { // or a failure would be hidden by those of clients without a broker
		all.Close()
		halt()
	}()
	for p := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(100+p)))
		clients.Go(func() {
			for {
				nc := dial()
				var subs strings.Builder
				for i := range 1 + r.IntN(300) {
					fmt.Fprintf(&subs, "SUB %c.%d %d\r\n", "tu"[r.IntN(2)], r.IntN(publishers), i)
					switch r.IntN(3) {
					case 0:
						fmt.Fprintf(&subs, "UNSUB %d %d\r\n", i, r.IntN(30))
					case 1:
						fmt.Fprintf(&subs, "PUB none.%d %d\r\n%s\r\n", i, 10, "0123456789")
					}
				}
				_, _ = io.WriteString(nc, subs.String())
				select {
				case <-stop:
					nc.Close()
					return
				case <-time.After(time.Duration(r.IntN(50)) * time.Millisecond):
				}
				nc.Close()
			}
		})
	}
	next := make([][]int, many)
	for i := range next {
		next[i] = make([]int, publishers)
	}
	for left := many * publishers * each; left > 0; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			t.Fatalf("%d messages are left: %v", left, err)
		}
		f := strings.Fields(string(line))
		if len(f) < 4 || f[0] != "MSG" {
			t.Fatalf("got %.100q", line)
		}
		size, _ := strconv.Atoi(f[len(f)-1])
		data := make([]byte, size+2)
		_, err = io.ReadFull(in, data)
		testutil.Must(t, err)
		sid, _ := strconv.Atoi(f[2])
		var p, n int
		if _, err := fmt.Sscanf(string(data), "%d %d ", &p, &n); err != nil || f[1] != "t."+strconv.Itoa(p) {
			t.Fatalf("%q has %.100q", line, data)
		}
		if next[sid][p] != n {
			t.Fatalf("subscription %d got message %d of publisher %d, and not %d", sid, n, p, next[sid][p])
		}
		next[sid][p]++
		left--
	}
	halt()
	all.Close()
	testutil.EventuallyTrue(t, "all are gone", func() bool { return h.Connections() == 0 })
	testutil.EventuallyTrue(t, "nothing counts", func() bool {
		for _, l := range h.loops {
			l.signal() // ends of subscriptions wait for the next message
			l.in.Lock()
			left := l.deliveries != 0 || l.unserved() != 0 || len(l.queue) > 0 || l.behind.Load()
			l.in.Unlock()
			if left {
				return false
			}
		}
		return h.pending.Load() == 0 && h.held.Load() == 0 && h.parked.Load() == 0
	})
}
