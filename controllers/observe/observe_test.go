package observe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/controllers/plan"
)

func yes() *bool { b := true; return &b }

func TestTheTroubleOfAPodIsReportedWithItsCause(t *testing.T) {
	status := func(c corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{c}}}
	}
	for want, pod := range map[string]*corev1.Pod{
		"is being made": {},
		"is stopping":   {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}},
		"can't be scheduled: 0/3 nodes are available": {Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes  are\navailable"}}}},
		"ImagePullBackOff: no such image": status(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}),
		"CrashLoopBackOff, after exit code 2: wrong flag": status(corev1.ContainerStatus{
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: "wrong flag\n"}},
		}),
		"is starting":                         status(corev1.ContainerStatus{Started: new(bool), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}),
		"runs, and says that it is not ready": status(corev1.ContainerStatus{Started: yes(), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}),
		"exited with code 1":                  status(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}),
	} {
		if got := trouble(pod); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if long := short(strings.Repeat("é", 1000)); len(long) > 210 || !strings.HasSuffix(long, "é…") {
		t.Errorf("a long message becomes %d bytes", len(long))
	}
}

func TestFactsOfASet(t *testing.T) {
	now := time.Now()
	gi := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(n<<30, resource.BinarySI)}
	}
	pod := func(name, revision, restart string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
				Annotations: map[string]string{v1alpha1.AnnotationRestart: restart}},
			Status: corev1.PodStatus{
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Started: yes(), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
			},
		}
	}
	replicas := int32(3)
	object := &appsv1.StatefulSet{}
	object.Generation, object.Status.ObservedGeneration, object.Status.UpdateRevision = 2, 2, "new"
	object.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	object.Spec.Replicas = &replicas
	object.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationRestart: "2"}
	object.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: gi(1)}}}}
	claim := func(name string, asked, has int64) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.Resources.Requests = gi(asked)
		if has > 0 {
			c.Status.Capacity = gi(has)
		}
		return c
	}
	set := Set{
		Object: object,
		Pods:   []corev1.Pod{pod("main-0", "new", "2"), pod("main-1", "old", "2"), pod("main-2", "old", "1")},
		Claims: []corev1.PersistentVolumeClaim{claim("a", 1, 1), claim("b", 2, 1), claim("c", 2, 0), claim("d", 5, 5)},
	}
	facts := set.Facts("main", gi(2)[corev1.ResourceStorage], true, now)
	if !facts.Settled || facts.Replicas != 3 || facts.Age != time.Hour || !facts.SmallTemplate || facts.ReadyPods() != 3 {
		t.Errorf("facts are %+v", facts)
	}
	for i, want := range []struct{ outdated, held bool }{{false, false}, {true, true}, {true, false}} {
		if p := facts.Pods[i]; p.Outdated != want.outdated || p.Held != want.held || !p.Started {
			t.Errorf("%s is %+v, want %+v", p.Name, p, want)
		}
	}
	for i, want := range []plan.Volume{{Name: "a", Small: true}, {Name: "b", Resizing: true}, {Name: "c"}, {Name: "d"}} {
		if facts.Volumes[i] != want {
			t.Errorf("a volume is %+v, want %+v", facts.Volumes[i], want)
		}
	}
	// Until the StatefulSet controller has seen the latest spec, it is unknown which pods are
	// outdated.
	object.Generation = 3
	if facts := set.Facts("main", gi(2)[corev1.ResourceStorage], false, now); facts.Settled || facts.Pods[1].Outdated {
		t.Errorf("an unsettled set has the facts %+v", facts)
	}
	if facts := set.Facts("main", gi(2)[corev1.ResourceStorage], false, now); facts.Stale {
		t.Errorf("an unsettled set has the facts %+v", facts)
	}
	// No controller has seen a generation that does not exist yet: the status is of another set.
	object.Generation = 1
	if facts := set.Facts("main", gi(2)[corev1.ResourceStorage], false, now); facts.Settled || !facts.Stale || facts.Pods[1].Outdated {
		t.Errorf("a set with the status of a former one has the facts %+v", facts)
	}
	// While the set is deleted and its pods are not, the pods show their number.
	if n := (Set{Pods: set.Pods}).Replicas(); n != 3 {
		t.Errorf("3 pods without their set count as %d", n)
	}
}

// etcdSays is a fake Etcd with given answers.
type etcdSays struct {
	Etcd   // the other methods are not called
	health coordination.Health
	owner  string
	err    error
	asked  int
}

