//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// chart installs or upgrades the chart with this image, and waits until its operator is ready.
func (e *environment) chart(t *testing.T, image string) {
	t.Helper()
	repository, tag, ok := strings.Cut(image, ":")
	if !ok {
		t.Fatalf("image %q has no tag", image)
	}
	mustRun(t, e.helm, "upgrade", "--install", "carillon", "charts/carillon",
		"--namespace", operatorNamespace, "--create-namespace", "--wait", "--timeout", "3m",
		"--set", "image.repository="+repository, "--set-string", "image.tag="+tag,
		"--set", "watchNamespaces={"+namespace+"}")
}

func install(t *testing.T, e *environment) {
	if err := e.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	e.chart(t, e.image)
	deployments := &appsv1.DeploymentList{}
	if err := e.List(t.Context(), deployments, client.InNamespace(operatorNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(deployments.Items) != 1 || deployments.Items[0].Status.ReadyReplicas != 1 {
		t.Fatalf("the release has %d Deployments, the first of them with %d ready pods", len(deployments.Items), deployments.Items[0].Status.ReadyReplicas)
	}
}

func samples(t *testing.T, e *environment) {
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", "config/samples/broker.yaml", "-f", "config/samples/topic.yaml", "-f", "config/samples/subscription.yaml")
	upTo(5*time.Minute).For(t, "the Broker is Ready", e.brokerIsReady)

	b, err := e.broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "nats://main." + namespace + ".svc:4222"; b.Status.Endpoint != want {
		t.Errorf("status.endpoint is %q, want %q", b.Status.Endpoint, want)
	}
	if b.Status.Image != e.image {
		t.Errorf("status.image is %q, want %q", b.Status.Image, e.image)
	}
	if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionOpen) {
		t.Error("a Broker without auth does not say that it is Open")
	}
	for _, set := range []string{"main", "main-coordinator"} {
		e.spread(t, set)
		budget := &policyv1.PodDisruptionBudget{}
		if err := e.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: set}, budget); err != nil {
			t.Error(err)
		}
	}
}

// spread fails unless the three pods of a set are on three nodes.
func (e *environment) spread(t *testing.T, set string) {
	t.Helper()
	nodes := map[string]string{}
	for i := range 3 {
		p, err := e.pod(t.Context(), fmt.Sprintf("%s-%d", set, i))
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := nodes[p.Spec.NodeName]; taken {
			t.Errorf("%s and %s are both on %s", p.Name, other, p.Spec.NodeName)
		}
		nodes[p.Spec.NodeName] = p.Name
	}
}

func helmTest(t *testing.T, e *environment) {
	t.Log(mustRun(t, e.helm, "test", "carillon", "--namespace", operatorNamespace, "--timeout", "5m", "--logs"))
	// The self-test removes the objects that it created.
	list := &v1alpha1.BrokerList{}
	if err := e.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Errorf("after helm test there are %d Brokers, want only main", len(list.Items))
	}
}
