package build

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

var update = flag.Bool("update", false, "write what is built into testdata, to be reviewed as a diff")

func clusterOf(t *testing.T, spec string) Cluster {
	t.Helper()
	broker := &v1alpha1.Broker{}
	broker.Namespace, broker.Name, broker.UID = "default", "main", "0e6f3b8c"
	replicas := int32(3)
	broker.Spec = v1alpha1.BrokerSpec{Replicas: &replicas, Profile: v1alpha1.ProfileMedium}
	broker.Spec.Storage.Size = resource.MustParse("10Gi")
	broker.Spec.Coordination.Managed.Replicas = 3
	broker.Spec.Coordination.Managed.Storage.Size = resource.MustParse("2Gi")
	if err := yaml.UnmarshalStrict([]byte(spec), &broker.Spec); err != nil {
		t.Fatal(err)
	}
	return Cluster{
		Broker: broker, Disruptable: true, Image: "registry.example/carillon:1", Profile: broker.Spec.Profile, Replicas: *broker.Spec.Replicas,
		BrokerVolume: broker.Spec.Storage.Size, CoordinatorVolume: broker.Spec.Coordination.Managed.Storage.Size, Trust: "ca01",
	}
}

// TestGolden compares the objects of Brokers with files for review. `go test ./controllers/build
// -update` rewrites them.
func TestGolden(t *testing.T) {
	full := clusterOf(t, `
replicas: 5
profile: large
storage: {size: 100Gi, className: fast}
coordination: {managed: {replicas: 5, storage: {size: 4Gi, className: faster}}}
placement:
  nodeSelector: {disk: nvme}
  tolerations: [{key: dedicated, operator: Equal, value: messaging, effect: NoSchedule}]
  priorityClassName: high
  labels: {team: billing}
  annotations: {example.com/note: kept}
deletionPolicy: Delete
`)
	full.Auth = Auth{Form: AuthUserPassword, Secret: "login", Fingerprint: "5f1c"}
	full.Restart = "2026-11-20T12:00:00Z"
	full.PullSecrets = []string{"registry"}
	token := clusterOf(t, `{replicas: 1, profile: small, coordination: {managed: {replicas: 1}}}`)
	token.Auth = Auth{Form: AuthToken, Secret: "login", Fingerprint: "5f1c"}
	tls := clusterOf(t, `
replicas: 1
coordination: {managed: {replicas: 1}}
tls:
  mode: Required
  handshake: Either
  issuerRef: {name: ca, kind: ClusterIssuer, group: cert-manager.io}
  extraNames: [broker.example.org, 192.0.2.7]
  clientCertificates: {caSecretRef: {name: devices, key: roots.pem}}
websocket: {origins: ["https://example.org", same]}
`)
	users := clusterOf(t, `{replicas: 1, profile: small, coordination: {managed: {replicas: 1}}, auth: {users: {selector: {matchLabels: {app: a}}}}}`)
	users.Auth = Auth{Form: AuthUsers}
	shared := clusterOf(t, `{replicas: 1, profile: small, coordination: {managed: {replicas: 1}}}`)
	shared.SharedRoot = true
	for name, cluster := range map[string]Cluster{"shared": shared, "default": clusterOf(t, `{}`), "full": full, "one": token, "tls": tls, "users": users} {
		var got bytes.Buffer
		objects := append(cluster.Coordinators(), cluster.Brokers()...)
		if cluster.Broker.Spec.TLS != nil {
			objects = append(objects, ClientCA(cluster.Broker, []byte("a CA\n")), ClientCertificate(cluster.Broker, "cluster.local"))
		}
		for _, object := range objects {
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("---\n")
			got.Write(text)
		}
		path := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s differs from what is built; look at `go test ./controllers/build -update && git diff`", path)
		}
	}
}

// TestProfilesFitTheirNodes: a broker, a coordinator and the system's own pods fit on the node of
// their profile.
func TestProfilesFitTheirNodes(t *testing.T) {
	// What nodes of 2, 4, 8 and 16 GiB have left beside the pods that run on each node.
	offers := map[v1alpha1.Profile]share{
		v1alpha1.ProfileSmall: {1000, 470}, v1alpha1.ProfileMedium: {2800, 940},
		v1alpha1.ProfileLarge: {6500, 3800}, v1alpha1.ProfileXLarge: {13500, 7800},
	}
	for profile, offer := range offers {
		n := nodeOf(profile)
		if memory := n.broker.memoryMi + n.coordinator.memoryMi; memory > offer.memoryMi {
			t.Errorf("%s asks for %dMi, more than the %dMi that its node offers", profile, memory, offer.memoryMi)
		}
		if cpu := n.broker.cpuMilli + n.coordinator.cpuMilli; cpu > offer.cpuMilli {
			t.Errorf("%s asks for %dm, more than the %dm that its node offers", profile, cpu, offer.cpuMilli)
		}
	}
}

