package replica

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
)

// part offers a follower's copy, which is to be set aside, to its leader. The channel is told when
// the leader wants nothing of it.
func (n *node) part(id ID) <-chan error {
	if f := n.follows[id]; f != nil {
		f.End()
	}
	told := make(chan error, 10)
	n.follows[id] = n.x.Follow(FollowConfig{ID: id, Shard: n.w.store.shard(id), Durability: n.w.durability, Logs: n.open(id),
		Unwanted: func(int64) { told <- nil }})
	return told
}

// TestALeaderTakesWhatItLacksFromACopyThatIsToBeSetAside: a follower can read all its records, and
// must be fetched anew, for example because its manifest was lost. Its leader is damaged. The
// leader takes from the follower what it lacks before the follower's copy goes.
func TestALeaderTakesWhatItLacksFromACopyThatIsToBeSetAside(t *testing.T) {
	for part := range Parts {
		for name, spoil := range map[string]func(a *node) (segments uint64){
			"one record": func(a *node) uint64 { a.spoil(orders, part, 3); return 1 },
			"two records of a segment": func(a *node) uint64 {
				a.spoilAt(orders, part, 3, 1000)
				a.spoilAt(orders, part, 3, 6000)
				return 1
			},
			"a whole segment":         func(a *node) uint64 { a.ruin(orders, part, 3); return 1 },
			"two segments":            func(a *node) uint64 { a.spoil(orders, part, 2); a.spoil(orders, part, 5); return 2 },
			"what it doesn't know of": func(a *node) uint64 { a.flip(part, 4); return 1 },
		} {
			t.Run(part.String()+" "+name, func(t *testing.T) {
				story(t, "a b", func(w *world) {
					filled(w, "a b")
					a, b := w.nodes["a"], w.nodes["b"]
					segments := spoil(a)
					told := b.part(orders)
					time.Sleep(time.Millisecond)
					a.append(orders, Data, true, wide(300)...) // it goes on leading meanwhile
					a.append(orders, State, true, wide(300)...)
					if err := w.told(told); err != nil {
						t.Fatal(err)
					}
					if lost := a.lost(part); len(lost) > 0 {
						t.Fatalf("a still lacks %v", lost)
					}
					if s := a.x.Stats(); s.Repaired != segments || s.GivenUp > 0 {
						t.Errorf("a repaired %d segments and gave up %d records", s.Repaired, s.GivenUp)
					}
					for p := range Parts { // the copy goes, and is fetched anew
						b.follows[orders].End()
						if _, err := b.logs[orders][p].ResetTo(1, 0); err != nil {
							t.Fatal(err)
						}
					}
					b.follow(orders)
					w.within(5*time.Second, "the logs are equal", func() bool { return w.equal(orders, "a b") && w.inSync(orders, "a b") })
					if holes := b.logs[orders][part].Holes(1); holes > 0 {
						t.Errorf("%d records are lost", holes)
					}
				})
			})
		}
	}
}

// TestALeaderReadsItsCopyForEachCopyThatGoes: a bit of the leader's copy flips after it wanted
// nothing of a copy, and nobody notices. Before the next copy goes, the leader reads its own one
// again.
func TestALeaderReadsItsCopyForEachCopyThatGoes(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		if err := w.told(b.part(orders)); err != nil {
			t.Fatal(err)
		}
		a.flip(Data, 3)
		if err := w.told(b.part(orders)); err != nil {
			t.Fatal(err)
		}
		if lost := a.lost(Data); len(lost) > 0 || a.x.Stats().Repaired != 1 {
			t.Errorf("a lacks %v", lost)
		}
	})
}

