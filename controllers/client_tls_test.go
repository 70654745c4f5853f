package controllers_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// TestClientsGetACertificateOfTheOperatorsOwnCA: the certificate is for the names under which
// clients connect, and its CA is in a ConfigMap. It is renewed, also for further names, without a
// restart. Without spec.tls the pods are as before.
func TestClientsGetACertificateOfTheOperatorsOwnCA(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, tls: {extraNames: [broker.example.org]}, websocket: {}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.quiet()
	if endpoint := w.broker().Status.Endpoint; endpoint != "tls://main."+w.namespace+".svc:4222" {
		t.Errorf("the endpoint is %s", endpoint)
	}
	for _, flag := range []string{"--client-tls-dir=/etc/carillon/client-tls", "--client-tls=required", "--websocket-listen=:8080"} {
		for _, pod := range w.pods("broker") {
			if !slices.Contains(pod.Spec.Containers[0].Args, flag) {
				t.Errorf("%s lacks %s", pod.Name, flag)
			}
		}
	}
	bundle := w.clientCA()
	for _, name := range []string{"main", "main." + w.namespace + ".svc", "main-7.main-brokers." + w.namespace + ".svc", "localhost", "127.0.0.1", "broker.example.org"} {
		if err := w.serverVerifies("main-client-tls", bundle, name); err != nil {
			t.Errorf("a client that connects to %s: %v", name, err)
		}
	}
	links := &corev1.Secret{}
	if err := w.get("main-ca", links); err != nil {
		t.Fatal(err)
	}
	if err := w.serverVerifies("main-client-tls", string(links.Data["link-ca.crt"]), "main"); err == nil {
		t.Error("the CA of the links between brokers signed the clients' certificate")
	}
	if err := w.serverVerifies("main-broker-tls", bundle, "main-0.main-brokers."+w.namespace+".svc"); err == nil {
		t.Error("the CA of clients signed the certificate of links between brokers")
	}
	for name, kind := range map[string]client.Object{"main-client-ca": &corev1.ConfigMap{}, "main-client-tls": &corev1.Secret{}, "main-client-signer": &corev1.Secret{}} {
		if err := w.get(name, kind); err != nil {
			t.Error(err)
		} else if owner := metav1.GetControllerOf(kind); owner == nil || owner.Kind != "Broker" || owner.Name != "main" {
			t.Errorf("%T %s is owned by %v, want the Broker", kind, name, owner)
		}
	}

	before, pods := len(w.written()), w.uids("broker")
	w.restartOperator(func(*controllersOptions) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("a converged Broker cost the writes %v", after[before:])
	}

	was := w.notAfter("main-client-tls")
	w.advance(61 * 24 * time.Hour)
	w.patch(&corev1.Pod{}, "main-0", `{"metadata": {"labels": {"look": "1"}}}`)
	eventually.For(t, "waiting for a renewed certificate", func(context.Context) error {
		if after := w.notAfter("main-client-tls"); !after.After(was.Add(60 * 24 * time.Hour)) {
			return fmt.Errorf("it ends %v", after)
		}
		return nil
	})
	if w.clientCA() != bundle {
		t.Error("the CA changed with the certificate")
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": {"extraNames": ["broker.example.org", "192.0.2.7"]}}}`)
	eventually.For(t, "waiting for a certificate with another name", func(context.Context) error {
		return w.serverVerifies("main-client-tls", bundle, "192.0.2.7")
	})
	w.untilReady()
	w.quiet()
	if now := w.uids("broker"); !slices.Equal(now, pods) {
		t.Error("pods were replaced for a certificate that they read by themselves")
	}

	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": null, "websocket": null}}`)
	eventually.For(t, "waiting for pods without TLS", func(context.Context) error {
		for _, pod := range w.pods("broker") {
			if args := strings.Join(pod.Spec.Containers[0].Args, " "); strings.Contains(args, "client-tls") || strings.Contains(args, "websocket") {
				return fmt.Errorf("%s has the flags %s", pod.Name, args)
			}
		}
		return nil
	})
	w.untilReady()
	if endpoint := w.broker().Status.Endpoint; endpoint != "nats://main."+w.namespace+".svc:4222" {
		t.Errorf("without TLS the endpoint is %s", endpoint)
	}
	w.stop()
	if err := k8s.Delete(t.Context(), w.broker()); err != nil {
		t.Fatal(err)
	}
	eventually.For(t, "waiting for the objects of TLS to go with the Broker", func(context.Context) error {
		for name, kind := range map[string]client.Object{"main-client-ca": &corev1.ConfigMap{}, "main-client-tls": &corev1.Secret{}, "main-client-signer": &corev1.Secret{}} {
			if err := w.get(name, kind); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is there (%v)", kind, name, err)
			}
		}
		return nil
	})
}

