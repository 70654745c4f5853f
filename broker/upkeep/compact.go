package upkeep

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// compactPace is how many bytes of segments are read per second to compact them: a tenth of what a
// usual disk reads, and more than one busy shard receives.
const compactPace = 64 << 20

// Compacting is when a log is compacted: how often that is considered, how old records are at
// least when they go, and how much has to be new, as a share of the log and in bytes.
type Compacting struct {
	Every, Age time.Duration
	Share      float64
	Least      int64
}

// Compacted counts what compaction did on this broker, for shards that it leads and that it
// follows.
type Compacted struct {
	Runs     uint64 // in which segments were rewritten
	Records  uint64 // that went
	Bytes    uint64 // that went with them, uncompressed
	Duration time.Duration
	Last     time.Time // zero: never
}

type compacted struct {
	runs, records, bytes atomic.Uint64
	nanoseconds, last    atomic.Int64
}

// Compacted returns the counters of compaction.
func (u *Upkeep) Compacted() Compacted {
	c := &u.compacted
	out := Compacted{Runs: c.runs.Load(), Records: c.records.Load(), Bytes: c.bytes.Load(),
		Duration: time.Duration(c.nanoseconds.Load())}
	if last := c.last.Load(); last > 0 {
		out.Last = time.Unix(0, last)
	}
	return out
}

// compactor compacts one log after the other, so that one map of subjects is in memory at a time.
func (u *Upkeep) compactor(ctx context.Context) {
	pace, every := log.NewPace(compactPace), u.config.Compact.Every
	u.rounds(ctx, every, every, func(ctx context.Context, shard Shard) { u.compact(ctx, shard, pace) })
}

// compact compacts the data log of a shard, if that is worth it.
func (u *Upkeep) compact(ctx context.Context, shard Shard, pace *log.Pace) {
	// The log comes first: if the copy is replaced before the offset is read, that log is closed.
	// The offset of one copy is never used for the log of the next.
	open := shard.Logs()
	below, window, ok := shard.Compaction()
	if !ok || len(open) == 0 || u.config.Clock.InDoubt() {
		return
	}
	when, data := &u.config.Compact, open[0]
	o := log.CompactOptions{Below: below, Share: when.Share, Least: when.Least, Pace: pace,
		Before: u.config.Clock.Time().Add(-max(window, when.Age))}
	began := time.Now()
	did, err := data.Compact(ctx, o)
	if did.Segments > 0 {
		c := &u.compacted
		c.runs.Add(1)
		c.records.Add(did.Records)
		c.bytes.Add(uint64(max(did.Bytes, 0)))
		c.nanoseconds.Add(int64(time.Since(began)))
		c.last.Store(time.Now().UnixNano())
	}
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && ctx.Err() == nil {
		u.damaged(shard, data, 1, damage)
		return
	}
	if err != nil {
		u.failed(ctx, shard, "compact", err)
	}
}
