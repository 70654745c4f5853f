package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// maxSteps bounds the steps of a pass. No sequence from a manifest to a Topic is that long, unless
// others write the same key at the same time.
const maxSteps = 8

// pass is one pass over one manifest, with its facts and results.
type pass struct {
	*Reconciler
	topic *v1alpha1.Topic

	broker  *v1alpha1.Broker // nil: none
	mirror  *mirror.Mirror   // nil: the content of etcd is unknown
	facts   plan.TopicFacts
	numbers *mirror.Numbers
	counted bool // its leaders have been asked for its records
}

// run carries out steps until none is left, and returns the last action.
func (p *pass) run(ctx context.Context) (plan.Action, error) {
	if err := p.observe(ctx); err != nil {
		return plan.Action{}, err
	}
	for range maxSteps {
		action := plan.Topic(p.facts)
		if done := p.act(ctx, action); done {
			return action, nil
		}
	}
	return plan.Action{}, fmt.Errorf("making topic %s: others wrote it %d times meanwhile", p.facts.Name, maxSteps)
}

func (p *pass) observe(ctx context.Context) error {
	t := p.topic
	f := &p.facts
	f.Self = coordination.Owner{Kind: coordination.ManifestOwner, Namespace: t.Namespace, Name: t.Name, UID: string(t.UID)}
	f.Name = build.TopicName(t)
	spec, err := build.TopicSpec(t)
	if f.Spec = spec; err != nil {
		f.Invalid = err.Error()
	}
	name := types.NamespacedName{Namespace: t.Namespace, Name: t.Spec.BrokerRef.Name}
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
	f.Spec = f.Link.Resolve(f.Spec)
	if p.mirror == nil {
		return nil
	}
	if f.Spec.Stream.MaxPerSubject > 0 {
		f.LimitBehind = p.mirror.Without(coordination.FeatureRemovals)
	}
	p.judgeStream()
	p.find(p.mirror.State().Topic(f.Name))
	return p.findOlder(ctx)
}

// judgeStream sets the facts about settings that brokers may not know, and about sources.
func (p *pass) judgeStream() {
	f, state := &p.facts, p.mirror.State()
	for _, need := range build.Needs(&f.Spec) {
		if behind := p.mirror.Without(need.Feature); behind != "" && f.Behind == "" {
			f.Behind, f.Unknown = behind, need.Setting
		}
	}
	f.CopyCycle = coordination.CopiesItself(f.Name, f.Spec.Stream.Copies(), state)
	f.Mismatch = f.Spec.MirrorMismatch(f.Spec.Origin(state))
}

// find sets the facts about the Topic of that name in etcd.
func (p *pass) find(found *coordination.Topic) {
	f := &p.facts
	f.Found, f.Shards, f.Trouble, f.Troubled, p.numbers, p.counted = found, nil, "", "", nil, false
	if found == nil {
		return
	}
	f.Shards = p.mirror.Shards(found.ID, p.topic.Status.NameOf)
	if numbers, ok := p.mirror.Numbers(found.ID); ok {
		f.Trouble, f.Troubled, p.counted = numbers.Trouble, cmp.Or(p.mirror.NameOf(numbers.Troubled), numbers.Troubled), true
		if !numbers.Uncounted {
			p.numbers = &numbers
		}
	}
}

