package apply

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestWithinFindsWhatOthersChangedAndLeavesWhatIsTheirs(t *testing.T) {
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
		live string
		same bool
	}{
		"as wanted": {wanted, true},
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
status: {ready: 3}`, true},
		"a changed number":    {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 4, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, false},
		"a changed image":     {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: two, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, false},
		"a further argument":  {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b, c]}], ports: [{port: 4222}], empty: {}}}`, false},
		"a label removed":     {`{metadata: {name: main, labels: {}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, false},
		"a container renamed": {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: other, image: one, args: [a, b]}], ports: [{port: 4222}], empty: {}}}`, false},
		"a further port":      {`{metadata: {name: main, labels: {a: "1"}}, spec: {replicas: 3, containers: [{name: broker, image: one, args: [a, b]}], ports: [{port: 4222}, {port: 1}], empty: {}}}`, false},
	} {
		var a, b map[string]any
		if err := yaml.Unmarshal([]byte(wanted), &a); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(c.live), &b); err != nil {
			t.Fatal(err)
		}
		if within(a, b) != c.same {
			t.Errorf("%s: within is %v, want %v", what, !c.same, c.same)
		}
	}
}
