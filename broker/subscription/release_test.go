package subscription

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// releaseStory is story with a Topic whose acks remove records.
func releaseStory(t *testing.T, policy coordination.StreamRetention, tell func(t *testing.T, w *world)) {
	t.Helper()
	story(t, func(t *testing.T, w *world) {
		w.retain(policy)
		tell(t, w)
	})
}

// retain changes the retention of the Topic.
func (w *world) retain(policy coordination.StreamRetention) {
	before := coordination.Topic{ID: topicID, Spec: coordination.TopicSpec{Shards: 1, Stream: coordination.StreamSettings{Retention: w.desired.retention}}}
	after := before
	after.Spec.Stream.Retention = policy
	w.desired.retention = policy
	desired := w.desired
	desired.subs = slices.Clone(w.desired.subs)
	w.service.follow(&desired, coordination.Changes{Topics: []coordination.Change[coordination.Topic]{{Before: &before, After: &after}}})
	synctest.Wait()
}

// set changes what a shard does.
func (s *shard) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// holds waits until nothing moves, and compares the records that are left.
func (w *world) holds(what string, want ...uint64) {
	w.t.Helper()
	time.Sleep(4 * lazyFor)
	synctest.Wait()
	if got := w.left(); !slices.Equal(got, want) {
		w.t.Fatalf("%s: %v are left, want %v", what, got, want)
	}
}

func (w *world) left() (left []uint64) {
	start, end := w.shard.Offsets()
	for o := start; o < end; o++ {
		if !w.shard.gone.Has(o) {
			left = append(left, o)
		}
	}
	return left
}

func filtered(filters ...string) coordination.SubscriptionSpec {
	return startAt(coordination.Start{From: coordination.FromEarliest}, filters...)
}

// TestAWorkQueueLosesWhatIsAcknowledged: by an ack or a termination, and with nothing else. What
// was given up stays, and a late ack removes it. The next Subscription gets what is left.
func TestAWorkQueueLosesWhatIsAcknowledged(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o", "o", "o", "o", "o")
		w.holds("without a subscription", 1, 2, 3, 4, 5, 6, 7, 8)
		spec := earliest()
		spec.Ack.Wait, spec.Ack.MaxDeliver = 10*time.Second, 2
		w.declare("worker", 1, spec)
		s := w.find("worker")
		s.Pull(pull("a", 6))
		w.expect("worker", "a", "1", "2", "3", "4", "5", "6")
		w.holds("while all are pending", 1, 2, 3, 4, 5, 6, 7, 8)
		s.Ack(2, 0, 1, Done, 0, nil)
		if err := w.ackNow(s, 3, Term); err != nil {
			t.Fatal(err)
		}
		s.Ack(5, 0, 1, Retry, time.Hour, nil)
		w.holds("two were acknowledged", 1, 4, 5, 6, 7, 8)
		s.Pull(pull("a", 3))
		w.expect("worker", "a", "7", "8")
		s.Ack(7, 0, 1, Done, 0, nil)
		s.Ack(8, 0, 1, Done, 0, nil)
		time.Sleep(11 * time.Second)
		s.Pull(pull("a", 9))
		w.expect("worker", "a", "1 x2", "4 x2", "6 x2")
		time.Sleep(11 * time.Second)
		if i := s.Info(); i.Exhausted != 3 || i.Pending != 1 {
			t.Fatalf("three were given up, and it stands at %+v", i)
		}
		w.holds("three were given up", 1, 4, 5, 6)
		w.restart()
		s = w.find("worker")
		w.holds("after a restart", 1, 4, 5, 6)
		s.Ack(4, 0, 2, Done, 0, nil)
		w.holds("one was acknowledged after it was given up", 1, 5, 6)
		w.undeclare("worker")
		w.changed("worker")
		w.holds("without the subscription", 1, 5, 6)
		w.declare("next", 2, earliest())
		w.find("next").Pull(pull("b", 9))
		w.expect("next", "b", "1", "5", "6")
	})
}