// TestASecretForTLSIsWaitedFor: while what spec.tls names can't be used, no pod that serves is
// replaced. Another content of the Secrets replaces none either.
func TestASecretForTLSIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 2, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	plain := w.uids("broker")
	look := 0
	refused := func(says string) {
		t.Helper()
		look++
		w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%d"}}}`, look))
		eventually.For(t, "waiting for "+says, func(context.Context) error {
			if ready := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "TLSSecretUnusable"); !strings.Contains(ready.Message, says) {
				return fmt.Errorf("Ready says %q", ready.Message)
			}
			return nil
		})
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": {"secretName": "theirs", "clientCertificates": {"caSecretRef": {"name": "devices", "key": "roots"}}}}}`)
	refused("Secret theirs, which spec.tls.secretName names, does not exist")
	w.wantEvent("TLSSecretUnusable", "Secret theirs")
	first, second := certificateOf(t, w), certificateOf(t, w)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "theirs"}, Data: map[string][]byte{"tls.crt": first["tls.crt"]}}
	if err := k8s.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	refused("lacks the key tls.key")
	w.fill("theirs", map[string][]byte{"tls.key": second["tls.key"]})
	refused("is no certificate with its key")
	w.fill("theirs", map[string][]byte{"tls.key": first["tls.key"]})
	refused("Secret devices, which spec.tls.clientCertificates.caSecretRef names, does not exist")
	devices := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "devices"}, Data: map[string][]byte{"roots": []byte("none")}}
	if err := k8s.Create(t.Context(), devices); err != nil {
		t.Fatal(err)
	}
	refused("has no certificate in the key roots")
	w.quiet()
	if now := w.uids("broker"); !slices.Equal(now, plain) {
		t.Error("pods were replaced that could not have started")
	}
	set := &appsv1.StatefulSet{}
	if err := w.get("main", set); err != nil {
		t.Fatal(err)
	}
	if args := strings.Join(set.Spec.Template.Spec.Containers[0].Args, " "); strings.Contains(args, "client-tls") {
		t.Errorf("a pod that is made anew could not start with %s", args)
	}

	w.fill("devices", map[string][]byte{"roots": second["ca.crt"]})
	w.untilReady()
	w.until(v1alpha1.ConditionOpen, "", "")
	for _, pod := range w.pods("broker") {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "client-tls" })
		if i < 0 || len(pod.Spec.Volumes[i].Projected.Sources) != 2 || pod.Spec.Volumes[i].Projected.Sources[0].Secret.Name != "theirs" || pod.Spec.Volumes[i].Projected.Sources[1].Secret.Name != "devices" {
			t.Errorf("%s does not mount both Secrets: %v", pod.Name, pod.Spec.Volumes)
		}
	}
	secured := w.uids("broker")
	w.fill("theirs", second) // a renewal, from elsewhere, which comes with its CA
	eventually.For(t, "waiting for the CA that came with the certificate", func(context.Context) error {
		look++
		w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%d"}}}`, look))
		return w.serverVerifies("theirs", w.clientCA(), "main")
	})
	w.untilReady()
	if now := w.uids("broker"); !slices.Equal(now, secured) {
		t.Error("pods were replaced for a renewal that they read by themselves")
	}
	// Pods that run stay as they are without the Secret, whatever else changes.
	if err := k8s.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	refused("Secret theirs, which spec.tls.secretName names, does not exist")
	w.restartOperator(func(o *controllersOptions) { o.Image = "carillon:two" })
	refused("Secret theirs")
	w.quiet()
	if now := w.uids("broker"); !slices.Equal(now, secured) {
		t.Error("pods were replaced while the Secret that they need is gone")
	}
	// The operator's own Secrets are for nobody else.
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": {"secretName": "main-ca"}}}`)
	refused("one of the operator's own")
}

