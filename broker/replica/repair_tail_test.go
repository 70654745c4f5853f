package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// divergedTail makes a and b, whose logs differ in their last segments: b led epoch 1, and has 60
// records there that a never got. a leads epoch 2 and has others. The last segment of b is sealed
// and damaged near its end. It returns where that begins.
func divergedTail(w *world) (from uint64) { return divergedTailOf(w, 201) }

// divergedTailOf is divergedTail with as many records of epoch 2.
func divergedTailOf(w *world, records int) (from uint64) {
	w.t.Helper()
	divergedLogs(w, records)
	b := w.nodes["b"]
	infos := b.logs[orders][Data].SegmentInfos()
	tail := infos[len(infos)-1]
	if tail.Active || tail.Base > 411 || tail.End != 471 {
		w.t.Fatalf("the last segment of b is %+v", tail)
	}
	b.spoilAt(orders, Data, len(infos)-1, tail.Bytes*3/4)
	return tail.Base
}

// divergedLogs is divergedTailOf without damage.
func divergedLogs(w *world, records int) {
	t := w.t
	t.Helper()
	w.place(orders, 1, "b a")
	a, b := w.nodes["a"], w.nodes["b"]
	seal := func(n *node) {
		n.logs[orders][Data].Roll() // as retention by age does
		if err := n.logs[orders][Data].Flush(); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(orders, wide(400)...)
	w.within(time.Second, "a has it all", func() bool { return w.equal(orders, "a b") })
	seal(a)
	seal(b)
	b.publish(orders, wide(10)...)
	w.within(time.Second, "a has it all", func() bool { return w.equal(orders, "a b") })
	w.wires.freeze("b", "a")
	b.append(orders, Data, true, wide(60)...)
	b.leads[orders].End()
	delete(b.leads, orders)
	seal(b)
	w.wires.reset("b")
	w.wires.thaw("b", "a")
	w.place(orders, 2, "a")
	a.publish(orders, wide(1)...) // in a run of its own
	a.publish(orders, wide(records-1)...)
	seal(a)
	b.stop() // nothing of its log stays in memory
	b = w.start("b", b.fs)
	b.open(orders)
	seal(b)
}

// followsEqual has b follow until it is in sync. Then it must have the records of a.
func followsEqual(w *world) {
	w.t.Helper()
	a, b := w.nodes["a"], w.nodes["b"]
	b.follow(orders)
	w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
	_, end, _ := a.logs[orders][Data].Offsets()
	next := func(n *node, at uint64) log.Batch {
		v, err := n.logs[orders][Data].NewCursor(at).Read(1)
		if err != nil {
			return nil
		}
		got, _ := v.Next()
		return got
	}
	for at := uint64(1); at < end; {
		want := next(a, at)
		if want == nil { // a can't read it
			at++
			continue
		}
		if got := next(b, at); !bytes.Equal(got, want) {
			w.t.Fatalf("b is in sync, and record %d is not its leader's", at)
		}
		at = want.End()
	}
}

// TestARefusedRepairOfADivergedTail: the repaired last segment has records of one log only, also if
// its leader refuses to send some. b hears of a new epoch before its leader does, asks for what is
// damaged, and is refused.
func TestARefusedRepairOfADivergedTail(t *testing.T) {
	story(t, "a b", func(w *world) {
		divergedTail(w)
		shard := *w.store.shard(orders)
		shard.Epoch, shard.Replicas = 3, []string{"a", "b"}
		w.store.put(&shard)
		told := w.nodes["b"].mend(orders)
		time.Sleep(300 * time.Millisecond)
		w.spread()
		if err := w.told(told); err != nil {
			w.t.Fatal(err)
		}
		followsEqual(w)
	})
}

// TestADivergedTailBesideADamagedLeader: the same if the leader's copy is damaged in that segment,
// before or behind the record from which on the logs differ. b has what its leader can't send of
// the records before, and uses it. Of those behind, its own ones are others, so nobody has them.
func TestADivergedTailBesideADamagedLeader(t *testing.T) {
	for _, share := range []int64{2, 5, 10, 20, 40} { // percent of the leader's segment
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			story(t, "a b", func(w *world) {
				from := divergedTail(w)
				a, b := w.nodes["a"], w.nodes["b"]
				for i, info := range a.logs[orders][Data].SegmentInfos() {
					if info.Base <= from && from < info.End {
						a.spoilAt(orders, Data, i, info.Bytes*share/100)
						break
					}
				}
				shard := *w.store.shard(orders)
				shard.Replicas = []string{"a", "b"}
				w.store.put(&shard)
				a.see()
				if err := w.told(b.mend(orders)); err != nil {
					t.Fatal(err)
				}
				followsEqual(w)
				bad, lost := a.lost(Data)[0], b.logs[orders][Data].Holes(1)
				if want := bad.Next - bad.From; bad.Next <= 411 && lost > 0 || bad.From >= 411 && lost != want {
					t.Errorf("%d are given up, and the leader lacks %v", lost, bad)
				}
			})
		})
	}
}

