package replica

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// part offers a follower's copy, which is to be set aside, to its leader. The channel is told when
// the leader wants nothing of it.
func (n *node) part(id ID) <-chan error {
	n.follows[id].End()
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
		l.repair().mend.want = wanted{conn, Data, log.Span{From: bad.Base, Next: bad.End}}
		l.mu.Unlock()
		l.given(conn, &given{part: State, batches: batches})
		l.given(conn, &given{part: Data, batches: []byte("garbage")})
		time.Sleep(time.Second)
		if len(a.lost(Data)) == 0 || a.x.Stats().Repaired > 0 {
			t.Error("a took it")
		}
	})
}
