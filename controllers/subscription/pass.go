package subscription

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// maxSteps bounds the steps of a pass. No sequence from a manifest to a Subscription is that long,
// unless others write the same key at the same time.
const maxSteps = 8

// pass is one pass over one manifest, with its facts and results.
type pass struct {
	*Reconciler
	subscription *v1alpha1.Subscription

	broker  *v1alpha1.Broker // nil: none
	mirror  *mirror.Mirror   // nil: the content of etcd is unknown
	facts   plan.SubscriptionFacts
	numbers *mirror.SubscriptionNumbers
	members bool // numbers have all members
}

// run carries out steps until none is left, and returns the last action.
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
	dead, err := p.deadLetters(ctx, topic)
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
	if f.Topic = declared(p.mirror, topic); f.Topic != nil {
		f.Shards = p.mirror.Shards(f.Topic.ID, topic.Status.NameOf)
		p.find(p.mirror.State().Subscription(f.Topic.ID, f.Name))
	}
	if dead != nil {
		p.deadLetterTopic(dead)
	}
	if f.Spec.Push != nil {
		f.PushBehind = p.mirror.Without(coordination.FeaturePush)
		if t := f.Spec.Push.TLS; t != nil && t.Certificate != "" {
			f.CertificateBehind = p.mirror.Without(coordination.FeaturePushCertificates)
		}
	}
	if f.Spec.Where != "" {
		needs, _ := f.Spec.ConditionNeeds()
		f.WhereBehind = p.mirror.Without(needs)
	}
	if f.Spec.Reset != nil {
		f.ResetBehind = p.mirror.Without(coordination.FeatureResets)
	}
	return nil
}

// deadLetters returns the Topic's manifest that spec.deadLetter refers to, or nil. topic is the one
// that is read, or nil.
func (p *pass) deadLetters(ctx context.Context, topic *v1alpha1.Topic) (*v1alpha1.Topic, error) {
	s, f := p.subscription, &p.facts
	if s.Spec.DeadLetter == nil {
		return nil, nil
	}
	ref := s.Spec.DeadLetter.TopicRef.Name
	dead := &v1alpha1.Topic{}
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: ref}, dead)
	switch {
	case apierrors.IsNotFound(err):
		f.DeadLetterGone = ref
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Topic %s for dead letters: %w", ref, err)
	}
	f.Spec.DeadLetter = build.TopicName(dead)
	switch {
	case topic == nil || f.Invalid != "":
	case dead.Spec.BrokerRef.Name != topic.Spec.BrokerRef.Name:
		f.Invalid = fmt.Sprintf("deadLetter.topicRef: Topic %s is of Broker %s, and Topic %s of Broker %s; name a Topic of the same Broker", ref, dead.Spec.BrokerRef.Name, topic.Name, topic.Spec.BrokerRef.Name)
	case f.Spec.DeadLetter == build.TopicName(topic):
		f.Invalid = fmt.Sprintf("deadLetter.topicRef: Topic %s is the one that is read, under another name; name another Topic, for example %s-dead", ref, topic.Name)
	}
	return dead, nil
}

// deadLetterTopic sets the facts about the Topic for dead letters in etcd, about other
// Subscriptions that would bring them back, and about brokers that don't store any.
func (p *pass) deadLetterTopic(dead *v1alpha1.Topic) {
	f, state := &p.facts, p.mirror.State()
	if t := declared(p.mirror, dead); t == nil {
		f.DeadLetterLater = dead.Name
	}
	f.DeadLetterBehind = p.mirror.Without(coordination.FeatureDeadLetters)
	if f.Topic == nil {
		return
	}
	var unchanged *coordination.Subscription
	if f.Found != nil && f.Found.Spec.DeadLetter == f.Spec.DeadLetter {
		unchanged = f.Found
	}
	f.DeadLetterCycle = state.DeadLetterCycle(f.Topic.Name, f.Spec.DeadLetter, unchanged)
}

// resetMessage returns what an event says of a reset.
func resetMessage(to coordination.Start) string {
	at := map[coordination.StartFrom]string{
		coordination.FromEarliest: "the oldest record", coordination.FromLatest: "what comes from now on",
		coordination.FromTime: "the first record since " + to.Time.Format(time.RFC3339), coordination.FromOffset: fmt.Sprintf("offset %d", to.Offset),
	}[to.From]
	return "the cursor was reset: it begins again with " + at
}

// topic returns the Topic's manifest that a Subscription refers to, or nil.
func (r *Reconciler) topic(ctx context.Context, s *v1alpha1.Subscription) (*v1alpha1.Topic, error) {
	topic := &v1alpha1.Topic{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.TopicRef.Name}, topic)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return topic, nil
}

// declared returns the Topic in etcd that a manifest declared, or nil.
func declared(m *mirror.Mirror, topic *v1alpha1.Topic) *coordination.Topic {
	t := m.State().Topic(build.TopicName(topic))
	if t == nil || t.Deleting || t.Owner.Kind != coordination.ManifestOwner || t.Owner.Namespace != topic.Namespace || t.Owner.Name != topic.Name {
		return nil
	}
	return t
}

// find sets the facts about the Subscription in etcd.
func (p *pass) find(found *coordination.Subscription) {
	p.facts.Found, p.numbers = found, nil
	if numbers, ok := p.mirror.Numbers(p.facts.Topic.ID); ok {
		if mine, ok := numbers.Subscriptions[p.facts.Name]; ok {
			p.numbers, p.members = &mine, numbers.MembersKnown
		}
	}
}

// act carries out an action. done reports that there was nothing to do.
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
		// The mirror was behind, so etcd is read.
		written, err = p.mirror.Keys.GetSubscription(ctx, f.Topic.Name, f.Name)
		if errors.As(err, &notFound) {
			if action.Kind == plan.Create {
				f.Topic = nil // the Topic does not exist; the mirror triggers the next pass
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
	before := f.Found
	p.find(written)
	if action.Kind == plan.Adopt {
		eventing.Done(p.Events, p.subscription, action)
	}
	if before != nil && written.Resets > before.Resets {
		eventing.Done(p.Events, p.subscription, plan.Action{Kind: action.Kind, Reason: plan.Reset, Message: resetMessage(written.ResetTo)})
	}
	return false
}
