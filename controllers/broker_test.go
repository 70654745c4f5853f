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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

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
		{"main-broker-etcd-tls", &corev1.Secret{}}, {"main-coordinator-peer-tls", &corev1.Secret{}},
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
	// The selector of the scale subresource selects the brokers' pods.
	selected := &corev1.PodList{}
	selector, err := metav1.ParseToLabelSelector(s.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if err := k8s.List(t.Context(), selected, client.InNamespace(w.namespace), client.MatchingLabels(selector.MatchLabels)); err != nil || len(selected.Items) != 3 {
		t.Errorf("the selector in the status finds %d pods (%v), want 3", len(selected.Items), err)
	}
}

// TestConvergedBrokerCostsNoWrites: a converged Broker costs no writes, in further passes and after
// a restart of the operator.
func TestConvergedBrokerCostsNoWrites(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.quiet()
	before := len(w.written())
	// A changed label of a pod triggers a pass and requires no action.
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
	eventually.For(t, "waiting for everything to be put right", func(context.Context) error {
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
	// The operator keeps fields that others add.
	w.patch(&corev1.Service{}, "main", `{"metadata": {"annotations": {"theirs": "kept"}}}`)
	w.quiet()
	service := &corev1.Service{}
	if err := w.get("main", service); err != nil || service.Annotations["theirs"] != "kept" {
		t.Errorf("an annotation of somebody else's is %q (%v), want it kept", service.Annotations["theirs"], err)
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
	// Another password replaces the pods, whose objects don't reveal it.
	w.patch(&corev1.Secret{}, "login", `{"stringData": {"password": "two"}}`)
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"look": "1"}}}`)
	eventually.For(t, "waiting for the roll", func(context.Context) error {
		return w.findEvent("RollingPod", "the auth Secret has changed")
	})
	w.untilReady()
	// Without the Secret running pods stay.
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
	eventually.For(t, "waiting for new certificates", func(context.Context) error {
		for _, name := range []string{"main-broker-tls", "main-broker-etcd-tls", "main-coordinator-tls", "main-coordinator-peer-tls"} {
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

func TestForeignObjectsAreNotTouched(t *testing.T) {
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
	if err := w.keys().ClaimOwner(t.Context(), "elsewhere/other/1234"); err != nil {
		t.Fatal(err)
	}
	w.create(`{replicas: 1, coordination: {managed: {replicas: 1}}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "AlreadyOwned")
	if !strings.Contains(stalled.Message, "belong to elsewhere/other/1234") {
		t.Errorf("Stalled says %q", stalled.Message)
	}
}

func TestAnUnavailableEtcdIsReportedAndSurvived(t *testing.T) {
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

// TestDeletionLeavesTheVolumesAndNothingElse: a deletion needs no operator, is not blocked, and
// keeps the volumes. A Broker of the same name uses them again.
func TestDeletionLeavesTheVolumesAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.stop()
	if err := k8s.Delete(t.Context(), w.broker()); err != nil {
		t.Fatal(err)
	}
	eventually.For(t, "waiting for everything to go", func(ctx context.Context) error {
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
	// For that the StatefulSet controller becomes the claims' owner.
	eventually.For(t, "waiting for the claims to be owned", func(context.Context) error {
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
	eventually.For(t, "waiting for the volume claims to go", func(ctx context.Context) error {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := k8s.List(ctx, claims, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range claims.Items {
			// No node mounts them, so only this finalizer of Kubernetes keeps them.
			claims.Items[i].Finalizers = nil
			_ = k8s.Update(ctx, &claims.Items[i])
		}
		if n := len(claims.Items); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}