// read returns the bytes of a file.
func (w *world) read(fs *crashfs.FS, file string) []byte {
	w.t.Helper()
	f, err := fs.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		w.t.Fatal(err)
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil && err != io.EOF {
		w.t.Fatal(err)
	}
	return data
}

// flipText flips a bit of the n-th place of a file where a text stands.
func (w *world) flipText(fs *crashfs.FS, file, text string, n int) {
	w.t.Helper()
	data := w.read(fs, file)
	pos := -1
	for range n {
		pos += 1 + bytes.Index(data[pos+1:], []byte(text))
	}
	if err := fs.Flip(file, int64(pos)*8); err != nil {
		w.t.Fatal(err)
	}
}

// flipHeader flips two bits in the header of a batch, which then doesn't say of which epoch it is.
func (w *world) flipHeader(fs *crashfs.FS, file string, epoch, offset uint64) {
	w.t.Helper()
	fields := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, epoch), offset)
	pos := int64(bytes.Index(w.read(fs, file), fields))
	if err := errors.Join(fs.Flip(file, pos*8+5), fs.Flip(file, pos*8+64+3)); err != nil {
		w.t.Fatal(err)
	}
}

// hideEpoch restarts a without its first two records of epoch 2, which divergedTail made: they are
// damaged, one behind the other, and neither the manifest, the segment's footer nor the headers of
// their batches say where the epoch begins. b is a replica from then on.
func hideEpoch(w *world) {
	w.t.Helper()
	a := damageEpoch(w, func(fs *crashfs.FS, file string) {
		w.flipHeader(fs, file, 2, 411)
		w.flipHeader(fs, file, 2, 412)
	})
	if epochs := a.logs[orders][Data].Epochs(); epochs[1].Start != 413 {
		w.t.Fatalf("a has the epochs %v", epochs)
	}
	w.addReplica("b")
}

// addReplica makes a broker a replica, and tells the leader a.
func (w *world) addReplica(id string) {
	shard := *w.store.shard(orders)
	shard.Replicas = append(slices.Clone(shard.Replicas), id)
	w.store.put(&shard)
	w.nodes["a"].see()
}

// damageEpoch restarts a without the records 411 and 412, without its manifest, and without the
// footer of their segment. damage damages the two records in a file.
func damageEpoch(w *world, damage func(fs *crashfs.FS, file string)) *node {
	t, a := w.t, w.nodes["a"]
	t.Helper()
	if err := a.logs[orders][Data].Flush(); err != nil {
		t.Fatal(err)
	}
	infos := a.logs[orders][Data].SegmentInfos()
	info := infos[slices.IndexFunc(infos, func(s log.SegmentInfo) bool { return s.Base <= 411 && 411 < s.End })]
	a.stop()
	fs := a.fs.(*crashfs.FS)
	damage(fs, info.File)
	file, err := fs.Stat(info.File)
	if err := errors.Join(err, fs.Flip(info.File, (file.Size-100)*8), fs.Remove(path.Dir(info.File)+"/manifest")); err != nil {
		t.Fatal(err)
	}
	a = w.start("a", fs)
	if lost := a.lost(Data); !slices.Equal(lost, []log.Span{{From: 411, Next: 412}, {From: 412, Next: 413}}) {
		t.Fatalf("a lacks %v", lost)
	}
	return a
}

