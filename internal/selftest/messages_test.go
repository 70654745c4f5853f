package selftest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// broker serves clients on a free port of this machine and returns its URL.
func broker(t *testing.T) string {
	t.Helper()
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{ServerID: "S", ServerName: "test", Version: "2.12.0", Profile: profile})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- hub.Serve(listener) }()
	t.Cleanup(func() {
		hub.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return "nats://" + listener.Addr().String()
}

func TestMessagesPassThroughABroker(t *testing.T) {
	var said strings.Builder
	err := Messages(t.Context(), broker(t), func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
	if err != nil {
		t.Error(err)
	}
	wantIn(t, said.String(), "connected to nats://127.0.0.1", "100 messages", "a request was answered")
}

// TestAnUnexpectedAnswerIsNoticed: an answer from an unexpected server, with mixed up subjects or
// clusters, is noticed.
func TestAnUnexpectedAnswerIsNoticed(t *testing.T) {
	url := broker(t)
	conn, err := nats.Connect(url, nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	t.Cleanup(conn.Close)
	_, err = conn.Subscribe("selftest.echo", func(m *nats.Msg) { _ = m.Respond(nil) })
	testutil.Must(t, err)
	testutil.Must(t, conn.Flush())
	if err := Messages(t.Context(), url, func(string, ...any) {}); err == nil || !strings.Contains(err.Error(), "nobody serves") {
		t.Errorf("the error is %v", err)
	}
}

// liar is a server that delivers the i-th message as often as copies says.
func liar(t *testing.T, copies func(i int) int) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := listener.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		fmt.Fprint(nc, `INFO {"server_id":"L","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
		in, sid, count := bufio.NewReader(nc), "", 0
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			switch words := strings.Fields(line); words[0] {
			case "PING":
				fmt.Fprint(nc, "PONG\r\n")
			case "SUB":
				sid = words[len(words)-1]
			case "HPUB": // subject, header size, total size
				var total int
				fmt.Sscan(words[3], &total)
				data := make([]byte, total+2)
				if _, err := io.ReadFull(in, data); err != nil {
					return
				}
				for range copies(count) {
					fmt.Fprintf(nc, "HMSG %s %s %s %s\r\n%s", words[1], sid, words[2], words[3], data)
				}
				count++
			}
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return "nats://" + listener.Addr().String()
}

func TestLostAndDuplicatedMessagesAreNoticed(t *testing.T) {
	for _, c := range []struct {
		story  string
		copies func(i int) int
		says   string
	}{
		{"the first one is lost", func(i int) int { return min(i, 1) }, `want "0 message 0"`},
		{"the last one is lost", func(i int) int { return min(messages-1-i, 1) }, "99 of 100 messages arrived"},
		{"one comes twice", func(i int) int { return 1 + b2i(i == 50) }, `want "51 message 51"`},
		{"the last one comes twice", func(i int) int { return 1 + b2i(i == messages-1) }, "1 messages more than the 100"},
	} {
		t.Run(c.story, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience) // a step ends before
			defer cancel()
			err := Messages(ctx, liar(t, c.copies), func(string, ...any) {})
			if err == nil {
				t.Fatal("it went unnoticed")
			}
			wantIn(t, err.Error(), c.says)
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAnUnreachableBrokerIsReported(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("out of time"))
	defer cancel()
	err := Messages(ctx, "nats://"+testutil.FreeAddress(t), func(string, ...any) {})
	if err == nil {
		t.Fatal("it passed")
	}
	wantIn(t, err.Error(), "connect to nats://127.0.0.1", "NetworkPolicy", "out of time")
}
