package filter

// Bounds of a filter, each with the reason for its value.
const (
	// maxExpression is the size of an expression in bytes. It is in specs, in etcd and in memory.
	maxExpression = 4 << 10
	// maxNodes bounds the nodes of an expression, which macros multiply.
	maxNodes = 1000
	// maxNesting bounds the recursion of parsing, checking and judging.
	maxNesting = 32
	// maxPattern bounds the program of a regular expression, since each byte may cost as much.
	maxPattern = 1000
	// maxCost is the estimated cost of judging one record, in the units of cel-go: some tenths
	// of a second for the most expensive record. It allows several passes over a list of the largest
	// size, and refuses a pass within a pass.
	maxCost = 50_000_000
	// maxElements is how many elements of arrays and members of objects are made values for one
	// record: at 24 bytes each, and more for nested ones. Finding a name makes none of the others.
	maxElements = 64 << 10
	// maxPayload is the size of the largest payload, as far as the cost of its strings is estimated.
	maxPayload = 8 << 20
	// freeFinds is how many names cel-go's conditions look for before what they pass over counts. Our
	// own nodes find as many in one pass, so the verdicts of both are the same.
	freeFinds = 64
	// maxPassed bounds the bytes of the payload that cel-go's conditions pass over, to some tenths of
	// a second.
	maxPassed = 16 * maxPayload
	// memberCost is what passing over a member costs beside its bytes.
	memberCost = 16
	// maxMade bounds the bytes of texts that functions make, and of those that they refuse.
	maxMade = 64 << 20
	// maxScanned bounds the bytes in which contains and matches look, times the size of the
	// pattern's program, since each of its instructions may look at each byte. It allows a short
	// pattern to look at the largest text.
	maxScanned = 5 * maxPayload
	// maxFound is how many values of an object are kept for the next time they are asked for.
	maxFound = 64
	// maxSubject is the size of the largest subject, and of a header's value. Both are counted in
	// the size of a message's protocol line or header block.
	maxSubject = 4 << 10
	// maxHeaders is the number of the headers of a message.
	maxHeaders = 4 << 10
	// maxDepth is the nesting of arrays and objects in a payload.
	maxDepth = 100
	// mostJudged bounds the conditions of a Set that are judged one by one for a record: those that no
	// hash finds, and those that the values of one record find. Each take some 20 µs.
	mostJudged = 64
	// judgedLarge is the size of a record from which on a Set judges none one by one, since each reads
	// it anew.
	judgedLarge = 16 << 10
	// mostGroups bounds the paths, headers and subjects that a Set looks up for each record.
	mostGroups = 64
	// maxAttributes is the size of a subject's attributes.
	maxAttributes = 4 << 10
	// maxSubjectCost is the estimated cost of judging one subject: a millisecond or less, since a
	// change may have many conditions judge. It allows several passes over a list of the largest
	// size.
	maxSubjectCost = 200_000
	// maxResult is the size of a result that is a text, such as that of max.
	maxResult = 1 << 10
	// maxSubjectMade is maxMade for a subject: 16 times its attributes.
	maxSubjectMade = 16 * maxAttributes
	// maxSubjectScanned is maxScanned for a subject. It allows a long pattern to look at a usual
	// text, and a short one at the largest.
	maxSubjectScanned = 16 * maxAttributes
	// maxPaths is the number of JSON paths that one pass over the payload finds.
	maxPaths = 32
)
