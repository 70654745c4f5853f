package subscription

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/eventing"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// leave applies the deletion policies of former manifests of that namespace and name. now is the
// present manifest, or nil.
func (r *Reconciler) leave(ctx context.Context, name types.NamespacedName, now *v1alpha1.Subscription) (ctrl.Result, error) {
	var errs []error
	var result ctrl.Result
	for _, m := range r.Mirrors.In(name.Namespace) {
		for _, s := range m.SubscriptionsOf(name) {
			mine, err := r.declares(ctx, now, m, s)
			if err != nil || mine {
				r.goneSince.Forget(s.Topic + "/" + s.Name)
				errs = append(errs, err)
				continue
			}
			wait, err := r.left(ctx, m, name, s)
			errs = append(errs, err)
			if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
				result.RequeueAfter = wait
			}
		}
	}
	return result, errors.Join(errs...)
}

// declares reports whether the Subscription belongs to the manifest, or is about to.
func (r *Reconciler) declares(ctx context.Context, manifest *v1alpha1.Subscription, m *mirror.Mirror, s *coordination.Subscription) (bool, error) {
	if manifest == nil || string(manifest.UID) == s.Owner.UID {
		return manifest != nil, nil
	}
	topic, err := r.topic(ctx, manifest)
	if err != nil || topic == nil {
		// Which Topic it refers to is unknown until that Topic exists, so nothing is deleted until
		// then.
		return true, err
	}
	t := declared(m, topic)
	return t != nil && t.ID == s.Topic, nil
}

// left applies the deletion policy of a Subscription if its manifest is gone for certain. Otherwise
// it returns the time until the next check.
func (r *Reconciler) left(ctx context.Context, m *mirror.Mirror, name types.NamespacedName, s *coordination.Subscription) (time.Duration, error) {
	topic := m.State().TopicByID(s.Topic)
	if topic == nil || topic.Deleting {
		return 0, nil // it is deleted with its Topic
	}
	id := s.Topic + "/" + s.Name
	facts := plan.GoneFacts{What: fmt.Sprintf("subscription %s of topic %s", s.Name, topic.Name), Policy: s.Spec.DeletionPolicy, Orphaned: !s.Owner.Orphaned.IsZero()}
	if wait := r.goneSince.Left(id, r.Now()); wait > 0 {
		return wait, nil
	}
	defer r.goneSince.Forget(id)
	manifest := &v1alpha1.Subscription{}
	var err error
	if facts.ManifestGone, err = r.Gone.Manifest(ctx, name, types.UID(s.Owner.UID), manifest); err != nil {
		return 0, err
	}
	if facts.ManifestGone && manifest.UID != "" {
		mine, err := r.declares(ctx, manifest, m, s)
		if err != nil {
			return 0, err
		}
		facts.ManifestGone = !mine
	}
	if !facts.ManifestGone {
		return 0, nil // the cache was behind
	}
	if facts.Defined, err = r.Gone.Defined(ctx, v1alpha1.GroupVersion, "subscriptions"); err != nil {
		return 0, err
	}
	if facts.BrokerThere, err = r.Gone.BrokerThere(ctx, m.Broker, m.UID); err != nil {
		return 0, err
	}
	action := plan.Gone(facts)
	switch action.Kind {
	case plan.None:
		return 0, nil
	case plan.Delete:
		err = m.Keys.DeleteSubscription(ctx, topic.Name, s.Name, 0, s.Owner)
	case plan.Orphan:
		_, err = m.Keys.OrphanSubscription(ctx, topic.Name, s.Name, s.Owner)
	}
	log.FromContext(ctx).Info("Acted for a manifest that is gone", "action", action.Kind, "subscription", s.Name, "topic", topic.Name, "outcome", eventing.Outcome(err))
	var notFound *coordination.NotFoundError
	var notOwner *coordination.NotOwnerError
	switch {
	case errors.As(err, &notFound), errors.As(err, &notOwner):
		return 0, nil // it was changed meanwhile; the mirror triggers the next pass
	case err != nil:
		return 0, fmt.Errorf("%s %s, whose manifest is gone: %w", action.Kind, facts.What, err)
	}
	eventing.Done(r.Events, &v1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: types.UID(s.Owner.UID)}}, action)
	return 0, nil
}
