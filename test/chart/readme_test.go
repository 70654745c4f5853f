package chart

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// opaque values are handed to Kubernetes whole; their insides are not the chart's.
var opaque = []string{"resources"}

// TestReadmeNamesEveryValue: the table in the chart's README names every value, and no other.
func TestReadmeNamesEveryValue(t *testing.T) {
	raw, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(raw, &values); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\|").FindAllStringSubmatch(string(readme), -1) {
		named = append(named, row[1])
	}
	slices.Sort(named)
	want := leaves("", values)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("README.md names\n%v\nvalues.yaml has\n%v", named, want)
	}
}

func leaves(prefix string, values map[string]any) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := prefix + key
		if inner, ok := values[key].(map[string]any); ok && len(inner) > 0 && !slices.Contains(opaque, path) {
			all = append(all, leaves(path+".", inner)...)
			continue
		}
		all = append(all, path)
	}
	return all
}
