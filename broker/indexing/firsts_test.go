package indexing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// limited is a log with limits per subject, of which Lasts is asked for the oldest records.
type limited struct {
	t *testing.T
	x *Lasts

	mu      sync.Mutex
	log     []string     // the subjects of the records from offset 1 on
	gone    map[int]bool // removed, or removed by a batch that is appended
	removed *removal.Set
	fails   bool          // lookups fail
	late    chan struct{} // a lookup waits for one before it answers; nil: none does
	whole   uint64        // more records than the log has, of each subject
	asked   chan string
}

// newLimited returns a log without records.
func newLimited(t *testing.T) *limited {
	s := newShard(t, 1)
	l := &limited{t: t, removed: &s.removed, gone: map[int]bool{}, asked: make(chan string, 1000)}
	l.x = s.set.NewLasts(&s.removed, func(context.Context, string, uint64, bool) (uint64, error) {
		return 0, errors.New("not asked for")
	}, func(context.Context, uint64, func(), func([]byte, uint64) bool) error {
		return &NotReadyError{Why: "it is being made"}
	}, l.find, nil, func() {})
	l.x.Begin(1)
	t.Cleanup(func() {
		l.mu.Lock()
		if l.late != nil {
			close(l.late)
		}
		l.mu.Unlock()
		l.x.Close()
	})
	return l
}

// find is a FindFirsts. What it answers may be from long before.
func (l *limited) find(_ context.Context, subject string, below uint64, most int, _ bool) (offsets []uint64, count uint64, err error) {
	l.mu.Lock()
	for i, of := range l.log[:below-1] {
		if offset := uint64(i + 1); of == subject && !l.removed.Has(offset) {
			if count++; len(offsets) < most {
				offsets = append(offsets, offset)
			}
		}
	}
	late, fails := l.late, l.fails
	count += l.whole
	l.mu.Unlock()
	l.asked <- subject
	if late != nil {
		<-late
	}
	if fails {
		return nil, 0, errors.New("the records are damaged")
	}
	return offsets, count, nil
}

// left returns the records of a subject that are left, of the log and of a batch behind it.
func (l *limited) left(subject string, batch []string, gone map[int]bool) (offsets []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, of := range append(slices.Clone(l.log), batch...) {
		if of == subject && !l.gone[i+1] && !gone[i+1] {
			offsets = append(offsets, uint64(i+1))
		}
	}
	return offsets
}

// append has a batch in the log.
func (l *limited) append(batch []string, gone map[int]bool) {
	l.mu.Lock()
	l.log = append(l.log, batch...)
	for offset := range gone {
		l.gone[offset] = true
	}
	l.mu.Unlock()
	l.x.Appended(uint64(len(l.log) + 1))
}

// known waits until the oldest records of a subject are known.
func (l *limited) known(subject string) (offsets []uint64, more uint64) {
	l.t.Helper()
	testutil.EventuallyTrue(l.t, "the oldest records of "+subject+" are known", func() bool {
		o, m, wait, err := l.x.Firsts([]byte(subject), 1)
		if err != nil {
			l.t.Fatal(err)
		}
		offsets, more = o, m
		return wait == 0
	})
	return offsets, more
}

// TestOldestRecordsAreThoseOfAModel: batches remove the oldest records of their subjects, some are
// not appended, others remove records, everything is forgotten, and lookups answer late or fail.
func TestOldestRecordsAreThoseOfAModel(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			l := newLimited(t)
			pending := map[int]bool{} // removed by batches, and not in the set
			answered, waits := 0, false
			for range 400 {
				switch rng.IntN(12) {
				case 0: // others remove some
					l.mu.Lock()
					for range 3 {
						if offset := 1 + rng.IntN(len(l.log)+1); offset <= len(l.log) && !pending[offset] {
							l.gone[offset] = true
							l.removed.Add(uint64(offset), uint64(offset+1))
						}
					}
					l.mu.Unlock()
					l.x.Purged()
				case 1: // batches are committed
					for offset := range pending {
						l.removed.Add(uint64(offset), uint64(offset+1))
					}
					clear(pending)
				case 2:
					l.x.release()
				case 3:
					l.mu.Lock()
					if l.late != nil {
						close(l.late)
					}
					if l.late = nil; rng.IntN(2) == 0 {
						l.late = make(chan struct{}, 100)
					}
					l.fails = rng.IntN(6) == 0
					l.mu.Unlock()
				case 4, 5:
					l.mu.Lock()
					if l.late != nil {
						select {
						case l.late <- struct{}{}:
						default:
						}
					}
					l.mu.Unlock()
					runtime.Gosched()
				default: // a batch
					var batch []string
					gone := map[int]bool{}
					tried := rng.IntN(2) == 0
					if tried {
						l.x.Try()
					}
					for range 1 + rng.IntN(4) {
						subject := string(rune('a' + rng.IntN(3)))
						at := len(l.log) + len(batch) + 1
						if rng.IntN(30) == 0 { // a rollup
							for offset := 1; offset < at; offset++ {
								gone[offset] = true
							}
							l.x.RemovedAll(uint64(at))
						} else if limit := rng.IntN(4); limit > 0 {
							offsets, more, wait, err := l.x.Firsts([]byte(subject), 1)
							if waits = wait > 0; waits || err != nil {
								break
							}
							answered++
							if want := l.left(subject, batch, gone); !slices.Equal(offsets, want) || more > 0 {
								t.Fatalf("the oldest of %s are %v and %d more, want %v", subject, offsets, more, want)
							}
							over := offsets[:len(offsets)-min(len(offsets), limit-1)]
							for _, offset := range over {
								gone[int(offset)] = true
							}
							l.x.Removed([]byte(subject), over)
						}
						l.x.Note([]byte(subject), uint64(at))
						batch = append(batch, subject)
					}
					switch {
					case len(batch) == 0:
					case rng.IntN(3) == 0 && tried: // it is refused
						l.x.Undo(uint64(len(l.log) + 1))
					case rng.IntN(8) == 0: // the append fails
						l.x.Reset(uint64(len(l.log) + 1))
					default:
						l.append(batch, gone)
						for offset := range gone {
							pending[offset] = true
						}
					}
				}
				if waits && l.late == nil && rng.IntN(2) == 0 {
					testutil.EventuallyTrue(t, "all is found", func() bool { return idle(l.x) })
				}
			}
			if answered < 20 {
				t.Errorf("only %d questions were answered", answered)
			}
		})
	}
}

