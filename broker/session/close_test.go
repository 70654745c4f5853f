package session_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

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
