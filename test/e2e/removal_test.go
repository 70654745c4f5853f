//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// removal deletes in the worst order: first the operator with its namespace, then the definitions,
// then the namespace of the brokers. No operator is left to remove a finalizer, so no object may
// have one.
func removal(t *testing.T, e *environment) {
	remove := func(limit time.Duration, kind schema.GroupVersionKind, name string) {
		t.Helper()
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		object.SetName(name)
		if err := e.Delete(t.Context(), object); err != nil {
			t.Fatalf("delete %s %s: %v", kind.Kind, name, err)
		}
		upTo(limit).For(t, kind.Kind+" "+name+" is gone", func(ctx context.Context) error {
			err := e.Get(ctx, client.ObjectKey{Name: name}, object)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return fmt.Errorf("it is still there, with finalizers %v", object.GetFinalizers())
		})
	}
	namespaces := corev1.SchemeGroupVersion.WithKind("Namespace")
	definitions := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

	remove(2*time.Minute, namespaces, operatorNamespace)
	for _, resource := range []string{"brokers", "topics", "subscriptions"} {
		remove(time.Minute, definitions, resource+".carillon.dev")
	}
	remove(3*time.Minute, namespaces, namespace)
	upTo(2*time.Minute).For(t, "the volumes are gone", func(ctx context.Context) error {
		volumes := &corev1.PersistentVolumeList{}
		if err := e.List(ctx, volumes); err != nil {
			return err
		}
		if len(volumes.Items) > 0 {
			return fmt.Errorf("%d volumes are left", len(volumes.Items))
		}
		return nil
	})
}
