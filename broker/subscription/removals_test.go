package subscription

import (
	"testing"
	"testing/synctest"
)

// TestSnapshotsCarryRemovals: removals alone make the state log grow. Snapshots trim it, and have
// all removals, so that the next life knows them.
func TestSnapshotsCarryRemovals(t *testing.T) {
	snapshotStory(t, 1<<10, func(t *testing.T, w *world) {
		for offset := range uint64(2000) {
			if err := w.shard.remove(1+2*offset, func() {}); err != nil {
				t.Fatal(err)
			}
			if offset%50 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if start := w.shard.state.Start(); start < 100 {
			t.Errorf("the state log begins with offset %d", start)
		}
		w.restart()
		if err := w.shard.loadRemoved(); err != nil {
			t.Fatal(err)
		}
		if n := w.shard.removed.Len(); n != 2000 || !w.shard.removed.Has(1) || w.shard.removed.Has(2) {
			t.Errorf("%d removals are known after a restart", n)
		}
	})
}

// TestRemovalsAreNoDamageToCursors: cursors are replayed past removals.
func TestRemovalsAreNoDamageToCursors(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		w.shard.publish("o", "o", "o")
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		if err := w.shard.remove(3, func() {}); err != nil {
			t.Fatal(err)
		}
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.restart()
		s = w.find("billing")
		if i := s.Info(); i.Trouble != "" || i.Pending != 1 {
			t.Errorf("after a restart it stands at %+v", i)
		}
	})
}

// TestSnapshotsCarryPendingRemovals: a removal that is not on all replicas yet is in no set. A
// snapshot that trims the log has it nevertheless.
func TestSnapshotsCarryPendingRemovals(t *testing.T) {
	snapshotStory(t, 1<<10, func(t *testing.T, w *world) {
		held := make(chan struct{})
		w.shard.holdRemovals = held
		if err := w.shard.remove(7, func() {}); err != nil {
			t.Fatal(err)
		}
		w.shard.holdRemovals = nil
		for offset := range uint64(2000) {
			if err := w.shard.remove(11+2*offset, func() {}); err != nil {
				t.Fatal(err)
			}
			if offset%50 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if start := w.shard.state.Start(); start < 100 {
			t.Errorf("the state log begins with offset %d", start)
		}
		close(held)
		w.restart()
		if err := w.shard.loadRemoved(); err != nil || !w.shard.removed.Has(7) {
			t.Errorf("the removal that was pending is lost (%v)", err)
		}
	})
}
