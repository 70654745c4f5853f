package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/internal/testutil/keys"
)

const oneBroker = `{replicas: 1, coordination: {managed: {replicas: 1}}}`

// newServingWorld returns a world with a ready Broker, whose brokers of those names have joined.
func newServingWorld(t *testing.T, brokers ...string) (*world, *fleet, map[string]*member) {
	t.Helper()
	w := newWorld(t)
	w.create(oneBroker)
	w.untilReady()
	f, members := w.newFleet(brokers...)
	return w, f, members
}

var clientOwner = coordination.Owner{Kind: coordination.ClientOwner, Name: "shop"}

// countEvents checks the number of events of a reason about objects of a kind.
func (w *world) countEvents(kind, reason string, want int) error {
	events := &eventsv1.EventList{}
	if err := k8s.List(w.t.Context(), events, client.InNamespace(w.namespace)); err != nil {
		return err
	}
	n := 0
	for _, e := range events.Items {
		if e.Regarding.Kind == kind && e.Reason == reason {
			n++
			if e.Series != nil {
				n += int(e.Series.Count) - 1
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d events %s of a %s, want %d", n, reason, kind, want)
	}
	return nil
}

func (w *world) apply(kind, name, spec string) {
	w.t.Helper()
	if err := k8s.Create(w.t.Context(), object(w.t, kind, w.namespace, name, spec)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(object client.Object, name string) {
	w.t.Helper()
	object.SetNamespace(w.namespace)
	object.SetName(name)
	if err := k8s.Delete(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// untilTopic waits for a reason of Ready, at the present generation.
func (w *world) untilTopic(name, reason string) *v1alpha1.Topic {
	w.t.Helper()
	topic := &v1alpha1.Topic{}
	eventually.For(w.t, "waiting for Topic "+name+" to be "+reason, func(context.Context) error {
		if err := w.get(name, topic); err != nil {
			return err
		}
		return says(topic.Status.Conditions, topic.Generation, topic.Status.ObservedGeneration, reason)
	})
	return topic
}

// untilTopicSays waits for a reason of Ready with a text in its message. Several messages have one
// reason, so an earlier one may be there when only the reason is waited for.
func (w *world) untilTopicSays(name, reason, text string) *v1alpha1.Topic {
	w.t.Helper()
	topic := &v1alpha1.Topic{}
	eventually.For(w.t, fmt.Sprintf("waiting for Topic %s to be %s and to say %q", name, reason, text), func(context.Context) error {
		if err := w.get(name, topic); err != nil {
			return err
		}
		if err := says(topic.Status.Conditions, topic.Generation, topic.Status.ObservedGeneration, reason); err != nil {
			return err
		}
		if said := message(topic.Status.Conditions); !strings.Contains(said, text) {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	return topic
}

func (w *world) untilSubscription(name, reason string) *v1alpha1.Subscription {
	w.t.Helper()
	s := &v1alpha1.Subscription{}
	eventually.For(w.t, "waiting for Subscription "+name+" to be "+reason, func(context.Context) error {
		if err := w.get(name, s); err != nil {
			return err
		}
		return says(s.Status.Conditions, s.Generation, s.Status.ObservedGeneration, reason)
	})
	return s
}

// says checks the reason, that Ready, Reconciling and Stalled agree, and that other conditions are
// there only while they are True.
func says(conditions []metav1.Condition, generation, observed int64, reason string) error {
	ready := meta.FindStatusCondition(conditions, "Ready")
	if observed != generation || ready == nil || ready.Reason != reason || ready.ObservedGeneration != generation {
		return fmt.Errorf("generation %d of %d says %v", observed, generation, conditions)
	}
	isReady, works, stalled := ready.Status == metav1.ConditionTrue, meta.IsStatusConditionTrue(conditions, "Reconciling"), meta.IsStatusConditionTrue(conditions, "Stalled")
	idle := func(c metav1.Condition) bool { return c.Type != "Ready" && c.Status != metav1.ConditionTrue }
	if isReady && (works || stalled) || !isReady && works == stalled || slices.ContainsFunc(conditions, idle) {
		return fmt.Errorf("conditions don't agree: %v", conditions)
	}
	return nil
}

func message(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, "Ready"); ready != nil {
		return ready.Message
	}
	return ""
}

func TestTopicAndSubscriptionAreServed(t *testing.T) {
	w := newWorld(t)
	// Applied in the wrong order, before the objects that they refer to.
	w.apply("Subscription", "billing", `{topicRef: {name: orders}, start: {from: Earliest}, filter: {subjects: ["orders.eu.>"]}, ack: {wait: 10s, maxDeliver: 5, backoff: [1s, 5s]}}`)
	w.untilSubscription("billing", "TopicMissing")
	w.apply("Topic", "orders", `{brokerRef: {name: main}, retention: {age: 168h, bytes: 10Gi}, deduplication: {window: 2m}}`)
	w.untilTopic("orders", "WaitingForBroker")
	w.untilSubscription("billing", "WaitingForBroker")
	w.create(oneBroker)
	w.untilReady()
	// It waits for the Broker first, under the same reason.
	w.untilTopicSays("orders", "WaitingForBroker", "no broker of Broker main has joined")
	f, _ := w.newFleet("main-0")
	topic, subscription := w.untilTopic("orders", "Served"), w.untilSubscription("billing", "Served")

	made := f.topic("orders")
	want := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: w.namespace, Name: "orders", UID: string(topic.UID)}
	if made.Owner != want || strings.Join(made.Spec.Subjects, " ") != "orders orders.>" || made.Spec.Retention.Age.Hours() != 168 || made.Spec.Retention.Bytes != 10<<30 {
		t.Errorf("in etcd there is %+v", made)
	}
	if s := f.subscription("orders", "billing"); s == nil || s.Spec.Start.From != coordination.FromEarliest || s.Spec.Ack.MaxDeliver != 5 || s.Spec.Subjects[0] != "orders.eu.>" {
		t.Errorf("in etcd there is the subscription %+v", s)
	}
	s := topic.Status
	if s.Name != "orders" || s.ID != made.ID || s.Leader == nil || s.Leader.Name != "main-0" || s.InSync != "1/1" || s.Replicas != 1 || s.MinInSync != 1 || len(s.Subjects) != 2 {
		t.Errorf("the status is %+v", s)
	}
	if subscription.Status.Topic != "orders" {
		t.Errorf("the Subscription's status is %+v", subscription.Status)
	}
	for _, object := range []client.Object{topic, subscription} {
		if len(object.GetFinalizers()) != 0 || len(object.GetOwnerReferences()) != 0 {
			t.Errorf("%T has finalizers %v and owners %v: it could hang", object, object.GetFinalizers(), object.GetOwnerReferences())
		}
	}
	w.wantEvent("Served", "served by broker main-0")

	// A change of the spec changes the same Topic.
	w.patch(&v1alpha1.Topic{}, "orders", `{"spec": {"retention": {"age": "24h"}}}`)
	f.until("the new retention", func() bool { return f.topic("orders").Spec.Retention.Age.Hours() == 24 })
	if again := w.untilTopic("orders", "Served"); again.Status.ID != made.ID {
		t.Errorf("the Topic was made again: id %s, then %s", made.ID, again.Status.ID)
	}
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"ack": {"wait": "20s"}}}`)
	f.until("the new wait", func() bool { return f.subscription("orders", "billing").Spec.Ack.Wait.Seconds() == 20 })
	w.untilSubscription("billing", "Served")

	// Converged, they cost no writes, also after a restart of the operator.
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 300 * time.Millisecond })
	eventually.For(t, "waiting for the numbers", func(context.Context) error {
		if s := w.untilSubscription("billing", "Served").Status; s.Pending != 1 {
			return fmt.Errorf("the Subscription's status is %+v", s)
		}
		return nil
	})
	w.quiet()
	before, revision := len(w.written()), f.revision()
	w.restartOperator(func(o *controllers.Options) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("converged, they cost the writes %v", after[before:])
	}
	if now := f.revision(); now != revision {
		t.Errorf("converged, etcd went from revision %d to %d", revision, now)
	}
}

// revision returns the last revision that changed a Topic, a Subscription or a View of the Broker.
func (f *fleet) revision() (last int64) {
	f.t.Helper()
	state := keys.State(f.t, f.keys)
	for topic := range state.Topics() {
		last = max(last, topic.Revision)
		for _, s := range state.Subscriptions(topic.ID) {
			last = max(last, s.Revision)
		}
	}
	for v := range state.Views() {
		last = max(last, v.Revision)
	}
	return last
}
