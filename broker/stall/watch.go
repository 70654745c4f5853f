package stall

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// tick is how often the disk is looked at: well below the bounds that it is held to.
const tick = 200 * time.Millisecond

// Config says what is watched.
type Config struct {
	Dir    string // of the disk, for people
	FS     *env.Watched
	Rounds interface{ RoundSince() time.Time } // of the disk's committer
	// Limit is how long the disk may stall; 0: a stall is only reported.
	Limit time.Duration
	// CanHandOver says that this broker has registered and knows of another one.
	CanHandOver func() bool
	Logger      *slog.Logger
}

// Watch watches one disk. Its methods are safe for concurrent use.
type Watch struct {
	config Config
	now    atomic.Pointer[Stall]
}

// New returns a Watch, which begins with Run.
func New(config Config) *Watch { return &Watch{config: config} }

// Stall returns what the disk has been at for too long, as of the last look.
func (w *Watch) Stall() Stall {
	if s := w.now.Load(); s != nil {
		return *s
	}
	return Stall{}
}

// Run watches until ctx ends. It reports a stall, and calls giveUp once, and returns, if it lasts for
// longer than the limit.
func (w *Watch) Run(ctx context.Context, giveUp func(*Error)) {
	c := &w.config
	var telling sync.WaitGroup
	defer telling.Wait()
	ticker := time.NewTicker(tick)
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
		stall, beyond := disk.observe(time.Now(), c.Rounds.RoundSince(), read, other, limit)
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