// TestAnExpiringCertificateIsReported: a week before the end of a certificate that others renew,
// and when it has expired, the Broker has a condition, and an event is written, once each. Ready
// does not depend on it.
func TestAnExpiringCertificateIsReported(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "theirs"}, Data: certificateOf(t, w)}
	if err := k8s.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.create(`{replicas: 1, tls: {secretName: theirs}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.until(v1alpha1.ConditionCertificateExpiring, "", "")
	end := w.notAfter("theirs")
	for _, c := range []struct {
		reason string
		left   time.Duration
	}{{"CertificateExpiresSoon", 6 * 24 * time.Hour}, {"CertificateExpired", -time.Hour}} {
		w.advance(end.Add(-c.left).Sub(w.options.Now()))
		w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%s"}}}`, c.reason))
		is := w.until(v1alpha1.ConditionCertificateExpiring, metav1.ConditionTrue, c.reason)
		if !strings.Contains(is.Message, "Secret theirs, which spec.tls.secretName names, expire") || !strings.Contains(is.Message, end.UTC().Format(time.RFC3339)) {
			t.Errorf("it says %q", is.Message)
		}
		w.wantEvent(c.reason, is.Message)
		w.untilReady()
		w.quiet()
		before := len(w.written())
		w.restartOperator(func(*controllersOptions) {})
		w.quiet()
		if after := w.written(); len(after) != before {
			t.Errorf("a Broker that nothing happened to cost the writes %v", after[before:])
		}
		if err := w.countEvents("Broker", c.reason, 1); err != nil {
			t.Error(err)
		}
	}
	w.fill("theirs", certificateOf(t, w))
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"look": "renewed"}}}`)
	w.until(v1alpha1.ConditionCertificateExpiring, "", "")
	w.untilReady()
}

// TestCertManagerMakesTheCertificate: the operator makes a Certificate, waits for its Secret, and
// says so if cert-manager is not there.
func TestCertManagerMakesTheCertificate(t *testing.T) {
	w := newWorld(t)
	w.create(`{replicas: 1, tls: {issuerRef: {name: ca}, extraNames: [broker.example.org, 192.0.2.7]}, coordination: {managed: {replicas: 1}}}`)
	missing := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CertManagerMissing")
	if !strings.Contains(missing.Message, "knows no Certificate of cert-manager.io: install cert-manager") {
		t.Errorf("Ready says %q", missing.Message)
	}
	w.wantEvent("CertManagerMissing", "install cert-manager")
	if n := len(w.pods("broker")); n != 0 {
		t.Errorf("%d brokers run without the TLS that was asked for", n)
	}
	installCertManager(t)
	pending := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "CertificatePending")
	if !strings.Contains(pending.Message, "Secret main-client-issued of Certificate main-client-tls") {
		t.Errorf("Ready says %q", pending.Message)
	}
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(certificates)
	if err := k8s.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "main-client-tls"}, made); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(made); owner == nil || owner.Kind != "Broker" || owner.Name != "main" {
		t.Errorf("the Certificate is owned by %v, want the Broker", owner)
	}
	issuer, _, _ := unstructured.NestedStringMap(made.Object, "spec", "issuerRef")
	names, _, _ := unstructured.NestedStringSlice(made.Object, "spec", "dnsNames")
	addresses, _, _ := unstructured.NestedStringSlice(made.Object, "spec", "ipAddresses")
	if issuer["name"] != "ca" || issuer["kind"] != "Issuer" || issuer["group"] != "cert-manager.io" ||
		!slices.Contains(names, "broker.example.org") || !slices.Contains(names, "*.main-brokers."+w.namespace+".svc") || !slices.Contains(addresses, "192.0.2.7") {
		t.Errorf("the Certificate asks for %v", made.Object["spec"])
	}
	// What cert-manager does.
	issued := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main-client-issued"}, Type: corev1.SecretTypeTLS, Data: certificateOf(t, w)}
	if err := k8s.Create(t.Context(), issued); err != nil {
		t.Fatal(err)
	}
	w.untilReady()
	if err := w.serverVerifies("main-client-issued", w.clientCA(), "main"); err != nil {
		t.Error(err)
	}
	w.quiet()
	before, pods := len(w.written()), w.uids("broker")
	w.restartOperator(func(*controllersOptions) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("a converged Broker cost the writes %v", after[before:])
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": {"extraNames": ["other.example.org"]}}}`)
	eventually.For(t, "waiting for the other name in the Certificate", func(context.Context) error {
		if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
			return err
		}
		if names, _, _ := unstructured.NestedStringSlice(made.Object, "spec", "dnsNames"); !slices.Contains(names, "other.example.org") || slices.Contains(names, "broker.example.org") {
			return fmt.Errorf("its names are %q", names)
		}
		return nil
	})
	w.untilReady()
	if now := w.uids("broker"); !slices.Equal(now, pods) {
		t.Error("a pod was replaced for another name")
	}
}

