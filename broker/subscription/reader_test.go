package subscription

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// crash ends the process without a last write, and starts another one on its disk.
func (w *world) crash() {
	w.t.Helper()
	killed := w.fs.(*crashfs.FS).Clone()
	w.stop()
	w.fs = killed
	w.start()
}

// reads returns a reader that exists.
func (w *world) reads(name string) *Subscription {
	w.t.Helper()
	s := w.find(name)
	if !s.Ephemeral() {
		w.t.Fatalf("%s is no reader", name)
	}
	return s
}

func TestAReaderSurvivesACrash(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Subjects, spec.Ack.MaxDeliver, spec.Consumer.Metadata = []string{"o.>"}, 7, map[string]string{"by": "me"}
		s, err := w.service.Create(t.Context(), topicID, "reader", spec, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		made := s.Created()
		w.crash() // nothing was delivered: what was answered holds
		w.shard.publish("o.1", "x", "o.2", "o.3")
		s = w.reads("reader")
		s.Pull(pull("a", 2))
		w.expect("reader", "a", "1", "3")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.crash()
		s = w.reads("reader")
		if is := s.Spec(); !reflect.DeepEqual(*is, spec) || !s.Created().Equal(made) {
			t.Errorf("it is %+v, made at %v, and was %+v, made at %v", *is, s.Created(), spec, made)
		}
		s.Pull(pull("a", 2))
		w.expect("reader", "a", "4") // 3 waits for its ack
		time.Sleep(31 * time.Second)
		w.expect("reader", "a", "3 x2")
		w.box("reader").leave("a")
		time.Sleep(3 * time.Minute)
		if w.service.Find(topicID, "reader") != nil {
			t.Error("it was not used for more than a minute, and is there")
		}
	})
}

// TestAReaderBecomesDurable: a Subscription that is declared in its place goes on where it stood,
// also if its leader dies before it knows of that, or right afterwards.
func TestAReaderBecomesDurable(t *testing.T) {
	for _, crash := range []string{"never", "before", "at once", "later"} {
		t.Run(crash, func(t *testing.T) {
			story(t, func(t *testing.T, w *world) {
				w.shard.publish("o", "o", "o", "o", "o")
				s, err := w.service.Create(t.Context(), topicID, "reader", earliest(), time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				s.Pull(pull("a", 3))
				w.expect("reader", "a", "1", "2", "3")
				for _, offset := range []uint64{1, 3} {
					if err := w.ackNow(s, offset, Done); err != nil {
						t.Fatal(err)
					}
				}
				spec := earliest()
				spec.Consumer.Metadata = map[string]string{"by": "me"}
				declared := &coordination.Subscription{Topic: topicID, Name: "reader", Made: 7, Spec: &spec, Created: s.Created()}
				w.desired.subs = append(w.desired.subs, declared)
				if crash == "before" {
					w.crash()
				} else {
					s.Pull(pull("b", 2)) // it goes on
					w.changed("reader")
				}
				synctest.Wait()
				if crash == "at once" {
					w.crash()
				} else if crash == "later" {
					time.Sleep(2 * lazyFor)
					w.crash()
				}
				s = w.find("reader")
				if s.Ephemeral() || !reflect.DeepEqual(*s.Spec(), spec) || !s.Created().Equal(declared.Created) {
					t.Fatalf("it is %+v, created at %v; a reader: %v", s.Spec(), s.Created(), s.Ephemeral())
				}
				if crash == "before" {
					s.Pull(pull("b", 2))
				}
				if crash == "never" || crash == "before" {
					w.expect("reader", "b", "4", "5")
				}
				time.Sleep(31 * time.Second)
				s.Pull(pull("c", 1))
				w.expect("reader", "c", "2 x2")
				w.box("reader").leave("c")
				time.Sleep(time.Hour)
				if w.service.Find(topicID, "reader") == nil || len(w.service.List(topicID)) != 1 {
					t.Error("it is gone")
				}
				w.undeclare("reader")
				if crash != "later" { // its leader hears of that
					w.changed("reader")
					synctest.Wait()
				}
				w.crash()
				synctest.Wait()
				if w.service.Find(topicID, "reader") != nil {
					t.Error("it is back")
				}
			})
		})
	}
}

// TestAReaderInMemoryBecomesDurable: it is served again once its cursor is on the disk, and goes on
// from there whatever happens next.
func TestAReaderInMemoryBecomesDurable(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o")
		spec := earliest()
		spec.Consumer.MemoryStorage = true
		s, err := w.service.Create(t.Context(), topicID, "reader", spec, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 2))
		w.expect("reader", "a", "1", "2")
		for offset := range uint64(2) {
			if err := w.ackNow(s, offset+1, Done); err != nil {
				t.Fatal(err)
			}
		}
		fsys := w.fs.(*crashfs.FS)
		fsys.SetHook(func(op crashfs.Op) error {
			if op.Kind == "preallocate" {
				return syscall.ENOSPC
			}
			return nil
		})
		w.shard.state.Roll()
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: "reader", Made: 7, Spec: &spec, Created: s.Created()})
		w.changed("reader")
		synctest.Wait()
		if why := w.service.WhyNot(topicID, "reader"); !errors.Is(why, syscall.ENOSPC) {
			t.Errorf("while the disk is full: %v", why)
		}
		fsys.SetHook(nil)
		time.Sleep(2 * retryAfter)
		if s = w.find("reader"); s.Ephemeral() {
			t.Error("it is a reader still")
		}
		w.crash()
		w.find("reader").Pull(pull("b", 2))
		w.expect("reader", "b", "3", "4")
	})
}

