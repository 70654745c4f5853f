package subscription

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

func TestCursorsSurviveARestart(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait = 20 * time.Second
		w.declare("billing", 1, spec)
		w.declare("new", 2, coordination.SubscriptionSpec{})
		s := w.find("billing")
		w.find("new")
		w.shard.publish("o", "o", "o", "o", "o")
		s.Pull(pull("a", 4))
		w.expect("billing", "a", "1", "2", "3", "4")
		s.Ack(1, 0, 1, Done, 0, nil)
		s.Ack(3, 0, 1, Done, 0, nil)
		before := s.Info()
		w.restart()
		s = w.find("billing")
		after := s.Info()
		before.LastDelivered, before.LastAcked = time.Time{}, time.Time{}
		if before != after {
			t.Errorf("it stood at %+v, and now at %+v", before, after)
		}
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "5")
		time.Sleep(21 * time.Second)
		w.expect("billing", "a", "2 x2", "4 x2", "5 x2")
		w.find("new").Pull(pull("b", 9)) // records published after its creation
		w.expect("new", "b", "1", "2", "3", "4", "5")
	})
}

// TestALeaderWhoseClockIsBehindDeliversAgainInTime: redeliveries are in time on a leader whose
// clock is behind the former leader's.
func TestALeaderWhoseClockIsBehindDeliversAgainInTime(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Wait = 20 * time.Second
		w.declare("billing", 1, spec)
		w.ahead = time.Hour
		w.restart()
		time.Sleep(30 * time.Minute) // it leads for a while
		w.shard.publish("o", "o", "o")
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		s.Ack(2, 0, 1, Retry, 45*time.Second, nil)
		// Its answer implies that everything noted is written.
		if err := w.ackNow(s, 99, Progress); err == nil {
			t.Error("what was not delivered was acknowledged")
		}
		time.Sleep(10 * time.Second)
		w.ahead = 0
		w.restart()
		s = w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "3")
		time.Sleep(21 * time.Second)
		w.expect("billing", "a", "1 x2", "3 x2")
		time.Sleep(30 * time.Second) // a restart delays by at most the time since the cursor was written
		w.expect("billing", "a", "1 x3", "3 x3", "2 x2")
	})
}

func TestARecreatedSubscriptionStartsAnew(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "2")
		w.declare("billing", 2, earliest())
		w.expect("billing", "a", "Deleted 8/0")
		var not *NotServedError
		if err := w.ackNow(s, 2, Done); !errors.As(err, &not) {
			t.Errorf("an ack for the old one: %v", err)
		}
		s.Pull(pull("b", 1))
		w.expect("billing", "b", "Deleted 1/0")
		w.find("billing").Pull(pull("a", 9))
		w.expect("billing", "a", "1", "2")
		w.restart()
		synctest.Wait()
		w.box("billing").take("a")
		// Again, while the broker is away.
		w.stop()
		w.undeclare("billing")
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: "billing", Made: 3, Spec: new(earliest())})
		w.start()
		w.find("billing").Pull(pull("a", 9))
		w.expect("billing", "a", "1", "2")
	})
}

func TestUnsupportedSubscriptionsAreRefusedWithTheReason(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("billing", 1, earliest())
		w.find("billing").Pull(pull("a", 1))
		w.expect("billing", "a", "1")
		for i, change := range []func(*coordination.SubscriptionSpec){
			func(s *coordination.SubscriptionSpec) {
				s.Push, s.Ack.Policy = &coordination.Push{URL: "http://example.com"}, coordination.AckAll
			},
			func(s *coordination.SubscriptionSpec) { s.DeadLetter, s.Ack.Policy = "dead", coordination.AckNone },
			func(s *coordination.SubscriptionSpec) { s.Where, s.Start.From = "true", coordination.FromLast },
			func(s *coordination.SubscriptionSpec) { s.Consumer.DeliverGroup = "g" },
			func(s *coordination.SubscriptionSpec) { s.Consumer.IdleHeartbeat = time.Second },
			func(s *coordination.SubscriptionSpec) { s.Consumer.FlowControl = true },
			func(s *coordination.SubscriptionSpec) { s.Consumer.RateLimit = 1 },
		} {
			spec := earliest()
			change(&spec)
			w.declare(fmt.Sprintf("s%d", i), int64(10+i), spec)
			_, err := w.service.Wait(t.Context(), topicID, fmt.Sprintf("s%d", i))
			var not *NotServedError
			if !errors.As(err, &not) || not.Reason != Unsupported || !strings.Contains(not.Why, "leave it out") {
				t.Errorf("%+v: %v", spec, err)
			}
		}
		// One that requests it later keeps its position.
		spec := earliest()
		spec.Consumer.DeliverGroup = "g"
		w.declare("billing", 1, spec)
		synctest.Wait()
		if err := w.service.WhyNot(topicID, "billing"); err == nil || w.service.Find(topicID, "billing") != nil {
			t.Error("it is served with a group and without a subject")
		}
		w.declare("billing", 1, earliest())
		w.find("billing").Pull(pull("a", 1))
		w.expect("billing", "a", "2")
	})
}

