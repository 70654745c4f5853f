package replica

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// ID names a shard.
type ID struct {
	Topic string // id of the Topic
	Shard int
}

// Config is what an Exchange works with.
type Config struct {
	Self string // id of this broker
	// Dial connects to another broker for replication. The connection is authenticated.
	Dial  func(ctx context.Context, broker string) (net.Conn, error)
	Store Store
	// Now is the time since some moment before; it never goes back. nil: the process' own.
	Now    func() time.Duration
	Logger *slog.Logger
}

// Store is where in-sync sets are kept; *coordination.Client is one.
type Store interface {
	SwapInSync(ctx context.Context, self coordination.Replica, before *coordination.Shard, inSync []coordination.Replica) (*coordination.Shard, error)
	ReadShards(ctx context.Context, topicID string) ([]*coordination.Shard, int64, error)
}

// LeadConfig describes a shard that is led here in one epoch.
type LeadConfig struct {
	ID
	Shard      *coordination.Shard // names this broker its leader
	MinInSync  int
	Durability log.Durability
	Logs       [Parts]*log.Log
	High       [Parts]uint64 // up to where records were known to be safe
	// Moved is called after a follower's progress, or a change of the set, moved a watermark. It must not block.
	Moved func()
}

// FollowConfig describes a shard that is followed here.
type FollowConfig struct {
	ID
	Shard      *coordination.Shard // names another broker its leader
	Durability log.Durability
	Logs       [Parts]*log.Log
	// Failed is told, once, that a log takes nothing more.
	Failed func(error)
}
