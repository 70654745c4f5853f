package topic

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Compacting says when a log is compacted: how often that is looked at, how old records are at least when they go, and
// how much has to be new, as a share of the log and in bytes.
type Compacting struct {
	Every, Age time.Duration
	Share      float64
	Least      int64
}

// Compacted counts what compaction did on this broker, for shards that it leads and for those that it follows.
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

// Compacted are the counters.
func (s *Service) Compacted() Compacted {
	c := &s.compacted
	out := Compacted{Runs: c.runs.Load(), Records: c.records.Load(), Bytes: c.bytes.Load(), Duration: time.Duration(c.nanoseconds.Load())}
	if last := c.last.Load(); last > 0 {
		out.Last = time.Unix(0, last)
	}
	return out
}

// compactor goes round the logs of Topics of which the newest record of each subject is kept, one after the
// other, so that one map of subjects is in memory at a time. Each replica does that for itself.
func (s *Service) compactor() {
	pace, every := log.NewPace(compactPace), s.config.Compact.Every
	s.rounds(every, every, func(p *Shard) {
		if v := p.view.Load(); v != nil && !v.gone && v.desired.Spec.Compaction == coordination.LatestOnly {
			s.compact(s.ctx, p, v, pace)
		}
	})
}

// compact compacts the data log of one shard, if that is worth it. It may be closed meanwhile.
func (s *Service) compact(ctx context.Context, p *Shard, v *view, pace *log.Pace) {
	open := p.opened.Load()
	if open == nil || s.config.Clock.InDoubt() {
		return // it goes by the age of records
	}
	when := &s.config.Compact
	o := log.CompactOptions{Below: p.agreed(), Share: when.Share, Least: when.Least, Pace: pace,
		Before: s.config.Clock.Time().Add(-max(v.window, when.Age))}
	began := time.Now()
	did, err := open.parts[replica.Data].Compact(ctx, o)
	if did.Segments > 0 {
		c := &s.compacted
		c.runs.Add(1)
		c.records.Add(did.Records)
		c.bytes.Add(uint64(max(did.Bytes, 0)))
		c.nanoseconds.Add(int64(time.Since(began)))
		c.last.Store(time.Now().UnixNano())
	}
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && ctx.Err() == nil {
		s.scrubs.damages.Add(1)
		s.log.Error("a Topic's log is damaged", "topic", p.Name(), "log", open.parts[replica.Data].Name(), "damages", 1, "first", damage.Error())
		s.harmed(p, damageFound+damage.Error())
		return
	}
	if err != nil {
		s.upkeepFailed(p, "compact", err)
	}
}

// agreed is up to where this broker knows that all who are in sync have the shard's records.
func (p *Shard) agreed() uint64 {
	if shard := p.leading.Load(); shard != nil {
		return shard.high.Load()
	}
	if f := p.copying.Load(); f != nil {
		return f.High(replica.Data)
	}
	return 0
}