// TestAReaderThatIsBeingDeclaredIsKept, however long it was unused, until it could be declared.
func TestAReaderThatIsBeingDeclaredIsKept(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s, err := w.service.Create(t.Context(), topicID, "reader", earliest(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Keep() {
			t.Fatal("it is gone at once")
		}
		time.Sleep(declaringFor - time.Second)
		if w.service.Find(topicID, "reader") != s {
			t.Error("it was deleted")
		}
		time.Sleep(4 * time.Second)
		if s.Keep() || w.service.Find(topicID, "reader") != nil {
			t.Error("it is there although it was not declared")
		}
	})
}

// TestAReaderThatWasDeclaredIsNotDeleted by what began to delete it before.
func TestAReaderThatWasDeclaredIsNotDeleted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		s, err := w.service.Create(t.Context(), topicID, "reader", earliest(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: "reader", Made: 7, Spec: s.Spec(), Created: s.Created()})
		w.changed("reader")
		synctest.Wait()
		if s.store.removeReader(s) || s.store.retireReader(s) || w.service.Find(topicID, "reader") != s {
			t.Error("it was deleted")
		}
	})
}

// TestADeletedReaderStaysDeleted: another one of its name, and one beside it, have nothing of it.
func TestADeletedReaderStaysDeleted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		for _, name := range []string{"one", "two"} {
			s, err := w.service.Create(t.Context(), topicID, name, earliest(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			s.Pull(pull("a", 2))
			w.expect(name, "a", "1", "2")
		}
		w.service.Remove(topicID, "one")
		time.Sleep(2 * lazyFor)
		w.crash()
		w.reads("two")
		if is := w.service.List(topicID); len(is) != 1 {
			t.Fatalf("there are %d readers", len(is))
		}
		if _, err := w.service.Create(t.Context(), topicID, "one", earliest(), time.Hour); err != nil {
			t.Fatal(err)
		}
		w.crash()
		w.reads("one").Pull(pull("a", 1))
		w.expect("one", "a", "1")
		w.reads("two").Pull(pull("b", 1))
		w.expect("two", "b", "3")
	})
}

// TestAReaderInMemoryIsServedAtOnce: nobody waits for the disk, neither whoever creates it nor its
// acks, and a change of leader keeps it all the same.
func TestAReaderInMemoryIsServedAtOnce(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		w.shard.mu.Lock()
		w.shard.hold = make(chan struct{})
		w.shard.mu.Unlock()
		durable := func(name string) error {
			soon, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			_, err := w.service.Create(soon, topicID, name, earliest(), time.Hour)
			return err
		}
		var not *NotServedError
		if err := durable("durable"); !errors.As(err, &not) || not.Reason != Opening {
			t.Errorf("a reader was created that the disk lacks: %v", err)
		}
		spec := earliest()
		spec.Consumer.MemoryStorage = true
		s, err := w.service.Create(t.Context(), topicID, "memory", spec, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 2))
		w.expect("memory", "a", "1", "2")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		close(w.shard.hold)
		w.shard.hold = nil
		w.restart()
		s = w.reads("memory")
		if is := w.service.List(topicID); len(is) != 1 {
			t.Errorf("there are %d readers, and one was created", len(is))
		}
		s.Pull(pull("a", 1))
		w.expect("memory", "a", "3")
		if i := s.Info(); i.FloorOffset != 1 || i.Pending != 2 {
			t.Errorf("it stands at %+v", i)
		}
	})
}

// TestDeliveriesWithoutAcksAreNotedTogether: many readers that only read cost few bytes of the
// state log, and go on where they were.
func TestDeliveriesWithoutAcksAreNotedTogether(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Ack.Policy, spec.Subjects = coordination.AckNone, []string{"o.>"}
		const readers = 10
		for i := range readers {
			if _, err := w.service.Create(t.Context(), topicID, fmt.Sprint("r", i), spec, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		var subjects []string
		for range 500 {
			subjects = append(subjects, "o.x", "other")
		}
		w.shard.publish(subjects...)
		before := w.service.Stats().StateBytes
		for i := range readers {
			w.reads(fmt.Sprint("r", i)).Pull(pull("a", 400))
		}
		time.Sleep(time.Second)
		if wrote := w.service.Stats().StateBytes - before; wrote > readers*100 {
			t.Errorf("%d bytes were written for %d deliveries", wrote, readers*400)
		}
		w.crash()
		s := w.reads("r3")
		s.Pull(pull("b", 1))
		w.expect("r3", "b", "801")
		if last := w.box("r3").last(); last.Sequence != 401 {
			t.Errorf("the delivery after 400 has the number %d", last.Sequence)
		}
	})
}

