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

// Gone asks the API server, past every cache, whether what once declared something was taken away
// on purpose.
type Gone struct {
	Live client.Reader
	// REST reaches /apis, where everybody may see which kinds there are.
	REST rest.Interface
}

// Manifest reports whether there is no object of that uid any more. object is of the kind, and is
// filled with what has the name now, if there is something.
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

// Defined reports whether the definition of a kind is there and staying. One that is being deleted,
// and everything that it defines with it, still answers, but lets nothing be created any more.
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

// BrokerThere reports whether the Broker of that uid is there and staying.
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

// Grace is how long something must have been gone before anything is done about it: who deletes a
// namespace, or a manifest together with its Broker, or in order to make it again, is through by
// then.
const Grace = 3 * time.Second

// Absences remembers since when what is in etcd has been without its manifest. To lose that is to
// wait once more.
type Absences struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// Left is how much of the grace is left for that id; none: 0.
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
