package clock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a Clock works with. Its zero value is the machine's clocks, and nothing saved.
type Config struct {
	Wall func() time.Time // nil: the machine's
	// Mono is nanoseconds since some moment before, and never goes back; nil: the machine's.
	Mono func() int64
	// Boot names the life of the machine in which Mono's moment lies, for Saved; empty: not known. It is the
	// machine's if Mono is nil.
	Boot string
	// Store keeps the vote for the next life of this broker; nil: nothing does.
	Store  Store
	Logger *slog.Logger
}

// Clock is the time that one broker goes by. It may be used concurrently. Until Run is called, and between its readings, Time
// runs as Mono does, so no jump of the wall clock shows in it.
type Clock struct {
	config  Config
	log     *slog.Logger
	machine *machine // nil: Mono is configured
	mono    func() int64

	off     atomic.Int64 // of Time from Mono
	verdict atomic.Pointer[Verdict]
	jumps   atomic.Uint64
	away    atomic.Int64 // of the wall clock from Time

	heard    chan struct{} // closed when another broker's vote counts, or none is needed
	once     sync.Once
	patience atomic.Int64 // until when AwaitVotes waits, on Mono; 0: nobody did

	mu    sync.Mutex
	judge *Judge
}

// New begins with a reading of the machine's clocks.
func New(config Config) *Clock {
	c := &Clock{config: config, log: config.Logger, mono: config.Mono, heard: make(chan struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.config.Wall == nil {
		c.config.Wall = time.Now
	}
	if c.mono == nil {
		c.machine = newMachine()
		c.mono = c.machine.mono
		c.config.Boot = bootName()
	}
	var saved *Saved
	if config.Store != nil {
		var err error
		if saved, err = config.Store.Load(); err != nil {
			c.log.Warn("The time that this broker went by in its last life is not known", "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.read()
	c.judge = NewJudge(r, c.config.Boot, saved)
	if c.judge.own.begun != r.Mono {
		c.once.Do(func() { close(c.heard) }) // it continues the last life's
	}
	c.publish(r)
	return c
}

func (c *Clock) read() Reading {
	return Reading{Wall: c.config.Wall().UnixNano(), Mono: c.mono()}
}

// Now is Time, in nanoseconds since 1970. It allocates nothing and takes no lock.
func (c *Clock) Now() int64 { return c.mono() + c.off.Load() }

// Time is Now as a time.Time, in UTC.
func (c *Clock) Time() time.Time { return time.Unix(0, c.Now()).UTC() }

// Read is Now and Mono at one moment.
func (c *Clock) Read() (now, mono int64) {
	mono = c.mono()
	return mono + c.off.Load(), mono
}

// Off is how far Time is from Mono.
func (c *Clock) Off() int64 { return c.off.Load() }

// Mono is the nanoseconds since some moment before. It never goes back.
func (c *Clock) Mono() int64 { return c.mono() }

// Written is the moment of Mono at which a record was written that has this time. It is never later than now.
func (c *Clock) Written(record int64) int64 { return min(record-c.off.Load(), c.mono()) }

// Verdict is what Time is, and whether it is in doubt. It is not to be changed.
func (c *Clock) Verdict() *Verdict { return c.verdict.Load() }

// InDoubt says whether nothing may be deleted by its age.
func (c *Clock) InDoubt() bool { return c.verdict.Load().Doubt != None }

// Jumps is how often the wall clock has jumped.
func (c *Clock) Jumps() uint64 { return c.jumps.Load() }

// Away is how far the wall clock was from Time at the last reading.
func (c *Clock) Away() time.Duration { return time.Duration(c.away.Load()) }

// Observe takes a reading of the machine's clocks. Run does it.
func (c *Clock) Observe() {
	if c.machine != nil {
		c.machine.refresh()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.read()
	jump := c.judge.Observe(r)
	if jump != 0 {
		c.jumps.Add(1)
		c.log.Warn("The wall clock of this machine jumped; the time of records goes on as if it had not",
			"by", jump, "state", c.judge.Vote(r.Mono).State.String())
	}
	c.publish(r)
}

// publish lets everybody see the verdict. mu is held.
func (c *Clock) publish(r Reading) {
	v := c.judge.Verdict()
	c.off.Store(v.Off)
	if v.Known > 1 {
		c.once.Do(func() { close(c.heard) })
	}
	c.away.Store(r.Wall - r.Mono - v.Off)
	before := c.verdict.Load()
	if before != nil && *before == v {
		return
	}
	c.verdict.Store(&v)
	switch {
	case v.Doubt != None && (before == nil || before.Doubt != v.Doubt):
		c.log.Error("The time is in doubt: nothing is deleted by its age. Correct the clocks",
			"reason", string(v.Doubt), "why", v.Why, "time", time.Unix(0, r.Mono+v.Off).UTC(), "clock", time.Unix(0, r.Wall).UTC())
	case v.Doubt == None && before != nil && before.Doubt != None:
		c.log.Info("The time is not in doubt any more", "time", time.Unix(0, r.Mono+v.Off).UTC())
	}
}

// Run reads the machine's clocks until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Observe()
		}
	}
}

// Keep saves the vote for the next life of this broker, every saveEvery and when ctx ends. It is not a part of Run, since
// a disk that hangs must not keep the clocks from being read.
func (c *Clock) Keep(ctx context.Context) {
	if c.config.Store == nil {
		return
	}
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		c.Save()
		select {
		case <-ctx.Done():
			c.Save()
			return
		case <-ticker.C:
		}
	}
}

// AwaitVotes waits until Time rests on more than the wall clock of a machine of which nothing is known: until it continues
// that of the last life, or until another broker was heard; and awaitVotes at most, counted from the first call.
func (c *Clock) AwaitVotes(ctx context.Context) {
	now := c.mono()
	c.patience.CompareAndSwap(0, now+int64(awaitVotes))
	left := time.Duration(c.patience.Load() - now)
	select {
	case <-c.heard:
		return
	default:
	}
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-c.heard:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Save saves the vote, if something keeps it. Keep does it.
func (c *Clock) Save() {
	if c.config.Store == nil {
		return
	}
	c.mu.Lock()
	s := c.judge.Save(c.config.Boot)
	c.mu.Unlock()
	if err := c.config.Store.Save(s); err != nil {
		c.log.Warn("The time that this broker goes by could not be saved for its next life", "error", err)
	}
}

// Vote is this broker's vote now, and when that is on Mono.
func (c *Clock) Vote() (v Vote, mono int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono = c.mono()
	return c.judge.Vote(mono), mono
}

// Heard takes the vote of another broker, which came at a moment of Mono and was sent at most round before.
func (c *Clock) Heard(broker string, v Vote, mono int64, round time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge.Hear(broker, v, mono, round)
	c.publish(c.judge.own.last)
}

// Wrote takes the time of the last record of a log that was opened.
func (c *Clock) Wrote(record int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge.Wrote(record)
	c.publish(c.judge.own.last)
}

// Confirm believes the wall clock of this machine, because a person says that it is right.
func (c *Clock) Confirm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge.Confirm()
	c.log.Warn("A person confirmed the wall clock of this machine", "clock", time.Unix(0, c.judge.own.last.Wall).UTC())
	c.publish(c.judge.own.last)
}
