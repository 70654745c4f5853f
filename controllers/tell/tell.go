// Package tell writes events about Topics and Subscriptions, for people: when the reason of Ready
// turns, and when something was done that no status shows. A pass that changes nothing writes none.
package tell

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/carillon-mq/carillon/controllers/plan"
)

// noteLimit: the API takes 1024 bytes.
const noteLimit = 1000

// Turn tells that the reason of Ready has become another. What only passes by on the way to being
// served is not worth an event.
func Turn(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	switch action.Reason {
	case plan.Placing, plan.WaitingForTopic:
		return
	}
	kind := corev1.EventTypeNormal
	if action.Kind == plan.Stall || action.Reason == plan.BrokerAway || action.Reason == plan.CoordinationUnavailable {
		kind = corev1.EventTypeWarning
	}
	write(recorder, object, kind, action)
}

// Done tells what was done.
func Done(recorder events.EventRecorder, object runtime.Object, action plan.Action) {
	write(recorder, object, corev1.EventTypeNormal, action)
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
