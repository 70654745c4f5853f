package controllers_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// create makes a Broker named main.
func (w *world) create(spec string) {
	w.t.Helper()
	if err := k8s.Create(w.t.Context(), object(w.t, "Broker", w.namespace, "main", spec)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string, into client.Object) error {
	return k8s.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, into)
}

func (w *world) broker() *v1alpha1.Broker {
	w.t.Helper()
	broker := &v1alpha1.Broker{}
	if err := w.get("main", broker); err != nil {
		w.t.Fatal(err)
	}
	return broker
}

// patch merges JSON into an object.
func (w *world) patch(into client.Object, name, patch string) {
	w.t.Helper()
	into.SetNamespace(w.namespace)
	into.SetName(name)
	if err := k8s.Patch(w.t.Context(), into, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a condition of the Broker at its present generation; an empty status: for its absence.
func (w *world) until(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	w.t.Helper()
	var found metav1.Condition
	eventually(w.t, fmt.Sprintf("waiting for %s %s %s", kind, status, reason), func(context.Context) error {
		broker := w.broker()
		if broker.Status.ObservedGeneration != broker.Generation {
			return fmt.Errorf("generation %d observed, of %d", broker.Status.ObservedGeneration, broker.Generation)
		}
		c := meta.FindStatusCondition(broker.Status.Conditions, kind)
		switch {
		case c == nil && status == "":
			return nil
		case c == nil:
			return fmt.Errorf("it is absent; there are %v", broker.Status.Conditions)
		case c.Status != status || (reason != "" && c.Reason != reason):
			return fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		found = *c
		return nil
	})
	return found
}

func (w *world) untilReady() {
	w.t.Helper()
	w.until(v1alpha1.ConditionReady, metav1.ConditionTrue, "AllReady")
}

// quiet waits until the operator has written nothing for two seconds.
func (w *world) quiet() {
	w.t.Helper()
	last, since := len(w.written()), time.Now()
	eventually(w.t, "waiting for the operator to be quiet", func(context.Context) error {
		if n := len(w.written()); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("it wrote %v", w.written()[max(0, last-3):])
		}
		return nil
	})
}

func (w *world) pods(component string) []corev1.Pod {
	w.t.Helper()
	pods := &corev1.PodList{}
	if err := k8s.List(w.t.Context(), pods, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/component": component}); err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

func TestBrokerBecomesObjectsAndThenReady(t *testing.T) {
	w := newWorld(t)
	w.create(`{}`)
	w.untilReady()
	for _, o := range []struct {
		name string
		kind client.Object
	}{
		{"main", &appsv1.StatefulSet{}}, {"main-coordinator", &appsv1.StatefulSet{}},
		{"main", &corev1.Service{}}, {"main-brokers", &corev1.Service{}}, {"main-coordinators", &corev1.Service{}},
		{"main", &policyv1.PodDisruptionBudget{}}, {"main-coordinator", &policyv1.PodDisruptionBudget{}},
		{"main-broker", &corev1.ServiceAccount{}}, {"main-coordinator", &corev1.ServiceAccount{}},
		{"main-ca", &corev1.Secret{}}, {"main-broker-tls", &corev1.Secret{}}, {"main-coordinator-tls", &corev1.Secret{}},
	} {
		if err := w.get(o.name, o.kind); err != nil {
			t.Errorf("%T %s: %v", o.kind, o.name, err)
		} else if owner := metav1.GetControllerOf(o.kind); owner == nil || owner.Kind != "Broker" || owner.Name != "main" {
			t.Errorf("%T %s is owned by %v, want the Broker", o.kind, o.name, owner)
		}
	}
	broker := w.broker()
	s := broker.Status
	if s.Replicas != 3 || s.ReadyReplicas != 3 || s.Coordination.ReadyReplicas != 3 || s.Image != "carillon:one" || s.Profile != "medium" ||
		s.Endpoint != "nats://main."+w.namespace+".svc:4222" || s.ObservedGeneration != broker.Generation {
		t.Errorf("status is %+v", s)
	}
	if len(broker.Finalizers) != 0 {
		t.Errorf("the Broker has finalizers %v: it could hang", broker.Finalizers)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOpen); c == nil || c.Status != metav1.ConditionTrue {
		t.Error("a Broker without auth does not say that it is open")
	}
	for _, absent := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionRestartPending} {
		if c := meta.FindStatusCondition(s.Conditions, absent); c != nil {
			t.Errorf("condition %s is there: %s", absent, c.Message)
		}
	}
	tls := &corev1.Secret{}
	if err := w.get("main-coordinator-tls", tls); err != nil {
		t.Fatal(err)
	}
	if len(tls.Data["bootstrapped"]) == 0 {
		t.Error("the coordinators were not told that their cluster has existed")
	}
	ca := &corev1.Secret{}
	if err := w.get("main-ca", ca); err != nil {
		t.Fatal(err)
	}
	scale := &unstructuredScale{}
	if err := scale.read(t, w); err != nil || scale.replicas != 3 || !strings.Contains(scale.selector, "app.kubernetes.io/instance=main") {
		t.Errorf("the scale subresource says %+v, %v", scale, err)
	}
	// What the pods are selected by is what the scale subresource tells autoscalers.
	selected := &corev1.PodList{}
	selector, err := metav1.ParseToLabelSelector(s.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if err := k8s.List(t.Context(), selected, client.InNamespace(w.namespace), client.MatchingLabels(selector.MatchLabels)); err != nil || len(selected.Items) != 3 {
		t.Errorf("the selector in the status finds %d pods (%v), want 3", len(selected.Items), err)
	}
}

// A converged Broker costs no writes: not by itself, not when looked at again, not when the operator
// is started again.
func TestConvergedBrokerCostsNoWrites(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.quiet()
	before := len(w.written())
	// A pod's label makes the operator look; it is nothing to it.
	for i := range 5 {
		w.patch(&corev1.Pod{}, "main-0", fmt.Sprintf(`{"metadata": {"labels": {"look": "%d"}}}`, i))
	}
	w.quiet()
	w.restartOperator(func(*controllersOptions) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("a converged Broker cost the writes %v", after[before:])
	}
}

func TestDriftIsCorrected(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()

	w.patch(&corev1.Service{}, "main", `{"spec": {"ports": [{"name": "client", "port": 9999}]}}`)
	w.patch(&policyv1.PodDisruptionBudget{}, "main", `{"spec": {"maxUnavailable": 2}}`)
	w.patch(&appsv1.StatefulSet{}, "main", `{"spec": {"updateStrategy": {"type": "RollingUpdate"}}}`)
	w.patch(&corev1.ServiceAccount{}, "main-broker", `{"automountServiceAccountToken": true}`)
	if err := k8s.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main-brokers"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "waiting for everything to be put right", func(context.Context) error {
		service, budget, set, account := &corev1.Service{}, &policyv1.PodDisruptionBudget{}, &appsv1.StatefulSet{}, &corev1.ServiceAccount{}
		if err := errors.Join(w.get("main", service), w.get("main", budget), w.get("main", set), w.get("main-broker", account), w.get("main-brokers", &corev1.Service{})); err != nil {
			return err
		}
		if n := service.Spec.Ports[0].Port; n != 4222 {
			return fmt.Errorf("the Service's port is %d", n)
		}
		if n := budget.Spec.MaxUnavailable.IntValue(); n != 1 {
			return fmt.Errorf("the budget is %d", n)
		}
		if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
			return fmt.Errorf("the update strategy is %s", set.Spec.UpdateStrategy.Type)
		}
		if *account.AutomountServiceAccountToken {
			return errors.New("the ServiceAccount's token is mounted")
		}
		return nil
	})
	// What somebody else adds is theirs.
	w.patch(&corev1.Service{}, "main", `{"metadata": {"annotations": {"theirs": "kept"}}}`)
	w.quiet()
	service := &corev1.Service{}
	if err := w.get("main", service); err != nil || service.Annotations["theirs"] != "kept" {
		t.Errorf("an annotation of somebody else's is %q (%v), want it kept", service.Annotations["theirs"], err)
	}
}

func TestAnotherImageRollsOnePodAtATime(t *testing.T) {
	w := newWorld(t)
	w.create(`{}`)
	w.untilReady()
	watch := w.watchReady()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:two" })
	eventually(t, "waiting for every pod to run the new image", func(context.Context) error {
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
	w.untilReady() // it is well as it is
	// Even a pod that has to be made anew is made as before.
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
	// The same annotation is no request for the next change.
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"profile": "large"}}`)
	w.until(v1alpha1.ConditionRestartPending, metav1.ConditionTrue, "")
	if profile := w.broker().Status.Profile; profile != "small" {
		t.Errorf("status.profile is %s, want small", profile)
	}
}

// A change that breaks the pods stops after the first; taking it back replaces the broken one at
// once, though nothing is ready to wait for.
func TestBrokenUpdateStopsAndIsRepaired(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.broken = func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == "carillon:broken" }
	w.mu.Unlock()
	w.create(`{coordination: {managed: {replicas: 3}}}`)
	w.untilReady()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:broken" })
	waiting := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CoordinatorsStarting")
	eventually(t, "waiting for the cause in the message", func(context.Context) error {
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
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 2}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "ScaleDownUnsupported")
	if !strings.Contains(stalled.Message, "set spec.replicas to 3") {
		t.Errorf("Stalled says %q, which is no way out", stalled.Message)
	}
	w.quiet()
	if n := len(w.pods("broker")); n != 3 {
		t.Errorf("%d brokers after 2 were asked for: nothing should change", n)
	}
	w.wantEvent("ScaleDownUnsupported", "")
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 3}}`)
	w.until(v1alpha1.ConditionStalled, "", "")
	w.untilReady()
}

