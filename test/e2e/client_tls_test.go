//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

const secureName = "secure" // of the Broker of this story

// secured connects as a user of a Secret to a Broker with the operator's own CA for clients, by TLS
// and by WebSocket. The certificate is renewed: the connection stays, the pod too, and new
// connections get the new one. A right that is taken from the user is gone, and a user whose Secret
// is deleted is disconnected.
func secured(t *testing.T, e *environment) {
	manifest := filepath.Join(t.TempDir(), "secure.yaml")
	spec := "{replicas: 1, profile: small, deletionPolicy: Delete, coordination: {managed: {replicas: 1}}, tls: {}, websocket: {}, auth: {users: {selector: {matchLabels: {broker: secure}}}}}"
	if err := os.WriteFile(manifest, []byte(broker(secureName, spec)+userSecret("[\"greet.>\"]")), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", manifest)
	key := client.ObjectKey{Namespace: namespace, Name: secureName}
	b := &v1alpha1.Broker{}
	upTo(5*time.Minute).For(t, "the Broker with TLS is Ready", func(ctx context.Context) error {
		if err := e.Get(ctx, key, b); err != nil {
			return err
		}
		return isReady(b.Status.Conditions, b.Generation)
	})
	if want := "tls://" + secureName + "." + namespace + ".svc:4222"; b.Status.Endpoint != want {
		t.Errorf("status.endpoint is %q, want %q", b.Status.Endpoint, want)
	}
	trusted := &corev1.ConfigMap{}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secureName + "-client-ca"}, trusted); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(trusted.Data["ca.crt"]), 0o600); err != nil {
		t.Fatal(err)
	}
	dial := func(url string, options ...nats.Option) (*nats.Conn, error) {
		options = append([]nats.Option{nats.UserInfo("greeter", "a-long-one"), nats.SetCustomDialer(e.dialer()), nats.Timeout(dialTimeout), nats.NoReconnect()}, options...)
		return nats.Connect(url, options...)
	}
	serial := func(nc *nats.Conn) (string, error) {
		state, err := nc.TLSConnectionState()
		if err != nil || len(state.PeerCertificates) == 0 {
			return "", fmt.Errorf("there is no certificate: %w", err)
		}
		return state.PeerCertificates[0].SerialNumber.String(), nil
	}

	// This machine reaches pods, and no Services.
	host := secureName + "-0." + secureName + "-brokers." + namespace + ".svc"
	url := "tls://" + host + ":4222"
	if nc, err := dial(url); err == nil {
		nc.Close()
		t.Error("a client that does not know the CA has connected")
	}
	if nc, err := dial(url, nats.RootCAs(ca), nats.UserInfo("greeter", "another-one")); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Errorf("with a wrong password: %v", err)
	}
	said := make(chan error, 100)
	nc, err := dial(url, nats.RootCAs(ca), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { said <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	first, err := serial(nc)
	if err != nil {
		t.Fatal(err)
	}
	page, err := dial("wss://"+host+":8080", nats.RootCAs(ca))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	sub, err := page.SubscribeSync("greet.>")
	if err != nil {
		t.Fatal(err)
	}
	greet := func() error {
		if err := errors.Join(page.FlushTimeout(answerTime), nc.Publish("greet.world", []byte("hello"))); err != nil {
			return err
		}
		_, err := sub.NextMsg(answerTime)
		return err
	}
	if err := greet(); err != nil {
		t.Fatal(err)
	}
	before, err := e.pod(t.Context(), secureName+"-0")
	if err != nil {
		t.Fatal(err)
	}

	mustRun(t, "kubectl", "-n", namespace, "patch", "broker.carillon.dev", secureName, "--type=merge", "-p", `{"spec": {"tls": {"extraNames": ["broker.example.org"]}}}`)
	upTo(secretTime).For(t, "new connections get the new certificate", func(context.Context) error {
		next, err := dial(url, nats.RootCAs(ca))
		if err != nil {
			return err
		}
		defer next.Close()
		now, err := serial(next)
		if err == nil && now == first {
			err = errors.New("it is still the old one")
		}
		return err
	})
	if err := greet(); err != nil {
		t.Errorf("after the renewal, on the connections of before: %v", err)
	}
	if after, err := e.pod(t.Context(), before.Name); err != nil || after.UID != before.UID {
		t.Errorf("the renewal replaced the pod (%v)", err)
	}

	if err := os.WriteFile(manifest, []byte(userSecret("[]")), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", manifest)
	upTo(time.Minute).For(t, "the user may not publish any more", func(context.Context) error {
		if err := errors.Join(nc.Publish("greet.world", []byte("hello")), nc.FlushTimeout(answerTime)); err != nil {
			return err
		}
		select {
		case err := <-said:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("publishing: %v", err)
			}
			return nil
		default:
			return errors.New("it may still publish")
		}
	})
	mustRun(t, "kubectl", "-n", namespace, "delete", "secret", "greeter")
	upTo(time.Minute).For(t, "the user is disconnected", func(context.Context) error {
		if !nc.IsClosed() || !page.IsClosed() {
			return errors.New("it is connected")
		}
		return nil
	})

	mustRun(t, "kubectl", "-n", namespace, "delete", "broker.carillon.dev", secureName)
	upTo(2*time.Minute).For(t, "the Broker with TLS is gone, with its pods", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := e.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/instance": secureName}); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		if err := e.Get(ctx, client.ObjectKeyFromObject(trusted), trusted); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its ConfigMap is there (%v)", err)
		}
		return nil
	})
}

// userSecret is the manifest of a user who may publish on some patterns, a list in YAML.
func userSecret(publish string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Secret
type: carillon.dev/user
metadata: {name: greeter, labels: {broker: secure}}
stringData:
  password: a-long-one
  user.yaml: |
    permissions: {publish: {allow: %s}}
`, publish)
}
