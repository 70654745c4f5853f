package statistics

// Bounds, each with the reason for its value.
const (
	// maxValues is how many different values of a segment are collected. A path with more, such as an
	// id, is in each segment by other values that a scan seldom asks for twice.
	maxValues = 4096
	// maxBytes bounds the statistics of a broker: those of 500 segments with the most values, or of
	// some 50,000 with a few.
	maxBytes = 16 << 20
	// entryBytes is what an entry takes beside its values and texts, about.
	entryBytes = 256
	// builtBytes is what a value takes while values are collected, about.
	builtBytes = 32
	// mostPaths is of how many paths a file has the values. Those of the oldest ones make room.
	mostPaths = 8
	// maxPathBytes bounds the name of a path in a file. Longer ones are in memory only.
	maxPathBytes = 512
	// MaxFileBytes is the size of the largest file.
	MaxFileBytes = headerBytes + mostPaths*(pathBytes+maxPathBytes+8*maxValues) + sumBytes
)