// TestDoomedRecordsAreForgotten: what batches have removed is remembered only until the set has it,
// or has forgotten it because the log begins behind it.
func TestDoomedRecordsAreForgotten(t *testing.T) {
	l := newLimited(t)
	for offset := uint64(1); offset <= 10*mostDoomed; offset++ {
		l.x.Note([]byte("a"), offset)
		l.x.Removed([]byte("a"), []uint64{offset})
		l.x.Appended(offset + 1)
		if l.removed.Add(offset, offset+1); offset%1000 == 0 {
			l.removed.Trim(offset)
		}
		if n := len(l.x.firsts.doomed); n > 2*mostDoomed {
			t.Fatalf("after %d batches %d records are remembered", offset, n)
		}
	}
}

// TestARemovalAmongRecordsThatAreOnlyCounted: others have removed one of the records of which only
// the number is known, so the number is not known any more.
func TestARemovalAmongRecordsThatAreOnlyCounted(t *testing.T) {
	l := newLimited(t)
	l.append([]string{"a", "a", "a"}, nil)
	l.whole = 5
	if offsets, more := l.known("a"); !slices.Equal(offsets, []uint64{1, 2, 3}) || more != 5 {
		t.Fatal(offsets, more)
	}
	l.mu.Lock()
	l.whole = 4
	l.mu.Unlock()
	l.x.Purged()
	if offsets, more := l.known("a"); !slices.Equal(offsets, []uint64{1, 2, 3}) || more != 4 {
		t.Error(offsets, more)
	}
}

// TestALookupWaitsForABatch: oldest records are looked for below the end of the log, so a lookup
// begins when the batch is appended that is being gathered. It does so also if the next one is
// being gathered at once.
func TestALookupWaitsForABatch(t *testing.T) {
	for _, appended := range []bool{true, false} {
		l := newLimited(t)
		l.append([]string{"a", "b"}, nil)
		l.x.Note([]byte("a"), 3)
		if _, _, wait, err := l.x.Firsts([]byte("a"), 1); wait == 0 || err != nil {
			t.Fatal(wait, err)
		}
		if l.x.step() {
			t.Error("the finder does not wait, but tries again")
		}
		want := []uint64{1}
		l.x.stepping.Lock()
		if appended {
			l.append([]string{"a"}, nil)
			want = []uint64{1, 3}
		} else {
			l.x.Reset(3)
		}
		if appended {
			l.x.Note([]byte("a"), 4)
			want = append(want, 4)
		}
		l.x.stepping.Unlock()
		if offsets, _ := l.known("a"); !slices.Equal(offsets, want) {
			t.Errorf("appended %v: the oldest are %v, want %v", appended, offsets, want)
		}
	}
}

// TestOffsetsOfOneSubject: a subject is compared as text, also if it looks like a pattern. So the
// offsets of a.* are not those of a.b.
func TestOffsetsOfOneSubject(t *testing.T) {
	s := newShard(t, 1)
	subjects := []string{"a.*", "a.b", "a.>", "a..b", "a.b.c", ">"}
	const each = 3 * walked
	s.append(each*len(subjects), func(i int) string { return subjects[i%len(subjects)] })
	s.commit()
	for i, subject := range subjects {
		for _, most := range []int{2, walked, each, 10 * each} {
			offsets, count, err := s.index.OffsetsOf(t.Context(), patience, subject, 1, s.high, most)
			var want []uint64
			for n := range min(most, each) {
				want = append(want, uint64(n*len(subjects)+i+1))
			}
			if err != nil || count != each || !slices.Equal(offsets, want) {
				t.Errorf("%s, at most %d: %d of %d, %v, from %v on", subject, most, len(offsets), count, err, strings.Trim(fmt.Sprint(offsets[:min(3, len(offsets))]), "[]"))
			}
		}
	}
}
