package route

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// register holds the route addresses of brokers, for RouteOf.
type register struct {
	mu    sync.Mutex
	hosts map[string]string
	newer chan struct{}
}

func newRegister() *register {
	return &register{hosts: map[string]string{}, newer: make(chan struct{})}
}

func (r *register) set(broker, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[broker] = address
	close(r.newer)
	r.newer = make(chan struct{})
}

func (r *register) routeOf(ctx context.Context, broker string) (address string, ok bool) {
	for {
		r.mu.Lock()
		address, ok = r.hosts[broker]
		newer := r.newer
		r.mu.Unlock()
		if ok {
			return address, true
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return "", false
		}
	}
}

// TestACoordinatorOpensNoLink: a process with a coordinator's certificate, of the same CA, names
// itself as a registered broker. It gets neither a link nor a connection for replication, and the
// broker itself does.
func TestACoordinatorOpensNoLink(t *testing.T) {
	ca := newAuthority(t)
	coordinators := ca.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "coordinator"}, DNSNames: []string{"main-coordinator-0.main-coordinators.default.svc"}})
	registered := newRegister()
	z := startNode(t, "z", ca, func(c *Config) { c.RouteOf = registered.routeOf })
	posing := startNode(t, "b", coordinators)
	registered.set("b", "127.0.0.1:6222")
	posing.SetMembers([]Member{z.member()})
	testutil.EventuallyTrue(t, "the refusal", func() bool { return z.Stats().Refused[CauseIdentity] > 0 })
	testutil.EventuallyTrue(t, "it is told why", func() bool {
		return len(posing.logs.lines("No link", `not for \"127.0.0.1\", where it is registered`)) > 0
	})
	own := posing.own
	own.Kind = kindReplication
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	raw, err := posing.open(ctx, z.member())
	testutil.Must(t, err)
	defer raw.Close()
	if _, _, _, err := posing.handshake(ctx, raw, z.member(), own); err == nil {
		t.Error("it replicates")
	}
	if len(z.Stats().Peers) > 0 || !z.hub.sees() {
		t.Errorf("it has a link: %+v", z.Stats().Peers)
	}
	b := startNode(t, "b", ca)
	b.SetMembers([]Member{z.member()})
	testutil.EventuallyTrue(t, "the link", func() bool { up, _ := b.Linked(); return up == 1 })
}

// TestABrokerThatIsNotRegisteredGetsNoLink: until it is. A registration that is not seen yet is
// waited for a moment.
func TestABrokerThatIsNotRegisteredGetsNoLink(t *testing.T) {
	for name, ca := range map[string]*authority{"TLS": newAuthority(t), "plaintext": nil} {
		t.Run(name, func(t *testing.T) {
			registered := newRegister()
			asked := make(chan struct{}, 100)
			z := startNode(t, "z", ca, func(c *Config) {
				c.RouteOf = func(ctx context.Context, broker string) (string, bool) {
					asked <- struct{}{}
					return registered.routeOf(ctx, broker)
				}
			})
			b := startNode(t, "b", ca)
			b.SetMembers([]Member{z.member()})
			testutil.EventuallyTrue(t, "the refusal", func() bool { return z.Stats().Refused[CauseMember] > 0 })
			if len(z.Stats().Peers) > 0 {
				t.Errorf("it has a link: %+v", z.Stats().Peers)
			}
			<-asked
			<-asked // the next attempt waits
			registered.set("b", b.member().Route)
			testutil.EventuallyTrue(t, "the link", func() bool { up, _ := b.Linked(); return up == 1 })
		})
	}
}