// TestALeaderRepairsWhatOnlyItsMemoryHas: a bit of the leader's newest segment flips on its disk,
// and its memory has the records still. Before a copy goes that has them on a disk, the leader
// writes them to its own one again.
func TestALeaderRepairsWhatOnlyItsMemoryHas(t *testing.T) {
	for part := range Parts {
		t.Run(part.String(), func(t *testing.T) {
			story(t, "a b", func(w *world) {
				filled(w, "a b")
				a, b := w.nodes["a"], w.nodes["b"]
				lg := a.logs[orders][part]
				lg.Roll()
				_, first, _ := lg.Offsets()
				a.append(orders, part, true, wide(50)...)
				w.within(time.Second, "b has it", func() bool { return w.equal(orders, "a b") })
				a.flip(part, slices.IndexFunc(lg.SegmentInfos(), func(s log.SegmentInfo) bool { return s.Base == first }))
				if err := w.told(b.part(orders)); err != nil {
					t.Fatal(err)
				}
				if found, err := lg.Scrub(context.Background(), log.ScrubOptions{}); err != nil || len(found.Damaged) > 0 || a.x.Stats().Repaired != 1 {
					t.Errorf("a is damaged: %v, %v", found.Damaged, err)
				}
			})
		})
	}
}

// flip flips a bit of a segment that nobody has read since.
func (n *node) flip(p Part, segment int) {
	n.w.t.Helper()
	if err := n.logs[orders][p].Flush(); err != nil {
		n.w.t.Fatal(err)
	}
	info := n.logs[orders][p].SegmentInfos()[segment]
	if err := n.fs.(*crashfs.FS).FlipPayload(info.File, 3000); err != nil {
		n.w.t.Fatal(err)
	}
}

// TestACopyWithOtherRecordsIsNotWanted: what a diverged follower has in place of the leader's
// damaged record is another record, so the leader doesn't take it.
func TestACopyWithOtherRecordsIsNotWanted(t *testing.T) {
	story(t, "a b", func(w *world) {
		w.place(orders, 1, "b (a)")
		w.nodes["b"].publish(orders, wide(2000)...) // a has none of it
		w.nodes["a"].follows[orders].End()
		if _, err := w.nodes["a"].logs[orders][Data].ResetTo(1, 0); err != nil {
			t.Fatal(err)
		}
		w.place(orders, 2, "a (b)")
		a, b := w.nodes["a"], w.nodes["b"]
		b.follows[orders].End()
		a.append(orders, Data, true, wide(2000)...)
		a.spoil(orders, Data, 3)
		lost := a.lost(Data)
		if err := w.told(b.part(orders)); err != nil {
			t.Fatal(err)
		}
		if now := a.lost(Data); len(intersect(lost, now)) == 0 || a.x.Stats().Repaired > 0 {
			t.Errorf("a lacked %v, and lacks %v", lost, now)
		}
	})
}

// TestTwoFollowersUnderRepairCompleteEachOther: the leader lacks two records. Each of two followers
// lacks one of them and has the other. All become whole, and nothing is given up.
func TestTwoFollowersUnderRepairCompleteEachOther(t *testing.T) {
	for name, at := range map[string][2]int64{"b has the first": {6000, 1000}, "c has the first": {1000, 6000}} {
		t.Run(name, func(t *testing.T) {
			story(t, "a b c", func(w *world) {
				filled(w, "a b c")
				a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
				b.spoilAt(orders, Data, 3, at[0])
				c.spoilAt(orders, Data, 3, at[1])
				for _, n := range []*node{b, c} {
					a.spoilToo(Data, n)
				}
				if both := intersect(b.lost(Data), c.lost(Data)); len(both) > 0 {
					t.Fatalf("b and c lack %v", both)
				}
				told := map[*node]<-chan error{b: b.mend(orders), c: c.mend(orders)}
				for n, repaired := range told {
					if err := w.told(repaired); err != nil {
						t.Fatalf("%s: %v", n.id, err)
					}
					n.follow(orders)
				}
				w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
				for _, n := range []*node{a, b, c} {
					if n.x.Stats().GivenUp > 0 || n.logs[orders][Data].Holes(1) > 0 {
						t.Errorf("%s gave up %d", n.id, n.x.Stats().GivenUp)
					}
				}
				wholeFrom(w, "a c", 0, Data)
			})
		})
	}
}

