package limiting

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
)

// shard has subjects with records, as a leader has them.
type shard struct {
	limit    uint64
	subjects map[string][]uint64
	looked   func(subject string) // called by Beyond
}

func (s *shard) Name() string { return "orders" }

func (s *shard) Limit() (uint64, log.Durability, *removing.Keeper) { return s.limit, log.Memory, nil }

func (s *shard) Offsets() (start, end uint64) { return 1, 1 << 40 }

func (s *shard) Crowded(_ context.Context, _ time.Duration, limit uint64, most int) (crowded []string, err error) {
	for subject, offsets := range s.subjects {
		if uint64(len(offsets)) > limit && len(crowded) < most {
			crowded = append(crowded, subject)
		}
	}
	slices.Sort(crowded)
	return crowded, nil
}

func (s *shard) Beyond(_ context.Context, subject string, limit uint64, most int) ([]uint64, error) {
	if s.looked != nil {
		s.looked(subject)
	}
	offsets := s.subjects[subject]
	return offsets[:min(len(offsets)-int(limit), most)], nil
}

func (s *shard) Spans(offsets []uint64) (spans []removal.Span) {
	for _, offset := range offsets {
		spans = append(spans, removal.Span{Epoch: 1, From: offset, Next: offset + 1})
	}
	return spans
}

func (s *shard) Remove(spans []removal.Span, done func(error)) error {
	if len(spans) > removal.ItemSpans {
		return fmt.Errorf("%d spans do not fit into an Item", len(spans))
	}
	for subject, offsets := range s.subjects {
		s.subjects[subject] = slices.DeleteFunc(offsets, func(offset uint64) bool {
			_, found := slices.BinarySearchFunc(spans, offset, func(s removal.Span, offset uint64) int { return int(s.From) - int(offset) })
			return found
		})
	}
	done(nil)
	return nil
}

// crowded returns a shard with so many subjects, each with so many records.
func crowded(subjects, records int) *shard {
	s := &shard{subjects: map[string][]uint64{}}
	for i := range subjects * records {
		name := fmt.Sprint("orders.", i%subjects)
		s.subjects[name] = append(s.subjects[name], uint64(i+1))
	}
	return s
}

// TestTheOldestRecordsBeyondALimitAreRemoved: of each subject the newest ones stay, whatever the
// number of subjects, and of records of one.
func TestTheOldestRecordsBeyondALimitAreRemoved(t *testing.T) {
	for _, s := range []*shard{crowded(3, 10), crowded(3000, 6), crowded(2, 3*removal.ItemSpans), crowded(1, 1)} {
		was := map[string][]uint64{}
		for subject, offsets := range s.subjects {
			was[subject] = slices.Clone(offsets)
		}
		s.limit = 4
		for more := true; more; {
			var err error
			if more, err = Enforce(t.Context(), s, 4); err != nil {
				t.Fatal(err)
			}
		}
		for subject, offsets := range s.subjects {
			if want := was[subject][max(0, len(was[subject])-4):]; !slices.Equal(offsets, want) {
				t.Errorf("of %d records %s has %v, want %v", len(was[subject]), subject, offsets, want)
			}
		}
	}
}

// TestALimitThatIsRaisedRemovesNothingMore: the limit is raised, or ends, while records beyond it
// are being looked for. Publishes keep more from then on.
func TestALimitThatIsRaisedRemovesNothingMore(t *testing.T) {
	for _, limit := range []uint64{0, 20} {
		s := crowded(5, 10)
		s.limit = 1
		s.looked = func(subject string) {
			if subject == "orders.3" {
				s.limit = limit
			}
		}
		if more, err := Enforce(t.Context(), s, 1); err != nil || !more {
			t.Error(more, err)
		}
		for subject, offsets := range s.subjects {
			if len(offsets) < 10 {
				t.Errorf("with a limit of %d, %s has %v", limit, subject, offsets)
			}
		}
	}
}

// TestOneStepOfAShard: a shard whose subjects get records all the time lets others have their turn.
func TestOneStepOfAShard(t *testing.T) {
	s := crowded(5, 10)
	s.limit = 1
	s.looked = func(subject string) {
		offsets := s.subjects[subject]
		s.subjects[subject] = append(offsets, offsets[len(offsets)-1]+1000)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if more, err := Enforce(ctx, s, 1); err != nil || !more {
		t.Error(more, err)
	}
}
