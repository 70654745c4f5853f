package system

const (
	// atOnce and waiting bound the requests under way: tools send one at a time.
	atOnce  = 2
	waiting = 256
	// waitingBytes bounds their memory in bytes, and requestBytes the size of one.
	waitingBytes = 1 << 20
	requestBytes = 64 << 10
)
