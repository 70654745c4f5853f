package stall

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/work"
)

// tick is the interval of checks, well below the limits, and rest the one while nothing is under
// way.
const (
	tick = 200 * time.Millisecond
	rest = 500 * time.Millisecond
)

// Config configures a Watch.
type Config struct {
	Dir    string // of the disk, for messages
	FS     *env.Watched
	Rounds interface{ RoundSince() time.Time } // of the disk's committer
	// Limit is how long the disk may stall; 0: stalls are only reported.
	Limit time.Duration
	// CanHandOver reports whether this broker has registered and knows of another one.
	CanHandOver func() bool
	Logger      *slog.Logger
}

// Watch watches one disk. Its methods are safe for concurrent use.
type Watch struct {
	config Config
	now    atomic.Pointer[Stall]
}

// New returns a Watch. Run starts it.
func New(config Config) *Watch { return &Watch{config: config} }

// Stall returns the current stall as of the last check.
func (w *Watch) Stall() Stall {
	if s := w.now.Load(); s != nil {
		return *s
	}
	return Stall{}
}

// Run watches until ctx ends. It reports stalls. If one exceeds the limit it calls giveUp once and
// returns.
func (w *Watch) Run(ctx context.Context, giveUp func(*Error)) {
	c := &w.config
	var telling sync.WaitGroup
	defer telling.Wait()
	ticker := work.NewTicker(tick)
	defer ticker.Stop()
	var disk judge
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limit := c.Limit
		if !c.CanHandOver() {
			limit = 0
		}
		read, other := c.FS.Oldest()
		before := w.Stall()
		round := c.Rounds.RoundSince()
		if round.IsZero() && read.Since.IsZero() && other.Since.IsZero() {
			ticker.Pace(rest)
		} else {
			ticker.Pace(tick)
		}
		stall, beyond := disk.observe(time.Now(), round, read, other, limit)
		w.now.Store(&stall)
		switch {
		case beyond:
			giveUp(&Error{c.Dir, stall, limit})
			return
		case before.What == "" && stall.What != "":
			telling.Go(func() { c.Logger.Warn("The disk is slow or hangs", "data", c.Dir, "waiting", stall.String()) })
		case before.What != "" && stall.What == "":
			telling.Go(func() {
				c.Logger.Info("The disk answers again", "data", c.Dir, "waited", before.For.Round(time.Millisecond))
			})
		}
	}
}
