package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers"
)

// raise writes what a broker writes when it notices that etcd was restored from a backup.
func (w *world) raise(generation int) {
	w.t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer etcd.Close()
	key := "/carillon/" + w.namespace + "/main/generation"
	if _, err := etcd.Put(w.t.Context(), key, fmt.Sprintf(`{"v":1,"generation":%d}`, generation)); err != nil {
		w.t.Fatal(err)
	}
}

// untilGeneration waits until the status has the generation of etcd.
func (w *world) untilGeneration(want int64) (c v1alpha1.CoordinationStatus) {
	w.t.Helper()
	eventually.For(w.t, fmt.Sprintf("waiting for generation %d in the status", want), func(context.Context) error {
		if c = w.broker().Status.Coordination; c.EtcdGeneration == nil || *c.EtcdGeneration != want {
			return fmt.Errorf("it is %v", c.EtcdGeneration)
		}
		return nil
	})
	return c
}

// TestARestoredEtcdIsReported: after brokers noticed a restore of etcd, the Broker has the
// condition until all shards have leaders again, and keeps the time. An event is written once, also
// if the operator is restarted.
func TestARestoredEtcdIsReported(t *testing.T) {
	w, f, _ := newServingWorld(t, "main-0")
	w.apply("Topic", "orders", `{brokerRef: {name: main}}`)
	w.untilTopic("orders", "Served")
	if c := w.untilGeneration(0); c.RestoredAt != nil {
		t.Errorf("etcd was restored at %v", c.RestoredAt)
	}
	f.compare(true)
	w.raise(1)
	waiting := w.until(v1alpha1.ConditionEtcdRestored, metav1.ConditionTrue, "ComparingCopies")
	if !strings.Contains(waiting.Message, "1 of 1 shard") || !strings.Contains(waiting.Message, "topic orders") {
		t.Errorf("it says %q", waiting.Message)
	}
	w.untilTopicSays("orders", "ComparingCopies", "since etcd was restored from a backup")
	at := w.untilGeneration(1).RestoredAt
	if at == nil {
		t.Fatal("the status doesn't say when etcd was restored")
	}
	w.wantEvent("EtcdRestored", "is in generation 1 now")
	w.until(v1alpha1.ConditionReady, metav1.ConditionTrue, "AllReady")
	w.restartOperator(func(*controllers.Options) {})
	w.quiet()
	w.until(v1alpha1.ConditionEtcdRestored, metav1.ConditionTrue, "ComparingCopies")

	f.compare(false)
	w.until(v1alpha1.ConditionEtcdRestored, "", "")
	w.wantEvent("CopiesCompared", "")
	w.untilTopic("orders", "Served")
	if c := w.untilGeneration(1); c.RestoredAt == nil || !c.RestoredAt.Equal(at) {
		t.Errorf("etcd was restored at %v, and at %v before", c.RestoredAt, at)
	}
	if err := w.countEvents("Broker", "EtcdRestored", 1); err != nil {
		t.Error(err)
	}
}
