package subscription

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
	refused        eventing.Memory // of ConditionDeadLettersRefused
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

// Reconcile does one pass over a manifest of a Subscription, also over a deleted one.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	subscription := &v1alpha1.Subscription{}
	if err := r.Client.Get(ctx, request.NamespacedName, subscription); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		r.told.Forget(request.NamespacedName)
		r.refused.Forget(request.NamespacedName)
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
	wanted := status.Subscription(subscription, p.facts, action, p.numbers)
	if r.Status.InDoubt(subscription) || !equality.Semantic.DeepEqual(subscription.Status, wanted) {
		if err := r.Status.Write(ctx, subscription, wanted); err != nil {
			return ctrl.Result{}, err
		}
		if was := meta.FindStatusCondition(subscription.Status.Conditions, v1alpha1.ConditionReady); (was == nil || was.Reason != string(action.Reason)) && r.told.News(subscription, string(action.Reason)) {
			eventing.Turn(r.Events, subscription, action)
		}
		if c := meta.FindStatusCondition(wanted.Conditions, v1alpha1.ConditionDeadLettersRefused); c != nil && meta.FindStatusCondition(subscription.Status.Conditions, c.Type) == nil && r.refused.News(subscription, c.Type) {
			eventing.Warn(r.Events, subscription, plan.Action{Kind: plan.Wait, Reason: plan.Reason(c.Reason), Message: c.Message})
		} else if c == nil {
			r.refused.Forget(request.NamespacedName)
		}
	}
	result, err := r.leave(ctx, request.NamespacedName, subscription)
	if (action.Kind == plan.Wait && p.facts.Refused != nil || action.Reason == plan.DeadLetterUnsupported || action.Reason == plan.DeadLetterCycle) && result.RequeueAfter == 0 {
		result.RequeueAfter = pollTrouble
	}
	return result, err
}
