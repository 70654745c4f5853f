package route

import "time"

// Bounds of a link, each with the reason for its value.
const (
	// protocolNewest and protocolOldest are the versions of the link protocol that this build
	// speaks. Two brokers use the newest version that both speak, so that an upgrade may replace
	// one pod at a time.
	protocolNewest = 4
	protocolOldest = 3

	// segmentsSince is the first version in which a leader sends single segments to replicas that
	// have lost some.
	segmentsSince = 4

	// maxHello bounds every frame until the peer's hello is accepted, so that an unknown peer
	// cannot make this broker hold more.
	maxHello = 4 << 10

	// maxPayloadCeiling is the largest max_payload that a peer may announce. The client protocol
	// has the same ceiling.
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

	// maxPending is how many bytes may be pending for a peer before publishers have to wait, the
	// same as for a client. maxPendingHard is reached only if a caller ignores that. Then the link
	// is closed and exchanges its interest anew, so that memory stays bounded.
	maxPending     = 64 << 20
	maxPendingHard = 2 * maxPending

	// maxInterned bounds the table of group names that a reader keeps to avoid an allocation
	// per message. It is emptied when full.
	maxInterned = 16 << 10

	// maxGreeting bounds the connections without an accepted hello, so that a port scan or a flood
	// costs a bounded number of goroutines: so many strangers, and as many that have shown a
	// certificate of the cluster. Beyond it the oldest one is closed.
	maxGreeting = 64

	// handshakeTimeout is how long an accepted connection has for TLS and its hello.
	handshakeTimeout = 2 * time.Second

	// memberWait is how long an accepted broker may be unknown that has just registered. With the
	// rest of a handshake it is below attemptTimeout.
	memberWait = 300 * time.Millisecond

	// connectTimeout (name lookup and TCP) and attemptTimeout (all of it, TLS and hello too)
	// are below a second together with the pause between attempts, since an attempt that began
	// just before the network came back must end in time for the next one.
	connectTimeout = 500 * time.Millisecond
	attemptTimeout = 750 * time.Millisecond

	// The pause between redials doubles from redialMin to redialMax, with jitter, counted from the
	// start of the attempt.
	redialMin = 50 * time.Millisecond
	redialMax = 500 * time.Millisecond

	// dialSecondAfter is how much longer the broker with the greater id waits before it dials:
	// normally the other one has linked by then.
	dialSecondAfter = 300 * time.Millisecond

	// refusedPause is the pause after a refusal (another cluster, another version) and towards a
	// peer that is leaving, for which a quick redial is useless.
	refusedPause = 2 * time.Second

	// steadyAfter is how long a link must have lived for the next redial to begin with redialMin.
	steadyAfter = time.Second

	// Each side pings every pingEvery, whether or not it reads, since a reader that slow clients
	// hold back is no dead peer. After suspectAfter of silence the dialling side tries a second
	// connection beside the first, because TCP may wait seconds before it retransmits once the
	// network is back. After deadAfter the link is closed.
	pingEvery    = 500 * time.Millisecond
	suspectAfter = 1500 * time.Millisecond
	deadAfter    = 3 * time.Second
	// A peer is silent after silentAfter without a byte from it; this broker then tells the others,
	// in case they hear nothing either. Four pings may be late or lost, as on a busy machine.
	silentAfter = 2 * time.Second
	// A link is checked when it pings, and from quietAfter of silence on with each keepAliveTick.
	quietAfter    = 800 * time.Millisecond
	keepAliveTick = 200 * time.Millisecond

	// lateAfter is how long a peer may take to answer what Sync asks. It is as long as the pause
	// between two pings, since a peer that reads answers within milliseconds.
	lateAfter = 500 * time.Millisecond

	// writeTimeout bounds one write of at most chunkSize. It is longer than deadAfter, since a peer
	// that pings but does not read is alive and applies back-pressure.
	writeTimeout = 10 * time.Second

	// partingTimeout bounds the last flush when this broker closes its links.
	partingTimeout = time.Second

	// logEvery is the interval in which one cause of refusals is logged at most once.
	logEvery = time.Minute
)
