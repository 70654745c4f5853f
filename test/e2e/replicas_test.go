//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// copyTime bounds the time until replicas are in sync again.
const copyTime = 2 * time.Minute

// isWhole returns a check that all replicas of the Topic are in sync.
func (e *environment) isWhole(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := e.topic(ctx, name)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%d/%d", o.Status.Replicas, o.Status.Replicas); o.Status.InSync != want {
			return fmt.Errorf("%s are in sync: %+v", o.Status.InSync, o.Status.Conditions)
		}
		return isReady(o.Status.Conditions, o.Generation)
	}
}

// another returns a broker other than these.
func another(than ...string) string {
	for i := range brokers {
		if !slices.Contains(than, podName(i)) {
			return podName(i)
		}
	}
	return ""
}

// topicBrokerKilled kills the broker that leads a Topic under load: another broker leads within
// seconds, and every acknowledged message is kept, also on the killed broker.
func topicBrokerKilled(t *testing.T, e *environment) {
	upTo(copyTime).For(t, "all replicas are in sync", e.isWhole("orders"))
	victim := e.leaderOf(t, "orders")
	d := e.startDurable(t, another(victim), "orders.us.killed")
	d.under(t, 100)
	before := e.deletePod(t, victim, client.GracePeriodSeconds(0))
	upTo(failoverTime).For(t, "another broker leads", func(ctx context.Context) error {
		leader, err := e.leader(ctx, "orders")
		if err == nil && leader == victim {
			err = errors.New(leader + " still does")
		}
		return err
	})
	d.under(t, 100)
	upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	upTo(copyTime).For(t, "all replicas are in sync again", e.isWhole("orders"))
	d.under(t, 100)
	d.wentOn(t)
	d.kept(t, e.stream(t, victim), "orders")
}

// leaderCut cuts off the node of the broker that leads a Topic under load.
func leaderCut(t *testing.T, e *environment) {
	name, victim, other := e.topicAwayFromTheOperator(t, "cut", 3)
	upTo(copyTime).For(t, "all replicas are in sync", e.isWhole(name))
	cut := e.nodeOf(t, victim)
	d := e.startDurable(t, other, name+".load")
	d.under(t, 100)
	e.node(t, "cut", cut)
	t.Cleanup(func() { e.node(t, "heal", cut) })
	upTo(readyTime).For(t, "the Topic says who is missing", e.topicIsNot(name, v1alpha1.ConditionReady, "UnderReplicated"))
	d.under(t, 500)
	d.wentOn(t)
	e.node(t, "heal", cut)
	upTo(replaceTime).For(t, cut+" is back", e.nodeIs(cut, corev1.ConditionTrue))
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	upTo(copyTime).For(t, "all replicas are in sync again", e.isWhole(name))
	d.under(t, 100)
	d.wentOn(t)
	d.kept(t, e.stream(t, victim), name)
}

// volumeLost deletes a broker's volume. The broker returns with another identity, and the other
// brokers have all its records.
func volumeLost(t *testing.T, e *environment) {
	const victim = "main-2"
	d := e.startDurable(t, another(victim), "orders.us.volume")
	d.under(t, 100)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data-" + victim}}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	was := claim.UID
	if err := e.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	before := e.deletePod(t, victim)
	upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil || claim.UID == was {
		// The new pod was created before the claim was deleted, and waits for it; the next one gets
		// another claim.
		t.Logf("the claim is the former one (%v): once more", err)
		before = e.deletePod(t, victim)
		upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
	}
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	upTo(copyTime).For(t, "all replicas are in sync again", e.isWhole("orders"))
	d.under(t, 100)
	d.wentOn(t)
	d.kept(t, e.stream(t, victim), "orders")
}

// scaled waits until there are exactly so many brokers.
func (e *environment) scaled(t *testing.T, n int32) {
	t.Helper()
	mustRun(t, "kubectl", "-n", namespace, "scale", "broker.carillon.dev/main", fmt.Sprintf("--replicas=%d", n))
	said := ""
	upTo(5*time.Minute).For(t, fmt.Sprintf("there are %d brokers", n), func(ctx context.Context) error {
		b, err := e.broker(ctx)
		if err != nil {
			return err
		}
		if ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != said {
			said = ready.Message
			t.Log(said)
		}
		if err := isReady(b.Status.Conditions, b.Generation); err != nil {
			return err
		}
		if b.Status.ReadyReplicas != n || b.Status.Replicas != n {
			return fmt.Errorf("%d of %d are ready", b.Status.ReadyReplicas, b.Status.Replicas)
		}
		return nil
	})
}

// scaleDownAndUp removes a broker under load: before it ends, it moves all its replicas to others,
// including those without another copy. Then the broker is added again.
func scaleDownAndUp(t *testing.T, e *environment) {
	const victim = "main-2"
	d := e.startDurable(t, podName(0), "orders.us.scale")
	single := ""
	for i := range 2 * brokers {
		name := e.makeTopic(t, fmt.Sprintf("single-%d", i), 1)
		if single == "" && e.leaderOf(t, name) == victim {
			single = name
		}
	}
	if single == "" {
		t.Fatalf("of the Topics of one replica none is on %s", victim)
	}
	onVictim := e.startDurable(t, podName(1), single+".load")
	d.under(t, 100)
	onVictim.under(t, 100)

	// A Topic that needs more brokers than would remain keeps its replicas.
	demanding := e.makeTopic(t, "demanding", 3)
	mustRun(t, "kubectl", "-n", namespace, "scale", "broker.carillon.dev/main", "--replicas=2")
	upTo(readyTime).For(t, "the Broker says what is in the way", func(ctx context.Context) error {
		b, err := e.broker(ctx)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Reason != "ScaleDownBlocked" || !strings.Contains(c.Message, demanding) {
			return fmt.Errorf("Stalled is %+v", c)
		}
		return nil
	})
	topics := &v1alpha1.TopicList{}
	if err := e.List(t.Context(), topics, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range topics.Items {
		if o := &topics.Items[i]; o.Spec.Replicas != nil && *o.Spec.Replicas > 2 {
			if err := e.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.scaled(t, 2)
	if _, err := e.pod(t.Context(), victim); !apierrors.IsNotFound(err) {
		t.Errorf("pod %s: %v", victim, err)
	}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data-" + victim}, &corev1.PersistentVolumeClaim{}); err != nil {
		t.Errorf("its volume, which is to stay: %v", err)
	}
	for _, name := range []string{"orders", single} {
		upTo(copyTime).For(t, "all replicas of "+name+" are in sync", e.isWhole(name))
	}
	e.scaled(t, brokers)
	upTo(copyTime).For(t, "all replicas are in sync on three brokers again", func(ctx context.Context) error {
		o, err := e.topic(ctx, "orders")
		if err == nil && o.Status.InSync != "3/3" {
			err = fmt.Errorf("%s are", o.Status.InSync)
		}
		return err
	})
	for _, load := range []*durable{d, onVictim} {
		load.under(t, 100)
		load.wentOn(t)
	}
	d.kept(t, e.stream(t, victim), "orders")
	onVictim.kept(t, e.stream(t, victim), single)
}

// makeTopic creates a Topic of so many replicas, whose records are deleted with its manifest.
func (e *environment) makeTopic(t *testing.T, name string, replicas int32) string {
	t.Helper()
	o := &v1alpha1.Topic{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.TopicSpec{BrokerRef: v1alpha1.BrokerReference{Name: "main"}, Replicas: &replicas, DeletionPolicy: v1alpha1.TopicDeleted},
	}
	if err := e.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	upTo(readyTime).For(t, name+" is Ready", e.topicIsReady(name))
	return name
}