// TestTheRecordsOfAWorkQueueAreDivided: each Subscription removes what matches its filter. What
// none matches stays.
func TestTheRecordsOfAWorkQueueAreDivided(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.declare("a", 1, filtered("a.>"))
		w.declare("b", 2, filtered("b.>"))
		w.shard.publish("a.1", "b.1", "c.1", "a.2", "b.2", "c.2")
		a, b := w.find("a"), w.find("b")
		a.Pull(pull("x", 9))
		w.expect("a", "x", "1", "4")
		w.holds("nothing is acknowledged", 1, 2, 3, 4, 5, 6)
		a.Ack(1, 0, 1, Done, 0, nil)
		a.Ack(4, 0, 1, Done, 0, nil)
		w.holds("those of a", 2, 3, 5, 6)
		b.Pull(pull("x", 1))
		w.expect("b", "x", "2")
		b.Ack(2, 0, 1, Done, 0, nil)
		w.restart()
		w.holds("and one of b", 3, 5, 6)
	})
}

// TestSubscriptionsOfAWorkQueueExcludeEachOther: one that may match the records of an older one is
// served when that is gone.
func TestSubscriptionsOfAWorkQueueExcludeEachOther(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		all := earliest()
		all.Ack.Policy = coordination.AckAll
		for name, spec := range map[string]coordination.SubscriptionSpec{
			"acks-all": all, "late": startAt(coordination.Start{From: coordination.FromLatest}),
		} {
			w.declare(name, 1, spec)
			synctest.Wait()
			if err := w.service.WhyNot(topicID, name); err == nil || !strings.Contains(err.Error(), "work queue") {
				t.Errorf("%s: %v", name, err)
			}
			w.undeclare(name)
			w.changed(name)
		}
		w.declare("z", 5, filtered("o.*.x"))
		w.find("z")
		w.declare("a", 6, filtered("p", "o.1.>"))
		w.declare("other", 7, filtered("p"))
		w.declare("whole", 8, earliest())
		w.find("other")
		for range 2 {
			for _, name := range []string{"a", "whole"} {
				synctest.Wait()
				if err := w.service.WhyNot(topicID, name); err == nil || !strings.Contains(err.Error(), "another subscription") {
					t.Errorf("%s beside z: %v", name, err)
				}
			}
			if _, err := w.service.Create(t.Context(), topicID, "r", filtered("o.>"), time.Minute); err == nil {
				t.Error("there is a reader beside z")
			}
			w.undeclare("other")
			w.changed("other")
			w.restart()
			w.find("z")
		}
		w.undeclare("z")
		w.changed("z")
		w.find("a")
	})
}

// TestTheSameSubscriptionsOfAWorkQueueAreServedAfterAnElection: the older of two is changed so that
// they exclude each other. It is served alone, as by a leader that is elected afterwards. When it
// is changed back, both are.
func TestTheSameSubscriptionsOfAWorkQueueAreServedAfterAnElection(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		served := func(when string, want ...string) {
			t.Helper()
			for range 2 {
				synctest.Wait()
				var got []string
				for _, name := range []string{"old", "young", "youngest"} {
					if w.service.WhyNot(topicID, name) == nil {
						got = append(got, name)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %v are served, want %v", when, got, want)
				}
				when += ", after an election"
				w.restart()
				synctest.Wait()
			}
		}
		w.declare("old", 5, filtered("o.1"))
		w.declare("young", 6, filtered("o.2"))
		w.declare("youngest", 7, filtered("p"))
		served("at first", "old", "young", "youngest")
		w.declare("old", 5, filtered("o.1", "o.2"))
		served("when both want o.2", "old", "youngest")
		w.shard.publish("o.2")
		w.find("old").Pull(pull("a", 1))
		w.expect("old", "a", "1")
		w.declare("old", 5, filtered("o.1"))
		served("when it is changed back", "old", "young", "youngest")
	})
}

