package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// Topic returns the status of a Topic after a pass. numbers are nil while they are unknown; then
// the former ones stay.
func Topic(topic *v1alpha1.Topic, f plan.TopicFacts, action plan.Action, numbers *mirror.Numbers) v1alpha1.TopicStatus {
	was := &topic.Status
	conditions := ofAction(was.Conditions, topic.Generation, action)
	status := v1alpha1.TopicStatus{ObservedGeneration: topic.Generation, Name: f.Name}
	if f.Found == nil || f.Found.Deleting || !plan.SameManifest(f.Found.Owner, f.Self) {
		if f.Link.Exists && !f.Link.Known && was.ID != "" {
			// Nothing newer is known.
			status.ID, status.Subjects, status.Replicas, status.MinInSync = was.ID, was.Subjects, was.Replicas, was.MinInSync
			status.Leader, status.LedBy, status.InSync, status.Brokers = was.Leader, was.LedBy, was.InSync, was.Brokers
			status.Messages, status.Bytes = was.Messages, was.Bytes
		} else {
			conditions.risks(&coordination.TopicSpec{}, 0)
			conditions.agePaused(&mirror.Numbers{})
		}
		status.Conditions = conditions.conditions
		return status
	}
	spec := &f.Found.Spec
	status.ID, status.Subjects = f.Found.ID, spec.Subjects
	replicas := f.Link.Resolve(*spec).Replicas
	status.Replicas, status.MinInSync = int32(replicas), int32(spec.ResolvedMinInSync(replicas))
	status.Brokers, status.InSync = replicasOf(f.Shards)
	if len(f.Shards) > 0 {
		status.Leader = &v1alpha1.LeaderStatus{Name: f.Shards[0].Leader, ID: f.Shards[0].LeaderID}
		status.LedBy = ledBy(f.Shards)
	}
	conditions.risks(spec, status.Replicas)
	conditions.only(f.AttributesRefused != "", v1alpha1.ConditionAttributesRefused, ReasonNotSet, "the attributes of subjects are as before: "+f.AttributesRefused)
	switch {
	case numbers != nil:
		status.Messages, status.Bytes = numbers.Messages, numbers.Bytes
		conditions.agePaused(numbers)
	case was.ID == status.ID:
		status.Messages, status.Bytes = was.Messages, was.Bytes
	default:
		conditions.agePaused(&mirror.Numbers{})
	}
	status.Conditions = conditions.conditions
	return status
}

// agePaused sets the condition that the records of a Topic are not deleted by age, because clocks
// are wrong.
func (l *list) agePaused(numbers *mirror.Numbers) {
	l.only(numbers.AgePaused != "", v1alpha1.ConditionRetentionPaused, numbers.AgePaused,
		"records are not deleted by their age, since the time is in doubt: "+numbers.AgePausedWhy+"; correct the clocks of the nodes, or confirm them if they are right: carillon brokers confirm-clock --all")
}

// ledBy returns the names of the leaders of shards, with the number of shards of those that lead
// several.
func ledBy(shards []plan.ShardFacts) string {
	leads := map[string]int{}
	for _, s := range shards {
		leads[s.Leader]++
	}
	names := slices.Sorted(maps.Keys(leads))
	for i, name := range names {
		if n := leads[name]; n > 1 {
			names[i] = fmt.Sprintf("%s(%d)", name, n)
		}
	}
	return strings.Join(names, ",")
}