// TestWhatIsNotWantedIsIgnored: a follower that gives what its leader has not asked for, or
// garbage, changes nothing.
func TestWhatIsNotWantedIsIgnored(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		bad := a.spoil(orders, Data, 3)
		l := a.leads[orders]
		conn := a.x.followerConns["b"]
		batches, err := b.follows[orders].readWanted(Data, log.Span{From: bad.Base, Next: bad.End})
		if err != nil {
			t.Fatal(err)
		}
		l.given(conn, &given{part: Data, batches: batches})
		l.mu.Lock()
		l.repair().mend.want = wanted{conn: conn, part: Data, span: log.Span{From: bad.Base, Next: bad.End}, most: 1}
		l.mu.Unlock()
		l.given(conn, &given{part: State, batches: batches})
		l.given(conn, &given{part: Data, batches: []byte("garbage")})
		time.Sleep(time.Second)
		if len(a.lost(Data)) == 0 || a.x.Stats().Repaired > 0 {
			t.Error("a took it")
		}
	})
}

// unwanted waits until the leader wants nothing of a copy, which is then to be set aside.
func (w *world) unwanted(limit time.Duration, told <-chan error) {
	w.t.Helper()
	select {
	case <-told:
	case <-time.After(limit):
		w.t.Fatalf("the copy is wanted after %v", limit)
	}
}

// TestAnOfferedCopyHasDamageThatNobodyKnows: the last segment of the copy has damage where the
// leader's has, and nobody has read it. When the leader wants these records, that is found, and the
// copy can go.
func TestAnOfferedCopyHasDamageThatNobodyKnows(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		last := len(a.logs[orders][Data].SegmentInfos()) - 1
		a.logs[orders][Data].Roll()
		a.spoil(orders, Data, last)
		b.follows[orders].End()
		if err := b.logs[orders][Data].Flush(); err != nil {
			t.Fatal(err)
		}
		info := b.logs[orders][Data].SegmentInfos()[last]
		if !info.Active {
			t.Fatalf("the last segment of b is %+v", info)
		}
		for at := int64(0); b.fs.(*crashfs.FS).FlipPayload(info.File, at) == nil; at += 200 {
		}
		b.fs.(*crashfs.FS).DropCache()
		w.unwanted(time.Minute, b.part(orders))
	})
}

// TestWhatNobodyHasDoesNotKeepACopy: leader and copy lack a record, and the copy has a later one of
// the same segment that the leader lacks. The leader gives up the first one, and takes the other.
func TestWhatNobodyHasDoesNotKeepACopy(t *testing.T) {
	story(t, "a b", func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		a.spoilAt(orders, Data, 3, 1000)
		b.spoilToo(Data, a)
		a.spoilAt(orders, Data, 3, 9000)
		both := intersect(a.lost(Data), b.lost(Data))
		if len(both) != 1 || len(a.lost(Data)) != 2 {
			t.Fatalf("a lacks %v, and b %v", a.lost(Data), b.lost(Data))
		}
		w.unwanted(time.Minute, b.part(orders))
		if lost, holes := a.lost(Data), a.logs[orders][Data].Holes(1); len(lost) > 0 || holes != sum(both) {
			t.Errorf("a lacks %v, and gave up %d of %v", lost, holes, both)
		}
		if n := a.given(); n != 1 || a.x.Stats().GivenUp != sum(both) {
			t.Errorf("%d lines in the log, and %d records are counted", n, a.x.Stats().GivenUp)
		}
	})
}

