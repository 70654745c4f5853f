package attribute

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func entry(subject string, revision int64) Entry {
	return Entry{Subject: subject, Revision: revision, Text: fmt.Sprintf(`{"n":%d}`, revision), Bytes: len(subject) + 10}
}

// write is one write of a subject in an etcd of the test.
type write struct {
	subject  string
	revision int64
	gone     bool
}

func (w write) to(s *Store, ahead bool) {
	switch {
	case w.gone && ahead:
		s.DeleteAhead(w.subject, w.revision, true)
	case w.gone:
		s.Delete(w.subject, w.revision)
	case ahead:
		s.PutAhead(entry(w.subject, w.revision))
	default:
		s.Put(entry(w.subject, w.revision))
	}
}

// TestTheStoreNeverGoesBack: writes come by the watch in order, ahead of it in any order and at any
// time, and the watch is now and then replaced by a list. The store has at the end what etcd has,
// and whoever is told sees each subject move forward only, without a gap in what it was.
func TestTheStoreNeverGoesBack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := NewStore()
		s.Listed(0)
		have, at := map[string]Set{}, map[string]int64{}
		stop, ok := s.Tell(func(e Event) {
			if e.Revision <= at[e.Subject] || !e.Before.Equal(have[e.Subject]) || (e.Before == nil) != (have[e.Subject] == nil) {
				t.Errorf("seed %d: %s was %v at %d, and is told to go from %v to %v at %d", seed, e.Subject, have[e.Subject], at[e.Subject], e.Before, e.After, e.Revision)
			}
			have[e.Subject], at[e.Subject] = e.After, e.Revision
		})
		if !ok {
			t.Fatal("nobody may be told")
		}
		var writes []write
		truth := map[string]int64{}
		watched := 0 // of writes
		for len(writes) < 60 {
			w := write{fmt.Sprintf("s.%d", r.IntN(4)), int64(len(writes) + 1), r.IntN(3) == 0}
			if w.gone && truth[w.subject] == 0 {
				w.gone = false
			}
			if truth[w.subject] = w.revision; w.gone {
				delete(truth, w.subject)
			}
			writes = append(writes, w)
			if r.IntN(2) == 0 {
				writes[r.IntN(len(writes))].to(s, true) // also a late one
			}
			switch r.IntN(4) {
			case 0:
				for n := r.IntN(len(writes) - watched + 1); n > 0; n-- {
					writes[watched].to(s, false)
					watched++
				}
				if watched > 0 && !s.Watched(int64(watched)) {
					t.Fatalf("seed %d: the store doubts a watch that had everything", seed)
				}
			case 1:
				if r.IntN(4) == 0 {
					s.list(truth, int64(len(writes)))
					watched = len(writes)
				}
			}
		}
		for ; watched < len(writes); watched++ {
			writes[watched].to(s, false)
		}
		if !s.Watched(int64(watched)) {
			t.Errorf("seed %d: the store doubts a watch that had everything", seed)
		}
		var subjects []string
		var bytes int64
		for subject, revision := range truth {
			e := s.Get(subject)
			if e != entry(subject, revision) || !have[subject].Equal(e.Set()) {
				t.Errorf("seed %d: %s is %+v, and etcd has revision %d", seed, subject, e, revision)
			}
			subjects, bytes = append(subjects, subject), bytes+int64(e.Bytes)
		}
		slices.Sort(subjects)
		var paged []string
		for after, more := "", true; more; more = after != "" {
			var page []Entry
			page, after = s.Page(after, 2, 1<<20, 100, func(string) bool { return true })
			for _, e := range page {
				paged = append(paged, e.Subject)
			}
		}
		if got := s.Stats(); got.Subjects != len(truth) || got.Bytes != bytes || got.Revision != int64(len(writes)) || !slices.Equal(paged, subjects) || len(s.deleted)+len(s.ahead) > 0 {
			t.Errorf("seed %d: %+v, %q, and %q of %d bytes are there; %v, %v remembered", seed, got, paged, subjects, bytes, s.deleted, s.ahead)
		}
		stop()
	}
}

// list puts what is there at a revision, and deletes the rest, as a read of etcd does.
func (s *Store) list(truth map[string]int64, at int64) {
	for subject, revision := range truth {
		s.Put(entry(subject, revision))
	}
	for _, subject := range s.Subjects() {
		if truth[subject] == 0 {
			s.Delete(subject, at)
		}
	}
	s.Listed(at)
}

// TestARestoredEtcdIsTaken: after a restore revisions go back, and what was written since the
// backup is gone.
func TestARestoredEtcdIsTaken(t *testing.T) {
	s := NewStore()
	s.list(map[string]int64{"a": 5, "b": 6}, 6)
	s.Put(entry("a", 8))
	s.Put(entry("c", 9))
	s.Delete("b", 10)
	s.Watched(10)
	s.PutAhead(entry("d", 11))
	s.Distrust()
	s.list(map[string]int64{"a": 5, "b": 6}, 7)
	for subject, want := range map[string]int64{"a": 5, "b": 6, "c": 0} {
		if got := s.Get(subject).Revision; got != want {
			t.Errorf("%s is at revision %d, want %d", subject, got, want)
		}
	}
	if !s.Put(entry("a", 8)) || s.Get("a").Revision != 8 {
		t.Error("a revision that is given again is not taken")
	}
}

