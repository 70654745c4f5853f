package chart

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../charts/carillon"

// image is what most renderings need to be told, since the chart names no image of its own.
var image = []string{"--set", "image.repository=example.test:5000/carillon"}

func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	binary := os.Getenv("HELM")
	if binary == "" {
		t.Fatal("HELM is not set: it must name a helm binary; `make test` builds one and sets it")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	// Neither the caller's cluster nor their plugins have a say in what is rendered.
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "HELM_NO_PLUGINS=1", "KUBECONFIG=" + home + "/none"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("HELM=%s cannot be run: %v", binary, err)
	}
	return out.String(), errs.String(), err
}

// render returns what `helm template` writes; failing to render fails the test.
func render(t *testing.T, args ...string) string {
	t.Helper()
	all := append([]string{"template", "carillon", chartDir, "--namespace", "messaging", "--kube-version", "1.35.0"}, image...)
	out, errs, err := helm(t, append(all, args...)...)
	if err != nil {
		t.Fatalf("helm template %s: %v\n%s", strings.Join(args, " "), err, errs)
	}
	return out
}

// refused returns why `helm template` refuses; rendering fails the test.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	all := append([]string{"template", "carillon", chartDir, "--namespace", "messaging", "--kube-version", "1.35.0"}, args...)
	out, errs, err := helm(t, all...)
	if err == nil {
		t.Fatalf("helm template %s: rendered, want a refusal:\n%s", strings.Join(args, " "), out)
	}
	return errs
}

type objects []*unstructured.Unstructured

func parse(t *testing.T, manifests string) objects {
	t.Helper()
	var all objects
	for doc := range strings.SplitSeq("\n"+manifests, "\n---") {
		object := map[string]any{}
		// Strict: a key that is there twice is a conflict under server-side apply.
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatalf("rendered YAML: %v\n%s", err, doc)
		}
		if len(object) > 0 {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
	return all
}

func (all objects) ofKind(kind string) objects {
	var some objects
	for _, o := range all {
		if o.GetKind() == kind {
			some = append(some, o)
		}
	}
	return some
}

// names are namespace/name, or the name alone of what has no namespace.
func (all objects) names() []string {
	names := []string{}
	for _, o := range all {
		name := o.GetName()
		if ns := o.GetNamespace(); ns != "" {
			name = ns + "/" + name
		}
		names = append(names, name)
	}
	return names
}

func (all objects) find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %q among %v", kind, name, all.ofKind(kind).names())
	return nil
}

// into decodes strictly: a field that Kubernetes does not know fails the test.
func into[T runtime.Object](t *testing.T, o *unstructured.Unstructured, typed T) T {
	t.Helper()
	raw, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Strict: true})
	if _, _, err := decoder.Decode(raw, nil, typed); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

func deployment(t *testing.T, all objects) *appsv1.Deployment {
	t.Helper()
	return into(t, all.find(t, "Deployment", "carillon-operator"), &appsv1.Deployment{})
}
