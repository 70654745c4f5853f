package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// world is a namespace with an operator that serves it, as the user and with the rights that
// config/rbac gives it, and a fake kubelet.
type world struct {
	t         *testing.T
	namespace string
	kube      *rest.Config
	options   controllers.Options
	stop      func()
	// passesBefore is the number of passes of former operators of this process.
	passesBefore int

	mu     sync.Mutex
	writes []string // write requests of the operator, without leader election
	under  int      // how many of them are not answered yet
	asked  int      // all requests of the operator, without leader election
	now    time.Duration
	broken func(*corev1.Pod) bool // pods that crash
	noEtcd bool
	access accessOfTest
	fails  func() failure // of each write of the operator; nil: none
}

// failure is what becomes of a request.
type failure int

const (
	answered failure = iota
	lost             // it does not arrive
	unheard          // its answer is lost
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, namespace: newNamespace(t), broken: func(*corev1.Pod) bool { return false }}
	w.kube = w.operatorUser()
	w.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{w, next} })
	w.options = controllers.Options{
		Image:       "carillon:one",
		Namespaces:  []string{w.namespace},
		Namespace:   w.namespace,
		LeaderElect: true,
		Logger:      slog.New(slog.NewTextHandler(logOf(t), &slog.HandlerOptions{Level: slog.LevelInfo})),
		OpenEtcd:    w.openEtcd,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(w.now)
		},
	}
	w.startAgent()
	w.startOperator()
	return w
}

// testLog is a test's log while the test runs: a goroutine of controller-runtime logs after its
// manager has ended.
type testLog struct {
	mu sync.Mutex
	to io.Writer
}

func logOf(t *testing.T) *testLog {
	l := &testLog{to: t.Output()}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to = io.Discard
	})
	return l
}

func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(line)
}

func (w *world) startOperator() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w.passesBefore, _ = w.passes()
	go func() {
		for {
			err := controllers.Run(ctx, w.kube, w.options)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "leader election lost") {
				done <- err
				return
			}
			// An API server that doesn't answer for ten seconds ends the operator. Kubernetes
			// starts it again.
			w.options.Logger.Info("The operator ended and is started again", "error", err)
		}
	}()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the operator ended with: %v", err)
		}
	}
	w.t.Cleanup(w.stop)
}

// restartOperator restarts the operator with other options.
func (w *world) restartOperator(change func(*controllers.Options)) {
	w.stop()
	change(&w.options)
	w.startOperator()
}

// operatorUser returns a user of the API with the permissions of config/rbac/role.yaml in the
// namespace.
func (w *world) operatorUser() *rest.Config {
	name := "operator-" + w.namespace
	text, err := os.ReadFile("../config/rbac/role.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "---\n") {
		role := &rbacv1.Role{}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			w.t.Fatal(err)
		}
		if role.Name == "" {
			continue
		}
		role.Namespace = w.namespace
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}
		for _, object := range []client.Object{role, binding} {
			if err := k8s.Create(w.t.Context(), object); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	user, err := environment.AddUser(envtest.User{Name: name}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return rest.CopyConfig(user.Config())
}

// counter counts the operator's requests.
type counter struct {
	world *world
	next  http.RoundTripper
}

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	// Leader election writes the lease, and an event of the old kind.
	election := strings.Contains(request.URL.Path, "/leases") || strings.HasPrefix(request.URL.Path, "/api/v1/") && strings.HasSuffix(request.URL.Path, "/events")
	if election {
		return c.next.RoundTrip(request)
	}
	c.world.mu.Lock()
	c.world.asked++
	if request.Method == http.MethodGet {
		c.world.mu.Unlock()
		return c.next.RoundTrip(request)
	}
	what := request.Method + " " + request.URL.Path
	at := len(c.world.writes)
	c.world.writes = append(c.world.writes, what+" under way")
	c.world.under++
	fails := answered
	if c.world.fails != nil {
		fails = c.world.fails()
	}
	c.world.mu.Unlock()
	response, err := (*http.Response)(nil), errors.New("the request is lost")
	if fails != lost {
		response, err = c.next.RoundTrip(request)
	}
	if fails == unheard && err == nil {
		_ = response.Body.Close()
		response, err = nil, errors.New("the answer is lost")
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.under--
	if c.world.writes[at] = what + " failed"; err == nil {
		c.world.writes[at] = what + " " + response.Status
	}
	return response, err
}

// counted returns how many writes the operator began, and number of unanswered ones.
func (w *world) counted() (writes, under int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes), w.under
}

// requests returns how many requests the operator has made of the API server.
func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func (w *world) written() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.writes...)
}

func (w *world) advance(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += by
}

// etcdOfTest is the test's own etcd, which answers as if each coordinator were a member.
type etcdOfTest struct {
	*coordination.Client
	world     *world
	endpoints []string
	user      string // in the certificate
}

func (w *world) openEtcd(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
	tls, err := coordination.ParseTLS(ca, cert, key) // the test's etcd requires none
	if err != nil {
		return nil, err
	}
	url := environment.ControlPlane.Etcd.URL.String()
	etcd, err := coordination.Open(coordination.Config{Endpoints: []string{url}, Cluster: cluster})
	if err != nil {
		return nil, err
	}
	return &etcdOfTest{etcd, w, endpoints, tls.Name()}, nil
}

func (e *etcdOfTest) Health(ctx context.Context) coordination.Health {
	health := e.Client.Health(ctx)
	if len(health.Endpoints) != 1 || len(health.Members) != 1 {
		return health
	}
	one, member := health.Endpoints[0], health.Members[0]
	health.Endpoints, health.Members = nil, nil
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	if e.world.noEtcd {
		health.Err = fmt.Errorf("list coordinators: etcd is away")
		one.Err = health.Err
	}
	for range e.endpoints {
		health.Endpoints = append(health.Endpoints, one)
		health.Members = append(health.Members, member)
	}
	return health
}

// startAgent runs a fake kubelet: pods start, become ready, or crash. A deleted pod is gone at
// once, since it is on no node.
func (w *world) startAgent() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			w.visitPods(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

func (w *world) visitPods(ctx context.Context) {
	pods := &corev1.PodList{}
	if err := k8s.List(ctx, pods, client.InNamespace(w.namespace)); err != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		w.mu.Lock()
		broken := w.broken(pod)
		w.mu.Unlock()
		if len(pod.Status.ContainerStatuses) > 0 && podReady(pod) == !broken {
			continue
		}
		container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Started: new(bool)}
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
		if broken {
			container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}
			container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no luck"}
		} else {
			*container.Started, container.Ready = true, true
			container.State.Running = &corev1.ContainerStateRunning{}
			ready.Status = corev1.ConditionTrue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{ready}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
		_ = k8s.Status().Update(ctx, pod) // a failure is retried in the next round
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
