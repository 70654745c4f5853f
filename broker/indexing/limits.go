package indexing

import "time"

const (
	// mostOpen is how many indexes are open at once. Each takes some KiB, and the footers of its
	// files.
	mostOpen = 1024
	// partsBytes is the memory for records that are not in files yet, over all indexes of a disk.
	// An index alone may take 48 MiB (subjectindex.PartBytes).
	partsBytes = 128 << 20
	// askBytes is how much of a log is read while a question waits: some 20 ms.
	askBytes = 16 << 20
	// workBytes is how much the worker reads of one log before it turns to another one.
	workBytes = 32 << 20
	// readBytes is how much is read at once.
	readBytes = 256 << 10
	// behindSegments is how many segments an index reads record by record to catch up. If it lacks
	// more, it is opened anew, and the worker makes the files of the segments.
	behindSegments = 2
	// idleTime is after how long an index closes that nobody asks for: scrapers ask once a minute.
	idleTime = 5 * time.Minute
	// evictTime is how long an index is spared that was asked lately, if another one needs its
	// place.
	evictTime = 10 * time.Second
	// sweepTime is how often indexes are looked for that nobody asks for.
	sweepTime = time.Minute
	// retryTime is when the worker tries again after a failure of the disk.
	retryTime = 5 * time.Second
)
