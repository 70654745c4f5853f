package admin

import (
	"context"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// createSubscription creates a Subscription owned by clients. An equal existing one of a client is
// returned.
func (s *Server) createSubscription(ctx context.Context, topic, name string, asked *CreateSubscriptionRequest) SubscriptionInfo {
	state := s.topics.State()
	info := SubscriptionInfo{Revision: state.Revision}
	switch {
	case state.Topic(topic) == nil:
		info.Error = noTopic(topic)
		return info
	case asked.DeadLetter != "" && state.Topic(asked.DeadLetter) == nil:
		info.Error = refuse(NotFound, "there is no topic %q for dead letters (create it first)", asked.DeadLetter)
		return info
	}
	if asked.DeadLetter != "" {
		if cycle := state.DeadLetterCycle(topic, asked.DeadLetter, nil); cycle != nil && asked.DeadLetter != topic {
			info.Error = refuse(BadRequest, "dead letters would come back for ever, by the topics %s (name another topic for them)", strings.Join(cycle, ", "))
			return info
		}
		for _, b := range state.Brokers {
			if !b.Features.Has(coordination.FeatureDeadLetters) {
				info.Error = refuse(Refused, "broker %s is of a version that keeps no dead letters (finish the update of the brokers)", b.Name)
				return info
			}
		}
	}
	spec := coordination.SubscriptionSpec{Start: asked.Start, Subjects: asked.Subjects, Ack: asked.Ack, DeadLetter: asked.DeadLetter}
	spec.Consumer.Description = asked.Description
	made, err := s.store.CreateSubscription(ctx, topic, name, spec, coordination.Owner{Kind: coordination.ClientOwner})
	if err != nil {
		info.Error = s.notWritten("create subscription "+name, err)
		return info
	}
	s.followed(ctx, func(state *coordination.State) bool { return state.Subscription(made.Topic, name) != nil })
	return s.view().subscriptionInfo(topic, name)
}