// flipEpoch damages the payloads of the records 411 and 412.
func (w *world) flipEpoch(fs *crashfs.FS, file string) {
	w.flipText(fs, file, "0 xxxx", 2) // 411, if the first one is 401
	w.flipText(fs, file, "0 xxxx", 2) // 412, since that of 411 is another text now
}

// TestADivergedTailBesideAHiddenEpoch: the first two records of the leader's epoch are damaged, one
// behind the other, and neither its manifest nor its segment's footer says where the epoch begins.
// The epoch of the first one is not known, so b, which has a record of an earlier epoch there,
// does not take that for its leader's.
func TestADivergedTailBesideAHiddenEpoch(t *testing.T) {
	story(t, "a b", func(w *world) {
		from := divergedTail(w)
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(1)...)
		hideEpoch(w)
		segment := func(n *node) log.SegmentInfo {
			infos := n.logs[orders][Data].SegmentInfos()
			return infos[slices.IndexFunc(infos, func(s log.SegmentInfo) bool { return s.Base <= 411 && 411 < s.End })]
		}
		if from < 411 { // 412 is to be given up
			w.flipText(b.fs.(*crashfs.FS), segment(b).File, "1 xxxx", 2)
		} else {
			w.flipText(b.fs.(*crashfs.FS), segment(b).File, "1 xxxx", 1)
		}
		told := b.mend(orders)
		time.Sleep(10 * time.Second)
		if len(told) > 0 {
			err := <-told
			v, _ := b.logs[orders][Data].NewCursor(411).Read(1)
			got, _ := v.Next()
			t.Errorf("b is repaired (%v), with a record of epoch %d at 411", err, got.Epoch())
		}
	})
}

// epochOf returns the epoch of a record.
func (n *node) epochOf(offset uint64) uint64 {
	n.w.t.Helper()
	v, err := n.logs[orders][Data].NewCursor(offset).Read(1)
	if err != nil {
		n.w.t.Fatal(err)
	}
	defer v.Release()
	b, _ := v.Next()
	return b.Epoch()
}

// TestAFollowerOfALeaderWithAHiddenEpoch: the leader does not know where its epoch begins. b has
// records of an earlier epoch in place of damaged ones, and c, which is away, has the leader's. So
// b waits for c, which leads, and then gets what c has.
func TestAFollowerOfALeaderWithAHiddenEpoch(t *testing.T) {
	story(t, "a b c", func(w *world) {
		divergedLogs(w, 201)
		b, c := w.nodes["b"], w.nodes["c"]
		shard := *w.store.shard(orders)
		shard.Replicas = []string{"a", "c"}
		w.store.put(&shard)
		w.spread()
		w.within(5*time.Second, "c has it all", func() bool { return w.equal(orders, "a c") })
		fs := c.kill()
		hideEpoch(w)
		b.see()
		time.Sleep(20 * time.Second)
		if copies, _ := b.follows[orders].State(); copies || b.epochOf(411) != 1 {
			t.Fatalf("b copies: %v, and its record 411 is of epoch %d", copies, b.epochOf(411))
		}
		c = w.startWithout(func() *node { return w.start("c", fs) })
		c.open(orders)
		w.place(orders, 3, "c (a) (b)")
		a := w.nodes["a"]
		if err := w.told(a.mend(orders)); err != nil {
			t.Fatal(err)
		}
		a.follow(orders)
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") && w.equal(orders, "a b c") })
		if epoch := b.epochOf(411); epoch != 2 {
			t.Errorf("the record 411 of b is of epoch %d", epoch)
		}
	})
}

