package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// annotationApplied holds the hash of what was last applied.
const annotationApplied = v1alpha1.Group + "/applied"

// Writer applies objects under one field owner.
type Writer struct {
	Client client.Client
	// Live reads past the cache.
	Live       client.Reader
	FieldOwner string
}

// TakenError says that an object of the wanted name belongs to somebody else.
type TakenError struct {
	Object string // "Service main"
}

func (e *TakenError) Error() string {
	return e.Object + " exists and does not belong to this Broker"
}

// LeftoverError says that an object of the wanted name belongs to an owner that was deleted, and
// that the garbage collector has yet to remove it.
type LeftoverError struct {
	Object string
}

func (e *LeftoverError) Error() string { return e.Object + " of a former Broker is still there" }

// Apply makes the object as wanted says, for owner; it says whether it had to write.
func (w Writer) Apply(ctx context.Context, owner client.Object, wanted runtime.ApplyConfiguration) (bool, error) {
	fields, err := asMap(wanted)
	if err != nil {
		return false, err
	}
	object := &unstructured.Unstructured{Object: fields}
	what := fmt.Sprintf("%s %s", object.GetKind(), object.GetName())
	hash, err := hashOf(fields)
	if err != nil {
		return false, err
	}
	live, err := w.get(ctx, object)
	if err != nil {
		return false, fmt.Errorf("getting %s: %w", what, err)
	}
	if live != nil {
		if err := belongs(live, owner, what); err != nil {
			return false, err
		}
		found, err := asMap(live)
		if err != nil {
			return false, err
		}
		if live.GetAnnotations()[annotationApplied] == hash && within(fields, found) {
			return false, nil
		}
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = hash
	object.SetAnnotations(annotations)
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(w.FieldOwner), client.ForceOwnership); err != nil {
		return false, fmt.Errorf("applying %s: %w", what, err)
	}
	return true, nil
}

// get reads the object from the cache, and past it if it is not there; nil: there is none.
func (w Writer) get(ctx context.Context, object *unstructured.Unstructured) (client.Object, error) {
	created, err := w.Client.Scheme().New(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	live, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", created)
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
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

// adoptable: an object that we once applied and that lost its owner, as after a restore from a
// backup, is taken up again.
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

// hashOf is the same for equal objects, since JSON objects are encoded with sorted keys.
func hashOf(fields map[string]any) (string, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("encoding an object: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
