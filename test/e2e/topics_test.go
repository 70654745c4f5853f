//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

const readyTime = 2 * time.Minute

func isReady(conditions []metav1.Condition, generation int64) error {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return errors.New("there is no condition Ready")
	case ready.ObservedGeneration != generation:
		return fmt.Errorf("generation %d is not observed yet", generation)
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	return nil
}

func (e *environment) topic(ctx context.Context, name string) (*v1alpha1.Topic, error) {
	o := &v1alpha1.Topic{}
	return o, e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
}

func (e *environment) topicIsReady(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := e.topic(ctx, name)
		if err != nil {
			return err
		}
		return isReady(o.Status.Conditions, o.Generation)
	}
}

// topicIsNot returns a check that a condition of the Topic has this reason, and a message.
func (e *environment) topicIsNot(name, kind, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := e.topic(ctx, name)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, kind)
		if c == nil || c.Reason != reason || c.Message == "" {
			return fmt.Errorf("%s is %+v", kind, c)
		}
		return nil
	}
}

func (e *environment) stream(t *testing.T, pod string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(e.connect(t, pod), jetstream.WithDefaultTimeout(answerTime))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// topicsServe publishes into a declared Topic from clients of all brokers, and reads through a
// declared Subscription.
func topicsServe(t *testing.T, e *environment) {
	upTo(readyTime).For(t, "the Topic is Ready", e.topicIsReady("orders"))
	upTo(readyTime).For(t, "the Subscription is Ready", func(ctx context.Context) error {
		s := &v1alpha1.Subscription{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "billing"}, s); err != nil {
			return err
		}
		return isReady(s.Status.Conditions, s.Generation)
	})
	const each = 50
	sequence := uint64(0)
	for i := range brokers {
		js := e.stream(t, podName(i))
		for n := range each {
			ack, err := js.Publish(within(t), fmt.Sprintf("orders.eu.%d", i), []byte(strconv.Itoa(n)))
			if err != nil {
				t.Fatalf("publish through %s: %v", podName(i), err)
			}
			if sequence++; ack.Stream != "orders" || ack.Sequence != sequence {
				t.Fatalf("the ack through %s is %+v, want sequence %d of orders", podName(i), ack, sequence)
			}
		}
	}
	for i := range brokers {
		consumer, err := e.stream(t, podName(i)).Consumer(within(t), "orders", "billing")
		if err != nil {
			t.Fatal(err)
		}
		got, err := consumer.Fetch(each)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range got.Messages() {
			if want := fmt.Sprintf("orders.eu.%d", i); m.Subject() != want || string(m.Data()) != strconv.Itoa(n) {
				t.Errorf("message %d of %s is %q of %s", n, want, m.Data(), m.Subject())
			}
			if err := m.DoubleAck(within(t)); err != nil {
				t.Errorf("ack through %s: %v", podName(i), err)
			}
			n++
		}
		if err := got.Error(); err != nil || n != each {
			t.Errorf("%s gave %d of %d messages: %v", podName(i), n, each, err)
		}
	}

	// Clients can't change what a manifest declares, and the operator leaves alone what a client
	// creates.
	js := e.stream(t, podName(1))
	if err := js.DeleteStream(within(t), "orders"); err == nil {
		t.Error("a client deleted what a manifest declares")
	} else {
		t.Logf("a client that deletes the Topic is told: %v", err)
	}
	if _, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "clicks", Subjects: []string{"clicks.*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.stream(t, podName(2)).Publish(within(t), "clicks.a", nil); err != nil {
		t.Error(err)
	}
	upTo(3*time.Minute).For(t, "the numbers are in the status", func(ctx context.Context) error {
		o, err := e.topic(ctx, "orders")
		if err != nil {
			return err
		}
		if o.Status.Messages != brokers*each {
			return fmt.Errorf("%d messages", o.Status.Messages)
		}
		return nil
	})
	t.Log("\n" + mustRun(t, "kubectl", "-n", namespace, "get", "carillon"))
}

