package subscription

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/eventing"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// maxSteps is more than any way from a manifest to a Subscription has; others who write the same
// key at the same time could make it longer.
const maxSteps = 8

// pass is one look at one manifest, and what came of it.
type pass struct {
	*Reconciler
	subscription *v1alpha1.Subscription

	broker  *v1alpha1.Broker // nil: there is none
	mirror  *mirror.Mirror   // nil: what etcd holds is not known
	facts   plan.SubscriptionFacts
	numbers *mirror.SubscriptionNumbers
}

// run does step after step until there is none left, and returns what there is to say.
func (p *pass) run(ctx context.Context) (plan.Action, error) {
	if err := p.observe(ctx); err != nil {
		return plan.Action{}, err
	}
	for range maxSteps {
		action := plan.Subscription(p.facts)
		if done := p.act(ctx, action); done {
			return action, nil
		}
	}
	return plan.Action{}, fmt.Errorf("making subscription %s: others wrote it %d times meanwhile", p.facts.Name, maxSteps)
}

func (p *pass) observe(ctx context.Context) error {
	s, f := p.subscription, &p.facts
	f.Self = coordination.Owner{Kind: coordination.ManifestOwner, Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}
	f.Name, f.TopicRef = s.Name, s.Spec.TopicRef.Name
	spec, err := build.SubscriptionSpec(s)
	if f.Spec = spec; err != nil {
		f.Invalid = err.Error()
	}
	topic, err := p.topic(ctx, s)
	if err != nil {
		return err
	}
	if f.TopicGone = topic == nil; f.TopicGone {
		return nil
	}
	if ready := meta.FindStatusCondition(topic.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != "True" {
		f.TopicSays = ready.Reason
	}
	name := types.NamespacedName{Namespace: s.Namespace, Name: topic.Spec.BrokerRef.Name}
	broker := &v1alpha1.Broker{}
	if err := p.Client.Get(ctx, name, broker); apierrors.IsNotFound(err) {
		broker = nil
	} else if err != nil {
		return fmt.Errorf("getting Broker %s: %w", name.Name, err)
	} else if broker.DeletionTimestamp != nil {
		broker = nil
	}
	p.broker = broker
	if f.Link, p.mirror = p.Mirrors.Link(name, broker); p.mirror == nil {
		return nil
	}
	if f.Topic = declared(p.mirror, topic); f.Topic == nil {
		return nil
	}
	f.Shards = p.mirror.Shards(f.Topic.ID, topic.Status.NameOf)
	p.find(p.mirror.State().Subscription(f.Topic.ID, f.Name))
	return nil
}

// topic is the Topic that a Subscription refers to; nil: there is none.
func (r *Reconciler) topic(ctx context.Context, s *v1alpha1.Subscription) (*v1alpha1.Topic, error) {
	topic := &v1alpha1.Topic{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.TopicRef.Name}, topic)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return topic, nil
}

// declared is what a manifest of a Topic declared in etcd; nil: nothing is there.
func declared(m *mirror.Mirror, topic *v1alpha1.Topic) *coordination.Topic {
	t := m.State().Topic(build.TopicName(topic))
	if t == nil || t.Deleting || t.Owner.Kind != coordination.ManifestOwner || t.Owner.Namespace != topic.Namespace || t.Owner.Name != topic.Name {
		return nil
	}
	return t
}

// find takes what is in etcd under the Subscription's name.
func (p *pass) find(found *coordination.Subscription) {
	p.facts.Found, p.numbers = found, nil
	if numbers, ok := p.mirror.Numbers(p.facts.Topic.ID); ok {
		if mine, ok := numbers.Subscriptions[p.facts.Name]; ok {
			p.numbers = &mine
		}
	}
}

// act does what was planned, and says whether nothing was to be done.
func (p *pass) act(ctx context.Context, action plan.Action) (done bool) {
	f := &p.facts
	var written *coordination.Subscription
	var err error
	switch action.Kind {
	case plan.Create:
		written, err = p.mirror.Keys.CreateSubscription(ctx, f.Topic.Name, f.Name, f.Spec, f.Self)
	case plan.Update:
		written, err = p.mirror.Keys.UpdateSubscription(ctx, f.Topic.Name, f.Name, coordination.SubscriptionUpdate{By: f.Self, Spec: f.Spec})
	case plan.Adopt:
		written, err = p.mirror.Keys.AdoptSubscription(ctx, f.Topic.Name, f.Name, f.Self, f.Spec)
	default:
		return true
	}
	log.FromContext(ctx).Info("Acted", "action", action.Kind, "subscription", f.Name, "topic", f.Topic.Name, "outcome", eventing.Outcome(err))
	var exists *coordination.ExistsError
	var notOwner *coordination.NotOwnerError
	var notFound *coordination.NotFoundError
	if errors.As(err, &exists) || errors.As(err, &notOwner) || errors.As(err, &notFound) {
		// The mirror was behind; what is there now is asked for.
		written, err = p.mirror.Keys.GetSubscription(ctx, f.Topic.Name, f.Name)
		if errors.As(err, &notFound) {
			if action.Kind == plan.Create {
				f.Topic = nil // it is the Topic that is not there; the mirror tells
				return false
			}
			written, err = nil, nil
		}
		if err == nil {
			p.find(written)
			return false
		}
	}
	if err != nil {
		f.Refused = err
		return false
	}
	p.find(written)
	if action.Kind == plan.Adopt {
		eventing.Done(p.Events, p.subscription, action)
	}
	return false
}
