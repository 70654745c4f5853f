package topic

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// leaderOf waits until requests find the leader of a Topic.
func (n *site) leaderOf(name string) (leader *ShardLeader) {
	n.t.Helper()
	n.eventually("requests find the leader of "+name, func() bool {
		leader = n.service.Topic(name).Shard()
		return leader != nil
	})
	return leader
}

// ranges returns removed offsets as text.
func ranges(set *removal.Set) (out []string) {
	for from, next := range set.Ranges(0, 1000) {
		out = append(out, fmt.Sprint(from, "-", next-1))
	}
	return out
}

// erase removes records, and waits until that is durable.
func (n *site) erase(s *ShardLeader, offsets ...uint64) error {
	n.t.Helper()
	done := make(chan error, 1)
	if err := s.Remove(s.Spans(offsets), func(err error) { done <- err }); err != nil {
		return err
	}
	return received(n.t, done)
}

// received waits for the result of a removal.
func received(t testing.TB, done chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(testutil.Patience):
		t.Fatal("a removal has no result")
		return nil
	}
}

// TestRemovedRecordsStayRemoved: what was removed is removed in the next life, too, and after the
// state log was trimmed behind a snapshot with the leader's Items. Removing it again is harmless.
func TestRemovedRecordsStayRemoved(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	for i := range 10 {
		n.ask("orders.a", fmt.Sprint(i))
	}
	s := n.leaderOf("orders")
	for range 2 {
		if err := n.erase(s, 2, 5, 6, 7); err != nil {
			t.Fatal(err)
		}
	}
	if got := ranges(s.Removed()); !slices.Equal(got, []string{"2-2", "5-7"}) {
		t.Fatalf("removed: %v", got)
	}
	n.restart("orders")
	s = n.leaderOf("orders")
	if err := n.erase(s, 9); err != nil {
		t.Fatal(err)
	}
	var items [][]byte
	for r := range s.RemovalItems {
		items = append(items, slices.Clone(r.Data))
	}
	var spans []removal.Span
	for _, item := range items {
		if err := removal.EachSpan(item, func(s removal.Span) { spans = append(spans, s) }); err != nil {
			t.Fatal(err)
		}
	}
	want := []removal.Span{{Epoch: 1, From: 2, Next: 3}, {Epoch: 1, From: 5, Next: 8}, {Epoch: 1, From: 9, Next: 10}}
	if !slices.Equal(spans, want) {
		t.Errorf("a snapshot has %v", spans)
	}
	copied, _, err := n.service.Topic("orders").shards[0].removals()
	if err != nil || !slices.Equal(ranges(copied), ranges(s.Removed())) {
		t.Errorf("the copy has %v (%v)", ranges(copied), err)
	}
}

// TestOnlyReadableRecordsAreRemoved: offsets beyond the high watermark and below the start are not
// removed, since no record of this shard that a client knows has them.
func TestOnlyReadableRecordsAreRemoved(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	for i := range 5 {
		n.ask("orders.a", fmt.Sprint(i))
	}
	s := n.leaderOf("orders")
	if _, err := s.Purge(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	start, _ := s.Offsets()
	done := make(chan error, 2)
	spans := []removal.Span{{Epoch: 1, From: 1, Next: 100}, {Epoch: 7, From: 4, Next: 5}}
	if err := s.Remove(spans, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := received(t, done); err != nil {
		t.Fatal(err)
	}
	if got := ranges(s.Removed()); !slices.Equal(got, []string{fmt.Sprint(start, "-5")}) {
		t.Errorf("removed: %v; the log begins with %d", got, start)
	}
}

// TestRemovalsFollowTheLeader: a removal that was answered is on every in-sync replica. When the
// leader dies, the next one has it before readers see anything. A leader that others have replaced
// can't remove.
func TestRemovalsFollowTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b := c.sites[0], c.sites[1]
	c.begin()
	for i := range 10 {
		a.expect(a.ask("orders.a", fmt.Sprint(i)), fmt.Sprintf("orders@%d", i+1))
	}
	if err := a.erase(a.leaderOf("orders"), 4, 5); err != nil {
		t.Fatal(err)
	}
	c.kill(0)
	c.elect(1, 1, 2)
	c.tell()
	b.open("orders")
	s := b.leaderOf("orders")
	if got := ranges(s.Removed()); !slices.Equal(got, []string{"4-5"}) {
		t.Fatalf("the next leader has removed %v", got)
	}
	if err := b.erase(s, 7); err != nil {
		t.Fatal(err)
	}
	c.elect(2, 1, 2)
	c.tell()
	d := c.sites[2]
	d.open("orders")
	if got := ranges(d.leaderOf("orders").Removed()); !slices.Equal(got, []string{"4-5", "7-7"}) {
		t.Fatalf("the third leader has removed %v", got)
	}
	if err := b.erase(s, 8); err == nil {
		t.Error("a former leader removed a record")
	}
}