func (e *etcdSays) Health(context.Context) coordination.Health { e.asked++; return e.health }
func (e *etcdSays) Owner(context.Context) (string, error)      { return e.owner, e.err }
func (e *etcdSays) ClaimOwner(context.Context, string) error   { return nil }
func (e *etcdSays) Close() error                               { return nil }
func endpoints(errs ...error) (list []coordination.EndpointHealth) {
	for _, err := range errs {
		list = append(list, coordination.EndpointHealth{Err: err})
	}
	return list
}

func TestAskEtcd(t *testing.T) {
	const identity = "default/main/2222"
	away := errors.New("connection refused")
	members := []coordination.Member{{Name: "main-coordinator-0"}, {Name: "main-coordinator-1"}, {Name: "main-coordinator-2"}}
	for what, c := range map[string]struct {
		etcd    etcdSays
		want    plan.Etcd
		serving string
	}{
		"all well": {etcdSays{health: coordination.Health{Endpoints: endpoints(nil, nil, nil), Members: members}, owner: identity},
			plan.Etcd{Asked: true, Quorum: true, AllStarted: true, Owner: plan.OwnerOurs}, "yyy"},
		"one away, not joined yet, nobody's keys": {etcdSays{health: coordination.Health{Endpoints: endpoints(nil, nil, away),
			Members: []coordination.Member{members[0], members[1], {}}}},
			plan.Etcd{Asked: true, Quorum: true, Owner: plan.OwnerNobody}, "yyn"},
		"no quorum": {etcdSays{health: coordination.Health{Endpoints: endpoints(away, nil, away), Err: away}},
			plan.Etcd{Asked: true, Trouble: "connection refused"}, "nyn"},
		"the owner can't be read": {etcdSays{health: coordination.Health{Endpoints: endpoints(nil, nil, nil), Members: members}, err: away},
			plan.Etcd{Asked: true, AllStarted: true, Trouble: "connection refused"}, "yyy"},
		"a former Broker of the name": {etcdSays{health: coordination.Health{Endpoints: endpoints(nil, nil, nil), Members: members}, owner: "default/main/1111"},
			plan.Etcd{Asked: true, Quorum: true, AllStarted: true, Owner: plan.OwnerOurs}, "yyy"},
		"another Broker": {etcdSays{health: coordination.Health{Endpoints: endpoints(nil, nil, nil), Members: members}, owner: "default/main2/1111"},
			plan.Etcd{Asked: true, Quorum: true, AllStarted: true, Owner: plan.OwnerOther, OtherOwner: "default/main2/1111"}, "yyy"},
	} {
		set := plan.Set{Replicas: 3, Pods: []plan.Pod{{Name: "main-coordinator-0", Started: true}, {Name: "main-coordinator-1"}, {Name: "main-coordinator-2"}}}
		got := AskEtcd(t.Context(), &c.etcd, identity, &set)
		if got.Asked != c.want.Asked || got.Quorum != c.want.Quorum || got.AllStarted != c.want.AllStarted || got.Owner != c.want.Owner || got.OtherOwner != c.want.OtherOwner || got.Trouble != c.want.Trouble {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
		serving := ""
		for _, p := range set.Pods {
			serving += map[bool]string{true: "y", false: "n"}[p.Serving]
		}
		if serving != c.serving {
			t.Errorf("%s: serving is %s, want %s", what, serving, c.serving)
		}
	}
	asleep := &etcdSays{}
	if got := AskEtcd(t.Context(), asleep, identity, &plan.Set{Replicas: 3, Pods: []plan.Pod{{Name: "main-coordinator-0"}}}); got.Asked || asleep.asked > 0 {
		t.Error("etcd was asked while no coordinator runs")
	}
}

// oneSecret is a reader with one Secret, or none.
type oneSecret struct {
	client.Reader
	data map[string][]byte
}

func (r oneSecret) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.data == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	into.(*corev1.Secret).Data = r.data
	return nil
}

