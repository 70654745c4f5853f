package clock

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Reason is why Time is in doubt, from a closed list, for metrics and conditions.
type Reason string

// The reasons.
const (
	None        Reason = ""
	Jumped      Reason = "ClockJumped"      // wall clocks jumped against Mono
	Disagree    Reason = "ClocksDisagree"   // brokers' clocks differ, and no majority agrees
	Implausible Reason = "ClockImplausible" // at start: earlier than the last record, or long after it
	Stepped     Reason = "TimeStepped"      // Time went forward by more than Bound
)

// Verdict is the result of the votes.
type Verdict struct {
	Off     int64  // Time is Mono plus Off
	Doubt   Reason // None: not in doubt
	Why     string // Doubt as a sentence
	Elapsed bool   // the times of records can be compared with Time (C7)
	Known   int    // votes, including this broker's
	Sure    int    // votes that are Sure and agree with Time
	Agree   int    // votes within Slack of Time and not Early
	Steps   uint64 // how often Time stepped by more than Bound
}

// peerVote is the vote of another broker. Its difference from this broker's Mono is between low and
// high.
type peerVote struct {
	low, high int64
	state     State
	begun     int64 // on this broker's Mono
	heard     int64 // on Mono
}

// Judge computes Time from this broker's clocks and the votes of others. It has no clock of its
// own. It is not safe for concurrent use. All times are nanoseconds.
type Judge struct {
	own       ownVote
	peerVotes map[string]*peerVote
	started   int64
	stepped   int64 // when Time last stepped forward, on Mono; 0: never
	verdict   Verdict

	votes, anchored []counted // reused
}

type counted struct {
	off, begun int64
	state      State
	own        bool
}

// Saved is the part of a vote that is kept over a restart.
type Saved struct {
	Boot string `json:"boot"` // identifies the boot of the machine; empty: unknown
	Mono int64  `json:"mono"`
	Time int64  `json:"time"` // of the vote
	Sure bool   `json:"sure"`
	// Begun is since when the vote counts, on Mono.
	Begun int64 `json:"begun"`
	// Low and High bound a plausible wall clock, and Since is when the wall clock last jumped, on
	// Mono, if the vote was Early or Late; 0: it was not.
	Low   int64 `json:"low,omitempty"`
	High  int64 `json:"high,omitempty"`
	Since int64 `json:"since,omitempty"`
}

// NewJudge starts with the first reading, and with the saved vote, or nil.
func NewJudge(r Reading, boot string, saved *Saved) *Judge {
	j := &Judge{peerVotes: map[string]*peerVote{}, started: r.Mono}
	o := &j.own
	*o = ownVote{off: r.Wall - r.Mono, last: r, begun: r.Mono, since: r.Mono}
	switch {
	case saved == nil:
	case saved.Low != 0: // its time is that of an implausible wall clock
		o.bound(saved.Low, saved.High)
		if same := boot != "" && saved.Boot == boot && saved.Mono <= r.Mono; same && time.Duration(o.off-saved.Time+saved.Mono).Abs() <= Bound {
			o.begun, o.since = min(saved.Begun, r.Mono), min(saved.Since, r.Mono)
		}
	case boot != "" && saved.Boot == boot && saved.Mono <= r.Mono:
		o.off, o.begun = saved.Time-saved.Mono, min(saved.Begun, r.Mono)
		if !saved.Sure || o.away().Abs() > Bound {
			o.state = Held
		}
	default:
		o.bound(saved.Time, saved.Time+int64(Gap))
	}
	j.evaluate()
	return j
}

// Save returns the vote to save.
func (j *Judge) Save(boot string) Saved {
	o := &j.own
	s := Saved{Boot: boot, Mono: o.last.Mono, Time: o.last.Mono + o.off, Sure: o.state == Sure, Begun: o.begun}
	if !o.state.anchored() {
		s.Low, s.High, s.Since = o.low, o.high, o.since
	}
	return s
}

// Observe records a reading of this broker's clocks. It returns by how much the wall clock jumped;
// 0: no jump.
func (j *Judge) Observe(r Reading) (jump time.Duration) {
	jump = j.own.observe(r)
	j.evaluate()
	return jump
}

// Vote returns this broker's vote at a moment of Mono.
func (j *Judge) Vote(mono int64) Vote {
	return Vote{Time: mono + j.own.off, State: j.own.state, Age: time.Duration(max(mono-j.own.begun, 0))}
}

// Hear records the vote of another broker. It arrived at mono and was sent at most round before.
func (j *Judge) Hear(broker string, v Vote, mono int64, round time.Duration) {
	if round < 0 || round > MaxRound {
		return
	}
	p := j.peerVotes[broker]
	if p == nil {
		if len(j.peerVotes) >= maxPeers {
			return
		}
		p = &peerVote{low: v.Time - mono, high: v.Time - mono + int64(round)}
		j.peerVotes[broker] = p
	}
	// The former bounds widen by how far the vote may have followed its wall clock since.
	drift := max(mono-p.heard, 0) / slew
	low, high := v.Time-mono, v.Time-mono+int64(round)
	if l, h := max(low, p.low-drift), min(high, p.high+drift); l <= h {
		low, high = l, h
	}
	p.low, p.high, p.state, p.begun, p.heard = low, high, v.State, mono-int64(v.Age), mono
	j.evaluate()
}

