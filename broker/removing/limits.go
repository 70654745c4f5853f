package removing

const (
	// readBytes is how much of a log is read at once when removals are loaded.
	readBytes = 256 << 10
	// takenItems is after how many bytes of Items that batches carry these are written to the state
	// log, and takenData after how many bytes of messages, if any removes something. A new leader
	// reads as much of the data log again: some 50 ms.
	takenItems = 64 << 10
	takenData  = 32 << 20
)
