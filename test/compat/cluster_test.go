package compat

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestReconnectToNodeThatInfoNamed: a client learns the addresses of other brokers from INFO, and
// reconnects to one when its broker dies.
func TestReconnectToNodeThatInfoNamed(t *testing.T) {
	first, second := startNode(t, nil), startNode(t, nil)
	discovered, reconnected := make(chan struct{}, 1), make(chan struct{}, 1)
	nc := connect(t, first,
		nats.DiscoveredServersHandler(func(*nats.Conn) { discovered <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) {}),
	)
	flush(t, nc)
	sub := subscribe(t, nc, "news")

	first.SetURLs([]string{second.address}, nil)
	wait(t, "the client learns of the second node", discovered)
	if urls := nc.DiscoveredServers(); !slices.Contains(urls, second.url()) {
		t.Errorf("it knows %v", urls)
	}

	first.stop()
	wait(t, "the client is with the second node", reconnected)
	if nc.ConnectedAddr() != second.address {
		t.Errorf("it is with %s", nc.ConnectedAddr())
	}
	flush(t, nc)
	testutil.Must(t, connect(t, second).Publish("news", []byte("still here")))
	if m := receive(t, sub); string(m.Data) != "still here" {
		t.Errorf("received %q", m.Data)
	}
}

// TestNodeThatLeftIsForgotten: a client that is told that a broker has left drops its address.
func TestNodeThatLeftIsForgotten(t *testing.T) {
	first, second, third := startNode(t, nil), startNode(t, nil), startNode(t, nil)
	nc := connect(t, first)
	flush(t, nc)
	first.SetURLs([]string{second.address, third.address}, nil)
	testutil.EventuallyTrue(t, "it knows of both", func() bool { return len(nc.Servers()) == 3 })
	first.SetURLs([]string{third.address}, nil)
	testutil.EventuallyTrue(t, "it has forgotten the second", func() bool { return !slices.Contains(nc.Servers(), second.url()) })
	if !slices.Contains(nc.Servers(), third.url()) {
		t.Errorf("it knows %v", nc.Servers())
	}
}

// TestLameDuck: a broker that is told to leave asks its clients to reconnect. They lose no message.
func TestLameDuck(t *testing.T) {
	first, second := startNode(t, nil), startNode(t, nil)
	first.SetURLs([]string{second.address}, nil)
	lame, reconnected := make(chan struct{}, 1), make(chan struct{}, 1)
	nc := connect(t, first,
		nats.LameDuckModeHandler(func(*nats.Conn) { lame <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }),
	)
	sub := subscribe(t, nc, "news")

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- first.Leave(ctx, 400*time.Millisecond) }()
	wait(t, "the client is told that the node leaves", lame)
	if slices.Contains(nc.DiscoveredServers(), first.url()) {
		t.Errorf("the node that leaves still names itself: %v", nc.DiscoveredServers())
	}
	wait(t, "the client is with the second node", reconnected)
	if nc.ConnectedAddr() != second.address {
		t.Errorf("it is with %s", nc.ConnectedAddr())
	}
	testutil.Must(t, <-left)
	flush(t, nc)
	testutil.Must(t, connect(t, second).Publish("news", nil))
	receive(t, sub)
	if _, err := nats.Connect(first.url()); err == nil {
		t.Error("the node that left takes clients")
	}
}

// TestNothingComesBeforeTheFirstPong: brokers join and leave while clients connect. A client
// expects only a PONG before its first PONG, so it is told of other brokers afterwards.
func TestNothingComesBeforeTheFirstPong(t *testing.T) {
	first := startNode(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	defer changes.Wait()
	defer stop()
	changes.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			first.SetURLs([]string{fmt.Sprintf("127.0.0.1:%d", 1+i%1000)}, nil)
		}
	})
	for range 100 {
		nc, err := nats.Connect(first.url(), nats.NoReconnect(), nats.Timeout(patience))
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
}
