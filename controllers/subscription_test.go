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

func TestDeadLettersOfManifests(t *testing.T) {
	w, f, _ := newServingWorld(t)
	f.features = coordination.Features()
	f.start("main-0")
	says := func(name, reason, text string) {
		t.Helper()
		eventually.For(t, "waiting for Subscription "+name+" to say "+text, func(context.Context) error {
			if got := message(w.untilSubscription(name, reason).Status.Conditions); !strings.Contains(got, text) {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	into := func(topic, name, want string) {
		t.Helper()
		f.until(fmt.Sprintf("the dead letters of %s to go into %q", name, want), func() bool {
			s := f.subscription(topic, name)
			return s != nil && s.Spec.DeadLetter == want
		})
	}
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served")
	const reads = `{topicRef: {name: orders}, ack: {maxDeliver: 3}, deadLetter: {topicRef: {name: dead}}}`
	w.apply("Subscription", "billing", reads)
	says("billing", "TopicMissing", "there is no Topic dead in this namespace for dead letters")
	if f.subscription("orders", "billing") != nil {
		t.Error("it is in etcd, and would drop records")
	}
	// Brokers know the Topic by the name that its clients use.
	w.apply("Topic", "dead", `{brokerRef: {name: main}, name: orders-dead}`)
	w.untilSubscription("billing", "Served")
	into("orders", "billing", "orders-dead")

	// Two Subscriptions can't pass dead letters to each other for ever.
	w.apply("Subscription", "second", `{topicRef: {name: dead}, ack: {maxDeliver: 3}, deadLetter: {topicRef: {name: orders}}}`)
	says("second", "DeadLetterCycle", "by the Topics orders-dead, orders, orders-dead")
	w.wantEvent("DeadLetterCycle", "name another Topic")
	w.untilSubscription("billing", "Served")
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"deadLetter": null}}`)
	into("orders", "billing", "")
	w.untilSubscription("second", "Served")
	into("orders-dead", "second", "orders")
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"deadLetter": {"topicRef": {"name": "dead"}}}}`)
	says("billing", "DeadLetterCycle", "served as it was before")
	w.remove(&v1alpha1.Subscription{}, "second")
	w.untilSubscription("billing", "Served")
	into("orders", "billing", "orders-dead")

	// The Topic is deleted: the Subscription goes on, and says what is missing.
	w.remove(&v1alpha1.Topic{}, "dead")
	says("billing", "TopicMissing", "make it, or leave deadLetter out; until then the Subscription is served as it was before")
	into("orders", "billing", "orders-dead")
	w.quiet()
	w.apply("Topic", "dead", `{brokerRef: {name: main}, name: orders-dead}`)
	w.untilSubscription("billing", "Served")

	// The numbers have to be there, since an operator that starts asks for them soon.
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 300 * time.Millisecond })
	eventually.For(t, "waiting for the numbers", func(context.Context) error {
		if s := w.untilSubscription("billing", "Served").Status; s.Pending != 1 {
			return fmt.Errorf("the Subscription's status is %+v", s)
		}
		return nil
	})
	w.quiet()
	before := len(w.written())
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	if after := w.written(); len(after) != before {
		t.Errorf("converged, it cost the writes %v", after[before:])
	}
}

// TestStatusHasActiveMembers: the clients of all brokers, as of the last poll. Without a change
// nothing is written.
func TestStatusHasActiveMembers(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0", "main-1")
	w.restartOperator(func(o *controllers.Options) { o.PollInterval = 300 * time.Millisecond })
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	w.untilTopic("orders", "Served")
	for _, each := range []int64{0, 3, 1} {
		f.count("orders", counted{clients: each})
		eventually.For(t, fmt.Sprintf("waiting for %d members", 2*each), func(context.Context) error {
			s := w.untilSubscription("billing", "Served").Status
			if s.Members == nil || *s.Members != 2*each {
				return fmt.Errorf("its status is %+v", s)
			}
			return nil
		})
		w.quiet()
	}
}

func TestPauseAndResetOfManifests(t *testing.T) {
	w, f, members := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Subscription", "billing", `{topicRef: {name: orders}}`)
	w.untilTopic("orders", "Served")
	w.untilSubscription("billing", "Served")
	paused := func(want bool) {
		t.Helper()
		eventually.For(t, fmt.Sprintf("waiting for a pause: %v", want), func(context.Context) error {
			s := w.untilSubscription("billing", "Served").Status
			if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionPaused) != want || f.subscription("orders", "billing").Spec.Consumer.PauseUntil.IsZero() == want {
				return fmt.Errorf("its status is %+v", s)
			}
			return nil
		})
	}
	paused(false)
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"paused": true}}`)
	paused(true)
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"paused": null}}`)
	paused(false)

	// A broker of an earlier version would ignore a reset.
	const first = `{"spec": {"reset": {"from": "Time", "time": "2026-01-31T00:00:00Z"}}}`
	w.patch(&v1alpha1.Subscription{}, "billing", first)
	w.untilSubscription("billing", "ResetUnsupported")
	if s := f.subscription("orders", "billing"); s.Resets != 0 {
		t.Errorf("in etcd there is %+v", s)
	}
	members["main-0"].stop()
	f.features = coordination.Features()
	f.start("main-0")
	w.untilSubscription("billing", "Served")
	resets := func(want int64) {
		t.Helper()
		w.untilSubscription("billing", "Served")
		w.quiet()
		if s := f.subscription("orders", "billing"); s.Resets != want {
			t.Errorf("it was reset %d times, want %d: %+v", s.Resets, want, s)
		}
	}
	resets(1)
	if to := f.subscription("orders", "billing").ResetTo; to.From != coordination.FromTime || to.Time.Month() != 1 {
		t.Errorf("it was reset to %+v", to)
	}
	w.wantEvent("Reset", "the first record since 2026-01-31T00:00:00Z")
	w.restartOperator(func(*controllers.Options) {})
	resets(1) // once, also for another operator
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"reset": {"id": "again"}}}`)
	f.until("the second reset", func() bool { return f.subscription("orders", "billing").Resets == 2 })
	w.patch(&v1alpha1.Subscription{}, "billing", `{"spec": {"reset": null}}`)
	resets(2)
}
