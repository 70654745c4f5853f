package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// spoil flips a bit in a sealed segment of a log and makes the log detect it. It returns the
// segment.
func (n *node) spoil(id ID, p Part, segment int) log.SegmentInfo {
	n.w.t.Helper()
	return n.spoilAt(id, p, segment, 3000)
}

// spoilAt is spoil with a bit behind that byte of the segment.
func (n *node) spoilAt(id ID, p Part, segment int, at int64) log.SegmentInfo {
	n.w.t.Helper()
	lg := n.logs[id][p]
	if err := lg.Flush(); err != nil { // so that what is to be sealed is sealed
		n.w.t.Fatal(err)
	}
	info := lg.SegmentInfos()[segment]
	if err := n.fs.(*crashfs.FS).FlipPayload(info.File, at); err != nil {
		n.w.t.Fatal(err)
	}
	if found, err := lg.Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) == 0 {
		n.w.t.Fatalf("nothing was found: %v", err)
	}
	return info
}

// ruin is spoil with bits that flip in all batches of the segment, so that nothing of it can be
// read.
func (n *node) ruin(id ID, p Part, segment int) {
	n.w.t.Helper()
	info := n.logs[id][p].SegmentInfos()[segment]
	for at := int64(0); n.fs.(*crashfs.FS).FlipPayload(info.File, at) == nil; at += 200 {
	}
	n.spoil(id, p, segment)
	for at := info.Base; at < info.End; {
		v, err := n.logs[id][p].NewCursor(at).Read(1)
		v.Release()
		damage, ok := errors.AsType[*log.CorruptError](err)
		if !ok {
			n.w.t.Fatalf("record %d of the segment from %d to %d can be read: %v", at, info.Base, info.End, err)
		}
		at = damage.Next
	}
}

// mend repairs the logs of a follower. The channel receives the result.
func (n *node) mend(id ID) <-chan error {
	if f := n.follows[id]; f != nil {
		f.End()
	}
	told := make(chan error, 10)
	n.follows[id] = n.x.Follow(FollowConfig{ID: id, Shard: n.w.store.shard(id), Durability: n.w.durability, Logs: n.open(id), RepairEnded: func(err error) { told <- err }})
	return told
}

// follow makes a follower copy again.
func (n *node) follow(id ID) {
	n.follows[id].End()
	delete(n.follows, id)
	n.see()
}

func (w *world) told(told <-chan error) error {
	w.t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(testutil.Patience):
		w.t.Fatalf("nothing was told: %s", w.nodes["b"].out.String())
		return nil
	}
}

// wide returns payloads that fill segments.
func wide(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("%d %s", i, strings.Repeat("x", 500)))
	}
	return texts
}

// TestASegmentIsFetchedAlone: one flipped bit in a log of many segments costs the transfer of that
// segment only. Until it is repaired the follower confirms nothing.
func TestASegmentIsFetchedAlone(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.minInSync = 2
		w.place(orders, 1, "a b c")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(2000)...)
		a.append(orders, State, true, wide(300)...)
		w.within(time.Second, "b has the cursors", func() bool { _, end, _ := b.logs[orders][State].Offsets(); return end == 301 })
		bad := b.spoil(orders, Data, 3)
		cursors := b.spoil(orders, State, 1)
		segments := len(b.logs[orders][Data].SegmentInfos())
		w.wires.freeze("a", "b")
		told := b.mend(orders)
		end := a.append(orders, Data, true, "while b is damaged")
		time.Sleep(DisconnectTime - time.Second)
		if a.leads[orders].High(Data) >= end {
			t.Error("acknowledged although a member of the set doesn't have it")
		}
		w.wires.thaw("a", "b")
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		s := b.x.Stats()
		if most := bad.Bytes + cursors.Bytes; s.Repaired != 2 || int64(s.InRepairBytes) > most || s.InRepairBytes < uint64(most)*9/10 || s.InRepairBytes != a.x.Stats().OutRepairBytes {
			t.Errorf("%d segments of %d: %d bytes came for %d; %d were sent", s.Repaired, segments, s.InRepairBytes, most, a.x.Stats().OutRepairBytes)
		}
		t.Logf("one flipped bit in each log, of %d segments: %d bytes", segments, s.InRepairBytes)
		before := s.InBytes
		b.follow(orders)
		w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b c") && a.leads[orders].High(Data) == end })
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
		if s := b.x.Stats(); s.Resets+s.Truncations > 0 || s.InBytes-before > 2000 {
			t.Errorf("more than the segments was copied: %+v", s)
		}
	})
}