// findOlder finds an older manifest with an overlapping subject. A Topic that exists is compared
// only if an older manifest was refused because of it.
func (p *pass) findOlder(ctx context.Context) error {
	f, self := &p.facts, client.ObjectKeyFromObject(p.topic)
	if f.Found != nil && !f.Found.Deleting && plan.SameManifest(f.Found.Owner, f.Self) && equalSubjects(f.Found.Spec.Subjects, f.Spec.Subjects) && !p.isContested(self) {
		return nil
	}
	topics := &v1alpha1.TopicList{}
	if err := p.Client.List(ctx, topics, client.InNamespace(self.Namespace),
		client.MatchingFields{mirror.FieldBroker: p.topic.Spec.BrokerRef.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the Topics of Broker %s: %w", p.topic.Spec.BrokerRef.Name, err)
	}
	var oldest *v1alpha1.Topic
	for i := range topics.Items {
		other := &topics.Items[i]
		if other.UID == p.topic.UID || other.DeletionTimestamp != nil || !older(other, p.topic) || oldest != nil && older(oldest, other) {
			continue
		}
		spec, err := build.TopicSpec(other)
		if err != nil || !(plan.TopicFacts{Spec: spec}).Servable() {
			continue
		}
		if mine, its := f.Spec.Overlaps(&spec); mine != "" {
			oldest = other
			f.Older = &plan.Rival{Namespace: other.Namespace, Name: other.Name, Mine: mine, Its: its, Spec: spec}
		}
	}
	if f.Older == nil {
		p.contest(self, false)
		return nil
	}
	if f.Found != nil {
		f.Records = p.mirror.Records(ctx, f.Found.ID)
	}
	return nil
}

func equalSubjects(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// older reports whether a was created before b; equal times go by name.
func older(a, b *v1alpha1.Topic) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// act carries out an action. done reports that there was nothing to do.
func (p *pass) act(ctx context.Context, action plan.Action) (done bool) {
	f := &p.facts
	var written *coordination.Topic
	var err error
	switch action.Kind {
	case plan.Create:
		written, err = p.mirror.Keys.CreateTopic(ctx, f.Name, f.Spec, f.Self)
	case plan.Update:
		written, err = p.mirror.Keys.UpdateTopic(ctx, f.Name, coordination.TopicUpdate{By: f.Self, ID: f.Found.ID, Spec: f.Spec})
	case plan.Adopt:
		written, err = p.mirror.Keys.AdoptTopic(ctx, f.Name, f.Self, f.Spec)
	case plan.Release:
		written, err = p.mirror.Keys.UpdateTopic(ctx, f.Name, coordination.TopicUpdate{By: f.Found.Owner, ID: f.Found.ID, Spec: plan.ReleasedSpec(f.Found)})
	default:
		return true
	}
	log.FromContext(ctx).Info("Acted", "action", action.Kind, "topic", f.Name, "outcome", eventing.Outcome(err))
	var exists *coordination.ExistsError
	var notOwner *coordination.NotOwnerError
	var notFound *coordination.NotFoundError
	var stale *coordination.StaleError
	if errors.As(err, &exists) || errors.As(err, &notOwner) || errors.As(err, &notFound) || errors.As(err, &stale) {
		// The mirror was behind, so etcd is read.
		written, err = p.mirror.Keys.GetTopic(ctx, f.Name)
		if errors.As(err, &notFound) {
			written, err = nil, nil
		}
		if err == nil {
			p.find(written)
			return false
		}
	}
	if err != nil {
		f.Refused = err
		p.tellHolder(err)
		return false
	}
	p.find(written)
	if action.Kind == plan.Adopt {
		eventing.Done(p.Events, p.topic, action)
	}
	return false
}

// tellHolder triggers a pass over the manifest that has a refused subject, since it may be younger
// and give the subject up.
func (p *pass) tellHolder(err error) {
	overlap := (*coordination.OverlapError)(nil)
	if errors.As(err, &overlap) && overlap.Owner.Kind == coordination.ManifestOwner {
		holder := types.NamespacedName{Namespace: overlap.Owner.Namespace, Name: overlap.Owner.Name}
		p.contest(holder, true)
		p.Mirrors.Topics.Add(holder)
	}
}

func (r *Reconciler) contest(holder types.NamespacedName, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.contested == nil {
		r.contested = map[types.NamespacedName]bool{}
	}
	if is {
		r.contested[holder] = true
	} else {
		delete(r.contested, holder)
	}
}

func (r *Reconciler) isContested(holder types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.contested[holder]
}
