package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of conditions that don't come from a plan.
const (
	// ReasonNoAuth: spec.auth is absent.
	ReasonNoAuth = "NoAuth"
	// ReasonOnRequest: spec.update is OnRequest.
	ReasonOnRequest = "UpdateOnRequest"
)

// list is the conditions of one object at one generation, being made.
type list struct {
	conditions []metav1.Condition
	generation int64
}

// edit begins with the conditions as they were.
func edit(former []metav1.Condition, generation int64) *list {
	return &list{conditions: slices.Clone(former), generation: generation}
}

// set makes a condition hold, or not; the time of its last change moves only with its status.
func (l *list) set(kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&l.conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: l.generation, Reason: reason, Message: message,
	})
}

// only keeps a condition that is absent unless it holds.
func (l *list) only(holds bool, kind, reason, message string) {
	if holds {
		l.set(kind, true, reason, message)
		return
	}
	meta.RemoveStatusCondition(&l.conditions, kind)
}