func TestVolumesGrowAroundRunningPods(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, storage: {size: 1Gi}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	before := map[string]string{}
	for _, pod := range w.pods("broker") {
		before[pod.Name] = string(pod.UID)
	}
	// A storage class that can't expand is what most small clusters have.
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"storage": {"size": "2Gi"}}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "VolumeNotExpandable")
	if !strings.Contains(stalled.Message, "data-main-0 can't grow from 1Gi to 2Gi") {
		t.Errorf("Stalled says %q", stalled.Message)
	}
	w.expandable()
	eventually(t, "waiting for the volumes and the claim template to grow", func(context.Context) error {
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

func TestAuthFromASecret(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, auth: {secretRef: {name: login}}, coordination: {managed: {replicas: 1}}}`)
	missing := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "AuthSecretUnusable")
	if !strings.Contains(missing.Message, "Secret login, which spec.auth.secretRef names, does not exist") {
		t.Errorf("Ready says %q", missing.Message)
	}
	if n := len(w.pods("broker")); n != 0 {
		t.Errorf("%d brokers run without the auth that was asked for", n)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "login"}, Data: map[string][]byte{"username": []byte("u"), "password": []byte("one")}}
	if err := k8s.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.untilReady()
	w.until(v1alpha1.ConditionOpen, "", "")
	env := w.pods("broker")[0].Spec.Containers[0].Env
	for name, key := range map[string]string{"CARILLON_USER": "username", "CARILLON_PASSWORD": "password"} {
		i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
		if i < 0 || env[i].ValueFrom.SecretKeyRef.Name != "login" || env[i].ValueFrom.SecretKeyRef.Key != key {
			t.Errorf("%s does not come from the Secret's %s: %v", name, key, env)
		}
	}
	// Another password replaces the pods; the pods show nothing of it.
	w.patch(&corev1.Secret{}, "login", `{"stringData": {"password": "two"}}`)
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"look": "1"}}}`)
	eventually(t, "waiting for the roll", func(context.Context) error {
		return w.findEvent("RollingPod", "the auth Secret has changed")
	})
	w.untilReady()
	// Without the Secret nothing is taken away from those who run.
	if err := k8s.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"look": "2"}}}`)
	w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "AuthSecretUnusable")
	w.quiet()
	if n := len(w.pods("broker")); n != 2 {
		t.Errorf("%d brokers after the Secret went, want 2", n)
	}
}

func TestCertificatesAreRenewedWithoutARestart(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.quiet()
	before, pod := w.notAfter("main-broker-tls"), w.pods("broker")[0].UID
	w.advance(61 * 24 * time.Hour)
	w.patch(&corev1.Pod{}, "main-0", `{"metadata": {"labels": {"look": "1"}}}`)
	eventually(t, "waiting for new certificates", func(context.Context) error {
		for _, name := range []string{"main-broker-tls", "main-coordinator-tls"} {
			if after := w.notAfter(name); !after.After(before.Add(60 * 24 * time.Hour)) {
				return fmt.Errorf("that in %s ends %v", name, after)
			}
		}
		return nil
	})
	tls := &corev1.Secret{}
	if err := w.get("main-coordinator-tls", tls); err != nil || len(tls.Data["bootstrapped"]) == 0 {
		t.Errorf("the renewal forgot that the coordinators' cluster has existed (%v)", err)
	}
	w.quiet()
	if w.pods("broker")[0].UID != pod {
		t.Error("the pod was replaced for a certificate that it reads by itself")
	}
}

func TestWhatIsNotOursIsNotTouched(t *testing.T) {
	w := newWorld(t)
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := k8s.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "NameTaken")
	if !strings.Contains(stalled.Message, "Service main exists and does not belong to this Broker") {
		t.Errorf("Stalled says %q", stalled.Message)
	}
	service := &corev1.Service{}
	if err := w.get("main", service); err != nil || service.Spec.Ports[0].Port != 80 || len(service.OwnerReferences) != 0 {
		t.Errorf("somebody's Service was changed: %+v, %v", service.Spec.Ports, err)
	}
	if err := k8s.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"look": "1"}}}`)
	w.untilReady()
}

