package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers"
	"github.com/carillon-mq/carillon/internal/testutil/keys"
)

// newReplicatedWorld returns a world with a Broker whose brokers are ready and have joined.
func newReplicatedWorld(t *testing.T, brokers int, more string) (*world, *fleet, map[string]*member) {
	t.Helper()
	w := newWorld(t)
	w.create(fmt.Sprintf(`{replicas: %d, coordination: {managed: {replicas: 1}}%s}`, brokers, more))
	w.untilReady()
	var names []string
	for i := range brokers {
		names = append(names, fmt.Sprintf("main-%d", i))
	}
	f, members := w.newFleet(names...)
	return w, f, members
}

// leaveWithPods ends the registrations of brokers whose pods are gone.
func (w *world) leaveWithPods(members map[string]*member) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			pods := w.podNames(ctx)
			for name, m := range members {
				if len(pods) > 0 && !slices.Contains(pods, name) {
					m.stop()
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// shards returns the shards of all Topics in etcd.
func (f *fleet) shards() (all []*coordination.Shard) {
	f.t.Helper()
	return slices.Collect(keys.State(f.t, f.keys).AllShards())
}

// TestATopicReportsItsReplicas: a Topic gets its number of replicas, and its status names their
// brokers, the missing ones, and the consequence.
func TestATopicReportsItsReplicas(t *testing.T) {
	w, f, members := newReplicatedWorld(t, 3, "")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	s := w.untilTopic("orders", "Served").Status
	eventually.For(t, "waiting for all to be in sync", func(context.Context) error {
		if s = w.untilTopic("orders", "Served").Status; s.InSync != "3/3" {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
	if s.Replicas != 3 || s.MinInSync != 2 || len(s.Brokers) != 3 || f.topic("orders").Spec.Replicas != 3 {
		t.Errorf("the status is %+v", s)
	}
	w.untilTopicSays("orders", "Served", "replicated on "+s.Leader.Name+" (leader), main-")

	var others []string
	for name := range members {
		if name != s.Leader.Name {
			others = append(others, name)
		}
	}
	members[others[0]].stop()
	w.untilTopicSays("orders", "UnderReplicated", others[0]+" is away; replicated on "+s.Leader.Name+" (leader), "+others[1])
	w.until(v1alpha1.ConditionUnderReplicated, metav1.ConditionTrue, "UnderReplicated")
	eventually.For(t, "waiting for the Broker's count", func(context.Context) error {
		if counts := w.broker().Status.Shards; counts != (v1alpha1.ShardsStatus{Total: 1, UnderReplicated: 1}) {
			return fmt.Errorf("it is %+v", counts)
		}
		return nil
	})
	// An operator that has never seen that broker knows its name from the status.
	w.restartOperator(func(*controllers.Options) {})
	w.untilTopicSays("orders", "UnderReplicated", others[0]+" is away")
	members[others[1]].stop()
	w.untilTopicSays("orders", "NotEnoughInSync", "1 of 3 replicas are in sync and minInSync is 2")
	w.wantEvent("NotEnoughInSync", others[1]+" is away")
	members[s.Leader.Name].stop()
	w.untilTopic("orders", "NoLeader")
	w.until(v1alpha1.ConditionUnderReplicated, metav1.ConditionTrue, "NoLeader")
	for name := range members {
		f.start(name)
	}
	w.untilTopic("orders", "Served")
	w.until(v1alpha1.ConditionUnderReplicated, "", "")

	// Risky settings are reported as long as they are set.
	w.apply("Topic", "quick", `{brokerRef: {name: main}, replicas: 2, durability: Memory, uncleanElection: Allowed}`)
	eventually.For(t, "waiting for what the Topic says of its risks", func(context.Context) error {
		topic := &v1alpha1.Topic{}
		if err := w.get("quick", topic); err != nil {
			return err
		}
		said := map[string]string{}
		for _, c := range topic.Status.Conditions {
			said[c.Type] = c.Reason + ": " + c.Message
		}
		if !strings.Contains(said["DurabilityReduced"], "Memory: records are in memory only") || !strings.Contains(said["UncleanElection"], "Allowed: when no broker") {
			return fmt.Errorf("it says %v", said)
		}
		return nil
	})
	w.patch(&v1alpha1.Topic{}, "quick", `{"spec": {"uncleanElection": "Forbidden"}}`)
	eventually.For(t, "waiting for the risk to go", func(context.Context) error {
		topic := &v1alpha1.Topic{}
		if err := w.get("quick", topic); err != nil {
			return err
		}
		if slices.ContainsFunc(topic.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "UncleanElection" }) {
			return errors.New("it is still said")
		}
		return nil
	})
}

// TestBrokersAreDrainedBeforeTheyGo: a scale-down drains and removes the brokers with the highest
// numbers, and keeps or deletes their volumes by the policy.
func TestBrokersAreDrainedBeforeTheyGo(t *testing.T) {
	for _, policy := range []string{"Retain", "Delete"} {
		t.Run(policy, func(t *testing.T) {
			w, f, members := newReplicatedWorld(t, 5, ", deletionPolicy: "+policy)
			w.leaveWithPods(members)
			for i := range 8 {
				w.apply("Topic", fmt.Sprintf("t%d", i), `{brokerRef: {name: main}}`)
			}
			for i := range 8 {
				w.untilTopic(fmt.Sprintf("t%d", i), "Served")
			}
			// A broker stays while its replicas can't be moved.
			f.holdBack("id-of-main-0", "id-of-main-1", "id-of-main-2")
			w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 3}}`)
			draining := w.until(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "DrainingBroker")
			eventually.For(t, "waiting for the progress", func(context.Context) error {
				if draining = w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "DrainingBroker"); !strings.Contains(draining.Message, "draining main-4, main-3: ") {
					return errors.New(draining.Message)
				}
				return nil
			})
			// Only the operator that began the drain writes the event, unless it is stopped before.
			w.wantEvent("DrainingBroker", "draining main-4, since spec.replicas asks for 3 brokers")
			w.restartOperator(func(*controllers.Options) {})
			w.quiet()
			if n := len(w.pods("broker")); n != 5 {
				t.Fatalf("%d brokers are left, and shards are on all five", n)
			}
			f.holdBack()
			w.untilReady()
			if pods := w.podNames(t.Context()); fmt.Sprint(pods) != "[main-0 main-1 main-2]" {
				t.Errorf("the pods are %v", pods)
			}
			for _, s := range f.shards() {
				if len(s.Replicas) != 3 || slices.Contains(s.Replicas, "id-of-main-3") || slices.Contains(s.Replicas, "id-of-main-4") {
					t.Errorf("%s is on %v", s, s.Replicas)
				}
			}
			f.untilDrained()
			w.wantEvent("ScalingDown", "removing main-3, which holds nothing any more")
			eventually.For(t, "waiting for the volumes", func(context.Context) error {
				left := 0
				for i := range 5 {
					claim := &corev1.PersistentVolumeClaim{}
					// No controller here removes the protection of a deleted claim.
					if err := w.get(fmt.Sprintf("data-main-%d", i), claim); err == nil && claim.DeletionTimestamp == nil {
						left++
					}
				}
				if want := map[string]int{"Retain": 5, "Delete": 3}[policy]; left != want {
					return fmt.Errorf("%d are left, want %d", left, want)
				}
				return nil
			})
			eventually.For(t, "waiting for volumes to be safe again", func(context.Context) error {
				set := &appsv1.StatefulSet{}
				if err := w.get("main", set); err != nil {
					return err
				}
				if scaled := set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled; scaled != appsv1.RetainPersistentVolumeClaimRetentionPolicyType {
					return fmt.Errorf("a set that somebody shrinks does with volumes: %s", scaled)
				}
				return nil
			})
		})
	}
}

// untilDrained waits until no drain is left.
func (f *fleet) untilDrained() {
	f.t.Helper()
	eventually.For(f.t, "waiting for the drains to end", func(ctx context.Context) error {
		if drains := f.state(ctx).Drains(); len(drains) > 0 {
			return fmt.Errorf("there are %v", drains)
		}
		return nil
	})
}

// TestScalingDownCanBeCalledOff: brokers that spec.replicas includes again stay and get shards.
// Brokers that Topics need stay, too.
func TestScalingDownCanBeCalledOff(t *testing.T) {
	w, f, members := newReplicatedWorld(t, 4, "")
	w.leaveWithPods(members)
	w.apply("Topic", "needs", `{brokerRef: {name: main}, replicas: 3}`)
	w.apply("Topic", "yields", `{brokerRef: {name: main}}`)
	w.untilTopic("needs", "Served")
	w.untilTopic("yields", "Served")
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 2}}`)
	stalled := w.until(v1alpha1.ConditionStalled, metav1.ConditionTrue, "ScaleDownBlocked")
	if want := "Topic needs asks for more replicas than that: nothing was changed; set spec.replicas to 4"; !strings.Contains(stalled.Message, want) {
		t.Errorf("Stalled says %q, want %q in it", stalled.Message, want)
	}
	w.wantEvent("ScaleDownBlocked", "")
	w.quiet()
	if n, drains := len(w.pods("broker")), f.state(t.Context()).Drains(); n != 4 || len(drains) > 0 {
		t.Errorf("%d brokers, drained %v: nothing should have changed", n, drains)
	}
	f.until("the other Topic to yield", func() bool { return f.topic("yields").Spec.Replicas == 2 })

	f.holdBack("id-of-main-0", "id-of-main-1", "id-of-main-2")
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 3}}`)
	w.until(v1alpha1.ConditionStalled, "", "")
	eventually.For(t, "waiting for a broker to be drained", func(ctx context.Context) error {
		if mode := f.state(ctx).Drain("id-of-main-3"); mode != coordination.DrainAll {
			return fmt.Errorf("it is drained of %q", mode)
		}
		return nil
	})
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"replicas": 4}}`)
	f.untilDrained()
	f.holdBack()
	w.untilReady()
	if n := len(w.pods("broker")); n != 4 {
		t.Errorf("%d brokers are left", n)
	}
	f.until("the Topic to have its replicas again", func() bool { return f.topic("yields").Spec.Replicas == 3 })
}

// TestARollWaitsForReplicas: a ready broker is replaced only while the replicas on the others are
// in sync, and no eviction is allowed meanwhile.
func TestARollWaitsForReplicas(t *testing.T) {
	w, f, members := newReplicatedWorld(t, 3, "")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served")
	evictable := func(want int) {
		t.Helper()
		eventually.For(t, fmt.Sprintf("waiting for %d to be evictable", want), func(context.Context) error {
			budget := &policyv1.PodDisruptionBudget{}
			if err := w.get("main", budget); err != nil {
				return err
			}
			if n := budget.Spec.MaxUnavailable.IntValue(); n != want {
				return fmt.Errorf("it is %d", n)
			}
			return nil
		})
	}
	evictable(1)
	// A broker whose own replicas are out of sync may be replaced: it does not wait for itself.
	f.holdBack("id-of-main-1")
	members["main-1"].stop()
	f.start("main-1")
	w.untilTopicSays("orders", "UnderReplicated", "main-1 is not in sync yet")
	evictable(0)
	w.restartOperator(func(o *controllers.Options) { o.Image = "carillon:two" })
	eventually.For(t, "waiting for the roll to wait", func(context.Context) error {
		waiting := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "ReplicasCatchingUp")
		if want := "waiting for 1 replica to be in sync on main-1; then pod main-"; !strings.Contains(waiting.Message, want) {
			return fmt.Errorf("it says %q", waiting.Message)
		}
		return nil
	})
	w.quiet()
	for _, pod := range w.pods("broker") {
		if image, want := pod.Spec.Containers[0].Image, map[bool]string{true: "carillon:two", false: "carillon:one"}[pod.Name == "main-1"]; image != want {
			t.Errorf("%s runs %s, want %s", pod.Name, image, want)
		}
	}
	f.holdBack()
	w.untilReady()
	for _, pod := range w.pods("broker") {
		if image := pod.Spec.Containers[0].Image; image != "carillon:two" {
			t.Errorf("%s runs %s", pod.Name, image)
		}
	}
	evictable(1)
}