// TestALostTailIsFetched: the end of a log is lost, with the start of an epoch of which no other
// record remains. Only that is fetched.
func TestALostTailIsFetched(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(2000)...)
		w.place(orders, 2, "a b")
		a.publish(orders, wide(20)...)
		w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
		infos := b.logs[orders][Data].SegmentInfos()
		tail := infos[len(infos)-1]
		w.place(orders, 3, "a") // so that b does not follow before it is checked
		b.follows[orders].End()
		b.stop()
		fs := b.fs.(*crashfs.FS)
		if err := fs.Remove(tail.File); err != nil {
			t.Fatal(err)
		}
		b = w.start("b", fs)
		shard := *w.store.shard(orders)
		shard.Replicas = []string{"a", "b"}
		w.store.put(&shard)
		if r := b.open(orders)[Data].Recovery(); !r.Suspect || r.Strange {
			t.Fatalf("%+v", r)
		}
		told := b.mend(orders)
		w.spread()
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		if s := b.x.Stats(); s.Repaired != 1 || int64(s.InRepairBytes) > tail.Bytes {
			t.Errorf("%d bytes of %d: %+v", s.InRepairBytes, tail.Bytes, s)
		}
		b.follow(orders)
		w.within(2*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
		if !w.equal(orders, "a b") || fmt.Sprint(b.logs[orders][Data].Epochs()) != fmt.Sprint(a.logs[orders][Data].Epochs()) {
			t.Error("the logs differ")
		}
	})
}

// TestFetchingASegmentGoesOn: a repair completes although the connection breaks at any byte, the
// leader changes and its log is trimmed.
func TestFetchingASegmentGoesOn(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.place(orders, 1, "a b c")
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		a.publish(orders, wide(6000)...)
		b.spoil(orders, Data, 12)
		big := b.logs[orders][Data].SegmentInfos()[12]
		told := b.mend(orders)
		for n := 1; n < 4000; n += 317 {
			w.wires.breakAfter("a", "b", n)
			w.wires.breakAfter("b", "a", n/3)
			w.wires.reset("b")
			time.Sleep(time.Second)
		}
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		// The leader changes while the first one sends nothing.
		b.spoil(orders, Data, 10)
		w.wires.freeze("a", "b")
		told = b.mend(orders)
		time.Sleep(500 * time.Millisecond)
		w.place(orders, 2, "c a b")
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		w.wires.thaw("a", "b")
		if sent := c.x.Stats().OutRepairBytes; sent == 0 {
			t.Error("the new leader sent nothing")
		}
		b.follow(orders)
		w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b c") })
		// The leader trims a part of what is damaged, and then all of it.
		b.spoil(orders, Data, 12)
		b.follows[orders].End()
		middle := (big.Base + big.End) / 2
		if _, err := c.logs[orders][Data].Trim(middle); err != nil {
			t.Fatal(err)
		}
		if err := w.told(b.mend(orders)); err != nil {
			t.Fatal(err)
		}
		if start := b.logs[orders][Data].Start(); start != middle {
			t.Errorf("it starts at %d, not %d", start, middle)
		}
		bad := b.spoil(orders, Data, 1)
		before := b.x.Stats().InRepairBytes
		if _, err := c.logs[orders][Data].Trim(bad.End); err != nil {
			t.Fatal(err)
		}
		if err := w.told(b.mend(orders)); err != nil || b.x.Stats().InRepairBytes > before {
			t.Fatalf("%d bytes: %v", b.x.Stats().InRepairBytes-before, err)
		}
		b.follow(orders)
		w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b c") })
		if found, err := b.logs[orders][Data].Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 || !w.equal(orders, "a b c") {
			t.Errorf("the logs differ: %v, %v", found, err)
		}
	})
}

