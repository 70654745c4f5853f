package subscription

import "time"

// Bounds of Subscriptions, each with its reason.
const (
	// mostPending is what "no limit" means for records on their way: a snapshot of a cursor, 16 bytes
	// for each at the worst, must fit into one batch of a log.
	mostPending = 1 << 19
	// mostAhead is how many records may be acknowledged that were delivered in an earlier life of the
	// broker, just before it died: some of the last tenth of a second.
	mostAhead = 1 << 16
	// mostEphemerals bounds the Subscriptions of one shard that live in memory only: clients make one
	// per reader, at about 1 KiB each.
	mostEphemerals = 1 << 16
	// mostSubjects is of how many subjects the newest record is found for one Subscription that starts
	// with these: 100 bytes each while they are looked for.
	mostSubjects = 1 << 18

	defaultAckWait    = 30 * time.Second
	defaultMaxPending = 1000
	defaultMaxWaiting = 512

	// stepRecords and stepBytes are what one Subscription may deliver and read before others have
	// their turn: a fraction of a millisecond from memory, and one read of a disk.
	stepRecords = 256
	stepBytes   = 1 << 20
	// readSmallest and readLargest bound one read of the log.
	readSmallest = 4 << 10
	readLargest  = 256 << 10
	// countBytes is how much of the log is read to count what matches a filter before something is
	// delivered with a number that is only a bound.
	countBytes = 64 << 20
	// infoBytes is how much of the log is read to answer how many records match a filter.
	infoBytes = 8 << 20
	// createBytes is how much of it is read before Create returns, to find where to start; the rest is
	// read behind it.
	createBytes = 32 << 20

	// lazyFor is how long deliveries and acks that nobody waits for may stay in memory: what was under
	// way so long before a crash is delivered again.
	lazyFor = 50 * time.Millisecond
	// lazyBytes is how much of them may.
	lazyBytes = 64 << 10
	// heldBytes is how much waits to be written while the disk is behind; beyond it a snapshot of
	// all cursors is written instead, later.
	heldBytes = 4 << 20
	// snapshotBytes is after how much in a state log a snapshot of all cursors is written anew and
	// what is before it goes; or snapshotFactor times the last such snapshot, if that is more.
	// So the log has at most a few times what the cursors need, and snapshots are at most a quarter of
	// what is written.
	snapshotBytes  = 256 << 10
	snapshotFactor = 4
	// snapshotBatch is how much of a snapshot of all cursors goes into one batch.
	snapshotBatch = 512 << 10

	// retryAfter is when something that failed is tried again: a read of the disk, an append to a full one.
	retryAfter = time.Second
)
