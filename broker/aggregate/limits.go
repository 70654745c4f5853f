package aggregate

import "time"

// Bounds of aggregates, each with the reason for its value.
const (
	// maxText is the size of a list of functions, or of keys, in bytes: that of one expression.
	maxText = 4 << 10
	// maxColumns bounds what is computed for each record.
	maxColumns = 32
	// maxKeys is how many expressions a key has.
	maxKeys = 8
	// maxName is the size of the name of a column.
	maxName = 128
	// maxGroups is how many windows of all keys are open. At the some 200 bytes of a count they
	// take 20 MB.
	maxGroups = 100_000
	// maxBytes bounds the memory of what windows hold beside that: keys and sketches.
	maxBytes = 256 << 20
	// groupBytes is what a window of a key takes without its functions.
	groupBytes = 160
	// cellBytes is what a function takes of it, at most, when it is encoded: two numbers of 9 bytes,
	// and lengths.
	cellBytes = 24
	// maxKeyBytes is the size of a key. A record with a longer one is not grouped.
	maxKeyBytes = 1 << 10
	// maxExtreme is the size of a text that min and max keep. A longer one has no value.
	maxExtreme = 1 << 10
	// maxOverlap is how many sliding windows a record is in, since each costs as much as a record.
	maxOverlap = 100
	// minWindow is the shortest window, gap and slide: shorter ones are mistakes.
	minWindow = time.Millisecond
	// maxWindow is the longest window, gap and lateness, such that times plus some of them fit into
	// an int64 of ns.
	maxWindow = 20 * 365 * 24 * time.Hour
	// maxTime is how far a time may be from 1970, for the same reason: the years 1771 to 2169.
	maxTime = int64(200 * 365 * 24 * time.Hour)
	// maxBins are the bins of a quantile sketch: 32 KiB. Numbers that fill all bins of 16 doublings
	// (1 to 65,536) have bins of 1/128.
	maxBins = 2048
	// maxHashes are the values that are counted exactly: as many bytes as half of the registers that
	// follow.
	maxHashes = 1024
	// maxEncoded is the size of an encoded partial: a part of what an object store or a log takes as
	// one piece.
	maxEncoded = 64 << 20
)