// TestAFollowersManifestShowsAHiddenEpoch: the same, and c lacks the records that the leader lacks,
// too. Its manifest says where the epoch begins. So b does not keep its own ones, and those are
// given up.
func TestAFollowersManifestShowsAHiddenEpoch(t *testing.T) {
	story(t, "a b c", func(w *world) {
		divergedLogs(w, 201)
		a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
		shard := *w.store.shard(orders)
		shard.Replicas = []string{"a", "c"}
		w.store.put(&shard)
		w.spread()
		w.within(5*time.Second, "c has it all", func() bool { return w.equal(orders, "a c") })
		if err := c.logs[orders][Data].Flush(); err != nil {
			t.Fatal(err)
		}
		infos := c.logs[orders][Data].SegmentInfos()
		info := infos[slices.IndexFunc(infos, func(s log.SegmentInfo) bool { return s.Base <= 411 && 411 < s.End })]
		c.stop()
		fs := c.fs.(*crashfs.FS)
		w.flipHeader(fs, info.File, 2, 411)
		w.flipHeader(fs, info.File, 2, 412)
		hideEpoch(w)
		c = w.startWithout(func() *node { return w.start("c", fs) })
		if found, err := c.open(orders)[Data].Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) == 0 {
			t.Fatalf("c is not damaged: %v", err)
		}
		told := c.mend(orders)
		a = w.nodes["a"]
		w.within(5*time.Second, "a knows where the epoch begins", func() bool { return a.logs[orders][Data].Epochs()[1].Start == 411 })
		b.see()
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		w.place(orders, 3, "c (a) (b)") // it is whole, and its leader is not
		if err := w.told(a.mend(orders)); err != nil {
			t.Fatal(err)
		}
		a.follow(orders)
		w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
		if epoch, holes := b.epochOf(411), b.logs[orders][Data].Holes(1); epoch == 1 || holes != 2 {
			t.Errorf("the record 411 of b is of epoch %d, and %d are given up", epoch, holes)
		}
		if !w.equal(orders, "a b c") {
			t.Error("the logs differ")
		}
	})
}

