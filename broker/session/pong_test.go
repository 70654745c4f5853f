package session

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// slowTaker is a Taker that takes until it is released.
type slowTaker struct {
	taking  atomic.Bool
	release chan struct{}
}

func (s *slowTaker) Take([]Message, protocol.Memory, bool) bool {
	s.taking.Store(true)
	<-s.release
	return false
}

func (s *slowTaker) Wait() {}

// TestAPongFollowsTheTakers: a client publishes for a Taker and pings in one read. Meanwhile others
// have its loop serve what is queued. The PONG still comes after the Taker has the message.
func TestAPongFollowsTheTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 1)
		defer h.Close()
		taker := &slowTaker{release: make(chan struct{})}
		h.Offer(taker).Set([]string{"topic"})
		client, server := net.Pipe()
		defer client.Close()
		var pongs atomic.Int64
		go func() {
			for in := bufio.NewScanner(client); in.Scan(); {
				if strings.HasPrefix(in.Text(), "PONG") {
					pongs.Add(1)
				}
			}
		}()
		h.accept(server, false)
		write := func(text string) {
			go io.WriteString(client, text)
			synctest.Wait()
		}
		write("CONNECT {\"verbose\":false}\r\nPING\r\n")
		write("PUB topic 1\r\nx\r\nPING\r\n")
		other := piped(t, h)
		other("SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
		if !taker.taking.Load() || pongs.Load() != 1 {
			t.Errorf("%d PONGs while the Taker takes: %v", pongs.Load(), taker.taking.Load())
		}
		close(taker.release)
		if synctest.Wait(); pongs.Load() != 2 {
			t.Errorf("%d PONGs in the end", pongs.Load())
		}
	})
}

// TestTheFirstPongBringsInfo: clients that read both at once have seen the INFO when their
// applications learn that they are connected. nats.js reports a later one as a change of servers.
func TestTheFirstPongBringsInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 1)
		defer h.Close()
		client, server := net.Pipe()
		defer client.Close()
		h.accept(server, false)
		read := func() string {
			buffer := make([]byte, 4096)
			n, err := client.Read(buffer)
			if err != nil {
				t.Error(err)
			}
			return string(buffer[:n])
		}
		read() // INFO
		if _, err := io.WriteString(client, "CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		if got := read(); !strings.HasPrefix(got, "PONG\r\nINFO {") || !strings.Contains(got, `"connect_info":true`) {
			t.Errorf("first answer: %q", got)
		}
		h.SetURLs([]string{"other:4222"}, nil)
		if got := read(); !strings.Contains(got, "other:4222") {
			t.Errorf("after a change of the servers: %q", got)
		}
	})
}
