package upkeep

import (
	"context"
	"iter"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/scrub"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// scrubPace is how many bytes of sealed segments are read per second to find damage: a
	// hundredth of what a usual disk reads, and 20 GB take half an hour.
	scrubPace = 12 << 20
	// scrubPlan is how often due segments are looked for: logs are opened, segments sealed and
	// compacted meanwhile.
	scrubPlan = time.Minute
	// scrubSave is how often progress is saved while segments are scrubbed. A crash costs no more,
	// and two syncs are little in that time.
	scrubSave = 30 * time.Second
)

// shardLog is one open log of a shard, and sealedSegment one of its segments at rest.
type (
	shardLog struct {
		shard Shard
		log   *log.Log
	}
	sealedSegment = scrub.Segment[shardLog]
)

// Unscrubbed returns for how long the sealed segment of the shards has not been scrubbed that has
// waited longest. A segment that was never scrubbed counts from when it was written.
func Unscrubbed(shards iter.Seq[Shard]) time.Duration {
	now := time.Now()
	var age time.Duration
	for shard := range shards {
		for _, l := range shard.Logs() {
			age = max(age, scrub.Oldest(l.Checks(), now))
		}
	}
	return age
}

// sealedSegments returns the sealed segments of the open logs of shards.
func sealedSegments(shards iter.Seq[Shard]) (all []sealedSegment) {
	for shard := range shards {
		for _, l := range shard.Logs() {
			for _, check := range l.Checks() {
				all = append(all, sealedSegment{SegmentCheck: check, Of: shardLog{shard, l}})
			}
		}
	}
	return all
}

// scrubber reads the sealed segments of all open logs, in the order of scrub.Plan, to find damage
// while another replica has the records.
func (u *Upkeep) scrubber(ctx context.Context) {
	pace := log.NewPace(scrubPace)
	began := time.Time{}
	if u.config.Disk.Mark() == nil {
		began = time.Now()
	}
	for pause := u.config.After; work.Sleep(ctx, pause); {
		pause = scrubPlan
		planned := time.Now()
		saved := planned
		plan := scrub.Plan(sealedSegments(u.config.Shards()), planned, began)
		for i := range plan {
			if ctx.Err() != nil {
				return
			}
			if time.Since(planned) >= scrubPlan { // the plan is old: make another one at once
				pause = 0
				break
			}
			u.Scrub(ctx, plan[i].Of.shard, plan[i].Of.log,
				log.ScrubOptions{From: plan[i].Base, Most: 1, Pace: pace})
			if time.Since(saved) >= scrubSave {
				u.saveChecks(ctx)
				saved = time.Now()
			}
		}
		if len(plan) > 0 {
			u.saveChecks(ctx)
		}
	}
}

func (u *Upkeep) saveChecks(ctx context.Context) {
	if err := u.config.Disk.SaveChecks(); err != nil && ctx.Err() == nil {
		u.log.Warn("The progress of scrubbing can't be saved; after a restart segments are scrubbed earlier than they are due", "error", err)
	}
}

// Scrub reads segments of one log of a shard and reports damage to the shard.
func (u *Upkeep) Scrub(ctx context.Context, shard Shard, l *log.Log, o log.ScrubOptions) {
	report, err := l.Scrub(ctx, o)
	u.stats.scrubbed.Add(uint64(report.Bytes))
	if err != nil {
		u.failed(ctx, shard, "scrub", err)
		return
	}
	if len(report.Damaged) > 0 {
		u.damaged(shard, l, len(report.Damaged), &report.Damaged[0])
	}
}
