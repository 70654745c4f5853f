package samples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

func TestSamplesAreValid(t *testing.T) {
	decoder := strict(t)
	kinds := map[string]bool{}
	for file, docs := range samples(t) {
		for _, doc := range docs {
			object, kind, err := decoder.Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			kinds[kind.Kind] = true
			if b, ok := object.(*v1alpha1.Broker); ok && b.Spec.Replicas == nil {
				t.Errorf("%s: Broker %s does not say how many replicas it wants", file, b.Name)
			}
		}
	}
	for _, kind := range []string{"Broker", "Topic", "Subscription", "View"} {
		if !kinds[kind] {
			t.Errorf("no sample shows a %s", kind)
		}
	}
}

// TestManifestsOnPagesAreValid: the manifests on the pages are valid, like the samples.
func TestManifestsOnPagesAreValid(t *testing.T) {
	decoder := strict(t)
	manifest := regexp.MustCompile("(?ms)^ *(apiVersion: .*?)^ *(```|EOF)")
	found := 0
	for _, page := range []string{"README.md", "docs/*.md", "charts/carillon/README.md", "charts/carillon/templates/NOTES.txt"} {
		files, err := filepath.Glob("../../" + page)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s (%v)", page, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range manifest.FindAllStringSubmatch(string(raw), -1) {
				found++
				text := strings.ReplaceAll("  "+match[1], "{{ $example }}", "default")
				if !strings.Contains(text, "\n  kind:") { // not indented as in the notes
					text = match[1]
				}
				if _, _, err := decoder.Decode([]byte(text), nil, nil); err != nil {
					t.Errorf("%s: %v\n%s", file, err, text)
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d manifests found on the pages, want those of README.md and of the chart's notes", found)
	}
}

// strict decodes what Kubernetes and Carillon know, to the last field.
func strict(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}

// TestSamplesReferToEachOther: every object that a sample refers to is another sample's.
func TestSamplesReferToEachOther(t *testing.T) {
	made := map[string]string{} // kind/name -> file
	refers := map[string]string{}
	for file, docs := range samples(t) {
		for _, doc := range docs {
			object := unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			id := object.GetKind() + "/" + object.GetName()
			if other, twice := made[id]; twice {
				t.Errorf("%s is made by %s and by %s", id, other, file)
			}
			made[id] = file
			eachReference(object.Object, func(id string) { refers[id] = file })
		}
	}
	for id, file := range refers {
		if _, ok := made[id]; !ok {
			t.Errorf("%s refers to %s, which no sample makes", file, id)
		}
	}
}

// eachReference calls f with the kind and name of everything that is referred to, at any depth.
func eachReference(value any, f func(id string)) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			eachReference(one, f)
		}
	case map[string]any:
		for kind, field := range map[string]string{"Broker": "brokerRef", "Topic": "topicRef"} {
			if name, found, _ := unstructured.NestedString(v, field, "name"); found {
				f(kind + "/" + name)
			}
		}
		for _, one := range v {
			eachReference(one, f)
		}
	}
}

// samples are the YAML documents of config/samples by file.
func samples(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in config/samples (%v)", err)
	}
	all := map[string][]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq("\n"+string(raw), "\n---") {
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if len(object) > 0 {
				all[filepath.Base(file)] = append(all[filepath.Base(file)], doc)
			}
		}
	}
	return all
}
