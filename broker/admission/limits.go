package admission

import "time"

const (
	// Patience is how long a claim waits before slow ones give way to it. A client with 10 MB/s
	// sends an operation of 8 MiB in less, so an honest queue moves by itself.
	Patience = 2 * time.Second
	// Window is the time over which the rate of a claim is measured: longer than a lost packet is
	// sent again, and short enough that a client that sends nothing does not stay for long.
	Window = 2 * time.Second
	// Pause is the time between two calls of Evict after which it measures anew: the broker did not
	// run, and its clients are not to blame. It is three times the sweeper's period.
	Pause = 1500 * time.Millisecond
	// Floor is the rate in bytes per second below which a claim may be evicted: a slow mobile link.
	// An operation of 8 MiB takes two minutes at that rate.
	Floor = 64 << 10
	// Shares is how many parts of equal size a budget has. One address holds one of them at most,
	// so another address finds room at once.
	Shares = 2
)
