package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestOnlyPermittedSecretsReachTheBrokers: what Subscriptions refer to is copied into the Secret
// that the brokers mount, as far as the Secrets permit that, and goes when nothing refers to it. No
// pod is replaced for that, and nothing of it is in etcd.
func TestOnlyPermittedSecretsReachTheBrokers(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	members["main-0"].stop()
	f.features = coordination.Features()
	f.start("main-0")
	uid := w.pods("broker")[0].UID
	for _, name := range []string{"token", "hidden"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: map[string][]byte{"key": []byte("Bearer " + name), "other": []byte("x")}}
		if name == "token" {
			secret.Labels = map[string]string{v1alpha1.LabelPush: "true"}
		}
		if err := k8s.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	// holds waits until the brokers' Secret has these keys and no others; nil: there is none.
	holds := func(want map[string]string) {
		t.Helper()
		eventually.For(t, fmt.Sprintf("the brokers' Secret has %v", want), func(context.Context) error {
			secret := &corev1.Secret{}
			switch err := w.get("main-push", secret); {
			case apierrors.IsNotFound(err) && want == nil:
				return nil
			case err != nil:
				return err
			}
			if len(secret.Data) != len(want) || want == nil {
				return fmt.Errorf("it has %d keys", len(secret.Data))
			}
			for key, value := range want {
				if string(secret.Data[key]) != value {
					return fmt.Errorf("%s is %q", key, secret.Data[key])
				}
			}
			return nil
		})
	}
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "plain", `{topicRef: {name: orders}, delivery: {push: {url: "http://a"}}}`)
	w.untilSubscription("plain", "Served")
	holds(nil)
	const spec = `{topicRef: {name: orders}, delivery: {push: {url: "https://a", headers: [
		{name: A, valueFrom: {secretKeyRef: {name: token, key: key}}},
		{name: B, valueFrom: {secretKeyRef: {name: hidden, key: key}}},
		{name: C, valueFrom: {secretKeyRef: {name: main-ca, key: ca.key}}}], tls: {caSecretRef: {name: lost, key: ca.crt}}}}}`
	w.apply("Subscription", "billing", spec)
	w.untilSubscription("billing", "Served")
	holds(map[string]string{"token_key": "Bearer token"})
	if s := f.subscription("orders", "billing"); s.Spec.Push.Headers[0].File != "token_key" || s.Spec.Push.Headers[0].Value != "" {
		t.Errorf("in etcd there is %+v", s.Spec.Push)
	}
	// The operator's own Secrets stay refused, whatever they are labelled.
	w.patch(&corev1.Secret{}, "main-ca", `{"metadata": {"labels": {"carillon.dev/push": "true"}}}`)
	w.patch(&corev1.Secret{}, "hidden", `{"metadata": {"labels": {"carillon.dev/push": "true"}}}`)
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"ack": {"wait": "20s"}}}`)
	holds(map[string]string{"token_key": "Bearer token", "hidden_key": "Bearer hidden"})
	w.patch(&corev1.Secret{}, "token", `{"stringData": {"key": "Bearer new"}}`)
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"ack": {"wait": "21s"}}}`)
	holds(map[string]string{"token_key": "Bearer new", "hidden_key": "Bearer hidden"})
	// A client certificate comes with its key, and nothing else of its Secret.
	certificate := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "me", Labels: map[string]string{v1alpha1.LabelPush: "true"}},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("cert"), "tls.key": []byte("key"), "ca.crt": []byte("CA")},
	}
	if err := k8s.Create(t.Context(), certificate); err != nil {
		t.Fatal(err)
	}
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"delivery": {"push": {"tls": {"certificateSecretRef": {"name": "me"}}}}}}`)
	holds(map[string]string{"token_key": "Bearer new", "hidden_key": "Bearer hidden", "me_tls.crt": "cert", "me_tls.key": "key"})
	w.untilSubscription("billing", "Served")
	if s := f.subscription("orders", "billing"); s.Spec.Push.TLS.Certificate != "me_tls.crt" || s.Spec.Push.TLS.Key != "me_tls.key" {
		t.Errorf("in etcd there is %+v", s.Spec.Push.TLS)
	}
	w.patch(&corev1.Secret{}, "me", `{"stringData": {"tls.crt": "renewed", "tls.key": "renewed key"}}`)
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"ack": {"wait": "22s"}}}`)
	holds(map[string]string{"token_key": "Bearer new", "hidden_key": "Bearer hidden", "me_tls.crt": "renewed", "me_tls.key": "renewed key"})
	w.remove(&v1alpha1.Subscription{}, "billing")
	holds(map[string]string{})
	if now := w.pods("broker")[0].UID; now != uid {
		t.Error("a broker's pod was replaced")
	}
}

// TestAClientCertificateWaitsForBrokersThatGiveIt: brokers of an earlier version would push without
// it.
func TestAClientCertificateWaitsForBrokersThatGiveIt(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	members["main-0"].stop()
	var earlier []coordination.Feature
	for _, name := range strings.Fields(string(coordination.Features())) {
		if feature := coordination.Feature(name); feature != coordination.FeaturePushCertificates {
			earlier = append(earlier, feature)
		}
	}
	f.features = coordination.MakeFeatureSet(earlier...)
	member := f.start("main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "anonymous", `{topicRef: {name: orders}, delivery: {push: {url: "https://a", tls: {serverName: b}}}}`)
	w.untilSubscription("anonymous", "Served")
	w.apply("Subscription", "known", `{topicRef: {name: orders}, delivery: {push: {url: "https://a", tls: {certificateSecretRef: {name: me}}}}}`)
	w.untilSubscription("known", "PushUnsupported")
	if f.subscription("orders", "known") != nil {
		t.Error("it is in etcd")
	}
	member.stop()
	f.features = coordination.Features()
	f.start("main-0")
	w.untilSubscription("known", "Served")
}
