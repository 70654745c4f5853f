package indexing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// patterned is a log of whose patterns Lasts is asked.
type patterned struct {
	t       *testing.T
	x       *Lasts
	mu      sync.Mutex
	log     []string // the subjects of the records from offset 1 on
	removed *removal.Set
	asked   chan string
	slow    time.Duration // that each lookup takes
	times   []time.Time   // when lookups began and ended
	answers chan error    // a lookup waits for one
}

func newPatterned(t *testing.T) *patterned {
	s := newShard(t, 1)
	p := &patterned{t: t, removed: &s.removed, asked: make(chan string, 100), answers: make(chan error, 100)}
	p.x = s.set.NewLasts(&s.removed, func(_ context.Context, of string, below uint64, _ bool) (last uint64, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return uint64(slices.Index(p.log[:below-1], of) + 1), nil
	}, func(context.Context, uint64, func(), func([]byte, uint64) bool) error {
		return &NotReadyError{Why: "it is being made"}
	}, nil, p.find, func() {})
	p.x.Begin(1)
	t.Cleanup(func() {
		close(p.answers)
		p.x.Close()
	})
	return p
}

// find is a FindMatches.
func (p *patterned) find(_ context.Context, pattern string, below uint64, most int, _ bool) (m Matches, err error) {
	p.asked <- fmt.Sprint(pattern, " ", below, " ", most)
	began := time.Now()
	time.Sleep(p.slow)
	p.mu.Lock()
	p.times = append(p.times, began, time.Now())
	log := p.log[:below-1]
	p.mu.Unlock()
	for i, of := range log {
		offset := uint64(i + 1)
		if !subject.Matches([]byte(pattern), []byte(of)) || p.removed.Has(offset) {
			continue
		}
		if m.Last = offset; most > 0 {
			m.Offsets = append(m.Offsets, offset)
			m.Count++
		}
	}
	return m, <-p.answers
}

// write has records in the log that were noted.
func (p *patterned) write(subjects ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, subjects...)
}

// append has records noted, and in the log.
func (p *patterned) append(subjects ...string) {
	for _, of := range subjects {
		p.write(of)
		p.x.Note([]byte(of), uint64(len(p.log)))
	}
	p.x.Appended(uint64(len(p.log) + 1))
}

// last waits until the last record of a pattern is known.
func (p *patterned) last(pattern string) (last uint64) {
	p.t.Helper()
	testutil.EventuallyTrue(p.t, "the last record of "+pattern+" is known", func() bool {
		offset, wait, err := p.x.LastMatch([]byte(pattern))
		testutil.Must(p.t, err)
		last = offset
		return wait == 0
	})
	return last
}

// all waits until the records of a pattern are known.
func (p *patterned) all(pattern string) (all []uint64) {
	p.t.Helper()
	testutil.EventuallyTrue(p.t, "the records of "+pattern+" are known", func() bool {
		offsets, more, wait, err := p.x.Matches([]byte(pattern), 1)
		testutil.Must(p.t, err)
		if more > 0 {
			p.t.Fatal("too many")
		}
		all = slices.Clone(offsets)
		return wait == 0
	})
	return all
}

