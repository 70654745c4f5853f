package controllers_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// object parses a manifest, in the test's namespace.
func object(t *testing.T, kind, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatalf("reading %q: %v", spec, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// counts is a View without windows, and windowed one whose window is to follow.
const (
	counts   = "topicRef: {name: readings}\nvalues: {n: count()}\n"
	windowed = counts + "output: {topicRef: {name: room-means}}\n"
)

// TestWrongManifestsAreRefusedWithTheWayOut: the API server refuses these manifests, and says what
// to write instead.
func TestWrongManifestsAreRefusedWithTheWayOut(t *testing.T) {
	namespace := newNamespace(t)
	const topic, subscription = "brokerRef: {name: main}\n", "topicRef: {name: orders}\n"
	for _, c := range []struct {
		kind, name, spec string
		want             string
	}{
		{"Broker", "Main.1", `{}`, "must consist of lower case"},
		{"Broker", "1main", `{}`, "begins with a letter"},
		{"Broker", "main.eu", `{}`, "write for example main"},
		{"Broker", strings.Repeat("a", 41), `{}`, "at most 40 lower-case letters"},
		{"Broker", "main-coordinator", `{}`, "can't end in -brokers, -coordinator or -coordinators"},
		{"Broker", "main-brokers", `{}`, "can't end in -brokers, -coordinator or -coordinators"},
		{"Broker", "b", `replicas: 0`, "greater than or equal to 1"},
		{"Broker", "b", `replicas: 33`, "less than or equal to 32"},
		{"Broker", "b", `profile: huge`, `supported values: "small", "medium", "large", "xlarge"`},
		{"Broker", "b", `storage: {size: 1Mi}`, "storage.size must be at least 1Gi; write for example 20Gi"},
		{"Broker", "b", `storage: {size: 20GB}`, "spec.storage.size"},
		{"Broker", "b", `storage: {size: 5}`, "storage.size must be at least 1Gi"},
		{"Broker", "b", `storage: {className: ""}`, "spec.storage.className"},
		{"Broker", "b", `coordination: {managed: {replicas: 2}}`, "coordination.managed.replicas must be 1, 3 or 5"},
		{"Broker", "b", `coordination: {managed: {storage: {size: 100Mi}}}`, "coordination.managed.storage.size must be at least 1Gi; write for example 2Gi"},
		{"Broker", "b", `coordination: {external: {endpoints: [a]}}`, `unknown field "spec.coordination.external"`},
		{"Broker", "b", `tls: {secret: a}`, `unknown field "spec.tls.secret"`},
		{"Broker", "b", `tls: {mode: Never}`, `supported values: "Required", "Optional"`},
		{"Broker", "b", `tls: {handshake: Last}`, `supported values: "AfterInfo", "First", "Either"`},
		{"Broker", "b", `tls: {secretName: ""}`, "spec.tls.secretName"},
		{"Broker", "b", `tls: {secretName: a, issuerRef: {name: b}}`, "tls.secretName and tls.issuerRef exclude each other"},
		{"Broker", "b", `tls: {secretName: a, extraNames: [b.example.org]}`, "with tls.secretName leave them out"},
		{"Broker", "b", `tls: {issuerRef: {kind: ClusterIssuer}}`, "spec.tls.issuerRef.name: Required value"},
		{"Broker", "b", `tls: {extraNames: ["https://a"]}`, "write for example broker.example.org, *.example.org or 192.0.2.7"},
		{"Broker", "b", `tls: {extraNames: ["a.*.example.org"]}`, "write for example broker.example.org"},
		{"Broker", "b", `tls: {extraNames: [a.example.org, a.example.org]}`, "Duplicate value"},
		{"Broker", "b", `tls: {mode: Optional, handshake: First}`, "a plaintext client waits for INFO; write handshake: Either"},
		{"Broker", "b", `tls: {mode: Optional, clientCertificates: {caSecretRef: {name: a, key: b}}}`, "a plaintext client has no certificate; write mode: Required"},
		{"Broker", "b", `tls: {clientCertificates: {}}`, "spec.tls.clientCertificates.caSecretRef: Required value"},
		{"Broker", "b", `tls: {clientCertificates: {caSecretRef: {name: a}}}`, "spec.tls.clientCertificates.caSecretRef.key: Required value"},
		{"Broker", "b", `websocket: {origins: [example.org]}`, "write for example https://app.example.org"},
		{"Broker", "b", `websocket: {origins: ["https://example.org/app"]}`, "write for example https://app.example.org"},
		{"Broker", "b", `websocket: {origins: ["https://a,https://b"]}`, "write for example https://app.example.org"},
		{"Broker", "b", `websocket: {origins: []}`, "spec.websocket.origins"},
		{"Broker", "b", `websocket: {port: 80}`, `unknown field "spec.websocket.port"`},
		{"Broker", "b", `auth: {}`, "auth takes exactly one of secretRef"},
		{"Broker", "b", `auth: {secretRef: {name: a}, users: {selector: {}}}`, "auth takes exactly one of secretRef"},
		{"Broker", "b", `auth: {users: {}}`, "spec.auth.users.selector: Required value"},
		{"Broker", "b", `auth: {users: {selector: {}, defaultPermissions: {publish: {only: [a]}}}}`, `unknown field "spec.auth.users.defaultPermissions.publish.only"`},
		{"Broker", "b", `auth: {users: {selector: {}, anonymous: ""}}`, "spec.auth.users.anonymous"},
		{"Broker", "b", `auth: {secretRef: {name: ""}}`, "spec.auth.secretRef.name"},
		{"Broker", "b", `auth: {users: [{user: a}]}`, "spec.auth.users"},
		{"Broker", "b", `placement: {labels: {app.kubernetes.io/name: mine}}`, "placement.labels can't set"},
		{"Broker", "b", `placement: {labels: {topology.kubernetes.io/zone: mine}}`, "placement.labels can't set"},
		{"Broker", "b", `placement: {annotations: {carillon.dev/x: mine}}`, "placement.annotations can't set"},
		{"Broker", "b", `update: Never`, `supported values: "Automatic", "OnRequest"`},
		{"Broker", "b", `deletionPolicy: Keep`, `supported values: "Retain", "Delete"`},

		{"Topic", "orders.eu", topic, "set spec.name, or write for example orders"},
		{"Topic", "orders--1", topic, "set spec.name, or write for example orders"},
		{"Topic", "t", `{}`, "spec.brokerRef: Required value"},
		{"Topic", "t", topic + `name: a.b`, "spec.name is made of at most 128 letters"},
		{"Topic", "t", topic + `name: a--7`, "spec.name can't end in two hyphens and a number"},
		{"Topic", "t", topic + `subjects: []`, "spec.subjects"},
		{"Topic", "t", topic + `subjects: ["a b"]`, "a subject is made of tokens"},
		{"Topic", "t", topic + `subjects: ["a..b"]`, "a subject is made of tokens"},
		{"Topic", "t", topic + `subjects: ["a.>.b"]`, "a subject is made of tokens"},
		{"Topic", "t", topic + `subjects: ["a.b*"]`, "a subject is made of tokens"},
		{"Topic", "t", topic + `subjects: [">"]`, "a Topic can't keep >"},
		{"Topic", "t", topic + `subjects: ["$JS.API.>"]`, "a Topic can't keep >"},
		{"Topic", "t", topic + `subjects: [a, a]`, "Duplicate value"},
		{"Topic", "t", topic + `shards: 0`, "greater than or equal to 1"},
		{"Topic", "t", topic + `shards: 1025`, "less than or equal to 1024"},
		{"Topic", "t", topic + `partitionBy: Tokens`, "write partitionBy: Tokens together with partitionTokens"},
		{"Topic", "t", topic + `partitionTokens: [1]`, "write partitionBy: Tokens together with partitionTokens"},
		{"Topic", "t", topic + "partitionBy: Tokens\npartitionTokens: [0]", "greater than or equal to 1"},
		{"Topic", "t", topic + "replicas: 1\nminInSync: 2", "minInSync can't be more than replicas"},
		{"Topic", "t", topic + `replicas: 6`, "less than or equal to 5"},
		{"Topic", "t", topic + `durability: Maybe`, `supported values: "Synced", "Replicated", "Memory"`},
		{"Topic", "t", topic + `retention: {}`, "retention needs age, bytes, messages or messagesPerSubject"},
		{"Topic", "t", topic + `retention: {age: 7d}`, "spec.retention.age"},
		{"Topic", "t", topic + `retention: {age: 10ms}`, "retention.age must be at least 1s; write for example 168h"},
		{"Topic", "t", topic + `retention: {age: 99999999999999h}`, "spec.retention.age"},
		{"Topic", "t", topic + `retention: {bytes: 10}`, "retention.bytes must be at least 1Mi"},
		{"Topic", "t", topic + `retention: {messages: 0}`, "greater than or equal to 1"},
		{"Topic", "t", topic + `retention: {messagesPerSubject: 0}`, "greater than or equal to 1"},
		{"Topic", "t", topic + `messageTTL: {markerTTL: 10ms}`, "messageTTL.markerTTL must be at least 1s; write for example 1h"},
		{"Topic", "t", topic + `republish: {source: a}`, "spec.republish.destination: Required value"},
		{"Topic", "t", topic + "mirror: {topic: a}\nsubjects: [a]", "a mirror has the subjects of its Topic and no other sources"},
		{"Topic", "t", topic + "mirror: {topic: a}\nsources: [{topic: b}]", "a mirror has the subjects of its Topic and no other sources"},
		{"Topic", "t", topic + "mirror: {topic: a, transforms: [{source: a, destination: b}]}\nshards: 2", "a mirror with several shards can't store messages under other subjects"},
		{"Topic", "t", topic + "mirror: {topic: a}\nmessageTTL: {markerTTL: 1h}", "a mirror has no markers of its own"},
		{"Topic", "t", topic + `sources: [{topic: a.b}]`, "topic is the name of a stream"},
		{"Topic", "t", topic + `sources: [{topic: a, startOffset: 3, startTime: "2026-01-01T00:00:00Z"}]`, "a source starts at startTime or at startOffset"},
		{"Topic", "t", topic + `sources: [{topic: a, filter: a, transforms: [{source: a}]}]`, "a source has filter or transforms"},
		{"Topic", "t", topic + "schedules: Allowed\nshards: 2", "schedules and atomicBatches need shards: 1"},
		{"Topic", "t", topic + "atomicBatches: Allowed\nshards: 2", "schedules and atomicBatches need shards: 1"},
		{"Topic", "t", topic + "atomicBatches: Allowed\ndurability: Replicated", "atomicBatches need durability Synced or Memory"},
		{"Topic", "t", topic + "counters: Allowed\nmessageTTL: {}", "a Topic of counters has no messageTTL, schedules or sources"},
		{"Topic", "t", topic + `counters: Sometimes`, `supported values: "Forbidden", "Allowed"`},
		{"Topic", "t", topic + `compaction: Some`, `supported values: "None", "Latest"`},
		{"Topic", "t", topic + `deduplication: {window: 48h}`, "deduplication.window must be between 100ms and 24h"},
		{"Topic", "t", topic + `uncleanElection: Perhaps`, `supported values: "Forbidden", "Allowed"`},
		{"Topic", "t", topic + `deletionPolicy: Keep`, `supported values: "Retain", "DeleteIfEmpty", "Delete"`},

		{"Subscription", "a.b", subscription, "the name of a Subscription has no dots"},
		{"Subscription", "s", `{}`, "spec.topicRef: Required value"},
		{"Subscription", "s", subscription + `start: {from: Yesterday}`, `supported values: "Earliest", "Latest", "Time", "Offset"`},
		{"Subscription", "s", subscription + `start: {from: Time}`, "write start.from: Time together with start.time"},
		{"Subscription", "s", subscription + `start: {offset: 3}`, "write start.from: Offset together with start.offset"},
		{"Subscription", "s", subscription + `filter: {}`, "filter needs subjects or where"},
		{"Subscription", "s", subscription + `filter: {subjects: ["a."]}`, "a subject is made of tokens"},
		{"Subscription", "s", subscription + `ack: {wait: 1ms}`, "ack.wait must be between 100ms and 24h"},
		{"Subscription", "s", subscription + `ack: {maxDeliver: 0}`, "greater than or equal to 1"},
		{"Subscription", "s", subscription + `ack: {maxDeliver: 2, backoff: [1s, 2s]}`, "ack.backoff must have fewer entries"},
		{"Subscription", "s", subscription + `ack: {backoff: [48h]}`, "each entry of ack.backoff must be at most 24h"},
		{"Subscription", "s", subscription + `delivery: {}`, "spec.delivery.push: Required value"},
		{"Broker", "b", `{push: {allowedAddresses: ["10.1.2.3"]}}`, "each entry of push.allowedAddresses must be a network"},
		{"Subscription", "s", subscription + `delivery: {push: {}}`, "delivery.push needs either url or serviceRef"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", serviceRef: {name: b}}}`, "delivery.push needs either url or serviceRef"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://me:secret@a/b"}}`, "delivery.push.url has a user, a password or a fragment"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a/b#c"}}`, "delivery.push.url has a user, a password or a fragment"},
		{"Subscription", "s", subscription + `delivery: {push: {serviceRef: {name: "a.b"}}}`, "serviceRef.name must be the name of a Service"},
		{"Subscription", "s", subscription + `delivery: {push: {serviceRef: {name: a, path: b}}}`, "serviceRef.path must begin with /"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", batch: {maxRecords: 3}}}`, "delivery.push.batch goes with format: CloudEventsStructured only"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", timeout: 10m}}`, "delivery.push.timeout must be between"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", tls: {serverName: b}}}`, "delivery.push.tls is for https only"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", tls: {certificateSecretRef: {name: b}}}}`, "delivery.push.tls is for https only"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "https://a", tls: {certificateSecretRef: {name: "b_c"}}}}`, "certificateSecretRef.name must be the name of a Secret"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "https://a", tls: {certificateSecretRef: {}}}}`, "certificateSecretRef.name: Required value"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "https://a", headers: [{name: b}]}}`, "needs either value or valueFrom"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "https://a", headers: [{name: b, valueFrom: {secretKeyRef: {name: "_", key: c}}}]}}`, "must be the name of a Secret"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", headers: [{name: Host, value: b}]}}`, "is set by the broker itself"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "http://a", headers: [{name: "a b", value: b}]}}`, "has letters, digits, - and _"},
		{"Subscription", "s", subscription + `delivery: {push: {url: "ftp://a/b"}}`, "delivery.push.url must begin with http:// or https://"},
		{"Subscription", "s", subscription + `deadLetter: {topicRef: {name: dead}}`, "deadLetter needs ack.maxDeliver"},
		{"Subscription", "s", subscription + `rateLimit: {messagesPerSecond: 0}`, "greater than or equal to 1"},
		{"Subscription", "s", subscription + `reset: {from: Time}`, "write reset.from: Time together with reset.time"},
		{"Subscription", "s", subscription + `reset: {from: Earliest, offset: 3}`, "write reset.from: Offset together with reset.offset"},
		{"Subscription", "s", subscription + `reset: {id: again}`, "from"},
		{"Subscription", "s", subscription + "ack: {maxDeliver: 3}\ndeadLetter: {topicRef: {name: orders}}", "deadLetter.topicRef can't be the Topic that is read"},
		{"Subscription", "s", subscription + `deletionPolicy: Keep`, `supported values: "Retain", "Delete"`},

		{"View", "a.b", counts, "the name of a View has no dots"},
		{"View", "v", "topicRef: {name: a}", "spec.values"},
		{"View", "v", "topicRef: {name: a}\nvalues: {}", "should have at least 1 properties"},
		{"View", "v", counts + "window: {tumbling: 1m}", "window and output go together"},
		{"View", "v", counts + "output: {topicRef: {name: b}}", "window and output go together"},
		{"View", "v", counts + "window: {tumbling: 1m}\noutput: {topicRef: {name: readings}}", "output.topicRef can't be the Topic that is read"},
		{"View", "v", windowed + "window: {}", "window needs one of tumbling, sliding and session"},
		{"View", "v", windowed + "window: {tumbling: 1m, session: 1m}", "window needs one of tumbling, sliding and session"},
		{"View", "v", windowed + "window: {sliding: {size: 1m, every: 2m}}", "window.sliding.every must be at most window.sliding.size"},
		{"View", "v", windowed + "window: {sliding: {size: 1m, every: 0s}}", "window.sliding.every must be at least 1ms"},
		{"View", "v", windowed + "window: {tumbling: 0s}", "window.tumbling must be between"},
		{"View", "v", windowed + "window: {session: 0s}", "window.session must be between"},
		{"View", "v", windowed + "window: {session: 1m, idle: 0s}", "window.idle must be more than 0s"},
		{"View", "v", windowed + "window: {session: 1m, lateness: -1s}", "spec.window.lateness"},
		{"View", "v", windowed + "window: {session: 1m, lateness: 200000h}", "window.lateness must be at most"},
		{"View", "v", counts + "filter: {}", "filter needs subjects or where"},
		{"View", "v", counts + "filter: {subjects: [\"a..b\"]}", "spec.filter.subjects"},
		{"View", "v", counts + "triggers: []", "should have at least 1 items"},
		{"View", "v", counts + "triggers: [{name: Hot, when: n > 1.0, output: {topicRef: {name: b}}}]", "spec.triggers[0].name"},
		{"View", "v", counts + "triggers: [{name: hot, when: n > 1.0}]", "spec.triggers[0].output"},
		{"View", "v", counts + "triggers: [{name: hot, when: n > 1.0, output: {topicRef: {name: readings}}}]", "of a trigger can't be the Topic that is read"},
		{"View", "v", counts + "triggers: [{name: a, when: b, output: {topicRef: {name: b}}}, {name: a, when: c, output: {topicRef: {name: b}}}]", "Duplicate value"},
		{"View", "v", counts + "deletionPolicy: Keep", `supported values: "Retain", "Delete"`},
	} {
		err := k8s.Create(t.Context(), object(t, c.kind, namespace, c.name, c.spec), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		refused(t, c.kind+" "+c.name+" "+strings.TrimSpace(c.spec), err, c.want)
	}
}

