package activity

import "time"

const (
	// Kept is how long a client counts after its last pull or ack: longer than clients wait between
	// two pulls, and than the operator between two polls.
	Kept = time.Minute
	// Longest is how long a client counts after a pull that waits for longer, or for ever: whether
	// it still waits is known to the leader only.
	Longest = time.Hour
	// refresh is how often a pull of one client is looked at: parsing takes a microsecond.
	refresh = time.Second
	// mostClients bounds what is remembered, at about 100 bytes for each client of a Subscription.
	mostClients = 1 << 16
)