// TestARecordGoesWhenNobodyIsInterested: when all interested Subscriptions have acknowledged it,
// and at once if there is none.
func TestARecordGoesWhenNobodyIsInterested(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.holds("before there is a subscription")
		w.declare("all", 1, earliest())
		one := filtered("o.1")
		one.Ack.Policy = coordination.AckAll
		w.declare("one", 2, one)
		none := earliest()
		none.Ack.Policy = coordination.AckNone
		w.declare("none", 3, none)
		all, some, passes := w.find("all"), w.find("one"), w.find("none")
		w.shard.publish("o.1", "o.2", "o.1", "o.1", "o.2")
		w.holds("nothing is delivered", 3, 4, 5, 6, 7)
		passes.Pull(pull("a", 5))
		w.expect("none", "a", "3", "4", "5", "6", "7")
		all.Pull(pull("a", 4))
		w.expect("all", "a", "3", "4", "5", "6")
		for o := uint64(3); o < 6; o++ {
			all.Ack(o, 0, 1, Done, 0, nil)
		}
		w.holds("all and none have got o.2", 3, 5, 6, 7)
		some.Pull(pull("a", 9))
		w.expect("one", "a", "3", "5", "6")
		some.Ack(5, 0, 1, Done, 0, nil)
		w.holds("one acknowledged up to 5", 6, 7)
		w.undeclare("all")
		w.changed("all")
		w.holds("without all", 6)
		w.declare("one", 2, filtered("o.2"))
		w.holds("one wants others")
		w.shard.publish("o.1", "o.2")
		w.holds("nobody wants o.1, and none waits", 8, 9)
		passes.Pull(pull("b", 9))
		w.expect("none", "b", "8", "9")
		w.holds("one waits", 9)
		w.undeclare("one")
		w.changed("one")
		w.undeclare("none")
		w.changed("none")
		w.holds("nobody is left")
	})
}

// TestAReaderHoldsRecords: while it exists.
func TestAReaderHoldsRecords(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		if _, err := w.service.Create(t.Context(), topicID, "r", filtered("o"), time.Minute); err != nil {
			t.Fatal(err)
		}
		w.shard.publish("o", "p", "o")
		w.holds("the reader matches o", 1, 3)
		w.restart()
		w.holds("the reader is there", 1, 3)
		time.Sleep(2 * time.Minute)
		w.holds("the reader was not used")
	})
}

// TestAResetEndsTheNeedOfWhatItPasses: and what a start passes is not needed either.
func TestAResetEndsTheNeedOfWhatItPasses(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		s := w.find("s")
		w.shard.publish("o", "o", "o", "o", "o", "o")
		w.declare("last", 2, startAt(coordination.Start{From: coordination.FromOffset, Offset: 5}))
		w.find("last")
		s.Pull(pull("a", 2))
		w.expect("s", "a", "1", "2")
		if _, err := s.Reset(4, func(error) {}); err != nil {
			t.Fatal(err)
		}
		w.holds("it was reset to 4", 4, 5, 6)
		if _, err := s.Reset(7, func(error) {}); err != nil {
			t.Fatal(err)
		}
		w.holds("it was reset to 7", 5, 6)
	})
}

// TestARetentionByInterestBeginsAndEnds: with the change of the Topic.
func TestARetentionByInterestBeginsAndEnds(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		s := w.find("s")
		w.shard.publish("o", "o", "o", "o")
		s.Pull(pull("a", 3))
		w.expect("s", "a", "1", "2", "3")
		s.Ack(2, 0, 1, Done, 0, nil)
		w.holds("by limits", 1, 2, 3, 4)
		w.retain(coordination.InterestPolicy)
		w.holds("by interest", 1, 3, 4)
		s.Ack(1, 0, 1, Done, 0, nil)
		w.holds("one more", 3, 4)
		w.retain(coordination.LimitsPolicy)
		s.Ack(3, 0, 1, Done, 0, nil)
		w.holds("by limits again", 3, 4)
	})
}

