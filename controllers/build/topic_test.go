package build

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestTopicSpec(t *testing.T) {
	for what, c := range map[string]struct {
		manifest string
		want     coordination.TopicSpec
	}{
		"nothing asked for": {`metadata: {name: orders}
spec: {brokerRef: {name: main}}`,
			coordination.TopicSpec{Subjects: []string{"orders", "orders.>"}, Shards: 1}},
		"another name": {`metadata: {name: orders.eu}
spec: {name: ORDERS}`,
			coordination.TopicSpec{Subjects: []string{"ORDERS", "ORDERS.>"}, Shards: 1}},
		"everything": {`metadata: {name: orders}
spec:
  subjects: [a.>, b]
  shards: 4
  partitionBy: Tokens
  partitionTokens: [2, 3]
  replicas: 3
  minInSync: 2
  durability: Replicated
  retention: {age: 168h, bytes: 10Gi, messages: 1000, messagesPerSubject: 7}
  compaction: Latest
  deduplication: {window: 2m}
  uncleanElection: Allowed
  deletionPolicy: DeleteIfEmpty`,
			coordination.TopicSpec{
				Subjects: []string{"a.>", "b"}, Shards: 4, PartitionBy: coordination.ByTokens, PartitionTokens: []int{2, 3}, Replicas: 3, MinInSync: 2,
				Durability: coordination.Replicated, Retention: coordination.Retention{Age: 168 * time.Hour, Bytes: 10 << 30, Messages: 1000}, Stream: coordination.StreamSettings{MaxPerSubject: 7},
				Compaction: coordination.LatestOnly, Deduplication: 2 * time.Minute, UncleanElection: true, DeletionPolicy: coordination.DeleteIfEmpty,
			}},
		"settings of streams": {`metadata: {name: orders}
spec:
  messageTTL: {markerTTL: 1h}
  republish: {destination: "copies.>", headersOnly: true}
  schedules: Allowed
  atomicBatches: Allowed
  sources:
    - {topic: a, startOffset: 7, filter: a.b}
    - {topic: b--1, startTime: "2026-01-31T12:00:00+01:00", transforms: [{source: "x.*", destination: "orders.{{wildcard(1)}}"}, {source: z}]}`,
			coordination.TopicSpec{
				Shards: 1, Stream: coordination.StreamSettings{
					AllowMessageTTL: true, SubjectDeleteMarkerTTL: time.Hour, AllowSchedules: true, AllowAtomic: true, AllowRollup: true,
					Republish: &coordination.Republish{Source: ">", Destination: "copies.>", HeadersOnly: true},
					Sources: []coordination.StreamSource{
						{Name: "a", StartSequence: 7, Filter: "a.b"},
						{Name: "b--1", StartTime: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), Transforms: []coordination.SubjectMapping{{Source: "x.*", Destination: "orders.{{wildcard(1)}}"}, {Source: "z"}}},
					},
				},
			}},
		"a mirror": {"metadata: {name: orders}\nspec:\n  messageTTL: {}\n  mirror: {topic: a}", coordination.TopicSpec{Shards: 1, Stream: coordination.StreamSettings{AllowMessageTTL: true, Mirror: &coordination.StreamSource{Name: "a"}}}},
		"counters": {"metadata: {name: orders}\nspec:\n  counters: Allowed", coordination.TopicSpec{Subjects: []string{"orders", "orders.>"}, Shards: 1, Stream: coordination.StreamSettings{AllowCounter: true}}},
	} {
		topic := &v1alpha1.Topic{}
		if err := yaml.UnmarshalStrict([]byte(c.manifest), topic); err != nil {
			t.Fatal(err)
		}
		if got, err := TopicSpec(topic); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, %v, want\n%+v", what, got, err, c.want)
		}
	}
	endless := &v1alpha1.Topic{Spec: v1alpha1.TopicSpec{Retention: &v1alpha1.RetentionSpec{Age: "99999999999h"}}}
	if _, err := TopicSpec(endless); err == nil {
		t.Error("an age beyond what can be counted is taken")
	}
}

