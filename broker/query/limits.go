package query

// Bounds of queries, each with the reason for its value.
const (
	// maxText is the size of a query in bytes, as of other conditions.
	maxText = 4 << 10
	// maxNesting bounds the recursion of parsing CQBS. CEL has this bound for what comes of it.
	maxNesting = 32
	// maxCover is how many pairs of a name and a value a query is indexed by. One with more values
	// is judged at each change of the names that it has.
	maxCover = 64
	// maxNames is how many names a query is indexed by under each pair. One with more is judged at
	// each change.
	maxNames = 16
	// historyEntries and historyBytes bound the changes that are kept for queries that resume: half
	// a minute at 2,000 changes a second, which is longer than a client takes to reconnect.
	historyEntries = 64 << 10
	historyBytes   = 32 << 20
	// chunkBytes is the size of a chunk of a history: one is made for some hundred changes, and a
	// change that is still known keeps it.
	chunkBytes = 64 << 10
	// maxQueries and maxOwned bound the open queries of a broker and of one owner. What one owner may
	// have of a bound of all, here and below, is less while more than half is taken (Share).
	maxQueries = 20_000
	maxOwned   = 1_000
	// maxCosts and maxOwnedCosts bound the estimated costs of all distinct queries: of those of a
	// broker, and of those of one owner. A change may have all of them judged: some tenths of a
	// second, as the costliest filter of a record takes.
	maxCosts      = 50_000_000
	maxOwnedCosts = 5_000_000
	// maxOpenCosts bounds the estimated costs of a query for all subjects, which are judged when it
	// is opened: some seconds of a processor, while nobody waits for it but those who open queries.
	maxOpenCosts = 2_000_000_000
	// maxResumeCosts bounds those of the changes that a query resumes over: some tenths of a second.
	// Changes wait meanwhile.
	maxResumeCosts = 50_000_000
	// readCost is added for each byte of the attributes that these changes have replaced. They are
	// kept in a compact form, which takes up to 50 ns a byte to read. So a query can resume over the
	// whole history if attributes have 70 bytes on average, and over 1,200 of the largest ones.
	readCost = 10
	// maxMemory is about what the subjects, the queries and their members take in a broker. 100,000
	// subjects are 20 MiB. A member of a query takes 8 bytes, or two bits per subject if that is
	// less, so 10,000 queries with a hundredth of the subjects each take 80 MiB.
	maxMemory = 192 << 20
	// maxOwnedMemory is about what the queries of one owner take: 1,000 queries that match all of
	// 100,000 subjects take 25 MiB.
	maxOwnedMemory = 48 << 20
	// subjectBytes, groupBytes, openBytes, entryBytes and changedBytes are what a subject, a
	// distinct query, an open query, a pair in the index and a change take beside their texts and
	// lists. A test compares them with the heap.
	subjectBytes = 200
	groupBytes   = 600
	openBytes    = 200
	entryBytes   = 400
	changedBytes = 64
	// patternCost is added to the estimate for patterns, whose work is counted as it is done. That
	// may be half a millisecond, and is a microsecond with usual attributes.
	patternCost = 10_000
)

// Limits are the bounds of a Set.
type Limits struct {
	Queries, Owned    int    // open queries: of all, of one owner
	Costs, OwnedCosts uint64 // of distinct queries, in the units of cel-go
	OpenCosts         uint64 // of a query for all subjects
	ResumeCosts       uint64 // of a query for the changes that it resumes over
	Memory            int    // bytes, about
	OwnedMemory       int
	HistoryEntries    int
	HistoryBytes      int
}

// DefaultLimits returns those of a broker.
func DefaultLimits() Limits {
	return Limits{
		Queries: maxQueries, Owned: maxOwned, Costs: maxCosts, OwnedCosts: maxOwnedCosts,
		OpenCosts: maxOpenCosts, ResumeCosts: maxResumeCosts, Memory: maxMemory, OwnedMemory: maxOwnedMemory, HistoryEntries: historyEntries, HistoryBytes: historyBytes,
	}
}
