package route

import "time"

// Bounds of a link, each with the reason for its value.
const (
	// protocolNewest and protocolOldest are the versions of the link protocol that this build
	// speaks. Two brokers use the newest that both know, so that an upgrade may go pod by pod.
	protocolNewest = 4
	protocolOldest = 3

	// segmentsSince is the version from which on the leader of a shard sends single segments to who has lost some.
	segmentsSince = 4

	// maxHello bounds every frame until the peer has said who it is: whatever a stranger
	// claims, it cannot make us hold more than this.
	maxHello = 4 << 10

	// maxPayloadCeiling is the largest max_payload a peer may claim, the ceiling that the
	// client protocol has too.
	maxPayloadCeiling = 64 << 20

	// maxNames bounds the queue groups named in one message frame; a message for more groups
	// travels in several frames.
	maxNames = 64 << 10

	// frameOverhead is what a message frame may hold beside its payload: subject and reply
	// (each below 64 KiB by their length fields), group names, and the fixed part.
	frameOverhead = 320 << 10

	// chunkSize is the unit of the outgoing queue and of one write: four full TLS records.
	chunkSize = 64 << 10

	// readSize is how much one read takes at most. A buffer that had to grow for a large
	// frame shrinks back after shrinkAfter reads that did not need it.
	readSize    = 64 << 10
	shrinkAfter = 256

	// maxPending is what may wait for one peer before publishers are to be held back, the
	// same as a client may have pending. At maxPendingHard, which only a hub that does not
	// hold them back can reach, the link is closed and resynchronised: memory is bounded.
	maxPending     = 64 << 20
	maxPendingHard = 2 * maxPending

	// maxInterned bounds the table of group names that a reader keeps to avoid an allocation
	// per message. It is emptied when full.
	maxInterned = 16 << 10

	// maxGreeting bounds connections that have not yet said who they are, so that a port scan
	// or a flood costs a bounded number of goroutines. Others wait in the accept queue.
	maxGreeting = 64

	// handshakeTimeout is how long an accepted connection has for TLS and its hello.
	handshakeTimeout = 2 * time.Second

	// connectTimeout (name lookup and TCP) and attemptTimeout (all of it, TLS and hello too)
	// are below a second together with the pause between attempts, since an attempt that began
	// just before the network came back must end in time for the next one.
	connectTimeout = 500 * time.Millisecond
	attemptTimeout = 750 * time.Millisecond

	// A redial pauses between these, doubling, jittered, counted from the start of the attempt.
	redialMin = 50 * time.Millisecond
	redialMax = 500 * time.Millisecond

	// dialSecondAfter is how much longer the broker with the greater id waits before it dials:
	// normally the other one has linked by then.
	dialSecondAfter = 300 * time.Millisecond

	// refusedPause is the pause after a refusal (another cluster, another version) and towards
	// a peer that is leaving: dialling fast would not help.
	refusedPause = 2 * time.Second

	// steadyAfter is how long a link must have lived for the next redial to start afresh.
	steadyAfter = time.Second

	// Every pingEvery each side says that it lives, whether or not it reads: a reader that is
	// held back by slow clients is no dead peer. After suspectAfter of silence the dialler
	// tries a second connection beside the first, because TCP's own retransmission may wait
	// seconds after the network is back. After deadAfter the link is closed.
	pingEvery    = 500 * time.Millisecond
	suspectAfter = 1500 * time.Millisecond
	deadAfter    = 3 * time.Second
	// A peer that was not heard of for silentAfter is silent: the other brokers are told, in case they hear
	// nothing either. Four pings may be late or lost, as on a machine that is busy for a moment.
	silentAfter   = 2 * time.Second
	keepAliveTick = 250 * time.Millisecond

	// writeTimeout is how long one write of at most chunkSize may take. It is longer than
	// deadAfter, since a peer that pings but does not read is alive and holding us back.
	writeTimeout = 10 * time.Second

	// partingTimeout bounds the flush and the goodbye when this broker closes its links.
	partingTimeout = time.Second

	// logEvery is how often the same complaint about strangers is logged.
	logEvery = time.Minute
)
