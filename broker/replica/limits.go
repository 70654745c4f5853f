package replica

import (
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Bounds of an exchange, each with the reason for its value.
const (
	// Each side says every beatEvery that it lives, and gives a connection up on which it read nothing
	// for silence: a cut is noticed well before a lease ends.
	beatEvery = 500 * time.Millisecond
	silence   = 2 * time.Second

	// writeTimeout is how long one write of at most writeSize may take. A peer whose disk is behind doesn't
	// read for a while, and lives; one that is gone is noticed by its silence.
	writeTimeout = 30 * time.Second
	writeSize    = 256 << 10

	// A redial pauses between these, doubling, jittered; and begins afresh after a connection that
	// lasted for steadyAfter.
	redialMin   = 20 * time.Millisecond
	redialMax   = 500 * time.Millisecond
	dialTimeout = 2 * time.Second
	steadyAfter = time.Second

	// A follower that was refused asks again between these, doubling, jittered.
	askAgainMin = 50 * time.Millisecond
	askAgainMax = time.Second
	askTick     = 25 * time.Millisecond

	// turnBytes is how much of one log a connection carries before it is another's turn, or one batch.
	turnBytes = 256 << 10
	// windowBytes is about how much of one log may be on its way to a follower and not acknowledged. What is
	// beyond waits in the log, not in memory, so that a slow follower costs its leader nothing.
	windowBytes = 8 << 20
	// catchUpRate is how many bytes a second one connection carries of what its follower lacked when it asked: a
	// broker that comes back is filled quickly, and what is being published still has a disk and a network.
	catchUpRate = 128 << 20
	// paceTick is how long a log waits that is to be copied and has used up that rate.
	paceTick = 5 * time.Millisecond

	// highTick is how late a follower of an idle shard may learn of its watermark and start.
	highTick = 100 * time.Millisecond

	// sweepTick is how often shards are looked at whose set is to change, and sweepAll all the others: for lag,
	// and for logs to be trimmed, which is done once in that time at most.
	sweepTick = 100 * time.Millisecond
	sweepAll  = time.Second

	// swapWorkers and diskWorkers bound how many in-sync sets are swapped and how many logs are flushed,
	// truncated, reset or trimmed at a time. The flushes of several logs share a sync, and the swaps of several
	// shards a transaction of etcd, which takes a hundred.
	swapWorkers = 128
	diskWorkers = 32
	// swapTimeout bounds one swap and what is read after it.
	swapTimeout = 5 * time.Second

	// maxAsk bounds the frames of a follower: an ask with two lineages. maxFrame bounds those of a leader: a turn, or
	// one batch.
	maxAsk   = 16 << 10
	maxFrame = limits.BatchBytes + frameHeader + dataHeader
	// maxStreams is how many shards one connection copies, far beyond what a broker holds.
	maxStreams = 1 << 18
	// maxAnswers bounds what may wait for a follower that asks and doesn't read, in bytes.
	maxAnswers = 64 << 20
	// maxReason bounds the text of a refusal.
	maxReason = 512

	// A reader's buffer begins with one of these sizes and grows for a large batch; it shrinks again after shrinkAfter
	// reads that didn't need that.
	askBuffer   = 16 << 10
	dataBuffer  = 256 << 10
	shrinkAfter = 256

	// complainEvery is how often the same trouble is logged.
	complainEvery = 10 * time.Second
	maxTold       = 1 << 10
)