// leaderOf returns the pod that leads the Topic.
func (e *environment) leaderOf(t *testing.T, name string) string {
	t.Helper()
	leader, err := e.leader(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

func (e *environment) leader(ctx context.Context, name string) (string, error) {
	o, err := e.topic(ctx, name)
	if err != nil {
		return "", err
	}
	if o.Status.Leader == nil {
		return "", fmt.Errorf("the status of %s names no leader", name)
	}
	return o.Status.Leader.Name, nil
}

// onlyBrokerCut cuts off the node of the only broker that has a Topic: the Topic's status reports
// it, and publishers get an error with the reason.
func onlyBrokerCut(t *testing.T, e *environment) {
	name, victim, other := e.topicAwayFromTheOperator(t, "away", 1)
	cut := e.nodeOf(t, victim)
	d := e.startDurable(t, other, name+".load")
	js := e.stream(t, other)
	e.node(t, "cut", cut)
	t.Cleanup(func() { e.node(t, "heal", cut) })
	upTo(readyTime).For(t, "the Topic says that its broker is away", e.topicIsNot(name, v1alpha1.ConditionReady, "BrokerAway"))
	upTo(readyTime).For(t, "a publisher is told why", func(ctx context.Context) error {
		_, err := js.Publish(ctx, name+".why", nil, jetstream.WithRetryAttempts(0))
		refused := (*jetstream.APIError)(nil)
		if !errors.As(err, &refused) {
			return fmt.Errorf("it is told %w", err)
		}
		t.Logf("a publisher is told: %v", err)
		return nil
	})
	e.node(t, "heal", cut)
	upTo(replaceTime).For(t, cut+" is back", e.nodeIs(cut, corev1.ConditionTrue))
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	upTo(readyTime).For(t, "the Topic is Ready", e.topicIsReady(name))
	n := d.count()
	upTo(readyTime).For(t, "messages are acknowledged again", func(context.Context) error {
		if d.count() < n+100 {
			return fmt.Errorf("%d more; the last error is %v", d.count()-n, d.last.Load())
		}
		return nil
	})
	d.kept(t, e.stream(t, victim), name)
}

// topicAwayFromTheOperator creates Topics until each broker leads one, and returns one whose
// leader's node does not run the operator, which has to report the cut.
func (e *environment) topicAwayFromTheOperator(t *testing.T, prefix string, replicas int32) (name, leader, other string) {
	t.Helper()
	pods := &corev1.PodList{}
	if err := e.List(t.Context(), pods, client.InNamespace(operatorNamespace)); err != nil {
		t.Fatal(err)
	}
	operator := ""
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			operator = p.Spec.NodeName
		}
	}
	for i := range 2 * brokers {
		name := e.makeTopic(t, fmt.Sprintf("%s-%d", prefix, i), replicas)
		if leader := e.leaderOf(t, name); e.nodeOf(t, leader) != operator {
			for i := range brokers {
				if podName(i) != leader {
					other = podName(i)
				}
			}
			return name, leader, other
		}
	}
	t.Fatal("all Topics went to the broker on the operator's node")
	return "", "", ""
}

// asTold is a broker's answer to /topics.
type asTold struct {
	Revision int64
	Topics   []struct{ Name string }
}