var certificates = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}

// installCertManager installs the definition of cert-manager's Certificates, which is all that the
// operator needs of it, until the test ends.
func installCertManager(t *testing.T) {
	t.Helper()
	keep := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "certificates.cert-manager.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: certificates.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "certificates", Singular: "certificate", Kind: certificates.Kind, ListKind: "CertificateList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: certificates.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
			}},
		},
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(fields, "status")
	if err := k8s.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k8s.Delete(context.Background(), object); err != nil {
			t.Error(err)
		}
	})
}

// certificateOf returns a certificate of another CA, for the names of the Broker main, as it is
// made at the operator's time.
func certificateOf(t *testing.T, w *world) map[string][]byte {
	t.Helper()
	authority, _, err := pki.EnsureAuthority("theirs", nil, w.options.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := authority.EnsureLeaf(pki.Leaf{Name: "theirs", DNSNames: []string{"main", "main." + w.namespace + ".svc"}}, nil, w.options.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fill puts data into a Secret.
func (w *world) fill(name string, data map[string][]byte) {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.get(name, secret); err != nil {
		w.t.Fatal(err)
	}
	for key, value := range data {
		secret.Data[key] = value
	}
	if err := k8s.Update(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
}

// clientCA returns the CAs that clients trust.
func (w *world) clientCA() string {
	w.t.Helper()
	config := &corev1.ConfigMap{}
	if err := w.get("main-client-ca", config); err != nil {
		w.t.Fatal(err)
	}
	return config.Data["ca.crt"]
}

// serverVerifies checks the certificate in a Secret as a client does that trusts the bundle and
// connects to that name, at the operator's time.
func (w *world) serverVerifies(name, bundle, host string) error {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.get(name, secret); err != nil {
		return err
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		return fmt.Errorf("Secret %s has no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: w.options.Now()})
	return err
}

// uids returns the uids of a component's pods, by name.
func (w *world) uids(component string) (uids []string) {
	w.t.Helper()
	for _, pod := range w.pods(component) {
		uids = append(uids, pod.Name+" "+string(pod.UID))
	}
	slices.Sort(uids)
	return uids
}
