package subscription

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/eventing"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/plan"
	"github.com/carillon-mq/carillon/controllers/status"
)

const (
	// concurrency is the number of concurrent passes, which wait some milliseconds each for the API
	// server and etcd.
	concurrency = 8
	// pollTrouble is the time after which a write that etcd refused is tried again.
	pollTrouble = 5 * time.Second
)

// Reconciler reconciles each Subscription with its manifest.
type Reconciler struct {
	Client  client.Client
	Gone    observe.Gone
	Status  *apply.Statuses
	Events  events.EventRecorder
	Mirrors *mirror.Set
	Now     func() time.Time

	goneSince      observe.Absences
	transientSince observe.Absences // since when its Topic has no leader, or not enough replicas in sync
	told           eventing.Memory
	troubles       [3]eventing.Memory // of eventful
}

// SetupWithManager registers the Reconciler and its watches with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	err := manager.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Subscription{}, mirror.FieldTopic, func(object client.Object) []string {
		spec := &object.(*v1alpha1.Subscription).Spec
		topics := []string{spec.TopicRef.Name}
		if spec.DeadLetter != nil {
			topics = append(topics, spec.DeadLetter.TopicRef.Name)
		}
		return topics
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Subscription{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.Mirrors.Subscriptions.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// eventful are the conditions whose first appearance is an event.
var eventful = [3]string{v1alpha1.ConditionDeadLettersRefused, v1alpha1.ConditionFallingBehind, v1alpha1.ConditionEndpointUnreached}

// tellTroubles records events of conditions that the status did not have before.
func (r *Reconciler) tellTroubles(subscription *v1alpha1.Subscription, now []metav1.Condition) {
	for i, kind := range eventful {
		switch c := meta.FindStatusCondition(now, kind); {
		case c == nil:
			r.troubles[i].Forget(client.ObjectKeyFromObject(subscription))
		case meta.FindStatusCondition(subscription.Status.Conditions, kind) == nil && r.troubles[i].News(subscription, kind):
			eventing.Warn(r.Events, subscription, plan.Action{Kind: plan.Wait, Reason: plan.Reason(c.Reason), Message: c.Message})
		}
	}
}

// Reconcile does one pass over a manifest of a Subscription, also over a deleted one.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	subscription := &v1alpha1.Subscription{}
	if err := r.Client.Get(ctx, request.NamespacedName, subscription); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		r.told.Forget(request.NamespacedName)
		for i := range r.troubles {
			r.troubles[i].Forget(request.NamespacedName)
		}
		r.Status.Forget(request.NamespacedName)
		r.transientSince.Forget(request.String())
		return r.leave(ctx, request.NamespacedName, nil)
	}
	if subscription.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // a foreign finalizer delays it; its deletion triggers the next pass
	}
	if r.Status.Behind(subscription) {
		return ctrl.Result{RequeueAfter: apply.CacheLag}, nil
	}
	p := &pass{Reconciler: r, subscription: subscription}
	action, err := p.run(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !plan.Transient(action.Reason) {
		r.transientSince.Forget(request.String())
	} else if wait := r.transientSince.Left(request.String(), r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil // mostly the state has passed by then
	}
	if mirror.Holds(subscription.Status.Conditions, subscription.Generation, p.facts.Link, p.broker) {
		return ctrl.Result{}, nil // the mirror triggers the next pass
	}
	wanted := status.Subscription(subscription, p.facts, action, p.numbers, p.members)
	if r.Status.InDoubt(subscription) || !equality.Semantic.DeepEqual(subscription.Status, wanted) {
		if err := r.Status.Write(ctx, subscription, wanted); err != nil {
			return ctrl.Result{}, err
		}
		if was := meta.FindStatusCondition(subscription.Status.Conditions, v1alpha1.ConditionReady); (was == nil || was.Reason != string(action.Reason)) && r.told.News(subscription, string(action.Reason)) {
			eventing.Turn(r.Events, subscription, action)
		}
		r.tellTroubles(subscription, wanted.Conditions)
	}
	result, err := r.leave(ctx, request.NamespacedName, subscription)
	if result.RequeueAfter == 0 {
		switch action.Reason { // nothing else triggers a pass when their cause ends
		case plan.DeadLetterUnsupported, plan.DeadLetterCycle, plan.ResetUnsupported, plan.PushUnsupported, plan.FilterUnsupported:
			result.RequeueAfter = pollTrouble
		default:
			if action.Kind == plan.Wait && p.facts.Refused != nil {
				result.RequeueAfter = pollTrouble
			}
		}
	}
	return result, err
}
