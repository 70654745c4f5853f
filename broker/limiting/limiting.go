package limiting

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// often is the period of looks at all shards while there is work and, for lively, after a change
	// of the cluster; rarely is the one otherwise. failedRest is the pause before a shard is tried
	// again whose index was not ready.
	often      = 100 * time.Millisecond
	rarely     = time.Second
	lively     = 5 * time.Second
	failedRest = 5 * time.Second
	// patience is how long a question waits for an index that is being made.
	patience = time.Minute
	// subjectsAtOnce is for how many subjects the records are removed before it looks for more.
	subjectsAtOnce = 10_000
)

// Shard is a shard that this broker leads.
type Shard interface {
	Name() string
	// Limit returns how many records a subject may have, the durability of the shard, and its removed
	// records.
	Limit() (perSubject uint64, durability log.Durability, removed *removing.Keeper)
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	// Crowded returns subjects with more records than a limit, at most some.
	Crowded(ctx context.Context, patience time.Duration, limit uint64, most int) ([]string, error)
	// Beyond returns the offsets of the records of a subject that are beyond a limit, at most some.
	Beyond(ctx context.Context, subject string, limit uint64, most int) ([]uint64, error)
	// Spans returns offsets as spans of records.
	Spans(offsets []uint64) []removal.Span
	// Remove removes records, and calls done when that is durable.
	Remove(spans []removal.Span, done func(error)) error
}

// Run enforces the limits of the shards that this broker leads until ctx ends. changed returns a
// channel that is closed when one of them, or a limit, may have changed.
func Run[S Shard](ctx context.Context, led func() []S, changed func() <-chan struct{}, logger *slog.Logger) {
	later := map[string]time.Time{} // by shard
	poll := work.Poll{Often: often, Rarely: rarely, Lively: lively, Changed: changed}
	for busy := false; poll.Wait(ctx, busy); {
		busy = false
		for _, s := range led() {
			most, durability, removed := s.Limit()
			_, high := s.Offsets()
			limit, turn := removed.Limiting(most, high)
			if limit == 0 || time.Now().Before(later[s.Name()]) {
				continue
			}
			busy = true
			delete(later, s.Name())
			more, err := Enforce(ctx, s, limit)
			if err == nil && !more {
				err = removed.Limited(limit, turn, durability)
			}
			if err != nil && ctx.Err() == nil {
				later[s.Name()] = time.Now().Add(failedRest)
				logger.Warn("messages beyond the limit of a subject can't be removed; trying again", "topic", s.Name(), "error", err)
			}
		}
	}
}

// Enforce removes the records of a shard beyond a limit per subject, of some subjects. more reports
// whether there may be more. It ends when the limit is changed.
func Enforce[S Shard](ctx context.Context, s S, limit uint64) (more bool, err error) {
	subjects, err := s.Crowded(ctx, patience, limit, subjectsAtOnce)
	if err != nil || len(subjects) == 0 {
		return false, err
	}
	var due []uint64
	for _, subject := range subjects {
		offsets, err := s.Beyond(ctx, subject, limit, removal.ItemSpans)
		if err != nil {
			return true, err
		}
		if len(due)+len(offsets) > removal.ItemSpans {
			if holds, err := remove(ctx, s, limit, due); err != nil || !holds {
				return true, err
			}
			due = due[:0]
		}
		due = append(due, offsets...)
	}
	_, err = remove(ctx, s, limit, due)
	return true, err
}

// remove removes records that are beyond a limit, if it still holds, and waits until that is
// durable.
func remove[S Shard](ctx context.Context, s S, limit uint64, offsets []uint64) (holds bool, err error) {
	if most, _, _ := s.Limit(); most != limit || len(offsets) == 0 {
		return most == limit, nil
	}
	slices.Sort(offsets)
	done := make(chan error, 1)
	if err := s.Remove(s.Spans(offsets), func(err error) { done <- err }); err != nil {
		return true, err
	}
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
		return true, ctx.Err()
	}
}