// TestTheOnlyFollowersOfALeaderWithAHiddenEpoch: the same, and no replica has records of the
// leader's epoch in that place. So b keeps its own ones: they may have been acknowledged.
func TestTheOnlyFollowersOfALeaderWithAHiddenEpoch(t *testing.T) {
	for _, others := range []string{"", "c"} {
		t.Run("beside "+others, func(t *testing.T) {
			story(t, "a b c", func(w *world) {
				divergedLogs(w, 201)
				b := w.nodes["b"]
				shard := *w.store.shard(orders)
				shard.Replicas = append([]string{"a"}, strings.Fields(others)...)
				w.wires.freeze("c", "a") // it has nothing yet
				w.store.put(&shard)
				hideEpoch(w)
				w.wires.reset("c")
				w.wires.thaw("c", "a")
				w.spread()
				w.within(10*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
				if epoch := b.epochOf(411); epoch != 1 {
					t.Errorf("the record 411 of b is of epoch %d", epoch)
				}
				synctest.Wait() // until nobody logs
				if !strings.Contains(w.nodes["a"].out.String(), "A follower keeps its own records in place of damaged ones") {
					t.Error("a doesn't log that they may be others")
				}
			})
		})
	}
}

// TestADamagedBatchShowsWhereAnEpochBegins: the first two records of the leader's epoch are
// damaged, no other replica has them, and the manifest is lost. The headers of their batches show
// the epoch. So b, which has records of an earlier epoch there, doesn't keep them, whether it
// follows or repairs its copy: what nobody has is given up.
func TestADamagedBatchShowsWhereAnEpochBegins(t *testing.T) {
	for _, repairs := range []bool{false, true} {
		t.Run(fmt.Sprint("repairs: ", repairs), func(t *testing.T) {
			story(t, "a b", func(w *world) {
				if repairs {
					divergedTail(w)
				} else {
					divergedLogs(w, 201)
				}
				damageEpoch(w, w.flipEpoch)
				w.addReplica("b")
				if repairs {
					if err := w.told(w.nodes["b"].mend(orders)); err != nil {
						t.Fatal(err)
					}
				}
				w.nodes["b"].see()
				followsEqual(w)
				a, b := w.nodes["a"], w.nodes["b"]
				if epoch, holes := b.epochOf(411), b.logs[orders][Data].Holes(1); epoch == 1 || holes != 2 || a.given()+b.given() == 0 {
					t.Errorf("the record 411 of b is of epoch %d, and %d are given up", epoch, holes)
				}
			})
		})
	}
}

// TestADivergedTailBesideDamageThatHidesItsEpoch: what follows the leader's damage doesn't show its
// epoch, since another one begins in it or behind it, or since the log ends there. The manifest
// does. So b uses its own records of that epoch, and its records of an earlier one are none of its
// leader's log.
func TestADivergedTailBesideDamageThatHidesItsEpoch(t *testing.T) {
	type flip struct {
		text string
		n    int // which record with that text
	}
	end410, begin411 := flip{"9 xxxx", 1}, flip{"0 xxxx", 2}
	for name, at := range map[string]struct {
		records int // of the leader's epoch
		flips   []flip
		lacks   log.Span
		lost    uint64 // offsets
	}{
		"the epoch begins behind it": {201, []flip{end410}, log.Span{From: 410, Next: 411}, 0},
		"the epoch begins with it":   {201, []flip{begin411}, log.Span{From: 411, Next: 412}, 1},
		"the epoch begins in it":     {201, []flip{end410, begin411}, log.Span{From: 410, Next: 412}, 1},
		"the log ends with it":       {60, []flip{{"58 xxxx", 1}}, log.Span{From: 470, Next: 471}, 1},
	} {
		for _, manifest := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, with a manifest: %v", name, manifest), func(t *testing.T) {
				story(t, "a b", func(w *world) {
					divergedTailOf(w, at.records)
					a, b := w.nodes["a"], w.nodes["b"]
					infos := a.logs[orders][Data].SegmentInfos()
					has := func(s log.SegmentInfo) bool { return s.Base <= at.lacks.From && at.lacks.From < s.End }
					info := infos[slices.IndexFunc(infos, has)]
					a.stop() // nothing of its log stays in memory
					fs := a.fs.(*crashfs.FS)
					for _, f := range at.flips {
						w.flipText(fs, info.File, f.text, f.n)
					}
					if !manifest {
						if err := fs.Remove(path.Dir(info.File) + "/manifest"); err != nil {
							t.Fatal(err)
						}
					}
					a = w.start("a", fs)
					if _, err := a.logs[orders][Data].Scrub(context.Background(), log.ScrubOptions{}); err != nil {
						t.Fatal(err)
					}
					if lost := union(nil, a.lost(Data)); !slices.Equal(lost, []log.Span{at.lacks}) {
						t.Fatalf("a lacks %v", lost)
					}
					shard := *w.store.shard(orders)
					shard.Replicas = []string{"a", "b"}
					w.store.put(&shard)
					a.see()
					if err := w.told(b.mend(orders)); err != nil {
						t.Fatal(err)
					}
					followsEqual(w)
					if n := b.logs[orders][Data].Holes(1); n != at.lost {
						t.Errorf("%d are given up", n)
					}
				})
			})
		}
	}
}

// TestTwoReplicasWithDamageInTheLastSegment: leader and follower lack the same record of the
// follower's last segment, which is given up, or each another one, and then none is.
func TestTwoReplicasWithDamageInTheLastSegment(t *testing.T) {
	for name, spoil := range map[string]func(a, b *node, last int){
		"the same": func(a, b *node, last int) { b.spoilToo(Data, a) },
		"others":   func(a, b *node, last int) { b.spoilAt(orders, Data, last, 1500) },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "a b", func(w *world) {
				w.place(orders, 1, "a b")
				a, b := w.nodes["a"], w.nodes["b"]
				a.publish(orders, wide(2000)...)
				w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
				for _, n := range []*node{a, b} { // as retention by age does
					n.logs[orders][Data].Roll()
				}
				a.publish(orders, wide(12)...)
				w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
				for _, n := range []*node{a, b} {
					n.stop() // nothing of its log stays in memory
				}
				a, b = w.start("a", a.fs), w.start("b", b.fs)
				w.within(5*time.Second, "b follows again", func() bool { return w.inSync(orders, "a b") })
				b.follows[orders].End()
				for _, n := range []*node{a, b} {
					n.logs[orders][Data].Roll()
				}
				a.spoilAt(orders, Data, len(a.logs[orders][Data].SegmentInfos())-1, 3000)
				if err := b.logs[orders][Data].Flush(); err != nil {
					t.Fatal(err)
				}
				spoil(a, b, len(b.logs[orders][Data].SegmentInfos())-1)
				a.publish(orders, wide(1)...)
				both := sum(intersect(a.lost(Data), b.lost(Data)))
				if (name == "the same") != (both > 0) {
					t.Fatalf("a lacks %v, b %v", a.lost(Data), b.lost(Data))
				}
				if err := w.told(b.mend(orders)); err != nil {
					t.Fatal(err)
				}
				if n := b.x.Stats().GivenUp; n != both {
					t.Errorf("%d are given up, and %d were lost", n, both)
				}
				b.follow(orders)
				w.within(5*time.Second, "b is in sync", func() bool { return w.inSync(orders, "a b") })
			})
		})
	}
}

