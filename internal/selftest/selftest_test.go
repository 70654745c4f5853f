package selftest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const endpoint = "nats://somewhere.default.svc:4222"

// cluster is an API server in memory, in which operate plays the operator when a Broker is made.
// A broker of somebody else's, with its volume, stands in it from the beginning.
func cluster(t *testing.T, operate func(ctx context.Context, kube client.Client, b *v1alpha1.Broker)) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.Broker{}).
		WithObjects(
			&v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "default"}},
			claim("data-main-0"),
		).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, kube client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if err := kube.Create(ctx, obj, opts...); err != nil {
					return err
				}
				if b, ok := obj.(*v1alpha1.Broker); ok {
					testutil.Must(t, kube.Create(ctx, claim("data-"+b.Name+"-0")))
					testutil.Must(t, kube.Create(ctx, claim("data-"+b.Name+"-coordinator-0")))
					operate(ctx, kube, b)
				}
				return nil
			},
		}).Build()
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

func setStatus(t *testing.T, kube client.Client, b *v1alpha1.Broker, url string, conditions ...metav1.Condition) {
	t.Helper()
	b = b.DeepCopy()
	b.Status.ObservedGeneration, b.Status.Endpoint, b.Status.Conditions = b.Generation, url, conditions
	testutil.Must(t, kube.Status().Update(t.Context(), b))
}

func run(t *testing.T, ctx context.Context, kube client.Client, exchange func(url string) error) (output string, err error) {
	t.Helper()
	var out strings.Builder
	test := Test{
		Client: kube, Namespace: "default", Out: &out, Poll: time.Millisecond,
		Exchange: func(_ context.Context, url string, _ func(string, ...any)) error { return exchange(url) },
	}
	err = test.Run(ctx)
	return out.String(), err
}

// wantOnlyMain holds that everything the test made is gone, and nothing else.
func wantOnlyMain(t *testing.T, kube client.Client) {
	t.Helper()
	var brokers v1alpha1.BrokerList
	testutil.Must(t, kube.List(t.Context(), &brokers))
	if len(brokers.Items) != 1 || brokers.Items[0].Name != "main" {
		t.Errorf("Brokers afterwards: %v, want only main", brokers.Items)
	}
	var claims corev1.PersistentVolumeClaimList
	testutil.Must(t, kube.List(t.Context(), &claims))
	if len(claims.Items) != 1 || claims.Items[0].Name != "data-main-0" {
		t.Errorf("volume claims afterwards: %v, want only data-main-0", claims.Items)
	}
}

func wantIn(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

func never(t *testing.T) func(string) error {
	return func(string) error { t.Error("messages were sent to a Broker that is not Ready"); return nil }
}

func TestAReadyBrokerIsUsedAndRemoved(t *testing.T) {
	kube := cluster(t, func(_ context.Context, kube client.Client, b *v1alpha1.Broker) {
		setStatus(t, kube, b, endpoint, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllReady"})
	})
	used := ""
	out, err := run(t, t.Context(), kube, func(url string) error { used = url; return nil })
	if err != nil {
		t.Error(err)
	}
	if used != endpoint {
		t.Errorf("messages went to %q, want %q", used, endpoint)
	}
	wantIn(t, out, "made Broker default/selftest-", "Ready=True AllReady", "removed Broker")
	wantOnlyMain(t, kube)
}

func TestAStalledBrokerFailsAtOnceAndSaysWhy(t *testing.T) {
	kube := cluster(t, func(ctx context.Context, kube client.Client, b *v1alpha1.Broker) {
		testutil.Must(t, kube.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: b.Name + "-0", Namespace: b.Namespace},
			Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
			}}},
		}))
		setStatus(t, kube, b, "",
			metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "NoVolumes", Message: "there is no StorageClass"},
			metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "NoVolumes", Message: "there is no StorageClass"})
	})
	// The pod of this story goes with its Broker, as the garbage collector would have it.
	kube = interceptor.NewClient(kube.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, kube client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if b, ok := obj.(*v1alpha1.Broker); ok {
				testutil.Must(t, kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: b.Name + "-0", Namespace: b.Namespace}}))
			}
			return kube.Delete(ctx, obj, opts...)
		},
	})
	out, err := run(t, t.Context(), kube, never(t))
	if err == nil {
		t.Fatal("a Stalled Broker passed")
	}
	wantIn(t, err.Error(), "Stalled", "NoVolumes", "there is no StorageClass")
	wantIn(t, out, "condition Ready=False NoVolumes", "ImagePullBackOff: no such image", "removed Broker")
	wantOnlyMain(t, kube)
}

func TestABrokerWithoutAnOperatorIsRemovedAfterTheTimeout(t *testing.T) {
	kube := cluster(t, func(context.Context, client.Client, *v1alpha1.Broker) {})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("out of time"))
	defer cancel()
	out, err := run(t, ctx, kube, never(t))
	if err == nil {
		t.Fatal("a Broker without a status passed")
	}
	wantIn(t, err.Error(), "does the operator run", "out of time")
	wantIn(t, out, "has no conditions", "removed Broker")
	wantOnlyMain(t, kube)
}

// TestAStatusOfAnotherGenerationIsNotBelieved: Ready of an older generation says nothing about this
// one.
func TestAStatusOfAnotherGenerationIsNotBelieved(t *testing.T) {
	kube := cluster(t, func(_ context.Context, kube client.Client, b *v1alpha1.Broker) {
		b = b.DeepCopy()
		b.Status.ObservedGeneration, b.Status.Endpoint = b.Generation-1, endpoint
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllReady"}}
		testutil.Must(t, kube.Status().Update(t.Context(), b))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := run(t, ctx, kube, never(t)); err == nil {
		t.Error("it passed")
	}
	wantOnlyMain(t, kube)
}

func TestLostMessagesFailTheTestAndTheBrokerIsRemoved(t *testing.T) {
	kube := cluster(t, func(_ context.Context, kube client.Client, b *v1alpha1.Broker) {
		setStatus(t, kube, b, endpoint, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllReady"})
	})
	lost := errors.New("3 of 100 messages arrived")
	if _, err := run(t, t.Context(), kube, func(string) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("the error is %v, want %v", err, lost)
	}
	wantOnlyMain(t, kube)
}
