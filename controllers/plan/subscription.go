package plan

import (
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// SubscriptionFacts are the facts about one manifest of a Subscription, at one moment.
type SubscriptionFacts struct {
	Self    coordination.Owner // the manifest
	Name    string             // of the Subscription
	Spec    coordination.SubscriptionSpec
	Invalid string // why Spec can't be read; empty: it can

	TopicRef  string // the name of the Topic's manifest
	TopicGone bool   // that manifest does not exist
	TopicSays string // the message of that manifest, while it is not served

	Link   Link
	Topic  *coordination.Topic // the declared Topic; nil: not created yet
	Shards []ShardFacts        // of the Topic
	Found  *coordination.Subscription

	// Of spec.deadLetter:
	DeadLetterGone   string // the name of its Topic's manifest, if that does not exist
	DeadLetterLater  string // the same, if that Topic is not created yet
	DeadLetterBehind string // a broker whose version keeps no dead letters
	// DeadLetterCycle is the Topics through which dead letters would come back, or nil.
	DeadLetterCycle []string
	// ResetBehind is a broker whose version can't reset a cursor, if spec.reset is there.
	ResetBehind string
	// PushBehind is a broker whose version does not push, if spec.delivery is there.
	PushBehind string
	// CertificateBehind is a broker whose version gives no client certificates to endpoints, if the
	// spec has one.
	CertificateBehind string
	// WhereBehind is a broker whose version can't judge records by the condition, if
	// spec.filter.where is there.
	WhereBehind string
	// Refused is the error of the last attempt to write, or nil.
	Refused error
}

// Subscription returns the next action for the manifest of a Subscription.
func Subscription(f SubscriptionFacts) Action {
	for _, step := range []func() (Action, bool){
		f.unservable,
		f.missing,
		f.Link.wait,
		f.waiting,
		func() (Action, bool) { return refusal(f.Refused) },
		f.write,
		func() (Action, bool) { return placed(f.Link, f.Shards, &f.Topic.Spec) },
	} {
		if action, ok := step(); ok {
			return action
		}
	}
	return Action{Kind: None, Reason: Served, Message: "served by broker " + strings.Join(leaders(f.Shards), ", ")}
}

func (f SubscriptionFacts) unservable() (Action, bool) {
	stall := func(reason Reason, message string) (Action, bool) {
		return Action{Kind: Stall, Reason: reason, Message: f.asBefore(message)}, true
	}
	switch {
	case f.Invalid != "":
		return stall(Invalid, f.Invalid)
	case f.PushBehind != "":
		return stall(PushUnsupported, fmt.Sprintf("broker %s is of a version that does not push: finish the update of the brokers, or leave delivery out", f.PushBehind))
	case f.CertificateBehind != "":
		return stall(PushUnsupported, fmt.Sprintf("broker %s is of a version that gives no client certificates to endpoints: finish the update of the brokers, or leave delivery.push.tls.certificateSecretRef out", f.CertificateBehind))
	case f.Spec.DeadLetter != "" && f.DeadLetterBehind != "":
		return stall(DeadLetterUnsupported, fmt.Sprintf("broker %s is of a version that keeps no dead letters: finish the update of the brokers, or leave deadLetter out", f.DeadLetterBehind))
	case len(f.DeadLetterCycle) > 0:
		return stall(DeadLetterCycle, fmt.Sprintf("dead letters would come back for ever, by the Topics %s: name another Topic for them, or change another Subscription of that cycle", strings.Join(f.DeadLetterCycle, ", ")))
	case f.ResetBehind != "":
		return stall(ResetUnsupported, fmt.Sprintf("broker %s is of a version that can't reset a cursor: finish the update of the brokers, or leave reset out", f.ResetBehind))
	case f.WhereBehind != "":
		does, out := "filters by subject only", "filter.where"
		if needs, instead := f.Spec.ConditionNeeds(); needs != coordination.FeatureConditions {
			does, out = instead, "attributes in filter.where"
		}
		return stall(FilterUnsupported, fmt.Sprintf("broker %s is of a version that %s: finish the update of the brokers, or leave %s out", f.WhereBehind, does, out))
	case f.Spec.Misjudged() != "":
		return stall(Invalid, f.Spec.Misjudged())
	}
	return Action{}, false
}

func (f SubscriptionFacts) missing() (Action, bool) {
	switch {
	case f.TopicGone:
		return Action{Kind: Wait, Reason: TopicMissing, Message: fmt.Sprintf("there is no Topic %s in this namespace: make it, or wait for it", f.TopicRef)}, true
	case f.DeadLetterGone != "":
		return Action{Kind: Wait, Reason: TopicMissing, Message: f.asBefore(fmt.Sprintf("there is no Topic %s in this namespace for dead letters: make it, or leave deadLetter out", f.DeadLetterGone))}, true
	}
	return Action{}, false
}

func (f SubscriptionFacts) waiting() (Action, bool) {
	switch {
	case f.Topic == nil || f.Topic.Deleting:
		return Action{Kind: Wait, Reason: WaitingForTopic, Message: because(fmt.Sprintf("Topic %s is not there yet", f.TopicRef), f.TopicSays)}, true
	case f.DeadLetterLater != "":
		return Action{Kind: Wait, Reason: WaitingForTopic, Message: f.asBefore(fmt.Sprintf("Topic %s for dead letters is not there yet", f.DeadLetterLater))}, true
	}
	return Action{}, false
}

// asBefore adds to a message that a present Subscription of the manifest stays as it is.
func (f SubscriptionFacts) asBefore(message string) string {
	if f.ours() {
		message += "; until then the Subscription is served as it was before"
	}
	return message
}

func (f SubscriptionFacts) ours() bool {
	return f.Found != nil && SameManifest(f.Found.Owner, f.Self)
}

func (f SubscriptionFacts) write() (Action, bool) {
	switch {
	case f.Found == nil:
		return Action{Kind: Create, Reason: Placing, Message: "the Subscription is being made"}, true
	case !f.ours():
		return Action{Kind: Stall, Reason: Exists, Message: fmt.Sprintf("subscription %s of topic %s exists already, and belongs to %s: take another name, or have it deleted there", f.Name, f.Topic.Name, f.Found.Owner)}, true
	case !current(f.Found.Owner, f.Self):
		return Action{Kind: Adopt, Reason: Adopted, Message: fmt.Sprintf("took over subscription %s with its cursor, which a former manifest of this name had declared", f.Name)}, true
	case !sameJSON(f.Found.Spec, f.Spec):
		return Action{Kind: Update, Reason: Placing, Message: "the Subscription is being changed"}, true
	}
	return Action{}, false
}
