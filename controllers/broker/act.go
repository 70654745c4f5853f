package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// act carries out the planned action. Each deletion has the uid of the judged object as its
// precondition, so that another object of that name stays.
func (p *pass) act(ctx context.Context) error {
	switch p.action.Kind {
	case plan.None, plan.Wait, plan.Stall:
		return nil
	}
	log.FromContext(ctx).Info("Acting", "action", p.action.Kind, "target", p.action.Target, "reason", p.action.Reason, "message", p.action.Message)
	switch p.action.Kind {
	case plan.MarkBootstrapped:
		return p.markBootstrapped(ctx)
	case plan.ClaimOwner:
		return p.etcd.ClaimOwner(ctx, p.identity())
	case plan.ReplacePod:
		return p.replacePod(ctx)
	case plan.GrowVolume:
		return p.growVolume(ctx)
	case plan.RecreateSet:
		return p.recreateSet(ctx)
	case plan.RenewStatus:
		return p.renewStatus(ctx)
	case plan.Drain:
		return p.etcd.Drain(ctx, coordination.Replica{Broker: p.action.Target}, coordination.DrainAll, false)
	case plan.EndDrain:
		return p.etcd.EndDrain(ctx, p.action.Target)
	case plan.Shrink:
		return p.shrink(ctx)
	case plan.ChangeRoots:
		return p.changeRoots(ctx)
	case plan.GrantAccess:
		return p.grantAccess(ctx)
	case plan.EnableAccess:
		return p.enableAccess(ctx)
	}
	return fmt.Errorf("action %s is unknown", p.action.Kind)
}

func (p *pass) markBootstrapped(ctx context.Context) error {
	name := build.NamesOf(p.broker).CoordinatorTLS()
	for _, c := range p.trust {
		if c.name == name {
			_, err := p.Writer.Apply(ctx, p.broker, build.Secret(p.broker, name, bootstrapped(c.data)))
			return err
		}
	}
	return fmt.Errorf("marking Secret %s: it was not observed", name)
}

func (p *pass) replacePod(ctx context.Context) error {
	for _, set := range []observe.Set{p.coordinators, p.brokers} {
		for i := range set.Pods {
			pod := &set.Pods[i]
			if pod.Name != p.action.Target {
				continue
			}
			err := p.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // already gone
			}
			if err != nil {
				return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("deleting pod %s: it was not observed", p.action.Target)
}

func (p *pass) growVolume(ctx context.Context) error {
	for component, set := range map[string]observe.Set{build.ComponentCoordinator: p.coordinators, build.ComponentBroker: p.brokers} {
		for i := range set.Claims {
			claim := &set.Claims[i]
			if claim.Name != p.action.Target {
				continue
			}
			size := p.size(component)
			patch, err := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[corev1.ResourceName]any{corev1.ResourceStorage: size}}}})
			if err != nil {
				return fmt.Errorf("encoding a patch of volume claim %s: %w", claim.Name, err)
			}
			err = p.Client.Patch(ctx, claim.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(build.FieldOwner))
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				was := claim.Spec.Resources.Requests[corev1.ResourceStorage]
				p.stall = &plan.Action{Kind: plan.Stall, Reason: plan.VolumeNotExpandable, Message: fmt.Sprintf(
					"volume claim %s can't grow from %s to %s: %v; use a StorageClass that allows expansion (allowVolumeExpansion), or make a new Broker", claim.Name, was.String(), size.String(), err)}
				return nil
			}
			if err != nil {
				return fmt.Errorf("growing volume claim %s: %w", claim.Name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("growing volume claim %s: it was not observed", p.action.Target)
}

// shrink scales the StatefulSet of the brokers down by one, unless the set has changed since it was
// judged.
func (p *pass) shrink(ctx context.Context) error {
	cluster := p.cluster()
	cluster.Replicas = p.facts.Brokers.Replicas - 1
	_, err := p.Writer.ApplyTo(ctx, p.broker, cluster.BrokerSet(), p.brokers.Object)
	if changed := (*apply.ChangedError)(nil); errors.As(err, &changed) {
		return nil
	}
	return err
}

// recreateSet deletes a StatefulSet without its pods, which the next one of that name adopts.
func (p *pass) recreateSet(ctx context.Context) error {
	for _, set := range []observe.Set{p.coordinators, p.brokers} {
		if set.Object == nil || set.Object.Name != p.action.Target {
			continue
		}
		err := p.Client.Delete(ctx, set.Object, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.Preconditions{UID: &set.Object.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting StatefulSet %s without its pods: %w", set.Object.Name, err)
		}
		return nil
	}
	return fmt.Errorf("deleting StatefulSet %s: it was not observed", p.action.Target)
}

// renewStatus makes the status of a StatefulSet one that its controller corrects. The controller
// writes what it found of a set that is deleted meanwhile to the next one of that name, and then
// finds no difference: it compares what pods there are, and overlooks an observed generation that
// is too high.
func (p *pass) renewStatus(ctx context.Context) error {
	for _, set := range []observe.Set{p.coordinators, p.brokers} {
		if set.Object == nil || set.Object.Name != p.action.Target {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata": {"uid": %q, "resourceVersion": %q}, "status": {"observedGeneration": 0}}`, set.Object.UID, set.Object.ResourceVersion)
		err := p.Client.Status().Patch(ctx, set.Object.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(build.FieldOwner))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it is gone, or was changed: the next pass judges anew
		}
		if err != nil {
			return fmt.Errorf("renewing the status of StatefulSet %s: %w", set.Object.Name, err)
		}
		return nil
	}
	return fmt.Errorf("renewing the status of StatefulSet %s: it was not observed", p.action.Target)
}
