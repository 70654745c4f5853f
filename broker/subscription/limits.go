package subscription

import (
	"math"
	"time"
)

// Bounds of Subscriptions, each with its reason.
const (
	// mostPending is the bound of pending records if none is set: a snapshot of a cursor, at most
	// 16 bytes per record, must fit into one batch of a log.
	mostPending = 1 << 19
	// mostAhead bounds the acks of deliveries from an earlier life that the state log lacks: those
	// of the last tenth of a second.
	mostAhead = 1 << 16
	// mostKept bounds the records of one Subscription that were given up after their maximum of
	// deliveries and stay in a stream whose acks remove: a snapshot of a cursor must fit into one
	// batch of a log. Beyond it such records stay pending, and are tried again.
	mostKept = 1 << 17
	// mostNoted bounds the ranges of offsets that wait to be looked at for removal: 256 KiB. Beyond
	// it all offsets between the first and the last one are looked at.
	mostNoted = 1 << 14
	// releaseOffsets is how many offsets are looked at together: that takes about a millisecond at
	// most, while acks wait.
	releaseOffsets = 1 << 16
	// releaseRest is the pause for each Subscription between two times that all are asked what they
	// need, up to lazyFor. To ask one takes a tenth of a microsecond.
	releaseRest = 2 * time.Microsecond
	// judgedBytes is what looking at releaseOffsets counts as of stepBytes.
	judgedBytes = stepBytes / 16
	// fewReleased is up to how many offsets a small read of the log is enough for.
	fewReleased = 16
	// mostReaders bounds the readers of one shard: clients create one each time they begin to read,
	// at about 1 KiB of memory and 300 bytes of the state log each.
	mostReaders = 1 << 16
	// endless is an offset that no log reaches.
	endless = math.MaxUint64
	// readerBytes bounds the settings of the readers of one shard in the state log, in bytes: each
	// may have 128 KiB of metadata, and a snapshot writes all of them.
	readerBytes = 32 << 20
	// mostSubjects bounds the subjects of a Subscription that starts with the newest record of
	// each: about 100 bytes each during the search.
	mostSubjects = 1 << 18

	// restoredFor is how long a reader lives at least under a new leader. Clients notice the end of
	// their requests by missed heartbeats: after two of them, and they are at most 30 s apart.
	restoredFor = time.Minute

	defaultAckWait    = 30 * time.Second
	defaultMaxPending = 1000
	defaultMaxWaiting = 512
	// fewWaiting is how many requests wait while each one beyond a bound leads to a search for those
	// that nobody waits for. Among more of them there is one every sweepEvery.
	fewWaiting = 1024
	sweepEvery = time.Second
	// mostPrioritized bounds the waiting requests of a Subscription with a priority policy: all of
	// them are looked at for each delivery, which takes some 10 µs then.
	mostPrioritized = 4096
	// pinLength is the length of the id of a pinned client: as long as nats-server's.
	pinLength = 22

	// stepRecords and stepBytes bound what one Subscription delivers and reads in one step: a
	// fraction of a millisecond from memory, and one read of a disk.
	stepRecords = 256
	stepBytes   = 1 << 20
	// readSmallest and readLargest bound one read of the log, in bytes.
	readSmallest = 4 << 10
	readLargest  = 256 << 10
	// countBytes bounds what is read to count the records that match a filter before the first
	// delivery; then its number is an upper bound.
	countBytes = 64 << 20
	// infoBytes bounds what is read to answer Info with the number of matching records.
	infoBytes = 8 << 20
	// indexedCount is from how many offsets on the index of the shard's subjects counts, or fewer if
	// they take infoBytes. Below fewOffsets it never does. So a Subscription that keeps up needs no
	// index.
	indexedCount = 16 << 10
	fewOffsets   = 64
	// countPatience is how long Count waits for an index that is being made.
	countPatience = 250 * time.Millisecond
	// countTries is how often Count counts anew when records were delivered meanwhile.
	countTries = 3
	// deliveryCount bounds how long a delivery waits for the index to count. If it doesn't, it isn't
	// asked again for countRest.
	deliveryCount = 2 * time.Second
	countRest     = 5 * time.Second
	// countsAtOnce is how many Subscriptions have the index count for a delivery, and countsWaiting
	// how many wait for that. Others read the log.
	countsAtOnce  = 4
	countsWaiting = 1024
	// mostMatches bounds the matching records that are remembered ahead of a cursor with a condition:
	// as many as one step delivers, 2 KiB.
	mostMatches = stepRecords
	// fewMatches is how many of them an idle cursor keeps the memory for.
	fewMatches = 8
	// mostWatched bounds the conditions that the tail of a shard judges: at 4 KiB each, with a
	// compiled expression of usual length. Beyond it, Subscriptions judge for themselves.
	mostWatched = 1 << 16
	// mostRecent is how many matches of a condition a tail remembers at least, by half: Subscriptions
	// that were woken take them, and take no longer than that. 1 KiB.
	mostRecent = 64
	// lazySkips is how many offsets a cursor that waits for a match may be behind. A new leader has
	// the records judged again, once for all cursors: that takes about 0.1 s.
	lazySkips = 1 << 16
	// followRest is the pause for each cursor that waits for a match between two times that all
	// follow, where acks remove: a step of one takes some microseconds.
	followRest = 100 * time.Microsecond
	// judgeFor is how long the records of one Subscription are judged in one step, beside the time of
	// one record. Others wait for as long.
	judgeFor = time.Millisecond
	// judgedBetween is how many quick records are judged between two looks at the clock, which take as
	// long as a tenth of one, and judgedLarge the size from which on a record isn't quick.
	judgedBetween = 64
	judgedLarge   = 16 << 10
	// infoJudges is how often up to stepBytes are judged for Info: it need not be exact.
	infoJudges = 8
	// whyRest is the pause between two records of a Subscription of which it is kept why they can't be
	// judged: to find that out takes some 10 µs. whyBytes bounds that text.
	whyRest  = time.Second
	whyBytes = 256
	// createBytes bounds what is read before Create returns, to find the start position. The rest
	// is read in later steps.
	createBytes = 32 << 20

	// lazyFor is how long deliveries and acks without a reply may stay in memory. A crash
	// redelivers what happened in that time.
	lazyFor = 50 * time.Millisecond
	// lazyBytes bounds their size in memory.
	lazyBytes = 64 << 10
	// heldBytes bounds the buffer while the disk is behind. Beyond it, a full snapshot is written
	// later instead.
	heldBytes = 4 << 20
	// snapshotBytes is the size of a state log since its last full snapshot at which the next one
	// is written and the log trimmed, or snapshotFactor times that snapshot, if more. So the log
	// has at most a few times the cursors' size, and snapshots are at most a quarter of the bytes
	// written.
	snapshotBytes  = 256 << 10
	snapshotFactor = 4
	// snapshotBatch is the size of one batch of a full snapshot.
	snapshotBatch = 512 << 10

	// longestPause is when a paused Subscription is looked at again at the latest. A sum of two times
	// in nanoseconds must not overflow.
	longestPause = 24 * time.Hour

	// deadLettersAtOnce and deadLetterBytes bound the dead letters of one Subscription that are being
	// stored: as many as fill the round trip to another broker.
	deadLettersAtOnce = 64
	deadLetterBytes   = 1 << 20
	// deadLetterFirst and deadLetterLast bound the pause before a refused dead letter is sent again.
	// Each refusal doubles it.
	deadLetterFirst = time.Second
	deadLetterLast  = time.Minute
	// deadLetterTimeout is how long an answer may take. A sender answers each message sooner.
	deadLetterTimeout = 30 * time.Second
	// deadLetterSubject is the longest subject of a dead letter: a line of the client protocol may
	// have 4 KiB. deadLetterText is the longest text of an answer that is kept: 1000 pending records
	// with a text each take 256 KiB.
	deadLetterSubject = 2048
	deadLetterText    = 256

	// retryAfter is the pause before a failed read or append is tried again.
	retryAfter = time.Second
)
