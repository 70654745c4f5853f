package controllers_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestDeletionPoliciesOfTopics: the policy decides about a Topic whose manifest is deleted, and a
// recreated manifest adopts a retained one.
func TestDeletionPoliciesOfTopics(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	for name, policy := range map[string]string{"kept": "Retain", "dropped": "Delete", "empty": "DeleteIfEmpty", "full": "DeleteIfEmpty", "unsure": "DeleteIfEmpty"} {
		w.apply("Topic", name, fmt.Sprintf(`{brokerRef: {name: main}, deletionPolicy: %s}`, policy))
	}
	ids := map[string]string{}
	for _, name := range []string{"kept", "dropped", "empty", "full", "unsure"} {
		ids[name] = w.untilTopic(name, "Served").Status.ID
	}
	f.count("full", counted{messages: 3})
	f.count("unsure", counted{silent: true})
	for name := range ids {
		w.remove(&v1alpha1.Topic{}, name)
	}
	f.until("the policies", func() bool {
		orphaned := func(name string) bool { t := f.topic(name); return t != nil && !t.Owner.Orphaned.IsZero() }
		return f.topic("dropped") == nil && f.topic("empty") == nil && orphaned("kept") && orphaned("full") && orphaned("unsure")
	})
	w.wantEvent("Deleted", "topic dropped was deleted, as its deletionPolicy says")
	w.wantEvent("Deleted", "topic empty was deleted, since it held no records")
	w.wantEvent("Orphaned", "topic kept goes on being served;")
	w.wantEvent("Orphaned", "topic full goes on being served, since it holds records")
	w.wantEvent("Orphaned", "topic unsure goes on being served, since its broker did not say")

	// A manifest of the same name adopts the Topic; another one reports its owner.
	w.apply("Topic", "other", `{brokerRef: {name: main}, name: kept}`)
	w.untilTopicSays("other", "Exists", "belongs to the manifest "+w.namespace+"/kept, which is gone")
	w.apply("Topic", "kept", `{brokerRef: {name: main}, deletionPolicy: Delete, retention: {age: 1h}}`)
	if id := w.untilTopic("kept", "Served").Status.ID; id != ids["kept"] {
		t.Errorf("Topic kept was made anew: its id was %s and is %s", ids["kept"], id)
	}
	w.wantEvent("Adopted", "took over topic kept")
	if kept := f.topic("kept"); !kept.Owner.Orphaned.IsZero() || kept.Spec.Retention.Age.Hours() != 1 || kept.Spec.DeletionPolicy != coordination.Delete {
		t.Errorf("adopted, the Topic is %+v", kept)
	}
	// When the first one is deleted, the other one gets the name.
	w.remove(&v1alpha1.Topic{}, "kept")
	if id := w.untilTopic("other", "Served").Status.ID; id == ids["kept"] {
		t.Error("the other manifest has got the records of the one that was deleted")
	}
}