// podOf returns a broker's pod, as the API server would store it, and its template.
func podOf(t *testing.T, c Cluster) (*corev1.Pod, *corev1.PodTemplateSpec) {
	t.Helper()
	return podOfComponent(t, c, ComponentBroker)
}

func podOfComponent(t *testing.T, c Cluster, component string) (*corev1.Pod, *corev1.PodTemplateSpec) {
	t.Helper()
	set := c.BrokerSet()
	if component == ComponentCoordinator {
		set = c.coordinatorSet()
	}
	data, err := json.Marshal(set.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	template := &corev1.PodTemplateSpec{}
	if err := json.Unmarshal(data, template); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "node.kubernetes.io/not-ready"})
	return pod, template
}

// TestANewCARollsTheCoordinatorsAndNotTheBrokers: etcd reads its certificate again, but not its
// CAs, and a new CA must be trusted everywhere before it signs.
func TestANewCARollsTheCoordinatorsAndNotTheBrokers(t *testing.T) {
	before := clusterOf(t, `{}`)
	after := before
	after.Trust = "ca02"
	for component, want := range map[string]string{ComponentCoordinator: "the CAs that are trusted have changed", ComponentBroker: "its template has changed"} {
		pod, _ := podOfComponent(t, before, component)
		_, template := podOfComponent(t, after, component)
		if got := Differences(pod, template); got != want {
			t.Errorf("%s: %q, want %q", component, got, want)
		}
	}
}

func TestDifferencesAreDescribedInWords(t *testing.T) {
	before := clusterOf(t, `{}`)
	before.Auth = Auth{Form: AuthToken, Secret: "login", Fingerprint: "1"}
	pod, same := podOf(t, before)
	if got := Differences(pod, same); got != "its template has changed" {
		t.Errorf("a pod differs from its own template: %s", got)
	}
	for what, c := range map[string]struct {
		change func(*Cluster)
		want   string
	}{
		"image":      {func(c *Cluster) { c.Image = "registry.example/carillon:2" }, "image registry.example/carillon:1 becomes registry.example/carillon:2"},
		"profile":    {func(c *Cluster) { c.Profile = "large" }, "memory 1536Mi becomes 4Gi, cpu 400m becomes 1200m, profile medium becomes large, environment GOMAXPROCS, GOMEMLIMIT changes"},
		"tls":        {func(c *Cluster) { c.Broker.Spec.TLS = &v1alpha1.ClientTLSSpec{} }, "flag --client-tls is new, flag --client-tls-dir is new"},
		"websocket":  {func(c *Cluster) { c.Broker.Spec.WebSocket = &v1alpha1.WebSocketSpec{} }, "flag --websocket-advertise is new, flag --websocket-listen is new"},
		"restart":    {func(c *Cluster) { c.Restart = "now" }, "a restart was asked for"},
		"auth":       {func(c *Cluster) { c.Auth.Fingerprint = "2" }, "the auth Secret has changed"},
		"users":      {func(c *Cluster) { c.Auth = Auth{Form: AuthUsers} }, "the auth Secret has changed, flag --users-from-etcd is new, environment CARILLON_TOKEN changes"},
		"other auth": {func(c *Cluster) { c.Auth.Form = AuthUserPassword }, "environment CARILLON_PASSWORD, CARILLON_TOKEN, CARILLON_USER changes"},
		"placement": {func(c *Cluster) {
			c.Broker.Spec.Placement = &v1alpha1.PlacementSpec{
				NodeSelector: map[string]string{"a": "b"}, PriorityClassName: "high", Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "a"}},
			}
		}, `placement.nodeSelector changes, priority class "" becomes "high", placement.tolerations change, placement.labels change, placement.annotations change`},
	} {
		after := before
		after.Broker = before.Broker.DeepCopy()
		c.change(&after)
		_, template := podOf(t, after)
		if got := Differences(pod, template); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestLongestNameFits: all names are valid for a Broker with the longest name.
func TestLongestNameFits(t *testing.T) {
	c := clusterOf(t, `{}`)
	c.Broker.Name = strings.Repeat("a", 40)
	names := c.Names()
	// A revision's hash of 10 characters is appended to a StatefulSet's name in a label.
	for _, name := range []string{names.Coordinators() + "-0123456789", names.CoordinatorsService(), names.BrokersService(), names.Coordinators() + "-4"} {
		if len(name) > 63 {
			t.Errorf("%s has %d characters, more than a label or a DNS name takes", name, len(name))
		}
	}
}
