//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const (
	operatorNamespace = "carillon-system"
	namespace         = "messaging" // of the users' Brokers
	brokers           = 3
	poll              = 300 * time.Millisecond
	lookTime          = time.Minute
)

// environment is the cluster under test, with clients of its API.
type environment struct {
	client.Client
	config      *rest.Config
	image, next string // the image to install, and the one to upgrade to
	nextVersion string
	helm        string
	clusterTool string
	watched     *watched
	pushing     *pushing
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	need := func(name string) string {
		value := os.Getenv(name)
		if value == "" {
			t.Fatalf("%s is not set; use test/e2e/run, which sets it", name)
		}
		return value
	}
	config, err := clientcmd.BuildConfigFromFlags("", need("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	log.SetLogger(logr.Discard()) // drops the API server's warnings about kinds that are listed on purpose
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &environment{
		Client: kube, config: config,
		image: need("E2E_IMAGE"), next: need("E2E_NEXT_IMAGE"), nextVersion: need("E2E_NEXT_VERSION"),
		helm: need("HELM"), clusterTool: need("E2E_CLUSTER"),
	}
}

// command runs a program for at most eight minutes and returns its output.
func command(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	// The test's own context has ended when its cleanup functions run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := command(t, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// upTo returns a wait with the intervals that suit the cluster.
func upTo(limit time.Duration) testutil.Wait {
	return testutil.Wait{Limit: limit, Every: poll, Each: lookTime, Log: true}
}

func (e *environment) broker(ctx context.Context) (*v1alpha1.Broker, error) {
	b := &v1alpha1.Broker{}
	return b, e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "main"}, b)
}

// brokerIsReady returns an error unless the Broker is Ready for its latest spec.
func (e *environment) brokerIsReady(ctx context.Context) error {
	b, err := e.broker(ctx)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return errors.New("there is no condition Ready")
	case ready.ObservedGeneration != b.Generation || b.Status.ObservedGeneration != b.Generation:
		return fmt.Errorf("generation %d is not observed yet", b.Generation)
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	case b.Status.ReadyReplicas != brokers || b.Status.Coordination.ReadyReplicas != 3:
		return fmt.Errorf("Ready with %d brokers and %d coordinators", b.Status.ReadyReplicas, b.Status.Coordination.ReadyReplicas)
	}
	for _, working := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(b.Status.Conditions, working); c != nil {
			return fmt.Errorf("Ready and %s: %s", working, c.Message)
		}
	}
	return nil
}

func (e *environment) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	return p, e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
}

// replaced returns a check that a pod of this name other than before is ready.
func (e *environment) replaced(name string, before *corev1.Pod) func(context.Context) error {
	return func(ctx context.Context) error {
		p, err := e.pod(ctx, name)
		if err != nil {
			return err
		}
		if p.UID == before.UID {
			return fmt.Errorf("pod %s is still the old one", name)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("pod %s is not ready", name)
	}
}

// podName returns the name of a broker's pod.
func podName(ordinal int) string { return fmt.Sprintf("main-%d", ordinal) }

// address returns the address that a broker gives to clients. Only the cluster's DNS resolves it.
func address(pod string) string {
	return fmt.Sprintf("nats://%s.main-brokers.%s.svc:4222", pod, namespace)
}

// dialer resolves names as pods do, by the cluster's DNS on the address of its API server.
type dialer struct{ resolver *net.Resolver }

const dialTimeout = 3 * time.Second

func (e *environment) dialer() dialer {
	host := e.config.Host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Hostname()
	}
	return dialer{&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(host, "53"))
	}}}
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		ips, err := d.resolver.LookupHost(ctx, strings.TrimSuffix(host, ".cluster.local")+".cluster.local.")
		if err != nil {
			return nil, err
		}
		host = ips[0]
	}
	return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(host, port))
}

// connect returns a client that starts at this pod, and may reconnect to any other one that a
// server names.
func (e *environment) connect(t *testing.T, pod string, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append([]nats.Option{
		nats.Name(t.Name()), nats.SetCustomDialer(e.dialer()), nats.Timeout(dialTimeout),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 0), nats.MaxReconnects(-1),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
	}, options...)
	conn, err := nats.Connect(address(pod), options...)
	if err != nil {
		t.Fatalf("connect to %s: %v", pod, err)
	}
	t.Cleanup(conn.Close)
	return conn
}
