package replica

import (
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Bounds of an exchange, each with the reason for its value.
const (
	// Each side sends a heartbeat every beatEvery, and closes a connection without input for
	// silence. So a cut is detected well before a lease expires.
	beatEvery = 500 * time.Millisecond
	silence   = 2 * time.Second

	// writeTimeout bounds one write of at most writeSize. A peer whose disk is behind does not read
	// for a while, and is alive; a dead one is detected by its silence.
	writeTimeout = 30 * time.Second
	writeSize    = 256 << 10

	// The pause between redials doubles from redialMin to redialMax, with jitter. It starts over
	// after a connection that lasted for steadyAfter.
	redialMin   = 20 * time.Millisecond
	redialMax   = 500 * time.Millisecond
	dialTimeout = 2 * time.Second
	steadyAfter = time.Second

	// The pause before a refused follower asks again doubles from askAgainMin to askAgainMax, with
	// jitter.
	askAgainMin = 50 * time.Millisecond
	askAgainMax = time.Second
	askTick     = 25 * time.Millisecond

	// turnBytes is how much of one log a connection sends before the next log's turn, or one batch
	// if larger.
	turnBytes = 256 << 10
	// windowBytes is approximately how much of one log may be sent and not acknowledged. The rest
	// waits in the log and not in memory, so a slow follower costs its leader nothing.
	windowBytes = 8 << 20
	// catchUpRate is how many bytes per second one connection sends of what its follower lacked at
	// its ask: a broker that returns catches up quickly, and publishing keeps a part of the disk
	// and the network.
	catchUpRate = 128 << 20
	// paceTick is the pause of a log that has used up that rate.
	paceTick = 5 * time.Millisecond

	// highTick is the delay with which a follower of an idle shard learns of its watermark and
	// start.
	highTick = 100 * time.Millisecond

	// sweepTick is the interval of checks of shards whose set may change, and sweepAll of all
	// others: for lag, and to trim logs.
	sweepTick = 100 * time.Millisecond
	sweepAll  = time.Second

	// swapWorkers and diskWorkers bound the concurrent swaps of in-sync sets, and the concurrent
	// flushes, truncations, resets and trims of logs. Flushes of several logs share a sync, and
	// swaps of several shards a transaction of etcd with up to a hundred.
	swapWorkers = 128
	diskWorkers = 32
	// swapTimeout bounds one swap and the read after it.
	swapTimeout = 5 * time.Second

	// maxAsk bounds the frames of a follower: an ask with two lineages. maxFrame bounds those of a
	// leader, and maxGiven what a follower gives it: a turn, or one batch.
	maxAsk   = 16 << 10
	maxFrame = limits.BatchBytes + frameHeader + dataHeader
	maxGiven = limits.BatchBytes + frameHeader + givenHeader
	// maxStreams bounds the shards of one connection, far above what a broker holds.
	maxStreams = 1 << 18
	// maxAnswers bounds the bytes of answers to a follower that asks and does not read.
	maxAnswers = 64 << 20
	// maxReason bounds the text of a refusal.
	maxReason = 512

	// askBuffer and dataBuffer are the initial sizes of a reader's buffer. It grows for a large
	// batch and shrinks after shrinkAfter reads that did not need that.
	askBuffer   = 16 << 10
	dataBuffer  = 256 << 10
	shrinkAfter = 256

	// logEvery is the interval in which one warning is logged at most once. maxLogKeys bounds the
	// number of warnings whose last time is kept.
	logEvery   = 10 * time.Second
	maxLogKeys = 1 << 10
)
