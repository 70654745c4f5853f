package indexing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// finding is what Lasts finds: what a test says, when it says so.
type finding struct {
	asked   chan string
	answers chan error
	below   chan uint64
	patient chan bool
	found   chan struct{}
	loads   chan []string // of loads; closed: there are none
	removed *removal.Set
}

func newLasts(t *testing.T, end uint64) (*Lasts, *finding) {
	s := newShard(t, 1)
	f := &finding{asked: make(chan string, 100), answers: make(chan error, 100), below: make(chan uint64, 100), patient: make(chan bool, 100), found: make(chan struct{}, 100), loads: make(chan []string, 10)}
	f.removed = &s.removed
	x := s.set.NewLasts(&s.removed, func(_ context.Context, subject string, below uint64, patient bool) (uint64, error) {
		f.asked <- subject
		f.below <- below
		f.patient <- patient
		return below / 2, <-f.answers
	}, f.all, nil, nil, func() { f.found <- struct{}{} })
	if !x.Begin(end) || x.Begin(end+1) {
		t.Fatal("it does not begin once")
	}
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

// Once all subjects are loaded, nothing is looked for, also not for a subject that has no record.
// What was noted since counts more.
func TestAllLastRecordsAreLoaded(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Want([]byte("c"), false)
	f.answers <- nil
	f.wait(t, x)
	x.Note([]byte("b"), 100)
	f.loads <- []string{"a", "b", "c"}
	testutil.EventuallyTrue(t, "they are loaded", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.complete
	})
	for of, want := range map[string]uint64{"a": 1, "b": 100, "c": 3, "none": 0} {
		if offset, wait, err := x.Last([]byte(of)); offset != want || wait > 0 || err != nil {
			t.Errorf("%s: %d, %v, %v; want %d", of, offset, wait, err, want)
		}
	}
	x.Reset(200)
	if _, wait, _ := x.Last([]byte("none")); wait == 0 {
		t.Error("what was loaded is believed of records that came later")
	}
	f.answers <- nil
	f.wait(t, x)
}

// The last record of a subject is removed: the one before is found, also if it was noted itself,
// and if all subjects were loaded.
func TestARemovedRecordIsNotTheLastOne(t *testing.T) {
	x, f := newLasts(t, 100)
	find := func(of string, below, want uint64) {
		t.Helper()
		if offset, wait, err := x.Last([]byte(of)); wait == 0 || err != nil {
			t.Fatalf("%s: %d, %v, though it was removed", of, offset, err)
		}
		if is := <-f.below; is != below {
			t.Errorf("%s is looked for below %d, want %d", of, is, below)
		}
		f.answers <- nil // below/2
		f.wait(t, x)
		if offset, wait, err := x.Last([]byte(of)); offset != want || wait > 0 || err != nil {
			t.Errorf("%s: %d, %d, %v; want %d", of, offset, wait, err, want)
		}
	}
	x.Note([]byte("a"), 110)
	x.Note([]byte("b"), 300)
	x.Appended(301)
	f.removed.Add(110, 111)
	find("a", 111, 55) // below what was noted
	f.removed.Add(55, 56)
	find("a", 100, 50)
	f.removed.Add(300, 301)
	find("b", 301, 150) // that was noted, too
	x.Note([]byte("a"), 310)
	if offset, wait, _ := x.Last([]byte("a")); offset != 310 || wait > 0 {
		t.Errorf("a newer record is noted, and the last one is %d", offset)
	}
}

// TestWhatIsTriedIsUndone: of the subjects that were noted since Try what was known before is known
// again, and of others nothing is forgotten.
func TestWhatIsTriedIsUndone(t *testing.T) {
	x, f := newLasts(t, 100)
	if _, wait, _ := x.Last([]byte("found")); wait == 0 {
		t.Fatal("it is known")
	}
	f.answers <- nil
	f.wait(t, x)
	x.Note([]byte("noted"), 100)
	x.Appended(101)
	for range 2 {
		x.Try()
		x.RemovedAll(101)
		for i, of := range []string{"noted", "found", "new", "noted"} {
			x.Note([]byte(of), uint64(101+i))
		}
		x.Undo(101)
		for of, want := range map[string]uint64{"noted": 100, "found": 50} {
			if offset, wait, err := x.Last([]byte(of)); offset != want || wait > 0 || err != nil {
				t.Errorf("%s: %d, %v, %v; want %d", of, offset, wait, err, want)
			}
		}
	}
	if _, wait, _ := x.Last([]byte("new")); wait == 0 {
		t.Error("a record is known that was undone")
	}
	f.answers <- nil
	f.wait(t, x)
}

