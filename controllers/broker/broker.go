package broker

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/eventing"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/plan"
	"github.com/carillon-mq/carillon/controllers/status"
	"github.com/carillon-mq/carillon/controllers/users"
)

const (
	// concurrency is the number of concurrent passes. A pass may wait seconds for an etcd that does
	// not answer, and passes over other Brokers should not wait for it.
	concurrency = 4
	// pollConverged is the interval of passes over a converged Broker, since changes of etcd's
	// health, of users' Secrets and of certificates' ages trigger none. So what is due by time needs
	// no interval of its own.
	pollConverged = time.Minute
	// pollWaiting is the same while a pass waits for a change that may trigger none.
	pollWaiting = 5 * time.Second
	// pollActed is the time to the next pass after an action that triggers none.
	pollActed = time.Second
)

// Reconciler reconciles each Broker with its spec.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Writer   apply.Writer
	Status   *apply.Statuses
	Events   events.EventRecorder
	OpenEtcd observe.OpenEtcd
	Mirrors  *mirror.Set
	Users    *users.Results
	Now      func() time.Time
	// Image is the image of brokers and coordinators, and PullSecrets are the Secrets to pull it
	// with.
	Image       string
	PullSecrets []string
	// ClusterDomain is the DNS domain of the cluster, such as cluster.local; empty: it is not known.
	ClusterDomain string

	emptySince observe.Absences // since when drained brokers have no replicas
	wrongUsers eventing.Memory  // mistakes in users for which an event was written
	expiries   eventing.Memory  // ends of clients' certificates for which an event was written
	restores   eventing.Memory  // generations of etcd for which an event was written
}

// SetupWithManager registers the Reconciler and its watches with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	ours := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: object.GetNamespace(), Name: object.GetLabels()[build.LabelInstance],
		}}}
	})
	return ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Broker{}, ctrlbuilder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&corev1.Secret{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, ours).
		Watches(&corev1.PersistentVolumeClaim{}, ours).
		Watches(&v1alpha1.Subscription{}, handler.EnqueueRequestsFromMapFunc(r.pushing), ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.Mirrors.Brokers.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

// Reconcile does one pass over one Broker.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	broker := &v1alpha1.Broker{}
	if err := r.Client.Get(ctx, request.NamespacedName, broker); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		r.Status.Forget(request.NamespacedName)
		r.restores.Forget(request.NamespacedName)
		r.wrongUsers.Forget(request.NamespacedName)
		r.expiries.Forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if broker.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // Kubernetes removes everything by its ownerReferences
	}
	if r.Status.Behind(broker) {
		return ctrl.Result{RequeueAfter: apply.CacheLag}, nil
	}
	p := &pass{Reconciler: r, broker: broker}
	passErr := p.run(ctx)
	outcome := p.outcome()
	if passErr != nil {
		outcome.Action = plan.Action{Kind: plan.Wait, Reason: plan.Applying, Message: passErr.Error()}
	}
	wanted := status.Broker(broker, outcome)
	r.tell(broker, wanted, outcome)
	if r.Status.InDoubt(broker) || !equality.Semantic.DeepEqual(broker.Status, wanted) {
		if err := r.Status.Write(ctx, broker, wanted); err != nil && passErr == nil {
			passErr = err
		}
	}
	if passErr != nil {
		return ctrl.Result{}, passErr
	}
	switch outcome.Action.Kind {
	case plan.None, plan.Stall:
		return ctrl.Result{RequeueAfter: pollConverged}, nil
	case plan.Wait:
		return ctrl.Result{RequeueAfter: pollWaiting}, nil
	}
	return ctrl.Result{RequeueAfter: pollActed}, nil
}

