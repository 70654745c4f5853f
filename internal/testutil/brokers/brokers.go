// Package brokers runs a coordinator and brokers in a test's process.
package brokers

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// Coordinator runs a coordinator until stop is called or the test ends.
func Coordinator(t testing.TB) (local *coordinator.Local, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	local, err := coordinator.StartLocal(ctx, t.TempDir(), nil)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := local.Close(); err != nil {
			t.Errorf("stop the coordinator: %v", err)
		}
	})
	t.Cleanup(stop)
	return local, stop
}

// NoRoutes is the route address of a broker that links to no others.
const NoRoutes = "none"

// Run runs a broker until stop is called or the test ends, and waits until it is ready. address is
// where it serves clients. config needs a Name, a Cluster, Endpoints and Data. Its Profile
// is set to the named one, and empty addresses to free ports of the loopback interface; with a
// route address of NoRoutes it links to no others.
func Run(t testing.TB, profile string, config broker.Config) (address string, stop func()) {
	t.Helper()
	var err error
	config.Profile, err = limits.ForProfile(profile)
	testutil.Must(t, err)
	config.Version = "test"
	config.Client.Listen = cmp.Or(config.Client.Listen, "127.0.0.1:0")
	if config.Route.Listen = cmp.Or(config.Route.Listen, "127.0.0.1:0"); config.Route.Listen == NoRoutes {
		config.Route.Listen = ""
	}
	ready, stopped := make(chan string, 1), make(chan error, 1)
	config.Ready = func(address, _ string) { ready <- address }
	ctx, cancel := context.WithCancel(context.Background())
	go func() { stopped <- broker.Run(ctx, config) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("broker %s: %v", config.Name, err)
		}
	})
	t.Cleanup(stop)
	select {
	case address = <-ready:
	case err := <-stopped:
		stopped <- nil
		t.Fatalf("broker %s: %v", config.Name, err)
	case <-time.After(testutil.Patience):
		t.Fatalf("broker %s is not ready", config.Name)
	}
	return address, stop
}