func TestAuth(t *testing.T) {
	broker := &v1alpha1.Broker{}
	broker.Spec.Auth = &v1alpha1.AuthSpec{SecretRef: &v1alpha1.SecretReference{Name: "login"}}
	b := func(s string) []byte { return []byte(s) }
	for what, c := range map[string]struct {
		data    map[string][]byte
		form    build.AuthForm
		trouble string
	}{
		"none":           {nil, "", "does not exist: make it"},
		"empty":          {map[string][]byte{}, "", "lacks the keys"},
		"half":           {map[string][]byte{"username": b("u")}, "", "lacks the keys"},
		"empty password": {map[string][]byte{"username": b("u"), "password": {}}, "", "lacks the keys"},
		"user":           {map[string][]byte{"username": b("u"), "password": b("p")}, build.AuthUserPassword, ""},
		"token":          {map[string][]byte{"token": b("t")}, build.AuthToken, ""},
		"both":           {map[string][]byte{"username": b("u"), "password": b("p"), "token": b("t")}, "", "leave one of the two"},
	} {
		auth, trouble, err := Auth(t.Context(), oneSecret{data: c.data}, broker, func(...[]byte) string { return "x" })
		if err != nil || auth.Form != c.form || !strings.Contains(trouble, c.trouble) || (trouble == "") != (c.trouble == "") {
			t.Errorf("%s: %+v, %q, %v; want %q, %q", what, auth, trouble, err, c.form, c.trouble)
		}
	}
}

// secrets is a reader with Secrets by name.
type secrets struct {
	client.Reader
	data map[string]map[string][]byte
}

