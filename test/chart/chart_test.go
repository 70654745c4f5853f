package chart

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml from what the chart renders")

func TestLintIsClean(t *testing.T) {
	for _, args := range [][]string{nil, image} {
		out, errs, err := helm(t, append([]string{"lint", "--strict", chartDir}, args...)...)
		if err != nil {
			t.Errorf("helm lint --strict %v: %v\n%s%s", args, err, out, errs)
		}
	}
}

// TestRendering: rendered charts equal the files under testdata, which are reviewed when a template
// changes; -update rewrites them.
func TestRendering(t *testing.T) {
	for name, args := range map[string][]string{
		"default":    nil,
		"namespaces": {"--set", "watchNamespaces={red,blue}"},
		"everywhere": {"--set", "watchNamespaces={*},rbac.aggregate=true"},
		"everything": {"--values", "testdata/everything.values.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, append(args, "--set", "crds.enabled=false")...)
			// Helm 3 and 4 differ in the blank lines before a document, and in nothing else.
			got = strings.TrimSpace(strings.ReplaceAll(got, "\n\n---", "\n---")) + "\n"
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; `go test ./test/chart -update` rewrites it for review\n%s", golden, firstDifference(got, string(want)))
			}
			// What Kubernetes defines must also be what it understands, to the last field.
			for _, o := range parse(t, got) {
				if typed, err := scheme.Scheme.New(o.GroupVersionKind()); err == nil {
					into(t, o, typed)
				}
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one ends before the other"
}

func TestWrongValuesAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ set, says string }{
		{"imagge.tag=x", "imagge"},
		{"image.tagg=x", "tagg"},
		{"image.digest=sha256:abc", "digest"},
		{"image.repository=UPPER", "repository"},
		{"watchNamespaces={Red}", "watchNamespaces"},
		{"watchNamespaces={*,red}", "stands alone"},
		{"replicas=many", "replicas"},
		{"log.level=loud", "level"},
		{"resources.limit.memory=1Gi", "limit"},
		{"crds.kept=true", "kept"},
		{"test.timeout=soon", "timeout"},
		{"test.namespace=elsewhere", "is not watched"},
		{"serviceAccount.create=false", "serviceAccount.name is required"},
		{"metrics.service.enabled=false,metrics.serviceMonitor.enabled=true", "metrics.service.enabled"},
	} {
		t.Run(c.set, func(t *testing.T) {
			if why := refused(t, append(image, "--set", c.set)...); !strings.Contains(why, c.says) {
				t.Errorf("the refusal does not say %q:\n%s", c.says, why)
			}
		})
	}
	t.Run("no image", func(t *testing.T) {
		if why := refused(t); !strings.Contains(why, "image.repository is required") {
			t.Errorf("the refusal does not name image.repository:\n%s", why)
		}
	})
}

func TestImageReference(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct{ set, want string }{
		{"image.tag=v9", "example.test:5000/carillon:v9"},
		{"image.tag=v9,image.digest=" + digest, "example.test:5000/carillon@" + digest},
		{"image.registry=other.test:80,image.repository=a/b,image.tag=v9", "other.test:80/a/b:v9"},
	} {
		all := parse(t, render(t, "--set", c.set))
		operator := deployment(t, all).Spec.Template.Spec.Containers[0]
		if operator.Image != c.want {
			t.Errorf("%s: the operator runs %q, want %q", c.set, operator.Image, c.want)
		}
		if !slices.Contains(operator.Args, "--image="+c.want) {
			t.Errorf("%s: brokers are not told the same image: %q", c.set, operator.Args)
		}
		test := into(t, all.find(t, "Pod", "carillon-test"), &corev1.Pod{})
		if got := test.Spec.Containers[0].Image; got != c.want {
			t.Errorf("%s: the test runs %q, want %q", c.set, got, c.want)
		}
	}
}

func TestByDefaultNothingIsAllowedClusterWide(t *testing.T) {
	for _, args := range [][]string{nil, {"--set", "watchNamespaces={red,blue}"}} {
		all := parse(t, render(t, args...))
		for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
			if some := all.ofKind(kind).names(); len(some) > 0 {
				t.Errorf("%v: %s %v", args, kind, some)
			}
		}
	}
}

func TestRolesStandWhereTheyAreNeededAndGrantNoWildcard(t *testing.T) {
	all := parse(t, render(t, "--set", "watchNamespaces={red,blue}"))
	want := []string{"red/carillon-operator", "blue/carillon-operator", "messaging/carillon-operator-leader", "red/carillon-test"}
	if got := all.ofKind("Role").names(); !slices.Equal(got, want) {
		t.Errorf("Roles %v, want %v", got, want)
	}
	for _, o := range all.ofKind("Role") {
		role := into(t, o, &rbacv1.Role{})
		for _, rule := range role.Rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				if slices.Contains(list, "*") {
					t.Errorf("%s/%s grants a wildcard: %v", role.Namespace, role.Name, rule)
				}
			}
			if role.Namespace == "messaging" && slices.Contains(rule.Resources, "secrets") {
				t.Errorf("%s/%s reads Secrets of a namespace that is not watched", role.Namespace, role.Name)
			}
		}
	}
	for _, o := range all.ofKind("RoleBinding") {
		binding := into(t, o, &rbacv1.RoleBinding{})
		if s := binding.Subjects; len(s) != 1 || s[0].Namespace != "messaging" || !strings.HasPrefix(s[0].Name, "carillon-") {
			t.Errorf("%s/%s binds %v", binding.Namespace, binding.Name, s)
		}
	}
	if args := deployment(t, all).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--watch-namespaces=red,blue") {
		t.Errorf("the operator is told to watch otherwise: %q", args)
	}
}

func TestEverywhereIsAnExplicitChoice(t *testing.T) {
	all := parse(t, render(t, "--set", "watchNamespaces={*}"))
	if got, want := all.ofKind("ClusterRole").names(), []string{"carillon-operator"}; !slices.Equal(got, want) {
		t.Errorf("ClusterRoles %v, want %v", got, want)
	}
	if args := deployment(t, all).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--watch-namespaces=*") {
		t.Errorf("the operator is told to watch otherwise: %q", args)
	}
	one := into(t, all.find(t, "ClusterRole", "carillon-operator"), &rbacv1.ClusterRole{})
	byName := into(t, parse(t, render(t)).find(t, "Role", "carillon-operator"), &rbacv1.Role{})
	if !slices.EqualFunc(one.Rules, byName.Rules, func(a, b rbacv1.PolicyRule) bool { return a.String() == b.String() }) {
		t.Error("the ClusterRole and the Role per namespace grant different things")
	}
}

func TestPodsAreRestricted(t *testing.T) {
	all := parse(t, render(t))
	for name, spec := range map[string]corev1.PodSpec{
		"operator": deployment(t, all).Spec.Template.Spec,
		"test":     into(t, all.find(t, "Pod", "carillon-test"), &corev1.Pod{}).Spec,
	} {
		pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
		if pod == nil || pod.RunAsNonRoot == nil || !*pod.RunAsNonRoot || pod.SeccompProfile == nil || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: pod security context %v", name, pod)
		}
		if container == nil || container.AllowPrivilegeEscalation == nil || *container.AllowPrivilegeEscalation ||
			container.ReadOnlyRootFilesystem == nil || !*container.ReadOnlyRootFilesystem ||
			container.Capabilities == nil || !slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container security context %v", name, container)
		}
		if limits := spec.Containers[0].Resources.Limits; limits.Memory().IsZero() || !limits.Cpu().IsZero() {
			t.Errorf("%s: limits %v, want one for memory and none for CPU", name, limits)
		}
	}
}
