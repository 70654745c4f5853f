package clock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

// Config configures a Clock. Its zero value uses the machine's clocks and saves nothing.
type Config struct {
	Wall func() time.Time // nil: the machine's
	// Mono returns nanoseconds since a fixed moment and never goes back; nil: the machine's.
	Mono func() int64
	// Boot identifies the boot of the machine in which Mono's moment lies, for Saved; empty:
	// unknown. With a nil Mono it is the machine's.
	Boot string
	// Store saves the vote over restarts of this broker; nil: it is not saved.
	Store  Store
	Logger *slog.Logger
}

// Clock is the time of one broker. It is safe for concurrent use. Before Run and between its
// readings Time runs as Mono does, so a jump of the wall clock does not change it.
type Clock struct {
	config  Config
	log     *slog.Logger
	machine *machine // nil: Mono is configured
	mono    func() int64

	off     atomic.Int64 // Time minus Mono
	verdict atomic.Pointer[Verdict]
	jumps   atomic.Uint64
	away    atomic.Int64 // wall clock minus Time

	save          chan struct{} // has Keep save at once
	heard         chan struct{} // closed when another broker's vote counts, or none is needed
	once          sync.Once
	votesDeadline atomic.Int64 // until when AwaitVotes waits, on Mono; 0: not called yet

	mu    sync.Mutex
	judge *Judge
}

// New returns a Clock with a first reading of the machine's clocks.
func New(config Config) *Clock {
	c := &Clock{config: config, log: config.Logger, mono: config.Mono, save: make(chan struct{}, 1), heard: make(chan struct{})}
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
		c.once.Do(func() { close(c.heard) }) // it continues the saved vote
	}
	c.publish(r)
	return c
}

func (c *Clock) read() Reading {
	return Reading{Wall: c.config.Wall().UnixNano(), Mono: c.mono()}
}

// Now returns Time in nanoseconds since 1970. It allocates nothing and takes no lock.
func (c *Clock) Now() int64 { return c.mono() + c.off.Load() }

// Time returns Now as a time.Time, in UTC.
func (c *Clock) Time() time.Time { return time.Unix(0, c.Now()).UTC() }

// Read returns Now and Mono at the same moment.
func (c *Clock) Read() (now, mono int64) {
	mono = c.mono()
	return mono + c.off.Load(), mono
}

// Off returns Time minus Mono, in nanoseconds.
func (c *Clock) Off() int64 { return c.off.Load() }

// Mono returns nanoseconds since a fixed moment. It never goes back.
func (c *Clock) Mono() int64 { return c.mono() }

// Written returns the moment of Mono at which a record with the given time was written. It is never
// later than now.
func (c *Clock) Written(record int64) int64 { return min(record-c.off.Load(), c.mono()) }

// Verdict returns the current verdict. The caller must not change it.
func (c *Clock) Verdict() *Verdict { return c.verdict.Load() }

// InDoubt reports whether Time is in doubt, so that nothing may be deleted by age.
func (c *Clock) InDoubt() bool { return c.verdict.Load().Doubt != None }

// Jumps returns how often the wall clock has jumped.
func (c *Clock) Jumps() uint64 { return c.jumps.Load() }

// Away returns the wall clock minus Time, as of the last reading.
func (c *Clock) Away() time.Duration { return time.Duration(c.away.Load()) }

// Observe reads the machine's clocks. Run calls it.
func (c *Clock) Observe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe()
}

// observe is Observe. mu is held.
func (c *Clock) observe() {
	if c.machine != nil {
		c.machine.refresh()
	}
	r := c.read()
	jump := c.judge.Observe(r)
	if jump != 0 {
		c.jumps.Add(1)
		c.log.Warn("The wall clock of this machine jumped; the time of records goes on as if it had not",
			"by", jump, "state", c.judge.Vote(r.Mono).State.String())
	}
	c.publish(r)
}

// publish makes the verdict visible to readers. mu is held.
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
		c.log.Error("The time is in doubt: nothing is deleted by its age. Correct the clocks; if they are right, confirm them: carillon brokers confirm-clock --all",
			"reason", string(v.Doubt), "why", v.Why, "time", time.Unix(0, r.Mono+v.Off).UTC(), "clock", time.Unix(0, r.Wall).UTC())
	case v.Doubt == None && before != nil && before.Doubt != None:
		c.log.Info("The time is not in doubt any more", "time", time.Unix(0, r.Mono+v.Off).UTC())
	}
}

// Run reads the machine's clocks until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	ticker := work.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			ticker.Next()
			c.Observe()
		}
	}
}

// Keep saves the vote every saveEvery, after Confirm, and when ctx ends. It is separate from Run,
// since a hung disk must not stop the readings.
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
		case <-c.save:
		}
	}
}

// AwaitVotes waits until Time rests on more than one unverified wall clock: until it continues a
// saved vote, or another broker was heard. It waits at most awaitVotes, counted from the first
// call.
func (c *Clock) AwaitVotes(ctx context.Context) {
	now := c.mono()
	c.votesDeadline.CompareAndSwap(0, now+int64(awaitVotes))
	left := time.Duration(c.votesDeadline.Load() - now)
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

// Save saves the vote, if there is a Store. Keep calls it.
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

// Vote returns this broker's vote now, and the moment of Mono.
func (c *Clock) Vote() (v Vote, mono int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono = c.mono()
	return c.judge.Vote(mono), mono
}

// Heard records the vote of another broker. It arrived at mono and was sent at most round before.
func (c *Clock) Heard(broker string, v Vote, mono int64, round time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge.Hear(broker, v, mono, round)
	c.publish(c.judge.own.last)
}

// Wrote records the time of the last record of a log that was opened.
func (c *Clock) Wrote(record int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe() // where Run is late, a record of this moment would be later than its last reading
	c.judge.Wrote(record)
	c.publish(c.judge.own.last)
}
