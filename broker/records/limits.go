package records

const (
	// scanBytes is how much one search for a record of a subject reads: about half a second.
	scanBytes = 256 << 20
	// readBytes is how much of it is read at once.
	readBytes = 256 << 10
	// lastTries is how often the index is asked for a last record that is removed meanwhile.
	lastTries = 3
	// ReadAtOnce is how much of a log is read for them while publishers wait: some 20 ms.
	ReadAtOnce = 16 << 20
)
