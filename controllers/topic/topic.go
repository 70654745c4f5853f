package topic

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	// placingPatience is how long a new Topic may be without a leader before its status is written.
	// Mostly placing takes less, which saves one write per Topic.
	placingPatience = time.Second
	// pollTrouble is the time after which a write that etcd refused is tried again, and after which
	// brokers of an earlier version are looked at again.
	pollTrouble = 5 * time.Second
)

// Reconciler reconciles each Topic with its manifest.
type Reconciler struct {
	Client  client.Client
	Gone    observe.Gone
	Status  *apply.Statuses
	Events  events.EventRecorder
	Mirrors *mirror.Set
	Now     func() time.Time

	goneSince      observe.Absences
	transientSince observe.Absences // since when there is no leader, or not enough replicas in sync
	told           eventing.Memory

	mu        sync.Mutex
	contested map[types.NamespacedName]bool // manifests with a subject that an older one also has
	// undeclared are the Topics of which it is known that no attributes are declared.
	undeclared map[string]bool
}

// SetupWithManager registers the Reconciler and its watches with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	err := manager.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Topic{}, mirror.FieldBroker, func(object client.Object) []string {
		return []string{object.(*v1alpha1.Topic).Spec.BrokerRef.Name}
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Topic{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Topic{}, handler.Funcs{DeleteFunc: r.deleted}).
		WatchesRawSource(r.Mirrors.Topics.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// deleted triggers passes over the manifests that the deletion of another one may affect.
func (r *Reconciler) deleted(ctx context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	name := client.ObjectKeyFromObject(e.Object)
	r.contest(name, false)
	r.told.Forget(name)
	r.Status.Forget(name)
	r.transientSince.Forget(name.String())
	r.Mirrors.Await(name, false)
	r.Mirrors.TellReaders(ctx, name)
	r.Mirrors.TellWaiting(name.Namespace)
}

// Reconcile does one pass over a manifest of a Topic, also over a deleted one.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	topic := &v1alpha1.Topic{}
	if err := r.Client.Get(ctx, request.NamespacedName, topic); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		return r.leave(ctx, request.NamespacedName, nil)
	}
	if topic.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // a foreign finalizer delays it; its deletion triggers the next pass
	}
	if r.Status.Behind(topic) {
		return ctrl.Result{RequeueAfter: apply.CacheLag}, nil
	}
	p := &pass{Reconciler: r, topic: topic}
	r.Mirrors.Await(request.NamespacedName, true)
	action, err := p.run(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p.declare(ctx)
	r.Mirrors.Await(request.NamespacedName, action.Kind == plan.Stall)
	if p.facts.Found != nil {
		for _, doubt := range p.mirror.Doubts(p.facts.Found.ID) {
			eventing.Warn(r.Events, topic, doubt)
		}
	}
	if wait := p.patience(action); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if wait := p.passesBy(action); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if mirror.Holds(topic.Status.Conditions, topic.Generation, p.facts.Link, p.broker) || p.diskUnknown(action) {
		return ctrl.Result{}, nil // the mirror triggers the next pass
	}
	wanted := status.Topic(topic, p.facts, action, p.numbers)
	if r.Status.InDoubt(topic) || !equality.Semantic.DeepEqual(topic.Status, wanted) {
		if err := r.Status.Write(ctx, topic, wanted); err != nil {
			return ctrl.Result{}, err
		}
		r.report(ctx, topic, wanted, action)
	}
	result, err := r.leave(ctx, request.NamespacedName, topic)
	waits := p.facts.AttributesRefused != "" || action.Kind == plan.Wait && p.facts.Refused != nil || action.Reason == plan.LimitUnsupported || action.Reason == plan.SettingUnsupported || action.Reason == plan.SourceCycle
	if waits && result.RequeueAfter == 0 { // nothing else triggers a pass when the cause ends
		result.RequeueAfter = pollTrouble
	}
	return result, err
}

// patience returns how long the status of a new Topic waits for its placement.
func (p *pass) patience(action plan.Action) time.Duration {
	if action.Reason != plan.Placing || p.facts.Found == nil || len(p.facts.Shards) > 0 || len(p.topic.Status.Conditions) > 0 {
		return 0
	}
	return placingPatience - p.Now().Sub(p.facts.Found.Created)
}

// passesBy returns how long a Topic may lack a leader, or enough replicas in sync, before its
// status reports it: when a broker stops or dies, that mostly lasts for less than a status write.
func (p *pass) passesBy(action plan.Action) time.Duration {
	key := client.ObjectKeyFromObject(p.topic).String()
	if !plan.Transient(action.Reason) {
		p.transientSince.Forget(key)
		return 0
	}
	return p.transientSince.Left(key, p.Now())
}

// diskUnknown reports whether the last status has a fault of a disk whose broker has not been asked
// again yet.
func (p *pass) diskUnknown(action plan.Action) bool {
	ready := meta.FindStatusCondition(p.topic.Status.Conditions, v1alpha1.ConditionReady)
	return action.Kind == plan.None && !p.counted && ready != nil && plan.OfDisk(plan.Reason(ready.Reason))
}

// report writes an event if the reason changed, and triggers the Subscriptions, whose status
// repeats the Topic's.
func (r *Reconciler) report(ctx context.Context, topic *v1alpha1.Topic, wanted v1alpha1.TopicStatus, action plan.Action) {
	if topic.Status.ObservedGeneration > 0 && topic.Status.ObservedGeneration != topic.Generation {
		r.Mirrors.TellWaiting(topic.Namespace) // its subjects may have changed
	}
	was := meta.FindStatusCondition(topic.Status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Reason == string(action.Reason) {
		return
	}
	r.Mirrors.TellReaders(ctx, client.ObjectKeyFromObject(topic))
	reason := action.Reason
	if reason == plan.UnderReplicated {
		reason = plan.Served // it is served, and the Broker reports what is missing
	}
	if r.told.News(topic, string(reason)) {
		eventing.Turn(r.Events, topic, action)
	}
}
