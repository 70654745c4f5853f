package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestTheRouteOfABrokerIsKnownOnceItHasRegistered: whoever asks waits for a registration that is
// about to be seen, and a broker that has lost its own is remembered.
func TestTheRouteOfABrokerIsKnownOnceItHasRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _, _ := newMember()
		within := func(d time.Duration, broker string) string {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			address, _ := m.RouteOf(ctx, broker)
			return address
		}
		m.SetMembers(three)
		if got := within(time.Second, "d"); got != "" {
			t.Errorf("an unknown broker is at %q", got)
		}
		answered := make(chan string, 1)
		go func() { answered <- within(time.Second, "d") }()
		synctest.Wait()
		m.SetMembers([]coordination.Broker{{ID: "d", Route: "d:6222"}})
		if got := <-answered; got != "d:6222" {
			t.Errorf("a broker that has registered is at %q", got)
		}
		m.SetMembers(three)
		m.SetMembers([]coordination.Broker{{ID: "b", Route: "b2:6222"}})
		if got := within(0, "d"); got != "d:6222" {
			t.Errorf("a broker that was registered is at %q", got)
		}
		if got := within(0, "b"); got != "b2:6222" {
			t.Errorf("a broker that has moved is at %q", got)
		}
	})
}
