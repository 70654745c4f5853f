package controllers_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/apiserver"
)

// patience bounds each wait for the operator and the API server. A thousand objects take more than
// a minute on two slow cores beside other tests.
const patience = 4 * time.Minute

// The Kubernetes of all tests of this package, each in a namespace of its own: a real API server,
// etcd, and the controllers for StatefulSets, budgets and garbage. There are no nodes; the tests
// have a fake kubelet.
var (
	environment *envtest.Environment
	apiServer   *rest.Config
	scheme      = runtime.NewScheme()
	k8s         client.Client
)

func TestMain(m *testing.M) {
	os.Exit(runSuite(m))
}

func runSuite(m *testing.M) int {
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	controllers.UseLogger(slog.New(slog.DiscardHandler)) // operators have logs of their own
	assets, err := apiserver.Assets()
	if err != nil {
		return fail("finding the API server", err)
	}
	environment = &envtest.Environment{
		CRDDirectoryPaths:     []string{"../config/crd/bases"},
		ErrorIfCRDPathMissing: true,
	}
	var stopServer func() error
	if apiServer, stopServer, err = apiserver.Start(environment); err != nil {
		return fail("starting the API server", err)
	}
	defer func() {
		if err := stopServer(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}()
	apiServer.QPS, apiServer.Burst = 500, 1000
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fail("registering kinds", err)
		}
	}
	if k8s, err = client.New(apiServer, client.Options{Scheme: scheme}); err != nil {
		return fail("making a client", err)
	}
	stop, err := startControllerManager(assets)
	if err != nil {
		return fail("starting the controller manager", err)
	}
	defer stop()
	return m.Run()
}

// startControllerManager runs Kubernetes' controllers for the operator's objects. The API server's
// binary contains all of Kubernetes, and acts by the name by which it is called.
func startControllerManager(assets string) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "carillon-kcm-")
	if err != nil {
		return nil, err
	}
	admin, err := environment.AddUser(envtest.User{Name: "controllers", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	ports, release, err := testutil.ReservePorts(1)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(assets, "kube-apiserver"))
	cmd.Args = []string{
		"kube-controller-manager", "--kubeconfig=" + path, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(ports[0]), "--cert-dir=" + dir,
		"--controllers=statefulset-controller,garbage-collector-controller,disruption-controller",
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		_ = os.RemoveAll(dir)
		release()
	}, nil
}

// newNamespace creates a namespace for one test.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := k8s.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// eventually waits for the operator and the API server.
var eventually = testutil.Wait{Limit: patience, Every: 50 * time.Millisecond}
