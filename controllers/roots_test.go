package controllers_test

import (
	"context"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// The Secrets with certificates.
const (
	coordinatorTLS     = "main-coordinator-tls"
	coordinatorPeerTLS = "main-coordinator-peer-tls"
	brokerTLS          = "main-broker-tls"
	brokerEtcdTLS      = "main-broker-etcd-tls"
)

// TestAnInstallationChangesToSeparateRoots: an installation by an earlier version has one CA for
// everything. It changes to a CA for each kind of connections, while the operator dies again and
// again and a third of its writes fail or have their answers lost. At no time do two running
// processes refuse each other, and one pod of a set is away at most.
func TestAnInstallationChangesToSeparateRoots(t *testing.T) {
	w := newWorld(t)
	m := mountsOf(w)
	w.earlier()
	w.untilReady()
	if phase := w.rootsPhase(); phase != "shared" {
		t.Fatalf("pods of the earlier version have %s roots", phase)
	}
	for _, pod := range slices.Concat(w.pods("coordinator"), w.pods("broker")) {
		if c := pod.Spec.Containers[0]; c.Image != "carillon:zero" || strings.Contains(strings.Join(c.Args, " "), "-tls-dir=/etc/carillon/etcd") || strings.Contains(strings.Join(c.Args, " "), "peer-tls-dir") {
			t.Fatalf("%s, of the earlier version, runs %s %v", pod.Name, c.Image, c.Args)
		}
	}
	m.start()
	watch := w.watchReady()
	rng := rand.New(rand.NewPCG(1, 2))
	w.mu.Lock()
	w.fails = func() failure {
		if n := rng.IntN(6); n < 2 {
			return failure(n + 1)
		}
		return answered
	}
	w.mu.Unlock()
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"update": "Automatic"}}`)
	w.whileOperatorsDie("signing")
	w.whileOperatorsSettle()
	if phase := w.rootsPhase(); phase != "signing" {
		t.Errorf("the former CA went before the certificates can have arrived: %s", phase)
	}
	m.sync()
	w.advance(11 * time.Minute)
	w.whileOperatorsDie("separate")
	w.mu.Lock()
	w.fails = nil
	w.mu.Unlock()
	w.whileOperatorsSettle()
	w.untilReady()
	if low := watch(); low["broker"] < 2 || low["coordinator"] < 2 {
		t.Errorf("at some time only %v were ready; want 2 of each 3 at least", low)
	}
	m.stop()
	m.sync()
	// Whether an event tells of it is left to chance here: the write before it may have failed, and
	// been carried out.
	for _, pod := range m.pods {
		if len(pod.bundles) != 2 {
			t.Errorf("%s has the Secrets of %d kinds of connections", pod.name, len(pod.bundles))
		}
		for name, bundle := range pod.bundles {
			if n := strings.Count(string(bundle), "BEGIN"); n != 1 {
				t.Errorf("%s trusts %d CAs of Secret %s in the end", pod.name, n, name)
			}
		}
	}
	t.Logf("%d connections were checked", m.checks)
	if m.checks == 0 {
		t.Error("no connection was checked")
	}
}

// TestSeparateRootsWaitForTheNextImage: with update OnRequest, pods of an earlier version keep the
// files and flags that it knows, until a restart is asked for.
func TestSeparateRootsWaitForTheNextImage(t *testing.T) {
	w := newWorld(t)
	w.earlier()
	w.untilReady()
	w.remove(&corev1.Secret{}, "main-ca") // even then it is made as the earlier version knows it
	w.quiet()
	if phase := w.rootsPhase(); phase != "shared" {
		t.Errorf("the roots are %s before a restart was asked for", phase)
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"carillon.dev/restart": "now"}}}`)
	eventually.For(t, "waiting for the new CAs to sign", func(context.Context) error {
		if phase := w.rootsPhase(); phase != "signing" {
			return errors.New(phase)
		}
		return nil
	})
}