// TestARepairWithoutASourceWaitsOrFails: a repair waits if neither the leader nor this broker can
// read the records, since another leader may come. It fails if the leader never had them or is of a
// version without fetches.
func TestARepairWithoutASourceWaitsOrFails(t *testing.T) {
	story(t, "a b c", func(w *world) {
		w.place(orders, 1, "a b c")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(2000)...)
		a.spoil(orders, Data, 3)
		b.ruin(orders, Data, 3)
		told := b.mend(orders)
		time.Sleep(10 * time.Second)
		if ok, why := b.follows[orders].State(); ok || !strings.Contains(why, "can't be read here") || len(told) > 0 {
			t.Errorf("%v, %q", ok, why)
		}
		a.mu.Lock()
		if len(a.unreadable) == 0 {
			t.Error("the leader doesn't know that it could not read what b lacks")
		}
		a.mu.Unlock()
		if !a.leads[orders].Stalled("b") || a.leads[orders].Stalled("c") {
			t.Error("the leader doesn't know whose repair can't go on")
		}
		if n := b.x.Stats().OutAsks; n > 40 {
			t.Errorf("it asked %d times in 10 s", n)
		}
		w.place(orders, 2, "c a b")
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		b.follow(orders)
		c := w.nodes["c"]
		w.within(5*time.Second, "b is in sync", func() bool { return c.leads[orders].High(Data) >= 2001 })

		// A leader of an earlier version.
		w.dial = func(ctx context.Context, from, to string) (net.Conn, error) {
			conn, err := w.wires.dial(ctx, from, to)
			return &former{conn}, err
		}
		b = w.start("b", w.nodes["b"].kill())
		w.place(orders, 3, "c a (b)")
		b.spoil(orders, Data, 4)
		if err := w.told(b.mend(orders)); !errors.Is(err, errNoFetch) {
			t.Errorf("told %v", err)
		}
		w.dial = nil

		// Records that only b has follow the damaged ones, so these may be b's only, too.
		b = w.start("b", w.nodes["b"].kill())
		w.place(orders, 4, "b a c")
		for _, other := range []string{"a", "c"} {
			w.wires.freeze("b", other)
		}
		b.append(orders, Data, true, wide(300)...)
		b.leads[orders].End()
		delete(b.leads, orders)
		infos := b.logs[orders][Data].SegmentInfos()
		b.spoil(orders, Data, len(infos)-2)
		w.wires.reset("b") // so that nothing of it arrives
		for _, other := range []string{"a", "c"} {
			w.wires.thaw("b", other)
		}
		shard := *w.store.shard(orders)
		shard.Epoch, shard.Leader = 5, "c"
		w.store.put(&shard)
		told = b.mend(orders)
		w.spread()
		unfit, is := errors.AsType[*log.UnfitError](w.told(told))
		if !is || !strings.Contains(unfit.Why, "diverges from its leader's") {
			t.Errorf("told %v", unfit)
		}
	})
}

// TestTwoReplicasWithDamageInTheSameSegment: two replicas lack records of the same segment, and
// different ones. The leader can't send what is damaged in its copy. The other one has it in its
// damaged segment, and becomes whole. Then it can lead, and the former leader becomes whole, too.
func TestTwoReplicasWithDamageInTheSameSegment(t *testing.T) {
	for part := range Parts {
		for _, from := range []string{"a", "b"} { // whose damage comes first
			t.Run(part.String()+" "+from, func(t *testing.T) {
				story(t, "a b", func(w *world) { damagedTwice(t, w, part, from) })
			})
		}
	}
}

func damagedTwice(t *testing.T, w *world, part Part, first string) {
	w.place(orders, 1, "a b")
	a, b := w.nodes["a"], w.nodes["b"]
	a.publish(orders, wide(2000)...)
	a.append(orders, State, true, wide(2000)...)
	w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
	behind := a.logs[orders][part].SegmentInfos()[3].Bytes * 2 / 3
	at := map[string]int64{"a": behind, "b": behind}
	at[first] = 3000
	a.spoilAt(orders, part, 3, at["a"])
	b.spoilAt(orders, part, 3, at["b"])
	if err := w.told(b.mend(orders)); err != nil {
		t.Fatal(err)
	}
	if a.leads[orders].Stalled("b") {
		t.Error("the leader says that b's repair could not go on")
	}
	if found, err := b.logs[orders][part].Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 || len(b.logs[orders][part].Lacks()) > 0 {
		t.Fatalf("b is damaged: %v, %v", found, err)
	}
	b.follow(orders)
	w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })

	w.place(orders, 2, "b (a)")
	if err := w.told(a.mend(orders)); err != nil {
		t.Fatal(err)
	}
	a.follow(orders)
	w.within(5*time.Second, "a is in sync", func() bool { return w.inSync(orders, "a b") })
	if found, err := a.logs[orders][part].Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 || !w.equal(orders, "a b") {
		t.Errorf("the logs differ: %v, %v", found, err)
	}
}

// former is a connection to a broker of an earlier version.
type former struct{ net.Conn }

func (former) SendsSegments() bool { return false }
