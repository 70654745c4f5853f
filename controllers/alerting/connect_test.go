package alerting

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// hostile serves what looks like a broker until a line is answered by answer. It returns how to
// connect to it.
func hostile(t *testing.T, greeting string, answer func(conn net.Conn, line string)) access {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, greeting); err != nil {
					return
				}
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if line := lines.Text(); line == "PING" {
						_, _ = io.WriteString(conn, "PONG\r\n")
					} else {
						answer(conn, line)
					}
				}
			}()
		}
	}()
	return access{servers: []string{"nats://" + listener.Addr().String()}}
}

const greeting = `INFO {"server_id":"a","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576}` + "\r\n"

func newFollower(t *testing.T, write func(Event) error) *follower {
	return &follower{
		budget: NewBudget(), log: slog.New(slog.DiscardHandler), now: time.Now,
		write: func(_ context.Context, _ *v1alpha1.View, e Event) error { return write(e) },
	}
}

func noEvent(t *testing.T) func(Event) error {
	return func(e Event) error { t.Errorf("it is told: %+v", e); return nil }
}

func rooms(sources ...Source) []wanted {
	return []wanted{{manifest: &v1alpha1.View{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rooms", UID: "1"}}, sources: sources}}
}

// TestAHostileBrokerEndsItsTurnOnly: the operator lives, whatever a server sends, and what the view
// is told has the reason.
func TestAHostileBrokerEndsItsTurnOnly(t *testing.T) {
	reply := func(text string) func(net.Conn, string) {
		return func(conn net.Conn, line string) {
			if strings.HasPrefix(line, "PUB ") {
				for {
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			}
		}
	}
	nothing := func(net.Conn, string) {}
	for what, c := range map[string]struct {
		to   access
		want string
	}{
		"a size that no machine has": {hostile(t, greeting, reply("MSG a 1 999999999999999\r\n")), errMessage.Error()},
		"such a size with a header":  {hostile(t, greeting, reply("HMSG a 1 10 999999999999999\r\n")), errMessage.Error()},
		"messages without an end":    {hostile(t, greeting, reply(strings.Repeat("MSG a 1 0\r\n\r\n", 1000))), "bytes in a turn"},
		"an endless INFO":            {hostile(t, "INFO {"+strings.Repeat("a", 1<<20), nothing), "control line that is too long"},
		"endless INFOs":              {hostile(t, greeting, reply(greeting)), "bytes in a turn"},
	} {
		f := newFollower(t, noEvent(t))
		err := f.turn(t.Context(), rooms(Source{Trigger: "hot", Topic: "alerts"}), c.to.connect)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		f.trouble.since = f.trouble.since.Add(-unreadAfter)
		_ = f.turn(t.Context(), rooms(Source{Trigger: "hot", Topic: "alerts"}), c.to.connect)
		if why, known := f.unread(&rooms(Source{Trigger: "hot", Topic: "alerts"})[0]); !known || !strings.Contains(why, c.want) {
			t.Errorf("%s: people are told %q, %v", what, why, known)
		}
	}
}

// TestASlowBrokerIsReadInParts: a server that sends single bytes is none that is hostile.
func TestASlowBrokerIsReadInParts(t *testing.T) {
	to := hostile(t, "", func(net.Conn, string) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() }) // until then only the operator may close it
		for _, b := range []byte(greeting + "PONG\r\n") {
			_, _ = conn.Write([]byte{b})
		}
	}()
	to.servers = []string{"nats://" + listener.Addr().String()}
	ctx, stop := context.WithCancel(t.Context())
	conn, err := to.connect(ctx)
	testutil.Must(t, err)
	stop()
	select {
	case <-conn.ctx.Done():
	case <-time.After(testutil.Patience):
		t.Error("a connection stays longer than its turn")
	}
	testutil.EventuallyTrue(t, "it is closed", conn.IsClosed)
}

// TestAStoppedTurnDoesNotWait for a broker that does not answer, whatever it is asked.
func TestAStoppedTurnDoesNotWait(t *testing.T) {
	for _, says := range []string{"", "INFO {", greeting} {
		came := make(chan struct{}, 1)
		to := hostile(t, says, func(_ net.Conn, line string) {
			select {
			case came <- struct{}{}:
			default:
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		if says != greeting {
			stop() // nothing shows that it has connected
		}
		done := make(chan error, 1)
		go func() {
			done <- newFollower(t, noEvent(t)).turn(ctx, rooms(Source{Trigger: "hot", Topic: "alerts"}), to.connect)
		}()
		if says == greeting {
			select {
			case <-came:
			case err := <-done:
				t.Errorf("it does not ask: %v", err)
				done <- err
			}
			stop()
		}
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("after %q: %v", says, err)
			}
		case <-time.After(testutil.Patience):
			t.Errorf("after %q it waits", says)
		}
		stop()
	}
}

// TestARefusedReadIsTold: with the broker's words, as soon as it lasts.
func TestARefusedReadIsTold(t *testing.T) {
	to := hostile(t, greeting, func(conn net.Conn, line string) {
		if subject, ok := strings.CutPrefix(line, "PUB "); ok {
			subject, _, _ = strings.Cut(subject, " ")
			_, _ = io.WriteString(conn, `-ERR 'Permissions Violation for Publish to "`+subject+`"'`+"\r\n")
		}
	})
	f, all := newFollower(t, noEvent(t)), rooms(Source{Trigger: "hot", Topic: "alerts"})
	now := time.Now()
	f.now = func() time.Time { return now }
	testutil.Must(t, f.turn(t.Context(), all, to.connect))
	if why, known := f.unread(&all[0]); known {
		t.Errorf("at once, people are told %q", why)
	}
	now = now.Add(unreadAfter)
	testutil.Must(t, f.turn(t.Context(), all, to.connect))
	if why, known := f.unread(&all[0]); !known || !strings.Contains(strings.ToLower(why), "shard 0 of topic alerts") || !strings.Contains(strings.ToLower(why), "permissions violation") {
		t.Errorf("people are told %q, %v", why, known)
	}
}

// TestABrokerChoosesNoProtocol: its address is a host and a port, whatever it has written.
func TestABrokerChoosesNoProtocol(t *testing.T) {
	var all []coordination.Broker
	for _, address := range []string{"main-0.example:4222", "ws://main-0:80", "a,ws://b", "a:1,ws://b:2", "[::1]:4222", "x", "", "a:b", "a:99999"} {
		all = append(all, coordination.Broker{ID: address, Client: address})
	}
	got := servers(&coordination.State{Brokers: all})
	if want := []string{"nats://main-0.example:4222", "nats://[::1]:4222"}; !slices.Equal(got, want) {
		t.Errorf("it connects to %q, want %q", got, want)
	}
}

// TestABrokerHasFewAddressesTried: those in etcd may be anything, and as many as it has written.
func TestABrokerHasFewAddressesTried(t *testing.T) {
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	testutil.Must(t, err)
	defer func() { _ = listener.Close() }()
	var dials atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	testutil.Must(t, err)
	var to access
	for i := range 50 {
		to.servers = append(to.servers, fmt.Sprintf("nats://127.0.0.%d:%s", i+1, port))
	}
	if conn, err := to.connect(t.Context()); err == nil {
		conn.Close()
		t.Error("it has connected")
	}
	if n := dials.Load(); n == 0 || n > maxDials || len(to.servers) != 50 {
		t.Errorf("it has tried %d addresses, and %d are left", n, len(to.servers))
	}
}
