package counting

const (
	// maxDigits is how many digits an increment or a total may have, with its sign: far more than any
	// use, and so few that adding and keeping them costs little.
	maxDigits = 1024
	// maxSources is the largest header about other streams, in bytes: it is kept with the total. That
	// of hundreds of streams is smaller.
	maxSources = 64 << 10
	// maxHeld is the bytes of totals that the shards of a broker remember together: of some 400,000
	// counters. What is forgotten is read again.
	maxHeld = 64 << 20
	// overhead is what a remembered total takes beside its digits.
	overhead = 96
	// readers is how many records are read at once. They are mostly in memory.
	readers = 4
	// maxReads bounds the reads that wait, for all shards.
	maxReads = 16 << 10
	// maxAnswers is the number of read totals after which those are forgotten that nobody asked for
	// again.
	maxAnswers = 4096
)
