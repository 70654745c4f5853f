package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// annotationApplied holds the hash of the fields that were applied last.
const annotationApplied = v1alpha1.Group + "/applied"

// Writer applies objects under one field owner.
type Writer struct {
	Client client.Client
	// Live reads past the cache.
	Live       client.Reader
	FieldOwner string
}

// TakenError reports that an object of the wanted name has another owner.
type TakenError struct {
	Object string // "Service main"
}

func (e *TakenError) Error() string {
	return e.Object + " exists and does not belong to this Broker"
}

// LeftoverError reports that an object of the wanted name has a deleted owner, and that the garbage
// collector has not removed it yet.
type LeftoverError struct {
	Object string
}

func (e *LeftoverError) Error() string { return e.Object + " of a former Broker is still there" }

// ChangedError reports that the object from which the wanted one was made has changed or is gone.
type ChangedError struct {
	Object string
}

// UnknownKindError reports that the API server does not know the object's kind.
type UnknownKindError struct {
	Group, Kind string
	err         error
}

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("the API server knows no %s of %s: %v", e.Kind, e.Group, e.err)
}

func (e *UnknownKindError) Unwrap() error { return e.err }

func (e *ChangedError) Error() string { return e.Object + " is gone, or another, since it was seen" }

// Apply applies the wanted object for owner. It returns the name of a written object ("Service
// main"), or nothing if it was equal.
func (w Writer) Apply(ctx context.Context, owner client.Object, wanted runtime.ApplyConfiguration) (string, error) {
	return w.ApplyTo(ctx, owner, wanted, nil)
}

// ApplyTo is Apply for an object that was made from seen, if that isn't nil. If the present object
// is another one, or gone, it writes nothing and returns a *ChangedError, since what was taken from
// seen may be wrong.
func (w Writer) ApplyTo(ctx context.Context, owner client.Object, wanted runtime.ApplyConfiguration, seen client.Object) (string, error) {
	fields, err := asMap(wanted)
	if err != nil {
		return "", err
	}
	object := &unstructured.Unstructured{Object: fields}
	what := fmt.Sprintf("%s %s", object.GetKind(), object.GetName())
	hash, err := hashOf(fields)
	if err != nil {
		return "", err
	}
	live, err := w.get(ctx, object)
	if meta.IsNoMatchError(err) {
		return "", w.unknown(object, err)
	}
	if err != nil {
		return "", fmt.Errorf("getting %s: %w", what, err)
	}
	if seen != nil && (live == nil || live.GetUID() != seen.GetUID() || live.GetGeneration() != seen.GetGeneration()) {
		return "", &ChangedError{what}
	}
	if live != nil {
		if err := belongs(live, owner, what); err != nil {
			return "", err
		}
		found, err := asMap(live)
		if err != nil {
			return "", err
		}
		difference := missing(fields, found)
		if live.GetAnnotations()[annotationApplied] == hash && difference == "" {
			return "", nil
		}
		log.FromContext(ctx).V(1).Info("Correcting object", "object", what, "difference", difference)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = hash
	object.SetAnnotations(annotations)
	if seen != nil {
		object.SetUID(seen.GetUID())
		object.SetResourceVersion(live.GetResourceVersion())
	}
	err = w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(w.FieldOwner), client.ForceOwnership)
	if seen != nil && apierrors.IsConflict(err) {
		return "", &ChangedError{what}
	}
	if apierrors.IsNotFound(err) && !w.Client.Scheme().Recognizes(object.GroupVersionKind()) {
		return "", w.unknown(object, err) // its definition was removed
	}
	if apierrors.IsInvalid(err) && live != nil {
		err = w.replaceLists(ctx, object, err)
	}
	if err != nil {
		return "", fmt.Errorf("applying %s: %w", what, err)
	}
	return what, nil
}

// replaceLists updates the object so that its lists equal ours. Server-side apply only adds missing
// elements to a list: if somebody changed our port, both together may be invalid.
func (w Writer) replaceLists(ctx context.Context, object *unstructured.Unstructured, applyErr error) error {
	patch, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if err := w.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(w.FieldOwner)); err != nil {
		return applyErr // the first refusal names the fault
	}
	return nil
}

func (w Writer) unknown(object *unstructured.Unstructured, err error) error {
	kind := object.GroupVersionKind()
	return &UnknownKindError{Group: kind.Group, Kind: kind.Kind, err: err}
}

// get reads the object from the cache, and from the API server if the cache has none; nil: it does
// not exist. Kinds that are not registered are not cached.
func (w Writer) get(ctx context.Context, object *unstructured.Unstructured) (client.Object, error) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if !w.Client.Scheme().Recognizes(object.GroupVersionKind()) {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		err := w.Live.Get(ctx, key, live)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return live, err
	}
	created, err := w.Client.Scheme().New(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	live, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", created)
	}
	err = w.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		err = w.Live.Get(ctx, key, live)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

func belongs(live, owner client.Object, what string) error {
	controller := metav1.GetControllerOf(live)
	switch {
	case controller == nil:
		return adoptable(live, what)
	case controller.UID == owner.GetUID():
		return nil
	case controller.Kind == "Broker" && controller.Name == owner.GetName():
		return &LeftoverError{Object: what}
	}
	return &TakenError{Object: what}
}

// adoptable reports, as an error, why an existing object can't be adopted. An object that we
// applied and that lost its owner, for example in a restore from a backup, can.
func adoptable(live client.Object, what string) error {
	if live.GetAnnotations()[annotationApplied] != "" {
		return nil
	}
	return &TakenError{Object: what}
}

func asMap(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", object, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", object, err)
	}
	return fields, nil
}

// hashOf returns a hash that is the same for equal objects, since JSON objects are encoded with
// sorted keys.
func hashOf(fields map[string]any) (string, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("encoding an object: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
