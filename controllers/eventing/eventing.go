// Package eventing records Kubernetes events of Topics and Subscriptions: when the reason of Ready
// changes, and when something was done that no status shows. A pass that changes nothing records
// none.
package eventing

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/controllers/plan"
)

// noteLimit: the API takes 1024 bytes.
const noteLimit = 1000

// Memory is what was told last of each object. A pass may see an object as it was before the pass
// before it, and would tell the same turn again.
type Memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]turn
}

type turn struct {
	uid    types.UID
	reason string
}

// News reports whether the reason is another than the last one of that object, and remembers it.
func (m *Memory) News(object client.Object, reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, now := client.ObjectKeyFromObject(object), turn{object.GetUID(), reason}
	if m.last[name] == now {
		return false
	}
	if m.last == nil {
		m.last = map[types.NamespacedName]turn{}
	}
	m.last[name] = now
	return true
}

// Forget lets go of an object that is gone.
func (m *Memory) Forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, name)
}

// Turn tells that the reason of Ready has become another. What only passes by on the way to being
// served is not worth an event.
func Turn(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	switch action.Reason {
	case plan.Placing, plan.WaitingForTopic:
		return
	}
	kind := corev1.EventTypeNormal
	if action.Kind == plan.Stall || action.Reason == plan.BrokerAway || action.Reason == plan.CoordinationUnavailable || plan.Transient(action.Reason) {
		kind = corev1.EventTypeWarning
	}
	write(recorder, object, kind, action)
}

// Done tells what was done.
func Done(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	write(recorder, object, corev1.EventTypeNormal, action)
}

// Warn tells what was done, or happened, that people should look at.
func Warn(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	write(recorder, object, corev1.EventTypeWarning, action)
}

func write(recorder events.EventRecorder, object runtime.Object, kind string, action plan.Action) {
	note := action.Message
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit], "")
	}
	recorder.Eventf(object, nil, kind, string(action.Reason), string(action.Kind), "%s", note)
}

// Outcome is how something that was done ended, for a log.
func Outcome(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