// TestDeletionsWhileTheOperatorWasDown: deletions that nobody watched are found by the owners in
// etcd. Recreated manifests keep their Topics.
func TestDeletionsWhileTheOperatorWasDown(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	w.apply("Topic", "dropped", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.apply("Topic", "replaced", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.apply("Topic", "stays", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.apply("Subscription", "reader", `{topicRef: {name: stays}}`)
	w.apply("Subscription", "keeper", `{topicRef: {name: stays}, deletionPolicy: Retain}`)
	for _, name := range []string{"dropped", "replaced", "stays"} {
		w.untilTopic(name, "Served")
	}
	w.untilSubscription("reader", "Served")
	w.untilSubscription("keeper", "Served")
	id := f.topic("replaced").ID

	w.stop()
	w.remove(&v1alpha1.Topic{}, "dropped")
	w.remove(&v1alpha1.Subscription{}, "reader")
	w.remove(&v1alpha1.Subscription{}, "keeper")
	w.remove(&v1alpha1.Topic{}, "replaced")
	w.apply("Topic", "replaced", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.startOperator()

	f.until("what was deleted meanwhile to go", func() bool {
		kept := f.subscription("stays", "keeper")
		return f.topic("dropped") == nil && f.subscription("stays", "reader") == nil && kept != nil && !kept.Owner.Orphaned.IsZero()
	})
	if now := w.untilTopic("replaced", "Served"); now.Status.ID != id || f.topic("replaced").Owner.UID != string(now.UID) {
		t.Errorf("made again, the Topic is %+v; its id was %s", f.topic("replaced"), id)
	}
	if f.topic("stays") == nil {
		t.Error("a Topic went whose manifest is there")
	}
	// A manifest of that name adopts the cursor.
	made := f.subscription("stays", "keeper").Made
	w.apply("Subscription", "keeper", `{topicRef: {name: stays}, deletionPolicy: Retain}`)
	w.untilSubscription("keeper", "Served")
	f.until("the cursor to be adopted", func() bool {
		s := f.subscription("stays", "keeper")
		return s.Owner.Orphaned.IsZero() && s.Made == made
	})
}

// TestNothingIsDeletedWithoutTheBroker: when the Broker is deleted, too, records stay under any
// policy.
func TestNothingIsDeletedWithoutTheBroker(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	id := w.untilTopic("orders", "Served").Status.ID
	w.untilSubscription("billing", "Served")

	w.remove(&v1alpha1.Broker{}, "main")
	w.untilTopicSays("orders", "WaitingForBroker", "there is no Broker main")
	w.untilSubscription("billing", "WaitingForBroker")
	w.remove(&v1alpha1.Subscription{}, "billing")
	w.remove(&v1alpha1.Topic{}, "orders")
	w.quiet()
	if topic := f.topic("orders"); topic == nil || !topic.Owner.Orphaned.IsZero() || f.subscription("orders", "billing") == nil {
		t.Fatalf("with the Broker gone the Topic became %+v", topic)
	}
	// The same manifests applied again restore everything.
	w.apply("Topic", "orders", `{brokerRef: {name: main}, deletionPolicy: Delete}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	eventually.For(t, "making the Broker again", func(ctx context.Context) error {
		return k8s.Create(ctx, object(t, "Broker", w.namespace, "main", oneBroker))
	})
	w.untilSubscription("billing", "Served")
	if now := w.untilTopic("orders", "Served").Status.ID; now != id {
		t.Errorf("the Topic's id was %s and is %s", id, now)
	}
}

// TestManifestsAndClientsKeepApart: changes in etcd by others are reverted to the manifest, and
// Topics of clients are not touched.
func TestManifestsAndClientsKeepApart(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	if _, err := f.keys.CreateTopic(t.Context(), "events", coordination.TopicSpec{Subjects: []string{"events.>"}, Shards: 1}, clientOwner); err != nil {
		t.Fatal(err)
	}
	w.apply("Topic", "events", `{brokerRef: {name: main}}`)
	w.apply("Topic", "zone", `{brokerRef: {name: main}, subjects: ["events.eu.*"]}`)
	w.untilTopicSays("events", "Exists", "belongs to client shop")
	w.untilTopicSays("zone", "SubjectsTaken", "events.eu.* overlaps with events.> of")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	topic := w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	self := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: w.namespace, Name: "orders", UID: string(topic.UID)}
	if err := f.keys.DeleteTopic(t.Context(), "orders", "", self); err != nil {
		t.Fatal(err)
	}
	f.until("what was deleted to be made again", func() bool {
		t := f.topic("orders")
		return t != nil && t.ID != topic.Status.ID && f.subscription("orders", "billing") != nil
	})
	w.untilSubscription("billing", "Served")
	spec := f.topic("orders").Spec
	spec.Retention.Messages = 1
	if _, err := f.keys.UpdateTopic(t.Context(), "orders", coordination.TopicUpdate{By: self, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	f.until("what was changed to be put right", func() bool { return f.topic("orders").Spec.Retention.Messages == 0 })

	if kept := f.topic("events"); kept == nil || kept.Owner.Name != "shop" {
		t.Errorf("the client's Topic became %+v", kept)
	}
	// When the client deletes its Topic, the manifest that waited for the name gets it. The other
	// one is still taken.
	if err := f.keys.DeleteTopic(t.Context(), "events", "", clientOwner); err != nil {
		t.Fatal(err)
	}
	w.untilTopic("events", "Served")
	w.untilTopic("zone", "SubjectsTaken")
}

// TestEveryOrderOfDeletionsEnds: deleting Broker, Topic and Subscription ends in any order, with or
// without the operator. Records stay, and the same manifests applied again adopt them.
func TestEveryOrderOfDeletionsEnds(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	manifests := map[string]struct {
		object     func() client.Object
		name, spec string
	}{
		"Broker":       {func() client.Object { return &v1alpha1.Broker{} }, "main", oneBroker},
		"Topic":        {func() client.Object { return &v1alpha1.Topic{} }, "orders", `{brokerRef: {name: main}}`},
		"Subscription": {func() client.Object { return &v1alpha1.Subscription{} }, "billing", `{topicRef: {name: orders}, deletionPolicy: Retain}`},
	}
	w.apply("Topic", "orders", manifests["Topic"].spec)
	w.apply("Subscription", "billing", manifests["Subscription"].spec)
	id := w.untilTopic("orders", "Served").Status.ID
	w.untilSubscription("billing", "Served")
	made := f.subscription("orders", "billing").Made
	for n, order := range [][]string{
		{"Broker", "Topic", "Subscription"}, {"Broker", "Subscription", "Topic"}, {"Topic", "Broker", "Subscription"},
		{"Topic", "Subscription", "Broker"}, {"Subscription", "Broker", "Topic"}, {"Subscription", "Topic", "Broker"},
	} {
		if n%2 == 1 {
			w.stop()
		}
		for _, kind := range order {
			w.remove(manifests[kind].object(), manifests[kind].name)
		}
		eventually.For(t, fmt.Sprintf("waiting for %v to be gone", order), func(context.Context) error {
			for kind, m := range manifests {
				if err := w.get(m.name, m.object()); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s: %v", kind, err)
				}
			}
			return nil
		})
		if n%2 == 1 {
			w.startOperator()
		}
		for _, kind := range order {
			w.apply(kind, manifests[kind].name, manifests[kind].spec)
		}
		w.untilSubscription("billing", "Served")
		if now := w.untilTopic("orders", "Served").Status.ID; now != id {
			t.Fatalf("after %v the Topic's id was %s and is %s", order, id, now)
		}
		if now := f.subscription("orders", "billing").Made; now != made {
			t.Fatalf("after %v the cursor of revision %d became one of %d", order, made, now)
		}
	}
}