// replicasOf returns the brokers with replicas, each in sync if all its replicas are, and the
// lowest number of in-sync replicas of any shard.
func replicasOf(shards []plan.ShardFacts) (brokers []v1alpha1.ReplicaStatus, inSync string) {
	least, want := 0, 0
	for i, s := range shards {
		if n := s.InSync(); i == 0 || n-s.Want < least-want {
			least, want = n, s.Want
		}
		for _, r := range s.Replicas {
			at := slices.IndexFunc(brokers, func(b v1alpha1.ReplicaStatus) bool { return b.ID == r.ID })
			if at < 0 {
				brokers = append(brokers, v1alpha1.ReplicaStatus{Name: r.Broker, ID: r.ID, InSync: r.InSync()})
				continue
			}
			brokers[at].InSync = brokers[at].InSync && r.InSync()
		}
	}
	slices.SortFunc(brokers, func(a, b v1alpha1.ReplicaStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	if len(shards) > 0 {
		inSync = fmt.Sprintf("%d/%d", least, want)
	}
	return brokers, inSync
}

// Subscription returns the status of a Subscription after a pass. numbers are nil while they are
// unknown, and known says that they have all members; what is unknown stays as it was.
func Subscription(subscription *v1alpha1.Subscription, f plan.SubscriptionFacts, action plan.Action, numbers *mirror.SubscriptionNumbers, known bool) v1alpha1.SubscriptionStatus {
	was := &subscription.Status
	conditions := ofAction(was.Conditions, subscription.Generation, action)
	status := v1alpha1.SubscriptionStatus{ObservedGeneration: subscription.Generation}
	if f.Topic != nil {
		status.Topic = f.Topic.Name
	}
	paused := f.Found != nil && plan.SameManifest(f.Found.Owner, f.Self) && !f.Found.Spec.Consumer.PauseUntil.IsZero()
	if f.Found != nil || f.Link.Known {
		conditions.only(paused, v1alpha1.ConditionPaused, ReasonRequested, "nothing is delivered, and acks count; take spec.paused out to go on")
	}
	switch {
	case f.Found == nil && f.Link.Known, f.Found != nil && !plan.SameManifest(f.Found.Owner, f.Self):
		conditions.troubles(&mirror.SubscriptionNumbers{})
	case numbers != nil:
		status.Lag, status.Pending, status.Redelivered = numbers.Lag, numbers.Pending, numbers.Redelivered
		status.DeadLettered, status.Members = numbers.DeadLettered, was.Members
		if members := numbers.Members(); known {
			status.Members = &members
		}
		conditions.troubles(numbers)
	default:
		status.Lag, status.Pending, status.Redelivered = was.Lag, was.Pending, was.Redelivered
		status.DeadLettered, status.Members = was.DeadLettered, was.Members
	}
	status.Conditions = conditions.conditions
	return status
}

// Troubles returns the conditions of a Subscription that brokers see by themselves: those of its
// dead letters, of retention, and of its endpoint.
func Troubles(numbers *mirror.SubscriptionNumbers) []metav1.Condition {
	l := edit(nil, 0)
	l.troubles(numbers)
	return l.conditions
}

// troubles sets the conditions that the dead-letter Topic does not store records that were given
// up, that retention is about to delete records that were not acknowledged, and that the endpoint
// does not take records.
func (l *list) troubles(numbers *mirror.SubscriptionNumbers) {
	l.only(numbers.DeadLetterTrouble != "", v1alpha1.ConditionDeadLettersRefused, ReasonNotStored,
		fmt.Sprintf("%d records that were given up wait, and none is lost: %s", numbers.GivenUp, numbers.DeadLetterTrouble))
	l.only(numbers.Endangered != "", v1alpha1.ConditionFallingBehind, ReasonDeletedSoon,
		"it falls behind the retention of its Topic, which is about to delete messages: "+numbers.Endangered+"; have clients read faster, or raise spec.retention of the Topic")
	l.only(numbers.Endpoint != "", v1alpha1.ConditionEndpointUnreached, numbers.Endpoint, numbers.EndpointWhy)
}

// ofAction returns the conditions Ready, Reconciling and Stalled for the outcome of a pass.
func ofAction(former []metav1.Condition, generation int64, action plan.Action) *list {
	l := edit(former, generation)
	reason, message := string(action.Reason), action.Message
	l.set(v1alpha1.ConditionReady, action.Kind == plan.None, reason, message)
	stalled := action.Kind == plan.Stall
	l.only(action.Kind != plan.None && !stalled, v1alpha1.ConditionReconciling, reason, message)
	l.only(stalled, v1alpha1.ConditionStalled, reason, message)
	return l
}
