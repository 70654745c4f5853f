package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

const (
	// batchBytes and batchRecords are where what one read brought is cut into another batch. It is a
	// good deal less than a batch may have, since a reader takes a batch as a whole.
	batchBytes   = 1 << 20
	batchRecords = 4096
	// idsBytes is how much of a log a broker reads for them that begins to follow: about half a second. If that isn't the whole
	// window, it is read when the broker is elected before the window is over.
	idsBytes = 256 << 20
	// maxID is the longest message id: it is kept in memory for the last message of each shard.
	maxID = 1 << 10
	// maxSubjects is of how many subjects one shard knows the last record, at about 50 bytes each.
	maxSubjects = 1 << 20
	// maxUnanswered is how many answers may wait for the disk, at about 100 bytes each, before
	// publishers are read no further; at twice as many, what came over links is refused.
	maxUnanswered = 256 << 10
	// aheadBytes is how much a leader appends to one shard beyond its high watermark before publishers wait: twice what
	// the outbox of a broker holds, so that brokers that forward wait first, and more than 1 Gbit/s brings while a
	// follower collects garbage. aheadRecords is the same in records, at about 250 bytes each of answers that wait.
	aheadBytes   = 2 * sender.OutboxBytes
	aheadRecords = 256 << 10
	// aheadTime is how long publishers wait for a watermark that does not move before they are refused: a member that
	// lags leaves the in-sync set before (replica.LagTime and a sweep), and what waited is kept then.
	aheadTime = replica.LagTime + 2*time.Second
	// confirmTime is how long an answer waits for the in-sync replicas: longer than a follower that died stays in the set
	// (replica.DisconnectTime and a swap), and shorter, with a tick, than the 5 s for which JetStream's clients wait.
	confirmTime = replica.DisconnectTime + 1500*time.Millisecond
	// answersPerSend bounds the memory in which the answers of one round are built.
	answersPerSend = 16 << 10
	// openers is how many logs are opened and closed at once. It is waiting for the disk for the most
	// part, and a disk does several things at once.
	openers = 8
	// tick is how often retention is looked at. Nothing is done for a shard that nothing happened to.
	tick = 500 * time.Millisecond
	// firstRetry and lastRetry bound how long after it failed a log is opened again: soon, since its
	// messages wait, and no more often than somebody would want to read about it.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// compactEvery is how often it is looked at whether compacting a log is worth it, which costs nothing.
	compactEvery = 30 * time.Second
	// compactShare is how much of a log has to be new for it to be compacted: at half, what is rewritten is no more than
	// twice what was published, as with Kafka. compactLeast is how much of it, at least: one small segment.
	compactShare = 0.5
	compactLeast = 1 << 20
	// compactAge is how old records are at least when they go, so that readers who keep up see all of them. The
	// deduplication window counts as well, if it is longer: until it is over, ids are read again from the log, and so are
	// the origins of what was forwarded.
	compactAge = time.Minute + forward.OriginTime
	// reportTime bounds how long a broker waits for etcd when it reports a damaged copy.
	reportTime = 5 * time.Second
)
