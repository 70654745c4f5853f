package alerting

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestASignatureHoldsAtOneBroker: a broker chooses what the operator signs for it. Of another
// Broker, and of another process, it gets no signature.
func TestASignatureHoldsAtOneBroker(t *testing.T) {
	var s, next Service
	testutil.Must(t, s.Prepare())
	testutil.Must(t, next.Prepare())
	nonce := []byte("what the other broker asks for")
	sign := func(of *Service, broker types.UID) (signature []byte) {
		key, _, err := of.keyOf(broker)
		testutil.Must(t, err)
		signature, err = key.Sign(nonce)
		testutil.Must(t, err)
		return signature
	}
	_, public, err := s.keyOf("one")
	testutil.Must(t, err)
	verifier, err := nkeys.FromPublicKey(public)
	testutil.Must(t, err)
	if err := verifier.Verify(nonce, sign(&s, "one")); err != nil {
		t.Errorf("its own is refused: %v", err)
	}
	if verifier.Verify(nonce, sign(&s, "two")) == nil {
		t.Error("what another Broker had signed holds")
	}
	if verifier.Verify(nonce, sign(&next, "one")) == nil {
		t.Error("what another process has signed holds")
	}
}

// TestBrokersTakeTurns: the one that waits for longest is next, and one that is being read is not.
func TestBrokersTakeTurns(t *testing.T) {
	now := time.Unix(1000, 0)
	all := rooms(Source{Trigger: "hot", Topic: "alerts"})
	late, later, early := &link{due: now.Add(-2), all: all}, &link{due: now.Add(-1), all: all}, &link{due: now.Add(1), all: all}
	s := &Service{links: map[types.NamespacedName]*link{{Name: "late"}: late, {Name: "later"}: later, {Name: "early"}: early, {Name: "without"}: {due: now.Add(-3)}}}
	for i, want := range []*link{late, later, nil} {
		got := s.due(now)
		if got != want {
			t.Fatalf("turn %d is of %+v, want %+v", i, got, want)
		}
		if got != nil {
			got.reading = true
		}
	}
}

// TestViewsBeyondTheBoundAreNotRead: those that are first by name are.
func TestViewsBeyondTheBoundAreNotRead(t *testing.T) {
	topic := &coordination.Topic{Name: "alerts", ID: strings.Repeat("1", 32)}
	var shards []*coordination.Shard
	for n := range maxSources/2 - 1 {
		shards = append(shards, &coordination.Shard{Topic: topic.ID, Number: n})
	}
	var views []v1alpha1.View
	var found []*coordination.View
	for _, name := range []string{"c", "a", "b"} {
		v := v1alpha1.View{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		v.Spec.Triggers = []v1alpha1.TriggerSpec{{Name: "hot", Events: true}, {Name: "silent"}}
		views = append(views, v)
		found = append(found, &coordination.View{
			Name: name, Owner: coordination.Owner{Kind: coordination.ManifestOwner, UID: name},
			Spec: &coordination.ViewSpec{Alerts: map[string]string{"hot": "alerts", "silent": "alerts"}},
		})
	}
	state := coordination.NewState(1, nil, []*coordination.Topic{topic}, shards, nil).WithViews(found...)
	all, without := find(views, state)
	if len(all) != 2 || all[0].manifest.Name != "a" || all[1].manifest.Name != "b" || len(all[0].sources) != len(shards) || len(without) != 1 || without[0].Name != "c" {
		t.Errorf("%d are read, %d not", len(all), len(without))
	}
}