// TestReplicasOfALostVolumeAreCopiedAnew: a pod that returns with another volume is another broker,
// and the replicas of the former one are copied anew.
func TestReplicasOfALostVolumeAreCopiedAnew(t *testing.T) {
	w, f, members := newReplicatedWorld(t, 3, "")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.apply("Topic", "alone", `{brokerRef: {name: main}, replicas: 1}`)
	w.untilTopic("orders", "Served")
	alone := w.untilTopic("alone", "Served").Status.Leader
	members[alone.Name].stop()
	w.untilTopicSays("orders", "UnderReplicated", alone.Name+" is away")
	w.quiet()
	if drains := f.state(t.Context()).Drains(); len(drains) > 0 {
		t.Errorf("a broker that may come back is drained: %v", drains)
	}
	f.startAs(alone.Name, "another-volume")
	eventually.For(t, "waiting for the replicas to be whole again", func(context.Context) error {
		s := w.untilTopic("orders", "Served").Status
		if s.InSync != "3/3" || !slices.ContainsFunc(s.Brokers, func(r v1alpha1.ReplicaStatus) bool { return r.ID == "another-volume" && r.Name == alone.Name }) {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
	w.wantEvent("DrainingBroker", "draining broker "+alone.ID+", whose volume "+alone.Name+" has no more")
	// A single replica is not given up: the volume may be found again.
	w.untilTopic("alone", "BrokerAway")
	if got := f.topic("alone"); got == nil {
		t.Error("the Topic whose volume is lost has gone")
	}
}

// holdBack keeps the replicas of these brokers out of sync, and of no others.
func (f *fleet) holdBack(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.behind)
	for _, id := range ids {
		f.behind[id] = true
	}
}

// state returns the content of etcd.
func (f *fleet) state(ctx context.Context) (now *coordination.State) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := f.keys.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
		if now == nil {
			now = state
		}
		cancel()
	}); err != nil {
		f.t.Fatal(err)
	}
	if now == nil {
		f.t.Fatal("what etcd holds could not be read")
	}
	return now
}

// podNames returns the names of the brokers' pods.
func (w *world) podNames(ctx context.Context) (names []string) {
	pods := &corev1.PodList{}
	if err := k8s.List(ctx, pods, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/component": "broker"}); err != nil {
		return nil
	}
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	slices.Sort(names)
	return names
}
