package indexing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// finding is what Lasts finds: what a test says, when it says so.
type finding struct {
	asked   chan string
	answers chan error
	below   chan uint64
	found   chan struct{}
	loads   chan []string // of loads; closed: there are none
}

func newLasts(t *testing.T, end uint64) (*Lasts, *finding) {
	s := newShard(t, 1)
	f := &finding{asked: make(chan string, 100), answers: make(chan error, 100), below: make(chan uint64, 100), found: make(chan struct{}, 100), loads: make(chan []string, 10)}
	x := s.set.NewLasts(end, func(_ context.Context, subject string, below uint64) (uint64, error) {
		f.asked <- subject
		f.below <- below
		return below / 2, <-f.answers
	}, f.all, func() { f.found <- struct{}{} })
	t.Cleanup(func() {
		close(f.answers)
		close(f.loads)
		x.Close()
	})
	return x, f
}

// all answers a load: each subject has its place in the list as its last record.
func (f *finding) all(_ context.Context, _ uint64, begin func(), each func(subject []byte, last uint64) bool) error {
	subjects, ok := <-f.loads
	if !ok {
		return &NotReadyError{Why: "it is being made"}
	}
	begin()
	for i, of := range subjects {
		if !each([]byte(of), uint64(i+1)) {
			break
		}
	}
	return nil
}

// Once all subjects are loaded, nothing is looked for, also not for a subject that has no record. What
// was noted since counts more.
func TestAllLastRecordsAreLoaded(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Want([]byte("c"))
	f.answers <- nil
	f.wait(t, x)
	x.Note([]byte("b"), 100)
	f.loads <- []string{"a", "b", "c"}
	for until := time.Now().Add(patience); ; {
		x.mu.Lock()
		complete := x.complete
		x.mu.Unlock()
		if complete {
			break
		}
		if time.Now().After(until) {
			t.Fatal("they aren't loaded")
		}
		time.Sleep(time.Millisecond)
	}
	for of, want := range map[string]uint64{"a": 1, "b": 100, "c": 3, "none": 0} {
		if offset, pending, err := x.Last([]byte(of)); offset != want || pending || err != nil {
			t.Errorf("%s: %d, %v, %v; want %d", of, offset, pending, err, want)
		}
	}
	x.Reset(200)
	if _, pending, _ := x.Last([]byte("none")); !pending {
		t.Error("what was loaded is believed of records that came later")
	}
	f.answers <- nil
	f.wait(t, x)
}

// wait waits until nothing is being found, and that was told.
func (f *finding) wait(t *testing.T, x *Lasts) {
	t.Helper()
	for {
		select {
		case <-f.found:
		case <-time.After(patience):
			t.Fatal("nothing is found")
		}
		if x.Idle() {
			return
		}
	}
}

// A last record that isn't known is found in the background: nobody waits, and who asked is told.
func TestLastRecordsAreFoundInTheBackground(t *testing.T) {
	x, f := newLasts(t, 100)
	for range 2 { // the second time it is being found already
		if _, pending, err := x.Last([]byte("a")); !pending || err != nil || x.Idle() {
			t.Fatal(pending, err)
		}
	}
	x.Note([]byte("b"), 100)
	if offset, pending, err := x.Last([]byte("b")); offset != 100 || pending || err != nil {
		t.Fatal(offset, pending, err)
	}
	f.answers <- nil
	f.wait(t, x)
	if offset, pending, err := x.Last([]byte("a")); offset != 50 || pending || err != nil || !x.Idle() {
		t.Fatal(offset, pending, err)
	}
	// What comes later counts more than what was found.
	x.Note([]byte("a"), 101)
	if offset, _, _ := x.Last([]byte("a")); offset != 101 {
		t.Fatal(offset)
	}
}

// What is found while everything is forgotten is not of the records that were forgotten, so it is
// found again.
func TestWhatIsFoundIsBelowWhatIsNoted(t *testing.T) {
	x, f := newLasts(t, 100)
	if _, pending, _ := x.Last([]byte("a")); !pending {
		t.Fatal("it is known")
	}
	<-f.asked
	x.Note([]byte("a"), 100)
	x.Reset(200)
	f.answers <- nil
	f.answers <- nil
	f.wait(t, x)
	if offset, pending, err := x.Last([]byte("a")); offset != 100 || pending || err != nil {
		t.Fatal(offset, pending, err)
	}
	if a, b := <-f.below, <-f.below; a != 100 || b != 200 {
		t.Errorf("it was looked for below %d and %d", a, b)
	}
}

// A shard with more subjects than it remembers forgets them when they are in the log, and finds them
// again.
func TestSubjectsBeyondThoseThatAreRemembered(t *testing.T) {
	x, f := newLasts(t, 1)
	name := func(n int) []byte { return fmt.Append(nil, n) }
	for n := 1; n <= mostLasts; n++ {
		x.Note(name(n), uint64(n))
	}
	x.Appended(mostLasts + 1)
	if offset, pending, _ := x.Last(name(1)); offset != 1 || pending {
		t.Fatal(offset, pending)
	}
	x.Note(name(mostLasts+1), mostLasts+1)
	if offset, pending, _ := x.Last(name(1)); offset != 1 || pending {
		t.Fatal("a record is forgotten that the log does not have yet")
	}
	x.Appended(mostLasts + 2)
	x.Note(name(7), mostLasts+2)
	if _, pending, _ := x.Last(name(1)); !pending {
		t.Fatal("a subject is known that was forgotten")
	}
	f.answers <- nil
	f.wait(t, x)
	if below := <-f.below; below != mostLasts+2 {
		t.Errorf("it was looked for below %d", below)
	}
	if offset, pending, _ := x.Last(name(7)); offset != mostLasts+2 || pending {
		t.Error(offset, pending)
	}
}

// While the index isn't ready, those that wait are refused at once, and so are those that come in
// the next moment. A failure for one subject concerns that one only, once.
func TestWhatCannotBeFoundIsRefused(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Want([]byte("a"))
	<-f.asked
	x.Want([]byte("b"))
	broken := errors.New("the records are damaged")
	f.answers <- broken
	f.answers <- nil
	f.wait(t, x)
	if _, pending, err := x.Last([]byte("a")); pending || err != broken {
		t.Fatal(pending, err)
	}
	if offset, pending, err := x.Last([]byte("b")); offset != 50 || pending || err != nil {
		t.Fatal(offset, pending, err)
	}
	x.Want([]byte("a"))
	<-f.asked // b
	<-f.asked // a
	x.Want([]byte("c"))
	f.answers <- &NotReadyError{Why: "it is being opened"}
	f.wait(t, x)
	for _, of := range []string{"a", "c", "never asked for"} {
		if _, pending, err := x.Last([]byte(of)); pending || !notReady(err) {
			t.Errorf("%s: %v, %v", of, pending, err)
		}
	}
	if !x.Idle() || len(f.asked) > 0 {
		t.Error("something is looked for that has been refused")
	}
	x.mu.Lock()
	x.rest = time.Time{}
	x.mu.Unlock()
	if _, pending, err := x.Last([]byte("a")); !pending || err != nil {
		t.Error("it isn't looked for again", err)
	}
}

// The number of subjects that wait is bounded.
func TestFindingIsBounded(t *testing.T) {
	x, f := newLasts(t, 100)
	for n := range mostFinds {
		if _, pending, err := x.Last(fmt.Append(nil, n)); !pending || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, pending, err := x.Last([]byte("one more")); pending || err == nil {
		t.Error("there is no bound")
	}
	f.answers <- &NotReadyError{Why: "over"}
	f.wait(t, x)
}