// Wrote records the time of the last record of a log that this broker opened. A broker that starts
// without a saved vote and hears no other one detects only by this that its wall clock is behind
// (C6).
func (j *Judge) Wrote(record int64) {
	o := &j.own
	vouched := o.state == Held || o.state == Sure && o.high != 0
	if vouched || o.last.Mono-j.started > int64(stepGrace) {
		return
	}
	if record > o.last.Wall+int64(Bound) && record > o.low {
		o.bound(record, record+int64(Gap))
		j.evaluate()
	}
}

// Confirm accepts this broker's wall clock, because an administrator says that it is right.
func (j *Judge) Confirm() {
	j.own.accept()
	j.own.confirmed = j.own.last.Mono + int64(confirmTime)
	j.stepped = 0
	j.evaluate()
}

// Verdict returns the current verdict.
func (j *Judge) Verdict() Verdict { return j.verdict }

// evaluate computes Time, and once more if that changed this broker's vote.
func (j *Judge) evaluate() {
	if j.count(); j.align() {
		j.count()
	}
}

// count computes Time from the votes (C3, C5, C7).
func (j *Judge) count() {
	o := &j.own
	now := o.last.Mono
	j.votes = append(j.votes[:0], counted{o.off, o.begun, o.state, true})
	for _, p := range j.peerVotes {
		if now-p.heard <= int64(voteTTL) {
			j.votes = append(j.votes, counted{p.low + (p.high-p.low)/2, p.begun, p.state, false})
		}
	}
	target := j.median()
	first := j.verdict.Known == 0
	if step := target - j.verdict.Off; !first && step > int64(Bound) && now-j.started > int64(stepGrace) && now > o.confirmed {
		j.stepped = max(now, 1)
	}
	v := Verdict{Off: target, Known: len(j.votes), Steps: j.verdict.Steps}
	if !first && time.Duration(target-j.verdict.Off).Abs() > Bound {
		v.Steps++
	}
	held, apart := 0, 0
	for _, c := range j.votes {
		away := time.Duration(c.off - target).Abs()
		// A Late clock may be ahead; then records seem older than they are.
		if away <= Slack && c.state != Early {
			v.Agree++
		}
		switch {
		case away > Bound:
			apart++
		case c.state == Sure:
			v.Sure++
		case c.state == Held:
			held++
		}
	}
	v.Elapsed = 2*v.Agree > v.Known
	if j.stepped != 0 && now-j.stepped >= int64(Settle) {
		j.stepped = 0
	}
	switch {
	case 2*v.Sure > v.Known && j.stepped == 0:
	case 2*v.Sure > v.Known:
		v.Doubt, v.Why = Stepped, "the time that brokers agree on went forward by more than their clocks did"
	case apart > 0 && 2*(v.Known-apart) <= v.Known:
		v.Doubt, v.Why = Disagree, fmt.Sprintf("of the clocks of %d brokers %d are further than %v from the others", v.Known, apart, Bound)
	case held > 0:
		v.Doubt, v.Why = Jumped, fmt.Sprintf("of the clocks of %d brokers %d jumped, or are further than %v from the time that the brokers go by", v.Known, held, Bound)
	case !o.state.anchored():
		v.Doubt, v.Why = Implausible, "this broker started with a clock that is implausible: before what it had written, or longer after it than a broker is away"
	default:
		v.Doubt, v.Why = Disagree, fmt.Sprintf("of the clocks of %d brokers only %d agree and are sure", v.Known, v.Sure)
	}
	j.verdict = v
}

// median returns Time minus Mono (C3).
func (j *Judge) median() int64 {
	votes := j.votes
	j.anchored = slices.DeleteFunc(append(j.anchored[:0], votes...), func(c counted) bool { return !c.state.anchored() })
	if len(j.anchored) > 0 {
		votes = j.anchored
	}
	slices.SortFunc(votes, func(a, b counted) int { return cmp.Compare(a.off, b.off) })
	n := len(votes)
	low, high := votes[(n-1)/2], votes[n/2]
	if time.Duration(high.off-low.off) <= Bound || low.begun <= high.begun+int64(Bound) {
		return low.off // of two that began together, all brokers choose the same
	}
	return high.off
}

// align moves this broker's vote to Time, or accepts its wall clock, if the others decide so (C2,
// C4). It reports whether the vote changed.
func (j *Judge) align() (changed bool) {
	o, v := &j.own, &j.verdict
	if v.Known < 2 || o.last.Mono <= o.confirmed {
		return false
	}
	certain := v.Doubt == None || v.Doubt == Stepped || !o.state.anchored() && v.Sure > 0
	switch {
	case o.state != Sure && certain && time.Duration(o.wallOff()-v.Off).Abs() <= Bound:
		o.accept()
	case time.Duration(o.off-v.Off).Abs() > Bound && len(j.anchored) > 0:
		o.outvoted(v.Off)
	default:
		return false
	}
	return true
}
