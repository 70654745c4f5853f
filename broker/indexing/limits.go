package indexing

import "time"

const (
	// mostOpen is how many indexes are open at once. Each takes some KiB, and the footers of its
	// files.
	mostOpen = 1024
	// partsBytes is the memory for records that are not in files yet, over all indexes of a disk.
	// An index alone may take 48 MiB (subjectindex.PartBytes). Beyond, no index is opened but for
	// conditions. At mostParts nothing is read, and at conditionParts not for conditions either.
	partsBytes     = 128 << 20
	mostParts      = 2 * partsBytes
	conditionParts = 3 * partsBytes
	// readersAtOnce is how many indexes are opened, closed and read for at once, makersAtOnce how many
	// files are written: the disk is the log's first.
	readersAtOnce = 4
	makersAtOnce  = 1
	// findersAtOnce is for how many shards last records are found at once: what a disk reads at once.
	findersAtOnce = 16
	// leastFree is the free space of the disk below which no files are written: what the log needs is
	// more urgent.
	leastFree = 64 << 20
	// askBytes is how much of a log is read while a question waits: some 20 ms.
	askBytes = 16 << 20
	// lockTime is how long a question waits for another one that reads as much.
	lockTime = 50 * time.Millisecond
	// tryTime is the pause before a question that waits is tried again, after quickTries without one.
	tryTime    = 5 * time.Millisecond
	quickTries = 8
	// stepBytes is how much a reader reads of one log before questions have their turn.
	stepBytes = 1 << 20
	// readBytes is how much is read at once.
	readBytes = 256 << 10
	// behindSegments is how many segments an index reads record by record to catch up. If it lacks
	// more, it is opened anew, and the worker makes the files of the segments.
	behindSegments = 2
	// idleTime is after how long an index closes that nobody asks for: scrapers ask once a minute.
	idleTime = 5 * time.Minute
	// evictTime is how long an index is spared that was asked lately, if another one needs its
	// place. A condition spares only those that conditions asked.
	evictTime = 10 * time.Second
	// sweepTime is how often indexes are looked for that nobody asks for.
	sweepTime = time.Minute
	// retryTime is when work is tried again after a failure of the disk.
	retryTime = 5 * time.Second
	// mostLasts is of how many subjects a shard remembers the last record, twice, at about 50 bytes
	// each. lastsInAll is how many records all shards of a disk remember together: 100 MiB. The index
	// knows the others.
	mostLasts  = 1 << 20
	lastsInAll = 2 << 20
	// lastBytes is what one of these takes, and oldestBytes what a subject takes whose oldest records
	// are remembered, at 8 bytes each.
	lastBytes   = 50
	oldestBytes = 150
	// MostOldest is how many of one subject are remembered. Of a subject with more these are found
	// again after as many publishes. It is also how many records a rollup of a pattern removes.
	MostOldest = 1 << 16
	// mostMatches is how many patterns of a shard are known at once, and matchTime for how long one is
	// known that nobody asks for. Each record that is noted is compared with them.
	mostMatches = 16
	matchTime   = 10 * time.Second
	// mostDoomed is after how many doomed records those are forgotten that are removed.
	mostDoomed = 1 << 12
	// mostFinds is how many subjects of a shard may wait for being found.
	mostFinds = 4096
	// findsAtOnce is how many are found before other shards have their turn.
	findsAtOnce = 64
	// findTime bounds the finding of one. Publishers wait up to 5 s for their acks.
	findTime = 2 * time.Second
	// restTime is how long no subject is looked for after the index was not ready.
	restTime = 500 * time.Millisecond
	// restAfter is after how long without conditions a shard notes no more last records. That costs 50
	// ns per record with 1,000 subjects, and half a microsecond with a million.
	restAfter = 5 * time.Minute
	// tellTime is how long a sender waits for further subjects after its own was found.
	tellTime = 2 * time.Millisecond
	// loadersAtOnce is for how many shards all subjects are loaded at once, and loadTime for how long.
	// It is not tried again for loadRest if the index was not ready, for failedRest if the disk was
	// too slow or failed, and for crowdedRest if other shards need the memory.
	loadersAtOnce = 4
	loadTime      = 30 * time.Second
	loadRest      = time.Second
	failedRest    = 30 * time.Second
	crowdedRest   = time.Minute
	// failedTime is how long the failure to find a subject is remembered for the message that waits.
	failedTime = 10 * time.Second
)

const (
	// shortFind is a search that is followed by no pause. A goroutine that only computes gives up its
	// core every 10 ms, and a message passes several goroutines on its way. So clients that ask for
	// ever new patterns would delay all others by many times that.
	shortFind = 200 * time.Microsecond
	// longestPause bounds that, within which others waited for a core long enough.
	longestPause = 10 * time.Millisecond
)

// pauseAfter returns how long nothing is searched after a search that took some time: as long, so
// that searches take half of a core at most.
func pauseAfter(took time.Duration) time.Duration {
	if took < shortFind {
		return 0
	}
	return min(took, longestPause)
}
