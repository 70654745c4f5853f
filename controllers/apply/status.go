package apply

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheLag is how long a pass waits that found the cache behind. Mostly a watch brings an object
// within milliseconds.
const CacheLag = 50 * time.Millisecond

// Statuses writes the statuses of objects of one kind and remembers the versions that it wrote. A
// pass must not judge a status that is older than the one written last: if what it wants equals the
// older status it writes nothing, and the newer, wrong one stays until something else triggers a
// pass.
type Statuses struct {
	Writer Writer

	mu      sync.Mutex
	written map[types.NamespacedName]version
}

// version is the resource version of an object after its status was written.
type version struct {
	uid      types.UID
	resource uint64
	doubt    bool // the answer was an error: the status may have been written or not
}

// Write writes the whole status of an object. It is no error if the object is gone meanwhile, or
// another one has its name.
func (s *Statuses) Write(ctx context.Context, object client.Object, status any) error {
	gvk, err := s.Writer.Client.GroupVersionKindFor(object)
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
	err = s.Writer.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(s.Writer.FieldOwner), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		s.note(object, version{uid: object.GetUID(), doubt: true})
		return fmt.Errorf("writing the status of %s %s: %w", gvk.Kind, object.GetName(), err)
	}
	// A version that can't be compared is 0, older than any.
	resource, _ := strconv.ParseUint(wanted.GetResourceVersion(), 10, 64)
	s.note(object, version{uid: object.GetUID(), resource: resource})
	return nil
}

func (s *Statuses) note(object client.Object, written version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = map[types.NamespacedName]version{}
	}
	s.written[client.ObjectKeyFromObject(object)] = written
}

// Behind reports whether an object from the cache is older than the status that was written last.
// The caller looks again after CacheLag.
func (s *Statuses) Behind(object client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.written[client.ObjectKeyFromObject(object)]
	if !ok || last.uid != object.GetUID() {
		return false
	}
	resource, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return err == nil && resource < last.resource
}

// InDoubt reports whether the last attempt to write the object's status failed. Then the status in
// the cache may be an older one, and the wanted one is to be written even if it equals that.
func (s *Statuses) InDoubt(object client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.written[client.ObjectKeyFromObject(object)]
	return last.doubt && last.uid == object.GetUID()
}

// Forget forgets an object that is gone.
func (s *Statuses) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, name)
}
