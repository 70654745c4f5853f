package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// pushing enqueues the Broker of a Subscription that refers to Secrets.
func (r *Reconciler) pushing(ctx context.Context, object client.Object) []reconcile.Request {
	s, ok := object.(*v1alpha1.Subscription)
	if !ok || len(build.PushSecrets(s)) == 0 {
		return nil
	}
	topic := &v1alpha1.Topic{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.TopicRef.Name}, topic); err != nil {
		return nil // the next regular pass finds it
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: topic.Spec.BrokerRef.Name}}}
}

// ensurePush computes the wanted content of the Secret with the values that push Subscriptions of
// the Broker refer to. It makes one only if one is needed. What can't be read now stays as it is.
func (p *pass) ensurePush(ctx context.Context, names build.Names) error {
	refs, err := p.pushRefs(ctx)
	if err != nil {
		return err
	}
	live := client.Reader(p.Live)
	if len(refs) == 0 {
		live = p.Client // a pass that needs none asks the API server for nothing
	}
	was, err := observe.Secret(ctx, p.Client, live, p.broker.Namespace, names.Push())
	if err != nil {
		return err
	}
	if len(refs) == 0 && was == nil {
		return nil
	}
	secrets := map[string]*corev1.Secret{}
	var files []string
	values := map[string][]byte{}
	for _, ref := range refs {
		file := build.PushFile(ref)
		secret, seen := secrets[ref.Name]
		if !seen {
			secret = &corev1.Secret{}
			err := p.Live.Get(ctx, types.NamespacedName{Namespace: p.broker.Namespace, Name: ref.Name}, secret)
			switch {
			case apierrors.IsNotFound(err):
				secret.Data = nil
			case err != nil:
				log.FromContext(ctx).Error(err, "Could not read a Secret of a Subscription", "secret", ref.Name)
				secret = nil
			case secret.Labels[v1alpha1.LabelPush] != "true" || secret.Labels[build.LabelManagedBy] == build.ManagedBy:
				secret.Data = nil
			}
			secrets[ref.Name] = secret
		}
		value, ok := was[file]
		if secret != nil {
			value, ok = secret.Data[ref.Key]
		}
		if ok {
			files = append(files, file)
			values[file] = value
		}
	}
	p.certificates = append(p.certificates, certificate{names.Push(), build.PushData(files, values, was)})
	return nil
}

// pushRefs returns what push Subscriptions of the Broker refer to, sorted and each once.
func (p *pass) pushRefs(ctx context.Context) (refs []v1alpha1.SecretKeyReference, err error) {
	all := &v1alpha1.SubscriptionList{}
	if err := p.Client.List(ctx, all, client.InNamespace(p.broker.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Subscriptions: %w", err)
	}
	ours := map[string]bool{} // by name of the Topic's manifest
	for i := range all.Items {
		s := &all.Items[i]
		mine := build.PushSecrets(s)
		if len(mine) == 0 {
			continue
		}
		ref := s.Spec.TopicRef.Name
		is, known := ours[ref]
		if !known {
			topic := &v1alpha1.Topic{}
			err := p.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: ref}, topic)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("getting Topic %s: %w", ref, err)
			}
			is = err == nil && topic.Spec.BrokerRef.Name == p.broker.Name
			ours[ref] = is
		}
		if is {
			refs = append(refs, mine...)
		}
	}
	slices.SortFunc(refs, func(a, b v1alpha1.SecretKeyReference) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
	})
	return slices.Compact(refs), nil
}
