// Package limits names every bound of a broker in one place, each with its reason, so that
// "what happens at the edge" has one answer. Profiles scale the few that depend on the node.
package limits

import (
	"fmt"
	"strings"
	"time"
)

// Bounds that hold on every node.
const (
	// ControlLine is the longest protocol line in bytes: what nats-server accepts, so that
	// a client that works there works here. CONNECT with a long token is what needs it.
	ControlLine = 4096
	// SubscriptionsPerConnection bounds what one client can make the interest index hold:
	// about 250 bytes each, so at most 25 MiB.
	SubscriptionsPerConnection = 100_000
	// AuthTimeout is how long a connection may stay silent before CONNECT when a user or a
	// token is required. It is generous for a client behind a slow link and short for a scanner.
	AuthTimeout = 2 * time.Second
	// PingInterval and PingsOutstanding say when a silent client is given up: a laptop that
	// was closed is noticed after about six minutes, as with nats-server.
	PingInterval     = 2 * time.Minute
	PingsOutstanding = 2
	// WriteDeadline ends a client whose socket took nothing at all for this long.
	WriteDeadline = 10 * time.Second
	// LoopBacklog is how many bytes of messages may wait in one sender loop before the
	// connections that publish to it are read no further. It is one loop's work of some
	// ten milliseconds: more would only add latency.
	LoopBacklog = 16 << 20
	// LoopEntries bounds the same backlog by count, since small messages cost more to send
	// than their bytes say.
	LoopEntries = 64 << 10
	// InlineReceivers is the most deliveries that a reader makes itself instead of waking a
	// sender loop: it saves a request two goroutine switches, and more would delay its client.
	InlineReceivers = 4
	// InlineSends is the same for what a broker itself sends, acks above all: no client of its waits
	// meanwhile, and those who get them do.
	InlineSends = 512
	// StallStep and StallSteps bound how long one read of a publisher may be held back for a
	// receiver near its pending bound, and StallReceivers the number of receivers above which it is
	// not: a fast publisher with one consumer then runs at the consumer's pace instead of ending it.
	StallStep      = 2 * time.Millisecond
	StallSteps     = 5
	StallReceivers = 16
)

// Bounds of the logs on a disk.
const (
	// BatchBytes is the longest batch: the largest message, with room for how it is encoded.
	BatchBytes = 16 << 20
	// SegmentSmallest and SegmentLargest bound a segment file, each twice its predecessor: 10,000
	// logs fit a small disk, and a large log is read, sealed and deleted in pieces of a second.
	SegmentSmallest = 256 << 10
	SegmentLargest  = 64 << 20
	// IndexInterval is how many bytes of a segment one entry of its index covers: what a read at
	// any offset reads too much, against 16 bytes of memory.
	IndexInterval = 32 << 10
	// TailBytes is how much of what was appended last, over all logs of a disk, is kept in memory
	// for readers that follow closely.
	TailBytes = 64 << 20
	// DiskBacklog is how many bytes may wait to be written before publishers are held up: a
	// second's work of a slow disk.
	DiskBacklog = 64 << 20
	// OpenSegments is how many segment files a disk keeps open while nobody uses them, well below
	// the usual bound of 65,536 descriptors and enough for the shards that are busy at a time.
	OpenSegments = 4096
	// SyncAllFrom is how many dirty files are synced by one syncfs instead of one by one. Measured: 0.18 ms
	// against 0.50 for 4 files, 1.4 against 13 for 100. Fewer stay with fdatasync, since syncfs also
	// writes what nobody is waiting for.
	SyncAllFrom = 4
	// CompactSubjects is of how many subjects compaction remembers the newest record at once, some 50 bytes each. It
	// is one log's at a time; a log with more is gone through once for each so many.
	CompactSubjects = 1 << 20
	// DiskStallWarn is how long a commit round or an operation on the disk may take before it is
	// reported: a thousand times what a sync takes on a good disk, and the age at which etcd warns, too.
	DiskStallWarn = time.Second
	// DiskStallLimit is how long it may take before the broker gives up leading. Others shall lead
	// within 10 s of the last sync: this, up to 2 s to end the lease, or the rest of its 3 s if etcd
	// does not answer, and an election. Less would move leadership for what passes: a drive that
	// resets its link, or a volume that moves to another path, is back within a few seconds.
	DiskStallLimit = 5 * time.Second
	// DiskReadStallLimit is the same for a read alone: a drive retries a bad sector for up to 30 s, and
	// only that reader waits.
	DiskReadStallLimit = time.Minute
	// SegmentsPerAge is into how many segments a log that is kept by age is at least cut, so that
	// records outlive their age by no more than a quarter.
	SegmentsPerAge = 4
)

// Profile holds the bounds that scale with the node that a broker is to fit on.
type Profile struct {
	Name string
	// Payload is the largest message in bytes, headers included. Batches of records travel as one.
	Payload int
	// Connections is the most clients at once: at about 10 kB each while idle, they may take
	// a third of the node's memory.
	Connections int
	// Pending is what one slow client may leave unread, in bytes, before it is closed.
	Pending int64
	// NodePending is the same over all clients together: a third of the broker's memory.
	NodePending int64
}

// Profiles, by the commodity node that they fit. The order is that of size.
var profiles = []Profile{
	{Name: "small", Payload: 8 << 20, Connections: 16_000, Pending: 32 << 20, NodePending: 192 << 20},
	{Name: "medium", Payload: 8 << 20, Connections: 40_000, Pending: 64 << 20, NodePending: 512 << 20},
	{Name: "large", Payload: 8 << 20, Connections: 80_000, Pending: 64 << 20, NodePending: 1 << 30},
	{Name: "xlarge", Payload: 8 << 20, Connections: 160_000, Pending: 64 << 20, NodePending: 2 << 30},
}

// DefaultProfile is the node of 2 vCPU and 4 GiB.
const DefaultProfile = "medium"

// ForProfile returns the bounds of the named profile.
func ForProfile(name string) (Profile, error) {
	names := make([]string, 0, len(profiles))
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("profile %q is not known; choose one of %s", name, strings.Join(names, ", "))
}
