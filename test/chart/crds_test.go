package chart

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const resourcePolicy = "helm.sh/resource-policy"

// TestCRDsAreThoseOfTheAPI: the chart's CRDs equal those of controller-gen.
func TestCRDsAreThoseOfTheAPI(t *testing.T) {
	made, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(made) == 0 {
		t.Fatalf("no CRDs in config/crd/bases: `make generate` writes them (%v)", err)
	}
	crds := parse(t, render(t)).ofKind("CustomResourceDefinition")
	if len(crds) != len(made) {
		t.Errorf("the chart holds %d CRDs, config/crd/bases %d; `make generate` copies them", len(crds), len(made))
	}
	for _, file := range made {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, &want); err != nil {
			t.Fatal(err)
		}
		got := apiextensionsv1.CustomResourceDefinition{}
		raw, err = crds.find(t, "CustomResourceDefinition", want.Name).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(raw, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("%s in the chart differs from %s; `make generate` copies it", want.Name, file)
		}
	}
}

func TestCRDsStayUnlessToldOtherwise(t *testing.T) {
	for _, c := range []struct {
		set    string
		crds   bool
		policy string
	}{
		{"crds.enabled=true", true, "keep"},
		{"crds.keep=false", true, ""},
		{"crds.enabled=false", false, ""},
	} {
		crds := parse(t, render(t, "--set", c.set)).ofKind("CustomResourceDefinition")
		if (len(crds) > 0) != c.crds {
			t.Errorf("%s: CRDs %v", c.set, crds.names())
		}
		for _, crd := range crds {
			if got := crd.GetAnnotations()[resourcePolicy]; got != c.policy {
				t.Errorf("%s: %s has %s %q, want %q", c.set, crd.GetName(), resourcePolicy, got, c.policy)
			}
			if crd.GetAnnotations()["controller-gen.kubebuilder.io/version"] == "" {
				t.Errorf("%s: %s lost what controller-gen noted on it", c.set, crd.GetName())
			}
		}
	}
}