// TestAnEarlierVersionComesBackInTheMiddle: the new CAs signed already when somebody installed the
// earlier version again. Its operator kept the Secret as it was, and replaced the pods. The
// certificates of these pods stay of the CA that they know, until a restart is asked for. Then the
// change goes on to the end, though somebody else has applied the Secret, too.
func TestAnEarlierVersionComesBackInTheMiddle(t *testing.T) {
	w := newWorld(t)
	w.earlier()
	w.untilReady()
	w.quiet()
	w.stop()
	ca := &corev1.Secret{}
	if err := w.get("main-ca", ca); err != nil {
		t.Fatal(err)
	}
	_, data, err := pki.EnsureRoots("main-ca."+w.namespace, ca.Data, true, time.Now(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca.Data = pki.Advance(data)
	if err := k8s.Update(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	before := slices.Concat(w.uids("coordinator"), w.uids("broker"))
	certificate := func(name string) string {
		secret := &corev1.Secret{}
		if err := w.get(name, secret); err != nil {
			t.Fatal(err)
		}
		return string(secret.Data["tls.crt"])
	}
	former := [2]string{certificate(coordinatorTLS), certificate(brokerTLS)}
	w.startOperator()
	w.untilPhase("announced")
	w.quiet()
	if now := [2]string{certificate(coordinatorTLS), certificate(brokerTLS)}; now != former {
		t.Error("a CA that pods don't know has signed their certificates")
	}
	m := mountsOf(w)
	m.start()
	w.untilReady()
	w.quiet()
	if phase := w.rootsPhase(); phase != "announced" {
		t.Errorf("the roots are %s while pods know one CA", phase)
	}
	if after := slices.Concat(w.uids("coordinator"), w.uids("broker")); !slices.Equal(after, before) {
		t.Error("pods were replaced before a restart was asked for")
	}
	for _, name := range []string{"main", "main-coordinator"} {
		set := &appsv1.StatefulSet{}
		if err := w.get(name, set); err != nil {
			t.Fatal(err)
		}
		if !build.HasSharedRoot(&corev1.Pod{Spec: set.Spec.Template.Spec}) {
			t.Errorf("a pod of %s that is made again with the image before has a folder that it does not know", name)
		}
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"carillon.dev/restart": "now"}}}`)
	w.untilPhase("signing")
	w.whileOperatorsSettle()
	m.sync()
	w.advance(11 * time.Minute)
	w.untilPhase("separate")
	w.whileOperatorsSettle()
	m.stop()
	if phase := w.rootsPhase(); phase != "separate" {
		t.Errorf("the roots are %s in the end", phase)
	}
}

// untilPhase waits for a phase. It triggers passes, which else happen once a minute.
func (w *world) untilPhase(phase string) {
	w.t.Helper()
	eventually.For(w.t, "waiting for the phase "+phase, func(context.Context) error {
		if is := w.rootsPhase(); is != phase {
			w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%d"}}}`, time.Now().UnixNano()))
			return errors.New(is)
		}
		return nil
	})
}

// earlier creates a Broker as an earlier version's operator left it: pods of an image that waits to
// be replaced.
func (w *world) earlier() {
	w.t.Helper()
	w.stop()
	w.create(`{update: OnRequest}`)
	broker := w.broker()
	broker.Status.Image, broker.Status.Profile = "carillon:zero", broker.Spec.Profile
	if err := k8s.Status().Update(w.t.Context(), broker); err != nil {
		w.t.Fatal(err)
	}
	w.startOperator()
}

// rootsPhase returns the phase of the change, by the keys of the Secret.
func (w *world) rootsPhase() string {
	w.t.Helper()
	ca := &corev1.Secret{}
	if err := w.get("main-ca", ca); err != nil {
		return err.Error()
	}
	switch phase := string(ca.Data["phase"]); {
	case phase != "":
		return phase
	}
	return "shared"
}

// whileOperatorsDie waits for a phase, and restarts the operator every few seconds, once it has
// made a pass: on a busy machine its start alone may take as long.
func (w *world) whileOperatorsDie(phase string) {
	w.t.Helper()
	last := time.Now()
	eventually.For(w.t, "waiting for the phase "+phase, func(context.Context) error {
		if is := w.rootsPhase(); is != phase {
			if passes, _ := w.passes(); passes > w.passesBefore && time.Since(last) > 3*time.Second {
				w.restartOperator(func(*controllersOptions) {})
				last = time.Now()
			}
			return errors.New(is)
		}
		return nil
	})
}

// whileOperatorsSettle waits until all pods are ready and of the present template.
func (w *world) whileOperatorsSettle() {
	w.t.Helper()
	w.untilReady()
	w.quiet()
	w.untilReady()
}

// mounts are the files that kubelets have brought into pods. A kubelet brings changed files some
// time later, and etcd reads its CAs at its start only.
type mounts struct {
	w    *world
	stop func()

	mu      sync.Mutex
	rng     *rand.Rand
	secrets map[string]map[string][]byte // as they are now
	pods    map[types.UID]*mountedPod
	checks  int
}

// mountedPod has the files of one pod, by Secret.
type mountedPod struct {
	name, component string
	links, peers    string // the Secret for connections to its like
	etcd            string // the Secret for connections to or of etcd's clients
	files           map[string]map[string][]byte
	bundles         map[string][]byte // that the process has read
}

