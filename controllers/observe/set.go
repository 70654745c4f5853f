package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// Set is a StatefulSet with its pods and claims, as observed.
type Set struct {
	Object *appsv1.StatefulSet // nil: none
	Pods   []corev1.Pod        // the pods that it controls, by ordinal
	Claims []corev1.PersistentVolumeClaim
}

// FindSet reads the StatefulSet name of a component, its pods and its volume claims.
func FindSet(ctx context.Context, reader client.Reader, broker *v1alpha1.Broker, name, component string) (Set, error) {
	set := Set{}
	object := &appsv1.StatefulSet{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: broker.Namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return Set{}, fmt.Errorf("getting StatefulSet %s: %w", name, err)
	}
	if !apierrors.IsNotFound(err) {
		set.Object = object
	}
	mine := []client.ListOption{client.InNamespace(broker.Namespace), client.MatchingLabels{
		build.LabelManagedBy: build.ManagedBy, build.LabelInstance: broker.Name, build.LabelComponent: component,
	}}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, mine...); err != nil {
		return Set{}, fmt.Errorf("listing the pods of StatefulSet %s: %w", name, err)
	}
	for _, pod := range pods.Items {
		if _, ok := Ordinal(pod.Name); ok && strings.HasPrefix(pod.Name, name+"-") {
			set.Pods = append(set.Pods, pod)
		}
	}
	slices.SortFunc(set.Pods, func(a, b corev1.Pod) int {
		i, _ := Ordinal(a.Name)
		j, _ := Ordinal(b.Name)
		return cmp.Compare(i, j)
	})
	claims := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, claims, mine...); err != nil {
		return Set{}, fmt.Errorf("listing the volume claims of StatefulSet %s: %w", name, err)
	}
	set.Claims = claims.Items
	slices.SortFunc(set.Claims, func(a, b corev1.PersistentVolumeClaim) int { return cmp.Compare(a.Name, b.Name) })
	return set, nil
}

// Replicas returns spec.replicas of the StatefulSet. While the set is deleted and its pods are not,
// the highest ordinal of the pods determines it.
func (s Set) Replicas() (n int32) {
	if s.Object != nil && s.Object.Spec.Replicas != nil {
		return *s.Object.Spec.Replicas
	}
	for i := range s.Pods {
		if last, ok := Ordinal(s.Pods[i].Name); ok {
			n = max(n, int32(last)+1)
		}
	}
	return n
}

// TemplateSize returns the size in the claim template, or wanted if there is no StatefulSet.
func (s Set) TemplateSize(wanted resource.Quantity) resource.Quantity {
	if s.Object == nil || len(s.Object.Spec.VolumeClaimTemplates) == 0 {
		return wanted
	}
	return s.Object.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]
}

// Facts returns the facts about the set for planning. held means that changes wait for a request of
// the user.
func (s Set) Facts(name string, wanted resource.Quantity, held bool, now time.Time) plan.Set {
	facts := plan.Set{Name: name}
	if s.Object == nil {
		return facts
	}
	facts.Exists = true
	facts.Replicas = s.Replicas()
	facts.Age = now.Sub(s.Object.CreationTimestamp.Time)
	facts.Settled = s.Object.Status.ObservedGeneration == s.Object.Generation && s.Object.Status.UpdateRevision != ""
	facts.Stale = s.Object.Status.ObservedGeneration > s.Object.Generation
	size := s.TemplateSize(wanted)
	facts.SmallTemplate = size.Cmp(wanted) < 0
	template := &s.Object.Spec.Template
	for i := range s.Pods {
		pod := &s.Pods[i]
		p := plan.Pod{
			Name:    pod.Name,
			Ready:   isReady(pod),
			Started: isStarted(pod),
			Leaving: pod.DeletionTimestamp != nil,
		}
		if n, ok := Ordinal(pod.Name); ok {
			p.Surplus = int32(n) >= facts.Replicas
		}
		if since := readySince(pod); p.Ready && !since.IsZero() {
			p.ReadyFor = now.Sub(since)
		}
		if !p.Ready {
			p.Trouble = trouble(pod)
		}
		if facts.Settled && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.Object.Status.UpdateRevision {
			p.Outdated = true
			p.Why = build.Differences(pod, template)
			p.Held = held && build.RestartOf(pod.Annotations) == build.RestartOf(template.Annotations)
		}
		facts.Pods = append(facts.Pods, p)
	}
	for i := range s.Claims {
		claim := &s.Claims[i]
		asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		has, bound := claim.Status.Capacity[corev1.ResourceStorage]
		facts.Volumes = append(facts.Volumes, plan.Volume{
			Name:     claim.Name,
			Small:    asked.Cmp(wanted) < 0,
			Resizing: bound && has.Cmp(asked) < 0,
		})
	}
	return facts
}

// Ordinal returns the number at the end of a pod's name.
func Ordinal(pod string) (int, bool) {
	i := strings.LastIndexByte(pod, '-')
	n, err := strconv.Atoi(pod[i+1:])
	return n, i > 0 && err == nil && n >= 0
}
