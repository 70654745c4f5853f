package replica

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestAFollowerCatchesUpWithTheLogsAtTheElection: a leader that has just been elected knows little
// of what is safe. A follower that joins it has caught up when it has all that the logs held at the
// election, and later all that is safe.
func TestAFollowerCatchesUpWithTheLogsAtTheElection(t *testing.T) {
	a, b := coordination.Replica{Broker: "a", Incarnation: 1}, coordination.Replica{Broker: "b", Incarnation: 1}
	shard := &coordination.Shard{Topic: "t", Epoch: 2, Leader: "a", Replicas: []string{"a", "b"}, InSync: []coordination.Replica{a, b}}
	l := NewLeader(a, shard, 1, [Parts]uint64{10, 3}, [Parts]uint64{4, 1})
	expect := func(data, state uint64) {
		t.Helper()
		if l.Goal(Data) != data || l.Goal(State) != state {
			t.Errorf("it needs %d and %d, want %d and %d", l.Goal(Data), l.Goal(State), data, state)
		}
	}
	expect(10, 3)
	l.Join(b, [Parts]uint64{10, 3}, 1)
	l.Safe(Data, 12)
	expect(10, 3)
	l.Copied(b, Data, 12, 2)
	expect(12, 3)
}
