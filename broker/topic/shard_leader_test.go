package topic

import "testing"

// The set may change, and say so, before whoever began to lead knows by what it leads.
func TestTheSetMayAdvanceBeforeALeaderIsReady(t *testing.T) {
	shard := &ShardLeader{service: &Service{}}
	shard.advanced()
	if shard.readable.Load() || shard.high.Load() != 0 {
		t.Error("it is readable before anything is known of the others")
	}
}
