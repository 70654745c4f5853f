package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"time"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/observe"
)

const (
	// turnsPerPass bounds the hashes of one pass, to some seconds. A pass over another Broker comes
	// in between.
	turnsPerPass = 20
	// pollWaiting is the time to the next pass while etcd is not known yet.
	pollWaiting = 5 * time.Second
	// pollConverged is the time to the next pass over a converged Broker, of which no change is
	// missed otherwise.
	pollConverged = 10 * time.Minute
)

// Reconciler writes the users of each Broker with spec.auth.users to its etcd.
type Reconciler struct {
	Client  client.Client
	Mirrors *mirror.Set
	Results *Results
	// Own returns the user that the operator itself is at a Broker, or nil. No Secret has it.
	Own    func(context.Context, *mirror.Mirror) (*identity.User, error)
	Logger *slog.Logger

	secrets cache.Cache // of users' Secrets only
	brokers map[types.NamespacedName]*memory
}

// memory is what is remembered of a Broker. One pass at a time uses it.
type memory struct {
	uid     types.UID
	hashes  *hashes
	begun   *identity.Document // what a former process wrote in part; nil: nothing, or it is over
	written *identity.Document // the last one that was written, which the mirror may not show yet
	from    map[string]string  // origins that are in etcd
}

// SecretsCache returns the options of a cache of users' Secrets. Other Secrets are not read.
func SecretsCache(namespaces map[string]cache.Config) cache.Options {
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: namespaces,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Field: fields.OneTermEqualSelector("type", v1alpha1.SecretTypeUser)},
		},
	}
}

// SetupWithManager registers the Reconciler, its cache and its watches with the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager, namespaces map[string]cache.Config) (err error) {
	r.brokers = map[types.NamespacedName]*memory{}
	options := SecretsCache(namespaces)
	options.Scheme, options.Mapper, options.HTTPClient = manager.GetScheme(), manager.GetRESTMapper(), manager.GetHTTPClient()
	if r.secrets, err = cache.New(manager.GetConfig(), options); err != nil {
		return fmt.Errorf("setting up the cache of users: %w", err)
	}
	if err := manager.Add(r.secrets); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		Named("users").
		For(&v1alpha1.Broker{}, ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind(r.secrets, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(r.served))).
		WatchesRawSource(r.Mirrors.Users.Source()).
		Complete(r)
}

// served returns the Brokers that a user's Secret may belong to. Its labels may have changed.
func (r *Reconciler) served(ctx context.Context, secret *corev1.Secret) (requests []reconcile.Request) {
	brokers := &v1alpha1.BrokerList{}
	if err := r.Client.List(ctx, brokers, client.InNamespace(secret.Namespace)); err != nil {
		r.Logger.Warn("Listing the Brokers of a user's Secret failed", "namespace", secret.Namespace, "error", err)
		return nil
	}
	for i := range brokers.Items {
		if usersOf(&brokers.Items[i]) != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&brokers.Items[i])})
		}
	}
	return requests
}

func usersOf(broker *v1alpha1.Broker) *v1alpha1.UsersSpec {
	if broker.DeletionTimestamp != nil || broker.Spec.Auth == nil {
		return nil
	}
	return broker.Spec.Auth.Users
}

