//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const answerTime = 15 * time.Second

// probes is the prefix of the subjects of interestEverywhere.
const probes = "news.probe."

// talk exchanges messages between the clients of every two brokers.
func talk(t *testing.T, e *environment) {
	conns := make([]*nats.Conn, brokers)
	subs := make([]*nats.Subscription, brokers)
	var inQueue [brokers]atomic.Int64
	for i := range brokers {
		conns[i] = e.connect(t, podName(i))
		upTo(answerTime).For(t, podName(i)+" names the other brokers to its clients", func(context.Context) error {
			if got := conns[i].DiscoveredServers(); len(got) < brokers-1 {
				return fmt.Errorf("it names %v", got)
			}
			return nil
		})
		var err error
		if subs[i], err = conns[i].SubscribeSync("news.>"); err != nil {
			t.Fatal(err)
		}
		if _, err = conns[i].QueueSubscribe("work", "workers", func(m *nats.Msg) {
			inQueue[i].Add(1)
			_ = m.Respond([]byte(podName(i))) // the requester's time-out reports a failure
		}); err != nil {
			t.Fatal(err)
		}
		if err := conns[i].FlushTimeout(answerTime); err != nil {
			t.Fatal(err)
		}
	}
	e.interestEverywhere(t, conns, subs)

	const each = 100
	for i, conn := range conns {
		for n := range each {
			m := nats.NewMsg(fmt.Sprintf("news.from.%d", i))
			m.Header.Set("N", fmt.Sprint(n))
			if err := conn.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.FlushTimeout(answerTime); err != nil {
			t.Fatal(err)
		}
	}
	for i, sub := range subs {
		next := map[string]int{}
		for range brokers * each {
			m, err := sub.NextMsg(answerTime)
			for err == nil && strings.HasPrefix(m.Subject, probes) { // a late probe
				m, err = sub.NextMsg(answerTime)
			}
			if err != nil {
				t.Fatalf("the client at %s heard %v, then %v", podName(i), next, err)
			}
			if got, want := m.Header.Get("N"), fmt.Sprint(next[m.Subject]); got != want {
				t.Fatalf("the client at %s heard number %s on %s, want %s: lost, doubled or out of order", podName(i), got, m.Subject, want)
			}
			next[m.Subject]++
		}
		if m, err := sub.NextMsg(100 * time.Millisecond); err == nil && !strings.HasPrefix(m.Subject, probes) {
			t.Fatalf("the client at %s heard %s %s once too often", podName(i), m.Subject, m.Header.Get("N"))
		}
	}

	for i, conn := range conns {
		for range each {
			if _, err := conn.Request("work", nil, answerTime); err != nil {
				t.Fatalf("a request at %s: %v", podName(i), err)
			}
		}
		if _, err := conn.Request("nobody", nil, answerTime); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request that nobody serves ended with %v at %s", err, podName(i))
		}
	}
	var total int64
	for i := range inQueue {
		total += inQueue[i].Load()
	}
	if total != brokers*each {
		t.Errorf("the queue group did %d pieces of work, %d were asked for", total, brokers*each)
	}
}

// interestEverywhere waits until every subscription receives from every broker, and drops those
// messages.
func (e *environment) interestEverywhere(t *testing.T, conns []*nats.Conn, subs []*nats.Subscription) {
	t.Helper()
	for i, conn := range conns {
		for s, sub := range subs {
			deadline := time.Now().Add(answerTime)
			for {
				subject := fmt.Sprintf("%s%d.%d", probes, i, s)
				if err := conn.Publish(subject, nil); err != nil {
					t.Fatal(err)
				}
				if m, err := sub.NextMsg(100 * time.Millisecond); err == nil && m.Subject == subject {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("what is published at %s does not reach %s", podName(i), podName(s))
				}
			}
		}
	}
	for i, conn := range conns { // the PONG comes after all that was sent before
		if err := conn.FlushTimeout(answerTime); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := subs[i].NextMsg(200 * time.Millisecond); err != nil {
				break
			}
		}
	}
}
