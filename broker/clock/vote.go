package clock

import "time"

// Reading is a reading of the clocks of a machine at one moment, in nanoseconds.
type Reading struct {
	Wall int64 // since 1970
	Mono int64
}

// State is how reliable a vote is.
type State uint8

const (
	// Sure: the wall clock agrees with the vote.
	Sure State = iota
	// Held: the wall clock has jumped, and the vote runs as Mono does.
	Held
	// Late: at its start, the broker had been away for longer than Gap, by its wall clock.
	Late
	// Early: at its start, the broker's wall clock was before what it had written.
	Early
)

func (s State) String() string {
	switch s {
	case Sure:
		return "sure"
	case Held:
		return "held"
	case Late:
		return "late"
	case Early:
		return "early"
	}
	return "unknown"
}

// anchored reports whether the vote continues an earlier one.
func (s State) anchored() bool { return s == Sure || s == Held }

// Vote is a broker's vote about the time.
type Vote struct {
	Time  int64 // nanoseconds since 1970, when it was sent
	State State
	Age   time.Duration // how long it has counted
}

// ownVote is this broker's vote. Its methods implement rules C1, C2 and C6.
type ownVote struct {
	off   int64 // vote minus Mono
	state State
	last  Reading
	begun int64 // on Mono; negative if it continues a saved vote
	// since is when the wall clock last jumped, on Mono.
	since int64
	// agreed is since when the wall clock agrees with the vote, on Mono; 0: it does not.
	agreed int64
	// confirmed is until when the vote cannot be outvoted, on Mono.
	confirmed int64
	// low and high bound a plausible wall clock for a vote that continues nothing; 0: no bound.
	low, high int64
}

func (o *ownVote) wallOff() int64 { return o.last.Wall - o.last.Mono }

// away returns the wall clock minus the vote.
func (o *ownVote) away() time.Duration { return time.Duration(o.wallOff() - o.off) }

// observe records a reading. It returns by how much the wall clock jumped against Mono; 0: no jump.
func (o *ownVote) observe(r Reading) (jump time.Duration) {
	elapsed := r.Mono - o.last.Mono
	if elapsed < 0 {
		return 0
	}
	if step := time.Duration(r.Wall - r.Mono - o.wallOff()); step.Abs() > Bound {
		jump = step
	}
	o.last = r
	if jump != 0 {
		o.since, o.agreed = r.Mono, 0
	}
	switch away := o.away(); {
	case !o.state.anchored() && jump != 0:
		o.off = o.wallOff() // There is nothing to continue.
	case away.Abs() <= Bound:
		o.off += min(max(int64(away), -elapsed/slew), elapsed/slew)
	case o.state == Sure:
		// It jumped, or moved away faster than the vote follows.
		if jump == 0 {
			jump = away
		}
		o.state, o.since, o.agreed = Held, r.Mono, 0
	default:
		o.agreed = 0
	}
	o.settle()
	return jump
}

// settle makes the vote Sure if the rules permit it now.
func (o *ownVote) settle() {
	if o.state == Sure {
		return
	}
	now := o.last.Mono
	if now-o.since >= int64(Settle) {
		o.accept()
		return
	}
	plausible := o.away().Abs() <= Bound
	if !o.state.anchored() {
		plausible = o.low != 0 && o.last.Wall >= o.low-int64(Bound) && o.last.Wall <= o.high
	}
	switch {
	case !plausible:
		o.agreed = 0
	case o.agreed == 0:
		o.agreed = max(now, 1)
	case now-o.agreed >= int64(Again):
		o.state = Sure
	}
}

// accept sets the vote to the wall clock.
func (o *ownVote) accept() {
	o.off, o.state, o.low, o.high, o.agreed = o.wallOff(), Sure, 0, 0, 0
}

// outvoted sets the vote to what the others agree on.
func (o *ownVote) outvoted(off int64) {
	o.off, o.agreed, o.since = off, 0, o.last.Mono
	if o.away().Abs() > Bound {
		o.state = Held
	}
}

// bound sets the range of a plausible wall clock, and the state Early, Held or Late if it is
// outside.
func (o *ownVote) bound(low, high int64) {
	o.low, o.high = low, high
	switch {
	case o.last.Wall < low-int64(Slack):
		o.state, o.since, o.agreed = Early, o.last.Mono, 0
	case o.last.Wall < low-int64(Bound): // it is a little behind
		o.off, o.state, o.since, o.agreed = low-o.last.Mono, Held, o.last.Mono, 0
	case o.last.Wall > high:
		o.state, o.since, o.agreed = Late, o.last.Mono, 0
	}
}
