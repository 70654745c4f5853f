package topic

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
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/eventing"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// leave applies the deletion policies of former manifests of that namespace and name. now is the
// present manifest, or nil.
func (r *Reconciler) leave(ctx context.Context, name types.NamespacedName, now *v1alpha1.Topic) (ctrl.Result, error) {
	var errs []error
	var result ctrl.Result
	for _, m := range r.Mirrors.In(name.Namespace) {
		for _, t := range m.TopicsOf(name) {
			if declares(now, m, t) {
				r.goneSince.Forget(t.ID)
				continue
			}
			wait, err := r.left(ctx, m, name, t)
			errs = append(errs, err)
			if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
				result.RequeueAfter = wait
			}
		}
	}
	return result, errors.Join(errs...)
}

// declares reports whether the Topic belongs to the manifest, or is about to.
func declares(manifest *v1alpha1.Topic, m *mirror.Mirror, t *coordination.Topic) bool {
	return manifest != nil && (string(manifest.UID) == t.Owner.UID ||
		build.TopicName(manifest) == t.Name && manifest.Spec.BrokerRef.Name == m.Broker.Name)
}

// left applies the deletion policy of a Topic if its manifest is gone for certain. Otherwise it
// returns the time until the next check.
func (r *Reconciler) left(ctx context.Context, m *mirror.Mirror, name types.NamespacedName, t *coordination.Topic) (time.Duration, error) {
	facts := plan.GoneFacts{What: "topic " + t.Name, Policy: t.Spec.DeletionPolicy, Orphaned: !t.Owner.Orphaned.IsZero()}
	if wait := r.goneSince.Left(t.ID, r.Now()); wait > 0 {
		return wait, nil
	}
	defer r.goneSince.Forget(t.ID)
	manifest := &v1alpha1.Topic{}
	var err error
	if facts.ManifestGone, err = r.Gone.Manifest(ctx, name, types.UID(t.Owner.UID), manifest); err != nil {
		return 0, err
	}
	if !facts.ManifestGone || manifest.UID != "" && declares(manifest, m, t) {
		return 0, nil // the cache was behind
	}
	if facts.Defined, err = r.Gone.Defined(ctx, v1alpha1.GroupVersion, "topics"); err != nil {
		return 0, err
	}
	if facts.BrokerThere, err = r.Gone.BrokerThere(ctx, m.Broker, m.UID); err != nil {
		return 0, err
	}
	if plan.Gone(facts).Kind == plan.None {
		return 0, nil
	}
	if facts.Policy == coordination.DeleteIfEmpty {
		facts.Records = m.Records(ctx, t.ID)
	}
	action := plan.Gone(facts)
	if action.Kind == plan.Delete || action.Kind == plan.Orphan {
		if err := m.Keys.DeclareAttributes(ctx, t.Name, nil); err != nil {
			return 0, fmt.Errorf("delete the attributes that topic %s declared, whose manifest is gone: %w", t.Name, err)
		}
	}
	switch action.Kind {
	case plan.Delete:
		err = m.Keys.DeleteTopic(ctx, t.Name, t.ID, t.Owner)
	case plan.Orphan:
		_, err = m.Keys.OrphanTopic(ctx, t.Name, t.Owner)
	}
	log.FromContext(ctx).Info("Acted for a manifest that is gone", "action", action.Kind, "topic", t.Name, "policy", facts.Policy, "outcome", eventing.Outcome(err))
	var notFound *coordination.NotFoundError
	var notOwner *coordination.NotOwnerError
	var stale *coordination.StaleError
	switch {
	case errors.As(err, &notFound), errors.As(err, &notOwner), errors.As(err, &stale):
		return 0, nil // it was changed meanwhile; the mirror triggers the next pass
	case err != nil:
		return 0, fmt.Errorf("%s topic %s, whose manifest is gone: %w", action.Kind, t.Name, err)
	}
	eventing.Done(r.Events, &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: types.UID(t.Owner.UID)}}, action)
	return 0, nil
}
