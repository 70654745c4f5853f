package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const patience = testutil.Patience

// cluster is a coordinator, and brokers in this process.
type cluster struct {
	testing.TB
	local *coordinator.Local
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	local, err := coordinator.StartLocal(ctx, t.TempDir(), nil)
	testutil.Must(t, err)
	t.Cleanup(func() {
		cancel()
		_ = local.Close()
	})
	return &cluster{t, local}
}

// broker runs one whose volume is data until it is stopped or the test ends.
func (c *cluster) broker(name, listen, data string) (address string, stop func()) {
	c.Helper()
	profile, err := limits.ForProfile("small")
	testutil.Must(c, err)
	ready, stopped := make(chan string, 1), make(chan error, 1)
	life, end := context.WithCancel(context.Background())
	go func() {
		stopped <- broker.Run(life, broker.Config{
			Name: name, Cluster: "test/client", Version: "test", Data: data,
			Client: broker.Address{Listen: listen}, Route: broker.Address{Listen: "127.0.0.1:0"},
			Endpoints: c.local.Endpoints(), Profile: profile, LameDuck: 50 * time.Millisecond,
			Ready: func(address string) { ready <- address },
		})
	}()
	over := false
	stop = func() {
		if !over {
			over = true
			end()
			if err := <-stopped; err != nil {
				c.Errorf("broker %s: %v", name, err)
			}
		}
	}
	c.Cleanup(stop)
	select {
	case address = <-ready:
	case err := <-stopped:
		over = true
		c.Fatalf("broker %s: %v", name, err)
	case <-time.After(patience):
		c.Fatalf("broker %s is not ready", name)
	}
	return address, stop
}

func connect(t testing.TB, address string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+address, nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.RetryOnFailedConnect(true))
	testutil.Must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// oneBroker is a broker, and a connection to it.
func oneBroker(t testing.TB) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	address, _ := startCluster(t).broker("main-0", "127.0.0.1:0", t.TempDir())
	nc := connect(t, address)
	js, err := jetstream.New(nc)
	testutil.Must(t, err)
	return nc, js
}

// stream makes a Topic that keeps its records in memory.
func stream(t testing.TB, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name, name + ".>"}, Storage: jetstream.MemoryStorage}
	if change != nil {
		change(&config)
	}
	_, err := js.CreateStream(within(t), config)
	testutil.Must(t, err)
}
