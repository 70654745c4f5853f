package session_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestABrokerStopsWhileClientsGo: clients close their connections while the hub closes them, too.
// The hub ends each connection once, with one of both reasons.
func TestABrokerStopsWhileClientsGo(t *testing.T) {
	const rounds, clients = 20, 20
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	for range rounds {
		h := session.NewHub(session.Config{Profile: profile, Loops: 2})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		testutil.Must(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			if err := h.Serve(ln); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		var conns []*wire
		for range clients {
			conns = append(conns, dial(t, ln.Addr().String(), ""))
		}
		start := make(chan struct{})
		for _, c := range conns {
			all.Go(func() {
				<-start
				_ = c.conn.Close()
			})
		}
		close(start)
		h.Close()
		all.Wait()
		s := h.Stats()
		ended := uint64(0)
		for why, n := range s.Ended {
			if why != session.ClientClosed && why != session.ReadError && why != session.Stopped {
				t.Errorf("%d connections ended as %q", n, why)
			}
			ended += n
		}
		if ended != clients || s.Connections != 0 {
			t.Fatalf("%d of %d connections ended, %d are left: %s", ended, clients, s.Connections, fmt.Sprint(s.Ended))
		}
	}
}

// TestAClientThatPublishesSeesTheEnd: a client that goes on publishing while the broker leaves
// reads the end of the connection. A reset would look like a failure of the network.
func TestAClientThatPublishesSeesTheEnd(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := session.NewHub(session.Config{Profile: profile, Loops: 2})
	h.DepartWithin(testutil.Patience) // the clients close, however slow the machine is
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		if err := h.Serve(ln); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	const clients = 10
	begun := make(chan struct{}, clients)
	for range clients {
		c := dial(t, ln.Addr().String(), "")
		ended := make(chan struct{})
		all.Go(func() { // as a client: it writes until it reads the end
			payload := []byte("PUB orders 5\r\nhello\r\n")
			for n := 0; ; n++ {
				select {
				case <-ended:
					_ = c.conn.Close()
					return
				default:
				}
				if _, err := c.conn.Write(payload); err != nil {
					return
				}
				if n == 100 {
					begun <- struct{}{}
				}
			}
		})
		all.Go(func() {
			defer close(ended)
			testutil.Must(t, c.conn.SetReadDeadline(time.Now().Add(testutil.Patience)))
			if _, err := io.Copy(io.Discard, c.in); err != nil {
				t.Errorf("a client sees %v", err)
			}
		})
	}
	for range clients {
		<-begun
	}
	if err := h.Leave(t.Context(), 0); err != nil {
		t.Error(err)
	}
	all.Wait()
	h.Close()
	if s := h.Stats(); s.Ended[session.LameDuck] != clients {
		t.Errorf("ended %v", s.Ended)
	}
}
