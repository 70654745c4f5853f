package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers"
)

// attributesIn are the keys of attributes of a world's Broker, with their values.
func (w *world) attributesIn(raw *clientv3.Client) map[string]string {
	w.t.Helper()
	prefix := "/carillon/" + w.namespace + "/main/attributes/"
	got, err := raw.Get(w.t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range got.Kvs {
		all[strings.TrimPrefix(string(kv.Key), prefix)] = fmt.Sprint(kv.ModRevision, " ", string(kv.Value))
	}
	return all
}

// TestAManifestDeclaresAttributes: they are set, and changed and deleted with the manifest, also
// after the operator was away. What can't be set is in a condition, and the Topic is served.
func TestAManifestDeclaresAttributes(t *testing.T) {
	w, _, _ := newServingWorld(t, "main-0")
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	until := func(subject, want string) {
		t.Helper()
		eventually.For(t, subject+" has "+want, func(context.Context) error {
			all := w.attributesIn(raw)
			if value, there := all["subjects/"+subject]; there != (want != "") || !strings.Contains(value, want) {
				return fmt.Errorf("there are %v", all)
			}
			return nil
		})
	}
	refused := func(why string) {
		t.Helper()
		eventually.For(t, "the condition says "+why, func(context.Context) error {
			topic := &v1alpha1.Topic{}
			if err := w.get("sensors", topic); err != nil {
				return err
			}
			c := meta.FindStatusCondition(topic.Status.Conditions, v1alpha1.ConditionAttributesRefused)
			if (c != nil) != (why != "") || c != nil && !strings.Contains(c.Message, why) {
				return fmt.Errorf("it is %v", topic.Status.Conditions)
			}
			return says(topic.Status.Conditions, topic.Generation, topic.Status.ObservedGeneration, "Served")
		})
	}
	w.apply("Topic", "sensors", `{brokerRef: {name: main}, attributes: [{subject: sensors.7, set: {room: "410", floor: 4, tags: [a, true]}}, {subject: sensors.8, set: {x: 1}}]}`)
	w.untilTopic("sensors", "Served")
	until("sensors.7", `{"floor":4,"room":"410","tags":["a",true]}`)
	until("sensors.8", `{"x":1}`)

	// Converged, they cost no writes, also after a restart of the operator.
	w.quiet()
	before := w.attributesIn(raw)
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	if after := w.attributesIn(raw); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("converged, %v became %v", before, after)
	}

	w.patch(&v1alpha1.Topic{}, "sensors", `{"spec": {"attributes": [{"subject": "sensors.7", "set": {"room": "411"}}, {"subject": "other.1", "set": {"x": 1}}]}}`)
	refused("subject other.1 is none of this Topic")
	until("sensors.8", `{"x":1}`)
	w.patch(&v1alpha1.Topic{}, "sensors", `{"spec": {"attributes": [{"subject": "sensors.7", "set": {"room": "411"}}]}}`)
	refused("")
	until("sensors.7", `"attributes":{"room":"411"}`)
	until("sensors.8", "")
	w.patch(&v1alpha1.Topic{}, "sensors", `{"spec": {"attributes": null}}`)
	until("sensors.7", "")
	if all := w.attributesIn(raw); len(all) != 0 {
		t.Errorf("left are %v", all)
	}
	w.patch(&v1alpha1.Topic{}, "sensors", `{"spec": {"attributes": [{"subject": "sensors.9", "set": {"room": "412"}}]}}`)
	until("sensors.9", `"attributes":{"room":"412"}`)
	w.remove(&v1alpha1.Topic{}, "sensors")
	until("sensors.9", "")

	for spec, why := range map[string]string{
		`[{subject: "sensors.*", set: {x: 1}}]`: "no wildcards", `[{subject: "$sensors.1", set: {x: 1}}]`: "begin with", `[{subject: a, set: {}}]`: "at least 1",
		`[{subject: a, set: {x: 1}}, {subject: a, set: {x: 1}}]`: "Duplicate",
	} {
		err := k8s.Create(t.Context(), object(t, "Topic", w.namespace, "wrong", `{brokerRef: {name: main}, attributes: `+spec+`}`))
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", spec, err, why)
		}
	}
}
