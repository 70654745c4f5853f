package apply

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestWithinFindsDriftAndIgnoresForeignFields(t *testing.T) {
	const wanted = `
metadata: {name: main, labels: {a: "1"}}
spec:
  replicas: 3
  containers:
  - {name: broker, image: one, args: [a, b]}
  ports: [{port: 4222}]
  empty: {}
`
	for what, c := range map[string]struct {
		live    string
		missing string
	}{
		"as wanted": {wanted, ""},
		"defaults and others' fields": {`
metadata: {name: main, uid: x, labels: {a: "1", theirs: "2"}}
spec:
  replicas: 3
  policy: Default
  containers:
  - {name: sidecar, image: theirs}
  - {name: broker, image: one, args: [a, b], pullPolicy: Always}
  ports: [{port: 4222, protocol: TCP}]
  empty: {}
status: {ready: 3}`, ""},
		"a changed number":    {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 4, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, ".spec.replicas"},
		"a changed image":     {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: two, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, ".spec.containers[broker].image"},
		"a further argument":  {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b, c]}], ports: [{port: 4222}], empty: {}}}`, ".spec.containers[broker].args"},
		"a label removed":     {`{metadata: {name: main, labels: {}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, ".metadata.labels.a"},
		"a container renamed": {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: other, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, ".spec.containers[broker]"},
		"a further port":      {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}, {port: 1}], empty: {}}}`, ".spec.ports"},
	} {
		var a, b map[string]any
		if err := yaml.Unmarshal([]byte(wanted), &a); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(c.live), &b); err != nil {
			t.Fatal(err)
		}
		if path := missing(a, b); path != c.missing {
			t.Errorf("%s: %q is missing, want %q", what, path, c.missing)
		}
	}
}
