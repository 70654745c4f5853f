package users

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/mirror"
)

const (
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
	own, err := r.Own(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	all := gather(secrets, permissions(spec.DefaultPermissions), spec.Anonymous)
	done, failed := known.pass(ctx, m.Keys, m.State().Users(), all, own)
	result := r.Results.Of(name, broker.UID)
	result.Invalid = done.invalid
	if done.written {
		result.Written, result.Count = true, done.count
	}
	if r.Results.set(name, broker.UID, result) {
		r.Mirrors.Brokers.Add(name)
	}
	switch {
	case failed != nil:
		return ctrl.Result{}, failed
	case done.pending:
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