// Reconcile does one pass over the users of one Broker.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name := request.NamespacedName
	broker := &v1alpha1.Broker{}
	err := r.Client.Get(ctx, name, broker)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	spec := usersOf(broker)
	if err != nil || spec == nil {
		delete(r.brokers, name)
		r.Results.forget(name)
		return ctrl.Result{}, nil
	}
	m := r.Mirrors.Of(name)
	if m == nil || m.UID != broker.UID || m.State() == nil {
		return ctrl.Result{RequeueAfter: pollWaiting}, nil
	}
	secrets, err := r.find(ctx, broker.Namespace, spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	known := r.brokers[name]
	if known == nil || known.uid != broker.UID {
		known = &memory{uid: broker.UID, hashes: newHashes(bcrypt.DefaultCost)}
		if err := known.recall(ctx, m.Keys, m.State().Users()); err != nil {
			return ctrl.Result{}, err
		}
		r.brokers[name] = known
	}
	left := turns(turnsPerPass)
	decision := decide(secrets, permissions(spec.DefaultPermissions), spec.Anonymous, known.before(m.State().Users()), known.hashes, &left)
	count := len(decision.Document.Users)
	own, err := r.Own(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision.withOwn(own)
	result := r.Results.Of(name, broker.UID)
	result.Invalid = decision.invalid()
	var failed error
	if !decision.Keep {
		var written bool
		if written, failed = known.save(ctx, m.Keys, m.State().Users(), &decision.Document); written {
			result.Written, result.Count = true, count
		}
	}
	if invalid := (*coordination.InvalidError)(nil); errors.As(failed, &invalid) {
		result.Invalid, failed = invalid.Error(), nil // all of them together are wrong
	}
	if r.Results.set(name, broker.UID, result) {
		r.Mirrors.Brokers.Add(name)
	}
	switch {
	case failed != nil:
		return ctrl.Result{}, failed
	case decision.Pending > 0:
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{RequeueAfter: pollConverged}, nil
}

// find returns the Secrets of a Broker's users.
func (r *Reconciler) find(ctx context.Context, namespace string, spec *v1alpha1.UsersSpec) ([]corev1.Secret, error) {
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("spec.auth.users.selector: %w", err))
	}
	list := &corev1.SecretList{}
	if err := r.secrets.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing the Secrets of users: %w", err)
	}
	return list.Items, nil
}

// recall reads what a former process knew. set are the users in etcd; nil: there is no whole set.
// Then that process may have ended while it wrote one, and the brokers hold a set with most of its
// verifiers: without these, all users would get others, and their clients would be cut off.
func (m *memory) recall(ctx context.Context, from observe.Keys, set *coordination.UserSet) (err error) {
	if m.from, err = from.VerifiersFrom(ctx); err != nil {
		return err
	}
	m.hashes.from = m.from
	if set != nil {
		return nil
	}
	part, err := from.ReadUsers(ctx)
	if part != nil {
		m.begun = &part.Document
	}
	return err
}

// before returns the users with verifiers that may hold still.
func (m *memory) before(set *coordination.UserSet) map[string]*identity.User {
	users := map[string]*identity.User{}
	add := func(list []identity.User) {
		for i := range list {
			users[list[i].Name] = &list[i]
		}
	}
	if m.begun != nil {
		add(m.begun.Users)
	}
	if set != nil {
		add(set.Users)
	}
	if m.written != nil { // it is later, unless etcd was restored; its verifiers are right anyway
		add(m.written.Users)
	}
	return users
}

// save writes the users of a pass, and then of which Secrets their verifiers are, also while others
// wait: the process after this one compares only what this one has not. written reports whether the
// users are.
func (m *memory) save(ctx context.Context, to observe.Keys, set *coordination.UserSet, doc *identity.Document) (written bool, err error) {
	if err := m.write(ctx, to, set, doc); err != nil {
		return false, err
	}
	return true, m.writeOrigins(ctx, to)
}

// write writes the users unless this process has written them, and etcd shows them as set.
func (m *memory) write(ctx context.Context, to observe.Keys, set *coordination.UserSet, doc *identity.Document) error {
	if m.written != nil && set != nil && len(set.Wrong) == 0 && reflect.DeepEqual(set.Document, *doc) {
		return nil
	}
	m.written = nil // whether it was written in part is not known, until that succeeds
	if _, err := to.PutUsers(ctx, doc); err != nil {
		return err
	}
	m.begun, m.written = nil, doc
	return nil
}

// writeOrigins writes of which Secrets the verifiers are, unless etcd has that.
func (m *memory) writeOrigins(ctx context.Context, to observe.Keys) error {
	if maps.Equal(m.from, m.hashes.from) {
		return nil
	}
	if err := to.PutVerifiersFrom(ctx, m.from, m.hashes.from); err != nil {
		return err
	}
	m.from = m.hashes.from
	return nil
}

// permissions returns them as brokers have them.
func permissions(p *v1alpha1.UserPermissions) *identity.Permissions {
	if p == nil {
		return nil
	}
	subjects := func(s *v1alpha1.SubjectPermissions) *identity.Subjects {
		if s == nil {
			return nil
		}
		return &identity.Subjects{Allow: s.Allow, Deny: s.Deny}
	}
	all := &identity.Permissions{Publish: subjects(p.Publish), Subscribe: subjects(p.Subscribe)}
	if a := p.AllowResponses; a != nil {
		all.AllowResponses = &identity.Responses{Max: int(a.Max), Expires: a.Expires}
	}
	return all
}
