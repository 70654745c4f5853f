package broker

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/mirror"
)

// observeShards reads from the mirror which brokers have replicas, and which of them are drained or
// have to be.
func (p *pass) observeShards(ctx context.Context) error {
	m := p.Mirrors.Of(client.ObjectKeyFromObject(p.broker))
	if m == nil || m.UID != p.broker.UID {
		return nil
	}
	pods := mirror.Pods{Set: p.facts.Brokers.Name, Now: p.facts.Brokers.Replicas, Want: p.facts.WantBrokers}
	if pods.Want < pods.Now {
		shrinking, err := p.shrinkingTopics(ctx)
		if err != nil {
			return err
		}
		pods.Demands = func(t *coordination.Topic) bool {
			manifest := types.NamespacedName{Namespace: t.Owner.Namespace, Name: t.Owner.Name}
			return t.Spec.ResolvedReplicas(int(pods.Want)) > int(pods.Want) && !(t.Owner.Kind == coordination.ManifestOwner && shrinking[manifest])
		}
	}
	facts, ok := m.Cluster(pods)
	if !ok {
		return nil
	}
	for i := range facts.LeavingPods {
		l := &facts.LeavingPods[i]
		key := string(p.broker.UID) + " " + l.Pod
		if l.Unknown || l.Shards > 0 || len(l.Drained) < len(l.Brokers) {
			p.emptySince.Forget(key)
			continue
		}
		// A recent placement may have been decided before the controller saw the drain.
		l.Settled = p.emptySince.Left(key, p.Now()) == 0
	}
	p.facts.Shards = facts
	return nil
}

// shrinkingTopics returns the Topics whose manifests have no number of replicas. Their number
// follows that of the brokers, so it will shrink with it.
func (p *pass) shrinkingTopics(ctx context.Context) (map[types.NamespacedName]bool, error) {
	topics := &v1alpha1.TopicList{}
	if err := p.Client.List(ctx, topics, client.InNamespace(p.broker.Namespace),
		client.MatchingFields{mirror.FieldBroker: p.broker.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the Topics of Broker %s: %w", p.broker.Name, err)
	}
	shrinking := map[types.NamespacedName]bool{}
	for i := range topics.Items {
		spec := &topics.Items[i].Spec
		if spec.Replicas == nil && (spec.MinInSync == nil || *spec.MinInSync <= p.facts.WantBrokers) {
			shrinking[client.ObjectKeyFromObject(&topics.Items[i])] = true
		}
	}
	return shrinking, nil
}
