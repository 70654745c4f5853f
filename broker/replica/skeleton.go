package replica

import (
	"net"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Exchange brings what leaders append to their followers, and what followers have to their leaders.
type Exchange struct{ config Config }

// NewExchange begins to exchange. Close ends it.
func NewExchange(c Config) *Exchange { return &Exchange{config: c} }

// Observe takes over which brokers live, and in which lives, this one among them.
func (x *Exchange) Observe(state *coordination.State) {}

// Serve copies shards that are led here to another broker, which opened conn to follow them. It returns when conn
// has ended, and closes it.
func (x *Exchange) Serve(conn net.Conn, broker string) {}

// Committed lets acks go out that completions made due: after each round of the disk's committer.
func (x *Exchange) Committed() {}

// Close ends all connections and waits for everything that was started.
func (x *Exchange) Close() {}

// Stats are counters of an Exchange.
type Stats struct{}

// Stats returns the counters.
func (x *Exchange) Stats() Stats { return Stats{} }

// Leading is a shard that is led here in one epoch.
type Leading struct{ config LeadConfig }

// Lead begins to lead a shard in the epoch that it has.
func (x *Exchange) Lead(c LeadConfig) *Leading { return &Leading{config: c} }

// Grown notes that a log was appended to, in the order of the appends. promised says that somebody waits until that is safe.
func (l *Leading) Grown(p Part, end uint64, promised bool) {}

// Safe notes up to where a log is as safe here as was promised. It says whether the watermark moved, and doesn't call Moved.
func (l *Leading) Safe(p Part, end uint64) (moved bool) { return false }

// High is up to where the part's records are safe on all members of the set.
func (l *Leading) High(p Part) uint64 { return 0 }

// Readable says whether the watermark has reached where the epoch began.
func (l *Leading) Readable() bool { return false }

// Enough says whether the set has the minimum.
func (l *Leading) Enough() bool { return false }

// Adopt takes over a newer state of the shard in the same epoch. Moved is not called from within.
func (l *Leading) Adopt(shard *coordination.Shard, minInSync int) {}

// InSync is the set as etcd has it, by the last that was heard.
func (l *Leading) InSync() []coordination.Replica { return nil }

// Follower is what a leader knows of one of its followers.
type Follower struct {
	coordination.Replica
	Joined bool          // it has asked, and its connection stands
	Gone   bool          // its broker is no member of the cluster in that life
	Safe   [Parts]uint64 // up to where its logs are safe
	Behind time.Duration // for how long it hasn't caught up; 0: it has
}

// Followers are those that have asked, or are to, by broker.
func (l *Leading) Followers() []Follower { return nil }

// End ends leading: after it nothing is called or read of what LeadConfig names. It must not be called from Moved, nor with a
// lock held that Moved takes.
func (l *Leading) End() {}

// Following is a shard that is copied from its leader.
type Following struct{ config FollowConfig }

// Follow begins to copy a shard from its leader.
func (x *Exchange) Follow(c FollowConfig) *Following { return &Following{config: c} }

// Adopt takes over a newer state of the shard. Under another epoch or leader it is asked for anew.
func (f *Following) Adopt(shard *coordination.Shard) {}

// High is what the leader said last.
func (f *Following) High(p Part) uint64 { return 0 }

// State says whether the logs are being copied and, for people, what is the matter if not.
func (f *Following) State() (copying bool, why string) { return false, "" }

// End ends following: after it the exchange doesn't change the logs any more, though what was appended may still be on its way to the disk.
func (f *Following) End() {}
