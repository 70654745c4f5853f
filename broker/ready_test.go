package broker

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestABrokerIsNotReadyWithoutLinks: a member is registered and says nothing on its links. A broker
// that starts takes no clients while it tries to reach that one, again and again, and does as soon
// as that one is no member any more.
func TestABrokerIsNotReadyWithoutLinks(t *testing.T) {
	t.Parallel()
	const cluster = "local/test"
	etcd, err := coordinator.StartLocal(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	testutil.Must(t, err)
	defer etcd.Close()
	store, err := coordination.Open(coordination.Config{Endpoints: etcd.Endpoints(), Cluster: cluster, LeaseTTL: testutil.Patience})
	testutil.Must(t, err)
	defer store.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var running sync.WaitGroup
	defer running.Wait()
	defer mute.Close()
	var dialled atomic.Int64
	running.Go(func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			dialled.Add(1)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	registered, leave := context.WithCancel(ctx)
	defer leave()
	joined := make(chan int64, 1)
	running.Go(func() {
		_ = store.Join(registered, coordination.Broker{ID: "mute", Name: "mute", Client: "127.0.0.1:1", Route: mute.Addr().String()}, func(life int64) { joined <- life })
	})
	<-joined

	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	ready := make(chan string, 1)
	ended := make(chan error, 1)
	running.Go(func() {
		ended <- Run(ctx, Config{
			Name: "a", Cluster: cluster, Version: "test", Data: t.TempDir(), Endpoints: etcd.Endpoints(), Profile: profile,
			Client: Address{Listen: "127.0.0.1:0"}, Route: Address{Listen: "127.0.0.1:0"}, Ready: func(address, _ string) { ready <- address },
		})
	})
	const attempts = 10 // of a second each
	testutil.EventuallyTrue(t, "the member is dialled many times", func() bool { return dialled.Load() >= attempts || len(ready)+len(ended) > 0 })
	if len(ready) > 0 || len(ended) > 0 {
		t.Fatalf("it took clients after %d attempts", dialled.Load())
	}
	leave()
	testutil.EventuallyTrue(t, "it takes clients", func() bool { return len(ready) > 0 })
	stop()
	testutil.Must(t, <-ended)
}
