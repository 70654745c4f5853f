package upkeep

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// startAfter is when scrubbing and compression begin after a start: a broker that starts has
	// done by then what clients wait for, and a broker that restarts every few minutes scrubs, too.
	startAfter = time.Minute
	// compressRest is the pause between two rounds of compression.
	compressRest = time.Hour
)

// Shard is this broker's copy of a shard. Its methods may be called by any goroutine.
type Shard interface {
	Name() string
	// Logs returns the open logs of the copy, the data log first, or nil. They may be closed
	// concurrently.
	Logs() []*log.Log
	// Compaction reports whether the data log is compacted. All in-sync replicas have the records
	// below the offset, and window is the deduplication window.
	Compaction() (below uint64, window time.Duration, ok bool)
	// Removals returns the removed records of the data log. ok is false if there are none, if the
	// copy is in doubt or being repaired, or if it is not known yet which are committed. An error
	// may leave some of them out.
	Removals() (removed Removals, ok bool, err error)
	// Damaged takes note of damage in an open log.
	Damaged(damage *log.CorruptError)
}

// Config is what an Upkeep works with.
type Config struct {
	Disk    *log.Disk
	Clock   *clock.Clock
	Compact Compacting
	After   time.Duration          // when scrubbing and compression begin; 0: after a minute
	Shards  func() iter.Seq[Shard] // of the cluster, sorted
	Logger  *slog.Logger
}

// Upkeep is the upkeep of one disk. Its methods may be called by any goroutine.
type Upkeep struct {
	config    Config
	log       *slog.Logger
	stats     scrubCounts
	compacted rewrites
	expunged  rewrites
}

// Stats counts bytes scrubbed, damages found, and bytes saved by compression.
type Stats struct{ Scrubbed, Damages, Saved uint64 }

type scrubCounts struct{ scrubbed, damages, saved atomic.Uint64 }

// New returns the upkeep of the logs of config.Disk. Run starts it.
func New(config Config) *Upkeep {
	if config.After == 0 {
		config.After = startAfter
	}
	return &Upkeep{config: config, log: config.Logger}
}

// Run scrubs, compresses, compacts and expunges until ctx ends.
func (u *Upkeep) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { u.scrubber(ctx) })
	running.Go(func() { u.rounds(ctx, u.config.After, compressRest, u.compress) })
	running.Go(func() { u.compactor(ctx) })
	running.Go(func() { u.expunger(ctx) })
	running.Wait()
}

// Stats returns the counters of scrubbing and compression.
func (u *Upkeep) Stats() Stats {
	return Stats{u.stats.scrubbed.Load(), u.stats.damages.Load(), u.stats.saved.Load()}
}

// rounds calls do for each shard, one after the other, in rounds with a pause of rest, until ctx
// ends.
func (u *Upkeep) rounds(ctx context.Context, first, rest time.Duration,
	do func(context.Context, Shard)) {
	for pause := first; work.Sleep(ctx, pause); pause = rest {
		for shard := range u.config.Shards() {
			if ctx.Err() != nil {
				return
			}
			do(ctx, shard)
		}
	}
}

// compress compresses the sealed segments of a shard's data log.
func (u *Upkeep) compress(ctx context.Context, shard Shard) {
	open := shard.Logs()
	if len(open) == 0 {
		return
	}
	saved, err := open[0].Compress(ctx, 0)
	if err != nil {
		u.failed(ctx, shard, "compress", err)
		return
	}
	u.stats.saved.Add(uint64(max(saved, 0)))
}

// failed logs an error, unless the log was closed or the upkeep ends.
func (u *Upkeep) failed(ctx context.Context, shard Shard, doing string, err error) {
	if ctx.Err() == nil && !errors.Is(err, log.ErrClosed) {
		u.log.Warn("The upkeep of a Topic's sealed segments failed; the next round tries again",
			"topic", shard.Name(), "doing", doing, "error", err)
	}
}

// damaged counts, logs and reports damages that were found in one log of a shard.
func (u *Upkeep) damaged(shard Shard, l *log.Log, damages int, first *log.CorruptError) {
	u.stats.damages.Add(uint64(damages))
	u.log.Error("a Topic's log is damaged", "topic", shard.Name(), "log", l.Name(), "damages", damages,
		"first", first.Error())
	shard.Damaged(first)
}
