package jetstream

import "time"

// timeouts are the durations of the server's waits. Tests shorten them.
type timeouts struct {
	// answer bounds a call on this broker. Clients wait five seconds, so they get the reason
	// instead of a timeout.
	answer time.Duration
	// unknown bounds the request to etcd whether a stream exists that this broker does not know,
	// because it was just created through another one.
	unknown time.Duration
	// open bounds the wait of a call for a stream whose log is being opened, or whose leader this
	// broker does not know yet.
	open time.Duration
	// stray bounds the wait of a forwarded pull on a broker that is not the leader. The State of
	// either broker is older than the other's, and soon catches up. Then the client is told to pull
	// again: after no responders some clients pull again after missed heartbeats only.
	stray time.Duration
	// ask bounds the answers of other brokers for a list. Streams of brokers that do not answer are
	// listed as missing.
	ask time.Duration
	// poll is the interval of checks while a call waits, beside every change of the State: opening
	// logs and cursors does not change the State.
	poll time.Duration
}

var defaultTimeouts = timeouts{
	answer: 4500 * time.Millisecond, unknown: 2 * time.Second, open: 3 * time.Second, ask: 1500 * time.Millisecond,
	poll: 5 * time.Millisecond, stray: 250 * time.Millisecond,
}

// Bounds of the server, each with the reason for its value.
const (
	// slowAtOnce and slowWaiting bound the calls that wait for etcd or other brokers, to what is
	// done in a second or two, so that a queued call is still answered in time.
	slowAtOnce  = 128
	slowWaiting = 2048
	// paceBurst and paceRate are how many streams a client may create, update and delete at once,
	// and then per second. Tests of applications make hundreds at once. A coordinator on two cores
	// and a usual disk makes 200 a second, so one client leaves half of that to others.
	paceBurst = 1000
	paceRate  = 100
	// paceConsumer is what a consumer counts: one key, where a stream has one for each shard, too, and
	// logs. Applications that start make thousands at once.
	paceConsumer = 0.25
	// paceBytes is the size of a request that counts as one more: at the rate, etcd then writes 1.6
	// MB a second for one client.
	paceBytes = 16 << 10
	// pacePatience is how long a call waits for its turn: clients wait for five seconds.
	pacePatience = 2 * time.Second
	// paceClients bounds the clients whose rate is known, at some 100 bytes each.
	paceClients = 16384
	// writesAtOnce and writesWaiting bound the calls that wait for the logs of this broker's shards:
	// a log takes milliseconds, or as long as its replicas don't confirm.
	writesAtOnce  = 256
	writesWaiting = 4096
	// readsAtOnce and readsWaiting bound the other calls, which may read from the disk.
	readsAtOnce  = 32
	readsWaiting = 4096
	// infosAtOnce and infosWaiting bound the calls that may count by an index, and countsAtOnce those
	// of them that do. Others wait for countWait, and then go without.
	infosAtOnce  = 32
	infosWaiting = 4096
	countsAtOnce = 8
	countWait    = 50 * time.Millisecond
	// shardedEphemerals bounds the consumers without a durable name per Topic with several shards.
	// Each costs a key in etcd and a cursor in every shard. Concurrent creations may exceed it
	// slightly.
	shardedEphemerals = 1024
	// shardedPullBytes is what a pull from a Topic with several shards takes beyond another one.
	shardedPullBytes = 256
	// fewPulls is how many of them wait while each one beyond a bound leads to a search for those
	// that nobody waits for. Among more of them there is one every second.
	fewPulls = 1024
	// relayShare is how many bytes of one shard are under way to a relay at most, and relayBatch how
	// many messages: enough for the round trip between two brokers.
	relayShare = 256 << 10
	relayBatch = 1024
	// relayRateParts is how many shares a second a relay with a rate limit asks for, about.
	relayRateParts = 20
	// relayPatience is how long a relay waits to learn what all shards have delivered before. Then it
	// delivers what the others have: a shard without a leader holds up nobody for longer.
	relayPatience = 2 * time.Second
	// endTime is how long a broker that stops waits for what its relays have asked for: a good deal
	// longer than a share takes that nobody has lost.
	endTime = time.Second
	// relayKept is how long a consumer lives at least under a new relay: clients notice the end of
	// the former one by missed heartbeats.
	relayKept = time.Minute
	// subjectsTime bounds the counting of a stream's subjects: some 10 M take half of it.
	subjectsTime = 3 * time.Second
	// countTime bounds the counting of a consumer's pending messages by the index. listCountTime
	// bounds it for all consumers of a list together. Then the numbers are upper bounds.
	countTime     = 2 * time.Second
	listCountTime = 250 * time.Millisecond
	// numSubjectsPatience is how long the info of a stream waits for an index of its subjects that
	// is being made. Then it goes without their number. A client that asks for subjects waits
	// longer.
	numSubjectsPatience = 50 * time.Millisecond
	subjectsPatience    = 2 * time.Second
	// waitingMessages bounds the pulls and acks that wait for their consumers to be served: those of
	// some thousand clients that come back at once.
	waitingMessages = 16384
	// waitingPoll is the interval in which they are taken again. Longer than timeouts.poll, since
	// there may be many.
	waitingPoll = 20 * time.Millisecond
	// forwardedInboxes bounds the inboxes that forwardedPulls remembers in one period, at about 100
	// bytes each, and forwardedFor the duration of a period. Pulls last for 30 s with most clients.
	forwardedInboxes = 65536
	forwardedFor     = 30 * time.Second
	// pullsBytes bounds the memory of all pulls that wait on this broker, in bytes: some 200,000. A
	// client has one or two of a consumer.
	pullsBytes = 64 << 20
	// waitingBytes bounds the memory of queued requests, and that of the waiting pulls and acks, in
	// bytes.
	waitingBytes = 16 << 20
	// requestBytes is the largest request in bytes, about what etcd accepts as one value.
	requestBytes = 1 << 20
	// deletedBytes is what the sequence of a deleted message takes in a list, about.
	deletedBytes = 21
	// listBytes is the size in bytes at which a page of a list ends early: a stream may have 128
	// KiB of metadata. Clients request the next page from where this one ended.
	listBytes = 4 << 20

	// purgePiece is for how many offsets at once a purge of subjects asks the index whether any
	// matches: far more than a question costs, and few enough to be read if one does.
	purgePiece = 16 << 10
	// purgeKeep bounds keep of a purge with a filter, which remembers that many offsets.
	purgeKeep = 1 << 20

	// directBytes bounds the messages of one direct get in bytes, and directSubjects the subjects of
	// one that asks for last messages, as nats-server does.
	directBytes    = 64 << 20
	directSubjects = 1024
	// directScanBytes is how much of a log one direct get reads, in bytes: about half a second. It
	// counts in at most directCountBytes what follows a batch.
	directScanBytes  = 256 << 20
	directCountBytes = 64 << 20

	// batchMessages and batchBytes are when a sink sends without a Flush, so that the memory it
	// reuses stays small.
	batchMessages = 256
	batchBytes    = 256 << 10
	// consumerLocks is the number of locks over which streams with a limit of consumers are spread.
	consumerLocks = 16
)
