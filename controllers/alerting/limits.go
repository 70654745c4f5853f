package alerting

import "time"

// Bounds, each with the reason for its value.
const (
	// viewBurst is how many events of a View are written at once, and viewEvery the time for each
	// further one: who looks at a View reads some twenty lines.
	viewBurst = 10
	viewEvery = 10 * time.Second
	// allBurst and allEvery are the same for all Views of an operator. Events stay for an hour in the
	// API server's etcd: that are some 7,000.
	allBurst = 100
	allEvery = 500 * time.Millisecond
	// brokerBurst and brokerEvery are the same for the Views of one Broker: a half, so that one whose
	// alerts never end leaves something to the others.
	brokerBurst = 50
	brokerEvery = time.Second
	// maxAlert is the size of an alert: package broker/viewing writes none that is larger.
	maxAlert = 256 << 10
	// maxText is how many bytes of a key, of the values, and of a trouble are shown. The API accepts
	// 1,024 for a note, of which maxNote are used.
	maxText = 300
	maxNote = 1000

	// turnsAtOnce is how many Brokers are read at once: each may take maxSpent of the operator's
	// 128 MiB, some times over while it is decoded. Others wait for their turn.
	turnsAtOnce = 4
	// turnEvery is the time from one turn of a Broker to its next. While nothing comes it doubles, up
	// to restEvery: so late may an event be. A turn takes some 7 ms of processor time, and an operator
	// at rest is to take next to none. After a failure it doubles up to lastRetry, so that a Broker
	// that fails seldom holds a turn.
	turnEvery = 5 * time.Second
	restEvery = 20 * time.Second
	lastRetry = time.Minute
	// turnPause is the time from the beginning of a turn to that of the next one, of any Broker.
	// With turnBytes, it bounds the processor time of floods at all Brokers to a tenth of a core.
	turnPause = 100 * time.Millisecond
	// turnWithin bounds a turn: a broker that is slow holds up no other one for longer.
	turnWithin = 10 * time.Second
	// dialWithin bounds the greeting of a broker.
	dialWithin = 5 * time.Second
	// maxDials is how many addresses of a Broker are tried in a turn, at random: it writes them
	// itself, and could have the operator try thousands that are somebody else's.
	maxDials = 4
	// answerWithin is how long an answer is waited for: a shard without a leader costs the others that
	// much of a turn.
	answerWithin = 2 * time.Second
	// writeWithin bounds the writing of events after a turn.
	writeWithin = 5 * time.Second
	// lateAfter is how long a Broker waits for its turn before the log says so.
	lateAfter = time.Minute
	// accessFor is how long the Secrets and CAs of a Broker are good, unless a turn fails: the API
	// server answers the operator 20 requests a second.
	accessFor = 5 * time.Minute
	// lookEvery is how often the manifests are looked at, in memory.
	lookEvery = 5 * time.Second

	// readBytes is one answer, unless one alert alone is larger.
	readBytes = 16 << 10
	// sourceReads is how many answers a turn takes of a shard: some hundred alerts. More than that in
	// turnEvery are a flood, of which people read nothing: the rest is passed over.
	sourceReads = 8
	// turnBytes is after how many bytes of alerts a turn ends. The next one goes on.
	turnBytes = 256 << 10
	// maxMessage is the largest message that nats.go may see: it makes a buffer of the size that the
	// server names. The largest alert fits, with the headers of an answer.
	maxMessage = maxAlert + 16<<10
	// maxLine is the longest control line; nats-server has the same bound for clients' lines. maxInfo
	// is that of INFO, which names all brokers.
	maxLine = 4 << 10
	maxInfo = 32 << 10
	// maxSpent is what a server may send in a turn, in bytes, where each control line counts as
	// lineCost more: so much nats.go allocates for a message. An honest broker needs 1.4 MiB if it is
	// asked for maxSources shards and has the largest alerts.
	maxSpent = 2 << 20
	lineCost = 512

	// maxSources is how many shards are read of a Broker, each for each trigger: so long takes a
	// turn. The operator's user has a pattern for each Topic, and one for each View there; a user has
	// 1,000 at most.
	maxSources = 500
	// unreadAfter is after what time without success a condition says so: the operator's user needs a
	// moment until brokers know it, and a broker that is replaced comes back. That of a View comes, or
	// changes, once in tellAgain: a Broker that fails now and then would have the status of each of
	// its Views written, and an event about it, each time.
	unreadAfter = 15 * time.Second
	tellAgain   = 10 * time.Minute
)
