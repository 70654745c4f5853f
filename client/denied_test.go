package client_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// asked is a request that a client has sent to a fake server.
type asked struct {
	conn    net.Conn
	subject string
	reply   string
	sid     string // of the client's subscription to replies
}

// startFake runs a server for one client at a time, which answers requests.
func startFake(t *testing.T, answer func(asked)) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprint(conn, `INFO {"server_id":"fake","headers":true,"max_payload":1048576}`+"\r\n")
		sid := ""
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			switch words := strings.Fields(lines.Text()); {
			case len(words) == 0:
			case words[0] == "PING":
				_, _ = fmt.Fprint(conn, "PONG\r\n")
			case words[0] == "SUB" && strings.HasSuffix(words[1], ".*"):
				sid = words[2]
			case words[0] == "PUB":
				answer(asked{conn, words[1], words[2], sid})
			}
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return listener.Addr().String()
}

// startDenying returns a connection to a server that lets nobody publish.
func startDenying(t *testing.T) *nats.Conn {
	address := startFake(t, func(a asked) {
		_, _ = fmt.Fprintf(a.conn, "-ERR 'Permissions Violation for Publish to %q'\r\n", a.subject)
	})
	nc, err := nats.Connect("nats://"+address, nats.Timeout(patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	testutil.Must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// TestARequestThatIsDeniedIsNotMadeForEver: a broker tells the connection that the user may not
// make a request, and does not answer it.
func TestARequestThatIsDeniedIsNotMadeForEver(t *testing.T) {
	nc := startDenying(t)
	_, err := client.TakeSnapshot(within(t), nc, "orders", client.SnapshotOptions{})
	if !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a snapshot: %v", err)
	}
	options := client.ReaderOptions{Wait: time.Millisecond}
	r, err := client.NewReader(nc, "orders", 0, 1, options)
	testutil.Must(t, err)
	defer func() { _ = r.Close() }()
	for range 2 { // which are two requests, and two refusals
		if _, err := r.Next(within(t)); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a reader: %v", err)
		}
	}
}

// TestRequestsThatAreDeniedEndBesideEachOther: a connection has its last error only, so each
// refusal hides the ones before.
func TestRequestsThatAreDeniedEndBesideEachOther(t *testing.T) {
	nc := startDenying(t)
	ctx := within(t)
	var all sync.WaitGroup
	defer all.Wait()
	for shard := range 8 {
		r, err := client.NewReader(nc, "orders", shard, 1, client.ReaderOptions{Wait: time.Millisecond})
		testutil.Must(t, err)
		t.Cleanup(func() { _ = r.Close() })
		all.Go(func() {
			time.Sleep(time.Duration(shard) * 100 * time.Millisecond) // they ask in turn, also again
			if _, err := r.Next(ctx); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("reader %d: %v", shard, err)
			}
		})
	}
	for n := range 3 {
		all.Go(func() {
			time.Sleep(time.Duration(n) * 700 * time.Millisecond)
			_, err := client.TakeSnapshot(ctx, nc, fmt.Sprint("orders", n), client.SnapshotOptions{})
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("snapshot %d: %v", n, err)
			}
		})
	}
}