func mountsOf(w *world) *mounts {
	return &mounts{w: w, rng: rand.New(rand.NewPCG(3, 4)), secrets: map[string]map[string][]byte{}, pods: map[types.UID]*mountedPod{}, stop: func() {}}
}

// start lets kubelets work, and checks all connections, until stop is called. The operator's own
// certificates are checked, too.
func (m *mounts) start() {
	m.step(true)
	open := m.w.options.OpenEtcd
	m.w.restartOperator(func(o *controllersOptions) {
		o.OpenEtcd = func(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
			m.operator(ca, cert)
			return open(cluster, endpoints, ca, cert, key)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			m.step(false)
		}
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-done })
	m.w.t.Cleanup(m.stop)
}

// sync brings the present files into all pods.
func (m *mounts) sync() { m.step(true) }

// step brings files into new pods, and into others now and then, and checks all connections.
func (m *mounts) step(all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[types.UID]*mountedPod{}
	var pods []corev1.Pod
	for _, component := range []string{"coordinator", "broker"} {
		list := &corev1.PodList{}
		if err := k8s.List(context.Background(), list, client.InNamespace(m.w.namespace), client.MatchingLabels{"app.kubernetes.io/component": component}); err != nil {
			m.w.t.Error(err)
			return
		}
		pods = append(pods, list.Items...)
	}
	for _, name := range []string{coordinatorTLS, coordinatorPeerTLS, brokerTLS, brokerEtcdTLS} {
		secret := &corev1.Secret{}
		err := k8s.Get(context.Background(), client.ObjectKey{Namespace: m.w.namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			m.w.t.Error(err)
			return
		}
		if !apierrors.IsNotFound(err) {
			m.secrets[name] = secret.Data
		}
	}
	for i := range pods {
		pod := &pods[i]
		p, known := m.pods[pod.UID]
		if !known {
			p = newMountedPod(pod)
		}
		there[pod.UID] = p
		if !known || all || m.rng.IntN(8) == 0 {
			for name := range p.files {
				p.files[name] = m.secrets[name]
				if !known || p.component == "broker" {
					p.bundles[name] = m.secrets[name]["ca.crt"]
				}
			}
		}
	}
	m.pods = there
	for _, a := range m.pods {
		for _, b := range m.pods {
			m.connect(a, b)
		}
	}
}

func newMountedPod(pod *corev1.Pod) *mountedPod {
	p := &mountedPod{name: pod.Name, component: pod.Labels["app.kubernetes.io/component"], files: map[string]map[string][]byte{}, bundles: map[string][]byte{}}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && strings.HasSuffix(v.Secret.SecretName, "-tls") {
			p.files[v.Secret.SecretName] = nil
		}
	}
	first := func(names ...string) string {
		return names[slices.IndexFunc(names, func(name string) bool { _, ok := p.files[name]; return ok })]
	}
	if p.component == "coordinator" {
		p.peers, p.etcd = first(coordinatorPeerTLS, coordinatorTLS), coordinatorTLS
	} else {
		p.links, p.etcd = brokerTLS, first(brokerEtcdTLS, brokerTLS)
	}
	return p
}

// connect checks all connections from a to b.
func (m *mounts) connect(a, b *mountedPod) {
	check := func(from, to string) {
		m.verify(a.name, a.files[from]["tls.crt"], b.name, b.bundles[to])
		m.verify(b.name, b.files[to]["tls.crt"], a.name, a.bundles[from])
	}
	switch {
	case a.peers != "" && b.peers != "":
		check(a.peers, b.peers)
	case a.links != "" && b.links != "":
		check(a.links, b.links)
	default:
		check(a.etcd, b.etcd)
	}
}

// operator checks the operator's connections to the coordinators.
func (m *mounts) operator(ca, cert []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if p.component == "coordinator" {
			m.verify("the operator", cert, p.name, p.bundles[p.etcd])
			m.verify(p.name, p.files[p.etcd]["tls.crt"], "the operator", ca)
		}
	}
}

func (m *mounts) verify(who string, cert []byte, by string, bundle []byte) {
	m.checks++
	err := func() error {
		block, _ := pem.Decode(cert)
		if block == nil {
			return errors.New("there is no certificate")
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		_, err = parsed.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: m.w.options.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}()
	if err != nil && !m.w.t.Failed() {
		m.w.t.Errorf("%s refuses %s in the phase %s: %v", by, who, m.w.rootsPhase(), fmt.Sprint(err))
	}
}
