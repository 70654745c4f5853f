package build

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// TopicName returns the name of a Topic for clients.
func TopicName(topic *v1alpha1.Topic) string {
	if topic.Spec.Name != "" {
		return topic.Spec.Name
	}
	return topic.Name
}

// TopicSpec returns the spec that a manifest declares. Defaults that depend on the brokers stay
// unset: with 0 replicas the brokers choose the number.
func TopicSpec(topic *v1alpha1.Topic) (coordination.TopicSpec, error) {
	asked := &topic.Spec
	spec := coordination.TopicSpec{
		Shards:          max(1, int(asked.Shards)),
		PartitionBy:     coordination.Partitioning(asked.PartitionBy),
		Durability:      coordination.Durability(asked.Durability),
		Compaction:      coordination.Compaction(asked.Compaction),
		UncleanElection: asked.UncleanElection == v1alpha1.UncleanElectionAllowed,
		DeletionPolicy:  coordination.DeletionPolicy(asked.DeletionPolicy),
	}
	for _, s := range asked.Subjects {
		spec.Subjects = append(spec.Subjects, string(s))
	}
	if len(spec.Subjects) == 0 && asked.Mirror == nil && len(asked.Sources) == 0 {
		name := TopicName(topic)
		spec.Subjects = []string{name, name + ".>"}
	}
	for _, position := range asked.PartitionTokens {
		spec.PartitionTokens = append(spec.PartitionTokens, int(position))
	}
	if asked.Replicas != nil {
		spec.Replicas = int(*asked.Replicas)
	}
	if asked.MinInSync != nil {
		spec.MinInSync = int(*asked.MinInSync)
	}
	var err error
	if r := asked.Retention; r != nil {
		if spec.Retention.Age, err = duration("retention.age", r.Age); err != nil {
			return spec, err
		}
		if r.Bytes != nil {
			spec.Retention.Bytes = r.Bytes.Value()
		}
		if r.Messages != nil {
			spec.Retention.Messages = *r.Messages
		}
		if r.MessagesPerSubject != nil {
			spec.Stream.MaxPerSubject = *r.MessagesPerSubject
		}
	}
	if d := asked.Deduplication; d != nil {
		if spec.Deduplication, err = duration("deduplication.window", d.Window); err != nil {
			return spec, err
		}
	}
	if err := stream(asked, &spec.Stream); err != nil {
		return spec, err
	}
	if why := spec.Misdeclared(); why != "" {
		return spec, errors.New(why)
	}
	return spec, nil
}

// SubscriptionSpec returns the spec that a manifest declares.
func SubscriptionSpec(subscription *v1alpha1.Subscription) (coordination.SubscriptionSpec, error) {
	asked := &subscription.Spec
	spec := coordination.SubscriptionSpec{
		Start:          start(asked.Start.From, asked.Start.Time, asked.Start.Offset),
		DeletionPolicy: coordination.DeletionPolicy(asked.DeletionPolicy),
		Ack:            coordination.Ack{MaxPending: int(asked.Ack.MaxPending)},
	}
	if r := asked.Reset; r != nil {
		spec.Reset = &coordination.Reset{ID: r.ID, To: start(r.From, r.Time, r.Offset)}
	}
	if asked.RateLimit != nil {
		spec.Rate = int(asked.RateLimit.MessagesPerSecond)
	}
	if asked.Paused {
		spec.Consumer.PauseUntil = noEnd
	}
	if f := asked.Filter; f != nil {
		for _, s := range f.Subjects {
			spec.Subjects = append(spec.Subjects, string(s))
		}
		spec.Where = f.Where
	}
	var err error
	if spec.Ack.Wait, err = duration("ack.wait", asked.Ack.Wait); err != nil {
		return spec, err
	}
	if asked.Ack.MaxDeliver != nil {
		spec.Ack.MaxDeliver = int(*asked.Ack.MaxDeliver)
	}
	for _, pause := range asked.Ack.Backoff {
		d, err := duration("ack.backoff", pause)
		if err != nil {
			return spec, err
		}
		spec.Ack.Backoff = append(spec.Ack.Backoff, d)
	}
	if spec.Push, err = push(subscription); err != nil {
		return spec, err
	}
	if asked.DeadLetter != nil {
		spec.DeadLetter = asked.DeadLetter.TopicRef.Name
	}
	return spec, nil
}

// noEnd is the end of a pause that a manifest asks for. Brokers know pauses with an end.
var noEnd = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// start returns a start position.
func start(from v1alpha1.StartFrom, at *metav1.Time, offset *int64) coordination.Start {
	s := coordination.Start{From: coordination.StartFrom(from)}
	if at != nil {
		s.Time = at.UTC()
	}
	if offset != nil {
		s.Offset = uint64(*offset)
	}
	return s
}

// duration parses a duration that the schema has accepted. It fails only beyond three centuries.
func duration(field string, d v1alpha1.Duration) (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	length, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("%s: %q is longer than what can be counted (write for example 168h)", field, d)
	}
	return length, nil
}
