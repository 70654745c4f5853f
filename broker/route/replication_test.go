package route

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// replicates opens a connection for replication. An attempt is short, and on a busy machine some
// end before the handshake does.
func (n *testNode) replicates(t *testing.T, from string) (conn net.Conn) {
	t.Helper()
	testutil.Eventually(t, "a connection for replication", func() (err error) {
		conn, err = n.DialReplication(t.Context(), from)
		return err
	})
	return conn
}

// TestAConnectionForReplication: replication connections use the same TLS as links, and belong to
// the caller of DialReplication and to Config.Replication.
func TestAConnectionForReplication(t *testing.T) {
	for name, ca := range map[string]*authority{"TLS": newAuthority(t), "plaintext": nil} {
		t.Run(name, func(t *testing.T) {
			var serving atomic.Int64
			a := startNode(t, "a", ca, func(c *Config) {
				c.Replication = func(conn net.Conn, broker string) {
					serving.Add(1)
					defer serving.Add(-1)
					defer conn.Close()
					_, _ = io.WriteString(conn, "hello "+broker+"\n") // directly after the hellos
					_, _ = io.Copy(conn, conn)
				}
			})
			b := startNode(t, "b", ca)
			linkAll(t, a, b)
			conn := b.replicates(t, "a")
			defer conn.Close()
			in := bufio.NewReader(conn)
			for _, text := range []string{"", "something", "more"} {
				if text != "" {
					if _, err := io.WriteString(conn, text+"\n"); err != nil {
						t.Fatal(err)
					}
				} else {
					text = "hello b"
				}
				if got, err := in.ReadString('\n'); err != nil || got != text+"\n" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			// It is not counted as a link, and not refused.
			if p := a.peerOf("b"); !p.Up || p.Generation != 1 {
				t.Errorf("%+v", p)
			}
			testutil.EventuallyTrue(t, "it is not being greeted", func() bool { return a.greeting.count() <= 1 })
			a.Close()
			if n := serving.Load(); n > 0 {
				t.Errorf("%d go on after Close", n)
			}
			if _, err := in.ReadString('\n'); err == nil {
				t.Error("the other end goes on")
			}
		})
	}
}

func TestAnImpossibleReplicationConnectionIsRefused(t *testing.T) {
	ca := newAuthority(t)
	a, b := startNode(t, "a", ca), startNode(t, "b", ca)
	linkAll(t, a, b)
	if _, err := b.DialReplication(t.Context(), "nobody"); err == nil || !strings.Contains(err.Error(), "no member") {
		t.Errorf("dialled nobody: %v", err)
	}
	// A broker without replication, as in an earlier version.
	testutil.Eventually(t, "one that doesn't replicate refuses", func() error { // an attempt is short
		_, err := b.DialReplication(t.Context(), "a")
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Cause != CauseVersion {
			return fmt.Errorf("it answers %w", err)
		}
		return nil
	})
	// A peer that accepts and sends nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	b.SetMembers([]Member{a.member(), {ID: "c", Name: "c", Route: silent.Addr().String(), Incarnation: 1}})
	began := time.Now()
	if _, err := b.DialReplication(t.Context(), "c"); err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("dialled a silent one for %v: %v", time.Since(began), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.DialReplication(ctx, "c"); err == nil {
		t.Error("dialled under a context that is over")
	}
	b.Close()
	if _, err := b.DialReplication(t.Context(), "a"); !errors.Is(err, errClosing) {
		t.Errorf("dialled after Close: %v", err)
	}
}

// TestBothEndsAnnounceTheirFeatures: each end of a replication connection knows the features of the
// other one. A peer that announces none has none.
func TestBothEndsAnnounceTheirFeatures(t *testing.T) {
	accepted := make(chan net.Conn, 100)
	a := startNode(t, "a", nil, func(c *Config) {
		c.Features = coordination.MakeFeatureSet("barrier", "sparse")
		c.Replication = func(conn net.Conn, _ string) {
			accepted <- conn
			_, _ = io.Copy(io.Discard, conn) // until the other end closes
			conn.Close()
		}
	})
	b := startNode(t, "b", nil, func(c *Config) { c.Features = coordination.MakeFeatureSet("barrier") })
	c := startNode(t, "c", nil)
	linkAll(t, a, b, c)
	says := func(conn net.Conn, f coordination.Feature) bool {
		return conn.(interface {
			Announces(coordination.Feature) bool
		}).Announces(f)
	}
	for _, from := range []*testNode{b, c} {
		conn := from.replicates(t, "a")
		other := <-accepted
		for other.RemoteAddr().String() != conn.LocalAddr().String() { // of an attempt before
			other = <-accepted
		}
		if !says(conn, "sparse") {
			t.Errorf("%s doesn't know what a announces", from.own.ID)
		}
		if got, want := says(other, "barrier"), from == b; got != want || says(other, "sparse") {
			t.Errorf("of %s it is taken that it understands barrier: %v, sparse: %v", from.own.ID, got, says(other, "sparse"))
		}
		conn.Close()
	}
}
