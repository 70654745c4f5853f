package coordination

import (
	"context"
	"fmt"

	"github.com/carillon-mq/carillon/broker/filter"
)

// FeatureConditions is that a leader judges records by the condition of a Subscription
// (SubscriptionSpec.Where). An earlier version serves no such Subscription, and ignores the
// condition that a JetStream client asks it for.
const FeatureConditions Feature = "conditions"

// WhereMetadata is the key by which JetStream clients name a condition in a consumer's metadata.
const WhereMetadata = "carillon.dev/where"

// Unjudgeable returns why brokers can't serve the condition of a Subscription of a Topic with that
// retention and so many shards, or "". The expression itself is checked by Misjudged.
func (s *SubscriptionSpec) Unjudgeable(retention StreamRetention, shards int) string {
	if s.Where == "" {
		return ""
	}
	with := ""
	switch {
	case retention == WorkQueue:
		with = "of a topic that is a work queue"
	case s.Start.From == FromLast || s.Start.From == FromLastBySubject:
		with = "that starts with the newest message, or the newest one of each subject"
	case s.Consumer.PriorityPolicy != "":
		with = "with priority groups"
	case s.Consumer.DeliverSubject != "" && shards > 1:
		with = "with a deliver subject, of a topic with several shards"
	default:
		return ""
	}
	return fmt.Sprintf("a condition (filter.where) on a subscription %s is not supported yet; leave it out", with)
}

// Misjudged returns why the condition of a Subscription is none, with the column, or "".
func (s *SubscriptionSpec) Misjudged() string {
	if s.Where == "" {
		return ""
	}
	if _, err := filter.Shared(s.Where); err != nil {
		return "condition (filter.where): " + err.Error()
	}
	return ""
}

// ConditionNeeds returns the feature that brokers need to judge the condition of a Subscription,
// and what those that lack it do, for people.
func (s *SubscriptionSpec) ConditionNeeds() (needs Feature, instead string) {
	if f, err := filter.Shared(s.Where); err == nil && f.NamesAttributes() {
		return FeatureStamps, "knows no attributes in a condition"
	}
	return FeatureConditions, "judges no records by a condition"
}

// conditionOf returns why a Topic can't have a Subscription with that condition, or "".
func (t *Topic) conditionOf(s *SubscriptionSpec) string {
	return firstUnknown(s.Misjudged(), s.Unjudgeable(t.Spec.Stream.Retention, max(t.Spec.Shards, 1)))
}

// mayHave returns an error if a Topic can't have a Subscription with that spec.
func (c *Client) mayHave(ctx context.Context, topic, what string, s *SubscriptionSpec) error {
	if err := c.mayReset(ctx, topic, what, s.Reset); err != nil || s.Where == "" {
		return err
	}
	t, err := c.GetTopic(ctx, topic)
	if err != nil {
		return err
	}
	if why := t.conditionOf(s); why != "" {
		return &InvalidError{what, why}
	}
	return nil
}
