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
	// leafLife: the certificate of a mirror is in memory only, and made anew with it.
	leafLife = 24 * time.Hour
	// concurrency: closing a mirror may wait some seconds for an etcd that does not answer.
	concurrency = 4
)

// Reconciler gives each Broker its mirror.
type Reconciler struct {
	Client   client.Client
	Live     client.Reader
	Set      *Set
	OpenEtcd observe.OpenEtcd
	Now      func() time.Time
}

// SetupWithManager makes the manager run it, and the mirrors with it.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	if err := manager.Add(r.Set); err != nil {
		return err
	}
	// A Broker's status matters when it turns: before that there may be no CA, and those that wait
	// for it have its words in their own.
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
	// They wait, and say for what; or they have as many replicas as there should be brokers.
	if m == nil || m.State() == nil || broker.Spec.Replicas != nil && m.wanted.Swap(*broker.Spec.Replicas) != *broker.Spec.Replicas {
		r.Set.teller().referring(ctx, name)
	}
	if due.IsZero() {
		return ctrl.Result{}, nil // its Secret tells when it comes
	}
	return ctrl.Result{RequeueAfter: due.Sub(r.Now()) + time.Second}, nil
}

// open sees that the Broker has a mirror with a certificate that will be good for a while, and
// says until when; zero: there is no CA yet.
func (r *Reconciler) open(ctx context.Context, broker *v1alpha1.Broker) (due time.Time, err error) {
	names, now := build.NamesOf(broker), r.Now()
	ca, err := observe.Secret(ctx, r.Client, r.Live, broker.Namespace, names.CA())
	if err != nil || ca == nil {
		return time.Time{}, err
	}
	authority, _, err := pki.EnsureAuthority(names.CA()+"."+broker.Namespace, ca, now, rand.Reader)
	if err != nil {
		return time.Time{}, nil // the Broker says so; another Secret tells when it comes
	}
	endpoints := names.EtcdEndpoints(broker.Spec.Coordination.Managed.Replicas)
	key := fmt.Sprintf("%s %s %s", broker.UID, strings.Join(endpoints, ","), authority.Trust())
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

// fits reports whether the Broker's mirror is as it would be opened now, and until when it is good.
func (s *Set) fits(broker types.NamespacedName, key string, now time.Time) (due time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mirrors[broker]
	if e == nil || e.key != key || !now.Before(e.due) {
		return time.Time{}, false
	}
	return e.due, true
}

// replace gives the Broker another mirror. What the former knew stands until the new one knows
// more, if it is of the same Broker.
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
			// Whoever still reads the former one has it to themselves; its owners are not written
			// any more.
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
	// It is in the set before it follows anything: the passes that it asks for must find it.
	s.mirrors[broker] = &entry{m, key, due}
	m.start(s.ctx, known)
}

// take takes the Broker's mirror out of the set.
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
