package subscription

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/status"
)

// Reconciler keeps the status of Subscriptions.
type Reconciler struct {
	Client client.Client
	Writer apply.Writer
}

// SetupWithManager makes the manager run it.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&v1alpha1.Subscription{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile says of one Subscription that it is not served.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	subscription := &v1alpha1.Subscription{}
	if err := r.Client.Get(ctx, request.NamespacedName, subscription); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wanted := v1alpha1.SubscriptionStatus{
		ObservedGeneration: subscription.Generation,
		Conditions:         status.NotServed(subscription.Status.Conditions, subscription.Generation, "Subscriptions"),
	}
	if subscription.DeletionTimestamp != nil || equality.Semantic.DeepEqual(subscription.Status, wanted) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Writer.Status(ctx, subscription, wanted)
}