// tell writes an event if the reason changed, and for each action on a pod or volume.
func (r *Reconciler) tell(broker *v1alpha1.Broker, wanted v1alpha1.BrokerStatus, outcome status.Outcome) {
	is := meta.FindStatusCondition(wanted.Conditions, v1alpha1.ConditionReady)
	was := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionReady)
	r.tellOfRestore(broker, wanted, outcome)
	r.tellOf(v1alpha1.ConditionUsersInvalid, &r.wrongUsers, broker, wanted)
	r.tellOf(v1alpha1.ConditionCertificateExpiring, &r.expiries, broker, wanted)
	reasonChanged := was == nil || was.Reason != is.Reason
	done := false
	switch outcome.Action.Kind {
	case plan.ReplacePod, plan.GrowVolume, plan.RecreateSet, plan.RenewStatus, plan.Drain, plan.Shrink, plan.ChangeRoots, plan.GrantAccess, plan.EnableAccess:
		done = true
	}
	if !reasonChanged && !(done && was.Message != is.Message) {
		return
	}
	kind := corev1.EventTypeNormal
	switch plan.Reason(is.Reason) {
	case plan.CoordinationUnavailable, plan.CoordinationOutOfSpace, plan.CoordinationCorrupt, plan.AuthSecretUnusable, plan.TLSSecretUnusable, plan.CertManagerMissing,
		plan.NameTaken, plan.AlreadyOwned, plan.ScaleDownBlocked, plan.VolumeNotExpandable, plan.CertificatesSpoilt:
		kind = corev1.EventTypeWarning
	}
	const noteLimit = 1000 // the API takes 1024 bytes
	note := is.Message
	if len(note) > noteLimit {
		note = note[:noteLimit]
	}
	r.Events.Eventf(broker, target(broker, outcome.Action), kind, is.Reason, string(outcome.Action.Kind), "%s", note)
}

// tellOfRestore writes an event when etcd was restored from a backup, and one when all shards have
// leaders again.
func (r *Reconciler) tellOfRestore(broker *v1alpha1.Broker, wanted v1alpha1.BrokerStatus, outcome status.Outcome) {
	shards := outcome.Facts.Shards
	if status.Restored(broker, outcome) && r.restores.News(broker, strconv.FormatInt(shards.Generation, 10)) {
		eventing.Warn(r.Events, broker, plan.Action{Kind: plan.Wait, Reason: plan.EtcdRestored, Message: plan.Restore(shards)})
	}
	if meta.IsStatusConditionTrue(broker.Status.Conditions, v1alpha1.ConditionEtcdRestored) && !meta.IsStatusConditionTrue(wanted.Conditions, v1alpha1.ConditionEtcdRestored) {
		eventing.Done(r.Events, broker, plan.Action{Kind: plan.None, Reason: plan.CopiesCompared, Message: "all copies were compared since etcd was restored from a backup, and each shard was given a leader"})
	}
}

// tellOf writes an event when a condition that a person has to look at begins, or says something
// else.
func (r *Reconciler) tellOf(condition string, told *eventing.Memory, broker *v1alpha1.Broker, wanted v1alpha1.BrokerStatus) {
	was := meta.FindStatusCondition(broker.Status.Conditions, condition)
	is := meta.FindStatusCondition(wanted.Conditions, condition)
	if is != nil && (was == nil || was.Message != is.Message) && told.News(broker, is.Message) {
		eventing.Warn(r.Events, broker, plan.Action{Kind: plan.None, Reason: plan.Reason(is.Reason), Message: is.Message})
	}
}

// target returns the object of an action, or nil. The recorder takes an event that equals a recent
// one for another of its series and drops its text; the same action on another object is a series
// of its own.
func target(broker *v1alpha1.Broker, action plan.Action) runtime.Object {
	kinds := map[plan.Kind]string{plan.ReplacePod: "Pod", plan.Shrink: "Pod", plan.GrowVolume: "PersistentVolumeClaim", plan.RecreateSet: "StatefulSet", plan.RenewStatus: "StatefulSet", plan.Drain: ""}
	kind, ok := kinds[action.Kind]
	if !ok || action.Target == "" {
		return nil
	}
	return &corev1.ObjectReference{Kind: kind, Namespace: broker.Namespace, Name: action.Target}
}