// TestWhatRevisionsAreOf: of which history, and since which list. What was taken ahead of the watch
// counts when the watch brings it.
func TestWhatRevisionsAreOf(t *testing.T) {
	s := NewStore()
	is := func(when string, want Stats) {
		t.Helper()
		got := s.Stats()
		got.Ready, got.Subjects, got.Bytes, got.Changes = false, 0, 0, 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	s.Of("x")
	s.list(map[string]int64{"a": 5}, 7)
	is("a list", Stats{History: "x", Revision: 7, Newest: 5, Lists: 1})
	s.PutAhead(entry("b", 9))
	is("ahead", Stats{History: "x", Revision: 7, Newest: 5, Lists: 1})
	s.Put(entry("b", 9))
	is("brought", Stats{History: "x", Revision: 7, Newest: 7, Lists: 1})
	s.Watched(9)
	is("complete", Stats{History: "x", Revision: 9, Newest: 9, Lists: 1})
	s.Distrust()
	is("a restored etcd", Stats{History: "x", Lists: 1, Distrusted: true})
	s.Of("y")
	s.list(map[string]int64{"a": 5}, 6)
	is("read again", Stats{History: "y", Revision: 6, Newest: 5, Lists: 2})
}

// TestWhatTheWatchDoesNotConfirmIsDoubted: a write was acknowledged, and etcd was restored to
// before it, without anybody noticing.
func TestWhatTheWatchDoesNotConfirmIsDoubted(t *testing.T) {
	s := NewStore()
	s.list(map[string]int64{"a": 5}, 5)
	s.PutAhead(entry("a", 7))
	s.DeleteAhead("b", 7, false) // nothing to confirm
	if !s.Watched(6) {
		t.Error("the watch has not come to it, and is doubted")
	}
	s.Put(entry("c", 7))
	if s.Watched(7) {
		t.Error("the watch has passed it, and is not doubted")
	}
	s.Distrust()
	s.list(map[string]int64{"a": 5, "c": 7}, 7)
	if got := s.Get("a").Revision; got != 5 || !s.Watched(8) {
		t.Errorf("after everything was read again, a is at revision %d", got)
	}
}

func TestHoldersHaveTheirSubjects(t *testing.T) {
	s := NewStore()
	s.Listed(0)
	one, other := Holder{"a", 1, 1}, Holder{"a", 1, 2}
	for i := range 10 {
		e := entry(fmt.Sprintf("s.%d", i), int64(i+1))
		e.Holder = one
		s.Put(e)
	}
	claimed := entry("s.3", 20)
	claimed.Holder = other
	s.Put(claimed)
	s.Delete("s.4", 21)
	if held := s.HeldBy(one, 100); len(held) != 8 || len(s.HeldBy(one, 3)) != 3 || len(s.HeldBy(other, 100)) != 1 || len(s.Holders()) != 2 {
		t.Errorf("%d subjects are held by one of %d", len(held), len(s.Holders()))
	}
	s.Put(entry("s.3", 22))
	if len(s.Holders()) != 1 {
		t.Error("a holder without subjects is remembered")
	}
}

func TestOnlySomeAreTold(t *testing.T) {
	s := NewStore()
	s.Listed(0)
	s.Put(entry("a", 1))
	var events []Event
	stop, _ := s.Tell(func(e Event) { events = append(events, e) })
	bound := entry("a", 1)
	bound.Revision, bound.Holder = 2, Holder{"a", 1, 1}
	s.Put(bound) // the same Set
	if len(events) != 1 || events[0].Before != nil || !events[0].After.Equal(Set{"n": Number(1)}) {
		t.Errorf("told of %v", events)
	}
	stop()
	s.Delete("a", 3)
	if len(events) != 1 {
		t.Error("told after the end")
	}
	for range maxTold {
		if _, ok := s.Tell(func(Event) {}); !ok {
			t.Fatal("a place was not given back")
		}
	}
	if _, ok := s.Tell(func(Event) {}); ok {
		t.Error("any number may be told")
	}
}

func TestSubjectsStayInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var o order
	there := map[string]bool{}
	for range 20 * chunk {
		subject := fmt.Sprint(r.IntN(4 * chunk))
		if there[subject] = r.IntN(3) > 0; there[subject] {
			o.insert(subject)
		} else {
			o.remove(subject)
			delete(there, subject)
		}
	}
	var want []string
	for subject := range there {
		want = append(want, subject)
	}
	slices.Sort(want)
	if got := slices.Collect(o.after("", true)); !slices.Equal(got, want) || len(o.chunks) < 3 {
		t.Errorf("%d subjects in %d chunks, want %d", len(got), len(o.chunks), len(want))
	}
	for _, from := range []int{0, len(want) / 2, len(want) - 1} {
		if got := slices.Collect(o.after(want[from], false)); !slices.Equal(got, want[from+1:]) {
			t.Errorf("after %s come %d, want %d", want[from], len(got), len(want)-from-1)
		}
	}
	for _, c := range o.chunks {
		if len(c) > chunk || len(c) == 0 {
			t.Errorf("a chunk of %d", len(c))
		}
	}
}

// TestTextsAreThoseOfTheStore: what leaders store with records, without an allocation, and known
// once everything was read.
func TestTextsAreThoseOfTheStore(t *testing.T) {
	s := NewStore()
	if !s.IsEmpty() || s.Text([]byte("a")) != "" {
		t.Error("a new store has something")
	}
	s.Put(entry("a", 3))
	select {
	case <-s.Ready():
		t.Error("it is ready before everything was read")
	default:
	}
	for range 2 {
		s.Listed(3)
		<-s.Ready()
	}
	name := []byte("a")
	if s.IsEmpty() || s.Text(name) != `{"n":3}` || s.Text([]byte("b")) != "" {
		t.Errorf("it has %q", s.Text(name))
	}
	if n := testing.AllocsPerRun(100, func() { s.Text(name) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	s.DeleteAhead("a", 4, true)
	if !s.IsEmpty() || s.Text(name) != "" {
		t.Error("what was deleted is there")
	}
}