// TestALeaderWaitsForAReplicaThatIsAway: leader and copy lack a record, and c, which may have it,
// is away. The copy has a later record of the segment, and one of another segment. The leader takes
// the latter, waits for c without reading its log again and again, and then takes both others.
func TestALeaderWaitsForAReplicaThatIsAway(t *testing.T) {
	story(t, "a b c", func(w *world) {
		filled(w, "a b c")
		a, b := w.nodes["a"], w.nodes["b"]
		fs := w.nodes["c"].kill()
		a.spoilAt(orders, Data, 3, 9000)
		b.spoilToo(Data, a)
		a.spoilAt(orders, Data, 3, 1000)
		other := a.spoil(orders, Data, 5)
		told := b.part(orders)
		before := len(a.logs[orders][Data].SegmentInfos())
		for range 300 {
			a.append(orders, Data, true, "one")
			time.Sleep(time.Second)
		}
		if after := len(a.logs[orders][Data].SegmentInfos()); after > before+1 {
			t.Errorf("%d segments became %d", before, after)
		}
		if lost := intersect(a.lost(Data), []log.Span{{From: other.Base, Next: other.End}}); len(lost) > 0 || len(told) > 0 {
			t.Fatalf("a lacks %v, and b is unwanted: %d", lost, len(told))
		}
		c := w.startWithout(func() *node { return w.start("c", fs) })
		w.unwanted(2*time.Minute, c.part(orders)) // it offers what it has, where it would only copy
		w.unwanted(2*time.Minute, told)
		if holes := a.logs[orders][Data].Holes(1); holes > 0 {
			t.Errorf("%d records are lost", holes)
		}
	})
}

// TestADamagedLogIsReadOnce: a leader reads its whole log once before a copy goes, however much it
// takes from the copy.
func TestADamagedLogIsReadOnce(t *testing.T) {
	const rate = 100 << 10
	slowStory(t, "a b", rate, func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		for _, segment := range []int{2, 4, 6, 8} {
			a.spoil(orders, Data, segment)
		}
		bytes := int64(0)
		for _, lg := range a.logs[orders] {
			for _, info := range lg.SegmentInfos() {
				bytes += info.Bytes
			}
		}
		once := time.Duration(bytes) * time.Second / rate
		w.unwanted(once+once/2, b.part(orders))
	})
}

// TestOldEpochsAreTakenToo: the damaged record is of an older epoch than those that brokers send of
// their logs.
func TestOldEpochsAreTakenToo(t *testing.T) {
	story(t, "a b", func(w *world) {
		epochs := int64(MaxLineage + 50)
		for epoch := range epochs {
			w.place(orders, 1+epoch, "a b")
			w.nodes["a"].publish(orders, wide(3)...)
		}
		a, b := w.nodes["a"], w.nodes["b"]
		a.spoilAt(orders, Data, 1, 3000)
		w.unwanted(time.Minute, b.part(orders))
		if lost, holes := a.lost(Data), a.logs[orders][Data].Holes(1); len(lost) > 0 || holes > 0 {
			t.Errorf("a lacks %v, and gave up %d", lost, holes)
		}
	})
}

// TestACopyThatItsDiskDoesNotReadIsKept: while the disk does not read what the leader lacks, the
// copy stays. If the leader lacks nothing, it goes.
func TestACopyThatItsDiskDoesNotReadIsKept(t *testing.T) {
	for _, lacks := range []bool{true, false} {
		story(t, "a b", func(w *world) {
			filled(w, "a b")
			a, b := w.nodes["a"], w.nodes["b"]
			if lacks {
				a.spoilAt(orders, Data, 3, 1000)
			}
			info := b.spoilAt(orders, Data, 3, 9000)
			b.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
				if op.Kind == "read" && op.Path == info.File {
					return syscall.EIO
				}
				return nil
			})
			told := b.part(orders)
			if lacks {
				time.Sleep(time.Minute)
				if len(told) > 0 {
					t.Fatal("the copy goes")
				}
				b.fs.(*crashfs.FS).SetHook(nil)
			}
			w.unwanted(time.Minute, told)
			if lost := a.lost(Data); len(lost) > 0 {
				t.Errorf("a lacks %v", lost)
			}
		})
	}
}

