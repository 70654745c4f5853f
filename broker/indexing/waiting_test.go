package indexing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// hang has operations of the disk wait, until it is released or the test ends.
func (s *shard) hang(which func(op crashfs.Op) bool) (reached <-chan struct{}, release func()) {
	some, over := make(chan struct{}, 1), make(chan struct{})
	s.fs.SetHook(func(op crashfs.Op) error {
		if which(op) {
			select {
			case some <- struct{}{}:
			default:
			}
			<-over
		}
		return nil
	})
	released := false
	release = func() {
		if !released {
			released = true
			s.fs.SetHook(nil)
			close(over)
		}
	}
	s.t.Cleanup(release) // before the shard is closed
	return some, release
}

// now asks without patience, and fails if that waits for the disk.
func (s *shard) now(of string) (uint64, error) {
	s.t.Helper()
	type answer struct {
		last uint64
		err  error
	}
	answers := make(chan answer, 1)
	index, high := s.index, s.high
	go func() {
		last, err := index.Last(context.Background(), 0, of, 1, high)
		answers <- answer{last, err}
	}()
	select {
	case a := <-answers:
		return a.last, a.err
	case <-time.After(patience / 3):
		s.t.Fatal("a question without patience waits for the disk")
		return 0, nil
	}
}

// reach does something again and again until the disk is used.
func (s *shard) reach(reached <-chan struct{}, do func()) {
	s.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		do()
		select {
		case <-reached:
			return
		case <-time.After(time.Millisecond):
		}
	}
	s.t.Fatal("nothing uses the disk")
}

func orders(i int) string { return fmt.Sprint("orders.", i%10) }

// The goroutine that asks does not open the index.
func TestOpeningAnIndexHoldsNobodyUp(t *testing.T) {
	s := newShard(t, 1)
	s.append(300, orders)
	s.commit()
	reached, release := s.hang(func(op crashfs.Op) bool { return op.Kind == "list" })
	for range 3 {
		if _, err := s.now("orders.3"); !notReady(err) {
			t.Fatal(err)
		}
	}
	s.reach(reached, func() {})
	release()
	s.check(1, "orders.3")
}

// While a file of the index is written, questions are answered from what is there, or told to wait.
// That holds also when the index has to be opened anew, which waits for the end of the writing.
func TestWritingAFileHoldsNobodyUp(t *testing.T) {
	s := newShard(t, 1)
	s.append(300, orders)
	s.commit()
	s.check(1, "orders.3")
	reached, release := s.hang(func(op crashfs.Op) bool { return strings.Contains(op.Path, ".subjects") && op.Changes() })
	s.log.Roll()
	s.append(300, orders)
	s.commit()
	if last, err := s.now("orders.3"); err != nil || last != 594 {
		t.Fatalf("%d, %v", last, err)
	}
	s.reach(reached, func() { s.set.wake(s.index) })
	for range behindSegments + 3 { // more than it reads record by record
		s.append(20, orders)
		s.log.Roll()
	}
	s.append(20, orders)
	s.commit()
	for range 3 {
		if _, err := s.now("orders.3"); !notReady(err) {
			t.Fatal(err)
		}
	}
	release()
	s.check(1, "orders.3")
}

// While the log is read to make a file, questions don't wait.
func TestReadingTheLogHoldsNobodyUp(t *testing.T) {
	s := newShard(t, 1)
	s.append(300, orders)
	s.log.Roll()
	s.append(1, orders)
	s.commit()
	reached, release := s.hang(func(op crashfs.Op) bool { return op.Kind == "read" && strings.HasSuffix(op.Path, ".log") })
	s.reach(reached, func() {
		if _, err := s.now("orders.none"); !notReady(err) {
			t.Fatal(err)
		}
	})
	if _, err := s.now("orders.none"); !notReady(err) {
		t.Fatal(err)
	}
	release()
	s.check(1, "orders.none")
}

// Right after a compaction, when its files are not made yet, the last record of each subject is
// known, also of one that has none.
func TestLastRecordsAreKnownBesideCompaction(t *testing.T) {
	s := newShard(t, 1)
	for range 10 {
		s.append(100, orders)
		s.log.Roll()
	}
	s.append(10, func(i int) string { return fmt.Sprint("late.", i) })
	s.commit()
	s.check(1, ">")
	_, states := s.log.SegmentStates()
	s.settle(func() bool { return len(s.files()) >= len(states)-1 })
	s.fs.SetHook(func(op crashfs.Op) error {
		if strings.Contains(op.Path, ".subjects") && op.Changes() && op.Kind != "remove" {
			return errors.New("no space left on the device")
		}
		return nil
	})
	if done, err := s.log.Compact(t.Context(), log.CompactOptions{Below: s.high}); err != nil || done.Segments == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for of, want := range map[string]uint64{"orders.none": 0, "orders.3": 994, "late.3": 1004} {
		if last, err := s.now(of); err != nil || last != want {
			t.Errorf("the last of %s is %d, %v; want %d", of, last, err, want)
		}
	}
	s.fs.SetHook(nil)
	s.index.makeFailed.Store(false)
	s.check(1, ">")
}

// The log deletes an index file with its segment, also when nobody asks, and counts it until then.
func TestIndexFilesGoWithTheirSegments(t *testing.T) {
	s := newShard(t, 1)
	for range 10 {
		s.append(100, orders)
		s.log.Roll()
	}
	s.commit()
	s.check(1, ">")
	_, states := s.log.SegmentStates()
	s.settle(func() bool { return len(s.files()) >= len(states)-1 })
	if s.log.BesideBytes() == 0 {
		t.Error("the files are not counted")
	}
	for _, open := range []bool{true, false} {
		before := len(s.files())
		if !open {
			s.index.Close()
			s.index = s.set.Of(s.log, &s.removed, s.judge)
		}
		if _, err := s.log.Trim(s.log.Start() + 300); err != nil {
			t.Fatal(err)
		}
		if after := len(s.files()); after >= before {
			t.Errorf("open %v: of %d files %d are left after retention", open, before, after)
		}
		s.check(1, "orders.3")
	}
}
