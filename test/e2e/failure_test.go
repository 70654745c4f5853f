//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	replaceTime   = 2 * time.Minute
	reconnectTime = time.Minute
)

// wanderer returns a client of a broker that is about to go. It has to reconnect to another one and
// receive messages again.
func (e *environment) wanderer(t *testing.T, pod string) (conn *nats.Conn, hears func(publisher *nats.Conn) func(context.Context) error) {
	t.Helper()
	conn = e.connect(t, pod)
	sub, err := conn.SubscribeSync("wanderer." + pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.FlushTimeout(answerTime); err != nil {
		t.Fatal(err)
	}
	return conn, func(publisher *nats.Conn) func(context.Context) error {
		return func(context.Context) error {
			if at := conn.ConnectedServerName(); !conn.IsConnected() || at == pod {
				return fmt.Errorf("the client is at %q", at)
			}
			if err := publisher.Publish("wanderer."+pod, nil); err != nil {
				return err
			}
			_, err := sub.NextMsg(poll)
			return err
		}
	}
}

// heardAgain fails unless a new client of the broker receives the messages of the others, each
// once.
func (e *environment) heardAgain(t *testing.T, pod, from string) {
	t.Helper()
	f := e.startTraffic(t, from, pod)
	back := e.startTraffic(t, pod, from)
	upTo(answerTime).For(t, "traffic both ways", func(context.Context) error {
		if f.count().sent < trafficRate || back.count().sent < trafficRate {
			return errors.New("less than a second of traffic")
		}
		return nil
	})
	for _, o := range []outcome{f.finish(t), back.finish(t)} {
		o.untouched(t)
	}
}

func (e *environment) deletePod(t *testing.T, name string, options ...client.DeleteOption) *corev1.Pod {
	t.Helper()
	p, err := e.pod(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), p, options...); err != nil {
		t.Fatal(err)
	}
	return p
}

func brokerDeleted(t *testing.T, e *environment) { e.loseBroker(t, "main-1") }

// brokerKilled kills the process without notice to its clients.
func brokerKilled(t *testing.T, e *environment) {
	e.loseBroker(t, "main-2", client.GracePeriodSeconds(0))
}

func (e *environment) loseBroker(t *testing.T, victim string, options ...client.DeleteOption) {
	others := make([]string, 0, brokers-1)
	for i := range brokers {
		if podName(i) != victim {
			others = append(others, podName(i))
		}
	}
	f := e.startTraffic(t, others[0], others[1])
	_, hears := e.wanderer(t, victim)
	publisher := e.connect(t, others[0])

	before := e.deletePod(t, victim, options...)
	upTo(30*time.Second+reconnectTime).For(t, "its client hears again at another broker", hears(publisher))
	upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
	f.finish(t).untouched(t)
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	e.heardAgain(t, victim, others[0])
}

func coordinatorDeleted(t *testing.T, e *environment) {
	f := e.startTraffic(t, podName(0), podName(1))
	for _, victim := range []string{"main-coordinator-0", "main-coordinator-2"} {
		before := e.deletePod(t, victim)
		upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
		upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	}
	f.finish(t).untouched(t)
}

// node cuts, heals, kills or starts nodes by name.
func (e *environment) node(t *testing.T, verb string, names ...string) {
	t.Helper()
	args := []string{"node", verb}
	for _, name := range names {
		args = append(args, strings.TrimPrefix(name, "node"))
	}
	mustRun(t, e.clusterTool, args...)
}

func (e *environment) nodeOf(t *testing.T, pod string) string {
	t.Helper()
	p, err := e.pod(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return p.Spec.NodeName
}

func (e *environment) nodeIs(name string, want corev1.ConditionStatus) func(context.Context) error {
	return func(ctx context.Context) error {
		n := &corev1.Node{}
		if err := e.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != want {
				return fmt.Errorf("Ready of %s is %s", name, c.Status)
			}
		}
		return nil
	}
}

func nodeCut(t *testing.T, e *environment) {
	const victim, from, to = "main-1", "main-0", "main-2"
	cut := e.nodeOf(t, victim)
	f := e.startTraffic(t, from, to)
	_, hears := e.wanderer(t, victim)
	publisher := e.connect(t, from)

	e.node(t, "cut", cut)
	t.Cleanup(func() { e.node(t, "heal", cut) })
	upTo(reconnectTime).For(t, "its client hears again at another broker", hears(publisher))
	upTo(replaceTime).For(t, cut+" is noticed", e.nodeIs(cut, corev1.ConditionUnknown))
	e.node(t, "heal", cut)
	upTo(replaceTime).For(t, cut+" is back", e.nodeIs(cut, corev1.ConditionTrue))
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	f.finish(t).untouched(t)
	e.heardAgain(t, victim, from)
	e.heardAgain(t, victim, to)
}

// pairCut cuts the link between two brokers only: all stay Ready, clients of the third broker
// receive from both, and after the heal interest is exact again.
func pairCut(t *testing.T, e *environment) {
	a, b := e.nodeOf(t, "main-0"), e.nodeOf(t, "main-1")
	f := e.startTraffic(t, "main-0", "main-2")
	g := e.startTraffic(t, "main-1", "main-2")
	across := e.connect(t, "main-1")
	sub, err := across.SubscribeSync("across")
	if err != nil {
		t.Fatal(err)
	}
	publisher := e.connect(t, "main-0")

	e.node(t, "cut", a, b)
	t.Cleanup(func() { e.node(t, "heal", a, b) })
	upTo(reconnectTime).For(t, "main-1 no longer hears main-0", func(context.Context) error {
		if err := publisher.Publish("across", nil); err != nil {
			return err
		}
		if _, err := sub.NextMsg(time.Second); err == nil {
			return errors.New("it does")
		}
		return nil
	})
	e.node(t, "heal", a, b)
	upTo(reconnectTime).For(t, "it does again", func(context.Context) error {
		if err := publisher.Publish("across", nil); err != nil {
			return err
		}
		_, err := sub.NextMsg(poll)
		return err
	})
	f.finish(t).untouched(t)
	g.finish(t).untouched(t)
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	e.heardAgain(t, "main-1", "main-0")
}
