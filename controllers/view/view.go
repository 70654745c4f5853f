package view

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
	// concurrency is the number of concurrent passes. Whoever writes a View into etcd reads all others
	// first, and writers wait for each other.
	concurrency = 2
	// pollTrouble is the time after which a write that etcd refused is tried again.
	pollTrouble = 5 * time.Second
)

// Reconciler reconciles each View with its manifest.
type Reconciler struct {
	Client  client.Client
	Gone    observe.Gone
	Status  *apply.Statuses
	Events  events.EventRecorder
	Mirrors *mirror.Set
	Now     func() time.Time
	// Unread returns why the alerts of a View get no events; empty: they do, or need none; nil: that
	// is unknown.
	Unread func(*v1alpha1.View) *string

	goneSince      observe.Absences
	transientSince observe.Absences // since when its Topic has no leader, or not enough replicas in sync
	told           eventing.Memory
	heldUp, unread eventing.Memory
}

// SetupWithManager registers the Reconciler and its watches with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	err := manager.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.View{}, mirror.FieldTopic, func(object client.Object) []string {
		topics := []string{object.(*v1alpha1.View).Spec.TopicRef.Name}
		for _, o := range outputs(object.(*v1alpha1.View)) {
			topics = append(topics, o.ref)
		}
		return topics
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.View{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.Mirrors.Views.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// output is a Topic that a View writes into.
type output struct{ field, ref string }

func outputs(v *v1alpha1.View) (all []output) {
	if v.Spec.Output != nil {
		all = append(all, output{"output.topicRef", v.Spec.Output.TopicRef.Name})
	}
	for i := range v.Spec.Triggers {
		t := &v.Spec.Triggers[i]
		all = append(all, output{"the output.topicRef of trigger " + t.Name, t.Output.TopicRef.Name})
	}
	return all
}

// tellOnce records an event when a condition appears that the status did not have.
func (r *Reconciler) tellOnce(v *v1alpha1.View, now []metav1.Condition, kind string, memory *eventing.Memory) {
	switch c := meta.FindStatusCondition(now, kind); {
	case c == nil:
		memory.Forget(client.ObjectKeyFromObject(v))
	case meta.FindStatusCondition(v.Status.Conditions, kind) == nil && memory.News(v, c.Reason):
		eventing.Warn(r.Events, v, plan.Action{Kind: plan.Wait, Reason: plan.Reason(c.Reason), Message: c.Message})
	}
}

// Reconcile does one pass over a manifest of a View, also over a deleted one.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	view := &v1alpha1.View{}
	if err := r.Client.Get(ctx, request.NamespacedName, view); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		r.told.Forget(request.NamespacedName)
		r.heldUp.Forget(request.NamespacedName)
		r.unread.Forget(request.NamespacedName)
		r.Status.Forget(request.NamespacedName)
		r.transientSince.Forget(request.String())
		return r.leave(ctx, request.NamespacedName, nil)
	}
	if view.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // a foreign finalizer delays it; its deletion triggers the next pass
	}
	if r.Status.Behind(view) {
		return ctrl.Result{RequeueAfter: apply.CacheLag}, nil
	}
	p := &pass{Reconciler: r, view: view}
	action, err := p.run(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !plan.Transient(action.Reason) {
		r.transientSince.Forget(request.String())
	} else if wait := r.transientSince.Left(request.String(), r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil // mostly the state has passed by then
	}
	if mirror.Holds(view.Status.Conditions, view.Generation, p.facts.Link, p.broker) {
		return ctrl.Result{}, nil // the mirror triggers the next pass
	}
	wanted := status.View(view, p.facts, action, p.numbers, r.Unread(view))
	if r.Status.InDoubt(view) || !equality.Semantic.DeepEqual(view.Status, wanted) {
		if err := r.Status.Write(ctx, view, wanted); err != nil {
			return ctrl.Result{}, err
		}
		if was := meta.FindStatusCondition(view.Status.Conditions, v1alpha1.ConditionReady); (was == nil || was.Reason != string(action.Reason)) && r.told.News(view, string(action.Reason)) {
			eventing.Turn(r.Events, view, action)
		}
		r.tellOnce(view, wanted.Conditions, v1alpha1.ConditionHeldUp, &r.heldUp)
		r.tellOnce(view, wanted.Conditions, v1alpha1.ConditionAlertsUnread, &r.unread)
	}
	result, err := r.leave(ctx, request.NamespacedName, view)
	if result.RequeueAfter == 0 && (p.facts.Refused != nil || p.facts.Unkept != "" || action.Reason == plan.ViewUnsupported || action.Reason == plan.ViewCycle) {
		result.RequeueAfter = pollTrouble // nothing else triggers a pass when their cause ends
	}
	return result, err
}
