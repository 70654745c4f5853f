package compat

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// bystander is a well-behaved client that other clients must not disturb.
type bystander struct {
	nc  *nats.Conn
	sub *nats.Subscription
}

func newBystander(t *testing.T, n *node) *bystander {
	nc := connect(t, n, nats.NoReconnect(), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			t.Errorf("the bystander was disconnected: %v", err)
		}
	}))
	return &bystander{nc, subscribe(t, nc, "bystander")}
}

// unharmed fails unless the bystander can publish and receive in time.
func (b *bystander) unharmed(t *testing.T) {
	t.Helper()
	begin := time.Now()
	for i := range 20 {
		testutil.Must(t, b.nc.Publish("bystander", fmt.Append(nil, i)))
		if m := receive(t, b.sub); string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("the bystander has received %q, want %d", m.Data, i)
		}
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("the bystander took %v for 20 messages to itself", took)
	}
}

// memory returns the live heap and the number of goroutines when both are stable.
func memory() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC() // the first collection keeps the contents of sync.Pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
}

// backToWhereItWas waits until closed clients have left no memory and no goroutine.
func backToWhereItWas(t *testing.T, n *node, connections int, heap int64, goroutines int) {
	t.Helper()
	// A read may count a goroutine that is about to end; each client had several.
	const slack, spare = 2 << 20, 2
	testutil.EventuallyTrue(t, "connections are as before", func() bool { return n.Connections() == connections })
	testutil.EventuallyTrue(t, "nothing waits for those that are gone", func() bool { return n.Stats().PendingBytes == 0 })
	var heapNow int64
	var goroutinesNow int
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		heapNow, goroutinesNow = memory()
		if heapNow <= heap+slack && goroutinesNow <= goroutines+spare {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of heap and %d goroutines are left, of %d and %d before", heapNow, goroutinesNow, heap, goroutines)
		}
	}
}

func TestMalformedInputHarmsNoOtherConnection(t *testing.T) {
	n := startNode(t, nil)
	b := newBystander(t, n)
	b.unharmed(t)
	heap, goroutines := memory()

	// Each of these inputs is sent on connections of its own, some on twenty at once.
	valid := "CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n"
	var garbage []string
	for seed := range 40 {
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		noise := make([]byte, random.IntN(20_000))
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		broken := []byte(strings.Repeat(valid, 5))
		for range 1 + random.IntN(5) {
			broken[random.IntN(len(broken))] = byte(random.Uint32())
		}
		garbage = append(garbage, string(noise), valid+string(noise), string(broken))
	}
	garbage = append(garbage,
		"", "\n", "\r\n\r\n", "P", "PUB", "PUB a", "PUB a 5\r\nhel", "PUB a 8000000\r\n"+strings.Repeat("x", 100_000),
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		strings.Repeat("x", 1<<20), "SUB "+strings.Repeat("x", 1<<20), "CONNECT {"+strings.Repeat("[", 4000)+"\r\n", "CONNECT {"+strings.Repeat(" ", 1<<20),
		"PUB a -1\r\n", "PUB a 99999999999\r\n", "PUB a 999999999\r\n", "HPUB a 9 1\r\n",
		valid+"SUB a..b 2\r\nSUB > 3\r\nUNSUB 99\r\n", strings.Repeat("SUB > x\r\n", 10_000), strings.Repeat("PING\r\n", 50_000),
	)
	var work sync.WaitGroup
	limit := make(chan struct{}, 20)
	for i, text := range garbage {
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			conn, err := net.DialTimeout("tcp", n.address, patience)
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			// In pieces or as a whole. A write may fail, since the broker may close the connection.
			for piece := 1 + i*37%3000; len(text) > 0; {
				k := min(piece, len(text))
				if _, err := io.WriteString(conn, text[:k]); err != nil {
					break
				}
				text = text[k:]
			}
			if i%2 == 0 { // half of the clients read the answer, half close at once
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}
		})
	}
	b.unharmed(t)
	work.Wait()
	b.unharmed(t)
	backToWhereItWas(t, n, 1, heap, goroutines)
}

// TestIncompleteLinesHoldLittleMemory: a client that sends the beginning of an operation holds
// little memory, whatever size it has announced.
func TestIncompleteLinesHoldLittleMemory(t *testing.T) {
	n := startNode(t, nil)
	b := newBystander(t, n)
	b.unharmed(t)
	heap, goroutines := memory()
	const idle = 100
	var socks []*socket
	for i := range idle {
		s := dialSocket(t, n)
		s.say("%s", []string{
			"", "PU", "CONNECT {\"verbose\":false}\r\nPING\r\n", "SUB " + strings.Repeat("x", 2000), "PUB a 8000000\r\n", "PUB a 8000000\r\nonly this",
		}[i%6])
		socks = append(socks, s)
	}
	testutil.EventuallyTrue(t, "all are there", func() bool { return n.Connections() == idle+1 })
	b.unharmed(t)
	if now, _ := memory(); now-heap > idle*(64<<10) {
		t.Errorf("%d connections that say little hold %d bytes each", idle, (now-heap)/idle)
	}
	for _, s := range socks {
		s.Close()
	}
	backToWhereItWas(t, n, 1, heap, goroutines)
}

// TestClientThatNeverReads: a client that subscribes to everything and never reads is closed, and
// leaves no memory. Publishers and other subscribers are not disturbed.
func TestClientThatNeverReads(t *testing.T) {
	n := startNode(t, func(c *session.Config) { c.Profile.Pending = 2 << 20 })
	b := newBystander(t, n)
	b.unharmed(t)
	pub, nc := connect(t, n), connect(t, n)
	sub := subscribe(t, nc, "flood")
	testutil.Must(t, sub.SetPendingLimits(-1, -1))
	heap, goroutines := memory()

	const deaf, messages = 3, 3000
	for range deaf {
		s := dialSocket(t, n)
		s.say("CONNECT {\"verbose\":false}\r\nSUB flood 1\r\nSUB > 2\r\nPING\r\n")
		if got := s.until("PONG\r\n"); !strings.HasSuffix(got, "PONG\r\n") {
			t.Fatalf("received %q", got)
		}
	}
	data := make([]byte, 8<<10)
	for i := range messages { // at the pace of the reading subscriber, which would fall behind otherwise
		data[0], data[1] = byte(i), byte(i>>8)
		testutil.Must(t, pub.Publish("flood", data))
		if i%50 != 49 {
			continue
		}
		for k := i - 49; k <= i; k++ {
			if m := receive(t, sub); m.Data[0] != byte(k) || m.Data[1] != byte(k>>8) || len(m.Data) != len(data) {
				t.Fatalf("message %d did not arrive in its turn", k)
			}
		}
		b.unharmed(t)
	}
	testutil.EventuallyTrue(t, "those who never read are closed", func() bool { return n.Stats().SlowConsumers() == deaf })
	b.unharmed(t)
	backToWhereItWas(t, n, 3, heap, goroutines)
}
