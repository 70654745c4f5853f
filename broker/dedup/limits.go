package dedup

const (
	// MaxIDs is how many message ids one shard remembers within its deduplication window, at about
	// 80 bytes each: 8,700 messages with an id per second for the usual two minutes.
	MaxIDs = 1 << 20
	// MaxTogether is the same over all shards that a broker leads, and again over all that it
	// follows: 160 MB each, as a medium node can spare. A follower that has no room for an id
	// forgets older ones, and reads them again if it is elected.
	MaxTogether = 2 << 20
	// LeastIDs is how many ids a shard may have in any case: two a second for the usual two minutes.
	// If all of 10,000 shards had so many beside MaxTogether, they would take 200 MB.
	LeastIDs = 256
)