func TestKeysOfAnotherBrokerStall(t *testing.T) {
	w := newWorld(t)
	etcd, err := w.openEtcd(w.namespace+"/main", []string{"one"}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if err := etcd.ClaimOwner(t.Context(), "elsewhere/other/1234"); err != nil {
		t.Fatal(err)
	}
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "AlreadyOwned")
	if !strings.Contains(stalled.Message, "belong to elsewhere/other/1234") {
		t.Errorf("Stalled says %q", stalled.Message)
	}
}

func TestCoordinationThatIsAwayIsSaidAndSurvived(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 3}}}`)
	w.untilReady()
	w.mu.Lock()
	w.noEtcd = true
	w.mu.Unlock()
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:two" })
	away := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CoordinationUnavailable")
	if !strings.Contains(away.Message, "etcd is away") {
		t.Errorf("Ready says %q", away.Message)
	}
	w.quiet()
	for _, pod := range append(w.pods("broker"), w.pods("coordinator")...) {
		if pod.Spec.Containers[0].Image != "carillon:one" {
			t.Errorf("%s was replaced without a quorum", pod.Name)
		}
	}
	w.mu.Lock()
	w.noEtcd = false
	w.mu.Unlock()
	w.untilReady()
}

// Deleting needs no operator, hangs on nothing, and leaves the volumes; a Broker of the same name
// takes them up again.
func TestDeletionLeavesTheVolumesAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.stop()
	if err := k8s.Delete(t.Context(), w.broker()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "waiting for everything to go", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{
			&v1alpha1.BrokerList{}, &appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{},
		} {
			if err := k8s.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("there are %d left of %T", n, list)
			}
		}
		return nil
	})
	claims := &corev1.PersistentVolumeClaimList{}
	if err := k8s.List(t.Context(), claims, client.InNamespace(w.namespace)); err != nil || len(claims.Items) != 3 {
		t.Fatalf("%d volume claims are left (%v), want 3", len(claims.Items), err)
	}
	w.startOperator()
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
}

func TestDeletionPolicyDeleteTakesTheVolumes(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, deletionPolicy: Delete, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	// The StatefulSet controller makes itself the claims' owner for that.
	eventually(t, "waiting for the claims to be owned", func(context.Context) error {
		for _, name := range []string{"data-main-0", "data-main-coordinator-0"} {
			claim := &corev1.PersistentVolumeClaim{}
			if err := w.get(name, claim); err != nil {
				return err
			}
			if len(claim.OwnerReferences) == 0 {
				return fmt.Errorf("%s has no owner", name)
			}
		}
		return nil
	})
	if err := k8s.Delete(t.Context(), w.broker()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "waiting for the volume claims to go", func(ctx context.Context) error {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := k8s.List(ctx, claims, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range claims.Items {
			// No node mounts them, so nothing but this finalizer of Kubernetes' own keeps them.
			claims.Items[i].Finalizers = nil
			_ = k8s.Update(ctx, &claims.Items[i])
		}
		if n := len(claims.Items); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

func TestTopicsAndSubscriptionsSayThatTheyAreNotServed(t *testing.T) {
	w := newWorld(t)
	for kind, spec := range map[string]string{"Topic": `brokerRef: {name: main}`, "Subscription": `topicRef: {name: orders}`} {
		if err := k8s.Create(t.Context(), object(t, kind, w.namespace, "orders", spec)); err != nil {
			t.Fatal(err)
		}
	}
	topic, subscription := &v1alpha1.Topic{}, &v1alpha1.Subscription{}
	eventually(t, "waiting for conditions", func(context.Context) error {
		if err := errors.Join(w.get("orders", topic), w.get("orders", subscription)); err != nil {
			return err
		}
		for _, conditions := range [][]metav1.Condition{topic.Status.Conditions, subscription.Status.Conditions} {
			ready, stalled := meta.FindStatusCondition(conditions, "Ready"), meta.FindStatusCondition(conditions, "Stalled")
			if ready == nil || stalled == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "NotServed" || stalled.Status != metav1.ConditionTrue {
				return fmt.Errorf("conditions are %v", conditions)
			}
		}
		return nil
	})
	if topic.Status.ObservedGeneration != topic.Generation || subscription.Status.ObservedGeneration != subscription.Generation {
		t.Error("the status does not say which generation it answers")
	}
	w.quiet()
	before := len(w.written())
	w.restartOperator(func(*controllersOptions) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("what was said already was said again: %v", after[before:])
	}
}

// notAfter is when the certificate in a Secret ends.
func (w *world) notAfter(name string) time.Time {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.get(name, secret); err != nil {
		w.t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		w.t.Fatalf("Secret %s has no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	return cert.NotAfter
}

func (w *world) findEvent(reason, note string) error {
	events := &eventsv1.EventList{}
	if err := k8s.List(w.t.Context(), events, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	var seen []string
	for _, e := range events.Items {
		if e.Reason == reason && strings.Contains(e.Note, note) {
			return nil
		}
		seen = append(seen, e.Reason+": "+e.Note)
	}
	return fmt.Errorf("no event %s with %q; there are\n%s", reason, note, strings.Join(seen, "\n"))
}

func (w *world) wantEvent(reason, note string) {
	w.t.Helper()
	eventually(w.t, "looking for an event", func(context.Context) error { return w.findEvent(reason, note) })
}
