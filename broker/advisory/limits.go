package advisory

const (
	// waiting bounds the queued advisories: what a broker publishes in some 10 ms.
	waiting = 4096
	// waitingBytes bounds their memory in bytes. An audit of an API call contains its answer.
	waitingBytes = 8 << 20
)