func TestUnusedReadersAreDeleted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s, err := w.service.Create(t.Context(), topicID, "reader", earliest(), 5*time.Second)
		if err != nil || !s.Ephemeral() || w.service.Find(topicID, "reader") != s {
			t.Fatal(s, err)
		}
		var exists *ExistsError
		if _, err := w.service.Create(t.Context(), topicID, "reader", earliest(), 0); !errors.As(err, &exists) {
			t.Errorf("it was made twice: %v", err)
		}
		w.shard.publish("o")
		s.Pull(pull("a", 2))
		w.expect("reader", "a", "1")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		w.shard.publish("o") // a waiting request counts as use
		w.expect("reader", "a", "2")
		time.Sleep(4 * time.Second)
		s.Ack(2, 0, 1, Progress, 0, nil)
		time.Sleep(4 * time.Second)
		s.Pull(pull("a", 1))
		synctest.Wait()
		w.box("reader").leave("a")
		time.Sleep(4 * time.Second)
		if w.service.Find(topicID, "reader") == nil {
			t.Fatal("it went too early")
		}
		time.Sleep(7 * time.Second)
		if w.service.Find(topicID, "reader") != nil {
			t.Fatal("it is still there")
		}
		if _, err = w.service.Create(t.Context(), topicID, "reader", earliest(), 0); err != nil {
			t.Error(err)
		}
		w.service.Remove(topicID, "reader")
		if n := w.service.Stats().Subscriptions; n != 0 {
			t.Errorf("%d are left", n)
		}
		w.restart()
		synctest.Wait()
		if is := w.service.List(topicID); len(is) != 0 {
			t.Errorf("%d are back after a restart", len(is))
		}
	})
}

func TestLosingTheShardEndsRequests(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 3))
		synctest.Wait()
		w.service.leave(topicID, w.shard)
		w.expect("billing", "a", "LeaderGone 3/0")
		s.Pull(pull("b", 1))
		w.expect("billing", "b", "LeaderGone 1/0")
		if err := w.ackNow(s, 1, Done); err == nil {
			t.Error("an ack was taken")
		}
		var not *NotServedError
		if err := w.service.WhyNot(topicID, "billing"); !errors.As(err, &not) || not.Reason != NoShard {
			t.Errorf("it is not served since %v", err)
		}
		w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders", weaker: w.promise})
		w.shard.publish("o")
		w.find("billing").Pull(pull("a", 3))
		w.expect("billing", "a", "1")
	})
}

