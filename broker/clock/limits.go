package clock

import "time"

const (
	// Bound is how far clocks may be apart and still agree. Machines that are synchronized at all are
	// within a tenth of a second; the shortest windows and ages that are of use are minutes.
	Bound = 2 * time.Second
	// Slack is how far clocks may be apart, and records' ages wrong by it, for message ids to be known by these ages: machines
	// that were just started, and are not synchronized yet, are wrong by seconds. It is small beside the usual window.
	Slack = 30 * time.Second
	// slew is the share of the time that passes by which a vote follows its wall clock: 2 s are
	// made up for in 40 s. A clock that creeps by steps below Bound is faster than that, and is Held.
	slew = 20
	// Again is how long a wall clock agrees with its Held vote until that is Sure: what
	// synchronizes clocks may set them several times while it starts.
	Again = time.Minute
	// Settle is how long a wall clock runs evenly until it is believed after a jump that nothing explains. A
	// person has a day to correct the clock, and a disk that nobody watches does not fill for good.
	Settle = 24 * time.Hour
	// Gap is for how long a broker may have been away without its wall clock being in doubt: a reboot, an
	// upgrade of the node, a move to another one.
	Gap = 24 * time.Hour
	// starting is how long Time may step without being in doubt: until a broker has heard the others.
	starting = time.Minute
	// fresh is how long a vote counts that is not repeated; it is repeated every half second.
	fresh = 10 * time.Second
	// confirmed is how long a confirmed vote is not outvoted: until all brokers have been confirmed.
	confirmed = 10 * time.Minute
	// MaxRound is the longest round trip by which a vote is measured. Half of it is the error.
	MaxRound = time.Second
	// awaitVotes is how long a leader waits for the clocks of its followers after its machine was started: they
	// connect some ten milliseconds after the election.
	awaitVotes = 500 * time.Millisecond
	// maxPeers bounds the votes, far beyond the brokers of a cluster.
	maxPeers = 1024

	// observeEvery is how often the wall clock is compared with Mono.
	observeEvery = 100 * time.Millisecond
	// saveEvery is how often the vote is saved. What it is behind by is assumed to be an absence.
	saveEvery = time.Minute
)
