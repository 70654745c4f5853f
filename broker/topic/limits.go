package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/retention"
)

const (
	// batchBytes and batchRecords are where the messages of one read are cut into another batch.
	// They are a good deal less than a batch may have, since readers read a whole batch.
	batchBytes   = 1 << 20
	batchRecords = 4096
	// idsBytes is how much of a log a broker reads for message ids when it begins to follow: about
	// half a second. If that isn't the whole window, a broker that is elected soon reads the rest.
	idsBytes = 256 << 20
	// maxID is the longest message id: the last one of each shard is kept in memory.
	maxID = 1 << 10
	// lookupMessages is for how many messages last records are looked up at once.
	lookupMessages = 256
	// markRest is the pause before a message that waited for a Mark is judged again.
	markRest = 5 * time.Millisecond
	// openers is how many logs are opened and closed at once. Most of that is waiting for the disk.
	openers = 8
	// tick is how often the keeper looks at shards. Idle shards cost nothing.
	tick = retention.Tick
	// firstRetry and lastRetry bound how long after a failure a log is opened again: soon, since
	// its messages wait, and no more often than a person would want to read about it.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// compactAge is how old records are at least when compaction deletes them, so that readers that
	// keep up see all records. It covers the ids and the origins that are read again from the log.
	compactAge = time.Minute + forward.OriginTime
)