// idle reports whether nothing is being found.
func idle(x *Lasts) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.queued) == 0
}

// wait waits until nothing is being found, and that was told.
func (f *finding) wait(t *testing.T, x *Lasts) {
	t.Helper()
	testutil.EventuallyTrue(t, "everything is found, and told", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.queued) == 0 && x.untold == nil
	})
}

// A last record that isn't known is found in the background: nobody waits, and who asked is told.
func TestLastRecordsAreFoundInTheBackground(t *testing.T) {
	x, f := newLasts(t, 100)
	for range 2 { // the second time it is being found already
		if _, wait, err := x.Last([]byte("a")); wait == 0 || err != nil || idle(x) {
			t.Fatal(wait, err)
		}
	}
	x.Note([]byte("b"), 100)
	if offset, wait, err := x.Last([]byte("b")); offset != 100 || wait > 0 || err != nil {
		t.Fatal(offset, wait, err)
	}
	f.answers <- nil
	f.wait(t, x)
	if offset, wait, err := x.Last([]byte("a")); offset != 50 || wait > 0 || err != nil || !idle(x) {
		t.Fatal(offset, wait, err)
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
	if _, wait, _ := x.Last([]byte("a")); wait == 0 {
		t.Fatal("it is known")
	}
	<-f.asked
	x.Note([]byte("a"), 100)
	x.Reset(200)
	f.answers <- nil
	f.answers <- nil
	f.wait(t, x)
	if offset, wait, err := x.Last([]byte("a")); offset != 100 || wait > 0 || err != nil {
		t.Fatal(offset, wait, err)
	}
	if a, b := <-f.below, <-f.below; a != 100 || b != 200 {
		t.Errorf("it was looked for below %d and %d", a, b)
	}
}

// A shard with more subjects than it remembers forgets them when they are in the log, and finds
// them again.
func TestSubjectsBeyondThoseThatAreRemembered(t *testing.T) {
	x, f := newLasts(t, 1)
	name := func(n int) []byte { return fmt.Append(nil, n) }
	for n := 1; n <= mostLasts; n++ {
		x.Note(name(n), uint64(n))
	}
	x.Appended(mostLasts + 1)
	if offset, wait, _ := x.Last(name(1)); offset != 1 || wait > 0 {
		t.Fatal(offset, wait)
	}
	x.Note(name(mostLasts+1), mostLasts+1)
	if offset, wait, _ := x.Last(name(1)); offset != 1 || wait > 0 {
		t.Fatal("a record is forgotten that the log does not have yet")
	}
	x.Appended(mostLasts + 2)
	x.Note(name(7), mostLasts+2)
	if _, wait, _ := x.Last(name(1)); wait == 0 {
		t.Fatal("a subject is known that was forgotten")
	}
	f.answers <- nil
	f.wait(t, x)
	if below := <-f.below; below != mostLasts+2 {
		t.Errorf("it was looked for below %d", below)
	}
	if offset, wait, _ := x.Last(name(7)); offset != mostLasts+2 || wait > 0 {
		t.Error(offset, wait)
	}
}

// While the index isn't ready, those that wait are refused at once, and so are those that come in
// the next moment. A failure for one subject concerns that one only, once.
func TestWhatCannotBeFoundIsRefused(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Want([]byte("a"), false)
	<-f.asked
	x.Want([]byte("b"), false)
	broken := errors.New("the records are damaged")
	f.answers <- broken
	f.answers <- nil
	f.wait(t, x)
	if _, wait, err := x.Last([]byte("a")); wait > 0 || err != broken {
		t.Fatal(wait, err)
	}
	if offset, wait, err := x.Last([]byte("b")); offset != 50 || wait > 0 || err != nil {
		t.Fatal(offset, wait, err)
	}
	x.Want([]byte("a"), false)
	<-f.asked // b
	<-f.asked // a
	x.Want([]byte("c"), false)
	f.answers <- &NotReadyError{Why: "it is being opened"}
	f.wait(t, x)
	for _, of := range []string{"a", "c", "never asked for"} {
		if _, wait, err := x.Last([]byte(of)); wait > 0 || !notReady(err) {
			t.Errorf("%s: %v, %v", of, wait, err)
		}
	}
	if !idle(x) || len(f.asked) > 0 {
		t.Error("something is looked for that has been refused")
	}
	x.mu.Lock()
	x.rest = time.Time{}
	x.mu.Unlock()
	if _, wait, err := x.Last([]byte("a")); wait == 0 || err != nil {
		t.Error("it isn't looked for again", err)
	}
}

// An index that lacks a part is not ready for subjects that may be there, and those only: the
// others are looked for, without patience.
func TestAMissingPartRefusesOnlyWhatDependsOnIt(t *testing.T) {
	x, f := newLasts(t, 100)
	for _, of := range []string{"a", "b"} {
		if _, wait, err := x.Last([]byte(of)); wait == 0 || err != nil {
			t.Fatal(of, wait, err)
		}
	}
	f.answers <- &subjectindex.MissingError{From: 1, To: 50}
	f.answers <- nil
	f.wait(t, x)
	if _, wait, err := x.Last([]byte("a")); wait > 0 || !notReady(err) {
		t.Errorf("a: %v, %v", wait, err)
	}
	if offset, wait, err := x.Last([]byte("b")); offset != 50 || wait > 0 || err != nil {
		t.Errorf("b: %d, %v, %v", offset, wait, err)
	}
	if _, wait, err := x.Last([]byte("c")); wait == 0 || err != nil {
		t.Error("c is not looked for", err)
	}
	f.answers <- nil
	f.wait(t, x)
	if a, b, c := <-f.patient, <-f.patient, <-f.patient; !a || b || c {
		t.Errorf("it was patient: %v, %v, %v", a, b, c)
	}
}

// Who waits for a subject is told when it was found, also while others are being looked for.
func TestWhoWaitsIsToldInTime(t *testing.T) {
	x, f := newLasts(t, 100)
	_, wait, _ := x.Last([]byte("a"))
	<-f.asked
	for _, of := range []string{"b", "c"} { // nobody waits for them yet
		x.Want([]byte(of), false)
	}
	if x.Told(wait) {
		t.Error("it was told before it was found")
	}
	f.answers <- nil
	<-f.asked // b, on a slow disk
	f.told(t)
	if offset, again, err := x.Last([]byte("a")); offset != 50 || again > 0 || err != nil || !x.Told(wait) {
		t.Fatal(offset, again, err)
	}
	f.answers <- nil
	f.answers <- nil
	f.wait(t, x)
	if len(f.found) > 0 {
		t.Error("subjects were told for which nobody waits")
	}
}

// told waits until found is called.
func (f *finding) told(t *testing.T) {
	t.Helper()
	select {
	case <-f.found:
	case <-time.After(patience):
		t.Fatal("a subject is known, and nobody is told")
	}
}

// A load of all subjects ends the waits for one of them, although a slow disk still looks for it.
func TestALoadTellsWhoWaits(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Last([]byte("a"))
	<-f.asked
	f.loads <- []string{"a"}
	f.told(t)
	if offset, wait, err := x.Last([]byte("a")); offset != 1 || wait > 0 || err != nil {
		t.Error(offset, wait, err)
	}
	f.answers <- nil
	f.wait(t, x)
}

// All shards together remember a bounded number of last records. The shard that has the most
// forgets them, and one within its share keeps what it has.
func TestMemoryForLastRecordsIsShared(t *testing.T) {
	s := newShard(t, 1)
	s.set.lasts.most = 100
	none := func(context.Context, string, uint64, bool) (uint64, error) { return 0, &NotReadyError{} }
	count := 0
	all := func(_ context.Context, _ uint64, begin func(), f func(subject []byte, last uint64) bool) error {
		begin()
		for count = 1; count < 1000 && f(fmt.Append(nil, count), uint64(count)); count++ {
		}
		return nil
	}
	made := func() *Lasts {
		x := s.set.NewLasts(&s.removed, none, all, nil, nil, func() {})
		x.Begin(1)
		x.asked.Store(time.Now().UnixNano())
		t.Cleanup(x.Close)
		return x
	}
	note := func(x *Lasts, n int) {
		for i := range n {
			x.Note(fmt.Append(nil, i), uint64(i+1))
		}
	}
	knows := func(x *Lasts) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.last)+len(x.below) > 0
	}
	small, large, last := made(), made(), made()
	note(small, 20)
	small.Appended(21)
	note(large, 70)
	large.Appended(71)
	if !knows(small) || !knows(large) {
		t.Fatal("records are forgotten although there is room")
	}
	note(last, 20)
	last.Appended(21)
	if !knows(small) || knows(large) || !knows(last) || s.set.lasts.held.Load() != 40 {
		t.Fatalf("small %v, large %v, last %v; %d are held", knows(small), knows(large), knows(last), s.set.lasts.held.Load())
	}
	// What nobody asks for is forgotten first, and nothing that the log does not have yet.
	note(large, 50)
	large.Appended(71)
	note(small, 45)
	small.asked.Store(time.Now().Add(-time.Minute).UnixNano())
	small.Appended(46)
	if knows(small) || !knows(large) {
		t.Fatal("what is asked for was forgotten first")
	}
	large.asked.Store(time.Now().Add(-time.Minute).UnixNano())
	note(large, 50)
	note(last, 60)
	last.Appended(61)
	if !knows(large) {
		t.Fatal("what is not in the log yet is forgotten")
	}
	large.Appended(121)
	if knows(large) || s.set.lasts.held.Load() != 60 {
		t.Errorf("%d are held", s.set.lasts.held.Load())
	}
	// A load takes no more than the shard's share if there is no room.
	last.load()
	if count > 101 || s.set.lasts.held.Load() > 101 {
		t.Errorf("%d subjects were loaded, %d are held", count, s.set.lasts.held.Load())
	}
}

