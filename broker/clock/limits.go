package clock

import "time"

const (
	// Bound is how much clocks may differ and still agree. Synchronized machines are within a tenth
	// of a second; useful windows and ages are minutes.
	Bound = 2 * time.Second
	// Slack is how much clocks may differ for the ages of records to decide about message ids.
	// Machines that just started and are not synchronized yet are wrong by seconds. It is small
	// compared with the usual window.
	Slack = 30 * time.Second
	// slew: a vote follows its wall clock by 1/slew of the time that passes, so 2 s take 40 s. A
	// clock that moves faster, in steps below Bound, makes the vote Held.
	slew = 20
	// Again is how long a wall clock must agree with its Held vote before that is Sure: time
	// synchronization may set the clock several times while it starts.
	Again = time.Minute
	// Settle is how long a wall clock must run evenly to be accepted after an unexplained jump. An
	// administrator has a day to correct the clock, and without one the disk does not fill for
	// good.
	Settle = 24 * time.Hour
	// Gap is how long a broker may have been away without a doubt about its wall clock: a reboot,
	// an upgrade of the node, a move to another one.
	Gap = 24 * time.Hour
	// stepGrace is how long after its start Time may step without a doubt, until the broker has
	// heard the others.
	stepGrace = time.Minute
	// voteTTL is how long a vote counts. It is repeated every half second.
	voteTTL = 10 * time.Second
	// confirmTime is how long a confirmed vote is not outvoted, until all brokers have been
	// confirmed.
	confirmTime = 10 * time.Minute
	// ConfirmWithin is how much a clock may differ from the time that its confirmation names. An
	// administrator's own machine may be off by seconds; retention ages are minutes and more.
	ConfirmWithin = time.Minute
	// MaxRound is the longest round trip by which a vote is measured. The error is half of it.
	MaxRound = time.Second
	// awaitVotes is how long a leader on a machine that just started waits for its followers'
	// clocks. Followers connect some ten milliseconds after the election.
	awaitVotes = 500 * time.Millisecond
	// maxPeers bounds the votes, far above the number of brokers of a cluster.
	maxPeers = 1024

	// observeEvery is the interval of readings.
	observeEvery = 500 * time.Millisecond
	// saveEvery is the interval in which the vote is saved. The time since the last save counts as
	// absence.
	saveEvery = time.Minute
)
