package mirror

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// owners indexes Topics, Subscriptions and Views by the namespace and name of the manifest that
// declared them, without orphaned ones.
type owners struct {
	topics        map[types.NamespacedName]map[string]bool // names of Topics
	subscriptions map[types.NamespacedName]map[subscriptionKey]bool
	views         map[types.NamespacedName]map[string]bool // names of Views
}

// subscriptionKey identifies a Subscription.
type subscriptionKey struct{ topicID, name string }

func newOwners() owners {
	return owners{map[types.NamespacedName]map[string]bool{}, map[types.NamespacedName]map[subscriptionKey]bool{}, map[types.NamespacedName]map[string]bool{}}
}

// manifestOf returns the manifest of an owner, if it is one.
func manifestOf(owner coordination.Owner) (types.NamespacedName, bool) {
	return types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, owner.Kind == coordination.ManifestOwner
}

func (o owners) topic(c coordination.Change[coordination.Topic]) {
	if c.Before != nil {
		drop(o.topics, c.Before.Owner, c.Before.Name)
	}
	if c.After != nil {
		keep(o.topics, c.After.Owner, c.After.Name)
	}
}

func (o owners) subscription(c coordination.Change[coordination.Subscription]) {
	if c.Before != nil {
		drop(o.subscriptions, c.Before.Owner, subscriptionKey{c.Before.Topic, c.Before.Name})
	}
	if c.After != nil {
		keep(o.subscriptions, c.After.Owner, subscriptionKey{c.After.Topic, c.After.Name})
	}
}

func (o owners) view(c coordination.Change[coordination.View]) {
	if c.Before != nil {
		drop(o.views, c.Before.Owner, c.Before.Name)
	}
	if c.After != nil {
		keep(o.views, c.After.Owner, c.After.Name)
	}
}

func keep[K comparable](index map[types.NamespacedName]map[K]bool, owner coordination.Owner, key K) {
	manifest, ok := manifestOf(owner)
	if !ok || !owner.Orphaned.IsZero() {
		return
	}
	if index[manifest] == nil {
		index[manifest] = map[K]bool{}
	}
	index[manifest][key] = true
}

func drop[K comparable](index map[types.NamespacedName]map[K]bool, owner coordination.Owner, key K) {
	manifest, ok := manifestOf(owner)
	if !ok {
		return
	}
	delete(index[manifest], key)
	if len(index[manifest]) == 0 {
		delete(index, manifest)
	}
}
