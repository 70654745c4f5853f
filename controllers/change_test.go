package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestAnotherImageRollsOnePodAtATime(t *testing.T) {
	w := newWorld(t)
	w.create(`{}`)
	w.untilReady()
	watch := w.watchReady()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:two" })
	eventually.For(t, "waiting for every pod to run the new image", func(context.Context) error {
		for _, component := range []string{"coordinator", "broker"} {
			for _, pod := range w.pods(component) {
				if image := pod.Spec.Containers[0].Image; image != "carillon:two" {
					return fmt.Errorf("%s runs %s", pod.Name, image)
				}
			}
		}
		return nil
	})
	w.untilReady()
	if low := watch(); low["broker"] < 2 || low["coordinator"] < 2 {
		t.Errorf("at some time only %v were ready; want 2 of each 3 at least", low)
	}
	if image := w.broker().Status.Image; image != "carillon:two" {
		t.Errorf("status.image is %s", image)
	}
	w.wantEvent("RollingPod", "image carillon:one becomes carillon:two")
}

func TestOnRequestWaitsForTheAnnotation(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, update: OnRequest, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:two" })
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"profile": "small"}}`)
	pending := w.until(v1alpha1.ConditionRestartPending, metav1.ConditionTrue, "UpdateOnRequest")
	for _, want := range []string{"image carillon:one becomes carillon:two", "profile medium becomes small", "carillon.dev/restart"} {
		if !strings.Contains(pending.Message, want) {
			t.Errorf("RestartPending says %q, want %q in it", pending.Message, want)
		}
	}
	w.untilReady() // still ready
	// Even a recreated pod has the former template.
	if err := k8s.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main-0"}}); err != nil {
		t.Fatal(err)
	}
	w.quiet()
	for _, pod := range append(w.pods("broker"), w.pods("coordinator")...) {
		if pod.Spec.Containers[0].Image != "carillon:one" {
			t.Errorf("%s runs %s before it was asked for", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"carillon.dev/restart": "now"}}}`)
	w.until(v1alpha1.ConditionRestartPending, "", "")
	w.untilReady()
	for _, pod := range append(w.pods("broker"), w.pods("coordinator")...) {
		if pod.Spec.Containers[0].Image != "carillon:two" {
			t.Errorf("%s runs %s after it was asked for", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	// An unchanged annotation does not request the next change.
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"profile": "large"}}`)
	w.until(v1alpha1.ConditionRestartPending, metav1.ConditionTrue, "")
	if profile := w.broker().Status.Profile; profile != "small" {
		t.Errorf("status.profile is %s, want small", profile)
	}
}

// TestBrokenUpdateStopsAndIsRepaired: a change that breaks pods stops after the first one.
// Reverting it replaces the broken pod at once.
func TestBrokenUpdateStopsAndIsRepaired(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.broken = func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == "carillon:broken" }
	w.mu.Unlock()
	w.create(`{coordination: {managed: {replicas: 3}}}`)
	w.untilReady()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:broken" })
	waiting := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CoordinatorsStarting")
	eventually.For(t, "waiting for the cause in the message", func(context.Context) error {
		waiting = w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CoordinatorsStarting")
		if want := "main-coordinator-2: CrashLoopBackOff, after exit code 1: no luck"; !strings.Contains(waiting.Message, want) {
			return fmt.Errorf("%q lacks %q", waiting.Message, want)
		}
		return nil
	})
	w.quiet()
	broken := 0
	for _, pod := range append(w.pods("broker"), w.pods("coordinator")...) {
		if pod.Spec.Containers[0].Image == "carillon:broken" {
			broken++
		}
	}
	if broken != 1 {
		t.Errorf("%d pods run the broken image, want 1", broken)
	}
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:three" })
	w.untilReady()
	w.wantEvent("RepairingPod", "image carillon:broken becomes carillon:three")
}

func TestScaling(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	if err := w.get("main", &policyv1.PodDisruptionBudget{}); !apierrors.IsNotFound(err) {
		t.Errorf("one broker has a PodDisruptionBudget (%v), which would keep its node from being drained", err)
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 3}}`)
	w.untilReady()
	if n := len(w.pods("broker")); n != 3 {
		t.Errorf("%d brokers after growing to 3", n)
	}
	if err := w.get("main", &policyv1.PodDisruptionBudget{}); err != nil {
		t.Error(err)
	}
}