// TestAcksOfForgottenDeliveriesCount: an ack after a crash counts, even if the state log lacks its
// delivery.
func TestAcksOfForgottenDeliveriesCount(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "x", "o", "o")
		some := earliest()
		some.Subjects = []string{"o"}
		all := earliest()
		all.Ack.Policy = coordination.AckAll
		names := []string{"each", "some", "all"}
		for i, spec := range []coordination.SubscriptionSpec{earliest(), some, all} {
			w.declare(names[i], int64(i+1), spec)
			w.find(names[i])
		}
		for _, name := range names {
			w.find(name).Pull(pull("a", 3))
		}
		synctest.Wait()
		crashed := w.fs.(*crashfs.FS).Crash(rand.New(rand.NewPCG(1, 1)))
		_, _ = w.service.Close(), w.disk.Close()
		w.fs, w.boxes = crashed, map[string]*mailbox{}
		w.start()
		for _, name := range names {
			s := w.find(name)
			lag := s.Info().Lag
			if err := w.ackNow(s, 2, Done); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want := lag - 1
			if name == "all" {
				want--
			}
			if i := s.Info(); i.DeliveredSequence != 1 || i.Lag != want {
				t.Errorf("%s: %d records were to come, and now it stands at %+v", name, lag, i)
			}
			if err := w.ackNow(s, 6, Done); !errors.Is(err, errNotDelivered) {
				t.Errorf("%s: an ack of what isn't there: %v", name, err)
			}
		}
		w.restart()
		for _, name := range names {
			w.box(name).take("a")
			w.find(name).Pull(pull("a", 9))
		}
		w.expect("each", "a", "1", "3", "4", "5")
		w.expect("some", "a", "1", "4", "5")
		w.expect("all", "a", "3", "4", "5")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var not *NotServedError
		if _, err := w.service.Wait(ctx, topicID, "nobody"); !errors.As(err, &not) || not.Reason != NoSuch {
			t.Errorf("waiting for nobody: %v", err)
		}
	})
}

// TestTheStateLogStaysSmall: the state log stays small under many deliveries and acks, and keeps
// idle cursors.
func TestTheStateLogStaysSmall(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("idle", 1, earliest())
		w.declare("busy", 2, earliest())
		w.shard.publish("o")
		idle, busy := w.find("idle"), w.find("busy")
		idle.Pull(pull("a", 1))
		w.expect("idle", "a", "1")
		if err := w.ackNow(idle, 1, Done); err != nil {
			t.Fatal(err)
		}
		busy.Pull(pull("a", 1_000_000))
		largest := int64(0)
		many := make([]string, 1000)
		for i := range many {
			many[i] = "o"
		}
		offset := uint64(1)
		for range 300 {
			w.shard.publish(many...)
			synctest.Wait()
			// Every second one, so that no two acks merge into one op.
			for end := offset + 1000; offset < end; offset += 2 {
				busy.Ack(offset, 0, 1, Done, 0, nil)
				busy.Ack(offset+1, 0, 1, Progress, 0, nil)
			}
			for o := offset - 1000; o < offset; o++ {
				busy.Ack(o, 0, 1, Done, 0, nil)
			}
			time.Sleep(lazyFor)
			synctest.Wait()
			largest = max(largest, w.shard.state.Stats().Bytes)
		}
		written := w.service.Stats().StateBytes
		if written < 2<<20 {
			t.Errorf("only %d bytes were written: the test proves nothing", written)
		}
		if most := int64(snapshotBytes + 4*(256<<10)); largest > most {
			t.Errorf("the state log had %d bytes at times, and %d are enough", largest, most)
		}
		before := busy.Info().FloorOffset
		w.restart()
		if i := w.find("idle").Info(); i.FloorOffset != 1 {
			t.Errorf("idle stands at %+v", i)
		}
		if i := w.find("busy").Info(); i.FloorOffset != before {
			t.Errorf("busy stands at %+v, and stood at %d", i, before)
		}
	})
}

// TestASnapshotThatIsDueWhenABrokerStopsHasAllAcks: whatever was written before, and so whether or
// not a snapshot is due with the last write, acks of just before the end are in the log.
func TestASnapshotThatIsDueWhenABrokerStopsHasAllAcks(t *testing.T) {
	const most = 12
	for written := range uint64(most) {
		snapshotStory(t, 1, func(t *testing.T, w *world) {
			w.shard.publish(slices.Repeat([]string{"o"}, most+1)...)
			w.declare("billing", 1, earliest())
			s := w.find("billing")
			s.Pull(pull("a", most+1))
			synctest.Wait()
			for offset := range written {
				if err := w.ackNow(s, offset+1, Done); err != nil {
					t.Fatal(err)
				}
			}
			s.Ack(written+1, 0, 0, Done, 0, nil)
			w.restart()
			if i := w.find("billing").Info(); i.FloorOffset != written+1 {
				t.Errorf("%d acks were written, and one more noted, before the restart; after it the floor is %d", written, i.FloorOffset)
			}
		})
	}
}