// TestNothingIsRemovedWhileANeedIsUnknown: a Subscription that can't be served, or not be read, may
// need anything. Nor is it while a broker of an earlier version is there.
func TestNothingIsRemovedWhileANeedIsUnknown(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		push := earliest()
		push.Push = &coordination.Push{URL: "https://somewhere"}
		w.declare("push", 1, push)
		w.shard.publish("o", "o")
		w.holds("push can't be served", 1, 2)
		w.restart()
		w.holds("nor after a restart", 1, 2)
		w.undeclare("push")
		w.changed("push")
		w.holds("push is gone")
		w.desired.unreadable = []string{"/x/subscriptions/" + topicID + "/newer"}
		w.follow()
		w.shard.publish("o")
		w.holds("one can't be read", 3)
		w.desired.unreadable, w.desired.former = nil, true
		w.follow()
		time.Sleep(2 * time.Second)
		w.holds("an earlier version is there", 3)
		w.desired.former = false
		w.follow()
		time.Sleep(2 * time.Second)
		w.holds("all is known")
	})
}

// TestANewLeaderRemovesWhatWasAcknowledged: the ack was answered, and its removal never got to the
// log.
func TestANewLeaderRemovesWhatWasAcknowledged(t *testing.T) {
	for _, policy := range []coordination.StreamRetention{coordination.InterestPolicy, coordination.WorkQueue} {
		releaseStory(t, policy, func(t *testing.T, w *world) {
			w.declare("a", 1, filtered("a"))
			w.declare("b", 2, filtered("b"))
			a := w.find("a")
			w.find("b")
			w.shard.publish("a", "b", "a", "b", "a")
			a.Pull(pull("x", 2))
			w.expect("a", "x", "1", "3")
			w.desired.former = true // so that nothing is removed
			w.follow()
			if err := w.ackNow(a, 1, Done); err != nil {
				t.Fatal(err)
			}
			w.holds("nothing is removed yet", 1, 2, 3, 4, 5)
			w.desired.former = false
			w.crash()
			w.holds("the next leader", 2, 3, 4, 5)
		})
	}
}

// TestARemovalFollowsItsAcks: in the state log, in which each later state has both or only the ack.
func TestARemovalFollowsItsAcks(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		s := w.find("s")
		for range 200 {
			w.shard.publish("o")
		}
		s.Pull(pull("a", 200))
		synctest.Wait()
		for o := uint64(1); o <= 200; o += 2 {
			s.Ack(o, 0, 1, Done, 0, nil)
			if o%9 == 0 {
				time.Sleep(lazyFor)
			}
		}
		time.Sleep(4 * lazyFor)
		synctest.Wait()
		acked, removed := map[uint64]bool{}, 0
		c := w.shard.state.NewCursor(w.shard.state.Start())
		for {
			v, err := c.Read(readLargest)
			if err != nil {
				t.Fatal(err)
			}
			if v.End == v.From {
				break
			}
			for b, ok := v.Next(); ok; b, ok = v.Next() {
				it := b.Records()
				for r := (log.Record{}); it.Next(&r); {
					if string(r.Subject) == removal.Subject {
						if err := removal.EachSpan(r.Data, func(s removal.Span) {
							for o := s.From; o < s.Next; o++ {
								if removed++; !acked[o] {
									t.Errorf("%d is removed before its ack", o)
								}
							}
						}); err != nil {
							t.Fatal(err)
						}
						continue
					}
					var it item
					for in := (decoder{data: r.Data}); len(in.data) > 0; {
						if err := in.next(&it, 0); err != nil {
							t.Fatal(err)
						}
						if it.op.kind == opAck {
							for i := range it.op.count {
								acked[it.op.offset+i] = true
							}
						}
					}
				}
			}
			v.Release()
		}
		if removed != 100 {
			t.Errorf("%d records are removed in the log, of 100", removed)
		}
	})
}

// TestWhatIsLeftIsWhatIsNeeded does at random what clients do, with restarts and kills, and
// compares the records that are left with a model.
func TestWhatIsLeftIsWhatIsNeeded(t *testing.T) {
	for _, policy := range []coordination.StreamRetention{coordination.InterestPolicy, coordination.WorkQueue} {
		for seed := range uint64(60) {
			t.Run(fmt.Sprintf("%s %d", policy, seed), func(t *testing.T) {
				snapshotStory(t, 300, func(t *testing.T, w *world) {
					w.retain(policy)
					releaseAtRandom(t, w, rand.New(rand.NewPCG(seed, 5)))
				})
			})
		}
	}
}

