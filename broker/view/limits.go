package view

import "time"

// Bounds of views, each with the reason for its value.
const (
	// maxSubjects is how many patterns of subjects a view has: each record is compared with all.
	maxSubjects = 32
	// maxValues is how many values a view has, as many as aggregates have functions.
	maxValues = 32
	// maxTriggers is how many triggers a view has: each result is judged by all, at some µs each.
	maxTriggers = 16
	// maxDuration is the longest lateness and idle time: that of a window.
	maxDuration = 20 * 365 * 24 * time.Hour
	// maxAhead is how much later than a record was stored the time may be that it names. A later one
	// would close the windows of all other records. It has room for clocks that are wrong, and not
	// for a wrong zone.
	maxAhead = time.Hour
	// maxOpen is how many windows of all keys are open in a shard, or keys of a view without windows.
	// Records for more are refused and counted. At the some 250 bytes of a count and a mean they take
	// 13 MB.
	maxOpen = 50_000
	// maxOpenBytes bounds the memory of what is open in a shard: its checkpoint has as many bytes, and
	// is written again and again.
	maxOpenBytes = 16 << 20
	// maxHeld bounds the windows of a shard with those that the owner has not acknowledged. With more
	// the shard pauses. An encoded aggregate has at most 100,000.
	maxHeld = 90_000
	// maxHeldBytes bounds their memory. With what one record may add (26 MiB: a sketch of 16 KiB in
	// place of one of 8 KiB, in 32 functions of 100 windows) they fit into an encoded aggregate.
	maxHeldBytes = 32 << 20
	// maxKeepBytes bounds the keys that an acknowledgement names: sessions that go on in one shard
	// and have ended in another. Beyond it nothing is acknowledged, and shards pause at maxHeld.
	maxKeepBytes = 8 << 20
	// maxCheckpoint is the size of an encoded shard or snapshot: what maxHeldBytes and maxKeepBytes
	// allow.
	maxCheckpoint = 128 << 20
	// pageBytes is the size of a hand-over: what a link sends as one piece.
	pageBytes = 1 << 20
	// maxPending is how many windows the owner merges at a time. It takes no more of a shard that is
	// ahead of others, and of the others their part of spareBytes: they fit beside them into the
	// 100,000 of an aggregate.
	maxPending = 70_000
	// maxPendingBytes bounds their memory, for the same reason.
	maxPendingBytes = 192 << 20
	// spareBytes is what the owner takes of shards that others wait for, beyond maxPending, of all of
	// them together: some 20,000 windows. Of 1,024 shards each has 20 windows, or one; of a few, a
	// page, since a shard makes and sends the whole page again for what was not taken of it.
	spareBytes = 4 << 20
	// leastSpare is what it takes of them at least if it has less room than spareBytes, and leastPage
	// the smallest page: so there is progress, in steps that 256 owners may make at once.
	leastSpare = 64 << 10
	leastPage  = 64 << 10
	// startBytes is what an entry of a map by key takes without the key, and valueBytes a value of a
	// result, and a row takes as much as rowValues of them.
	startBytes = 48
	valueBytes = 64
	rowValues  = 4
	// leastWindow is what a window takes at least (package aggregate: groupBytes).
	leastWindow = 160
	// maxShards is how many shards a view reads.
	maxShards = 1024
)
