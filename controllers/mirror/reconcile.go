package mirror

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
)

const (
	// leafLife is the life of a mirror's certificate, which is in memory only.
	leafLife = 24 * time.Hour
	// concurrency is the number of concurrent passes. Closing a mirror may wait seconds for an etcd
	// that does not answer.
	concurrency = 4
)

// Reconciler opens and closes the mirrors of Brokers.
type Reconciler struct {
	Client   client.Client
	Live     client.Reader
	Set      *Set
	OpenEtcd observe.OpenEtcd
	Now      func() time.Time
}

// SetupWithManager registers the Reconciler, its watches and the mirrors with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	if err := manager.Add(r.Set); err != nil {
		return err
	}
	// A change of the Broker's Ready condition matters: before there may be no CA, and the
	// manifests that wait for the Broker repeat its message.
	turned := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*v1alpha1.Broker), e.ObjectNew.(*v1alpha1.Broker)
		return was.UID != is.UID || was.Generation != is.Generation || readyReason(was) != readyReason(is) || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil)
	}}
	return ctrl.NewControllerManagedBy(manager).
		Named("mirror").
		For(&v1alpha1.Broker{}, builder.WithPredicates(turned)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &v1alpha1.Broker{}, handler.OnlyControllerOwner())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
}

func readyReason(broker *v1alpha1.Broker) string {
	if ready := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return string(ready.Status) + ready.Reason
	}
	return ""
}

// Reconcile opens, replaces or closes the mirror of one Broker.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name := request.NamespacedName
	broker := &v1alpha1.Broker{}
	err := r.Client.Get(ctx, name, broker)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || broker.DeletionTimestamp != nil {
		r.Set.close(name)
		r.Set.teller().referring(ctx, name)
		return ctrl.Result{}, nil
	}
	due, err := r.open(ctx, broker)
	if err != nil {
		return ctrl.Result{}, err
	}
	m := r.Set.Of(name)
	// Manifests that wait repeat the Broker's message, and default replicas follow its number of
	// brokers.
	if m == nil || m.State() == nil || broker.Spec.Replicas != nil && m.wanted.Swap(*broker.Spec.Replicas) != *broker.Spec.Replicas {
		r.Set.teller().referring(ctx, name)
	}
	if due.IsZero() {
		return ctrl.Result{}, nil // the creation of its Secret triggers the next pass
	}
	return ctrl.Result{RequeueAfter: due.Sub(r.Now()) + time.Second}, nil
}

// open opens or replaces the Broker's mirror if needed. It returns when the mirror's certificate
// has to be renewed; zero: there is no CA yet.
func (r *Reconciler) open(ctx context.Context, broker *v1alpha1.Broker) (due time.Time, err error) {
	names, now := build.NamesOf(broker), r.Now()
	ca, err := observe.Secret(ctx, r.Client, r.Live, broker.Namespace, names.CA())
	if err != nil || ca == nil {
		return time.Time{}, err
	}
	roots, _, err := pki.EnsureRoots(names.CA()+"."+broker.Namespace, ca, false, now, rand.Reader)
	if err != nil {
		return time.Time{}, nil // the Broker reports that; a change of the Secret triggers the next pass
	}
	authority := roots.Of(pki.Etcd)
	endpoints := names.EtcdEndpoints(broker.Spec.Coordination.Managed.Replicas)
	key := fmt.Sprintf("%s %s %s %s", broker.UID, strings.Join(endpoints, ","), roots.Phase(), authority.Trust())
	if due, ok := r.Set.fits(client.ObjectKeyFromObject(broker), key, now); ok {
		return due, nil
	}
	leaf, err := authority.EnsureLeaf(pki.Leaf{Name: build.FieldOwner, Life: leafLife}, nil, now, rand.Reader)
	if err != nil {
		return time.Time{}, err
	}
	etcd, err := r.OpenEtcd(names.Cluster(), endpoints, leaf["ca.crt"], leaf["tls.crt"], leaf["tls.key"])
	if err != nil {
		return time.Time{}, fmt.Errorf("opening etcd of Broker %s: %w", broker.Name, err)
	}
	due = pki.LeafDue(leaf)
	r.Set.replace(client.ObjectKeyFromObject(broker), broker.UID, etcd, key, due)
	return due, nil
}

// fits reports whether the Broker's mirror is as it would be opened now, and until when its
// certificate is good.
func (s *Set) fits(broker types.NamespacedName, key string, now time.Time) (due time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mirrors[broker]
	if e == nil || e.key != key || !now.Before(e.due) {
		return time.Time{}, false
	}
	return e.due, true
}

// replace replaces the Broker's mirror. The State of the former one stands until the new one has a
// newer one, if both are of the same Broker.
func (s *Set) replace(broker types.NamespacedName, uid types.UID, etcd observe.Etcd, key string, due time.Time) {
	m := &Mirror{
		Broker: broker, UID: uid, Keys: etcd, etcd: etcd, identity: observe.Identity(broker.Namespace, broker.Name, string(uid)),
		tell: s.teller(), log: s.log, numbers: newNumbers(s.interval), owners: newOwners(), names: map[string]string{},
	}
	former := s.take(broker)
	var known *coordination.State
	if former != nil {
		former.close()
		if former.UID == uid {
			// Readers of the former mirror may go on: its owners are not written any more.
			known = former.State()
			m.owners, m.names, m.numbers = former.owners, maps.Clone(former.names), former.numbers
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		m.discard()
		return
	}
	// It enters the set before it follows etcd: the passes that it triggers must find it.
	s.mirrors[broker] = &entry{m, key, due}
	m.start(s.ctx, known)
}

// take removes and returns the Broker's mirror.
func (s *Set) take(broker types.NamespacedName) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mirrors[broker]
	delete(s.mirrors, broker)
	return e
}

func (s *Set) close(broker types.NamespacedName) {
	if e := s.take(broker); e != nil {
		e.close()
	}
}