// needing is a model of a Subscription.
type needing struct {
	filters []string
	made    int64
	pending map[uint64]bool
}

func (n *needing) matches(subject string) bool {
	return len(n.filters) == 0 || slices.Contains(n.filters, subject)
}

func releaseAtRandom(t *testing.T, w *world, r *rand.Rand) {
	queue := w.desired.retention == coordination.WorkQueue
	subjects := []string{"a", "b", "c"}
	filters := [][]string{{"a"}, {"a", "b"}, {"c"}, nil}
	if queue {
		filters = [][]string{{"a"}, {"b"}, nil} // nil: none of that name
	}
	subs, left, of, end := map[int]*needing{}, map[uint64]bool{}, map[uint64]string{}, uint64(1)
	spec := func(filters []string) coordination.SubscriptionSpec {
		s := earliest()
		s.Subjects, s.Ack.Wait = filters, time.Hour
		return s
	}
	name := func(i int) string { return fmt.Sprintf("s%d", i) }
	for step := range 70 {
		i := r.IntN(len(filters))
		n := subs[i]
		switch r.IntN(8) {
		case 0, 1:
			var some []string
			for range 1 + r.IntN(6) {
				some = append(some, subjects[r.IntN(3)])
				left[end], of[end] = true, some[len(some)-1]
				end++
			}
			w.shard.publish(some...)
		case 2:
			if n != nil || queue && filters[i] == nil {
				continue
			}
			subs[i] = &needing{filters: filters[i], made: int64(step + 1), pending: map[uint64]bool{}}
			w.declare(name(i), int64(step+1), spec(filters[i]))
			w.find(name(i))
		case 3:
			if n == nil || r.IntN(3) > 0 {
				continue
			}
			delete(subs, i)
			w.undeclare(name(i))
			w.changed(name(i))
		case 4, 5:
			if n == nil {
				continue
			}
			p := pull("x", 1+r.IntN(6))
			p.NoWait = true
			w.find(name(i)).Pull(p)
			synctest.Wait()
			for _, got := range w.box(name(i)).take("x") {
				offset := uint64(0)
				if _, err := fmt.Sscanf(got, "%d", &offset); err == nil {
					n.pending[offset] = true
				}
			}
		case 6:
			if n == nil {
				continue
			}
			for _, o := range slices.Sorted(maps.Keys(n.pending)) {
				if r.IntN(2) > 0 {
					continue
				}
				w.find(name(i)).Ack(o, 0, 1, []AckKind{Done, Term}[r.IntN(2)], 0, nil)
				delete(n.pending, o)
				if queue {
					delete(left, o)
				}
			}
		case 7:
			switch {
			case r.IntN(2) > 0:
				w.restart()
			case r.IntN(2) > 0:
				time.Sleep(2 * lazyFor) // so that the log has all
				w.crash()
			case n != nil && !queue:
				n.filters = [][]string{{"a"}, {"b", "c"}, {"c"}}[r.IntN(3)]
				w.declare(name(i), n.made, spec(n.filters))
				synctest.Wait()
			}
		}
		time.Sleep(4 * lazyFor)
		synctest.Wait()
		for o := range left {
			needed := queue
			for i, n := range subs {
				if n.matches(of[o]) && (n.pending[o] || o > w.find(name(i)).Info().DeliveredOffset) {
					needed = true
				}
			}
			if !needed {
				delete(left, o)
			}
		}
		for _, n := range subs {
			maps.DeleteFunc(n.pending, func(o uint64, _ bool) bool { return !left[o] })
		}
		if got, want := w.left(), slices.Sorted(maps.Keys(left)); !slices.Equal(got, want) {
			t.Fatalf("after step %d %v are left, want %v", step, got, want)
		}
	}
}