// spoilRecord damages exactly one of the records that filled made.
func (n *node) spoilRecord(offset uint64) {
	n.w.t.Helper()
	lg := n.logs[orders][Data]
	if err := lg.Flush(); err != nil {
		n.w.t.Fatal(err)
	}
	for _, info := range lg.SegmentInfos() {
		if info.Base <= offset && offset < info.End {
			n.w.flipText(n.fs.(*crashfs.FS), info.File, fmt.Sprintf("%d xxxx", offset-1), 1)
		}
	}
	if _, err := lg.Scrub(context.Background(), log.ScrubOptions{}); err != nil {
		n.w.t.Fatal(err)
	}
	if lost := n.lost(Data); !covers(lost, log.Span{From: offset, Next: offset + 1}) {
		n.w.t.Fatalf("%s lacks %v, and not %d", n.id, lost, offset)
	}
}

// TestTwoFollowersCompleteEachOtherBesideWhatIsLost: as before, and all three lack another record
// of the segment. That one is given up, and nothing else.
func TestTwoFollowersCompleteEachOtherBesideWhatIsLost(t *testing.T) {
	for name, at := range map[string][3]uint64{ // what all, b and c lack
		"before them":  {140, 150, 160},
		"between them": {150, 140, 160},
		"behind them":  {160, 140, 150},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, "a b c", func(w *world) {
				filled(w, "a b c")
				a, b, c := w.nodes["a"], w.nodes["b"], w.nodes["c"]
				for _, offset := range at {
					a.spoilRecord(offset)
				}
				for n, own := range map[*node]uint64{b: at[1], c: at[2]} {
					n.spoilRecord(at[0])
					n.spoilRecord(own)
				}
				toldB, toldC := b.mend(orders), c.mend(orders)
				for n, told := range map[*node]<-chan error{b: toldB, c: toldC} {
					if err := w.told(told); err != nil {
						t.Fatalf("%s: %v", n.id, err)
					}
					n.follow(orders)
				}
				w.within(5*time.Second, "all are in sync", func() bool { return w.inSync(orders, "a b c") })
				wholeFrom(w, "a c", 1, Data)
			})
		})
	}
}

// TestALargestRecordIsTaken: what a follower gives may be one batch of the largest size, and then
// its frame is larger than the frames of a leader.
func TestALargestRecordIsTaken(t *testing.T) {
	id := ID{Topic: strings.Repeat("o", 250)}
	story(t, "a b", func(w *world) {
		w.place(id, 1, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		lg := a.logs[id][Data]
		a.publish(id, "small")
		largest := &log.Append{Epoch: 1, Records: []log.Record{{Subject: []byte("orders"), Data: bytes.Repeat([]byte("x"), limits.BatchBytes)}}, Durability: log.Memory}
		first, err := lg.Append(largest)
		for err != nil && len(largest.Records[0].Data) > limits.BatchBytes/2 {
			largest.Records[0].Data = largest.Records[0].Data[1:]
			first, err = lg.Append(largest)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.leads[id].Appended(Data, first+1, true)
		lg.Roll()
		a.publish(id, wide(100)...)
		w.within(5*time.Second, "b has it", func() bool { return w.equal(id, "a b") })
		a.spoilAt(id, Data, slices.IndexFunc(lg.SegmentInfos(), func(s log.SegmentInfo) bool { return s.Base <= first && first < s.End }), 5000)
		if lost, err := lg.Unreadable(); err != nil || len(lost) != 1 {
			t.Fatalf("a lacks %v, %v", lost, err)
		}
		w.unwanted(time.Minute, b.part(id))
		if lost, err := lg.Unreadable(); err != nil || len(lost) > 0 {
			t.Errorf("a lacks %v, %v", lost, err)
		}
	})
}

// TestEndDoesNotWaitForALogThatIsRead: a leader that reads its whole log ends at once. An End that
// waits for the reader would stop the time of the story, so it would never end.
func TestEndDoesNotWaitForALogThatIsRead(t *testing.T) {
	slowStory(t, "a b", 1<<10, func(w *world) {
		filled(w, "a b")
		a, b := w.nodes["a"], w.nodes["b"]
		b.part(orders)
		time.Sleep(10 * time.Second)
		leading := a.leads[orders]
		leading.mu.Lock()
		read := leading.repair().mend.read
		leading.mu.Unlock()
		if read > 0 {
			t.Fatal("it was read already")
		}
		began := time.Now()
		leading.End()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