func TestSubscriptionSpec(t *testing.T) {
	manifest := `metadata: {name: billing}
spec:
  topicRef: {name: orders}
  start: {from: Time, time: "2026-01-31T01:00:00+01:00"}
  filter: {subjects: [a.b], where: "true"}
  ack: {wait: 10s, maxDeliver: 5, maxPending: 7, backoff: [1s, 1m30s]}
  delivery:
    push:
      serviceRef: {name: billing, namespace: shop, port: 8080, scheme: https, path: "/events?all"}
      format: CloudEventsStructured
      batch: {maxRecords: 10, maxBytes: 1000, maxWait: 100ms}
      concurrency: 3
      timeout: 5s
      headers: [{name: X-Tenant, value: "9"}, {name: Authorization, valueFrom: {secretKeyRef: {name: token, key: a.b}}}]
      tls: {caSecretRef: {name: ca, key: ca.crt}, serverName: a.org, certificateSecretRef: {name: me}}
  deadLetter: {topicRef: {name: dead}}
  paused: true
  rateLimit: {messagesPerSecond: 100}
  reset: {id: again, from: Offset, offset: 7}
  deletionPolicy: Retain`
	subscription := &v1alpha1.Subscription{}
	if err := yaml.UnmarshalStrict([]byte(manifest), subscription); err != nil {
		t.Fatal(err)
	}
	want := coordination.SubscriptionSpec{
		Start: coordination.Start{From: coordination.FromTime, Time: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)}, Subjects: []string{"a.b"}, Where: "true",
		Ack: coordination.Ack{Wait: 10 * time.Second, MaxDeliver: 5, MaxPending: 7, Backoff: []time.Duration{time.Second, 90 * time.Second}},
		Push: &coordination.Push{
			URL: "https://billing.shop.svc:8080/events?all", Format: coordination.CloudEventsStructured, Concurrency: 3, Timeout: 5 * time.Second,
			Batch:   &coordination.PushBatch{MaxRecords: 10, MaxBytes: 1000, MaxWait: 100 * time.Millisecond},
			Headers: []coordination.PushHeader{{Name: "X-Tenant", Value: "9"}, {Name: "Authorization", File: "token_a.b"}},
			TLS:     &coordination.PushTLS{CA: "ca_ca.crt", ServerName: "a.org", Certificate: "me_tls.crt", Key: "me_tls.key"},
		}, DeadLetter: "dead", DeletionPolicy: coordination.Retain, Rate: 100,
		Reset:    &coordination.Reset{ID: "again", To: coordination.Start{From: coordination.FromOffset, Offset: 7}},
		Consumer: coordination.ConsumerSettings{PauseUntil: noEnd},
	}
	if got, err := SubscriptionSpec(subscription); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want\n%+v", got, err, want)
	}
	offset := int64(17)
	subscription.Spec.Start = v1alpha1.StartSpec{From: v1alpha1.StartOffset, Offset: &offset}
	if got, _ := SubscriptionSpec(subscription); got.Start != (coordination.Start{From: coordination.FromOffset, Offset: 17}) {
		t.Errorf("from an offset it starts %+v", got.Start)
	}
}

// TestWhatASchemaCantTell: settings that no broker could carry out are refused with the way out.
func TestWhatASchemaCantTell(t *testing.T) {
	for spec, want := range map[string]string{
		`republish: {source: "orders.*", destination: "orders.copy"}`:                          "each message would come back for ever",
		`republish: {source: "orders.*", destination: "copies.{{wildcard(2)}}"}`:               "can't be mapped to copies.{{wildcard(2)}}",
		`sources: [{topic: a}, {topic: a}]`:                                                    "source a is there twice",
		`sources: [{topic: a, transforms: [{source: "x.*"}, {source: "x.y"}]}]`:                "its transforms of x.* and x.y overlap",
		`mirror: {topic: a, transforms: [{source: "x.*", destination: "{{wildcard(3)}}"}]}`:    "mirror of a: x.* can't be mapped",
		`sources: [{topic: a, filter: x}, {topic: a, filter: y}]`:                              "",
		"shards: 2\n  sources: [{topic: a, transforms: [{destination: 'x.{{random(3)}}.>'}]}]": "each shard would draw another number",
		"shards: 2\n  mirror: {topic: a--1}":                                                   "a mirror of a shard, a--1, with 2 shards",
	} {
		topic := &v1alpha1.Topic{}
		if err := yaml.Unmarshal([]byte("metadata: {name: orders}\nspec:\n  "+spec), topic); err != nil {
			t.Fatal(err)
		}
		if _, err := TopicSpec(topic); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}

// TestSettingsNeedBrokersThatKnowThem: each setting that earlier versions don't know is looked for.
func TestSettingsNeedBrokersThatKnowThem(t *testing.T) {
	none := coordination.TopicSpec{}
	if needs := Needs(&none); len(needs) != 0 {
		t.Errorf("nothing needs %v", needs)
	}
	all := coordination.TopicSpec{Shards: 2, Stream: coordination.StreamSettings{
		AllowMessageTTL: true, SubjectDeleteMarkerTTL: time.Hour, AllowSchedules: true, AllowCounter: true, AllowAtomic: true,
		Republish: &coordination.Republish{}, Mirror: &coordination.StreamSource{}, Sources: []coordination.StreamSource{{}},
	}}
	got := map[Need]bool{}
	for _, need := range Needs(&all) {
		got[need] = true
	}
	for _, want := range []Need{
		{"messageTTL", coordination.FeatureExpiries}, {"messageTTL.markerTTL", coordination.FeatureRemovals}, {"republish", coordination.FeatureRepublish},
		{"mirror", coordination.FeatureSources}, {"sources", coordination.FeatureSources}, {"schedules", coordination.FeatureSchedules},
		{"schedules", coordination.FeatureRemovals}, {"counters", coordination.FeatureCounters}, {"atomicBatches", coordination.FeatureBatches},
		{"mirror with several shards", coordination.FeatureShardedSources}, {"sources with several shards", coordination.FeatureShardedSources},
	} {
		if !got[want] {
			t.Errorf("%v is not needed", want)
		}
	}
}
