package topic

import "testing"

// TestTheSetMayAdvanceBeforeALeaderIsReady: the in-sync set may change, and call back, before the
// new leader has its first state.
func TestTheSetMayAdvanceBeforeALeaderIsReady(t *testing.T) {
	shard := &ShardLeader{service: &Service{}}
	shard.advanced()
	if shard.readable.Load() || shard.high.Load() != 0 {
		t.Error("it is readable before anything is known of the others")
	}
}
