package view

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

// maxSteps bounds the steps of a pass. No sequence from a manifest to a View is that long, unless
// others write the same key at the same time.
const maxSteps = 8

// pass is one pass over one manifest, with its facts and results.
type pass struct {
	*Reconciler
	view *v1alpha1.View

	broker  *v1alpha1.Broker // nil: none
	mirror  *mirror.Mirror   // nil: the content of etcd is unknown
	facts   plan.ViewFacts
	numbers *mirror.ViewNumbers
}

// run carries out steps until none is left, and returns the last action.
func (p *pass) run(ctx context.Context) (plan.Action, error) {
	if err := p.observe(ctx); err != nil {
		return plan.Action{}, err
	}
	for range maxSteps {
		action := plan.View(p.facts)
		if done := p.act(ctx, action); done {
			return action, nil
		}
	}
	return plan.Action{}, fmt.Errorf("making view %s: others wrote it %d times meanwhile", p.facts.Name, maxSteps)
}

func (p *pass) observe(ctx context.Context) error {
	v, f := p.view, &p.facts
	f.Self = coordination.Owner{Kind: coordination.ManifestOwner, Namespace: v.Namespace, Name: v.Name, UID: string(v.UID)}
	f.Name, f.TopicRef = v.Name, v.Spec.TopicRef.Name
	spec, err := build.ViewSpec(v)
	if f.Spec = spec; err != nil {
		f.Invalid = err.Error()
	}
	topic, err := p.topic(ctx, v.Namespace, v.Spec.TopicRef.Name)
	if err != nil {
		return err
	}
	if f.TopicGone = topic == nil; f.TopicGone {
		return nil
	}
	f.Spec.Topic = build.TopicName(topic)
	if ready := meta.FindStatusCondition(topic.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != "True" {
		f.TopicSays = ready.Reason
	}
	name := types.NamespacedName{Namespace: v.Namespace, Name: topic.Spec.BrokerRef.Name}
	broker := &v1alpha1.Broker{}
	if err := p.Client.Get(ctx, name, broker); apierrors.IsNotFound(err) {
		broker = nil
	} else if err != nil {
		return fmt.Errorf("getting Broker %s: %w", name.Name, err)
	} else if broker.DeletionTimestamp != nil {
		broker = nil
	}
	p.broker = broker
	f.Link, p.mirror = p.Mirrors.Link(name, broker)
	if err := p.outputs(ctx, topic); err != nil || p.mirror == nil {
		return err
	}
	f.Behind = p.mirror.Without(coordination.FeatureViews)
	if f.Topic = declared(p.mirror, topic); f.Topic != nil {
		f.Shards = p.mirror.Shards(f.Topic.ID, topic.Status.NameOf)
	}
	p.find(p.mirror.State().View(f.Name))
	return nil
}

// outputs resolves the Topics that are written into. topic is the one that is read.
func (p *pass) outputs(ctx context.Context, topic *v1alpha1.Topic) error {
	f, all := &p.facts, outputs(p.view)
	for i, o := range all {
		into, err := p.topic(ctx, p.view.Namespace, o.ref)
		if err != nil {
			return err
		}
		if into == nil {
			if f.OutputGone == "" {
				f.OutputGone, f.OutputOf = o.ref, o.field
			}
			continue
		}
		name := build.TopicName(into)
		switch {
		case f.Invalid != "":
		case into.Spec.BrokerRef.Name != topic.Spec.BrokerRef.Name:
			f.Invalid = fmt.Sprintf("%s: Topic %s is of Broker %s, and Topic %s of Broker %s; name a Topic of the same Broker", o.field, o.ref, into.Spec.BrokerRef.Name, topic.Name, topic.Spec.BrokerRef.Name)
		}
		if at := i - len(all) + len(p.view.Spec.Triggers); at >= 0 {
			f.Spec.Alerts[p.view.Spec.Triggers[at].Name] = name
		} else {
			f.Spec.Output = name
		}
		if p.mirror != nil && declared(p.mirror, into) == nil && f.OutputLater == "" && f.OutputGone == "" {
			f.OutputLater, f.OutputOf = o.ref, o.field
		}
	}
	if p.mirror == nil || f.Invalid != "" || f.OutputGone != "" || f.OutputLater != "" {
		return nil
	}
	for i, o := range f.Spec.Outputs(f.Name) {
		if why := o.Unkept(p.mirror.State().Topic(o.Topic)); why != "" {
			f.Unkept = all[i].field + ": " + why
			break
		}
	}
	return nil
}

// topic returns a Topic's manifest, or nil.
func (r *Reconciler) topic(ctx context.Context, namespace, name string) (*v1alpha1.Topic, error) {
	topic := &v1alpha1.Topic{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, topic); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Topic %s: %w", name, err)
	} else if err != nil {
		return nil, nil
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

// find sets the facts about the View in etcd.
func (p *pass) find(found *coordination.View) {
	f := &p.facts
	f.Found, f.Cycle, p.numbers = found, nil, nil
	if f.Topic == nil {
		return
	}
	if numbers, ok := p.mirror.Numbers(f.Topic.ID); ok {
		if mine, ok := numbers.Views[f.Name]; ok {
			p.numbers = &mine
		}
	}
	if f.Changes() {
		f.Cycle = p.mirror.State().ViewCycle(f.Name, &f.Spec)
	}
}

// act carries out an action. done reports that there was nothing to do.
func (p *pass) act(ctx context.Context, action plan.Action) (done bool) {
	f := &p.facts
	var written *coordination.View
	var err error
	switch action.Kind {
	case plan.Create:
		written, err = p.mirror.Keys.CreateView(ctx, f.Name, f.Spec, f.Self)
	case plan.Update:
		written, err = p.mirror.Keys.UpdateView(ctx, f.Name, coordination.ViewUpdate{By: f.Self, Spec: f.Spec})
	case plan.Adopt:
		written, err = p.mirror.Keys.AdoptView(ctx, f.Name, f.Self, f.Spec)
	default:
		return true
	}
	log.FromContext(ctx).Info("Acted", "action", action.Kind, "view", f.Name, "topic", f.Topic.Name, "outcome", eventing.Outcome(err))
	var exists *coordination.ExistsError
	var notOwner *coordination.NotOwnerError
	var notFound *coordination.NotFoundError
	if errors.As(err, &exists) || errors.As(err, &notOwner) || errors.As(err, &notFound) {
		// The mirror was behind, so etcd is read.
		written, err = p.mirror.Keys.GetView(ctx, f.Name)
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
	p.find(written)
	if action.Kind == plan.Adopt {
		eventing.Done(p.Events, p.view, action)
	}
	return false
}
