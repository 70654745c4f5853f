package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// Topic is the status of topic after a pass. numbers are nil as long as nobody has said any; what
// was said before stands then.
func Topic(topic *v1alpha1.Topic, f plan.TopicFacts, action plan.Action, numbers *mirror.Numbers) v1alpha1.TopicStatus {
	was := &topic.Status
	status := v1alpha1.TopicStatus{
		ObservedGeneration: topic.Generation,
		Conditions:         ofAction(was.Conditions, topic.Generation, action),
		Name:               f.Name,
	}
	if f.Found == nil || f.Found.Deleting || !plan.SameManifest(f.Found.Owner, f.Self) {
		if f.Link.Exists && !f.Link.Known && was.ID != "" {
			// Nothing newer is known than what was written.
			status.ID, status.Subjects, status.Replicas, status.MinInSync = was.ID, was.Subjects, was.Replicas, was.MinInSync
			status.Leader, status.Messages, status.Bytes = was.Leader, was.Messages, was.Bytes
		}
		return status
	}
	status.ID, status.Subjects = f.Found.ID, f.Found.Spec.Subjects
	status.Replicas, status.MinInSync = int32(max(1, min(f.Found.Spec.Replicas, plan.MaxReplicas))), 1
	if len(f.Shards) > 0 {
		status.Leader = &v1alpha1.LeaderStatus{Name: f.Shards[0].Broker, ID: f.Shards[0].ID}
	}
	switch {
	case numbers != nil:
		status.Messages, status.Bytes = numbers.Messages, numbers.Bytes
	case was.ID == status.ID:
		status.Messages, status.Bytes = was.Messages, was.Bytes
	}
	return status
}

// Subscription is the status of subscription after a pass.
func Subscription(subscription *v1alpha1.Subscription, f plan.SubscriptionFacts, action plan.Action, numbers *mirror.SubscriptionNumbers) v1alpha1.SubscriptionStatus {
	was := &subscription.Status
	status := v1alpha1.SubscriptionStatus{
		ObservedGeneration: subscription.Generation,
		Conditions:         ofAction(was.Conditions, subscription.Generation, action),
	}
	if f.Topic != nil {
		status.Topic = f.Topic.Name
	}
	switch {
	case f.Found == nil && f.Link.Known, f.Found != nil && !plan.SameManifest(f.Found.Owner, f.Self):
	case numbers != nil:
		status.Lag, status.Pending, status.Redelivered = numbers.Lag, numbers.Pending, numbers.Redelivered
	default:
		status.Lag, status.Pending, status.Redelivered = was.Lag, was.Pending, was.Redelivered
	}
	return status
}

// ofAction are the three conditions that say what a pass came to.
func ofAction(former []metav1.Condition, generation int64, action plan.Action) []metav1.Condition {
	l := edit(former, generation)
	reason, message := string(action.Reason), action.Message
	l.set(v1alpha1.ConditionReady, action.Kind == plan.None, reason, message)
	stalled := action.Kind == plan.Stall
	l.only(action.Kind != plan.None && !stalled, v1alpha1.ConditionReconciling, reason, message)
	l.only(stalled, v1alpha1.ConditionStalled, reason, message)
	return l.conditions
}
