package chart

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// apiServer starts a real API server, without any node, and returns a client, its configuration,
// and a kubeconfig for helm.
func apiServer(t *testing.T) (client.Client, *rest.Config, string) {
	t.Helper()
	env := &envtest.Environment{}
	config, stop, err := apiserver.Start(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return kube, config, kubeconfig
}

// operate runs the operator as the service account of the chart until done, and returns its log,
// which the libraries of Kubernetes write into, too.
func operate(t *testing.T, config *rest.Config, done func() bool) string {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:messaging:carillon-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:messaging", "system:authenticated"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	var log bytes.Buffer // of the operator until it has stopped
	logger := slog.New(slog.NewTextHandler(&log, nil))
	controllers.UseLogger(logger)
	stopped := make(chan error, 1)
	go func() {
		stopped <- controllers.Run(ctx, config, controllers.Options{
			Image: "example.test/carillon", Namespaces: []string{"red", "blue"}, Namespace: "messaging", LeaderElect: true,
			Logger: logger,
		})
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
			continue
		case err := <-stopped:
			t.Fatalf("the operator stopped: %v\n%s", err, log.String())
		case <-ctx.Done():
			<-stopped
			t.Fatalf("not done within %v:\n%s", testutil.Patience, log.String())
		}
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("the operator: %v", err)
	}
	return log.String()
}

// TestARelease: the life of a release against a real API server: what the operator may do, what an
// upgrade changes, and what is left when it is gone.
func TestARelease(t *testing.T) {
	kube, config, kubeconfig := apiServer(t)
	ctx := t.Context()
	for _, name := range []string{"messaging", "other", "red", "blue"} {
		if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		_, errs, err := helm(t, append(args, "--kubeconfig", kubeconfig)...)
		return errs, err
	}
	do := func(args ...string) {
		t.Helper()
		if errs, err := run(args...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, errs)
		}
	}
	install := append([]string{"upgrade", "--install", "carillon", chartDir, "--namespace", "messaging", "--set", "watchNamespaces={red,blue}"}, image...)
	do(append(install, "--set", "image.tag=one")...)

	t.Run("the operator may do what it needs, where it needs it", func(t *testing.T) {
		for _, c := range []struct {
			may                             bool
			verb, group, resource, ns, name string
		}{
			{true, "get", "", "secrets", "red", ""},
			{true, "patch", "apps", "statefulsets", "blue", ""},
			{true, "patch", "apps", "statefulsets/status", "blue", ""},
			{false, "update", "apps", "statefulsets/status", "blue", ""},
			{true, "patch", "carillon.dev", "brokers/status", "red", ""},
			{true, "update", "coordination.k8s.io", "leases", "messaging", "operator.carillon.dev"},
			{false, "update", "coordination.k8s.io", "leases", "messaging", "another"},
			{false, "get", "", "secrets", "messaging", ""},
			{false, "get", "", "secrets", "default", ""},
			{false, "list", "", "secrets", "", ""},
			{false, "list", "carillon.dev", "brokers", "", ""},
			{false, "delete", "carillon.dev", "brokers", "red", ""},
			{false, "create", "rbac.authorization.k8s.io", "roles", "red", ""},
		} {
			resource, sub, _ := strings.Cut(c.resource, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:messaging:carillon-operator",
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: c.verb, Group: c.group, Resource: resource, Subresource: sub, Namespace: c.ns, Name: c.name,
				},
			}}
			// The API server learns of new roles from a watch.
			testutil.Eventually(t, "the operator's rights are these", func() error {
				review := review.DeepCopy()
				if err := kube.Create(ctx, review); err != nil {
					return err
				}
				if review.Status.Allowed != c.may {
					return fmt.Errorf("%s %s.%s %q in namespace %q: allowed %v, want %v", c.verb, c.resource, c.group, c.name, c.ns, review.Status.Allowed, c.may)
				}
				return nil
			})
		}
	})

	broker := &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "red"}}
	// The API server serves new definitions some time after it has taken them.
	testutil.Eventually(t, "the definitions are served", func() error { return kube.Create(ctx, broker) })

	t.Run("the operator makes a Broker's objects with these rights alone", func(t *testing.T) {
		log := operate(t, config, func() bool {
			for object, key := range map[client.Object]string{
				&appsv1.StatefulSet{}: "main-coordinator", &corev1.Service{}: "main-coordinators", &corev1.Secret{}: "main-ca", &corev1.ServiceAccount{}: "main-coordinator",
			} {
				if err := kube.Get(ctx, client.ObjectKey{Namespace: "red", Name: key}, object); err != nil {
					return false
				}
			}
			return kube.Get(ctx, client.ObjectKeyFromObject(broker), broker) == nil && len(broker.Status.Conditions) > 0
		})
		if strings.Contains(log, "forbidden") {
			t.Errorf("something that it needs is forbidden:\n%s", log)
		}
	})

	t.Run("an upgrade changes the operator", func(t *testing.T) {
		do(append(install, "--set", "image.tag=two")...)
		var operator appsv1.Deployment
		if err := kube.Get(ctx, client.ObjectKey{Namespace: "messaging", Name: "carillon-operator"}, &operator); err != nil {
			t.Fatal(err)
		}
		if got := operator.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(got, ":two") {
			t.Errorf("after the upgrade the operator runs %s", got)
		}
	})

	t.Run("a second operator for the same namespace is refused", func(t *testing.T) {
		second := append([]string{"install", "carillon", chartDir, "--namespace", "other", "--set", "watchNamespaces={red},crds.enabled=false"}, image...)
		errs, err := run(second...)
		if err == nil {
			t.Fatal("it was installed")
		}
		if !strings.Contains(errs, "red") || !strings.Contains(errs, "carillon-operator") {
			t.Errorf("the refusal does not say why:\n%s", errs)
		}
	})

	t.Run("uninstalling leaves the definitions and the Brokers, and nothing else", func(t *testing.T) {
		do("uninstall", "carillon", "--namespace", "messaging")
		if err := kube.Get(ctx, client.ObjectKeyFromObject(broker), broker); err != nil {
			t.Errorf("the Broker: %v", err)
		}
		var operator appsv1.Deployment
		if err := kube.Get(ctx, client.ObjectKey{Namespace: "messaging", Name: "carillon-operator"}, &operator); !apierrors.IsNotFound(err) {
			t.Errorf("the operator's Deployment: %v, want it gone", err)
		}
		do(append(install, "--set", "image.tag=three")...)
	})

	t.Run("without keep the definitions go too", func(t *testing.T) {
		do(append(install, "--set", "crds.keep=false")...)
		do("uninstall", "carillon", "--namespace", "messaging")
		testutil.EventuallyTrue(t, "brokers.carillon.dev is gone", func() bool {
			var crd apiextensionsv1.CustomResourceDefinition
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKey{Name: "brokers.carillon.dev"}, &crd))
		})
	})
}
