package limits

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of clients and sender loops, on every node.
const (
	// ControlLine is the largest control line in bytes, that of nats-server, so that every client
	// works. CONNECT with a long token needs it.
	ControlLine = 4096
	// SubscriptionsPerConnection bounds the entries of one client in the interest index. Their
	// memory is bounded by Profile.Interest.
	SubscriptionsPerConnection = 100_000
	// PatternTokens is the most tokens of a pattern: far more than any scheme of subjects has, and
	// few enough that one SUB takes no more than 40 KiB.
	PatternTokens = 128
	// GroupsPerPattern is the most queue groups on one pattern. A publish looks at each.
	GroupsPerPattern = 1000
	// AuthTimeout is how long a connection may take for CONNECT if a user or a token is required:
	// enough for a client behind a slow link, and short for a port scan.
	AuthTimeout = 2 * time.Second
	// HandshakeTimeout is how long a TLS handshake with a client may take, without the time that it
	// waits for its turn: nats-server's.
	HandshakeTimeout = 2 * time.Second
	// TLSFirstWait is how long a broker waits for a client that begins with the handshake, before it
	// sends INFO in plaintext: nats-server's.
	TLSFirstWait = 50 * time.Millisecond
	// HandshakeBytes bounds what a client sends in a handshake: twice a long chain of certificates.
	// crypto/tls holds up to three times that, so all is below 64 KiB.
	HandshakeBytes = 16 << 10
	// PingInterval and PingsOutstanding say when a silent client is closed: after about six
	// minutes, as with nats-server.
	PingInterval     = 2 * time.Minute
	PingsOutstanding = 2
	// WriteDeadline closes a client whose socket accepted nothing for this long.
	WriteDeadline = 10 * time.Second
	// LoopBacklog is how many bytes of messages may be queued in one sender loop before its
	// publishers have to wait. It is about ten milliseconds of a loop's work; more would add
	// latency only.
	LoopBacklog = 16 << 20
	// LoopDeliveries bounds the same queue by deliveries, the receivers of its messages. A delivery
	// takes a loop 0.1 to 1 µs: the fewer messages each of many receivers gets at once, the more it
	// takes, since each write takes as long as many deliveries. So these are ten milliseconds or
	// less.
	LoopDeliveries = 16 << 10
	// BatchDeliveries is how many deliveries a reader may add to a loop at once. A loop without room
	// for as many is behind. A read of 64 KiB has at most some 5,900 messages, so reads of the
	// smallest messages and of messages with several receivers are divided.
	BatchDeliveries = 4 << 10
	// InlineReceivers is the most deliveries that a reader makes itself instead of waking a sender
	// loop. This saves a request two goroutine switches; more deliveries would delay the reader's
	// own client.
	InlineReceivers = 4
	// InlineSends is the same for messages that the broker itself sends, mainly acks. No client's
	// input waits behind them, and their receivers do wait.
	InlineSends = 512
	// StallStep and StallSteps bound how long one read of a publisher is delayed for a receiver
	// close to its pending bound, and StallReceivers is the number of receivers above which it is
	// not delayed. So a fast publisher with one consumer runs at the consumer's pace instead of
	// having it closed as a slow consumer. The last quarter of Profile.Pending is for what comes
	// meanwhile: two publishers that send 64 KiB every 10 ms fill the small profile's in 0.65 s.
	StallStep      = 2 * time.Millisecond
	StallSteps     = 5
	StallReceivers = 16
)