// TestASettledServiceWritesAcksAtOnce: what was noted before a broker hands over its leadership is
// in the state log then, and later acks don't wait for others.
func TestASettledServiceWritesAcksAtOnce(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 3))
		w.expect("billing", "a", "1", "2", "3")
		time.Sleep(lazyFor)
		synctest.Wait()
		written := func() uint64 {
			synctest.Wait()
			return w.service.Stats().StateBytes
		}
		before := written()
		s.Ack(1, 0, 1, Done, 0, nil)
		if after := written(); after != before {
			t.Fatalf("%d bytes were written: the test proves nothing", after-before)
		}
		w.service.Settle(t.Context())
		settled := w.service.Stats().StateBytes
		if settled == before {
			t.Error("the ack was not written")
		}
		s.Ack(2, 0, 1, Done, 0, nil)
		if written() == settled {
			t.Error("the ack behind was not written")
		}
	})
}

// TestASettledServiceHasWhatWasJustWritten: acks that were written just before, for which nobody
// waited, may be on no other replica yet.
func TestASettledServiceHasWhatWasJustWritten(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		hold := make(chan struct{})
		w.shard.mu.Lock()
		w.shard.hold = hold
		w.shard.mu.Unlock()
		s.Ack(1, 0, 1, Done, 0, nil)
		time.Sleep(2 * lazyFor) // it is written
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			w.service.Settle(t.Context())
		}()
		synctest.Wait()
		select {
		case <-settled:
			t.Error("it is settled before the other replicas have it")
		default:
		}
		close(hold)
		<-settled
	})
}

func TestAFullDiskRefusesAcksAndLosesNone(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 3))
		w.expect("billing", "a", "1", "2", "3")
		var full atomic.Bool
		full.Store(true)
		fsys := w.fs.(*crashfs.FS)
		fsys.SetHook(func(op crashfs.Op) error {
			if full.Load() && op.Kind == "preallocate" {
				return syscall.ENOSPC
			}
			return nil
		})
		w.shard.state.Roll() // the next append needs a new file
		if err := w.ackNow(s, 1, Done); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("an ack on a full disk: %v", err)
		}
		s.Ack(2, 0, 1, Done, 0, nil)
		time.Sleep(time.Second)
		full.Store(false)
		time.Sleep(2 * time.Second)
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Errorf("there is room again: %v", err)
		}
		w.restart()
		if i := w.find("billing").Info(); i.FloorOffset != 2 || i.Pending != 1 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestAFullDiskDelaysAStart: the start of a Subscription can't be written while the disk is full.
// It is retried about once a second, so that retries do not load the broker.
func TestAFullDiskDelaysAStart(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		var full atomic.Bool
		var tried atomic.Int32
		full.Store(true)
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if !full.Load() || op.Kind != "preallocate" {
				return nil
			}
			if tried.Add(1) > 100 {
				full.Store(false) // or time would stand still
			}
			return syscall.ENOSPC
		})
		w.shard.state.Roll()
		w.declare("billing", 1, earliest())
		time.Sleep(10*time.Second + time.Millisecond)
		if n := tried.Load(); n < 10 || n > 40 {
			t.Errorf("tried %d times in 10 seconds", n)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := w.service.Wait(soon, topicID, "billing"); err == nil {
			t.Error("it is served, and where it started is not kept")
		}
		stop()
		full.Store(false)
		time.Sleep(2 * time.Second)
		w.find("billing").Pull(pull("a", 3))
		w.expect("billing", "a", "1", "2", "3")
	})
}

func TestAFailedDiskRefusesAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { _ = w.service.Close(); _ = w.disk.Close() }()
		w.shard.publish("o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		w.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
			if strings.HasPrefix(op.Kind, "sync") {
				return syscall.EIO
			}
			return nil
		})
		for range 2 {
			var failed *log.FailedError
			if err := w.ackNow(s, 1, Done); !errors.As(err, &failed) {
				t.Errorf("an ack on a failed disk: %v", err)
			}
		}
		s.Pull(pull("a", 1)) // reads work
		w.expect("billing", "a", "3")
	})
}

