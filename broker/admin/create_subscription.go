package admin

import (
	"context"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// PushByClients permits clients to declare Subscriptions that push, or forbids it. Otherwise
// whoever may connect could have brokers send requests to anywhere.
func (s *Server) PushByClients(may bool) *Server {
	s.pushByClients = may
	return s
}

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
		if info.Error = without(state, coordination.FeatureDeadLetters, "keeps no dead letters"); info.Error != nil {
			return info
		}
	}
	if asked.Where != "" {
		needs, instead := (&coordination.SubscriptionSpec{Where: asked.Where}).ConditionNeeds()
		if info.Error = without(state, needs, instead); info.Error != nil {
			return info
		}
	}
	if asked.Push != nil {
		if !s.pushByClients {
			info.Error = refuse(Refused, "subscription %s pushes to a URL, which these brokers take from manifests only (apply a manifest with spec.delivery.push; carillon dev takes it with --push-allow)", name)
			return info
		}
		if info.Error = pushUnsupported(state, asked.Push); info.Error != nil {
			return info
		}
	}
	spec := coordination.SubscriptionSpec{Start: asked.Start, Subjects: asked.Subjects, Where: asked.Where, Ack: asked.Ack, DeadLetter: asked.DeadLetter, Push: asked.Push}
	spec.Consumer.Description = asked.Description
	made, err := s.store.CreateSubscription(ctx, topic, name, spec, coordination.Owner{Kind: coordination.ClientOwner})
	if err != nil {
		info.Error = s.notWritten("create subscription "+name, err)
		return info
	}
	s.followed(ctx, func(state *coordination.State) bool { return state.Subscription(made.Topic, name) != nil })
	return s.view().subscriptionInfo(topic, name)
}

// pushUnsupported returns the error that a registered broker does not push so, or nil.
func pushUnsupported(state *coordination.State, push *coordination.Push) *Error {
	if err := without(state, coordination.FeaturePush, "does not push"); err != nil {
		return err
	}
	if t := push.TLS; t != nil && t.Certificate != "" {
		return without(state, coordination.FeaturePushCertificates, "gives no client certificates to endpoints")
	}
	return nil
}

// resetSubscription moves the cursor of a Subscription owned by clients.
func (s *Server) resetSubscription(ctx context.Context, topic, name string, to coordination.Start) SubscriptionInfo {
	state := s.topics.State()
	info := SubscriptionInfo{Revision: state.Revision}
	if info.Error = without(state, coordination.FeatureResets, "can't reset a cursor"); info.Error != nil {
		return info
	}
	reset, err := s.store.ResetSubscription(ctx, topic, name, coordination.Owner{Kind: coordination.ClientOwner}, to)
	if err != nil {
		info.Error = s.notWritten("reset subscription "+name, err)
		return info
	}
	s.followed(ctx, func(state *coordination.State) bool {
		is := state.Subscription(reset.Topic, name)
		return is == nil || is.Incarnation() >= reset.Incarnation()
	})
	return s.view().subscriptionInfo(topic, name)
}

// without returns a refusal if a broker does not announce a feature, or nil.
func without(state *coordination.State, feature coordination.Feature, what string) *Error {
	for _, b := range state.Brokers {
		if !b.Features.Has(feature) {
			return refuse(Refused, "broker %s is of a version that %s (finish the update of the brokers)", b.Name, what)
		}
	}
	return nil
}
