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
	// concurrency: passes wait for the API server and for etcd, each some milliseconds.
	concurrency = 8
	// placingPatience is how long a new Topic is given to find its broker before its status says
	// that it has none yet: mostly that takes less, and one write for each of a thousand is saved.
	placingPatience = time.Second
	// pollTrouble is when writing into an etcd that did not take it is tried again.
	pollTrouble = 5 * time.Second
)

// Reconciler makes each Topic as its manifest says.
type Reconciler struct {
	Client  client.Client
	Gone    observe.Gone
	Status  *apply.Statuses
	Events  events.EventRecorder
	Mirrors *mirror.Set
	Now     func() time.Time

	goneSince      observe.Absences
	transientSince observe.Absences // of a leader, or of enough replicas in sync
	told           eventing.Memory

	mu        sync.Mutex
	contested map[types.NamespacedName]bool // what they keep, older manifests ask for
}

// SetupWithManager makes the manager run it.
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

// deleted has those looked at for whom one manifest less makes a difference.
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
		return ctrl.Result{}, nil // somebody's finalizer holds it; that it is gone will be told
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
		return ctrl.Result{}, nil // the mirror tells when more is known
	}
	wanted := status.Topic(topic, p.facts, action, p.numbers)
	if r.Status.InDoubt(topic) || !equality.Semantic.DeepEqual(topic.Status, wanted) {
		if err := r.Status.Write(ctx, topic, wanted); err != nil {
			return ctrl.Result{}, err
		}
		r.report(ctx, topic, wanted, action)
	}
	result, err := r.leave(ctx, request.NamespacedName, topic)
	if action.Kind == plan.Wait && p.facts.Refused != nil && result.RequeueAfter == 0 {
		result.RequeueAfter = pollTrouble
	}
	return result, err
}

// patience is how long a Topic that was just made is given before its status is written.
func (p *pass) patience(action plan.Action) time.Duration {
	if action.Reason != plan.Placing || p.facts.Found == nil || len(p.facts.Shards) > 0 || len(p.topic.Status.Conditions) > 0 {
		return 0
	}
	return placingPatience - p.Now().Sub(p.facts.Found.Created)
}

// passesBy is how long a Topic without a leader, or without enough replicas in sync, is given
// before its status says so: when a broker stops or dies, that is mostly over in less than it takes
// to write it down.
func (p *pass) passesBy(action plan.Action) time.Duration {
	key := client.ObjectKeyFromObject(p.topic).String()
	if !plan.Transient(action.Reason) {
		p.transientSince.Forget(key)
		return 0
	}
	return p.transientSince.Left(key, p.Now())
}

// diskUnknown says that a Topic was last in trouble for its disk, and that its broker has not been
// asked again yet.
func (p *pass) diskUnknown(action plan.Action) bool {
	ready := meta.FindStatusCondition(p.topic.Status.Conditions, v1alpha1.ConditionReady)
	return action.Kind == plan.None && !p.counted && ready != nil && plan.OfDisk(plan.Reason(ready.Reason))
}

// report writes an event when the reason changed, and tells the Subscriptions, whose status has
// the Topic's in it.
func (r *Reconciler) report(ctx context.Context, topic *v1alpha1.Topic, wanted v1alpha1.TopicStatus, action plan.Action) {
	if topic.Status.ObservedGeneration > 0 && topic.Status.ObservedGeneration != topic.Generation {
		r.Mirrors.TellWaiting(topic.Namespace) // it may ask for other subjects than before
	}
	was := meta.FindStatusCondition(topic.Status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Reason == string(action.Reason) {
		return
	}
	r.Mirrors.TellReaders(ctx, client.ObjectKeyFromObject(topic))
	reason := action.Reason
	if reason == plan.UnderReplicated {
		reason = plan.Served // it is served, and the Broker says what is missing
	}
	if r.told.News(topic, string(reason)) {
		eventing.Turn(r.Events, topic, action)
	}
}
