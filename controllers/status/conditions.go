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
	// ReasonUsersNotEnabled: etcd does not ask for users yet.
	ReasonUsersNotEnabled = "UsersNotEnabled"
	// ReasonNotStored: a Topic refuses what is to be stored there.
	ReasonNotStored = "NotStored"
	// ReasonNotSet: what is declared could not be set.
	ReasonNotSet = "NotSet"
	// ReasonNotKept: brokers can't keep a View up to date.
	ReasonNotKept = "NotKept"
	// ReasonNotRead: the operator can't read the alerts of a View.
	ReasonNotRead = "NotRead"
	// ReasonDeletedSoon: retention is about to delete records.
	ReasonDeletedSoon = "DeletedSoon"
	// ReasonRequested: the spec asks for it.
	ReasonRequested = "Requested"
	// ReasonOnRequest: spec.update is OnRequest.
	ReasonOnRequest = "UpdateOnRequest"
)

// list builds the conditions of one object at one generation.
type list struct {
	conditions []metav1.Condition
	generation int64
}

// edit returns a list that begins with the former conditions.
func edit(former []metav1.Condition, generation int64) *list {
	return &list{conditions: slices.Clone(former), generation: generation}
}

// set sets a condition to True or False. Its transition time changes only with its status.
func (l *list) set(kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&l.conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: l.generation, Reason: reason, Message: message,
	})
}

// only sets a condition to True, or removes it.
func (l *list) only(holds bool, kind, reason, message string) {
	if holds {
		l.set(kind, true, reason, message)
		return
	}
	meta.RemoveStatusCondition(&l.conditions, kind)
}