func (e *environment) told(ctx context.Context, pod string) (asTold, error) {
	p, err := e.pod(ctx, pod)
	if err != nil {
		return asTold{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Status.PodIP+":8222/topics", nil)
	if err != nil {
		return asTold{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return asTold{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var told asTold
	return told, json.NewDecoder(response.Body).Decode(&told)
}

// writes returns the numbers of writes to both etcds so far: the cluster's own and the brokers'.
func (e *environment) writes(t *testing.T) (own, brokers int64) {
	t.Helper()
	list := &v1alpha1.TopicList{}
	if err := e.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	own, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	told, err := e.told(t.Context(), podName(0))
	if err != nil {
		t.Fatal(err)
	}
	return own, told.Revision
}

// aThousandTopics applies a thousand Topics at once: they are Ready within a minute with few
// writes, and cost nothing afterwards.
func aThousandTopics(t *testing.T, e *environment) {
	const many, limit, most = 1000, time.Minute, 20
	own, inBrokers := e.writes(t)
	began := time.Now()
	var making sync.WaitGroup
	for worker := range 16 {
		making.Go(func() {
			for i := worker; i < many; i += 16 {
				o := &v1alpha1.Topic{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("many-%d", i), Labels: map[string]string{"many": "yes"}},
					Spec:       v1alpha1.TopicSpec{BrokerRef: v1alpha1.BrokerReference{Name: "main"}, DeletionPolicy: v1alpha1.TopicDeleted},
				}
				if err := e.Create(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	making.Wait()
	t.Logf("%d Topics were created after %s", many, time.Since(began).Round(100*time.Millisecond))
	upTo(limit-time.Since(began)).For(t, "all Topics are Ready", func(ctx context.Context) error {
		list := &v1alpha1.TopicList{}
		if err := e.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"many": "yes"}); err != nil {
			return err
		}
		ready, why := 0, error(nil)
		for i := range list.Items {
			if err := isReady(list.Items[i].Status.Conditions, list.Items[i].Generation); err == nil {
				ready++
			} else {
				why = err
			}
		}
		if ready < many {
			return fmt.Errorf("%d of %d are; of another: %w", ready, many, why)
		}
		return nil
	})
	ownAfter, inBrokersAfter := e.writes(t)
	perTopic := float64(ownAfter-own+inBrokersAfter-inBrokers) / many
	t.Logf("Ready after %s, with %.1f writes each to the cluster's etcd and %.1f to the brokers'",
		time.Since(began).Round(100*time.Millisecond), float64(ownAfter-own)/many, float64(inBrokersAfter-inBrokers)/many)
	if perTopic > most {
		t.Errorf("%.1f writes to etcd for each Topic, more than %d", perTopic, most)
	}
	js := e.stream(t, podName(0))
	for _, i := range []int{0, 499, 999} {
		if _, err := js.Publish(within(t), fmt.Sprintf("many-%d.x", i), nil); err != nil {
			t.Errorf("publish into many-%d: %v", i, err)
		}
	}
	for _, i := range []int{0, 499, 999} {
		upTo(3*time.Minute).For(t, "its number is in the status, the last that is to be written", func(ctx context.Context) error {
			o, err := e.topic(ctx, fmt.Sprintf("many-%d", i))
			if err == nil && o.Status.Messages != 1 {
				err = fmt.Errorf("it says %d messages", o.Status.Messages)
			}
			return err
		})
	}
	quiescence(t, e)
	upTo(restTime).For(t, "nothing is written to the brokers' etcd for 10 s", func(ctx context.Context) error {
		_, before := e.writes(t)
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, after := e.writes(t); after != before {
			return fmt.Errorf("at rest, %d writes went there", after-before)
		}
		return nil
	})

	if err := e.DeleteAllOf(t.Context(), &v1alpha1.Topic{}, client.InNamespace(namespace), client.MatchingLabels{"many": "yes"}); err != nil {
		t.Fatal(err)
	}
	upTo(2*time.Minute).For(t, "their records are gone, as their policy says", func(ctx context.Context) error {
		left := 0
		for i := range brokers {
			told, err := e.told(ctx, podName(i))
			if err != nil {
				return err
			}
			for _, one := range told.Topics {
				if len(one.Name) > 5 && one.Name[:5] == "many-" {
					left++
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d are still served", left)
		}
		return nil
	})
}

// topicOwners deletes and recreates manifests: by default no records are deleted, and a Topic is
// adopted by the manifest or client that declares it again.
func topicOwners(t *testing.T, e *environment) {
	js := e.stream(t, podName(0))
	held := func() uint64 {
		t.Helper()
		s, err := js.Stream(within(t), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Msgs
	}
	before := held()
	remove := func(o client.Object) {
		t.Helper()
		if err := e.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		upTo(readyTime).For(t, o.GetName()+" is gone", func(ctx context.Context) error {
			err := e.Get(ctx, client.ObjectKeyFromObject(o), o)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is still there (%w)", err)
		})
	}
	remove(&v1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "billing"}})
	upTo(readyTime).For(t, "its cursor is gone, as its policy says", func(ctx context.Context) error {
		_, err := js.Consumer(ctx, "orders", "billing")
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	remove(&v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orders"}})
	if _, err := js.Publish(within(t), "orders.eu.1", nil); err != nil {
		t.Errorf("the Topic is not served any more without its manifest: %v", err)
	}
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", "config/samples/topic.yaml", "-f", "config/samples/subscription.yaml")
	upTo(readyTime).For(t, "the Topic is adopted and Ready", e.topicIsReady("orders"))
	if now := held(); now != before+1 {
		t.Errorf("%d messages after the Topic was made again, want %d", now, before+1)
	}

	clicks := &v1alpha1.Topic{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "clicks"},
		Spec:       v1alpha1.TopicSpec{BrokerRef: v1alpha1.BrokerReference{Name: "main"}},
	}
	if err := e.Create(t.Context(), clicks); err != nil {
		t.Fatal(err)
	}
	upTo(readyTime).For(t, "a manifest does not take what a client made", e.topicIsNot("clicks", v1alpha1.ConditionStalled, "Exists"))
	remove(clicks)
	if _, err := js.Publish(within(t), "clicks.a", nil); err != nil {
		t.Errorf("what the client made has gone with a manifest that never had it: %v", err)
	}
}

// brokerMadeAgain deletes the Broker of existing Topics and applies it again: the volumes stay, and
// with them the records.
func brokerMadeAgain(t *testing.T, e *environment) {
	js := e.stream(t, podName(0))
	ack, err := js.Publish(within(t), "orders.eu.last", []byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	upTo(2*time.Minute).For(t, "its pods are gone", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := e.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		left := 0
		for _, p := range pods.Items {
			if p.Labels["app.kubernetes.io/instance"] == "main" {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	upTo(readyTime).For(t, "the Topic says that it waits for its Broker", e.topicIsNot("orders", v1alpha1.ConditionReady, "WaitingForBroker"))
	// A manifest may be deleted while no broker can be asked.
	away := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "away-0"}}
	if err := e.Delete(t.Context(), away); err != nil {
		t.Fatal(err)
	}
	upTo(readyTime).For(t, "a Topic's manifest is gone", func(ctx context.Context) error {
		err := e.Get(ctx, client.ObjectKeyFromObject(away), away)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%w)", err)
	})
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", "config/samples/broker.yaml")
	upTo(5*time.Minute).For(t, "the Broker is Ready again", e.brokerIsReady)
	upTo(readyTime).For(t, "the Topic is Ready again", e.topicIsReady("orders"))
	again := e.stream(t, podName(1))
	s, err := again.Stream(within(t), "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(within(t), ack.Sequence)
	if err != nil || string(m.Data) != "before" {
		t.Errorf("the last message before the Broker was deleted is %v (%v)", m, err)
	}
	if next, err := again.Publish(within(t), "orders.eu.next", nil); err != nil || next.Sequence != ack.Sequence+1 {
		t.Errorf("the next message is %+v (%v), want sequence %d", next, err, ack.Sequence+1)
	}
}
