package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers"
)

// untilView waits for a reason of Ready with a text in its message.
func (w *world) untilView(name, reason, text string) *v1alpha1.View {
	w.t.Helper()
	v := &v1alpha1.View{}
	eventually.For(w.t, fmt.Sprintf("waiting for View %s to be %s and to say %q", name, reason, text), func(context.Context) error {
		if err := w.get(name, v); err != nil {
			return err
		}
		if err := says(v.Status.Conditions, v.Generation, v.Status.ObservedGeneration, reason); err != nil {
			return err
		}
		if said := message(v.Status.Conditions); !strings.Contains(said, text) {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	return v
}

const hotRooms = `
topicRef: {name: readings}
filter: {subjects: ["sensors.>"], where: json.celsius > -40.0}
by: json.room
window: {tumbling: 1m, time: json.at, lateness: 10s, idle: 30s}
values: {mean: mean(json.celsius), readings: count()}
output: {topicRef: {name: room-means}}
triggers: [{name: hot, when: mean > 30.0, until: mean < 28.0, output: {topicRef: {name: alerts}}}]
`

// newViewWorld returns a world whose broker knows Views, with the Topics of hotRooms but for the
// one for alerts.
func newViewWorld(t *testing.T) (*world, *fleet) {
	w, f, _ := newServingWorld(t)
	f.features = coordination.Features()
	f.start("main-0")
	w.apply("Topic", "readings", `{brokerRef: {name: main}, subjects: ["sensors.>", "readings.>"], shards: 2}`)
	w.apply("Topic", "room-means", `{brokerRef: {name: main}, name: means}`)
	return w, f
}

func TestAViewIsKept(t *testing.T) {
	w, f := newViewWorld(t)
	w.apply("View", "hot-rooms", hotRooms) // before all that it refers to
	w.untilView("hot-rooms", "TopicMissing", "there is no Topic alerts in this namespace, which the output.topicRef of trigger hot names")
	if f.view("hot-rooms") != nil {
		t.Error("it is in etcd, and would lose alerts")
	}
	w.apply("Topic", "alerts", `{brokerRef: {name: main}}`)
	view := w.untilView("hot-rooms", "Served", "kept up to date by broker main-0")
	if len(view.Finalizers) != 0 || len(view.OwnerReferences) != 0 {
		t.Errorf("it has finalizers %v and owners %v: it could hang", view.Finalizers, view.OwnerReferences)
	}
	made := f.view("hot-rooms")
	s := made.Spec
	if made.Owner.UID != string(view.UID) || s.Topic != "readings" || s.Output != "means" || s.Alerts["hot"] != "alerts" || s.DeletionPolicy != coordination.Delete || s.User != "" {
		t.Errorf("in etcd there is %+v of %+v", s, made.Owner)
	}
	c := s.Compute
	if c.By != "json.room" || c.Window.Tumbling != time.Minute || c.Window.Lateness != 10*time.Second || c.Window.Idle != 30*time.Second || c.Window.Time != "json.at" ||
		c.Values["mean"] != "mean(json.celsius)" || c.Filter.Where == "" || c.Filter.Subjects[0] != "sensors.>" || c.Triggers[0].Until != "mean < 28.0" {
		t.Errorf("in etcd there is %+v", c)
	}

	// A change of the spec, and one that can't be: the former one is kept.
	w.patch(&v1alpha1.View{}, "hot-rooms", `{"spec": {"window": {"tumbling": null, "sliding": {"size": "1m", "every": "10s"}}}}`)
	f.until("the new windows", func() bool {
		slide := f.view("hot-rooms").Spec.Compute.Window.Sliding
		return slide != nil && slide.Every == 10*time.Second
	})
	w.untilView("hot-rooms", "Served", "")
	w.patch(&v1alpha1.View{}, "hot-rooms", `{"spec": {"values": {"mean": "average(json.celsius)"}}}`)
	w.untilView("hot-rooms", "Invalid", "values.mean: ")
	w.untilView("hot-rooms", "Invalid", "kept up to date as it was before")
	w.wantEvent("Invalid", "values.mean: ")
	if f.view("hot-rooms").Spec.Compute.Values["mean"] != "mean(json.celsius)" {
		t.Error("a wrong spec is in etcd")
	}
	w.patch(&v1alpha1.View{}, "hot-rooms", `{"spec": {"values": {"mean": "max(json.celsius)"}}}`)
	w.untilView("hot-rooms", "Served", "")

	// What brokers say of it: the sum of both shards.
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 300 * time.Millisecond })
	numbers := func(what string, ok func(*v1alpha1.View) bool) {
		t.Helper()
		eventually.For(t, "waiting for "+what, func(context.Context) error {
			if v := w.untilView("hot-rooms", "Served", ""); !ok(v) {
				return fmt.Errorf("its status is %+v", v.Status)
			}
			return nil
		})
	}
	numbers("the numbers", func(v *v1alpha1.View) bool {
		s := &v.Status
		return s.Topic == "readings" && s.Keys == 6 && s.Late == 2 && s.Failed == 4 && s.Refused == 8 && s.RemovedUnread == 10 &&
			s.Watermark != nil && s.Watermark.UTC().Format(time.RFC3339) == "2026-01-02T03:04:05Z"
	})
	heldUp := func(v *v1alpha1.View) bool {
		return meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionHeldUp)
	}
	f.count("readings", counted{heldUp: "topic means: it is full"})
	numbers("it to be held up", heldUp)
	w.wantEvent("NotKept", "topic means: it is full")
	f.count("readings", counted{})
	numbers("it to go on", func(v *v1alpha1.View) bool { return !heldUp(v) })

	// Converged, it costs no writes, also after a restart of the operator.
	w.quiet()
	before, revision := len(w.written()), f.revision()
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("converged, it cost the writes %v", after[before:])
	}
	if now := f.revision(); now != revision {
		t.Errorf("converged, etcd went from revision %d to %d", revision, now)
	}

	// With its manifest it goes, and what it has written stays.
	w.remove(&v1alpha1.View{}, "hot-rooms")
	f.until("the View to be deleted", func() bool { w.advance(time.Second); return f.view("hot-rooms") == nil })
	w.wantEvent("Deleted", "view hot-rooms was deleted, as its deletionPolicy says")
	if f.topic("means") == nil {
		t.Error("the Topic of its results is gone")
	}
}