// damage flips a bit of the first segment of a log, where text is.
func (w *world) damage(part, text string) {
	w.t.Helper()
	fsys := w.fs.(*crashfs.FS)
	dir := "data/shards/" + (log.Identity{Topic: topicID, Part: part}).Name()
	names, err := fsys.List(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := fsys.Open(dir + "/" + names[0])
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size, _ := f.Size()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil {
		w.t.Fatal(err)
	}
	at := strings.Index(string(data), text)
	if at < 0 {
		w.t.Fatalf("%q is not in %s", text, names[0])
	}
	if err := fsys.Flip(dir+"/"+names[0], int64(at)*8); err != nil {
		w.t.Fatal(err)
	}
}

// giveUp gives up what is damaged of a log of the broker, which is stopped.
func (w *world) giveUp(part string) {
	w.t.Helper()
	d, err := log.OpenDisk(w.fs, "data", log.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	l, err := d.Open(log.Identity{Topic: topicID, Part: part}, 1, 1, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r, gone, err := l.GiveUp(l.Recovery().Damaged[0].From)
	if err != nil || len(gone) == 0 {
		w.t.Fatal(gone, err)
	}
	if _, err := r.Finish(); err != nil {
		w.t.Fatal(err)
	}
}

func TestADamagedStateLogIsReported(t *testing.T) {
	story(t, func(t *testing.T, w *world) { damagedStateLog(t, w, false) })
}

// TestAStateLogWhoseDamageWasGivenUpIsReported: after a state log's damage on all replicas was
// given up, its loss is still reported.
func TestAStateLogWhoseDamageWasGivenUpIsReported(t *testing.T) {
	story(t, func(t *testing.T, w *world) { damagedStateLog(t, w, true) })
}

func damagedStateLog(t *testing.T, w *world, givenUp bool) {
	w.shard.publish("o", "o", "o", "o")
	w.declare("first", 1, earliest())
	w.find("first")
	w.declare("lost", 2, earliest())
	s := w.find("lost")
	s.Pull(pull("a", 1))
	w.expect("lost", "a", "1")
	if err := w.ackNow(s, 1, Done); err != nil {
		t.Fatal(err)
	}
	w.declare("last", 3, earliest())
	w.find("last")
	w.stop()
	w.damage("state", "lost")
	if givenUp {
		w.giveUp("state")
	}
	time.Sleep(time.Second)
	w.start()
	if info := w.find("first").Info(); info.Trouble == "" || info.FloorOffset != 0 {
		t.Errorf("the first one stands at %+v", info)
	}
	if info := w.find("last").Info(); info.Trouble != "" {
		t.Errorf("what was written behind the damage is in trouble: %s", info.Trouble)
	}
	for range 2 {
		var not *NotServedError
		if _, err := w.service.Wait(t.Context(), topicID, "lost"); !errors.As(err, &not) || not.Reason != Troubled {
			t.Errorf("one without a cursor is served, or not since: %v", err)
		}
		w.restart() // the damaged part is deleted; its effects remain
	}
	w.declare("lost", 4, earliest())
	w.find("lost").Pull(pull("a", 9))
	w.expect("lost", "a", "1", "2", "3", "4")
}

// TestDamagedCursorsThatAnotherReplicaHasAreNotWritten: if the cursors of this copy are damaged and
// another replica has them, nothing is written from this copy, since it would be replicated.
func TestDamagedCursorsThatAnotherReplicaHasAreNotWritten(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o")
		w.declare("lost", 1, earliest())
		s := w.find("lost")
		s.Pull(pull("a", 1))
		w.expect("lost", "a", "1")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.stop()
		w.damage("state", "lost")
		w.judge = func(error) error { return errors.New("another replica is to lead") }
		w.start()
		_, before, _ := w.shard.state.Offsets()
		time.Sleep(3 * retryAfter)
		synctest.Wait()
		if _, end, _ := w.shard.state.Offsets(); end > before {
			t.Errorf("%d records were written of what could be read", end-before)
		}
		w.judge = nil // no other replica is left
		w.restart()
		synctest.Wait()
		if _, end, _ := w.shard.state.Offsets(); end == before {
			t.Error("nothing is made of what can be read, and nobody else has more")
		}
	})
}

func TestDamagedRecordsAreSkippedAndCounted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("one")
		w.shard.publish("two", "two")
		w.shard.publish("three")
		w.shard.publish("four")
		w.stop()
		w.damage("", "two")
		w.start()
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1", "4", "5")
		if i := s.Info(); i.Lost != 2 || i.Trouble == "" {
			t.Errorf("it stands at %+v", i)
		}
		if n := w.service.Stats().Lost; n != 2 {
			t.Errorf("%d are counted as lost", n)
		}
	})
}