// Bounds of the logs on a disk.
const (
	// BatchBytes is the largest batch: the largest message, with room for its encoding.
	BatchBytes = 16 << 20
	// SegmentSmallest and SegmentLargest bound a segment file, each twice as large as the one
	// before. So 10,000 logs fit on a small disk, and a large log is read, sealed and deleted in
	// pieces of about a second.
	SegmentSmallest = 256 << 10
	SegmentLargest  = 64 << 20
	// IndexInterval is how many bytes of a segment one index entry covers: a read at any offset
	// reads at most this much too much, against 16 bytes of memory per entry.
	IndexInterval = 32 << 10
	// TailBytes is how much of the latest appends, over all logs of a disk, is kept in memory for
	// readers close to the end.
	TailBytes = 64 << 20
	// DiskBacklog is how many bytes may wait to be written before publishers have to wait: a
	// second's work of a slow disk.
	DiskBacklog = 64 << 20
	// OpenSegments is how many unused segment files a disk keeps open: well below the usual limit
	// of 65,536 descriptors, and enough for the shards that are busy at a time.
	OpenSegments = 4096
	// SyncAllFrom is the number of dirty files from which one syncfs replaces a sync per file.
	// Measured: 0.18 ms against 0.50 ms for 4 files, 1.4 ms against 13 ms for 100. Fewer files use
	// fdatasync, since syncfs also writes unrelated data.
	SyncAllFrom = 4
	// CompactSubjects is the number of subjects whose newest record compaction remembers at a time,
	// some 50 bytes each. One log is compacted at a time; a log with more subjects is read once per
	// this number.
	CompactSubjects = 1 << 20
	// DiskStallWarn is the age at which a commit round or disk operation is reported: a thousand
	// times a sync on a good disk, and etcd's threshold, too.
	DiskStallWarn = time.Second
	// DiskStallLimit is the age at which the broker gives up leadership. Other brokers must lead
	// within 10 s of the last sync: this limit, then up to 2 s to revoke the lease or the rest of
	// its 3 s if etcd does not answer, then an election. A shorter limit would move leadership for
	// stalls that pass within seconds, such as a drive that resets its link or a volume that
	// changes its path.
	DiskStallLimit = 5 * time.Second
	// DiskReadStallLimit is the same for reads. A drive retries a bad sector for up to 30 s, and
	// only that reader waits.
	DiskReadStallLimit = time.Minute
	// SegmentsPerAge is the least number of segments of a log that is kept by age, so that records
	// outlive their age by at most a quarter.
	SegmentsPerAge = 4
)

// Profile holds the bounds that scale with the size of the node.
type Profile struct {
	Name string
	// Payload is the largest message in bytes, including headers. A batch of records is one
	// message.
	Payload int
	// Connections is the most clients at a time. Idle ones take about 10 kB each, so all of them
	// take about a third of the node's memory. With TLS they take twice as much, and up to 30 kB
	// after large messages.
	Connections int
	// Pending is how many bytes of memory the unread messages of one slow client may hold before it
	// is closed.
	Pending int64
	// NodePending is the same over all clients: a third of the broker's memory.
	NodePending int64
	// Input is how many bytes of buffers incomplete operations of more than 64 KiB may have over all
	// clients, a tenth of the broker's memory. One address has half of that at most. A buffer is a
	// power of two, so 8 MiB and a control line take 16 MiB: four or more are read at a time.
	Input int64
	// Interest is how many bytes the subscriptions of this broker's clients may take in the interest
	// index, and one client's half of that. Each linked broker holds them, too.
	Interest int64
	// Views is how many bytes the keys, windows and sketches of views may take here, those of shards
	// and those of owners together: a quarter of the broker's memory. Two thirds of that are for
	// whoever comes first: on the smallest, three shards that are as full as they may be.
	Views int64
}

// profiles are named by the commodity node that they fit, in order of size.
var profiles = []Profile{
	{Name: "small", Payload: 8 << 20, Connections: 16_000, Pending: 32 << 20, NodePending: 192 << 20, Input: 64 << 20, Interest: 96 << 20, Views: 144 << 20},
	{Name: "medium", Payload: 8 << 20, Connections: 40_000, Pending: 64 << 20, NodePending: 512 << 20, Input: 128 << 20, Interest: 256 << 20, Views: 384 << 20},
	{Name: "large", Payload: 8 << 20, Connections: 80_000, Pending: 64 << 20, NodePending: 1 << 30, Input: 256 << 20, Interest: 512 << 20, Views: 768 << 20},
	{Name: "xlarge", Payload: 8 << 20, Connections: 160_000, Pending: 64 << 20, NodePending: 2 << 30, Input: 512 << 20, Interest: 1 << 30, Views: 1536 << 20},
}

// DefaultProfile is for a node with 2 vCPU and 4 GiB.
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
