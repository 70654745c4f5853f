package metrics

import (
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/jetstream"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/push"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/stall"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// Sources are the parts of a broker that metrics are read from. All but Routes, the TLS ones and
// Users are required.
type Sources struct {
	Version, Cluster, Broker, Zone string // labels of carillon_info

	Node    Node
	Clients interface{ Stats() session.Stats }
	// ClientPendingLimit is how many bytes may be pending for all clients together.
	ClientPendingLimit int64
	Routes             interface{ Stats() route.Stats } // nil: a broker without links
	TLS                *env.TLS                         // of links; nil: plaintext
	EtcdTLS            *env.TLS                         // of the client of etcd; nil: it uses TLS
	ClientTLS          *env.TLS                         // nil: plaintext
	Users              Users                            // nil: they are not in etcd
	// Definitions are what clients have declared in etcd.
	Definitions interface {
		ClientRoom() coordination.ClientRoom
	}

	// Attributes are those of subjects.
	Attributes interface {
		Store() *attribute.Store
		Stats() coordination.AttributeStats
	}

	Queries interface{ Stats() live.Stats } // of subjects, by their attributes

	Controller interface {
		Stats() placement.ControllerStats
	}
	Topics        Topics
	Replication   interface{ Stats() replica.Stats }
	Subscriptions interface{ Stats() subscription.Stats }
	Push          interface{ Stats() push.Stats }
	JetStream     interface{ Stats() jetstream.Stats }
	Admin         interface{ Stats() admin.Stats }
	Sourcing      interface{ Stats() sourcing.Stats }
	Views         interface{ Stats() viewing.Stats }
	Disk          Disk
	Clock         Clock
}

// Node is the broker's own state.
type Node interface {
	Ready() bool  // accepts clients
	Joined() bool // has registered
	Members() []coordination.Broker
	Stall() stall.Stall // of the disk
	Generation() int64  // of etcd
}

// Users are users in etcd.
type Users interface {
	Counts() (right, wrong int)
	Stale() time.Duration // 0: they are the present ones
}

// Topics is the part of topic.Service that metrics read.
type Topics interface {
	Stats() topic.Stats
	Compacted() upkeep.Rewrites
	Expunged() upkeep.Rewrites
	Suspects() int
	ScrubStats() topic.ScrubStats
	Unscrubbed() time.Duration
}

// Clock is the part of clock.Clock that metrics read.
type Clock interface {
	Verdict() *clock.Verdict
	Away() time.Duration
	Jumps() uint64
}

// Disk is the part of log.Disk that metrics read.
type Disk interface {
	Stats() log.DiskStats
	Free() (uint64, error)
	AsideUsage() (pieces int, bytes int64, err error)
}
