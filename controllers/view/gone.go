package view

import (
	"cmp"
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
func (r *Reconciler) leave(ctx context.Context, name types.NamespacedName, now *v1alpha1.View) (ctrl.Result, error) {
	var errs []error
	var result ctrl.Result
	for _, m := range r.Mirrors.In(name.Namespace) {
		for _, v := range m.ViewsOf(name) {
			id := m.Broker.String() + "/" + v.Name
			mine, err := r.declares(ctx, now, m, v)
			if err != nil || mine {
				r.goneSince.Forget(id)
				errs = append(errs, err)
				continue
			}
			wait, err := r.left(ctx, m, name, v, id)
			errs = append(errs, err)
			if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
				result.RequeueAfter = wait
			}
		}
	}
	return result, errors.Join(errs...)
}

// declares reports whether the View belongs to the manifest, or is about to: which Broker that is
// of is that of its Topic.
func (r *Reconciler) declares(ctx context.Context, manifest *v1alpha1.View, m *mirror.Mirror, v *coordination.View) (bool, error) {
	if manifest == nil {
		return false, nil
	}
	topic, err := r.topic(ctx, manifest.Namespace, manifest.Spec.TopicRef.Name)
	if err != nil || topic == nil {
		// Which Broker it is of is unknown until that Topic exists, so nothing is deleted until then.
		return true, err
	}
	return topic.Spec.BrokerRef.Name == m.Broker.Name && v.Name == manifest.Name, nil
}

// left applies the deletion policy of a View if its manifest is gone for certain, or is now one of
// another Broker. Otherwise it returns the time until the next check.
func (r *Reconciler) left(ctx context.Context, m *mirror.Mirror, name types.NamespacedName, v *coordination.View, id string) (time.Duration, error) {
	facts := plan.GoneFacts{What: "view " + v.Name, Policy: cmp.Or(v.Spec.DeletionPolicy, coordination.Delete), Orphaned: !v.Owner.Orphaned.IsZero()}
	if wait := r.goneSince.Left(id, r.Now()); wait > 0 {
		return wait, nil
	}
	defer r.goneSince.Forget(id)
	manifest := &v1alpha1.View{}
	var err error
	if facts.ManifestGone, err = r.Gone.Manifest(ctx, name, types.UID(v.Owner.UID), manifest); err != nil {
		return 0, err
	}
	if manifest.UID != "" {
		mine, err := r.declares(ctx, manifest, m, v)
		if err != nil {
			return 0, err
		}
		facts.ManifestGone = !mine
	}
	if !facts.ManifestGone {
		return 0, nil // the cache was behind
	}
	if facts.Defined, err = r.Gone.Defined(ctx, v1alpha1.GroupVersion, "views"); err != nil {
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
		err = m.Keys.DeleteView(ctx, v.Name, 0, v.Owner)
	case plan.Orphan:
		_, err = m.Keys.OrphanView(ctx, v.Name, v.Owner)
	}
	log.FromContext(ctx).Info("Acted for a manifest that is gone", "action", action.Kind, "view", v.Name, "outcome", eventing.Outcome(err))
	var notFound *coordination.NotFoundError
	var notOwner *coordination.NotOwnerError
	switch {
	case errors.As(err, &notFound), errors.As(err, &notOwner):
		return 0, nil // it was changed meanwhile; the mirror triggers the next pass
	case err != nil:
		return 0, fmt.Errorf("%s %s, whose manifest is gone: %w", action.Kind, facts.What, err)
	}
	eventing.Done(r.Events, &v1alpha1.View{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: types.UID(v.Owner.UID)}}, action)
	return 0, nil
}
