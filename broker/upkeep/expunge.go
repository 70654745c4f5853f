package upkeep

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// expungeRest is the pause between two rounds of expunging, in pauses of compaction: a follower
// reads removed records from its state log in each.
const expungeRest = 20

// Removals are the removed records of a shard's data log.
type Removals struct {
	// Set has only records whose removal is committed. It may grow concurrently: if a batch of the
	// data log carries a removal, that is in Set only once the log's watermark is beyond the batch.
	Set *removal.Set
	// Taken is the offset of the data log below which the state log has what batches have removed.
	Taken uint64
	// Window is the deduplication window.
	Window time.Duration
}

// Expunged returns the counters of removed records that left the files of this broker.
func (u *Upkeep) Expunged() Rewrites { return u.expunged.counts() }

// expunger expunges removed records from one log after the other, so that one follower's set is in
// memory at a time.
func (u *Upkeep) expunger(ctx context.Context) {
	pace, rest := log.NewPace(compactPace), expungeRest*u.config.Compact.Every
	u.rounds(ctx, rest, rest, func(ctx context.Context, shard Shard) { u.expunge(ctx, shard, pace) })
}

// expunge removes the removed records of a shard from the files of its data log, if that is worth
// it.
func (u *Upkeep) expunge(ctx context.Context, shard Shard, pace *log.Pace) {
	// The log comes first, as in compact: removed records of one copy are never removed from the
	// next.
	open := shard.Logs()
	if len(open) == 0 || u.config.Clock.InDoubt() {
		return
	}
	removed, ok, err := shard.Removals()
	if err != nil {
		u.failed(ctx, shard, "read which records are removed", err)
	}
	if !ok {
		return
	}
	data := open[0]
	began := time.Now()
	did, err := data.Expunge(ctx, log.ExpungeOptions{Removed: removed.Set, High: data.Watermark, Taken: removed.Taken, Pace: pace,
		Sync: func() error { return syncAll(open[1:]) }, Before: u.config.Clock.Time().Add(-max(removed.Window, u.config.Compact.Age))})
	u.expunged.note(&did, began)
	u.rewritten(ctx, shard, data, "remove removed records", err)
}

// syncAll makes durable what logs have got.
func syncAll(logs []*log.Log) (err error) {
	for _, l := range logs {
		err = errors.Join(err, l.Sync(math.MaxUint64))
	}
	return err
}

// scanned is how much of a state log is read at once to find out whether it has removals.
const scanned = 256 << 10

// Unremoved is the part of a state log that is known to have no removals. The zero value is of
// none. Only the upkeep uses it.
type Unremoved struct {
	state *log.Log
	next  uint64
}

// Any reports whether a state log may have removals that are committed. It reads what the log got
// since the last call.
func (u *Unremoved) Any(state *log.Log) bool {
	if u.state != state {
		*u = Unremoved{state: state}
	}
	for below := state.Watermark(); ; {
		u.next = max(u.next, state.Start())
		if u.next >= below {
			return false
		}
		v, err := state.NewCursor(u.next).Read(scanned)
		if err != nil || v.End == v.From {
			return err != nil // whoever loads them meets the error
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			records := b.Records()
			for r := (log.Record{}); records.Next(&r); {
				if string(r.Subject) == removal.Subject {
					v.Release()
					return true
				}
			}
			u.next = b.End()
		}
		v.Release()
	}
}
