package subjectindex

const (
	// PartBytes is the memory of a part beyond which it is flushed: 150,000 subjects, or 2 M records
	// of few subjects. Larger ones give fewer runs to merge. With the one that is being flushed and
	// the memory to sort it, it is less than half of the 128 MiB that a shard with 10 M subjects may
	// take.
	PartBytes = 16 << 20
	// partGivenUp is how many times PartBytes a part may take while the one before it is being
	// flushed. Beyond, the index of its records is given up and made again later: a publisher never
	// waits for the index.
	partGivenUp = 2
	// CacheBytes is the memory for blocks of files, over all shards of a disk. Filters and index
	// blocks of 10 M subjects take 17 MiB of it.
	CacheBytes = 64 << 20
	// openFiles is how many index files a disk keeps open: with the segments' own, well below the
	// usual limit of 65,536 descriptors.
	openFiles = 1024
	// blockBytes is the size of data and index blocks: a page, which a disk reads at once. Half of
	// a data block is decoded for a lookup, about 2 µs.
	blockBytes = 4 << 10
	// leastEntries is how many entries a data block, and an index block, has at least, whatever their
	// bytes: so the footer has the separator of one in 256 of the longest subjects.
	leastEntries = 16
	// postingBytes is the size of a posting block. A count of a range reads at most two of them per
	// subject and run.
	postingBytes = 16 << 10
	// inlineBytes is the size of offsets up to which they are in the entry itself.
	inlineBytes = 1 << 10
	// mostBlock is the largest block that a reader believes in: a subject of 64 KiB, with the list
	// of posting blocks of a segment of 4 GiB.
	mostBlock = 1 << 20
	// mostFooter is the largest footer that a reader believes in.
	mostFooter = 4 << 20
	// mostSubject is the longest subject: longer than any control line.
	mostSubject = 64<<10 - 1
	// filterBits is how many bits of the filter a subject gets at least. With 12, one of 160 lookups
	// of absent subjects reads a data block in vain; measured, it is one of 29 with 8 and one of 500
	// with 16.
	filterBits = 12
	// windowBytes is how much a scan of one run reads at once. A scan of many runs reads less of
	// each, so that their buffers take no more than scanBytes, unless there are more than 1,000 runs.
	// writeBytes is how much is written at once.
	windowBytes = 128 << 10
	scanBytes   = 16 << 20
	writeBytes  = 256 << 10
	// factBytes is the memory in which a shard remembers the last records of subjects in its runs, for
	// conditions, and as much again for those that were used before: 30,000 subjects each.
	factBytes = 4 << 20
	// mostChanges is how many changes of records are known one by one. A count that is older is made
	// anew.
	mostChanges = 64
	// mostStale is how often the layers may change before the number of subjects is forgotten that
	// nobody has asked for since: it keeps the files of former layers in use.
	mostStale = 64
	// lookupCost is about how many subjects a scan reads in the time of one lookup.
	lookupCost = 64
	// mostRuns is how many runs the active segment may have before they are merged into one, so
	// that lookups read few files while a large segment fills.
	mostRuns = 16
)