// TestSnapshotsHaveReaders: what the state log had before is deleted, and readers stay.
func TestSnapshotsHaveReaders(t *testing.T) {
	snapshotStory(t, 1<<10, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Consumer.Description = "reads all"
		if _, err := w.service.Create(t.Context(), topicID, "reader", spec, time.Hour); err != nil {
			t.Fatal(err)
		}
		before, _, _ := w.shard.state.Offsets()
		s := w.reads("reader")
		for i := range 300 {
			w.shard.publish("o")
			s.Pull(pull("a", 1))
			synctest.Wait()
			if err := w.ackNow(s, uint64(i+1), Done); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if start, _, _ := w.shard.state.Offsets(); start == before {
			t.Fatal("nothing was deleted from the state log")
		}
		w.crash()
		if s = w.reads("reader"); s.Spec().Consumer.Description != "reads all" || s.Info().FloorOffset != 300 {
			t.Errorf("it is %+v, at %+v", *s.Spec(), s.Info())
		}
	})
}

// TestADeclaredSubscriptionReplacesAReader of its name.
func TestADeclaredSubscriptionReplacesAReader(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o")
		s, err := w.service.Create(t.Context(), topicID, "billing", earliest(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 2))
		w.expect("billing", "a", "1", "2")
		time.Sleep(time.Nanosecond) // one of the same time would go on where it stands
		w.declare("billing", 1, earliest())
		synctest.Wait()
		w.crash()
		if s = w.find("billing"); s.Ephemeral() {
			t.Fatal("it is a reader still")
		}
		s.Pull(pull("b", 1))
		w.expect("billing", "b", "1")
	})
}

func TestSettingsOfReadersAreBounded(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := earliest()
		spec.Consumer.MemoryStorage = true
		spec.Consumer.Metadata = map[string]string{"big": strings.Repeat("x", 100<<10)}
		n := 0
		for ; n < 400; n++ {
			if _, err := w.service.Create(t.Context(), topicID, fmt.Sprint("r", n), spec, time.Hour); err != nil {
				var not *NotServedError
				if !errors.As(err, &not) || not.Reason != Unsupported {
					t.Fatal(err)
				}
				break
			}
		}
		if want := readerBytes / (100 << 10); n > want || n < want-10 {
			t.Errorf("%d readers with 100 KiB each fit, and %d may", n, want)
		}
		w.service.Remove(topicID, "r0")
		if _, err := w.service.Create(t.Context(), topicID, "another", spec, time.Hour); err != nil {
			t.Error(err)
		}
	})
}

// TestAFullDiskRefusesReaders: one that the disk can't keep is refused, and one in memory reads.
func TestAFullDiskRefusesReaders(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o")
		fsys := w.fs.(*crashfs.FS)
		fsys.SetHook(func(op crashfs.Op) error {
			if op.Kind == "preallocate" {
				return syscall.ENOSPC
			}
			return nil
		})
		w.shard.state.Roll()
		if _, err := w.service.Create(t.Context(), topicID, "durable", earliest(), time.Hour); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a reader on a full disk: %v", err)
		}
		spec := earliest()
		spec.Consumer.MemoryStorage = true
		s, err := w.service.Create(t.Context(), topicID, "memory", spec, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		s.Pull(pull("a", 1))
		w.expect("memory", "a", "1")
		fsys.SetHook(nil)
		time.Sleep(2 * retryAfter)
		w.crash()
		w.reads("memory")
		if is := w.service.List(topicID); len(is) != 1 {
			t.Errorf("there are %d readers", len(is))
		}
	})
}

// TestACursorWithoutAReaderIsDeleted: a program without readers ignores their items, so a cursor
// may be there without one. It is deleted, as a Subscription's that is not declared.
func TestACursorWithoutAReaderIsDeleted(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		snapshot := appendSnapshot(nil, 7, identity{name: "gone"}, &cursor{offset: 3}, 0)
		if _, err := w.shard.AppendState(&log.Append{Records: []log.Record{{Data: snapshot}}}); err != nil {
			t.Fatal(err)
		}
		w.restart()
		if _, err := w.service.Create(t.Context(), topicID, "gone", earliest(), time.Hour); err != nil {
			t.Fatal(err)
		}
		w.shard.publish("o")
		w.reads("gone").Pull(pull("a", 1))
		w.expect("gone", "a", "1")
	})
}
