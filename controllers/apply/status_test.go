package apply

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// answering is a fake API server that answers writes of a status with a resource version or an
// error.
type answering struct {
	client.Client
	scheme *runtime.Scheme
	status status
}

type status struct {
	client.SubResourceWriter
	version string
	err     error
}

func (a *answering) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, a.scheme)
}

func (a *answering) Status() client.SubResourceWriter { return &a.status }

func (a *status) Apply(_ context.Context, wanted runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	if a.err == nil {
		wanted.(interface{ SetResourceVersion(string) }).SetResourceVersion(a.version)
	}
	return a.err
}

// TestAnOutdatedStatusIsNotJudged: a pass learns that its object is older than the status that was
// written last, or that it is unknown whether a status was written.
func TestAnOutdatedStatusIsNotJudged(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &answering{scheme: scheme, status: status{version: "110"}}
	s := &Statuses{Writer: Writer{Client: server}}
	cached := func(version string, uid types.UID) *v1alpha1.Topic {
		return &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: uid, ResourceVersion: version}}
	}
	behind := func(want bool, object *v1alpha1.Topic) {
		t.Helper()
		if got := s.Behind(object); got != want {
			t.Errorf("version %s of %s: behind %v, want %v", object.ResourceVersion, object.UID, got, want)
		}
	}
	write := func(object *v1alpha1.Topic, fails bool) {
		t.Helper()
		if err := s.Write(t.Context(), object, object.Status); (err != nil) != fails {
			t.Fatal(err)
		}
	}
	behind(false, cached("9", "x")) // nothing was written yet
	write(cached("9", "x"), false)
	behind(true, cached("9", "x"))
	behind(true, cached("99", "x")) // somebody else's write between the two
	behind(false, cached("110", "x"))
	behind(false, cached("111", "x"))
	behind(false, cached("9", "y")) // another object of the name
	behind(false, cached("?", "x")) // can't be compared

	server.status.err = errors.New("the answer was lost")
	write(cached("110", "x"), true)
	if !s.InDoubt(cached("110", "x")) || s.InDoubt(cached("110", "y")) {
		t.Error("a write whose answer was lost leaves no doubt")
	}
	behind(false, cached("110", "x"))
	server.status.err, server.status.version = nil, "120"
	write(cached("110", "x"), false)
	if s.InDoubt(cached("110", "x")) {
		t.Error("the doubt outlives the next write")
	}
	behind(true, cached("110", "x"))
	s.Forget(types.NamespacedName{Namespace: "a", Name: "b"})
	behind(false, cached("110", "x"))

	// It is no error that the object is gone, or another one.
	for _, code := range []metav1.StatusReason{metav1.StatusReasonNotFound, metav1.StatusReasonConflict} {
		server.status.err = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: code, Code: http.StatusConflict}}
		write(cached("110", "x"), false)
	}
}
