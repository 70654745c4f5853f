//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const upgradeTime = 8 * time.Minute

// upgrade moves brokers and coordinators to another image, one pod at a time.
func upgrade(t *testing.T, e *environment) {
	clients := make([]func(context.Context) error, 0, brokers)
	publisher := e.connect(t, podName(0))
	for i := range brokers {
		conn := e.connect(t, podName(i))
		subject := fmt.Sprintf("upgrade.%d", i)
		sub, err := conn.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, func(context.Context) error {
			if err := publisher.Publish(subject, nil); err != nil {
				return err
			}
			_, err := sub.NextMsg(poll)
			return err
		})
	}

	d := e.startDurable(t, podName(0), "orders.us.upgrade")
	d.under(t, 100)
	fewest := map[string]int32{"main": brokers, "main-coordinator": 3}
	e.chart(t, e.next)
	upTo(upgradeTime).For(t, "the Broker is Ready with the new image", func(ctx context.Context) error {
		for set := range fewest {
			s := &appsv1.StatefulSet{}
			if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: set}, s); err != nil {
				return err
			}
			fewest[set] = min(fewest[set], s.Status.ReadyReplicas)
		}
		for set, ready := range fewest {
			if ready < 2 {
				t.Fatalf("only %d pods of %s were ready at once", ready, set)
			}
		}
		b, err := e.broker(ctx)
		if err != nil {
			return err
		}
		if b.Status.Image != e.next {
			return fmt.Errorf("status.image is %s", b.Status.Image)
		}
		for set := range fewest {
			for i := range 3 {
				p, err := e.pod(ctx, fmt.Sprintf("%s-%d", set, i))
				if err != nil {
					return err
				}
				if got := p.Spec.Containers[0].Image; got != e.next {
					return fmt.Errorf("%s runs %s", p.Name, got)
				}
			}
		}
		return e.brokerIsReady(ctx)
	})
	for _, hears := range clients {
		upTo(reconnectTime).For(t, "a client from before the upgrade hears again", hears)
	}
	upTo(copyTime).For(t, "all replicas are in sync", e.isWhole("orders"))
	d.under(t, 100)
	d.wentOn(t)
	if failed := d.failed.Load(); failed > brokers {
		t.Errorf("%d publishes of one connection failed while %d brokers were started again, more than one each; the last error is %v", failed, brokers, d.last.Load())
	}
	d.kept(t, e.stream(t, podName(1)), "orders")
	for i := range brokers {
		if got := e.versionOf(t, podName(i)); got != e.nextVersion {
			t.Errorf("%s reports version %s, want %s", podName(i), got, e.nextVersion)
		}
	}
}

// versionOf asks the broker for its version of Carillon; INFO names the NATS version that it
// supports.
func (e *environment) versionOf(t *testing.T, pod string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lookTime)
	defer cancel()
	url := fmt.Sprintf("http://%s.main-brokers.%s.svc:8222/varz", pod, namespace)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
		return e.dialer().Dial(network, address)
	}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var varz struct {
		Carillon string `json:"carillon"`
	}
	if err := json.NewDecoder(response.Body).Decode(&varz); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return varz.Carillon
}