// TestAViewIsRetained: its manifest is deleted, and another one of the name takes it over.
func TestAViewIsRetained(t *testing.T) {
	w, f := newViewWorld(t)
	const counting = `{topicRef: {name: readings}, values: {n: count()}, deletionPolicy: Retain}`
	w.apply("View", "count", counting)
	w.untilView("count", "Served", "")
	made := f.view("count")
	w.remove(&v1alpha1.View{}, "count")
	f.until("it to be an orphan", func() bool { w.advance(time.Second); return !f.view("count").Owner.Orphaned.IsZero() })
	w.wantEvent("Orphaned", "view count goes on being served")
	w.apply("View", "count", counting)
	w.untilView("count", "Served", "")
	if again := f.view("count"); again.Made != made.Made || !again.Owner.Orphaned.IsZero() || again.Owner.UID == made.Owner.UID {
		t.Errorf("it is %+v, and was %+v", again, made)
	}
	w.wantEvent("Adopted", "took over view count")
}

// TestAViewThatCannotBeSaysWhy: beside one of a client, in a circle, into a mirror.
func TestAViewThatCannotBeSaysWhy(t *testing.T) {
	w, f := newViewWorld(t)
	w.untilTopic("readings", "Served")
	w.untilTopic("room-means", "Served")
	if _, err := f.keys.CreateView(t.Context(), "taken", coordination.ViewSpec{Topic: "readings", Compute: coordination.ViewCompute{Values: map[string]string{"n": "count()"}}}, clientOwner); err != nil {
		t.Fatal(err)
	}
	w.apply("View", "taken", `{topicRef: {name: readings}, values: {n: count()}}`)
	w.untilView("taken", "Exists", "belongs to client shop")
	if err := f.keys.DeleteView(t.Context(), "taken", 0, clientOwner); err != nil {
		t.Fatal(err)
	}
	w.untilView("taken", "Served", "")

	w.apply("View", "there", `{topicRef: {name: readings}, values: {n: count()}, window: {tumbling: 1m}, output: {topicRef: {name: room-means}}}`)
	w.untilView("there", "Served", "")
	w.apply("View", "back", `{topicRef: {name: room-means}, values: {n: count()}, window: {tumbling: 1m}, output: {topicRef: {name: readings}}}`)
	w.untilView("back", "ViewCycle", "by the Topics means, readings, means")
	w.remove(&v1alpha1.View{}, "there")
	f.until("the first View to be deleted", func() bool { w.advance(time.Second); return f.view("there") == nil })
	w.untilView("back", "Served", "")

	w.apply("Topic", "copy", `{brokerRef: {name: main}, mirror: {topic: readings}, shards: 2}`)
	w.apply("View", "mirrored", `{topicRef: {name: readings}, values: {n: count()}, window: {tumbling: 1m}, output: {topicRef: {name: copy}}}`)
	w.untilView("mirrored", "Invalid", "topic copy is a mirror")
	w.apply("Topic", "narrow", `{brokerRef: {name: main}, subjects: ["narrow.*"]}`)
	w.patch(&v1alpha1.View{}, "mirrored", `{"spec": {"output": {"topicRef": {"name": "narrow"}}}}`)
	w.untilView("mirrored", "Served", "") // without a key, it writes on one subject
	w.patch(&v1alpha1.View{}, "mirrored", `{"spec": {"by": "json.room"}}`)
	w.untilView("mirrored", "Invalid", "output.topicRef: topic narrow does not keep narrow.mirrored.>")
	w.patch(&v1alpha1.Topic{}, "narrow", `{"spec": {"subjects": ["narrow.>"]}}`)
	w.untilView("mirrored", "Served", "")
	w.apply("Topic", "elsewhere", `{brokerRef: {name: other}}`)
	w.patch(&v1alpha1.View{}, "mirrored", `{"spec": {"output": {"topicRef": {"name": "elsewhere"}}}}`)
	w.untilView("mirrored", "Invalid", "name a Topic of the same Broker")
}

// TestAViewWaitsForTheUpdateOfTheBrokers: the shards of one of an earlier version would be missing.
func TestAViewWaitsForTheUpdateOfTheBrokers(t *testing.T) {
	w, f, _ := newServingWorld(t)
	earlier := f.start("main-0")
	w.apply("Topic", "readings", `{brokerRef: {name: main}}`)
	w.untilTopic("readings", "Served") // so the operator knows the broker
	w.apply("View", "later", `{topicRef: {name: readings}, values: {n: count()}}`)
	w.untilView("later", "ViewUnsupported", "broker main-0 is of a version that keeps no Views")
	if f.view("later") != nil {
		t.Error("it is in etcd, and this broker's shards would be missing")
	}
	earlier.stop()
	f.features = coordination.Features()
	f.start("main-0")
	w.untilView("later", "Served", "")
}