// TestWhatAStartPassesIsNotNeeded: records that only a deleted Subscription held, and before which
// another one starts, or which it passes since there is a newer one of their subject.
func TestWhatAStartPassesIsNotNeeded(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.declare("hold", 1, earliest())
		w.find("hold")
		w.shard.publish("a", "b", "a", "b", "c")
		w.holds("all are held", 1, 2, 3, 4, 5)
		w.undeclare("hold")
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{
			Topic: topicID, Name: "newest", Made: 2, Created: time.Now(),
			Spec: new(startAt(coordination.Start{From: coordination.FromLastBySubject})),
		}, &coordination.Subscription{
			Topic: topicID, Name: "fifth", Made: 3, Created: time.Now(),
			Spec: new(startAt(coordination.Start{From: coordination.FromOffset, Offset: 5})),
		})
		w.follow()
		s := w.find("newest")
		s.Pull(pull("a", 3))
		w.expect("newest", "a", "3", "4", "5")
		w.holds("the newest are pending", 3, 4, 5)
		for o := uint64(3); o <= 5; o++ {
			s.Ack(o, 0, 1, Done, 0, nil)
		}
		w.holds("fifth needs one", 5)
	})
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.declare("hold", 1, earliest())
		w.find("hold")
		w.shard.publish("a", "b", "a", "b", "c")
		w.holds("all are held", 1, 2, 3, 4, 5)
		w.undeclare("hold")
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{
			Topic: topicID, Name: "fifth", Made: 3, Created: time.Now(),
			Spec: new(startAt(coordination.Start{From: coordination.FromOffset, Offset: 5})),
		})
		w.follow()
		w.holds("fifth needs one", 5)
	})
}

// TestWhatWasGivenUpGoesWithItsSubscription: also if it is below the ack floor. A removed record is
// not kept in the cursor.
func TestWhatWasGivenUpGoesWithItsSubscription(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait, spec.Ack.MaxDeliver = time.Second, 1
		w.declare("s", 1, spec)
		s := w.find("s")
		w.shard.publish("o", "o", "o", "o")
		s.Pull(pull("a", 4))
		w.expect("s", "a", "1", "2", "3", "4")
		s.Ack(2, 0, 1, Done, 0, nil)
		s.Ack(4, 0, 1, Done, 0, nil)
		time.Sleep(2 * time.Second)
		if i := s.Info(); i.Exhausted != 2 || i.FloorOffset != 4 {
			t.Fatalf("two were given up, and it stands at %+v", i)
		}
		w.holds("two were given up", 1, 3)
		w.shard.gone.Add(3, 4)
		s.mu.Lock()
		s.forgetKept()
		kept := slices.Clone(s.cursor.kept)
		s.mu.Unlock()
		if !slices.Equal(kept, []uint64{1}) {
			t.Errorf("%v are kept, and 3 was removed", kept)
		}
		w.undeclare("s")
		w.changed("s")
		w.holds("without it")
	})
}

// TestALeaderServesTheSubscriptionsOfItsState: one that was made before this broker became the
// leader holds its records from the first moment on, though the service does not follow that State
// yet.
func TestALeaderServesTheSubscriptionsOfItsState(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		w.find("s")
		w.shard.publish("o", "o")
		w.holds("it is served", 1, 2)
		w.stop()
		observed := w.desired
		observed.subs = slices.Clone(w.desired.subs)
		w.observed = &observed
		w.undeclare("s") // as in the State of before
		w.start()
		w.holds("the next leader", 1, 2)
		w.find("s")
	})
}

// TestNothingIsRemovedBeforeItsAckIsLogged: while the state log takes no acks.
func TestNothingIsRemovedBeforeItsAckIsLogged(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		s := w.find("s")
		w.shard.publish("o", "o", "o")
		s.Pull(pull("a", 3))
		w.expect("s", "a", "1", "2", "3")
		w.shard.set(func() { w.shard.refuse = errors.New("full") })
		s.Ack(1, 0, 1, Done, 0, nil)
		w.holds("the log is full", 1, 2, 3)
		w.shard.set(func() { w.shard.refuse = nil })
		time.Sleep(2 * retryAfter)
		w.holds("the log takes acks", 2, 3)
	})
}

