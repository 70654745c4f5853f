package controllers_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// watchReady notes, until its result is called, the least number of pods that were ready at once.
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

// expandable gives the namespace's broker volumes a StorageClass and binds them, as a storage
// provider that can expand would.
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
		claim := &claims.Items[i]
		claim.Spec.StorageClassName = &class.Name
		claim.Spec.VolumeName = "volume-of-" + claim.Name
		if err := k8s.Update(w.t.Context(), claim); err != nil {
			w.t.Fatal(err)
		}
		claim.Status.Phase = corev1.ClaimBound
		if err := k8s.Status().Update(w.t.Context(), claim); err != nil {
			w.t.Fatal(err)
		}
	}
}

// grant gives a volume claim the room that it asks for.
func (w *world) grant(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
	_ = k8s.Status().Update(w.t.Context(), claim) // it is granted again with the next look
}