func (r secrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	data, ok := r.data[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	into.(*corev1.Secret).Data = data
	if key.Name == "main-ca" {
		into.SetLabels(map[string]string{build.LabelManagedBy: build.ManagedBy})
	}
	return nil
}

// TestSecretsOfTLSAreJudgedAsBrokersReadThem: a Secret is usable if a broker could start with it,
// and else the message says what to do.
func TestSecretsOfTLSAreJudgedAsBrokersReadThem(t *testing.T) {
	authority, _, err := pki.EnsureAuthority("ca", nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := authority.EnsureLeaf(pki.Leaf{Name: "good"}, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.EnsureLeaf(pki.Leaf{Name: "other"}, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(keys ...any) map[string][]byte {
		data := map[string][]byte{}
		for i := 0; i < len(keys); i += 2 {
			data[keys[i].(string)] = keys[i+1].([]byte)
		}
		return data
	}
	pair := with("tls.crt", good["tls.crt"], "tls.key", good["tls.key"])
	named := v1alpha1.ClientTLSSpec{SecretName: "theirs"}
	issued := v1alpha1.ClientTLSSpec{IssuerRef: &v1alpha1.IssuerReference{Name: "ca"}}
	verified := v1alpha1.ClientTLSSpec{ClientCertificates: &v1alpha1.ClientCertificatesSpec{CASecretRef: v1alpha1.SecretKeyReference{Name: "roots", Key: "pem"}}}
	for what, c := range map[string]struct {
		spec   v1alpha1.ClientTLSSpec
		data   map[string]map[string][]byte
		reason plan.Reason // empty: usable
		says   string
		bundle []byte
	}{
		"the operator's own":             {v1alpha1.ClientTLSSpec{}, nil, "", "", nil},
		"no Secret":                      {named, nil, plan.TLSSecretUnusable, "does not exist: make it with the keys tls.crt and tls.key", nil},
		"no key":                         {named, map[string]map[string][]byte{"theirs": with("tls.crt", good["tls.crt"])}, plan.TLSSecretUnusable, "lacks the key tls.key", nil},
		"another's key":                  {named, map[string]map[string][]byte{"theirs": with("tls.crt", good["tls.crt"], "tls.key", other["tls.key"])}, plan.TLSSecretUnusable, "no certificate with its key", nil},
		"the operator's Secret":          {v1alpha1.ClientTLSSpec{SecretName: "main-ca"}, map[string]map[string][]byte{"main-ca": pair}, plan.TLSSecretUnusable, "one of the operator's own", nil},
		"a pair":                         {named, map[string]map[string][]byte{"theirs": pair}, "", "", nil},
		"a pair with its CA":             {named, map[string]map[string][]byte{"theirs": good}, "", "", good["ca.crt"]},
		"a pair with garbage for its CA": {named, map[string]map[string][]byte{"theirs": with("tls.crt", good["tls.crt"], "tls.key", good["tls.key"], "ca.crt", []byte("x"))}, "", "", nil},
		"not issued":                     {issued, nil, plan.CertificatePending, "kubectl describe certificate.cert-manager.io main-client-tls", nil},
		"issued":                         {issued, map[string]map[string][]byte{"main-client-issued": good}, "", "", good["ca.crt"]},
		"issued without a key":           {issued, map[string]map[string][]byte{"main-client-issued": {}}, plan.TLSSecretUnusable, "Secret main-client-issued of Certificate main-client-tls lacks the key tls.crt", nil},
		"no CAs of clients":              {verified, nil, plan.TLSSecretUnusable, "Secret roots, which spec.tls.clientCertificates.caSecretRef names, does not exist", nil},
		"no key with CAs of clients":     {verified, map[string]map[string][]byte{"roots": good}, plan.TLSSecretUnusable, "lacks the key pem", nil},
		"garbage for CAs of clients":     {verified, map[string]map[string][]byte{"roots": with("pem", []byte("x"))}, plan.TLSSecretUnusable, "no certificate in the key pem", nil},
		"CAs of clients":                 {verified, map[string]map[string][]byte{"roots": with("pem", good["ca.crt"])}, "", "", nil},
	} {
		broker := &v1alpha1.Broker{}
		broker.Name, broker.Spec.TLS = "main", &c.spec
		source, trouble, err := ClientTLS(t.Context(), secrets{data: c.data}, broker)
		bundle := source.Bundle
		seen, ends := source.Certificates, 1
		if ours := c.spec.SecretName == "" && c.spec.IssuerRef == nil && c.spec.ClientCertificates == nil; ours || c.reason != "" {
			ends = 0
		}
		if !seen.Known || len(seen.All) != ends {
			t.Errorf("%s: the certificates are %+v", what, seen)
		}
		if err != nil || trouble.Reason != c.reason || !strings.Contains(trouble.Message, c.says) || (trouble.Message == "") != (c.reason == "") || string(bundle) != string(c.bundle) {
			t.Errorf("%s: %q, %+v, %v; want %q %q", what, bundle, trouble, err, c.reason, c.says)
		}
	}
}

// TestAllCertificatesOfTLSAreJudged: those of the chain that clients see, and the CAs of clients'
// certificates. A CA with a successor is not, as it is left there for a while.
func TestAllCertificatesOfTLSAreJudged(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	serial := int64(0)
	ca := func(name string, hours time.Duration) string {
		serial++
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(hours * time.Hour)}
		b, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return block("CERTIFICATE", b)
	}
	old := ca("clients", -1)
	garbage := block("CERTIFICATE", []byte("garbage")) + block("OTHER", []byte("x"))
	headed := strings.Replace(ca("former", 900), "-----\n", "-----\nName: text\n\n", 1) // brokers pass over it
	between := ca("evil\x1b[2J\n"+strings.Repeat("long", 100), 3)
	data := map[string]map[string][]byte{
		"theirs": {"tls.crt": []byte(ca("leaf", 2) + garbage + between), "tls.key": []byte(block("PRIVATE KEY", der))},
		"roots":  {"pem": []byte("text\n" + old + garbage + headed + old + ca("clients", 4) + ca("former", -1))},
	}
	broker := &v1alpha1.Broker{}
	broker.Name, broker.Spec.TLS = "main", &v1alpha1.ClientTLSSpec{SecretName: "theirs",
		ClientCertificates: &v1alpha1.ClientCertificatesSpec{CASecretRef: v1alpha1.SecretKeyReference{Name: "roots", Key: "pem"}}}
	source, trouble, err := ClientTLS(t.Context(), secrets{data: data}, broker)
	if err != nil || trouble.Message != "" {
		t.Fatal(trouble, err)
	}
	var found []string
	for _, c := range source.Certificates.All {
		found = append(found, fmt.Sprintf("%d %s", c.NotAfter.Sub(now)/time.Hour, c.What))
		if len(c.What) > 300 || strings.ContainsFunc(c.What, unicode.IsControl) || c.Means == "" || c.Renew == "" {
			t.Errorf("%+v", c)
		}
	}
	want := []string{"2 the certificate in Secret theirs, ", `3 the CA "CN=evil`, `4 the CA "CN=clients" in pem of Secret roots, `, `-1 the CA "CN=former" in pem`}
	if len(found) != len(want) {
		t.Fatalf("judged are %q", found)
	}
	for i := range want {
		if !strings.HasPrefix(found[i], want[i]) {
			t.Errorf("judged is %q, want %q", found[i], want[i])
		}
	}
	if many := clientCAs([]byte(strings.Repeat(old, 10_000)), v1alpha1.SecretKeyReference{}); len(many) != 1 {
		t.Errorf("one CA is judged %d times", len(many))
	}
}