// TestWrongChangesAreRefusedWithTheWayOut: immutable fields can't be changed, and others can.
func TestWrongChangesAreRefusedWithTheWayOut(t *testing.T) {
	namespace := newNamespace(t)
	const topic, subscription = "brokerRef: {name: main}\n", "topicRef: {name: orders}\n"
	for _, c := range []struct {
		kind, before, after string
		want                string // empty: allowed
	}{
		{"Broker", `storage: {size: 20Gi}`, `storage: {size: 10Gi}`, "storage.size can only grow"},
		{"Broker", `storage: {size: 20Gi}`, `storage: {size: 20480Mi}`, ""},
		{"Broker", `storage: {size: 20Gi}`, `storage: {size: 21474836480}`, ""},
		{"Broker", `storage: {size: 20Gi}`, `storage: {size: 1Ti}`, ""},
		{"Broker", `{}`, `storage: {className: fast}`, "storage.className can't change"},
		{"Broker", `storage: {className: fast}`, `storage: {className: slow}`, "storage.className can't change"},
		{"Broker", `storage: {className: fast}`, `{}`, "storage.className can't change"},
		{"Broker", `{}`, `coordination: {managed: {replicas: 5}}`, "coordination.managed.replicas can't change"},
		{"Broker", `{}`, `coordination: {managed: {storage: {size: 1Gi}}}`, "coordination.managed.storage.size can only grow"},
		{"Broker", `{}`, `coordination: {managed: {storage: {className: fast}}}`, "coordination.managed.storage.className can't change"},
		{"Broker", `{}`, "profile: small\nreplicas: 5\nupdate: OnRequest\ndeletionPolicy: Delete", ""},

		{"Broker", `{}`, "tls: {extraNames: [broker.example.org, \"*.example.org\", 192.0.2.7, \"2001:db8::1\", b]}\nwebsocket: {origins: [same, \"https://example.org\", \"http://localhost:8080\"]}", ""},
		{"Broker", `tls: {}`, "tls: {mode: Optional, handshake: Either, secretName: a}\nwebsocket: {}", ""},
		{"Broker", `tls: {secretName: a}`, `tls: {handshake: First, issuerRef: {name: a, kind: ClusterIssuer}, extraNames: [a], clientCertificates: {caSecretRef: {name: a, key: ca.crt}}}`, ""},
		{"Broker", `tls: {secretName: a}`, `{}`, ""},

		{"Topic", topic, `brokerRef: {name: other}`, "brokerRef can't change"},
		{"Topic", topic, topic + `name: other`, "spec.name can't change"},
		{"Topic", topic, topic + `shards: 2`, "shards can't change"},
		{"Topic", topic, topic + "partitionBy: Tokens\npartitionTokens: [1]", "partitionBy and partitionTokens can't change"},
		{"Topic", topic + "partitionBy: Tokens\npartitionTokens: [1]", topic + "partitionBy: Tokens\npartitionTokens: [2]", "partitionBy and partitionTokens can't change"},
		{"Topic", topic, topic + "subjects: [\"orders.*\", \"*.late\", eu.>]\nretention: {age: 1h30m, bytes: 10Gi, messages: 5, messagesPerSubject: 1}\nreplicas: 3\nminInSync: 2", ""},
		{"Topic", topic + `messageTTL: {}`, topic, "messageTTL can't be taken out"},
		{"Topic", topic + `schedules: Allowed`, topic, "schedules can't be forbidden again"},
		{"Topic", topic, topic + `counters: Allowed`, "counters can't change"},
		{"Topic", topic + `counters: Allowed`, topic, "counters can't change"},
		{"Topic", topic, topic + `mirror: {topic: a}`, "mirror can't be added or changed"},
		{"Topic", topic + `mirror: {topic: a}`, topic + `mirror: {topic: b}`, "mirror can't be added or changed"},
		{"Topic", topic + `mirror: {topic: a}`, topic, ""},
		{"Topic", topic + "mirror: {topic: a, transforms: [{source: a}]}\nshards: 2", topic + "shards: 2", ""},
		{"Topic", topic + "shards: 2", topic + "sources: [{topic: a, transforms: [{source: a, destination: b}]}]\nshards: 2", ""},
		{"Topic", topic, topic + "messageTTL: {markerTTL: 1h}\nrepublish: {destination: x}\nsources: [{topic: a}]\nschedules: Allowed\natomicBatches: Allowed", ""},

		{"View", counts, windowed + "window: {sliding: {size: 1m, every: 10s}, time: json.at, lateness: 10s, idle: 30s}\nby: json.room\nfilter: {subjects: [a.>], where: json.a > 1}\ntriggers: [{name: hot, when: n > 1.0, until: n < 1.0, output: {topicRef: {name: b}}}]", ""},
		{"View", counts, "topicRef: {name: other}\nvalues: {n: count()}", ""},

		{"Subscription", subscription, subscription + "paused: true\nrateLimit: {messagesPerSecond: 100}\nreset: {id: again, from: Offset, offset: 5}", ""},
		{"Subscription", subscription, `topicRef: {name: other}`, "topicRef can't change"},
		{"Subscription", subscription, subscription + `start: {from: Earliest}`, "start can't change"},
		{"Subscription", subscription, subscription + "ack: {maxDeliver: 5, backoff: [1s, 5s]}\ndeadLetter: {topicRef: {name: dead}}\nfilter: {where: \"true\"}\ndelivery: {push: {url: \"http://billing.default.svc/events\"}}", ""},
	} {
		what := c.kind + " from " + strings.TrimSpace(c.before) + " to " + strings.TrimSpace(c.after)
		o := object(t, c.kind, namespace, "changed", c.before)
		if err := k8s.Create(t.Context(), o); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		after := object(t, c.kind, namespace, "changed", c.after)
		after.SetResourceVersion(o.GetResourceVersion())
		err := k8s.Update(t.Context(), after)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c.want != "" {
			refused(t, what, err, c.want)
		}
		if err := k8s.Delete(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

// TestManifestWithEveryFieldWrong: a manifest with many invalid fields is refused with all of them
// at once.
func TestManifestWithEveryFieldWrong(t *testing.T) {
	namespace := newNamespace(t)
	err := k8s.Create(t.Context(), object(t, "Broker", namespace, "b", `
replicas: -1
profile: gigantic
storage: {size: a lot, className: ""}
coordination: {managed: {replicas: 4, storage: {size: a little}}}
auth: {secretRef: {name: ""}}
placement: {nodeSelector: [], tolerations: everything, priorityClassName: 7, labels: {a: 1}, annotations: no}
update: Sometimes
deletionPolicy: Burn
`), client.DryRunAll)
	for _, want := range []string{
		"spec.replicas", "spec.profile", "spec.storage.size", "spec.storage.className", "spec.coordination.managed.storage.size",
		"spec.auth.secretRef.name", "spec.placement.nodeSelector", "spec.placement.tolerations", "spec.placement.priorityClassName",
		"spec.placement.labels", "spec.placement.annotations", "spec.update", "spec.deletionPolicy",
	} {
		refused(t, "everything wrong", err, want)
	}
}

// TestDefaults: defaults that depend on nothing else are set, and a new object is not Ready.
func TestDefaults(t *testing.T) {
	namespace := newNamespace(t)
	for _, c := range []struct {
		kind, spec, want string
	}{
		{"Broker", `{}`, `
replicas: 3
profile: medium
storage: {size: 10Gi}
coordination: {managed: {replicas: 3, storage: {size: 2Gi}}}
update: Automatic
deletionPolicy: Retain`},
		{"Broker", `coordination: {managed: {replicas: 1}}`, `
replicas: 3
profile: medium
storage: {size: 10Gi}
coordination: {managed: {replicas: 1, storage: {size: 2Gi}}}
update: Automatic
deletionPolicy: Retain`},
		{"Broker", `tls: {issuerRef: {name: ca}}`, `
replicas: 3
profile: medium
storage: {size: 10Gi}
coordination: {managed: {replicas: 3, storage: {size: 2Gi}}}
tls: {mode: Required, handshake: AfterInfo, issuerRef: {name: ca, kind: Issuer, group: cert-manager.io}}
update: Automatic
deletionPolicy: Retain`},
		{"Topic", `brokerRef: {name: main}`, `
brokerRef: {name: main}
shards: 1
partitionBy: Subject
durability: Synced
compaction: None
schedules: Forbidden
counters: Forbidden
atomicBatches: Forbidden
uncleanElection: Forbidden
deletionPolicy: Retain`},
		{"Subscription", `topicRef: {name: orders}`, `
topicRef: {name: orders}
start: {from: Latest}
ack: {wait: 30s, maxPending: 1000}
deletionPolicy: Delete`},
		{"View", windowed + `window: {tumbling: 1m}`, windowed + `
window: {tumbling: 1m, lateness: 0s}
deletionPolicy: Delete`},
	} {
		o := object(t, c.kind, namespace, "defaults", c.spec)
		if err := k8s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		got, _ := yaml.Marshal(o.Object["spec"])
		want, _ := yaml.Marshal(object(t, c.kind, namespace, "defaults", c.want).Object["spec"])
		if string(got) != string(want) {
			t.Errorf("%s %s became\n%s\nwant\n%s", c.kind, c.spec, got, want)
		}
		if observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); observed != -1 {
			t.Errorf("%s: status.observedGeneration of a new object is %d, want -1: tools would take it for Current", c.kind, observed)
		}
		if err := k8s.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCRDsStaySmall: CRDs fit into the annotation of client-side apply, so that kubectl apply can
// install them.
func TestCRDsStaySmall(t *testing.T) {
	for _, name := range []string{"brokers", "topics", "subscriptions", "views"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := k8s.Get(t.Context(), client.ObjectKey{Name: name + ".carillon.dev"}, crd); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(crd.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if limit := 40 << 10; len(text) > limit {
			t.Errorf("the CRD of %s has %d bytes, more than %d", name, len(text), limit)
		}
	}
}

func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want it refused with %q", what, want)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("%s: refused with\n  %v\nwant %q", what, err, want)
	}
}
