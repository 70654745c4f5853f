package admin

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestASnapshotIsConfirmed: a leader whose followers are unreachable takes no snapshot, since
// records that a newer leader acknowledged would be missing. It keeps what it holds already.
func TestASnapshotIsConfirmed(t *testing.T) {
	n := startNode(t, nil)
	n.publish("one", "two")
	if got := n.answer(n.ask(SnapshotSubject+"orders.0", `{"id":"before"}`, false)); !strings.Contains(string(got.Data), `"high":3`) {
		t.Fatalf("a snapshot: %s", got.Data)
	}
	was := n.topics.State().Shard("o", 0)
	is := *was
	is.Revision++
	is.Replicas, is.InSync = []string{"a", "b"}, append(is.InSync[:1:1], coordination.Replica{Broker: "b", Incarnation: 6})
	n.topics.Follow(coordination.NewState(2, n.topics.State().Brokers, []*coordination.Topic{n.topics.State().TopicByID("o")}, []*coordination.Shard{&is}, nil),
		coordination.Changes{Shards: []coordination.Change[coordination.Shard]{{Before: was, After: &is}}})
	testutil.EventuallyTrue(t, "the leader knows its follower", func() bool {
		done := make(chan error, 1)
		return !n.topics.ByID("o").ShardAt(0).Confirm(func(err error) { done <- err })
	})
	one, whole := n.ask(SnapshotSubject+"orders.0", `{"id":"late"}`, false), n.ask(SnapshotSubject+"orders", `{"id":"all"}`, false)
	if got := n.answer(n.ask(SnapshotSubject+"orders.0", `{"id":"before","start":1,"high":3}`, false)); !strings.Contains(string(got.Data), `"high":3`) {
		t.Errorf("what is held: %s", got.Data)
	}
	for _, reply := range []string{one, whole} {
		if got := n.answer(reply); !strings.Contains(string(got.Data), `"error"`) || !strings.Contains(string(got.Data), string(NotServed)) {
			t.Errorf("answered %s", got.Data)
		}
	}
	if n.held() != 1 {
		t.Errorf("%d snapshots are held", n.held())
	}
}