// TestARepairBesideAFileThatCantBeRead: the disk can't read the damaged segment of b at all, and
// the leader's copy is damaged in the same one. b waits. It does not fetch again and again what its
// leader can send.
func TestARepairBesideAFileThatCantBeRead(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(2000)...)
		w.within(time.Second, "b has it all", func() bool { return w.equal(orders, "a b") })
		info := a.spoilAt(orders, Data, 8, 40_000)
		b.spoilAt(orders, Data, 8, 3000)
		file := b.logs[orders][Data].SegmentInfos()[8].File
		b.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if op.Kind == "read" && op.Path == file {
				return syscall.EIO
			}
			return nil
		})
		b.mend(orders)
		time.Sleep(30 * time.Second)
		b.fs.(*crashfs.FS).SetHook(nil)
		_, why := b.follows[orders].State()
		if s := b.x.Stats(); int64(s.InRepairBytes) > info.Bytes || s.Repaired > 0 {
			w.t.Errorf("%d bytes came for a segment of %d, and %d were repaired: %q", s.InRepairBytes, info.Bytes, s.Repaired, why)
		}
	})
}

// TestALeaderDoesNotTakeADivergedTail: the first two records of the leader's epoch are damaged, and
// nothing says where the epoch begins. b has records of an earlier epoch there, which are not its
// leader's, and offers them.
func TestALeaderDoesNotTakeADivergedTail(t *testing.T) {
	story(t, "a b", func(w *world) {
		divergedTail(w)
		a, b := w.nodes["a"], w.nodes["b"]
		a.publish(orders, wide(1)...)
		hideEpoch(w)
		a = w.nodes["a"]
		told := b.part(orders)
		if err := w.told(told); err != nil {
			t.Fatal(err)
		}
		if lost := a.lost(Data); len(lost) != 2 || a.x.Stats().Repaired > 0 {
			v, _ := a.logs[orders][Data].NewCursor(411).Read(1)
			got, _ := v.Next()
			t.Errorf("a lacks %v, and has a record of epoch %d at 411", lost, got.Epoch())
		}
	})
}

// TestALeaderTakesTheEndOfAnEpoch: the last records of an epoch are damaged, and the leader's
// manifest says where the next one begins. It takes them from a copy that has nothing of the next
// one.
func TestALeaderTakesTheEndOfAnEpoch(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		fs := w.nodes["b"].kill()
		a := w.nodes["a"]
		last := len(a.logs[orders][Data].SegmentInfos()) - 1
		a.logs[orders][Data].Roll()
		w.place(orders, 2, "a (b)")
		a.publish(orders, wide(10)...)
		a.ruin(orders, Data, last)
		if lost := a.lost(Data); lost[len(lost)-1].Next != 2001 {
			t.Fatalf("a lacks %v", lost)
		}
		b := w.startWithout(func() *node { return w.start("b", fs) })
		w.unwanted(time.Minute, b.part(orders))
		if lost, holes := a.lost(Data), a.logs[orders][Data].Holes(1); len(lost) > 0 || holes > 0 {
			t.Errorf("a lacks %v, and gave up %d", lost, holes)
		}
	})
}
