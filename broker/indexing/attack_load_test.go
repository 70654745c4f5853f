package indexing

import (
	"context"
	"testing"
	"time"
)

// When all subjects are loaded, who waits for one is told, although the finder still looks for it.
func TestAttackALoadTellsThoseThatWait(t *testing.T) {
	x, f := newLasts(t, 100)
	if _, pending, _ := x.Last([]byte("a")); !pending {
		t.Fatal("it is known")
	}
	<-f.asked // on a slow disk
	f.loads <- []string{"a"}
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if _, pending, _ := x.Last([]byte("a")); !pending {
			break
		}
	}
	select {
	case <-f.found:
	case <-time.After(3 * time.Second):
		t.Error("a is known, and nobody is told")
	}
	f.answers <- nil
}

// A shard whose index is being made doesn't keep other shards from loading.
func TestAttackALoadThatWaitsHoldsNoOtherShardUp(t *testing.T) {
	s := newShard(t, 1)
	over, loaded := make(chan struct{}), make(chan struct{}, 1)
	find := func(context.Context, string, uint64) (uint64, error) { return 0, nil }
	waits := s.set.NewLasts(1, find, func(ctx context.Context, _ uint64, _ func(), _ func([]byte, uint64) bool) error {
		select { // as Index.query does for loadPatience (10 s) while its index is being made
		case <-over:
		case <-ctx.Done():
		}
		return &NotReadyError{Why: "it is being made"}
	}, func() {})
	ready := s.set.NewLasts(1, find, func(context.Context, uint64, func(), func([]byte, uint64) bool) error {
		loaded <- struct{}{}
		return nil
	}, func() {})
	waits.Want([]byte("a"))
	time.Sleep(100 * time.Millisecond)
	ready.Want([]byte("a"))
	select {
	case <-loaded:
	case <-time.After(5 * time.Second):
		t.Error("it waits for the other shard")
	}
	close(over)
	waits.Close()
	ready.Close()
}
