package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

const patience = testutil.Patience

// cluster is a coordinator, and brokers in this process.
type cluster struct {
	testing.TB
	local *coordinator.Local
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	local, _ := brokers.Coordinator(t)
	return &cluster{t, local}
}

// broker runs one whose volume is data until it is stopped or the test ends.
func (c *cluster) broker(name, listen, data string) (address string, stop func()) {
	c.Helper()
	return brokers.Run(c, "small", broker.Config{
		Name: name, Cluster: "test/client", Data: data, Endpoints: c.local.Endpoints(),
		Client: broker.Address{Listen: listen}, LameDuck: 50 * time.Millisecond,
	})
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
	address, _ := newCluster(t).broker("main-0", "127.0.0.1:0", t.TempDir())
	nc := connect(t, address)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
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