// TestAFailedRemovalIsTriedAgain: whether the log refuses it, or does not keep it.
func TestAFailedRemovalIsTriedAgain(t *testing.T) {
	for _, set := range []func(*shard, error){
		func(s *shard, err error) { s.refuseRemovals = err },
		func(s *shard, err error) { s.loseRemovals = err },
	} {
		releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
			w.declare("s", 1, earliest())
			s := w.find("s")
			w.shard.publish("o", "o", "o")
			s.Pull(pull("a", 3))
			w.expect("s", "a", "1", "2", "3")
			w.shard.set(func() { set(w.shard, errors.New("not now")) })
			s.Ack(2, 0, 1, Done, 0, nil)
			w.holds("the removal fails", 1, 2, 3)
			w.shard.set(func() { set(w.shard, nil) })
			time.Sleep(2 * retryAfter)
			w.holds("it was tried again", 1, 3)
		})
	}
}

// TestARecordThatCantBeReadStays: whether somebody is interested in it is not known.
func TestARecordThatCantBeReadStays(t *testing.T) {
	releaseStory(t, coordination.InterestPolicy, func(t *testing.T, w *world) {
		w.declare("s", 1, filtered("x"))
		w.find("s")
		w.desired.former = true // so that nothing is removed yet
		w.follow()
		for _, name := range []string{"one", "two", "three", "x", "five"} {
			w.shard.publish(name)
		}
		w.stop()
		w.damage("", "two")
		w.desired.former = false
		w.start()
		w.holds("two can't be read", 2, 4)
	})
}

// TestManyAcksAreLookedAtTogether: more ranges than are noted become one.
func TestManyAcksAreLookedAtTogether(t *testing.T) {
	k := &cursorStore{}
	var all []span
	for o := uint64(3 * mostNoted); o > 0; o -= 3 {
		all = k.addSpan(all, span{o, o + 1})
	}
	if len(all) >= mostNoted {
		t.Errorf("%d ranges are noted", len(all))
	}
	covered := merge(append(all, k.releases.again...))
	for o := uint64(3 * mostNoted); o > 0; o -= 3 {
		if !covered.has(o) {
			t.Fatalf("%d was noted, and is not looked at", o)
		}
	}
	if all = k.addSpan(nil, span{1, 2}); len(k.addSpan(all, span{2, 3})) != 1 {
		t.Error("acks in sequence take several ranges")
	}
}

// TestTheEndOfAReaderMakesRoom: for a Subscription that it excluded from a work queue.
func TestTheEndOfAReaderMakesRoom(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		if _, err := w.service.Create(t.Context(), topicID, "r", filtered("o.*"), time.Minute); err != nil {
			t.Fatal(err)
		}
		w.declare("s", 1, earliest())
		synctest.Wait()
		if w.service.WhyNot(topicID, "s") == nil {
			t.Error("both are served")
		}
		w.service.Remove(topicID, "r")
		w.find("s")
	})
}

// TestAnAckWhileTheLogIsBehindRemoves: acks that only the next snapshot of cursors has are looked
// at like all others.
func TestAnAckWhileTheLogIsBehindRemoves(t *testing.T) {
	releaseStory(t, coordination.WorkQueue, func(t *testing.T, w *world) {
		w.declare("s", 1, earliest())
		s := w.find("s")
		w.shard.publish("o", "o")
		s.Pull(pull("a", 2))
		w.expect("s", "a", "1", "2")
		s.store.mu.Lock()
		s.store.dirty = true
		s.store.mu.Unlock()
		s.Ack(1, 0, 1, Done, 0, nil)
		w.shard.publish("o")
		s.Pull(pull("a", 1))
		w.expect("s", "a", "3")
		s.Ack(3, 0, 1, Done, 0, nil)
		w.holds("both are in the snapshot", 2)
	})
}
