package trigger

// Bounds of triggers, each with the reason for its value.
const (
	// maxName is the size of a trigger's name. It is a token of the subjects of its alerts.
	maxName = 63
	// maxStates bounds the triggers and keys that ever made an alert: as many as a view has keys. At
	// the some 300 bytes of one they take 30 MB.
	maxStates = 100_000
	// stateBytes is what a trigger and key take in memory without the key.
	stateBytes = 150
	// maxAlert is the size of an alert: the results of 32 functions, a key, and the offsets of
	// maxShards shards.
	maxAlert = 256 << 10
	// maxShards is how many shards a view reads.
	maxShards = 1024
)
