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

const (
	// compactEvery is how often a log is considered for compaction, which costs nothing.
	compactEvery = 30 * time.Second
	// compactShare is how much of a log has to be new for it to be compacted. At half, no more than
	// twice the published bytes are rewritten, as with Kafka. compactLeast is the least that has to
	// be new: one small segment.
	compactShare = 0.5
	compactLeast = 1 << 20
)

// AfterAge returns the usual Compacting of records of an age.
func AfterAge(age time.Duration) Compacting {
	return Compacting{Every: compactEvery, Age: age, Share: compactShare, Least: compactLeast}
}

// Rewrites counts what compaction, or the expunging of removed records, did on this broker, for
// shards that it leads and that it follows.
type Rewrites struct {
	Runs     uint64 // in which segments were rewritten
	Records  uint64 // that went
	Bytes    uint64 // that went with them, uncompressed
	Duration time.Duration
	Last     time.Time // zero: never
}

type rewrites struct {
	runs, records, bytes atomic.Uint64
	nanoseconds, last    atomic.Int64
}

// note counts a run that began at a time, if it has rewritten segments.
func (r *rewrites) note(did *log.Rewritten, began time.Time) {
	if did.Segments == 0 {
		return
	}
	r.runs.Add(1)
	r.records.Add(did.Records)
	r.bytes.Add(uint64(max(did.Bytes, 0)))
	r.nanoseconds.Add(int64(time.Since(began)))
	r.last.Store(time.Now().UnixNano())
}

// counts returns the counters.
func (r *rewrites) counts() Rewrites {
	out := Rewrites{Runs: r.runs.Load(), Records: r.records.Load(), Bytes: r.bytes.Load(),
		Duration: time.Duration(r.nanoseconds.Load())}
	if last := r.last.Load(); last > 0 {
		out.Last = time.Unix(0, last)
	}
	return out
}

// Compacted returns the counters of compaction.
func (u *Upkeep) Compacted() Rewrites { return u.compacted.counts() }

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
	u.compacted.note(&did.Rewritten, began)
	u.rewritten(ctx, shard, data, "compact", err)
}

// rewritten reports the error of a rewrite of a shard's data log, if there is one.
func (u *Upkeep) rewritten(ctx context.Context, shard Shard, data *log.Log, doing string, err error) {
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && ctx.Err() == nil {
		u.damaged(shard, data, 1, damage)
		return
	}
	if err != nil {
		u.failed(ctx, shard, doing, err)
	}
}
