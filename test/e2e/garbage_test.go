//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// garbage applies invalid manifests. Each must be refused with an error that names the valid form,
// and none may disturb the existing Broker.
func garbage(t *testing.T, e *environment) {
	for name, wrong := range map[string]struct{ manifest, says string }{
		"a name that can't be a pod's":  {broker("9Main", "replicas: 1"), "name"},
		"a name of another's parts":     {broker("main-brokers", "replicas: 1"), "can't end in -brokers"},
		"no brokers":                    {broker("wrong", "replicas: 0"), "greater than or equal to 1"},
		"too many brokers":              {broker("wrong", "replicas: 1000"), "less than or equal to 32"},
		"an unknown profile":            {broker("wrong", "profile: huge"), `"small", "medium", "large", "xlarge"`},
		"an even number of members":     {broker("wrong", "coordination: {managed: {replicas: 2}}"), "must be 1, 3 or 5"},
		"a tiny volume":                 {broker("wrong", "storage: {size: 1Mi}"), "at least 1Gi"},
		"a size that is none":           {broker("wrong", "storage: {size: plenty}"), "storage.size"},
		"a field that is not there":     {broker("wrong", "replicsa: 3"), `unknown field "spec.replicsa"`},
		"a number where a list belongs": {broker("wrong", "placement: {tolerations: 7}"), "tolerations"},
		"an unknown update policy":      {broker("wrong", "update: Sometimes"), `"Automatic", "OnRequest"`},
		"members that change in number": {broker("main", "coordination: {managed: {replicas: 5}}"), "replicas can't change"},
		"a volume that shrinks":         {broker("main", "storage: {size: 1Gi}"), "can only grow"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "manifest.yaml")
			if err := os.WriteFile(file, []byte(wrong.manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := command(t, "kubectl", "-n", namespace, "apply", "-f", file)
			if err == nil {
				t.Fatalf("accepted:\n%s", wrong.manifest)
			}
			if !strings.Contains(err.Error(), wrong.says) {
				t.Errorf("it does not say %q: %v", wrong.says, err)
			}
		})
	}
	upTo(time.Minute).For(t, "the Broker is Ready", e.brokerIsReady)
}

func broker(name, spec string) string {
	return "apiVersion: carillon.dev/v1alpha1\nkind: Broker\nmetadata: {name: " + name + "}\nspec:\n  " + spec + "\n"
}
