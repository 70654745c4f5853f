package removing

import "time"

const (
	// letGoRest is the pause of a purge that waits until a hold of the data log ends.
	letGoRest = time.Millisecond
	// readBytes is how much of a log is read at once when removals are loaded.
	readBytes = 256 << 10
	// takenItems is after how many bytes of Items that batches carry these are written to the state
	// log, and takenData after how many bytes of messages, if any removes something. A new leader
	// reads as much of the data log again: some 50 ms.
	takenItems = 64 << 10
	takenData  = 32 << 20
	// sweepFrom is from how many expiries on those of removed records are forgotten, each time that
	// their number has doubled.
	sweepFrom = 1 << 10
)

// MaxExpiries is how many records of a shard may be going to expire: in memory each takes 16 bytes,
// and each takes about 6 in a snapshot of the state log.
const MaxExpiries = 1 << 20

// expiryBytes is what an expiry takes in the state log, about.
const expiryBytes = 6
