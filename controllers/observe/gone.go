package observe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// Gone asks the API server, bypassing every cache, whether a manifest was deleted on purpose.
type Gone struct {
	Live client.Reader
	// REST reads /apis, which lists the defined kinds and needs no permission.
	REST rest.Interface
}

// Manifest reports whether the object of that uid is gone. object has the kind, and receives the
// present object of that name, if any.
func (g Gone) Manifest(ctx context.Context, name types.NamespacedName, uid types.UID, object client.Object) (gone bool, err error) {
	err = g.Live.Get(ctx, name, object)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("getting %T %s: %w", object, name, err)
	}
	return object.GetUID() != uid, nil
}

// Defined reports whether the definition of a kind exists and is not being deleted. While it is
// being deleted, with all its objects, it is still listed, but objects can't be created any more.
func (g Gone) Defined(ctx context.Context, version schema.GroupVersion, resource string) (bool, error) {
	list := &metav1.APIResourceList{}
	err := g.REST.Get().AbsPath("/apis/" + version.Group + "/" + version.Version).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether %s are defined: %w", resource, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == resource && slices.Contains(r.Verbs, "create")
	}), nil
}

// BrokerThere reports whether the Broker of that uid exists and is not being deleted.
func (g Gone) BrokerThere(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	broker := &v1alpha1.Broker{}
	err := g.Live.Get(ctx, name, broker)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting Broker %s: %w", name, err)
	}
	return broker.UID == uid && broker.DeletionTimestamp == nil, nil
}

// Grace is how long a manifest must have been gone before its policy is applied. Whoever deletes a
// namespace, or a manifest with its Broker, or recreates a manifest, has finished by then.
const Grace = 3 * time.Second

// Absences remembers since when something in etcd has had no manifest. If that is lost, the wait
// begins anew.
type Absences struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// Left returns how much of Grace is left for that id; 0: none.
func (a *Absences) Left(id string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	since, ok := a.since[id]
	if !ok {
		since = now
		a.since[id] = now
	}
	return max(0, Grace-now.Sub(since))
}

// Forget ends the absence of that id.
func (a *Absences) Forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, id)
}