// A shard without conditions for a while notes nothing. When one asks again, records of the time
// between are found as all others.
func TestWithoutConditionsNothingIsNoted(t *testing.T) {
	x, f := newLasts(t, 100)
	x.Note([]byte("a"), 100)
	x.Appended(101)
	if offset, _, _ := x.Last([]byte("a")); offset != 100 {
		t.Fatal(offset)
	}
	x.asked.Store(time.Now().Add(-time.Hour).UnixNano())
	x.Note([]byte("a"), 101)
	x.Appended(102)
	x.Note([]byte("a"), 102)
	x.Appended(103)
	if held := x.set.lasts.held.Load(); held != 0 {
		t.Errorf("%d records are remembered", held)
	}
	if !x.Begin(103) {
		t.Fatal("it still notes records")
	}
	x.Note([]byte("b"), 103)
	if _, wait, err := x.Last([]byte("a")); wait == 0 || err != nil {
		t.Error("a record of before is believed to be the last", err)
	}
	if offset, wait, _ := x.Last([]byte("b")); offset != 103 || wait > 0 {
		t.Error(offset, wait)
	}
	f.answers <- nil
	f.wait(t, x)
	if below := <-f.below; below != 103 {
		t.Errorf("it is looked for below %d", below)
	}
}

// The number of subjects that wait is bounded.
func TestFindingIsBounded(t *testing.T) {
	x, f := newLasts(t, 100)
	for n := range mostFinds {
		if _, wait, err := x.Last(fmt.Append(nil, n)); wait == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, wait, err := x.Last([]byte("one more")); wait > 0 || err == nil {
		t.Error("there is no bound")
	}
	f.answers <- &NotReadyError{Why: "over"}
	f.wait(t, x)
}
