// Package eventing records Kubernetes events of Topics and Subscriptions: for a changed reason of
// Ready, and for actions that no status shows. A pass without a change records none.
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

// noteLimit is the length of an event's text in bytes. The API accepts 1024.
const noteLimit = 1000

// Memory holds the last recorded reason of each object. A pass may see an object from before the
// previous pass, and would record the same change again.
type Memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]turn
}

type turn struct {
	uid    types.UID
	reason string
}

// News reports whether the reason differs from the last one of that object, and remembers it.
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

// Forget removes an object that is gone.
func (m *Memory) Forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, name)
}

// Turn records that the reason of Ready has changed. Transient reasons on the way to Served get no
// event.
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

// Done records an action.
func Done(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	write(recorder, object, corev1.EventTypeNormal, action)
}

// Warn records an action or an incident that people should look at.
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

// Outcome returns the result of an action, for a log.
func Outcome(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
