package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// View returns the status of a View after a pass. numbers are nil while they are unknown; then the
// former ones stay. unread is why its alerts get no events; empty: they do, or need none; nil: that
// is unknown, and what was said stays.
func View(view *v1alpha1.View, f plan.ViewFacts, action plan.Action, numbers *mirror.ViewNumbers, unread *string) v1alpha1.ViewStatus {
	was := &view.Status
	conditions := ofAction(was.Conditions, view.Generation, action)
	status := v1alpha1.ViewStatus{ObservedGeneration: view.Generation}
	if f.Topic != nil {
		status.Topic = f.Topic.Name
	}
	switch {
	case f.Found == nil && f.Link.Known, f.Found != nil && !plan.SameManifest(f.Found.Owner, f.Self):
		conditions.only(false, v1alpha1.ConditionHeldUp, "", "")
	case numbers != nil:
		status.Keys, status.Late, status.Failed = numbers.Keys, numbers.Late, numbers.Failed
		status.Refused, status.RemovedUnread = numbers.Refused, numbers.RemovedUnread
		if numbers.Watermark != 0 {
			// In whole seconds, as Kubernetes writes times.
			status.Watermark = &metav1.Time{Time: time.Unix(0, numbers.Watermark).UTC().Truncate(time.Second)}
		}
		conditions.only(numbers.Trouble != "", v1alpha1.ConditionHeldUp, ReasonNotKept, "results are not up to date, and none is lost: "+numbers.Trouble)
	default:
		status.Keys, status.Watermark, status.Late, status.Failed = was.Keys, was.Watermark, was.Late, was.Failed
		status.Refused, status.RemovedUnread = was.Refused, was.RemovedUnread
	}
	if unread != nil {
		conditions.only(*unread != "", v1alpha1.ConditionAlertsUnread, ReasonNotRead, "alerts get no events, and go on: "+*unread)
	}
	status.Conditions = conditions.conditions
	return status
}
