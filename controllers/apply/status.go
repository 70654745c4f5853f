package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status writes the whole status of an object. That the object is gone meanwhile, or is another of
// the same name, is no error: there is nothing left to report on.
func (w Writer) Status(ctx context.Context, object client.Object, status any) error {
	gvk, err := w.Client.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	fields, err := asMap(status)
	if err != nil {
		return err
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	wanted.SetGroupVersionKind(gvk)
	wanted.SetNamespace(object.GetNamespace())
	wanted.SetName(object.GetName())
	wanted.SetUID(object.GetUID())
	err = w.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(w.FieldOwner), client.ForceOwnership)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("writing the status of %s %s: %w", gvk.Kind, object.GetName(), err)
}
