package jetstream

import "time"

// waits are how long is waited for what.
type waits struct {
	// answer is how long a call may take here. Clients wait five seconds, so they learn from us
	// why, and not that time ran out.
	answer time.Duration
	// unknown bounds the question to etcd whether a stream that this broker doesn't know was made
	// just now through another one.
	unknown time.Duration
	// open is how long a call waits for a stream whose log is being opened, or whose leader this
	// broker has not been told of yet.
	open time.Duration
	// ask is how long other brokers have for what a list needs of them. Those that don't answer are
	// named in it as missing.
	ask time.Duration
	// look is how often what a call waits for is looked at, beside every change of the State: logs
	// and cursors open in between.
	look time.Duration
}

var usualWaits = waits{
	answer: 4500 * time.Millisecond, unknown: 2 * time.Second, open: 3 * time.Second, ask: 1500 * time.Millisecond,
	look: 5 * time.Millisecond,
}

// Bounds of the live part, each with the reason for its value.
const (
	// slowAtOnce and slowWaiting bound the calls that wait for etcd or other brokers: as many as
	// are done in a second or two, so that one that was let wait is still answered in time.
	slowAtOnce  = 128
	slowWaiting = 2048
	// readsAtOnce and readsWaiting bound the other calls. They may read from the disk.
	readsAtOnce  = 32
	readsWaiting = 4096
	// shardedEphemerals bounds the consumers that aren't durable by the name of a Topic with several shards: each is a key in etcd and
	// a cursor in every shard. Those that are made at the same time may be a few more.
	shardedEphemerals = 1024
	// waitingBytes bounds what the requests that wait hold.
	waitingBytes = 16 << 20
	// requestBytes is the longest request: about what etcd takes as one value.
	requestBytes = 1 << 20
	// listBytes is where a page of a list ends before it has its number of entries: a stream may
	// have 128 KiB of metadata. Clients ask on from where a page ended.
	listBytes = 4 << 20

	// batchMessages and batchBytes are what a sink gathers before it hands on without being told
	// to, so that the memory that it reuses stays small.
	batchMessages = 256
	batchBytes    = 256 << 10
	// consumerLocks is how many streams with a limit of consumers may have one made at once without
	// waiting for each other.
	consumerLocks = 16
)
