package controllers_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers"
)

type controllersOptions = controllers.Options

// unstructuredScale is the scale subresource of the Broker, as autoscalers see it.
type unstructuredScale struct {
	replicas int64
	selector string
}

func (s *unstructuredScale) read(t *testing.T, w *world) error {
	t.Helper()
	scale := &unstructured.Unstructured{}
	scale.SetAPIVersion("autoscaling/v1")
	scale.SetKind("Scale")
	broker := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main"}}
	if err := k8s.SubResource("scale").Get(t.Context(), broker, scale); err != nil {
		return err
	}
	s.replicas, _, _ = unstructured.NestedInt64(scale.Object, "status", "replicas")
	s.selector, _, _ = unstructured.NestedString(scale.Object, "status", "selector")
	return nil
}

// watchReady records the lowest number of ready pods until stop is called.
func (w *world) watchReady() (stop func() map[string]int) {
	ctx, cancel := context.WithCancel(context.Background())
	least, done := map[string]int{"broker": 100, "coordinator": 100}, make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			pods := &corev1.PodList{}
			if err := k8s.List(ctx, pods, client.InNamespace(w.namespace)); err == nil {
				ready := map[string]int{}
				for i := range pods.Items {
					if pod := &pods.Items[i]; podReady(pod) && pod.DeletionTimestamp == nil {
						ready[pod.Labels["app.kubernetes.io/component"]]++
					}
				}
				for component := range least {
					least[component] = min(least[component], ready[component])
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() map[string]int { cancel(); <-done; return least }
}

// expandable gives the namespace's broker volumes an expandable StorageClass and binds them.
func (w *world) expandable() {
	w.t.Helper()
	allowed := true
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "expandable-" + w.namespace},
		Provisioner: "carillon.dev/test", AllowVolumeExpansion: &allowed,
	}
	if err := k8s.Create(w.t.Context(), class); err != nil {
		w.t.Fatal(err)
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if err := k8s.List(w.t.Context(), claims, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/component": "broker"}); err != nil {
		w.t.Fatal(err)
	}
	for i := range claims.Items {
		// The StatefulSet controller and the operator write them too.
		w.change(&claims.Items[i], func(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
			claim.Spec.StorageClassName = &class.Name
			claim.Spec.VolumeName = "volume-of-" + claim.Name
			return k8s.Update(ctx, claim)
		})
		w.change(&claims.Items[i], func(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
			claim.Status.Phase = corev1.ClaimBound
			return k8s.Status().Update(ctx, claim)
		})
	}
}

// change applies a change to the current version of a volume claim. It tries again if the claim was
// changed meanwhile.
func (w *world) change(claim *corev1.PersistentVolumeClaim, how func(context.Context, *corev1.PersistentVolumeClaim) error) {
	w.t.Helper()
	name := claim.Name
	eventually.For(w.t, "changing volume claim "+name, func(ctx context.Context) error {
		if err := w.get(name, claim); err != nil {
			return err
		}
		return how(ctx, claim)
	})
}

// grant gives a volume claim the requested size.
func (w *world) grant(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
	_ = k8s.Status().Update(w.t.Context(), claim) // retried by the next call
}

// create creates a Broker named main.
func (w *world) create(spec string) {
	w.t.Helper()
	if err := k8s.Create(w.t.Context(), object(w.t, "Broker", w.namespace, "main", spec)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string, into client.Object) error {
	// Decoding keeps fields that the object lacks.
	reflect.ValueOf(into).Elem().SetZero()
	return k8s.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, into)
}

func (w *world) broker() *v1alpha1.Broker {
	w.t.Helper()
	broker := &v1alpha1.Broker{}
	if err := w.get("main", broker); err != nil {
		w.t.Fatal(err)
	}
	return broker
}

// patch merges JSON into an object.
func (w *world) patch(into client.Object, name, patch string) {
	w.t.Helper()
	into.SetNamespace(w.namespace)
	into.SetName(name)
	if err := k8s.Patch(w.t.Context(), into, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a condition of the Broker at its present generation; with an empty status, for
// its absence.
func (w *world) until(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	w.t.Helper()
	var found metav1.Condition
	eventually.For(w.t, fmt.Sprintf("waiting for %s %s %s", kind, status, reason), func(context.Context) error {
		broker := w.broker()
		if broker.Status.ObservedGeneration != broker.Generation {
			return fmt.Errorf("generation %d observed, of %d", broker.Status.ObservedGeneration, broker.Generation)
		}
		c := meta.FindStatusCondition(broker.Status.Conditions, kind)
		switch {
		case c == nil && status == "":
			return nil
		case c == nil:
			return fmt.Errorf("it is absent; there are %v", broker.Status.Conditions)
		case c.Status != status || (reason != "" && c.Reason != reason):
			return fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		found = *c
		return nil
	})
	return found
}

func (w *world) untilReady() {
	w.t.Helper()
	w.until(v1alpha1.ConditionReady, metav1.ConditionTrue, "AllReady")
}

// quiet waits until the operator has made a pass since its start, no pass or request is under way,
// and nothing was written for two seconds and during 40 consecutive requests of the test: on a busy
// machine two seconds are too short.
func (w *world) quiet() {
	w.t.Helper()
	const pause, rounds = 2 * time.Second, 40
	last, since, round := -1, time.Now(), 0
	eventually.For(w.t, "waiting for the operator to be quiet", func(context.Context) error {
		if err := k8s.Get(w.t.Context(), client.ObjectKey{Name: w.namespace}, &corev1.Namespace{}); err != nil {
			return err
		}
		passes, active := w.passes()
		n, under := w.counted()
		if n != last || under > 0 || active > 0 || passes <= w.passesBefore {
			last, since, round = n, time.Now(), 0
		}
		if round++; round <= rounds || time.Since(since) < pause {
			return fmt.Errorf("it made %d passes, %d are under way, %d writes too; it wrote %v", passes-w.passesBefore, active, under, w.written()[max(0, n-3):])
		}
		return nil
	})
}

// passes returns how many passes operators of this process have begun and ended, and how many are
// under way.
func (w *world) passes() (ended, active int) {
	w.t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "controller_runtime_reconcile_total":
				ended += int(m.GetCounter().GetValue())
			case "controller_runtime_active_workers":
				active += int(m.GetGauge().GetValue())
			}
		}
	}
	return ended, active
}

func (w *world) pods(component string) []corev1.Pod {
	w.t.Helper()
	pods := &corev1.PodList{}
	if err := k8s.List(w.t.Context(), pods, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/component": component}); err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

// notAfter returns when the certificate in a Secret expires.
func (w *world) notAfter(name string) time.Time {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.get(name, secret); err != nil {
		w.t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		w.t.Fatalf("Secret %s has no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	return cert.NotAfter
}

func (w *world) findEvent(reason, note string) error {
	events := &eventsv1.EventList{}
	if err := k8s.List(w.t.Context(), events, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	var seen []string
	for _, e := range events.Items {
		if e.Reason == reason && strings.Contains(e.Note, note) {
			return nil
		}
		seen = append(seen, e.Reason+": "+e.Note)
	}
	return fmt.Errorf("no event %s with %q; there are\n%s", reason, note, strings.Join(seen, "\n"))
}

func (w *world) wantEvent(reason, note string) {
	w.t.Helper()
	eventually.For(w.t, "looking for an event", func(context.Context) error { return w.findEvent(reason, note) })
}