func (p *patterned) expect(what string, got, want any) {
	p.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestPatternsAreLookedFor: what comes while a pattern is looked for counts, and so does what comes
// later; it is not looked for again until its last record is removed.
func TestPatternsAreLookedFor(t *testing.T) {
	p := newPatterned(t)
	p.append("a.x", "b.x", "a.y")
	for _, f := range []func() uint64{
		func() uint64 { _, wait, _ := p.x.LastMatch([]byte("a.*")); return wait },
		func() uint64 { _, _, wait, _ := p.x.Matches([]byte("*.x"), 1); return wait },
	} {
		if f() == 0 {
			t.Fatal("it is known at once")
		}
	}
	p.expect("it is looked for", <-p.asked, "a.* 4 0")
	p.append("a.z", "b.x", "c.y")
	p.answers <- nil
	p.expect("then the other", <-p.asked, fmt.Sprint("*.x 7 ", MostOldest))
	p.x.NoteRun([]byte("c.x"), 7, 9)
	p.write("c.x", "c.x", "c.x")
	p.x.Appended(10)
	p.answers <- nil
	p.expect("the last one came meanwhile", p.last("a.*"), 4)
	p.expect("all, with those that came", p.all("*.x"), []uint64{1, 2, 5, 7, 8, 9})
	p.append("a.a", "d.x")
	p.expect("a newer one", p.last("a.*"), 10)
	p.expect("and of the other", p.all("*.x"), []uint64{1, 2, 5, 7, 8, 9, 11})
	p.removed.Add(10, 11)
	p.removed.Add(2, 3)
	p.answers <- nil
	p.expect("the one before", p.last("a.*"), 4)
	p.expect("without one that is removed", p.all("*.x"), []uint64{1, 5, 7, 8, 9, 11})
	p.expect("it was looked for again", <-p.asked, "a.* 12 0")
	offsets, _, _, _ := p.x.Matches([]byte("*.x"), 8)
	p.expect("from the start of the log on", offsets, []uint64{8, 9, 11})
	p.x.RemovedAll(12)
	p.expect("all are rolled up", p.last("a.*"), 0)
	p.expect("of both", p.all("*.x"), []uint64{})
}

// TestLookupsLeaveHalfOfACore: others get a core between two lookups, for as long as one took.
func TestLookupsLeaveHalfOfACore(t *testing.T) {
	p := newPatterned(t)
	p.append("a.x")
	p.slow = 3 * time.Millisecond
	const patterns = 5
	for i := range patterns {
		p.answers <- nil
		if _, wait, err := p.x.LastMatch(fmt.Appendf(nil, "*.%d", i)); wait == 0 || err != nil {
			t.Fatalf("it is known at once: %v", err)
		}
	}
	p.last("*.4")
	for i := 2; i < len(p.times); i += 2 {
		if pause := p.times[i].Sub(p.times[i-1]); pause < p.slow {
			t.Errorf("lookup %d began %v after the one before had ended, which took %v", i/2, pause, p.slow)
		}
	}
	p.expect("lookups", len(p.times)/2, patterns)
}

// TestAPatternIsLookedForBehindABatch: a batch that is being gathered is not in the log.
func TestAPatternIsLookedForBehindABatch(t *testing.T) {
	p := newPatterned(t)
	p.append("a.x")
	p.x.Note([]byte("a.y"), 2)
	if _, wait, _ := p.x.LastMatch([]byte("a.*")); wait == 0 {
		t.Fatal("it is known at once")
	}
	p.write("a.y")
	p.x.Appended(3)
	p.answers <- nil
	p.expect("it is looked for", <-p.asked, "a.* 3 0")
	p.expect("with the batch", p.last("a.*"), 2)
	p.x.Note([]byte("a.z"), 3)
	p.expect("in a batch", p.last("a.*"), 3)
	p.x.Undo(3)
	p.answers <- nil
	p.expect("that is not appended", p.last("a.*"), 2)
	p.x.Try()
	p.x.Note([]byte("a.z"), 3)
	p.x.Undo(3)
	p.answers <- nil
	p.expect("nor is that one", p.last("a.*"), 2)
}

// TestWhatIsRolledUpIsNotBelieved: until readers see what a rollup of a pattern removes, questions
// about it wait. Others do not.
func TestWhatIsRolledUpIsNotBelieved(t *testing.T) {
	p := newPatterned(t)
	p.append("a.x", "b.x", "a.y")
	p.answers <- nil
	waits := func(what string, want bool, f func() (wait uint64)) {
		t.Helper()
		if wait := f(); wait == Rolling != want {
			t.Errorf("%s: wait is %d", what, wait)
		}
	}
	last := func(of string) func() uint64 {
		return func() uint64 { _, wait, _ := p.x.Last([]byte(of)); return wait }
	}
	match := func() uint64 { _, wait, _ := p.x.LastMatch([]byte("b.*")); return wait }
	all := func() uint64 { _, _, wait, _ := p.x.Matches([]byte("b.*"), 1); return wait }
	roll := func() {
		p.x.RolledUp([]byte("a.*"), p.all("a.*"), 4)
		p.x.Note([]byte("a.*"), 4)
	}
	roll()
	waits("the batch is gathered", true, last("a.x"))
	p.x.Undo(4)
	p.answers <- nil
	waits("it was not appended", false, last("a.x"))
	roll()
	p.write("a.*")
	p.x.Appended(5)
	p.x.Undo(5)
	p.x.Note([]byte("a.y"), 5) // what was noted before was forgotten
	for range 2 {
		waits("a pattern", true, match)
		waits("all of a pattern", true, all)
		waits("a later record", false, last("a.y"))
		p.removed.Add(1, 2)
	}
	p.removed.Add(3, 4)
	p.write("a.y")
	p.x.Appended(6)
	waits("readers see it", false, match)
	p.answers <- nil
	p.answers <- nil
	p.answers <- nil
	p.expect("what is left", p.last("a.*"), 5)
}

// TestPatternsThatCantBeFound: a failure is told once, and patterns are bounded.
func TestPatternsThatCantBeFound(t *testing.T) {
	p := newPatterned(t)
	p.append("a.x")
	p.answers <- errors.New("damaged")
	testutil.EventuallyTrue(t, "it fails", func() bool {
		_, _, err := p.x.LastMatch([]byte("a.*"))
		return err != nil && err.Error() == "damaged"
	})
	for i := range 3 * mostMatches {
		p.answers <- nil
		p.expect("the last one", p.last(fmt.Sprintf("a%s.*", "bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i:i+1])), 0)
	}
	p.x.mu.Lock()
	known := len(p.x.matches.known)
	p.x.mu.Unlock()
	p.expect("as many are known", known, mostMatches)
	p.x.mu.Lock()
	for _, k := range p.x.matches.known {
		k.asked = k.asked.Add(-2 * matchTime)
	}
	p.x.mu.Unlock()
	p.append("a.x")
	p.x.mu.Lock()
	known = len(p.x.matches.known)
	p.x.mu.Unlock()
	p.expect("none is known for ever", known, 0)
}

// TestTooManyMatches: of more than a rollup may remove only the number is known.
func TestTooManyMatches(t *testing.T) {
	p := newPatterned(t)
	p.answers <- nil
	p.expect("none", p.all("a.*"), []uint64{})
	p.x.NoteRun([]byte("a.x"), 1, MostOldest+7)
	if offsets, more, wait, err := p.x.Matches([]byte("a.*"), 1); offsets != nil || more != MostOldest+7 || wait > 0 || err != nil {
		t.Errorf("%d, %d, %d, %v", len(offsets), more, wait, err)
	}
	if _, _, wait, _ := p.x.Matches([]byte("a.*"), 1); wait == 0 {
		t.Error("it is not looked for again")
	}
	p.answers <- nil
}

// TestTheIndexKnowsPatterns: the records that match, also without those that are removed, up to a
// number and an end.
func TestTheIndexKnowsPatterns(t *testing.T) {
	s := newShard(t, 1)
	subjects := []string{"a.x", "b.x", "a.*", "a.y.z", "c"}
	s.append(20*len(subjects), func(i int) string { return subjects[i%len(subjects)] })
	s.commit()
	s.removed.Add(96, 97) // the last one of a.x
	for pattern, match := range map[string][]int{"a.*": {0, 2}, "*.x": {0, 1}, "a.>": {0, 2, 3}, ">": {0, 1, 2, 3, 4}, "none.*": nil} {
		for _, end := range []uint64{1, 40, s.high} {
			var want []uint64
			for offset := uint64(1); offset < end; offset++ {
				if slices.Contains(match, int(offset-1)%len(subjects)) && offset != 96 {
					want = append(want, offset)
				}
			}
			last := uint64(0)
			if len(want) > 0 {
				last = want[len(want)-1]
			}
			for _, most := range []int{0, 10, 1000} {
				m, err := s.index.Matching(t.Context(), patience, pattern, 1, end, most)
				is := Matches{Last: last, Count: uint64(len(want)), Offsets: want}
				if most == 0 {
					is.Count = 0
				}
				if len(want) > most {
					is.Offsets = nil
				}
				if err != nil || m.Last != is.Last || m.Count != is.Count || !slices.Equal(m.Offsets, is.Offsets) {
					t.Errorf("%s below %d, at most %d: %+v, %v; want %+v", pattern, end, most, m, err, is)
				}
			}
		}
	}
	if _, err := s.index.Matching(t.Context(), patience, "a..*", 1, s.high, 1); err == nil {
		t.Error("it knows what is no pattern")
	}
}

// TestASubjectWaitsForOnePatternAtMost: a pattern takes long, and those of others are found behind
// the subjects that messages wait for.
func TestASubjectWaitsForOnePatternAtMost(t *testing.T) {
	s := newShard(t, 1)
	order, gate := make(chan string, 100), make(chan struct{})
	x := s.set.NewLasts(nil, func(_ context.Context, of string, _ uint64, _ bool) (uint64, error) {
		order <- of
		return 0, nil
	}, func(context.Context, uint64, func(), func([]byte, uint64) bool) error {
		return &NotReadyError{Why: "it is being made"}
	}, nil, func(_ context.Context, pattern string, _ uint64, _ int, _ bool) (m Matches, err error) {
		order <- pattern
		<-gate
		return m, nil
	}, func() {})
	x.Begin(1)
	t.Cleanup(x.Close)
	expect := func(want string) {
		t.Helper()
		if got := <-order; got != want {
			t.Errorf("%s is looked for, not %s", got, want)
		}
	}
	ask := func(wait uint64, err error) {
		t.Helper()
		if testutil.Must(t, err); wait == 0 {
			t.Fatal("it is known")
		}
	}
	for _, pattern := range []string{"a.*", "b.*", "c.*"} {
		_, wait, err := x.LastMatch([]byte(pattern))
		ask(wait, err)
	}
	expect("a.*")
	for _, of := range []string{"one", "two"} {
		_, wait, err := x.Last([]byte(of))
		ask(wait, err)
	}
	close(gate)
	for _, want := range []string{"one", "two", "b.*", "c.*"} {
		expect(want)
	}
}