func TestVolumesGrowAroundRunningPods(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, storage: {size: 1Gi}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	before := map[string]string{}
	for _, pod := range w.pods("broker") {
		before[pod.Name] = string(pod.UID)
	}
	// Most small clusters have a storage class that can't expand.
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"storage": {"size": "2Gi"}}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "VolumeNotExpandable")
	if !strings.Contains(stalled.Message, "data-main-0 can't grow from 1Gi to 2Gi") {
		t.Errorf("Stalled says %q", stalled.Message)
	}
	w.expandable()
	eventually.For(t, "waiting for the volumes and the claim template to grow", func(context.Context) error {
		w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%d"}}}`, time.Now().UnixNano()))
		want := resource.MustParse("2Gi")
		for _, name := range []string{"data-main-0", "data-main-1"} {
			claim := &corev1.PersistentVolumeClaim{}
			if err := w.get(name, claim); err != nil {
				return err
			}
			if got := claim.Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(want) != 0 {
				return fmt.Errorf("%s asks for %s", name, got.String())
			}
			w.grant(claim)
		}
		set := &appsv1.StatefulSet{}
		if err := w.get("main", set); err != nil {
			return err
		}
		if got := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(want) != 0 || set.DeletionTimestamp != nil {
			return fmt.Errorf("the claim template asks for %s", got.String())
		}
		return nil
	})
	w.untilReady()
	for _, pod := range w.pods("broker") {
		if before[pod.Name] != string(pod.UID) {
			t.Errorf("%s was replaced; growing should leave it running", pod.Name)
		}
	}
}

// TestTheStatusOfAFormerStatefulSetIsRenewed: Kubernetes' controller may write the last status of a
// StatefulSet to the next one of that name, and overlooks it there. Nothing else would tell the
// operator that the controller has seen the set.
func TestTheStatusOfAFormerStatefulSetIsRenewed(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	for _, name := range []string{"main-coordinator", "main"} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		former := client.RawPatch(types.MergePatchType, []byte(`{"status": {"observedGeneration": 1000}}`))
		if err := k8s.Status().Patch(t.Context(), set, former); err != nil {
			t.Fatal(err)
		}
		eventually.For(t, "waiting for the status of StatefulSet "+name, func(context.Context) error {
			if err := w.get(name, set); err != nil {
				return err
			}
			if set.Status.ObservedGeneration != set.Generation {
				return fmt.Errorf("generation %d was observed, of %d", set.Status.ObservedGeneration, set.Generation)
			}
			return nil
		})
	}
	w.untilReady()
}

// TestAStatusThatMayNotBeRenewedHoldsUpNothingElse: the role of an earlier version lacks the right.
// The Broker says so, the other StatefulSet is cared for meanwhile, and nothing else is needed once
// the right is given.
func TestAStatusThatMayNotBeRenewedHoldsUpNothingElse(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	var roles rbacv1.RoleList
	testutil.Must(t, k8s.List(t.Context(), &roles, client.InNamespace(w.namespace)))
	var given []rbacv1.Role
	for i := range roles.Items {
		role := &roles.Items[i]
		lacks := role.DeepCopy()
		lacks.Rules = slices.DeleteFunc(lacks.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "statefulsets/status") })
		if len(lacks.Rules) < len(role.Rules) {
			given = append(given, *role)
			testutil.Must(t, k8s.Update(t.Context(), lacks))
		}
	}
	if len(given) != 1 {
		t.Fatalf("%d roles have the right", len(given))
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main"}}
	former := client.RawPatch(types.MergePatchType, []byte(`{"status": {"observedGeneration": 1000}}`))
	eventually.For(t, "waiting for the operator to miss the right", func(context.Context) error {
		if err := k8s.Status().Patch(t.Context(), set, former); err != nil { // again: the API server is told of the role later
			return err
		}
		c := meta.FindStatusCondition(w.broker().Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "statefulsets/status") {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"coordination": {"managed": {"storage": {"size": "4Gi"}}}}}`)
	w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "VolumeNotExpandable")            // it was tried
	eventually.For(t, "waiting for a status that nobody renews", func(context.Context) error { // a write of before may be late
		if err := w.get("main", set); err != nil || set.Status.ObservedGeneration == 1000 {
			return err
		}
		return errors.Join(errors.New("it was written once more"), k8s.Status().Patch(t.Context(), set, former))
	})
	given[0].ResourceVersion = ""
	testutil.Must(t, k8s.Update(t.Context(), &given[0]))
	eventually.For(t, "waiting for the status", func(context.Context) error {
		if err := w.get("main", set); err != nil {
			return err
		}
		if set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("generation %d was observed, of %d", set.Status.ObservedGeneration, set.Generation)
		}
		return nil
	})
}