// TestDamagedRecordsThatAnotherReplicaHasAreNotSkipped: records that another replica has are
// delivered when that one leads.
func TestDamagedRecordsThatAnotherReplicaHasAreNotSkipped(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("one")
		w.shard.publish("two", "two")
		w.shard.publish("three")
		w.stop()
		w.damage("", "two")
		w.start()
		w.shard.judge = func(error) error { return errors.New("another replica is to lead") }
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.expect("billing", "a", "1")
		time.Sleep(time.Minute)
		if i := s.Info(); i.Lost != 0 || i.Lag != 3 {
			t.Errorf("it stands at %+v", i)
		}
		for _, again := range w.box("billing").take("a") {
			if !strings.HasPrefix(again, "1 ") {
				t.Errorf("%q was delivered, too", again)
			}
		}
	})
}

// TestACursorIsNeverAheadOfItsLog: under a weaker durability a power cut deletes acknowledged
// records; new records with their offsets are delivered. It makes no difference whether the new
// leader appends before it reads the cursors, and whether it lives to write what it found.
func TestACursorIsNeverAheadOfItsLog(t *testing.T) {
	for _, c := range []struct {
		name   string
		early  int // records that are appended before the cursors are read
		forget bool
	}{
		{"nothing is appended before", 0, false},
		{"some records are appended before", 2, false},
		{"more records are appended before than were lost", 5, false},
		{"another leader follows before the cursors are written", 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			story(t, func(t *testing.T, w *world) {
				w.shard.publish("o")
				w.shard.publish("o", "o", "o", "o")
				w.declare("billing", 1, earliest())
				s := w.find("billing")
				s.Pull(pull("a", 4))
				w.expect("billing", "a", "1", "2", "3", "4")
				for o := range uint64(4) {
					if err := w.ackNow(s, o+1, Done); err != nil {
						t.Fatal(err)
					}
				}
				w.service.leave(topicID, w.shard)
				synctest.Wait()
				w.box("billing").take("a")
				if _, _, err := w.shard.data.TruncateTo(2, 0); err != nil {
					t.Fatal(err)
				}
				w.inherit()
				for range c.early {
					w.shard.publish("o")
				}
				if c.forget {
					w.shard.epoch++
					w.shard.publish("o")
				}
				w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders", weaker: w.promise})
				s = w.find("billing")
				if i := s.Info(); i.FloorOffset != 1 || i.DeliveredOffset != 1 {
					t.Errorf("the records from 2 on are gone, and it stands at %+v", i)
				}
				if err := w.ackNow(s, 4, Done); !errors.Is(err, errNotDelivered) {
					t.Errorf("an ack of a lost record counts for the one that has its offset now: %v", err)
				}
				w.shard.publish("o")
				s.Pull(pull("a", 9))
				var want []string
				_, end := w.shard.Offsets()
				for o := uint64(2); o < end; o++ {
					want = append(want, fmt.Sprint(o))
				}
				w.expect("billing", "a", want...)
			})
		})
	}
}

// TestACursorKeepsItsPlaceUnderNewLeaders: records that were there when their acks were written
// stay acknowledged, whatever later leaders append.
func TestACursorKeepsItsPlaceUnderNewLeaders(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 3))
		w.expect("billing", "a", "1", "2", "3")
		for _, o := range []uint64{1, 3} {
			if err := w.ackNow(s, o, Done); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // of whom none touches the cursor
			w.restart()
			w.shard.publish("o")
			if i := w.find("billing").Info(); i.FloorOffset != 1 || i.DeliveredOffset != 3 {
				t.Fatalf("1 and 3 of three deliveries were acknowledged, and it stands at %+v", i)
			}
		}
	})
}
