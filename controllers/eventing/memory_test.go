package eventing

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// TestATransitionIsReportedOnce: a change is recorded once, also if a pass sees the object from
// before it. Another object of the same name, and a recreated one, have changes of their own.
func TestATransitionIsReportedOnce(t *testing.T) {
	var m Memory
	topic := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orders", UID: "1"}}
	again := &v1alpha1.Topic{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orders", UID: "2"}}
	for i, step := range []struct {
		of     client.Object
		reason string
		news   bool
	}{
		{topic, "Served", true}, {topic, "Served", false}, {topic, "BrokerAway", true}, {topic, "Served", true},
		{again, "Served", true}, {again, "Served", false},
	} {
		if got := m.News(step.of, step.reason); got != step.news {
			t.Errorf("step %d: %s is news: %v", i, step.reason, got)
		}
	}
	m.Forget(client.ObjectKeyFromObject(again))
	if !m.News(again, "Served") {
		t.Error("what was forgotten is still known")
	}
}
